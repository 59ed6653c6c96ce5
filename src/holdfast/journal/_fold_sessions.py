"""Sessions, their runs, and what they used."""

from __future__ import annotations

from holdfast.journal._rows import (
    NO_USAGE,
    Fact,
    Fold,
    Rows,
    Value,
    active_run,
    added,
    illegal,
    open_session,
    put_run,
    use,
)


def _session_created(rows: Rows, fact: Fact) -> None:
    old = rows.get("sessions", fact.stream)
    if old is not None and old["status"] == "open":
        raise illegal(fact, "the session exists already")
    value = {
        "id": fact.stream,
        "created_at": fact.time,
        "last_used_at": fact.time,
        "language": fact.payload["language"],
        "limits": fact.payload["limits"],
        "snapshot_version": 1,
        "status": "open",
        "runs": 0,
        "created_seq": fact.seq,
        "created_pos": fact.pos,
        "state_pos": fact.pos,
        "base_pos": fact.pos,
        "setup": fact.payload.get("setup"),
        "open_run": None,
        "open_agent": None,
    }
    if old is not None and "destroyed_seq" in old:
        value["destroyed_seq"] = old["destroyed_seq"]  # of the last one of this name
    rows.put("sessions", fact.stream, value, "open")


def _session_opened(rows: Rows, fact: Fact) -> None:
    session = open_session(rows, fact)
    rows.put("sessions", fact.stream, {**session, "setup": fact.payload["setup"]}, "open")


def _session_state(rows: Rows, fact: Fact) -> None:
    session = open_session(rows, fact)
    replaced = fact.payload.get("reason", "saved") != "saved"
    standing = session.get("open_run") or session.get("open_agent")
    if replaced and standing is not None:
        raise illegal(fact, f"run `{standing}` is not over")
    value = {**session, "state_pos": fact.pos}
    if replaced:  # what was before it does not lead here
        value["base_pos"] = fact.pos
    rows.put("sessions", fact.stream, value, "open")


def _session_destroyed(rows: Rows, fact: Fact) -> None:
    session = open_session(rows, fact)
    over = {**session, "status": "destroyed", "destroyed_seq": fact.seq}
    rows.put("sessions", fact.stream, over, "destroyed")


def _run_started(rows: Rows, fact: Fact) -> None:
    run = _begun(rows, fact, fact.payload, stays=True)
    rows.put("runs", run["id"], run, "active")


def _begun(rows: Rows, fact: Fact, said: Value, *, stays: bool) -> Value:
    """A run that starts with this record; `stays`: and does not end with it."""
    session = open_session(rows, fact)
    if fact.run_id is None or rows.get("runs", fact.run_id) is not None:
        raise illegal(fact, "it needs a run id of its own")
    parent = said.get("parent")
    standing = session.get("open_run") or session.get("open_agent")
    if standing is not None and standing != parent:
        raise illegal(fact, f"run `{standing}` is not over")
    if parent is not None and session.get("open_agent") != parent:
        raise illegal(fact, f"run `{parent}` is not under way")
    _use_plan(rows, fact, said.get("plan"))
    used = {**session, "runs": session["runs"] + 1, "last_used_at": fact.time}
    if stays:
        used["open_agent" if said["kind"] == "agent" else "open_run"] = fact.run_id
    rows.put("sessions", fact.stream, used, "open")
    use(rows, fact.stream, runs=1)
    own = {name: said[name] for name in ("parent", "plan") if said.get(name) is not None}
    return {
        **own,
        "id": fact.run_id,
        "session_id": fact.stream,
        "kind": said["kind"],
        "status": "running",
        "started_at": fact.time,
        "ended_at": None,
        "usage": {**NO_USAGE, "runs": 1},
        "error": None,
        "pending_approvals": [],
        "in_doubt": [],
        "start_pos": fact.pos,
        "parked_pos": None,
        "cancel": None,
    }


