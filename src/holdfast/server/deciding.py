"""Whether an answer to what waits is the caller's to give, by whichever way they came in."""

from __future__ import annotations

from holdfast.contracts import ApprovalDecision, Draft
from holdfast.contracts.payload import ApprovalRefused
from holdfast.errors import NotFound
from holdfast.gate.approvals import ANSWERS
from holdfast.journal import Journal
from holdfast.server.callers import Caller
from holdfast.server.rights import PLAN


async def check_own(
    journal: Journal, caller: Caller, key: str, decision: str, reason: str | None
) -> None:
    """Refuse an answer to what is another's: `NOT_FOUND`. It goes on record like any that does not count."""
    if caller.prefix is None:
        return  # the inbox tells
    projection, what = ("plans", "plan") if key.startswith(PLAN) else ("approvals", "approval")
    row = await journal.row(projection, key)
    session = None if row is None else row.get("session_id")
    if caller.sees(session if isinstance(session, str) else None):
        return
    said = ApprovalDecision.model_validate(
        {"decision": decision, "reason": reason, "actor": caller.person, "via": caller.via}
    )
    refused = ApprovalRefused(id=key[:80], decision=said, reason_code="approval.not_yours")
    await journal.append(ANSWERS, [Draft.of(refused, actor=caller.id)])
    raise NotFound("NOT_FOUND", f"There is no {what} `{key[:80]}`.")
