"""What waits for a person, and the answers."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.contracts import ApprovalView
from holdfast.errors import CallerError
from holdfast.server.deciding import check_own
from holdfast.server.rest import bodies as b
from holdfast.server.rest import examples as eg
from holdfast.server.rest.endpoint import Call, Endpoint
from holdfast.server.rest.listing import Listed, Paged, seen
from holdfast.server.rights import PLAN


class ListApprovals(Paged):
    """Which of them."""

    status: Literal["pending", "decided", "all"] = "pending"
    """Those that wait, those that do not, or all."""
    newest: bool = False
    """From the last one back."""


async def speaks_for(call: Call, said: str | None) -> str:
    """Who a decision is recorded for: the caller; whoever may everything may name another."""
    if said is None or said in (call.caller.id, call.caller.person):
        return call.caller.person
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
    key = call.path["approval_id"]
    await call.own("approvals", key)
    return await call.hf.approvals.show(key)


async def decide(call: Call) -> Any:
    """Answer. Who answered, and how they were known, goes on record; so does an answer that does not count."""
    asked: b.Decide = call.body
    key = call.path["approval_id"]
    await check_own(call.hf.journal, call.caller, key, asked.decision, asked.reason)
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


APPROVALS = (
    Endpoint(
        "GET",
        "/v1/approvals",
        list_approvals,
        "read",
        "List what waits for a person",
        Listed[ApprovalView],
        query=ListApprovals,
        gives=eg.listed(eg.WAITING),
    ),
    Endpoint(
        "GET",
        "/v1/approvals/{approval_id}",
        show_approval,
        "read",
        "Show what waits for a person",
        ApprovalView,
        errors=(404,),
        gives=eg.WAITING,
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
        gives=eg.DENIED,
    ),
)
