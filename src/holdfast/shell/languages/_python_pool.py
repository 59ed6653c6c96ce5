"""Starts workers and hands them out, each for one session.

Starting one is never interrupted: bubblewrap, killed in the middle of its setup, leaves a process behind that
waits for ever. So whoever gives up while a worker starts, waits for it (milliseconds) and ends it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, cast

import anyio
from pydantic_monty import AsyncMonty, MontyError, OSPolicy, ResourceLimits

from holdfast.contracts import SessionLimits
from holdfast.errors import OperatorError
from holdfast.shell.languages._python_live import Live

_HOUR = 3600.0
_PATIENCE = 60.0

# Clock, sleep and entropy go to the host, which refuses them: code that depends on them can't be replayed.
_POLICY: OSPolicy = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
# Time that threads of the engine need to let go of Python objects. A process that ends while one of
# them waits for the interpreter's lock is aborted.
_SETTLE = 0.02


class Pool:
    """The worker processes of this host process."""

    def __init__(self, program: str, most: int) -> None:
        self._most = most
        self._slots = anyio.Semaphore(most)
        self._pool = AsyncMonty(
            binary_path=program,
            max_processes=most,
            max_checkouts_per_worker=1,
            # Behind our own limits, should the event loop be stuck: the longest `wall_ms` and a minute.
            request_timeout=24 * _HOUR + _PATIENCE,
        )

    async def start(self) -> None:
        """Start the first worker; raises `ENGINE_UNAVAILABLE`."""
        await _entered(self._pool)

    async def close(self) -> None:
        """End every worker."""
        await self._pool.__aexit__(None, None, None)
        await anyio.sleep(_SETTLE)

    async def checkout(self, limits: SessionLimits, *, stubs: str | None = None) -> Live:
        """A session in a process of its own; with `stubs`, it checks types first. Raises `ENGINE_UNAVAILABLE`."""
        await self._wait_for_a_slot()
        try:
            if stubs is None:
                session = self._pool.checkout(limits=_built_in(limits), os_policy=_POLICY)
            else:
                session = self._pool.checkout(
                    limits=_built_in(limits),
                    os_policy=_POLICY,
                    type_check=True,
                    type_check_stubs=stubs,
                    type_check_format="json",
                )
            await _entered(session)
        except BaseException:
            self._slots.release()
            raise
        return Live(session, self._slots.release)

    async def _wait_for_a_slot(self) -> None:
        try:
            self._slots.acquire_nowait()
            return
        except anyio.WouldBlock:
            pass
        try:
            with anyio.fail_after(_PATIENCE):
                await self._slots.acquire()
        except TimeoutError:
            raise unavailable(f"all {self._most} are in use") from None


async def _entered(manager: Any) -> None:
    """Enter a context manager of the engine's, to the end, whatever happens to whoever asked."""
    entering = cast("asyncio.Future[Any]", cast("Awaitable[Any]", manager.__aenter__()))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), suppress(MontyError, OSError, RuntimeError):
            await entering
            await manager.__aexit__(None, None, None)
        raise
    except (MontyError, OSError, RuntimeError) as why:
        raise unavailable(str(why)) from why


def _built_in(limits: SessionLimits) -> ResourceLimits:
    """The limits that the engine keeps itself. Two are its own; the others are the host's, with a backstop here."""
    return {
        "max_memory": limits.memory_mb << 20,
        "max_recursion_depth": limits.max_stack_depth,
        "max_feed_duration_secs": _HOUR + _PATIENCE,
        "max_suspensions": 2**40,
    }


def unavailable(why: str) -> OperatorError:
    """The refusal when no worker can be had."""
    return OperatorError(
        "ENGINE_UNAVAILABLE",
        f"No worker of the Python engine can be started: {why[:300]}.",
        hint="`holdfast doctor` says what is missing; reinstall `pydantic-monty`, or free processes.",
    )
