"""A run of an agent that is not over: where it stands, whether it can go on, and what its caller gets meanwhile."""

from __future__ import annotations

from typing import Any

from holdfast.agent.ending import records_of
from holdfast.agent.history import History
from holdfast.agent.work import Work
from holdfast.contracts import Body, Draft, ErrorObject
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.message import AssistantMessage
from holdfast.contracts.payload import RunParked
from holdfast.contracts.view import Usage
from holdfast.errors import CallerError, Conflict, HoldfastError
from holdfast.gate.past import pasts_of
from holdfast.journal import Journal
from holdfast.machines.outcome import Cause, TurnPhase
from holdfast.machines.turn import TURN
from holdfast.machines.turn_inputs import Batch, ContentShape, Extraction, Turn
from holdfast.shell.session import Session
from holdfast.shell.standing import recorded_agent

_P = TurnPhase
_BUDGET, _HOOK = "BUDGET_EXCEEDED", "HOOK_FAILED"
_CAUSES = {_BUDGET: Cause.BUDGET_EXHAUSTED, _HOOK: Cause.HOOK_FAILURE}
_REASONS = {_BUDGET: "raised", _HOOK: "repaired"}


async def park(work: Work, why: HoldfastError | None = None) -> AgentResult:
    """Record that a run stands, and give the session back; what its caller gets.

    `why`, where it does not wait for a person: a budget is used up, or a hook failed.
    """
    session, journal = work.session, work.journal
    await work.desk.settle()
    approvals, doubts = await _stuck(journal, work.run_id, session.open_run)
    status = "needs_attention" if doubts or why is not None else "waiting_for_approval"
    result = AgentResult(
        run_id=work.run_id,
        session_id=session.id,
        status=status,
        text=work.transcript.last_text,
        cause=None if why is None else _CAUSES[why.code].value,
        error=_waits(work.run_id, approvals, doubts) if why is None else _stands(why),
        usage=Usage(runs=1, **work.used),
        turns=work.turn_no,
        approvals=approvals,
        in_doubt=doubts,
    )
    body = Body.of(result.model_dump_json().encode(), role="result", mime="application/json")
    said = RunParked(
        status=status,
        approvals=approvals,
        in_doubt=doubts,
        error=result.error,
        result=body.ref.digest,
    )
    session.open_agent = work.run_id
    await work.desk.append([Draft.of(said, run_id=work.run_id, bodies=(body,))], durable=True)
    return result


