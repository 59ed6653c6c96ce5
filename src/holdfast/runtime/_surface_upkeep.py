"""What is due without anybody asking: removals end, connections are made again, and those that are idle are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

import anyio
import anyio.abc

from holdfast.errors import HoldfastError
from holdfast.runtime._surface_board import Board
from holdfast.runtime._surface_links import Link

IDLE_S = 30.0
"""Seconds without a call after which a connection is asked whether it is alive."""


class Upkeep:
    """One task for all surfaces of a runtime; started with the first of them."""

    def __init__(self, board: Board, also: Callable[[], Awaitable[None]]) -> None:
        """`also` is done whenever something may be due."""
        self._board = board
        self._also = also
        self._group: anyio.abc.TaskGroup | None = None

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Begin, unless it has begun."""
        if self._group is None:
            self._group = group
            group.start_soon(self._keep)

    async def _keep(self) -> None:
        board = self._board
        while board.operating:
            self.pump()
            with suppress(HoldfastError):  # the journal is in trouble; whoever runs next is told
                await self._also()
            with anyio.move_on_after(self._next()):
                await board.wake.wait()
            board.wake = anyio.Event()

    def pump(self) -> None:
        """Do what is due by now."""
        board = self._board
        if not board.operating:
            return
        for name in [*board.state.records]:
            board.pump(name)
            again = board.fate(name).again_at
            if again is not None and again <= board.now():
                board.again(name)
            self._check(name)

    def _check(self, name: str) -> None:
        served = self._board.serving(name)
        if served is None or served.link.over or served.link.checking:
            return
        link = served.link
        if self._group is not None and (link.suspect or monotonic() - link.used >= IDLE_S):
            link.checking = True
            self._group.start_soon(self._see, link)

    async def _see(self, link: Link) -> None:
        """Find out whether it is alive; one that does not answer is given up."""
        if not await link.check() and not link.over:
            link.lose()

    def _next(self) -> float:
        """Seconds until something is due."""
        board = self._board
        now, due = board.now(), IDLE_S
        for name, record in board.state.records.items():
            times = [one.deadline for one in record.old]
            if record.removal is not None:
                times.append(record.removal.deadline)
            again = board.fate(name).again_at
            if again is not None:
                times.append(again)
            for at in times:
                due = min(due, max(0.0, (at - now) / 1000))
        return max(due, 0.01)
