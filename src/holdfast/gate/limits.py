"""The five limits of a capability: size of arguments and result, time, how many at once, how often.

A limiter belongs to one process and one event loop, and counts by the name of the capability, whoever calls it.
`concurrency` makes callers wait, in the order in which they came; `rate_per_min` refuses, because a minute is
longer than code should hang. The times of the last minute's calls are on record as intents, so the window holds
across a restart: `seed` takes them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import anyio

from holdfast.contracts import CapabilityLimits, Json, canonical_json
from holdfast.errors import ModelError

MINUTE = 60_000
"""Milliseconds: the window of `rate_per_min`."""


def check_request(name: str, arguments: Mapping[str, Json], limits: CapabilityLimits) -> bytes:
    """The canonical arguments; raises `REQUEST_TOO_LARGE` when they are longer than allowed."""
    data = canonical_json(arguments)
    if len(data) > limits.max_request_bytes:
        raise too_large(name, len(data), limits)
    return data


def too_large(name: str, size: int, limits: CapabilityLimits) -> ModelError:
    """The refusal of arguments that are too long."""
    return ModelError(
        "REQUEST_TOO_LARGE",
        f"The arguments of `{name}` are {size} bytes, {limits.max_request_bytes} are allowed.",
        hint="Pass less, or split it over several calls.",
    )


def check_response(name: str, value: Json, limits: CapabilityLimits) -> bytes:
    """The canonical result; raises `RESPONSE_TOO_LARGE` when it is longer than allowed."""
    data = canonical_json(value)
    if len(data) > limits.max_response_bytes:
        raise ModelError(
            "RESPONSE_TOO_LARGE",
            f"The result of `{name}` is {len(data)} bytes, {limits.max_response_bytes} are allowed.",
            hint="Ask for less: a smaller range, fewer rows, one page.",
        )
    return data


class RateLimited(ModelError):
    """The capability was called as often as it may be."""

    def __init__(self, name: str, rate: int, wait_ms: int) -> None:
        super().__init__(
            "RATE_LIMITED",
            f"`{name}` was called {rate} times within a minute, which is all it may be.",
            hint=f"Call it again in {math.ceil(wait_ms / 1000)} s.",
        )
        self.wait_ms = wait_ms
        """How long until a call would pass."""


@dataclass(slots=True, eq=False)
class _Waiter:
    concurrency: int
    turn: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class _Counts:
    """What is known about one capability."""

    running: int = 0
    waiting: deque[_Waiter] = field(default_factory=deque[_Waiter])
    seeded: list[int] = field(default_factory=list[int])
    times: deque[int] = field(default_factory=deque[int])

    def add(self, now: int) -> None:
        """One more call; those older than a minute are forgotten."""
        while self.times and self.times[0] <= now - MINUTE:
            self.times.popleft()
        self.times.append(now)

    def recent(self, now: int) -> list[int]:
        """The times of the calls of the last minute, oldest first."""
        # A clock that was set back must not make anybody wait longer than the window.
        every = (min(time, now) for time in (*self.seeded, *self.times))
        return sorted(time for time in every if time > now - MINUTE)


class Limiter:
    """Who may call a capability now, who waits, and who is refused."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._born = clock()
        self._counts: dict[str, _Counts] = {}

    def seed(self, name: str, times: Iterable[int]) -> None:
        """Let calls count that were made before this limiter was: unix milliseconds, from the journal.

        Replaces what was seeded before; later times are left out, since this limiter saw those calls itself.
        """
        self._of(name).seeded = [time for time in times if time <= self._born]

    def slot(self, name: str, limits: CapabilityLimits) -> Slot:
        """`async with`: wait for a turn, and hold it inside; raises `RATE_LIMITED` when it comes too soon."""
        return Slot(self, name, limits)

    def enter_now(self, name: str, limits: CapabilityLimits) -> bool:
        """Take a turn, if there is one without waiting; whoever got it has to `leave`."""
        counts = self._counts.get(name) or self._of(name)
        if counts.waiting or counts.running >= limits.concurrency:
            return False
        self._count(name, counts, limits.rate_per_min)
        counts.running += 1
        return True

    async def enter(self, name: str, limits: CapabilityLimits) -> None:
        """Wait for a turn; whoever got it has to `leave`."""
        if self.enter_now(name, limits):
            return
        counts = self._of(name)
        await _wait(counts, limits.concurrency)
        try:
            self._count(name, counts, limits.rate_per_min)
        except BaseException:
            self.leave(name)
            raise

    def leave(self, name: str) -> None:
        """Give the turn to the next."""
        counts = self._counts[name]
        counts.running -= 1
        if counts.waiting:
            _wake(counts)

    def _of(self, name: str) -> _Counts:
        found = self._counts.get(name)
        if found is None:
            found = self._counts[name] = _Counts()
        return found

    def _count(self, name: str, counts: _Counts, rate: int | None) -> None:
        now = self._clock()
        if rate is not None:
            recent = counts.recent(now)
            if len(recent) >= rate:
                raise RateLimited(name, rate, recent[-rate] + MINUTE - now)
        counts.add(now)


class Slot:
    """A turn to call a capability."""

    __slots__ = ("_limiter", "_limits", "_name")

    def __init__(self, limiter: Limiter, name: str, limits: CapabilityLimits) -> None:
        self._limiter = limiter
        self._name = name
        self._limits = limits

    async def __aenter__(self) -> None:
        await self._limiter.enter(self._name, self._limits)

    async def __aexit__(self, *_: object) -> None:
        self._limiter.leave(self._name)


async def _wait(counts: _Counts, concurrency: int) -> None:
    waiter = _Waiter(concurrency)
    counts.waiting.append(waiter)
    try:
        await waiter.turn.wait()
    except (
        BaseException
    ):  # Cancelled, before or after its turn was given: either way it takes no place.
        if waiter.turn.is_set():
            counts.running -= 1
        else:
            counts.waiting.remove(waiter)
        _wake(counts)
        raise


def _wake(counts: _Counts) -> None:
    """Give turns to those who wait, in order. The first one blocks the rest, also if its limit is the smaller."""
    while counts.waiting and counts.running < counts.waiting[0].concurrency:
        counts.running += 1
        counts.waiting.popleft().turn.set()
