"""A source as plain code in a thread sees it: pieces on demand, counted, and no more than it may have.

Parsers are plain functions: they are easier to get right, and the work they do would block the event loop. They
run in a thread, and what they need of the source is fetched by the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
from anyio import from_thread, to_thread

from holdfast.resources.source import Source

T = TypeVar("T")

CHUNK = 256 * 1024
"""Bytes fetched at a time."""
HEAD = 8192
"""Bytes at the beginning that decide what something is."""
MAX_SCAN_BYTES = 1 << 30
"""What one call may go through to find what it is asked for."""


class OutOfBudget(Exception):
    """More was looked at than one call may."""


class Window:
    """Pieces of a source."""

    def __init__(
        self, fetch: Callable[[int, int], bytes], size: int | None, *, budget: int = MAX_SCAN_BYTES
    ) -> None:
        self._fetch = fetch
        self.size = size
        self.budget = budget
        """Bytes that may still be fetched."""
        # Kept: every parser looks at it first, and most read on from there.
        self.head = b""
        self.head = self.read(0, HEAD)

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes, or those up to the end; raises `OutOfBudget`."""
        parts = [self.head[start : start + length]] if start < len(self.head) else []
        have = len(parts[0]) if parts else 0
        while have < length:
            want = min(length - have, CHUNK)
            if self.budget <= 0:
                raise OutOfBudget
            part = self._fetch(start + have, want)
            if not part:
                break
            self.budget -= len(part)
            parts.append(part[:want])
            have += len(parts[-1])
        return b"".join(parts)

    def ends_at(self, offset: int) -> bool:
        """Whether the source has nothing at `offset` and after."""
        if self.size is not None:
            return offset >= self.size
        try:
            return not self.read(offset, 1)
        except OutOfBudget:
            return False


async def in_thread(
    source: Source,
    work: Callable[[Window], T],
    *,
    limiter: anyio.CapacityLimiter,
    budget: int = MAX_SCAN_BYTES,
) -> T:
    """What `work` makes of a source.

    `limiter` must not be the one that sources read under: whoever works here holds a thread while it waits for one.
    """

    def fetch(start: int, length: int) -> bytes:
        from_thread.check_cancelled()  # a thread can't be stopped from outside and has to ask
        return from_thread.run(source.read, start, length)

    def run() -> T:
        return work(Window(fetch, source.size, budget=budget))

    return await to_thread.run_sync(partial(run), limiter=limiter)
