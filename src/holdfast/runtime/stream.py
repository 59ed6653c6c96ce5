"""`agent.stream`: a run under way, and its events as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import anyio

from holdfast.agent.events import watch
from holdfast.agent.feeds import Listener
from holdfast.errors import Conflict, HoldfastError, NotFound, PersonError

if TYPE_CHECKING:
    from holdfast.contracts.agent_event import AgentEvent
    from holdfast.runtime.agent import Run
    from holdfast.runtime.embedded import Runtime

T = TypeVar("T")

Leaving = Literal["cancel", "finish"]
"""What becomes of a run whose stream is left before its end: it is cancelled, or leaving waits for it."""


class Stream(Generic[T]):
    """A run under way. Iterate over it for its events; `await` its `run()` for what it gave."""

    def __init__(self, hf: Runtime, run_id: str, after: int | None) -> None:
        self.run_id = run_id
        """The run, which is known before it begins."""
        self._feed: Listener = hf.agents.listen(run_id)
        self._events = watch(hf.journal, run_id, after=after, feed=self._feed, starting=True)
        self._over = anyio.Event()
        self._run: Run[T] | None = None
        self._failure: Exception | None = None
        self._told = False

    def __aiter__(self) -> Stream[T]:
        """Itself: who breaks off and iterates again goes on with the next event."""
        return self

    async def __anext__(self) -> AgentEvent:
        """The next event. Raises what kept the run from going on, once all that is on record is told."""
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            if not self._told:
                self._raise()
            raise

    async def run(self) -> Run[T]:
        """What it gave, once it is over or stands; events that nobody has looked at are passed over.

        Of one that was cancelled because its block was left: what is on record.
        """
        await self._over.wait()
        self._raise()
        if self._run is None:
            raise PersonError(
                "CANCELLED",
                "The stream was left before its run had begun.",
                hint="Nothing of it is on record: run it again if it is still wanted.",
            )
        return self._run

    async def go(self, begin: Callable[[], Awaitable[Run[T]]]) -> None:
        """Take the run on, beside whoever watches."""
        try:
            self._run = await begin()
        except Exception as why:  # noqa: BLE001 - whoever watches is told
            self._failure = why
        finally:
            self._over.set()
            self._feed.close()

    async def close(self, recorded: Callable[[], Awaitable[Run[T]]]) -> None:
        """Stop watching; `recorded` is the run as the journal has it, which was cancelled for that."""
        self._feed.leave()
        await self._events.aclose()
        if self._run is None and self._failure is None:
            with suppress(NotFound, Conflict):  # it had not begun, or not gone on
                self._run = await recorded()

    def _raise(self) -> None:
        self._told = True
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Raise what went wrong, if nobody was told of it."""
        if not self._told and isinstance(self._failure, HoldfastError):
            self._raise()


@asynccontextmanager
async def streaming(
    opened: AbstractAsyncContextManager[Runtime],
    begin: Callable[[Runtime], Awaitable[Run[T]]],
    recorded: Callable[[Runtime], Awaitable[Run[T]]],
    *,
    run_id: str,
    after: int | None,
    leaving: Leaving,
) -> AsyncGenerator[Stream[T]]:
    """A run beside the block that watches it; it never outlives the block."""
    failure: Exception | None = None
    async with opened as hf:
        stream: Stream[T] = Stream(hf, run_id, after)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(stream.go, lambda: begin(hf))
                try:
                    yield stream
                except Exception as why:  # noqa: BLE001 - a task group would wrap it; raised below
                    failure = why
                if leaving == "cancel":
                    group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await stream.close(lambda: recorded(hf))
        if failure is not None:
            raise failure
        stream.leave()