async def _stuck(
    journal: Journal, run_id: str, child: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    approvals: list[str] = []
    doubts: list[str] = []
    for key in (run_id, child):
        row: dict[str, Any] = (await journal.row("runs", key) if key else None) or {}
        approvals += row.get("pending_approvals") or ()
        doubts += row.get("in_doubt") or ()
    # What its code waits for is on the agent's row as well, once that has been parked with it.
    return tuple(dict.fromkeys(approvals)), tuple(dict.fromkeys(doubts))


def _stands(why: HoldfastError) -> ErrorObject:
    if why.code == _HOOK:
        return ErrorObject.of(why)
    hint = (why.hint or "").rstrip(".")
    then = "resumed, the run then goes on where it stands; a new run in its session ends it"
    return ErrorObject(code=why.code, message=why.message, hint=f"{hint}: {then}.")


async def spent_run(journal: Journal, session_id: str) -> str | None:
    """A session's run that stands because a budget is used up."""
    session = await journal.row("sessions", session_id)
    run_id = session.get("open_agent") if session is not None else None
    row: dict[str, Any] = (await journal.row("runs", str(run_id)) if run_id else None) or {}
    return str(run_id) if reason_of(row) == "raised" else None


async def refusal(journal: Journal, session_id: str, why: Conflict) -> Conflict:
    """Why an agent can't have a session in which a run of an agent stands: that run, not the code it wrote."""
    row = await journal.row("sessions", session_id) if why.code == "RUN_OPEN" else None
    run_id = row.get("open_agent") if row is not None else None
    if run_id is None:
        return why
    return Conflict(
        "RUN_OPEN",
        f"Run `{run_id}` of session `{session_id}` is not over: it waits, or was interrupted.",
        hint=f"`holdfast runs show {run_id}` tells what it waits for; resume it, or cancel it. Words for it, or for the"
        " run after it, are left with `holdfast ask --steer` or `--queue` (`hf.agents.say`).",
    )


async def give_up(session: Session, run_id: str) -> None:
    """End a run for which there was no budget: an orderly stop, with what it had said by then."""
    row = await session.services.journal.row("runs", run_id)
    if row is None or row["ended_at"] is not None:
        return
    stood = await recorded_agent(session.services.journal, dict(row))
    ended = stood.model_copy(update={"status": "completed", "output": stood.text})
    await session.pen.append([records_of(ended)], durable=False)
    session.open_agent = None
    await session.services.gate.guards.run_over(session.id, run_id, ended.status)


def reason_of(row: dict[str, Any]) -> str:
    """Why a run can go on, as a token."""
    error: dict[str, Any] = row.get("error") or {}
    if row.get("status") == "needs_attention" and error.get("code") in _REASONS:
        return _REASONS[error["code"]]
    return "recovered" if row.get("status") == "running" else "answered"


async def check_capabilities(session: Session, history: History, *, recorded: bool) -> None:
    """Refuse to go on without what the run waits to call: to its model that would look like a denial.

    `recorded`: whoever resumes it did not say with what; then it needs all that its agent brought along.
    """
    names = {one.name for one in history.pasts.calls.values() if one.call_id and not one.answered}
    for child in history.children.values():
        pasts = await pasts_of(session.services.journal, session.id, child, after=0)
        names |= {one.name for one in pasts.open()}
    if recorded and history.spec is not None:
        names |= {*history.spec.brings}
    missing = sorted(name for name in names if session.toolbox.get(name) is None)
    if missing:
        raise CallerError(
            "SNAPSHOT_CAPABILITY_MISMATCH",
            f"The run needs capabilities that are not here: {', '.join(missing)[:500]}.",
            hint="Resume it with its agent (`agent.resume(run)`), open the runtime with them, or see to the"
            " tool server whose they are (`holdfast mcp list`).",
        )


def _waits(run_id: str, approvals: tuple[str, ...], doubts: tuple[str, ...]) -> ErrorObject:
    if doubts:
        return ErrorObject(
            code="INTERRUPTED",
            message="Nobody knows whether something happened that the run wanted; it stands there.",
            hint=f"Say so with `holdfast runs resolve {run_id} {doubts[0]}`"
            " (--happened JSON, --did-not-happen or --retry), then resume it.",
            effect_id=doubts[0],
        )
    return ErrorObject(
        code="WAITING_FOR_APPROVAL",
        message="The run waits for a person to approve what it wants to do.",
        hint=f"`holdfast approvals approve {approvals[0] if approvals else 'ID'}`, or deny;"
        " the run then goes on from there.",
    )


async def still_waits(session: Session, row: dict[str, Any], history: History) -> bool:
    """Whether nothing a parked run waits for has come."""
    if row["status"] == "running" or reason_of(row) == "repaired":
        return False  # whether the hook does its part by now, only asking it tells
    approvals, journal = session.services.approvals, session.services.journal
    asked, doubts = await _stuck(journal, str(row["id"]), session.open_run)
    said = await anext(journal.read(session.id, after=int(row["parked_pos"]) - 1, limit=1))
    before: tuple[str, ...] = tuple(said.payload.get("approvals") or ())  # type: ignore[arg-type]
    for key in {*asked, *before}:
        if (await approvals.status(key))["status"] != "pending":
            return False
    was: tuple[str, ...] = tuple(said.payload.get("in_doubt") or ())  # type: ignore[arg-type]
    if set(was) - set(doubts):
        return False
    return bool(asked or doubts)


def turn_of(history: History, work: Work) -> Turn:
    """The state of the turn machine at the end of a run's records."""
    transcript = history.transcript
    boundaries = max(0, history.answers - 1)
    extraction = None
    if history.extracting:
        bad = max(0, len(history.candidates) - 1)
        extraction = Extraction(work.spec.output_retries, min(bad, work.spec.output_retries))
        boundaries = max(1, boundaries)
    if extraction is not None and (work.output is None or transcript.waiting):
        # There is nothing more to ask: nobody wants it any more, or the model called tools instead.
        return _at(_P.EXTRACTING, work, boundaries, extraction=extraction._replace(answered=True))
    if transcript.waiting:
        batch = Batch(len(transcript.waiting))
        return _at(_P.WAITING_FOR_OPS, work, boundaries, batch=batch)
    answered = bool(transcript.messages) and isinstance(transcript.messages[-1], AssistantMessage)
    if not answered and history.turn_no == 0 and work.asked is None:
        return _at(_P.APPLYING_PRIMITIVE, work, 0)
    if work.open_question is not None or not answered:
        asked = work.open_question or work.asked
        waits = history.answers > 0 and extraction is None and asked is None
        phase = _P.DRAINING_BOUNDARY if waits else _P.CALLING_LLM
        return _at(phase, work, boundaries, extraction=extraction)
    if extraction is not None and history.candidates:
        return _at(_P.EXTRACTING, work, boundaries, extraction=extraction._replace(answered=True))
    return _at(_P.DRAINING_BOUNDARY, work, boundaries)


def _at(
    phase: TurnPhase,
    work: Work,
    boundaries: int,
    *,
    batch: Batch | None = None,
    extraction: Extraction | None = None,
) -> Turn:
    turn = Turn(
        phase,
        work.run_id,
        shape=ContentShape.CONVERSATION,
        batch=batch,
        boundaries=boundaries,
        extraction=extraction,
    )
    return TURN.check(turn)
