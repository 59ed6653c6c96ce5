"""The pieces of answers on their way to whoever watches. They are on no record, and nobody waits for a watcher.

A run puts each piece into the buffer of each of its listeners. A buffer is bounded: the oldest pieces of a listener
that is too slow are gone, and it is told how many.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple
from weakref import WeakValueDictionary

import anyio

from holdfast.contracts.model import ModelDelta

LIMIT = 1024
"""Pieces that wait for one listener."""

STEPS = 256
"""Calls of which one listener is still to be told how far they are."""


class Pieces(NamedTuple):
    """Of one answer, those that a listener has not had yet."""

    missed: int
    """How many are gone; they came before the others."""
    pieces: tuple[ModelDelta, ...]


class Step(NamedTuple):
    """How far a call is."""

    run_id: str
    effect_id: str
    progress: float
    total: float | None
    message: str | None


class Listener:
    """One watcher's buffer."""

    def __init__(self, feed: Feed, limit: int = LIMIT) -> None:
        self.feed = feed
        """Of its run."""
        self.closed = False
        """Whether nothing more is coming."""
        self._limit = limit
        self._waiting: dict[str, deque[ModelDelta]] = {}
        self._missed: dict[str, int] = {}
        self._count = 0
        self._steps: dict[str, Step] = {}
        self._wake = anyio.Event()
        if feed.newest is not None:  # it came in the middle of an answer
            self._missed[feed.newest] = feed.count

    def put(self, question: str, piece: ModelDelta) -> None:
        """A piece of the answer to a question came."""
        if self._count >= self._limit:
            self._drop()
        self._waiting.setdefault(question, deque()).append(piece)
        self._count += 1
        self._wake.set()

    def take(self, question: str) -> Pieces:
        """What came of the answer to a question since it was last taken."""
        found = self._waiting.pop(question, ())
        self._count -= len(found)
        return Pieces(self._missed.pop(question, 0), tuple(found))

    def step(self, step: Step) -> None:
        """A call is so far; where it was before is of no interest any more."""
        if step.effect_id not in self._steps and len(self._steps) >= STEPS:
            del self._steps[next(iter(self._steps))]
        self._steps[step.effect_id] = step
        self._wake.set()

    def steps(self) -> list[Step]:
        """How far calls are, of those that went on since this was last asked."""
        found, self._steps = [*self._steps.values()], {}
        return found

    def close(self) -> None:
        """The run is over here, or stands."""
        self.closed = True
        self._wake.set()

    def stir(self) -> None:
        """Something was recorded, or is about to be."""
        self._wake.set()

    async def wait(self) -> None:
        """Return once something has come."""
        await self._wake.wait()
        self._wake = anyio.Event()

    def leave(self) -> None:
        """Stop listening."""
        self.feed.listeners.discard(self)

    def _drop(self) -> None:
        oldest = next(iter(self._waiting))
        self._waiting[oldest].popleft()
        if not self._waiting[oldest]:
            del self._waiting[oldest]
        self._missed[oldest] = self._missed.get(oldest, 0) + 1
        self._count -= 1


class Feed:
    """Those who listen to one run."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        """Who they are."""
        self.live = False
        """Whether the run is under way here: then its watchers hear of each of its records."""
        self.newest: str | None = None
        """The question whose answer came last."""
        self.count = 0
        """How many pieces of it came."""

    def listen(self, limit: int = LIMIT) -> Listener:
        """A new listener; `leave` it when done."""
        listener = Listener(self, limit)
        self.listeners.add(listener)
        return listener

    def put(self, question: str, piece: ModelDelta) -> None:
        """Tell everybody."""
        if question != self.newest:
            self.newest, self.count = question, 0
        self.count += 1
        for listener in self.listeners:
            listener.put(question, piece)

    def step(
        self,
        run_id: str,
        effect_id: str,
        progress: float,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        """Tell everybody how far a call is."""
        for listener in self.listeners:
            listener.step(Step(run_id, effect_id, progress, total, message))

    def stir(self) -> None:
        """Something was recorded, or is about to be."""
        for listener in self.listeners:
            listener.stir()

    def ended(self) -> None:
        """No more is coming of this answer: who listens from now on has missed nothing that is not on record."""
        self.newest, self.count = None, 0


class Feeds:
    """The feed of each run that is under way or listened to; others are forgotten."""

    def __init__(self) -> None:
        self._feeds: WeakValueDictionary[str, Feed] = WeakValueDictionary()

    def of(self, run_id: str) -> Feed:
        """The feed of a run; the same as long as anybody has it."""
        found = self._feeds.get(run_id)
        if found is None:
            found = self._feeds[run_id] = Feed()
        return found
