"""Asks a person on behalf of one call, and settles what came of it.

The order is fixed. The request and the intent to ask are on disk before anybody is asked. The answer is recorded
by whoever gives it (`Approvals.decide`). Then the run takes note: the result of asking and the settlement are one
append with what follows from them, so an approval is used once or not at all, and a process that dies in between
leaves a decision that the next one goes on from. Whatever is missing or goes wrong denies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from holdfast.contracts import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalStatus,
    Body,
    Decision,
    Draft,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    Grant,
    Json,
    Risk,
    new_id,
)
from holdfast.contracts.payload import ApprovalSettled
from holdfast.errors import CallerError, HoldfastError, JournalError
from holdfast.gate.approvals import Approvals
from holdfast.gate.crossing import Crossing, Mood
from holdfast.gate.dispatch import Dispatcher, Filled, NoAnswer

_S, _E = ApprovalStatus, EffectStatus

# How asking ended → the status of the effect of asking, and the line about it.
_ENDS: dict[ApprovalStatus, tuple[EffectStatus, str]] = {
    _S.APPROVED: (_E.COMPLETED, "approval approved"),
    _S.APPROVED_FOR_SESSION: (_E.COMPLETED, "approval approved for session"),
    _S.DENIED: (_E.DENIED_BEFORE_EXECUTION, "approval denied"),
    _S.TIMED_OUT: (_E.TIMED_OUT, "approval timed out"),
    _S.CANCELLED: (_E.CANCELLED, "approval cancelled"),
    _S.DISPATCHER_UNAVAILABLE: (_E.FAILED, "approval dispatcher unavailable"),
}
_NOBODY = "missing.approval_dispatcher"
_UNFIT = "approval.answer_does_not_fit"


@dataclass(frozen=True, slots=True)
class Settled:
    """How asking ended, and the records that say so: to be appended with what follows from it."""

    status: ApprovalStatus
    reason_code: str
    decision: ApprovalDecision | None = None
    drafts: tuple[Draft, ...] = field(default=(), repr=False)
    request: ApprovalRequest | None = None

    @property
    def releases(self) -> bool:
        """Whether the call may be made."""
        return self.status.releases


class Broker:
    """Asks. `dispatcher` is who is asked besides the inbox; with `inbox=False` and no dispatcher, all is denied."""

    def __init__(
        self,
        approvals: Approvals,
        dispatcher: Dispatcher | None = None,
        *,
        inbox: bool = True,
        grant_ms: int | None = None,
    ) -> None:
        self._approvals = approvals
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._grant_ms = grant_ms

    async def ask(self, crossing: Crossing, request: ApprovalRequest, body: Body) -> Settled:
        """Ask, unless that was done before, and wait for the end of it."""
        past = crossing.past
        if past is not None and past.approval is not None:
            request = past.approval
        else:
            await self.record(crossing, request, (body,))
        crossing.asked = request
        end = await self.wait(request, crossing.mood)
        crossing.asked = None
        return self._settled(crossing, request, end)

    async def record(
        self,
        crossing: Crossing,
        request: ApprovalRequest,
        bodies: tuple[Body, ...],
        first: Sequence[Draft] = (),
    ) -> None:
        """Record that somebody is about to be asked, after what comes `first`; the arguments lead `bodies`."""
        dispatch = EffectIntent(
            effect_id=request.dispatch_id or new_id("eff"),
            kind=EffectKind.APPROVAL_DISPATCH,
            name="approval",
            idempotent=True,
            policy_refs=(request.rule,) if request.rule else (),
            content_refs=(request.arguments,),
            redacted_summary=f"approval dispatch for {request.tool}",
        )
        desk = crossing.desk
        drafts = [
            Draft.of(request, run_id=desk.run_id, actor=desk.actor, bodies=bodies),
            Draft.of(dispatch, run_id=desk.run_id, content=(bodies[0].ref,)),
        ]
        await desk.append([*first, *drafts], durable=True)

    async def wait(self, request: ApprovalRequest, mood: Callable[[Mood], None]) -> Settled:
        """Wait for the end of a request that is on record; `mood` is told meanwhile what is waited for."""
        if self._dispatcher is not None:
            end = await self._dispatched(request, mood)
        elif self._inbox:
            row = await self._approvals.status(request.id)
            if row["status"] == "pending":
                mood("waiting")
                row = await self._approvals.wait(request.id)
            end = ended(row)
        else:
            end = Settled(_S.DENIED, _NOBODY)
        mood("working")
        return end

    async def _dispatched(self, request: ApprovalRequest, mood: Callable[[Mood], None]) -> Settled:
        """Ask who is there, unless somebody answers through the inbox first."""
        assert self._dispatcher is not None
        row = await self._approvals.status(request.id)
        if row["status"] != "pending":
            return ended(row)
        mood("asking")
        found: list[Settled] = []

        async def through_the_inbox() -> None:
            found.append(ended(await self._approvals.wait(request.id)))
            asking.cancel_scope.cancel()

        async def directly() -> None:
            found.append(await self._answer(request))
            asking.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as asking:
                asking.start_soon(through_the_inbox)
                asking.start_soon(directly)
        except* HoldfastError as group:
            raise _first(group) from None
        return found[0]

    async def _answer(self, request: ApprovalRequest) -> Settled:
        """What the dispatcher says, and whether it counts."""
        assert self._dispatcher is not None
        try:
            said = await self._dispatcher.dispatch(await self._approvals.show(request.id))
        except JournalError:
            raise
        except Exception as why:  # noqa: BLE001 - whatever a dispatcher raises denies
            kind = type(why).__name__
            return Settled(_S.DISPATCHER_UNAVAILABLE, "approval.dispatcher_error", _failed(kind))
        if isinstance(said, NoAnswer):
            return _unanswered(said)
        content: Json = None
        if isinstance(said, Filled):
            content, said = said.content, said.decision
        try:
            await self._approvals.decide(
                request.id,
                said.decision,
                actor=said.actor or "dispatcher",
                reason_code=said.reason_code,
                reason=said.reason,
                via=said.via,
                content=content,
            )
        except CallerError as why:
            return await self._refused(request, said, why)
        return ended(await self._approvals.status(request.id))

    async def _refused(
        self, request: ApprovalRequest, said: ApprovalDecision, why: HoldfastError
    ) -> Settled:
        """An answer that does not count is a denial, unless another one has counted before it."""
        row = await self._approvals.status(request.id)
        if row["status"] != "pending":
            return ended(row)
        if why.code == "INVALID_ARGUMENT":
            return Settled(_S.DENIED, _UNFIT)  # nobody has said anything that could be passed on
        if "asked for approval" in why.message:
            code = "approval.extension_self_response"
        else:
            code = "approval.decision_not_allowed"
        denied = ApprovalDecision(decision=Decision.DENIED, reason_code=code, actor=said.actor)
        return Settled(_S.DENIED, code, denied)

    def _settled(self, crossing: Crossing, request: ApprovalRequest, end: Settled) -> Settled:
        """`end` with the records that say so."""
        run_id, past = crossing.desk.run_id, crossing.past
        drafts: list[Draft] = []
        if past is None or not past.settled:
            drafts = settlement(request, end, run_id)
            grant = self._grant(crossing, request, end)
            if grant is not None:
                drafts.append(Draft.of(grant, run_id=run_id, actor=grant.actor or "holdfast"))
        return Settled(end.status, end.reason_code, _shown(end), tuple(drafts), request)

    def _grant(self, crossing: Crossing, request: ApprovalRequest, end: Settled) -> Grant | None:
        if end.status is not _S.APPROVED_FOR_SESSION or request.capability is None:
            return None
        if request.risk is Risk.CRITICAL:
            return None
        expires = None if self._grant_ms is None else self._approvals.now() + self._grant_ms
        return Grant(
            id=new_id("grant"),
            session_id=crossing.desk.session_id,
            tool=request.tool,
            capability=request.capability,
            risk=request.risk,
            approval_id=request.id,
            actor=end.decision.actor if end.decision else None,
            expires_at=expires,
        )


def _first(group: BaseExceptionGroup[HoldfastError]) -> HoldfastError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def settlement(
    request: ApprovalRequest, end: Settled, run_id: str, bodies: tuple[Body, ...] = ()
) -> list[Draft]:
    """The records that say how asking ended: the result of asking, and that the run has taken note.

    `bodies`: what was filled in.
    """
    status, summary = _ENDS[end.status]
    if end.reason_code == _NOBODY:
        status, summary = _E.FAILED, "approval dispatcher unavailable"
    elif end.reason_code == _UNFIT:
        status, summary = _E.FAILED, "the answer does not fit the question"
    elif end.reason_code == "approval.decision_not_allowed":
        summary = "approval decision not allowed"
    elif end.reason_code == "approval.extension_self_response":
        summary = "extension cannot approve its own action"
    elif end.reason_code == "approval.dispatcher_error":
        summary = f"approval dispatcher failed: {end.decision.reason if end.decision else ''}"
    drafts: list[Draft] = []
    if request.dispatch_id is not None:
        result = EffectResult(
            effect_id=request.dispatch_id, terminal_status=status, redacted_summary=summary
        )
        drafts.append(Draft.of(result, run_id=run_id))
    settled = ApprovalSettled(
        id=request.id, status=end.status, reason_code=end.reason_code, decision=_shown(end)
    )
    return [*drafts, Draft.of(settled, run_id=run_id, bodies=bodies)]


def ended(row: dict[str, Any]) -> Settled:
    """How a request ended, as the inbox has it."""
    decision = row["decision"]
    said = None if decision is None else ApprovalDecision.model_validate(decision)
    return Settled(ApprovalStatus(row["status"]), str(row["reason_code"]), said)


def _shown(end: Settled) -> ApprovalDecision | None:
    """The decision, if it is one: who could not be asked has made none."""
    return None if end.status is _S.DISPATCHER_UNAVAILABLE else end.decision


def _unanswered(said: NoAnswer) -> Settled:
    match said.why:
        case "timed_out":
            return Settled(_S.TIMED_OUT, "approval.timeout")
        case "cancelled":
            return Settled(_S.CANCELLED, "approval.cancelled")
        case _:
            return Settled(_S.DISPATCHER_UNAVAILABLE, said.reason_code or "approval.unavailable")


def _failed(kind: str) -> ApprovalDecision:
    return ApprovalDecision(decision=Decision.DENIED, reason=kind)
