"""The end of a run: what is recorded of it, what stays in the session, and what its caller is told.

A run of code that touched nothing outside needs no sync, and no waiting: its records are handed to the journal
before the caller gets the answer, and are written a moment later. They keep their order, so whatever is on record
after them proves them too; a process that is killed in that very moment loses a computation, never an effect.
Whoever wants to wait for the disk says `durable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from holdfast.contracts import (
    Diagnostic,
    ErrorObject,
    ExternalCallRecord,
    RunResult,
    RunStatus,
)
from holdfast.errors import HoldfastError
from holdfast.gate.crossing import Outcome
from holdfast.gate.hooks import HookInterrupts
from holdfast.journal.pen import LEASE_MS
from holdfast.shell.box import Ran
from holdfast.shell.drive import Drive
from holdfast.shell.errand import Parked, before_end
from holdfast.shell.parking import withdraw
from holdfast.shell.refusals import hook_stopped, overtaken
from holdfast.shell.story import Story, cleaned, result_of, was_cancelled, with_calls

if TYPE_CHECKING:
    from holdfast.shell.session import Session


async def ended(
    session: Session, story: Story, ran: Ran, result: RunResult, *, save: bool, durable: bool
) -> RunResult:
    """Record how a run ended, and keep or drop what it did to the session."""
    contents = session.contents
    session.pen.raise_failure()
    contents.ran(story.code, ran)
    due = ran.state_kept and (save or contents.due)
    if not ran.state_kept:
        await contents.drop()
    if durable or due:
        await session.pen.append(story.end(ran, result), durable=durable)
    else:
        session.pen.post(story.pending, lambda: story.end(ran, result))
    session.limits = session.limits or story.session_limits
    session.open_run = None
    if due:
        digest = await contents.save()
        if save:
            result = result.model_copy(update={"snapshot_id": digest})
    await session.services.gate.guards.run_over(session.id, story.run_id, result.status.value)
    return result


async def may_complete(session: Session, drive: Drive, ran: Ran) -> Ran | Parked:
    """A hook may not let a run complete: then it fails, and its state is undone; or it stands before its end."""
    if ran.error is not None:
        return ran
    try:
        await session.services.gate.guards.run_completes(drive.desk)
    except HookInterrupts as failure:
        return before_end(ran, failure)
    except HoldfastError as failure:
        if failure.code not in ("HOOK_FAILED", "PERMISSION_DENIED"):
            raise
        return overtaken(ran, ErrorObject.of(failure))
    return ran


async def hooked(
    session: Session, story: Story, drive: Drive, failure: HoldfastError, *, durable: bool
) -> RunResult:
    """A hook did not let the run begin, or failed where it may not."""
    error = ErrorObject.of(failure)
    drive.pasts = await withdraw(session, story.run_id)
    ran = hook_stopped(error)
    result = told(session, result_of(story.run_id, ran, None, drive.records(())))
    drive.desk.tell()
    result = await naming_doubts(session, result)
    return await ended(session, story, ran, result, save=False, durable=durable)


async def settled(
    session: Session,
    story: Story,
    drive: Drive,
    result: RunResult,
    own: Sequence[tuple[int, ExternalCallRecord]],
) -> RunResult:
    """The run is over: nobody need answer what it asked, and what is in doubt is named."""
    if all(isinstance(errand.end, Outcome) for errand in drive.errands.values()):
        return result
    drive.pasts = await withdraw(session, story.run_id)
    result = with_calls(result, drive.records(own))
    return await naming_doubts(session, result)


async def undo(session: Session, story: Story, drive: Drive) -> None:
    """The run is cancelled: throw away what it did to the session, and ask nobody on its behalf any more."""
    if session.pen.cut_off:
        await _look_again(session, story, drive)
    session.pen.raise_failure()
    await session.contents.drop()
    await session.services.gate.guards.run_cancelled(drive.desk)
    drive.pasts = await withdraw(session, story.run_id)


async def _look_again(session: Session, story: Story, drive: Drive) -> None:
    """A write was cut off, and may have landed or not: find out where the stream stands."""
    journal = session.services.journal
    session.pen.lose()
    await session.pen.take(monotonic() + LEASE_MS / 1000)
    row = await journal.row("sessions", session.id)
    story.creates = row is None or row["status"] != "open"
    story.told = drive.desk.begun = await journal.row("runs", story.run_id) is not None


async def naming_doubts(session: Session, result: RunResult) -> RunResult:
    """The result, with the effects of which nobody knows whether they happened."""
    row: dict[str, Any] = await session.services.journal.row("runs", str(result.run_id)) or {}
    doubts = tuple(map(str, row.get("in_doubt", ())))
    return result.model_copy(update={"in_doubt": doubts}) if doubts else result


def told(session: Session, result: RunResult) -> RunResult:
    """The result as its caller gets it: without the values of secrets."""
    return cleaned(session.services.gate.redactor, result)


def cancelled_result(run_id: str | None, reason: str | None) -> RunResult:
    """What its caller gets of a run that was stopped from outside."""
    error = was_cancelled(reason)
    return RunResult(
        status=RunStatus.CANCELLED,
        diagnostics=(Diagnostic.error(error),),
        error=error,
        run_id=run_id,
    )
