"""A run that can't go on: what is saved of it, what its caller gets, and who need not be asked any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    Metrics,
    RunResult,
    RunStatus,
)
from holdfast.contracts.approval import Asks
from holdfast.contracts.payload import RunParked
from holdfast.errors import HoldfastError
from holdfast.gate.past import Pasts, pasts_of
from holdfast.gate.questions import left_behind, never_heard, never_made, withdrawn
from holdfast.shell.drive import Drive
from holdfast.shell.errand import Parked
from holdfast.shell.snapshot import Snapshot, pack
from holdfast.shell.story import Story, cleaned

if TYPE_CHECKING:
    from holdfast.shell.session import Session


async def withdraw(session: Session, run_id: str) -> Pasts:
    """Nobody need answer any more, and nobody uses what was answered; the calls on record."""
    services, pasts = session.services, await _on_record(session, run_id)
    drafts: list[Draft] = []
    for past in pasts.calls.values():
        drafts += await withdrawn(services.approvals, past.unanswered, run_id)
        for one in past.besides:
            drafts += left_behind(one, run_id)
        drafts += never_made(past, run_id)
        drafts += never_heard(past, run_id)
    if drafts:
        await session.pen.append(drafts)
    return pasts


async def _on_record(session: Session, run_id: str) -> Pasts:
    """The calls of a run, as far as they came."""
    journal = session.services.journal
    await journal.flush()  # what was handed in is part of what we look at
    row: dict[str, Any] = await journal.row("runs", run_id) or {}
    if not row:
        return Pasts()  # it has not even started
    return await pasts_of(journal, session.id, run_id, after=int(row["start_pos"]))


async def park(session: Session, story: Story, drive: Drive, parked: Parked) -> RunResult:
    """Save where the run stands, and give everything back."""
    session.pen.raise_failure()
    drive.pasts = await _on_record(session, story.run_id)
    row: dict[str, Any] = await session.services.journal.row("runs", story.run_id) or {}
    approvals, doubts = row.get("pending_approvals") or (), row.get("in_doubt") or ()
    error = await _why(session, story.run_id, parked, approvals, doubts)
    found = _standing_result(story.run_id, drive, parked, error, approvals, doubts)
    result = cleaned(session.services.gate.redactor, found)
    said, bodies = {}, ()
    if (
        parked.hook is None
    ):  # else the call it stands at may not be on record: the code is run again up to there
        said, bodies = await _parked_state(session, drive, story)
    body = Body.of(result.model_dump_json().encode(), role="result", mime="application/json")
    record = RunParked.model_validate(
        {
            **said,
            "status": "needs_attention" if doubts or parked.hook else "waiting_for_approval",
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
    await session.contents.drop()
    if story.parent is None:  # else there is more to write: that the agent stands, too
        await session.pen.release()
    return result


async def _parked_state(
    session: Session, drive: Drive, story: Story
) -> tuple[dict[str, Any], tuple[Body, ...]]:
    """The engine's state at the call, sealed; nothing where it can't be written down."""
    box = drive.box
    engine = session.boxes.engine
    names = tuple(sorted(session.contents.names))
    pending = {"run_id": story.run_id}
    try:
        state = Snapshot(
            session.id,
            engine,
            await box.dump(),
            names=names,
            pending=pending,
            sources=session.contents.definitions.told(),
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
    run_id: str, drive: Drive, parked: Parked, error: ErrorObject, approvals: Any, doubts: Any
) -> RunResult:
    """What the caller of a run gets that stands."""
    progress = parked.progress or drive.box.progress()
    calls = drive.records(progress.own)
    stuck = bool(doubts) or parked.hook is not None
    return RunResult(
        status=RunStatus.INTERRUPTED if stuck else RunStatus.WAITING_FOR_APPROVAL,
        stdout=progress.stdout,
        stderr=progress.stderr,
        diagnostics=(Diagnostic.error(error),),
        external_calls=calls,
        metrics=Metrics(external_calls_count=len(calls)),
        error=error,
        run_id=run_id,
        approval_id=str(approvals[0]) if approvals else None,
        in_doubt=tuple(map(str, doubts)),
    )


async def _why(
    session: Session, run_id: str, parked: Parked, approvals: Any, doubts: Any
) -> ErrorObject:
    """Why a run stands, for whoever can help it on."""
    if doubts:
        named = ", ".join(f"`{errand.name}`" for errand in parked.doubts)
        return ErrorObject(
            code="INTERRUPTED",
            message=f"Nobody knows whether {named} happened; the run stands there.",
            hint=f"Say so with `holdfast runs resolve {run_id} {doubts[0]}`"
            " (--happened JSON, --did-not-happen or --retry), then resume it.",
            effect_id=str(doubts[0]),
        )
    if parked.hook is not None:
        return ErrorObject.of(parked.hook)
    named = ", ".join(f"`{errand.name}`" for errand in parked.waiting)
    first = str(approvals[0]) if approvals else "ID"
    row: dict[str, Any] = await session.services.journal.row("approvals", first) or {}
    match row.get("asks"):
        case Asks.INPUT:
            wants = f"to answer a question of {named}"
            how = f"`holdfast approvals show {first}` tells what is asked;"
            how += " `holdfast approvals approve` with `--field name=value` answers it, or deny;"
        case Asks.SIGN_IN:
            wants = f"to sign in for {named}"
            how = f"Sign in{' at ' + str(row['url']) if row.get('url') else ''}, then"
            how += f" `holdfast approvals approve {first}`, or deny;"
        case _:
            wants = f"to approve {named}"
            how = f"`holdfast approvals approve {first}`, or deny;"
    return ErrorObject(
        code="WAITING_FOR_APPROVAL",
        message=f"The run waits for a person {wants}.",
        hint=f"{how} the run then goes on at this call.",
    )
