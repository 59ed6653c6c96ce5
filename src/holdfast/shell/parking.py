"""A run that can't go on: what is saved of it, what its caller gets, and who need not be asked any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.contracts import (
    ApprovalStatus,
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    RunResult,
    RunStatus,
)
from holdfast.contracts.payload import RunParked
from holdfast.errors import HoldfastError
from holdfast.gate.broker import ended, settlement
from holdfast.gate.past import Pasts, pasts_of
from holdfast.shell.drive import Drive, Parked
from holdfast.shell.snapshot import Snapshot, pack
from holdfast.shell.story import Story, cleaned

if TYPE_CHECKING:
    from holdfast.shell.session import Session

_CANCELLED = ApprovalStatus.CANCELLED


async def withdraw(session: Session, run_id: str) -> Pasts:
    """Nobody need answer any more, and nobody uses what was answered; the calls on record."""
    services = session.services
    await services.journal.flush()  # what was handed in is part of what we look at
    row: dict[str, Any] = await services.journal.row("runs", run_id) or {}
    if not row:
        return Pasts()  # it has not even started
    after = int(row["start_pos"])
    pasts = await pasts_of(services.journal, session.id, run_id, after=after)
    drafts: list[Draft] = []
    for past in pasts.calls.values():
        asked = past.approval
        if asked is not None and not past.settled:
            await services.approvals.end(asked.id, _CANCELLED, "approval.cancelled")
            drafts += settlement(asked, ended(await services.approvals.status(asked.id)), run_id)
    if drafts:
        await session.pen.append(drafts)
    return pasts


async def park(session: Session, story: Story, drive: Drive, parked: Parked) -> RunResult:
    """Save where the run stands, and give everything back."""
    session.pen.raise_failure()
    row: dict[str, Any] = await session.services.journal.row("runs", story.run_id) or {}
    approvals, doubts = row.get("pending_approvals") or (), row.get("in_doubt") or ()
    found = _standing_result(story.run_id, drive, parked, approvals, doubts)
    result = cleaned(session.services.gate.redactor, found)
    said, bodies = await _parked_state(session, drive, story)
    body = Body.of(result.model_dump_json().encode(), role="result", mime="application/json")
    record = RunParked.model_validate(
        {
            **said,
            "status": "needs_attention" if doubts else "waiting_for_approval",
            "approvals": tuple(approvals),
            "in_doubt": tuple(doubts),
            "error": result.error,
            "result": body.ref.digest,
            "wall_used_ms": int(drive.clock.used * 1000),
        }
    )
    draft = Draft.of(record, run_id=story.run_id, bodies=(*bodies, body))
    await session.pen.append([draft], durable=True)
    session.limits = session.limits or story.session_limits
    session.open_run = story.run_id
    await session.drop()
    if story.parent is None:  # else there is more to write: that the agent stands, too
        await session.pen.release()
    return result


async def _parked_state(
    session: Session, drive: Drive, story: Story
) -> tuple[dict[str, Any], tuple[Body, ...]]:
    """The engine's state at the call, sealed; nothing where it can't be written down."""
    box = drive.box
    engine = session.boxes.engine
    names = tuple(sorted(session.names))
    pending = {"run_id": story.run_id}
    try:
        state = Snapshot(
            session.id,
            engine,
            await box.dump(),
            names=names,
            pending=pending,
            sources=session.definitions.told(),
        )
        sealed = pack(session.services.key, state)
    except HoldfastError:
        return {}, ()
    progress = session.services.gate.redactor.bytes_(box.progress().model_dump_json().encode())
    bodies = (
        Body.of(sealed, role="state", mime="application/x-holdfast-state"),
        Body.of(progress, role="progress", mime="application/json"),
    )
    said = {
        "state": bodies[0].ref.digest,
        "progress": bodies[1].ref.digest,
        "engine": engine,
        "limits": box.limits,
    }
    return said, bodies


def _standing_result(
    run_id: str, drive: Drive, parked: Parked, approvals: Any, doubts: Any
) -> RunResult:
    """What the caller of a run gets that stands."""
    progress = drive.box.progress()
    if doubts:
        named = ", ".join(f"`{errand.name}`" for errand in parked.doubts)
        error = ErrorObject(
            code="INTERRUPTED",
            message=f"Nobody knows whether {named} happened; the run stands there.",
            hint=f"Say so with `holdfast runs resolve {run_id} {doubts[0]}`"
            " (--happened JSON, --did-not-happen or --retry), then resume it.",
            effect_id=str(doubts[0]),
        )
        status = RunStatus.INTERRUPTED
    else:
        named = ", ".join(f"`{errand.name}`" for errand in parked.waiting)
        error = ErrorObject(
            code="WAITING_FOR_APPROVAL",
            message=f"The run waits for a person to approve {named}.",
            hint=f"`holdfast approvals approve {approvals[0] if approvals else 'ID'}`, or deny;"
            " the run then goes on at this call.",
        )
        status = RunStatus.WAITING_FOR_APPROVAL
    return RunResult(
        status=status,
        stdout=progress.stdout,
        stderr=progress.stderr,
        diagnostics=(Diagnostic.error(error),),
        external_calls=drive.records(progress.own),
        error=error,
        run_id=run_id,
        approval_id=str(approvals[0]) if approvals else None,
        in_doubt=tuple(map(str, doubts)),
    )
