"""A run of an agent that is under way, until it stands or is over; what its caller gets."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio
import anyio.lowlevel

from holdfast.agent.cancelling import on_record, stopped
from holdfast.agent.conversations import Conversations
from holdfast.agent.ending import cause_of, error_of, records_of, status_of
from holdfast.agent.holding import Holding
from holdfast.agent.loop import Loop
from holdfast.agent.outlines import write_outline
from holdfast.agent.standing import park
from holdfast.agent.work import Work
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.view import Usage
from holdfast.errors import HoldfastError
from holdfast.journal.pen import LOST
from holdfast.machines.outcome import Cause


async def drive(loop: Loop, holding: Holding, conversations: Conversations) -> AgentResult:
    """Go on until the run stands or is over, and keep what was said at hand."""
    with _heard(loop.work):
        return await _driven(loop, holding, conversations)


@contextmanager
def _heard(work: Work) -> Generator[None]:
    """Let those who watch a run here hear of each of its records."""
    feed, pen = work.feed, work.session.pen
    if feed is not None:
        pen.heard, feed.live = feed.stir, True
        feed.stir()
    try:
        yield
    finally:
        pen.heard = None
        if feed is not None:
            feed.live = False
            feed.stir()


async def _driven(loop: Loop, holding: Holding, conversations: Conversations) -> AgentResult:
    holding.begin(loop)
    try:
        await loop.go()
    except anyio.get_cancelled_exc_class():
        await _gave_up(loop, conversations)
        raise
    if loop.parked:
        found = await _parked(loop, holding, conversations)
        if found is not None:
            return found
    result: AgentResult | None = None
    holding.over = True
    with anyio.CancelScope(shield=True):
        result = await _ended(loop, conversations)
    assert result is not None
    return result


async def _parked(loop: Loop, holding: Holding, conversations: Conversations) -> AgentResult | None:
    """Leave it where it stands; `None` when somebody wanted it stopped meanwhile."""
    work = loop.work
    found: AgentResult | None = None
    with anyio.CancelScope(shield=True):
        found = await park(work, loop.end.error)
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except anyio.get_cancelled_exc_class():
        await _gave_up(loop, conversations)
        raise
    if loop.cancel_wanted:
        loop.cancelled()
        return None
    holding.over = True
    conversations.keep(work.session, work.transcript)
    return found


async def _gave_up(loop: Loop, conversations: Conversations) -> None:
    """Whoever waited for the run was cancelled, and so is the run."""
    with anyio.CancelScope(shield=True):
        loop.cancelled()
        if await on_record(loop.work):
            await _ended(loop, conversations)


async def _ended(loop: Loop, conversations: Conversations) -> AgentResult:
    """Record how it ended."""
    work, session = loop.work, loop.work.session
    status = status_of(loop.turn)
    doubts: tuple[str, ...] = ()
    if status == "cancelled":
        await _withdraw(work)
        doubts = await stopped(work)
    elif loop.turn.cause in (Cause.HOOK_DENIED, Cause.HOOK_FAILURE) or work.unsettled:
        await work.desk.settle()
        await session.withdraw(work.run_id)
    work.transcript.close()
    result = _result(loop, status, doubts)
    session.pen.raise_failure()
    await work.desk.append([records_of(result)], durable=True)
    session.open_agent = None
    await _outlined(work)
    conversations.keep(session, work.transcript)
    await work.gate.guards.run_over(
        session.id, work.run_id, status, lambda: result.model_dump(mode="json")
    )
    return result


async def _outlined(work: Work) -> None:
    """Write an outline of a long conversation; the run is over and on disk, so nobody minds if that fails."""
    pen = work.session.pen
    try:
        await write_outline(work.journal, pen)
    except HoldfastError:
        if pen.pos == LOST:
            pen.lose()  # it may be there or not: whoever is next looks


async def _withdraw(work: Work) -> None:
    """Nobody need answer any more what the run asked."""
    session = work.session
    await work.gate.guards.run_cancelled(work.desk)
    await work.desk.settle()
    await session.withdraw(work.run_id)


def _result(loop: Loop, status: str, doubts: tuple[str, ...]) -> AgentResult:
    work, extracting = loop.work, loop.extracting
    text = work.transcript.last_text if work.main_text is None else work.main_text
    fits = work.output is not None and extracting.reading is not None
    result = AgentResult(
        run_id=work.run_id,
        session_id=work.session.id,
        status=status,
        text=text,
        output=extracting.value if work.output is not None else text,
        output_error=None if work.output is None or fits else extracting.error,
        partial=extracting.partial,
        cause=cause_of(loop.turn),
        error=error_of(loop.turn, loop.end),
        usage=Usage(runs=1, **work.used),
        turns=work.turn_no,
        in_doubt=doubts,
    )
    redactor = work.gate.redactor
    if not redactor.names:
        return result
    return AgentResult.model_validate(redactor.json(result.model_dump(mode="json")))