def _use_plan(rows: Rows, fact: Fact, key: str | None) -> None:
    """A plan is approved for one run."""
    if key is None:
        return
    plan = rows.get("plans", key)
    if plan is None or plan["status"] != "approved" or plan["used_by"] is not None:
        raise illegal(fact, f"plan `{key}` is not approved, or was used already")
    if plan["session_id"] != fact.stream or plan["code"] != _code_of(fact):
        raise illegal(fact, f"plan `{key}` is for another session or other code")
    rows.put("plans", key, {**plan, "used_by": fact.run_id}, "decided")


def _give_plan_back(rows: Rows, run: Value) -> None:
    """A run that failed before it called anybody has used nothing of its plan up."""
    plan = rows.get("plans", run["plan"]) if "plan" in run else None
    if plan is not None:
        rows.put("plans", plan["id"], {**plan, "used_by": None}, "decided")


def _code_of(fact: Fact) -> str:
    return (fact.payload.get("start") or fact.payload).get("code", "")


def _run_ended(rows: Rows, fact: Fact) -> None:
    start = fact.payload.get("start")
    if start is None:
        run = active_run(rows, fact)
        session = open_session(rows, fact)
        slot = "open_agent" if run["kind"] == "agent" else "open_run"
        if slot == "open_agent" and session.get("open_run") is not None:
            raise illegal(fact, f"its run `{session['open_run']}` is not over")
        closed = {**session, "last_used_at": fact.time, slot: None}
        rows.put("sessions", fact.stream, closed, "open")
    else:
        run = _begun(rows, fact, start, stays=False)
    metrics = fact.payload["metrics"]
    used = {
        "duration_ms": metrics.get("duration_ms", 0),
        "external_calls": metrics.get("external_calls_count", 0),
    }
    value: Value = {
        **run,
        "status": fact.kind.removeprefix("run_"),
        "ended_at": fact.time,
        "usage": added(run["usage"], used),
        "error": None if fact.kind == "run_completed" else fact.payload["error"],
        "pending_approvals": [],
        "end_pos": fact.pos,
    }
    rows.put("runs", run["id"], value, "ended")
    if fact.kind != "run_completed" and not used["external_calls"]:
        _give_plan_back(rows, run)
    use(rows, fact.stream, **used)
    parent = rows.get("runs", run["parent"]) if "parent" in run else None
    if parent is not None:
        put_run(rows, {**parent, "usage": added(parent["usage"], used)})


def _run_parked(rows: Rows, fact: Fact) -> None:
    run = active_run(rows, fact)
    said = fact.payload
    value = {
        **run,
        "status": said["status"],
        "error": said.get("error"),
        "parked_pos": fact.pos,
        "pending_approvals": [*said.get("approvals", ())],
    }
    put_run(rows, value)


def _run_resumed(rows: Rows, fact: Fact) -> None:
    put_run(rows, {**active_run(rows, fact), "status": "running", "error": None})


def _run_cancel_requested(rows: Rows, fact: Fact) -> None:
    run = rows.get("runs", fact.payload["run"])
    if run is None or run["ended_at"] is not None:
        raise illegal(fact, f"run `{fact.payload['run']}` is not under way")
    # Once it is to stop at once, it can't be asked to take its time.
    mode = "now" if "now" in (run.get("cancel"), fact.payload["mode"]) else "after_effect"
    put_run(rows, {**run, "cancel": mode})


def _usage_recorded(rows: Rows, fact: Fact) -> None:
    used = {k: fact.payload.get(k, 0) for k in ("input_tokens", "output_tokens", "cost_micros")}
    if fact.run_id is not None:
        run = active_run(rows, fact)
        put_run(rows, {**run, "usage": added(run["usage"], used)})
    use(rows, fact.stream, **used)


SESSIONS: dict[str, Fold] = {
    "session_created": _session_created,
    "session_opened": _session_opened,
    "session_state": _session_state,
    "session_destroyed": _session_destroyed,
    "run_started": _run_started,
    "run_completed": _run_ended,
    "run_failed": _run_ended,
    "run_cancelled": _run_ended,
    "run_parked": _run_parked,
    "run_resumed": _run_resumed,
    "run_cancel_requested": _run_cancel_requested,
    "usage_recorded": _usage_recorded,
}
"""Kind → fold."""
