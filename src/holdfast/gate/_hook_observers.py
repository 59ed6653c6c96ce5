"""Hooks nobody waits for: a bounded queue for each, served by a task of its own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from types import TracebackType
from typing import NamedTuple, Self

from anyio import (
    EndOfStream,
    WouldBlock,
    create_memory_object_stream,
    create_task_group,
    current_time,
    get_cancelled_exc_class,
    move_on_after,
)
from anyio.abc import TaskGroup

from holdfast.contracts import Draft
from holdfast.contracts.hook import HookOverflow, HookPoint, NonBlocking
from holdfast.errors import CallerError
from holdfast.gate._hook_call import Answer, Hook, ask
from holdfast.gate._hook_records import Scribe
from holdfast.gate._hook_rules import judge
from holdfast.gate._hook_view import HookInput

log = logging.getLogger("holdfast.hooks")

RECORD_MS = 5_000
"""How long the record of a cancelled invocation may take: it must not be cancelled, nor hold up the end for ever."""

Record = Callable[[list[Draft]], Awaitable[None]]

ENDS = frozenset(
    {
        HookPoint.AFTER_RUN_TERMINAL,
        HookPoint.AFTER_SUBAGENT_TERMINAL,
        HookPoint.AFTER_ISOLATION_PROCESS_EXIT,
    }
)
"""Points at which something has ended: observations there may take the reserved places."""


class Taken(Enum):
    """What became of an observation that was offered."""

    QUEUED = auto()
    DROPPED = auto()
    FAILED = auto()


class _Item(NamedTuple):
    question: HookInput
    scribe: Scribe
    record: Record | None


class _Queue:
    """What waits for one observer."""

    def __init__(self, hook: Hook, execution: NonBlocking) -> None:
        self.hook = hook
        self.overflow = execution.overflow
        self.capacity = execution.queue.capacity
        self.common = self.capacity - execution.queue.terminal_reserve
        self.missed = 0
        self.send, self.receive = create_memory_object_stream[_Item](self.capacity)

    def put(self, item: _Item, *, terminal: bool) -> bool:
        """Whether there was room. The last places are kept for what ends something."""
        if not terminal and self.send.statistics().current_buffer_used >= self.common:
            return False
        try:
            self.send.send_nowait(item)
        except WouldBlock:
            return False
        return True

    def rest(self) -> list[_Item]:
        """What is still waiting, taken out."""
        found: list[_Item] = []
        try:
            while True:
                found.append(self.receive.receive_nowait())
        except (EndOfStream, WouldBlock):
            self.receive.close()
        return found


class Observers:
    """The non-blocking hooks of a set, at work between entering and leaving it."""

    def __init__(
        self,
        hooks: Sequence[Hook],
        *,
        aside: Record | None,
        drain_ms: int,
    ) -> None:
        """`aside` takes the records; without it, they go where those of the firing went."""
        self._hooks = [
            (hook, hook.spec.execution)
            for hook in hooks
            if isinstance(hook.spec.execution, NonBlocking)
        ]
        self._aside = aside
        self._drain = drain_ms / 1000
        self._queues: dict[str, _Queue] = {}
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await create_task_group().__aenter__()
        for hook, execution in self._hooks:
            queue = _Queue(hook, execution)
            self._queues[hook.spec.hook_id] = queue
            self._group.start_soon(self._serve, queue)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take no more, serve what waits for a while, record what was not heard."""
        group, queues = self._group, list(self._queues.values())
        self._group, self._queues = None, {}
        if group is None:
            return
        for queue in queues:
            queue.send.close()
        group.cancel_scope.deadline = current_time() + self._drain
        try:
            # Also after an error: what was seen before it is to be told.
            await group.__aexit__(None, None, None)
        finally:
            with move_on_after(RECORD_MS / 1000, shield=True):
                for queue in queues:
                    for item in queue.rest():
                        await self._tell(item, item.scribe.cancelled())

    def offer(
        self,
        hook: Hook,
        question: HookInput,
        scribe: Scribe,
        record: Record | None,
        *,
        terminal: bool,
    ) -> Taken:
        """Put an observation into the hook's queue, or do what its overflow policy says.

        Without `record`, what becomes known of it later goes aside; where there is no aside, to the log.
        """
        queue = self._queues.get(hook.spec.hook_id)
        if queue is None:
            raise CallerError(
                "HOOK_INVALID",
                f"Hook `{hook.spec.hook_id}` is non-blocking and nobody serves its queue.",
                hint="Fire hooks inside `async with hooks:`, or make it blocking.",
            )
        ends = terminal or hook.spec.point in ENDS
        if queue.put(_Item(question, scribe, record), terminal=ends):
            return Taken.QUEUED
        if queue.overflow is HookOverflow.FAIL_HOOK_INVOCATION:
            return Taken.FAILED
        queue.missed += 1
        return Taken.DROPPED

    async def _serve(self, queue: _Queue) -> None:
        async for item in queue.receive:
            await self._serve_one(queue, item)
            if queue.missed and queue.overflow is HookOverflow.SUMMARIZE_AND_CONTINUE:
                missed, queue.missed = queue.missed, 0
                await self._tell(item, item.scribe.failed(f"{missed} observations were dropped."))

    async def _serve_one(self, queue: _Queue, item: _Item) -> None:
        spec = queue.hook.spec
        try:
            answer = await ask(queue.hook, item.question, spec.timeout_ms)
        except get_cancelled_exc_class():
            with move_on_after(RECORD_MS / 1000, shield=True):
                await self._tell(item, item.scribe.cancelled())
            raise
        draft = _draft(item.scribe, answer)
        if draft is not None:
            await self._tell(item, draft)

    async def _tell(self, item: _Item, draft: Draft) -> None:
        record = self._aside or item.record
        if record is None:
            log.warning("hook %s: %s", item.scribe.spec.hook_id, draft.payload["payload"])
            return
        try:
            await record([draft])
        except Exception:
            # The run it was about may be long over; nobody waits whom this could be told.
            log.exception("a record of hook %s could not be written", item.scribe.spec.hook_id)


def _draft(scribe: Scribe, answer: Answer) -> Draft | None:
    if answer.status == "timed_out":
        return scribe.timed_out(answer.elapsed_ms)
    if answer.status == "failed":
        return scribe.failed(answer.summary)
    decision = judge(scribe.spec, answer.response)
    return None if decision is None else scribe.rejected(answer.response, decision)
