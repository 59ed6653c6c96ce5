"""The one timer of a box.

Nearly every run ends long before its time is up, so a timer for each would be set and cancelled for nothing.
This one stays set across runs: when it rings too early for the run that is under way, it is set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls whoever set it last, at the time it was set for or later."""

    __slots__ = ("_due", "_handle", "_loop", "_ring", "_wanted")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._wanted = 0.0
        self._ring: Callable[[], None] | None = None

    def set(self, delay: float, ring: Callable[[], None]) -> None:
        """Call `ring` after `delay` seconds, unless it is put off or set anew before."""
        due = self._loop.time() + delay
        self._wanted, self._ring = due, ring
        if self._handle is None or due < self._due:
            self._arm(due)

    def put_off(self) -> None:
        """Nobody waits for it any more."""
        self._ring = None

    def close(self) -> None:
        """Take it down."""
        self._ring = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, due: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due = due
        self._handle = self._loop.call_at(due, self._rings)

    def _rings(self) -> None:
        self._handle = None
        ring = self._ring
        if ring is None:
            return
        if self._loop.time() < self._wanted:
            self._arm(self._wanted)
        else:
            self._ring = None
            ring()
