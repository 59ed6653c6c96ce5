"""The time of one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from holdfast.contracts import ErrorObject

_T = TypeVar("_T")

_WATCH_AGAIN = 0.05
"""Seconds until a run whose time has run out is looked at again: something else is about to end it."""


@dataclass(slots=True)
class Clock:
    """The time that counts for `wall_ms`: computing, and calls; not waiting for people, nor for the host to stop."""

    limit_ms: int
    used: float = 0.0
    _since: float | None = field(default=None, init=False)
    """Since when the one call that is under way works, if there is just one."""
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.limit_ms / 1000 - self.used)

    def left_ms(self) -> float:
        """The same for a box."""
        return self.left() * 1000

    async def timed(self, step: Awaitable[_T]) -> _T:
        """What `step` gives; the time it takes counts."""
        since = monotonic()
        try:
            return await step
        finally:
            self.used += monotonic() - since

    def start(self) -> None:
        """From now on time counts."""
        self._since = monotonic()

    def stop(self) -> None:
        """Until now it did."""
        since, self._since = self._since, None
        if since is not None:
            self.used += monotonic() - since

    def watch(self, expire: Callable[[], None]) -> None:
        """Call `expire` once the run's time has run out while one call is under way, alone; until `unwatch`."""
        spent = 0.0 if self._since is None else monotonic() - self._since
        left = self.left() - spent
        if left <= 0 and self._since is not None:
            expire()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(left, _WATCH_AGAIN), self.watch, expire)

    def unwatch(self) -> None:
        """Nobody need be told any more."""
        if self._timer is not None:
            self._timer.cancel()


def out_of_time(limit_ms: int) -> ErrorObject:
    """What the caller of a run is told whose time has run out."""
    return ErrorObject(
        code="TIMEOUT_WALL",
        message=f"The run took longer than {limit_ms} ms.",
        hint="Call less, ask for less at a time, or run with a greater `wall_ms`.",
    )
