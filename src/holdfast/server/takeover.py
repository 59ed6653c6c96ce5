"""Runs whose process died while this one lives: it looks for them now and then, and goes on with them.

Nobody tells that a process is dead. But whoever has a run holds its session's lease and makes it last, so a run under way whose session
is nobody's, at two looks one after the other, is left behind. That it happens to be somebody's after all does no
harm: of two who want a session the journal lets one write, and effects whose end is not on record are not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.abc import TaskGroup

from holdfast.errors import HoldfastError
from holdfast.server.work import AT_ONCE, Work, can_go_on

if TYPE_CHECKING:
    from holdfast.journal import Journal

EVERY = 30.0
"""Seconds between two looks."""
ROWS = 5000
"""Runs that one look goes through; the next goes on behind them."""
TRIES = 3
"""How often a run is tried that stays where it is, such as one whose capabilities are not here."""


class _Stand(NamedTuple):
    """Where a session stood."""

    pos: int
    epoch: int
    until: int


class Takeover:
    """Looks after the runs of others."""

    def __init__(
        self, journal: Journal, work: Work, *, now: Callable[[], int] | None = None
    ) -> None:
        self._journal = journal
        self._work = work
        self._now = now or _now
        self._after = ""
        self._seen: dict[str, _Stand] = {}
        self._tried: dict[str, tuple[int, int]] = {}
        self._taken: set[str] = set()

    async def keep_looking(self, every: float, background: TaskGroup) -> None:
        """Look every so many seconds, until the server stops."""
        room = anyio.CapacityLimiter(AT_ONCE)
        while not self._work.closing:
            await anyio.sleep(every)
            with suppress(HoldfastError):  # the journal is in trouble: the next look tells
                for run_id in await self.look():
                    self._taken.add(run_id)
                    background.start_soon(self._take, run_id, room)

    async def look(self) -> list[str]:
        """The runs that are left behind, as far as this look and the one before can tell."""
        rows = await self._journal.rows("runs", tag="active", after=self._after, limit=ROWS)
        self._after = rows[-1].key if len(rows) == ROWS else ""
        found: list[str] = []
        for row in rows:
            if row.value["status"] != "running" or not can_go_on(row.value):
                continue  # who parked it, or decided it, says when it goes on
            if row.key in self._taken or self._work.find(row.key) is not None:
                continue
            if await self._is_left(row.key, str(row.value["session_id"])):
                found.append(row.key)
        return found

    async def _is_left(self, run_id: str, session_id: str) -> bool:
        head = await self._journal.head(session_id)
        stand, before = _Stand(head.pos, head.epoch, head.until), self._seen.pop(run_id, None)
        if head.until > self._now():
            return False
        pos, tries = self._tried.get(run_id, (-1, 0))
        if pos == head.pos and tries >= TRIES:
            return False
        if stand != before:
            if len(self._seen) < ROWS:
                self._seen[run_id] = stand
            return False
        if len(self._tried) >= ROWS:
            self._tried.clear()
        self._tried[run_id] = (head.pos, tries + 1 if pos == head.pos else 1)
        return True

    async def _take(self, run_id: str, room: anyio.CapacityLimiter) -> None:
        try:
            await self._work.take_up(run_id, room)
        finally:
            self._taken.discard(run_id)


def _now() -> int:
    return time.time_ns() // 1_000_000
