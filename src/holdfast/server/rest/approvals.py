"""What waits for a person, and the answers."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.contracts import ApprovalDecision, ApprovalView, Draft
from holdfast.contracts.payload import ApprovalRefused
from holdfast.errors import CallerError, NotFound
from holdfast.gate.approvals import ANSWERS
from holdfast.server.rest import bodies as b
from holdfast.server.rest.endpoint import Call, Endpoint
from holdfast.server.rest.listing import Listed, Paged, seen

PLAN = "plan_"


class ListApprovals(Paged):
    """Which of them."""

    status: Literal["pending", "decided", "all"] = "pending"
    """Those that wait, those that do not, or all."""
    newest: bool = False
    """From the last one back."""


async def speaks_for(call: Call, said: str | None) -> str:
    """Who a decision is recorded for: the caller; whoever may everything may name another."""
    if said is None or said == call.caller.id:
        return call.caller.id
    if not call.caller.may("admin"):
        await call.admin_only("`actor`")
    return said


async def list_approvals(call: Call) -> Any:
    """What waits for a person, or did."""
    asked: ListApprovals = call.query
    inbox = call.hf.approvals
    return await seen(
        call,
        lambda after, limit: inbox.list(
            status=asked.status, after=after, limit=limit, newest=asked.newest
        ),
        key=lambda one: one.id,
        session=lambda one: one.session_id,
    )


async def show_approval(call: Call) -> Any:
    """One of them: what will happen, with which arguments, on whose behalf."""
    found = await call.hf.approvals.show(call.path["approval_id"])
    await call.mine(found.session_id, "approval")
    return found


async def decide(call: Call) -> Any:
    """Answer. Who answered, and how they were known, goes on record; so does an answer that does not count."""
    asked: b.Decide = call.body
    key = call.path["approval_id"]
    await _may_decide(call, key, asked)
    actor = await speaks_for(call, asked.actor)
    inbox, via = call.hf.approvals, call.caller.via
    if key.startswith(PLAN):
        if asked.content is not None:
            raise CallerError("INVALID_ARGUMENT", "A plan takes no `content`.")
        return await inbox.decide_plan(
            key, asked.decision, actor=actor, reason=asked.reason, via=via
        )
    content: Any = asked.content
    view = await inbox.decide(
        key,
        asked.decision,
        actor=actor,
        reason_code=asked.reason_code,
        reason=asked.reason,
        via=via,
        content=content,
    )
    if asked.resume and view.run_id is not None:
        await call.work.go_on(view.run_id)
    return view


async def _may_decide(call: Call, key: str, asked: b.Decide) -> None:
    """Refuse an answer to what is another's, and put it on record like any that does not count."""
    row = await call.hf.journal.row("plans" if key.startswith(PLAN) else "approvals", key)
    session = None if row is None else row.get("session_id")
    if row is None and call.caller.prefix is None:
        return  # the inbox tells
    if row is not None and call.caller.sees(session if isinstance(session, str) else None):
        return
    said = ApprovalDecision.model_validate(
        {
            "decision": asked.decision,
            "reason": asked.reason,
            "actor": call.caller.id,
            "via": call.caller.via,
        }
    )
    refused = ApprovalRefused(id=key[:80], decision=said, reason_code="approval.not_yours")
    await call.hf.journal.append(ANSWERS, [Draft.of(refused, actor=call.caller.id)])
    raise NotFound("NOT_FOUND", "There is no such approval.")


APPROVALS = (
    Endpoint(
        "GET",
        "/v1/approvals",
        list_approvals,
        "read",
        "List what waits for a person",
        Listed[ApprovalView],
        query=ListApprovals,
    ),
    Endpoint(
        "GET",
        "/v1/approvals/{approval_id}",
        show_approval,
        "read",
        "Show what waits for a person",
        ApprovalView,
        errors=(404,),
    ),
    Endpoint(
        "POST",
        "/v1/approvals/{approval_id}/decision",
        decide,
        "approve",
        "Answer",
        ApprovalView | dict[str, Any],
        about="The id of a plan (`plan_…`) answers that plan; the answer is the plan then.",
        body=b.Decide,
        keyed=True,
        errors=(404, 409),
        example={"decision": "denied", "reason": "Not on a Friday."},
    ),
)
