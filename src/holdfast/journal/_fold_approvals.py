"""Approvals, grants and plans.

A request is in the stream of its session, which its owner holds. An answer comes from anybody, at any time, in a
stream that nobody holds. Here is where it is decided whether it counts: the request is pending and its time has
not run out, in the very transaction that records the answer. So of two answers exactly one counts.
"""

from __future__ import annotations

from holdfast.journal._rows import Fact, Fold, Rows, Value, active_run, illegal, put_run

RELEASES = ("approved", "approved_for_session")
ANSWERS = (*RELEASES, "denied")
_QUESTION = ("asks", "form", "url", "during")
"""What a row has more when it is a question, not just about consent."""


def _approval_requested(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("approvals", said["id"]) is not None:
        raise illegal(fact, f"approval `{said['id']}` was asked already")
    value = {
        "id": said["id"],
        "status": "pending",
        "tool": said["tool"],
        "arguments": said["arguments"],
        "side_effect": said["side_effect"],
        "risk": said.get("risk", "medium"),
        "summary": said["summary"],
        "rule": said.get("rule"),
        "allowed": [*said.get("allowed", ANSWERS)],
        "requested_by": said.get("requested_by"),
        "session_id": fact.stream,
        "run_id": fact.run_id,
        "effect_id": said["effect_id"],
        "requested_at": fact.time,
        "deadline": said.get("deadline"),
        "decision": None,
        "reason_code": None,
        "settled": False,
        **{name: said[name] for name in _QUESTION if name in said},
    }
    rows.put("approvals", said["id"], value, "pending")
    if fact.run_id is not None:
        run = active_run(rows, fact)
        put_run(rows, {**run, "pending_approvals": [*run["pending_approvals"], said["id"]]})


def _approval_responded(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    asked = _pending(rows, fact)
    decision = said["decision"]
    if asked["deadline"] is not None and fact.time > asked["deadline"]:
        raise illegal(fact, f"the time for approval `{said['id']}` has run out")
    if decision["decision"] not in asked["allowed"]:
        raise illegal(
            fact, f"`{decision['decision']}` is no answer that approval `{said['id']}` allows"
        )
    status = decision["decision"]
    code = decision.get("reason_code") or f"approval.{status}"
    value = {**asked, "status": status, "decision": decision, "reason_code": code}
    _decided(rows, {**value, "decided_at": fact.time})


def _approval_ended(rows: Rows, fact: Fact) -> None:
    asked = _pending(rows, fact)
    said = fact.payload
    if said["status"] in ("pending", *RELEASES):
        raise illegal(fact, "only an answer releases a call")
    value = {**asked, "status": said["status"], "reason_code": said["reason_code"]}
    _decided(rows, {**value, "decided_at": fact.time})


def _approval_settled(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    asked = rows.get("approvals", said["id"])
    if asked is None or asked["session_id"] != fact.stream:
        raise illegal(fact, f"approval `{said['id']}` was not asked in this stream")
    if asked["settled"]:
        raise illegal(fact, f"approval `{said['id']}` was used already")
    if said["status"] in RELEASES and asked["status"] != said["status"]:
        raise illegal(fact, f"approval `{said['id']}` is `{asked['status']}`")
    value = {**asked, "settled": True}
    if asked["status"] == "pending":
        value = {**value, "status": said["status"], "reason_code": said["reason_code"]}
        value["decided_at"] = fact.time
    _decided(rows, value)


def _pending(rows: Rows, fact: Fact) -> Value:
    key = fact.payload["id"]
    asked = rows.get("approvals", key)
    if asked is None or asked["status"] != "pending":
        raise illegal(fact, f"approval `{key}` is not waiting for an answer")
    return asked


def _decided(rows: Rows, value: Value) -> None:
    rows.put("approvals", value["id"], value, "decided")
    key = value["run_id"]
    while key:  # the run that asked, and the agent's run that waits with it
        run = rows.get("runs", key) or {}
        if value["id"] in run.get("pending_approvals", ()):
            waits = [one for one in run["pending_approvals"] if one != value["id"]]
            put_run(rows, {**run, "pending_approvals": waits})
        key = run.get("parent")


def _grant_given(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("grants", said["id"]) is not None or said["session_id"] != fact.stream:
        raise illegal(fact, "a grant is given once, in the stream of its session")
    if said["risk"] == "critical":
        raise illegal(fact, "what is critical is asked about each time")
    value = {**said, "status": "active", "given_at": fact.time}
    rows.put("grants", said["id"], value, _holders(fact.stream))


def _grant_revoked(rows: Rows, fact: Fact) -> None:
    grant = rows.get("grants", fact.payload["id"])
    if grant is not None and grant["status"] != "active" and grant["session_id"] == fact.stream:
        return  # whoever runs the session found that it has ended; a person, or another call, was faster
    if grant is None or grant["status"] != "active":
        raise illegal(fact, f"grant `{fact.payload['id']}` does not hold")
    value = {**grant, "status": fact.payload["reason"], "ended_at": fact.time}
    rows.put("grants", grant["id"], value, "ended")


def _holders(session_id: str) -> str:
    return f"active:{session_id}"


def _plan_made(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("plans", said["id"]) is not None:
        raise illegal(fact, f"plan `{said['id']}` exists already")
    value = {**said, "decision": None, "made_at": fact.time, "made_seq": fact.seq, "used_by": None}
    rows.put("plans", said["id"], {**value, "status": "pending", "run": said["status"]}, "pending")


def _plan_decided(rows: Rows, fact: Fact) -> None:
    plan = rows.get("plans", fact.payload["id"])
    if plan is None or plan["status"] != "pending":
        raise illegal(fact, f"plan `{fact.payload['id']}` is not waiting for an answer")
    decision = fact.payload["decision"]
    value = {**plan, "status": decision["decision"], "decision": decision}
    value["decided_at"] = fact.time
    rows.put("plans", plan["id"], value, "decided")


APPROVALS: dict[str, Fold] = {
    "approval_requested": _approval_requested,
    "approval_responded": _approval_responded,
    "approval_ended": _approval_ended,
    "approval_settled": _approval_settled,
    "grant_given": _grant_given,
    "grant_revoked": _grant_revoked,
    "plan_made": _plan_made,
    "plan_decided": _plan_decided,
}
"""Kind → fold."""
