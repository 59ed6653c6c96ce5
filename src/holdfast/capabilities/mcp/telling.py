"""What goes to a server that is started here: one line for each message.

A line is written at once, by whoever has something to say, as long as the pipe takes it. What it does not take waits
for the task that owns the pipe, and so does all that comes after it: lines stay whole, and in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

import anyio
from mcp.shared.message import SessionMessage

_QUEUE = 256


class Telling:
    """Writes to a pipe. `deaf` is told when nobody reads any more."""

    def __init__(self, pipe: int, deaf: Callable[[], None]) -> None:
        self._pipe = pipe
        self._deaf = deaf
        self._closed = False
        self._behind = False
        """Whether something waits."""
        # So much may wait for a server that does not read; only then do callers notice.
        self._later, self._waiting = anyio.create_memory_object_stream[memoryview](_QUEUE)
        self._scope = anyio.CancelScope()
        self.told = anyio.Event()
        """Set when nothing waits, and nothing will."""

    async def send(self, item: SessionMessage, /) -> None:
        """Say it, or have it wait. Raises what a stream raises that is closed, or that nobody reads."""
        if self._closed:
            raise anyio.ClosedResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        line = memoryview(f"{text}\n".encode())
        if self._behind:
            await self._later.send(line)
        elif rest := self._written(line):
            self._behind = True
            # Nothing waits, so there is room; and a line that was begun is never left unfinished.
            self._later.send_nowait(rest)

    async def own(self) -> None:
        """Write what waits, until it is closed."""
        try:
            with self._scope, self._waiting:
                async for line in self._waiting:
                    await self._write(line)
        except anyio.BrokenResourceError:
            pass
        finally:
            self.told.set()

    async def _write(self, line: memoryview) -> None:
        rest = line
        while rest:
            await anyio.wait_writable(self._pipe)
            rest = self._written(rest)
        now = self._waiting.statistics()
        self._behind = now.current_buffer_used + now.tasks_waiting_send > 0

    def _written(self, line: memoryview) -> memoryview:
        """Write what the pipe takes; what is left."""
        try:
            return line[os.write(self._pipe, line) :]
        except BlockingIOError:
            return line
        except OSError:
            # It may be alive, but it does not listen any more: nobody should wait for it.
            self._deaf()
            raise anyio.BrokenResourceError from None

    def close(self) -> None:
        """Take nothing more; what waits is still written."""
        self._closed = True
        self._later.close()

    async def end(self) -> None:
        """Let the server see the end, whether or not something waits."""
        self.close()
        self._scope.cancel()
        # Not before: whoever waits for the pipe would wait for whatever has its number next.
        await self.told.wait()
        self.release()

    def release(self) -> None:
        """Give the pipe back; only once its owner is gone."""
        self.close()
        self._waiting.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    async def aclose(self) -> None:
        """The same as `close`, for those who wait for it."""
        self.close()

    async def __aenter__(self) -> Telling:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()
