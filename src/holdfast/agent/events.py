"""A run as a series of events: made from its records, with the pieces of answers in between while they come.

One record gives at most one event, and the same one to whoever reads it, whenever. So the seq of the last event a
watcher had is all it takes to come back. Records are read at the watcher's own pace; a run never waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Literal

import anyio

from holdfast.agent._telling import Telling
from holdfast.agent.feeds import Listener
from holdfast.contracts import Record
from holdfast.contracts import agent_event as e
from holdfast.contracts.model import ModelDelta
from holdfast.errors import NotFound
from holdfast.journal import Journal
from holdfast.journal.log import PAGE

_SOON, _PATIENCE = 0.002, 0.25
"""Seconds until the next look at the records of a run that is under way here: at first, and at most."""

Until = Literal["ended", "parked", "now"]
"""When a watcher is done: once the run is over, also once it stands, or with what is on record now."""


async def watch(
    journal: Journal,
    run_id: str,
    *,
    after: int | None = None,
    feed: Listener | None = None,
    until: Until = "ended",
    starting: bool = False,
) -> AsyncGenerator[e.AgentEvent]:
    """The events of a run after seq `after`, in order, each once; with those on no record from `feed`.

    Once that is closed, what is on record by then is all there is. `starting`: the run may not be on record yet.
    """
    watching = _Watching(journal, run_id, after or 0, feed, until)
    row = await watching.begin(starting=starting)
    if row is None:
        return
    stream, pos = str(row["session_id"]), int(row["start_pos"]) - 1
    while True:
        closing = until == "now" or (feed is not None and feed.closed)
        seen = await journal.last_seq()
        page = [one async for one in journal.read(stream, after=pos, limit=PAGE)]
        for record in page:
            pos = record.pos
            async for event in watching.events(record):
                yield event
            if watching.done:
                return
        if len(page) == PAGE:
            continue
        for delta in watching.deltas():
            yield delta
        for step in watching.steps():
            yield step
        if closing or await watching.stands(pos):
            return
        await watching.wait(seen)


class _Watching:
    """One watcher of one run."""

    def __init__(
        self, journal: Journal, run_id: str, after: int, listener: Listener | None, until: Until
    ) -> None:
        self.done = False
        """Whether the run's end was told."""
        self._journal = journal
        self._run_id = run_id
        self._after = after
        self._listener = listener
        self._until = until
        self._telling = Telling(journal, run_id)
        self._pieces = _Pieces(self._telling)
        self._stood: int | None = None
        self._time = 0
        self._over: set[str] = set()
        self._patience = _SOON

    async def begin(self, *, starting: bool) -> dict[str, Any] | None:
        """The run's row, once it is on record; `None` when it never was."""
        while True:
            seen = await self._journal.last_seq()
            over = self._listener is None or self._listener.closed
            row: dict[str, Any] | None = await self._journal.row("runs", self._run_id)
            if row is not None and row["kind"] == "agent":
                return row
            if row is not None or not starting:
                raise no_run(self._run_id)
            if over:
                return None
            await self.wait(seen)

    async def events(self, record: Record) -> AsyncGenerator[e.AgentEvent]:
        """What a record says, after what came before it."""
        self._patience = _SOON
        if self._telling.closes(record):
            for delta in self.deltas():
                yield delta
            if self._listener is not None:
                self._listener.take(str(record.effect_id))
        if record.kind == "effect_result":
            self._over.add(str(record.effect_id))
        event = await self._telling.tell(record)
        if event is None:
            return
        self._time = record.time
        self._stood = record.pos if isinstance(event, e.RunParked) else None
        self.done = isinstance(event, e.RunEnded)
        if event.seq > self._after:
            self._after = event.seq
            yield event

    def deltas(self) -> Iterator[e.Delta]:
        """What came of the answer that is being given."""
        asked = self._telling.question
        if asked is None or self._listener is None:
            return
        yield from self._pieces.events(asked, self._listener, self._after)

    def steps(self) -> Iterator[e.ToolProgress]:
        """How far calls are by now."""
        for one in self._listener.steps() if self._listener is not None else ():
            if one.effect_id in self._over:
                continue  # a server may say so a moment too late
            yield e.ToolProgress(seq=self._after, time=self._time, **one._asdict())

    async def stands(self, pos: int) -> bool:
        """Whether there is nothing more to tell before somebody resumes the run, and that is not waited for."""
        return self._until == "parked" and self._stood == pos

    async def wait(self, seen: int) -> None:
        """Return once there may be more: on record, or of an answer."""
        listener = self._listener
        if listener is None:
            await self._journal.wait(seen)
        elif listener.feed.live:
            # Who watches one of many runs here does not look whenever one of the others says something. What was
            # handed in without waiting is written a moment later.
            with anyio.move_on_after(self._patience) as quiet:
                await listener.wait()
            longer = min(self._patience * 2, _PATIENCE)
            self._patience = longer if quiet.cancelled_caught else _SOON
        else:
            await self._either(listener, seen)

    async def _either(self, listener: Listener, seen: int) -> None:
        failure: Exception | None = None

        async def recorded() -> None:
            nonlocal failure
            try:
                await self._journal.wait(seen)
            except Exception as why:  # noqa: BLE001 - raised below, out of its group
                failure = why
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(recorded)
            await listener.wait()
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


class _Pieces:
    """Makes events of the pieces of answers."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._asked: e.TurnStarted | None = None
        self._partial: Any = None

    def events(self, asked: e.TurnStarted, listener: Listener, seq: int) -> Iterator[e.Delta]:
        """What came of the answer to the question `asked`."""
        missed, pieces = listener.take(asked.effect_id)
        if asked is not self._asked:
            self._asked, self._partial = asked, self._telling.partial()
        where: dict[str, Any] = {
            "seq": max(asked.seq, seq),
            "time": asked.time,
            "run_id": asked.run_id,
            "turn": asked.turn,
            "attempt": asked.attempt,
        }
        if missed:
            self._partial = None  # what came after the hole says nothing about the value
            yield e.DeltasMissed(count=missed, **where)
        for piece in pieces:
            yield _delta(piece, where)
            if (
                piece.kind == "text"
                and self._partial is not None
                and self._partial.feed(piece.text)
            ):
                value, complete = self._partial.value, self._partial.complete
                yield e.OutputPartial(value=value, complete=complete, **where)


def _delta(piece: ModelDelta, where: dict[str, Any]) -> e.Delta:
    if piece.kind == "tool_call":
        return e.ToolCallDelta(
            text=piece.text, index=piece.index, call_id=piece.call_id, name=piece.name, **where
        )
    kind = e.TextDelta if piece.kind == "text" else e.ThinkingDelta
    return kind(text=piece.text, index=piece.index, **where)


def no_run(run_id: str) -> NotFound:
    """The refusal of a run that is none of an agent."""
    return NotFound(
        "NOT_FOUND",
        f"There is no agent's run `{run_id[:80]}`.",
        hint="`holdfast runs list` names the runs there are.",
    )
