"""A session of the engine together with all that lasts as long as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
from pydantic_monty import AsyncMontySession

from holdfast.shell.languages._python_alarm import Alarm
from holdfast.shell.languages._python_outside import Outside
from holdfast.shell.languages._python_process import Worker

_PATIENCE = 0.5
"""Seconds in which a process must end when it is asked to."""


class Live:
    """A session that was checked out of the pool, its process, and what its runs share."""

    __slots__ = ("_ended", "alarm", "feeds", "outside", "session", "worker")

    def __init__(self, session: AsyncMontySession, ended: Callable[[], None]) -> None:
        self.session = session
        self._ended = ended
        self.worker = Worker(session.worker_pid)
        self.alarm = Alarm()
        self.outside = Outside()
        self.feeds = 0
        """How many pieces of code the engine got: it names them by number."""

    async def end(self) -> None:
        """End the process, whether or not the session is still good for anything. Once."""
        with anyio.CancelScope(shield=True):
            self.alarm.close()
            # A process that is stopped or stuck does not leave by itself.
            late = asyncio.get_running_loop().call_later(_PATIENCE, self.worker.kill)
            try:
                await self.session.__aexit__(None, None, None)
            finally:
                late.cancel()
                self.worker.kill()
                self.worker.close()
                self._ended()
