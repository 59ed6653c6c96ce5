"""One writer, many requests, one commit.

Requests queue up; whoever holds the lock takes all that are waiting and commits them as one group. Normally
that is the writer thread. A hand-over to a thread and back costs about as much as a commit on a fast disk,
though, so while commits are fast the event loop that asked commits by itself: the request alone, past the
queue, or where others have joined in lately, the group that they make with it in one turn of the loop. It never
waits: not for the lock, not for another process, and not for a disk that has become slow, since then the
thread does the work and the loop stays free.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar, cast

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from holdfast.errors import HoldfastError, JournalError
from holdfast.journal._request import Awaited, Posted, Request, Work, closed, not_synced, report
from holdfast.journal._sqlite_db import Busy
from holdfast.journal._wake import call_into

FAST_COMMIT = 0.001
"""Seconds. Below this, as a moving average, an event loop may commit by itself."""

COMPANY, LOOK_EVERY = 64, 32
"""After a group of several, so many more wait a turn for others; of lone ones, every so many-th does, and who is not
the one before: where two write in turns, others may, too."""

RIDE = 0.002
"""Seconds that posted requests wait for company: making and writing them takes the interpreter from others."""

SYNC_AFTER = 0.1
"""Seconds after which what was written but not synced is synced, if nothing else did it."""

T = TypeVar("T")
R = TypeVar("R")
Loop = asyncio.AbstractEventLoop


class Committed(NamedTuple):
    """What a store says about a commit."""

    took: float
    """Seconds the disk took."""
    untidy: bool
    """Whether upkeep is due."""
    wrote: bool
    """Whether there was anything to write: where there was not, nothing was synced either."""


class Writer(Generic[T]):
    """Runs requests in groups.

    The store's part: `commit(group, wait)` writes them, `sync` brings earlier commits to the disk, `tidy` does
    upkeep, and says in how many seconds there is more of it. All run under the lock, the last two only on the thread.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Request[T]], bool], Committed],
        sync: Callable[[], None],
        tidy: Callable[[], float | None],
        *,
        name: str,
    ) -> None:
        self._commit = commit
        self._sync = sync
        self._tidy = tidy
        self._queue: deque[Posted[T] | Awaited[T]] = deque()
        self._lock = threading.Lock()
        # A token for each time that the thread is to look. A semaphore would do, at twenty times the price.
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._closing = False
        self._unsynced_by: float | None = None
        self._sync_failure: OSError | None = None
        self._armed = False
        self._roused = False
        self._noted = False
        self._counting = threading.Lock()
        self._posted = self._settled = 0
        self._untidy = False
        self._tidy_at: float | None = None
        self._pace = 0.0
        self._company = self._turns = 0
        self._latest: str | None = None
        self._leading = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    async def submit(
        self, work: Callable[[T], R], *, durable: bool = True, stream: str | None = None
    ) -> R:
        """Run `work` in the next group and return what it returned, once committed. `stream`: where it writes."""
        if self._closing:
            raise closed()
        alone = self.may_commit_alone(stream)
        self._take_turn(stream)
        if alone:
            await checkpoint_if_cancelled()
            lone: Request[T] = Request(work, durable)
            if self._commit_alone(lone):
                if lone.failure is not None:
                    raise lone.failure
                return cast(R, lone.outcome)
        request = Awaited(work, durable)
        self._queue.append(request)
        if self._closing:
            self._turn_away()  # closed by another thread in between: nobody would come for it
        try:
            if not self._leading:
                await self._lead(request)
            return cast(R, await request.future)
        except asyncio.CancelledError:
            request.future.cancel()  # while it is still queued it is dropped: nothing comes later
            if self._queue:
                self._rouse()  # others may have joined us, and relied on us to commit
            raise

    def may_commit_alone(self, stream: str | None) -> bool:
        """Whether whoever writes there next would try to commit by itself, past the queue.

        Not while other tasks may join: they did lately, somebody else wrote before, or it is time to find out.
        """
        joined = self._company > 0 or (self._turns + 1) % LOOK_EVERY == 0
        another = stream is not None and self._latest not in (None, stream)
        return not (self._leading or self._pace >= FAST_COMMIT or joined or another)

    def _take_turn(self, stream: str | None) -> None:
        self._turns += 1
        self._latest = stream or self._latest

    def submit_now(self, work: Callable[[T], R], *, durable: bool, stream: str) -> R | None:
        """Run `work` alone, here and now; `None`, and nothing done, if that can't be had without waiting."""
        if self._closing:
            raise closed()
        self._take_turn(stream)
        request = Request(cast("Work[T]", work), durable)
        if not self._commit_alone(request):
            return None
        if request.failure is not None:
            raise request.failure
        return cast(R, request.outcome)

    def _commit_alone(self, request: Request[T]) -> bool:
        """Commit a request that nobody waits with, past the queue; False, and nothing done, if that can't be had."""
        if not self._lock.acquire(blocking=False):
            return False
        posted: list[Posted[T] | Awaited[T]] = []
        try:
            # What nobody waits for rides along, and before it: it was there first.
            while self._queue and isinstance(self._queue[0], Posted):
                posted.append(self._queue.popleft())
            if self._queue or self._closing:
                self._queue.extendleft(reversed(posted))
                return False
            self._run([*posted, request] if posted else [request], wait=False)
            self._report(posted)
        except Busy:
            self._queue.extendleft(reversed(posted))
            return False
        finally:
            self._lock.release()
        self._hand_over()
        return True

    async def _lead(self, request: Awaited[T]) -> None:
        """Commit the request, and whatever joins it meanwhile, here and now if that can be had without waiting."""
        if self._pace < FAST_COMMIT:
            self._leading = True
            try:
                await asyncio.sleep(0)
            finally:
                self._leading = False
            if not request.future.done() and self._lock.acquire(blocking=False):
                try:
                    self._settle(self._run_queued(wait=False), request.loop)
                except Busy:
                    pass  # another process is writing; the thread will wait for it
                finally:
                    self._lock.release()
        if self._queue or not request.future.done():
            self._rouse()
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Leave to the thread what nobody waits for."""
        if self._untidy or (self._unsynced_by is not None and not self._armed):
            self._rouse()

    def post(self, work: Work[T], failed: Callable[[BaseException], None]) -> None:
        """Run `work` in the next group, on the thread, and wait for nothing."""
        if self._closing:
            raise closed()
        with self._counting:
            self._posted += 1
        self._queue.append(Posted(work, failed))
        if self._closing:
            self._turn_away()
        if not self._noted:
            self._noted = True
            self._tokens.put(None)

    def _rouse(self) -> None:
        """Wake the thread, once: a second call before it has woken changes nothing."""
        self._armed = True
        if not self._roused:
            self._roused = True
            self._tokens.put(None)

    def close(self) -> None:
        """Finish what is queued, sync, and stop the thread. Blocks."""
        self._closing = True
        self._rouse()
        self._thread.join()
        if self._sync_failure is not None:
            raise not_synced(self._sync_failure)

    async def catch_up(self) -> None:
        """Return once everything posted so far is written: whoever posted it may read it."""
        if self._posted != self._settled:
            await self.submit(lambda _: None, durable=False)

    async def flush(self) -> None:
        """Return once everything queued so far is on disk."""
        await self.submit(lambda _: None, durable=False)
        await to_thread.run_sync(self._flushed)

    def _flushed(self) -> None:
        with self._lock:
            if self._unsynced_by is not None:
                try:
                    self._sync()
                except OSError as why:
                    raise not_synced(why) from None
                self._unsynced_by = self._sync_failure = None

    def _main(self) -> None:
        over = False
        while not over:
            self._rest()
            with self._lock:
                waiting = self._run_queued(wait=True)
                self._catch_up()
                # Decided under the lock: outside it a loop may hold a group that it is going to put back.
                over = self._closing and not self._queue
            # Outside the lock: waking a loop lets go of the interpreter, and getting it back can take long. A loop
            # that finds the lock taken meanwhile leaves its next group to this thread too, and so on.
            self._settle(waiting)
            late = self._tidy_at is not None and time.monotonic() >= self._tidy_at
            if self._untidy or late:
                with self._lock:
                    again = self._tidy()
                    self._untidy = False
                self._tidy_at = None if again is None else time.monotonic() + again

    def _rest(self) -> None:
        """Sleep until there is something to do."""
        if self._closing:
            return
        timeout = SYNC_AFTER if self._armed else None
        if self._tidy_at is not None:
            left = max(self._tidy_at - time.monotonic(), 0)
            timeout = left if timeout is None else min(left, timeout)
        self._wait(timeout)
        if self._noted and not self._roused and not self._closing:
            # Nobody waits for what was posted: more may come. Somebody who does wait ends this at once.
            self._wait(RIDE)
        self._noted = self._roused = False

    def _wait(self, timeout: float | None) -> None:
        with suppress(Empty):
            self._tokens.get(timeout=timeout)

    def _catch_up(self) -> None:
        """Sync what was written without, once it is due. Holds the lock."""
        due = self._unsynced_by
        if due is not None and (self._closing or time.monotonic() >= due):
            try:
                self._sync()
                self._unsynced_by = self._sync_failure = None
            except OSError as why:
                # Tried again in a moment; a durable append meets the same disk and says so.
                self._sync_failure = why
        self._armed = self._unsynced_by is not None

    def _turn_away(self) -> None:
        """Refuse whatever was queued too late."""
        with self._lock:
            late = list(self._queue)
            self._queue.clear()
        _fail(late, closed())
        self._settle(self._report(late))

    def _run_queued(self, *, wait: bool) -> list[Awaited[T]]:
        """Commit everything queued, and return those who wait, for `_settle`. Holds the lock."""
        group: list[Posted[T] | Awaited[T]] = []
        while self._queue:
            request = self._queue.popleft()
            if isinstance(request, Posted) or not request.future.cancelled():
                group.append(request)
        if not group:
            return []
        try:
            self._run(group, wait=wait)
        except Busy:
            self._queue.extendleft(reversed(group))
            raise
        return self._report(group)

    def _run(self, group: Sequence[Request[T]], *, wait: bool) -> None:
        """Commit the group; each request then has its outcome or its failure. Holds the lock."""
        waiting = len(group) if len(group) < 2 else sum(type(one) is not Posted for one in group)
        self._company = COMPANY if waiting > 1 else max(0, self._company - 1)
        try:
            committed = self._commit(group, wait)
        except Busy:
            raise
        except HoldfastError as failure:
            _fail(group, failure)
        except Exception as failure:  # noqa: BLE001 - the group must hear of it, or it would wait for ever
            _fail(
                group, JournalError("JOURNAL_IO", f"The journal could not be written: {failure!r}.")
            )
        else:
            if committed.wrote:
                self._note_unsynced(not (group[0].durable or any(r.durable for r in group)))
            self._untidy = self._untidy or committed.untidy
            self._pace += (committed.took - self._pace) / 8

    def _report(self, group: Sequence[Posted[T] | Awaited[T]]) -> list[Awaited[T]]:
        """Tell those who posted of failures, under the lock: who flushes hears of them first. Return who waits."""
        if not group:
            return []
        waiting = [request for request in group if not isinstance(request, Posted)]
        if len(waiting) < len(group):
            for request in group:
                if isinstance(request, Posted) and request.failure is not None:
                    report(request.failed, request.failure)
            with self._counting:
                self._settled += len(group) - len(waiting)
        return waiting

    def _settle(self, waiting: list[Awaited[T]], here: Loop | None = None) -> None:
        """Wake every waiter, with one call into each event loop but `here`, the one we run on."""
        others: dict[Loop, list[Awaited[T]]] = {}
        for request in waiting:
            if request.loop is here:
                request.settle()
            else:
                others.setdefault(request.loop, []).append(request)
        for loop, requests in others.items():
            call_into(loop, _settle_all, requests)

    def _note_unsynced(self, unsynced: bool) -> None:
        """Remember until when it must be synced: that counts from the first, however many follow."""
        if not unsynced:
            self._unsynced_by = self._sync_failure = None
        elif self._unsynced_by is None:
            self._unsynced_by = time.monotonic() + SYNC_AFTER


def _fail(group: Sequence[Request[T]], failure: BaseException) -> None:
    for request in group:
        request.failure = failure


def _settle_all(requests: list[Awaited[T]]) -> None:
    for request in requests:
        request.settle()
