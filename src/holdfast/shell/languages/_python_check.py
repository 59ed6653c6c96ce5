"""Checks code without running it, in a session of the engine that is kept for that."""

from __future__ import annotations

import anyio
from pydantic_monty import MontyError

from holdfast.contracts import Diagnostic, ErrorObject, SessionLimits
from holdfast.shell.languages._python_errors import Text, breached, explain, is_refusal
from holdfast.shell.languages._python_guard import Breach, Guard
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_pool import Pool
from holdfast.shell.languages._python_run import barred

MAX_CHARS = 1 << 20
"""A session remembers what it was fed: after this much it is replaced."""


class Checker:
    """One session that reads code and runs none of it; one check at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._limits = SessionLimits()
        self._turn = anyio.Lock()
        self._live: Live | None = None
        self._fed = 0

    async def check(self, code: str) -> tuple[Diagnostic, ...]:
        """What the engine has against the code."""
        async with self._turn:
            live = await self._ready(len(code))
            guard = Guard(self._limits, live.worker, live.alarm, None)
            try:
                await guard.watch(live.session.feed_run(barred(code)))
            except Breach as breach:
                await self._drop()
                return _told(breached(breach.code, self._limits))
            except MontyError as error:
                return await self._found(error, code)
            except BaseException:
                await self._drop()
                raise
            finally:
                guard.end()
            return ()

    async def close(self) -> None:
        """End its process."""
        async with self._turn:
            await self._drop()

    async def _found(self, error: MontyError, code: str) -> tuple[Diagnostic, ...]:
        text = Text(code, self._limits, skipped=1)
        if is_refusal(error):
            return _told(explain(error, text).error)
        failure = explain(error, text)
        if failure.kept:
            return ()  # stopped at the barrier: the engine has nothing against what follows
        await self._drop()
        return _told(failure.error)

    async def _ready(self, size: int) -> Live:
        if self._live is not None and self._fed + size > MAX_CHARS:
            await self._drop()
        if self._live is None:
            self._live = await self._pool.checkout(self._limits)
        self._fed += size
        return self._live

    async def _drop(self) -> None:
        live, self._live, self._fed = self._live, None, 0
        if live is not None:
            await live.end()


def _told(error: ErrorObject) -> tuple[Diagnostic, ...]:
    return (Diagnostic.error(error),)
