"""One live session in this process: a box, the lease on its stream, and where the stream stands.

The journal holds all it takes to make the box again: the last saved state and, after it, the code and inputs of
every run. So a box may be thrown away at any time, and saving its state after every run is not necessary: the
state is saved when replaying what is not in it would cost more than `DEBT_MS`, and when the session is closed.

A run of code that touched nothing outside needs no sync, and no waiting: its records are handed to the journal
before the caller gets the answer, and are written a moment later. They keep their order, so whatever is on record
after them proves them too; a process that is killed in that very moment loses a computation, never an effect.
Whoever wants to wait for the disk says `durable`. A run that takes longer than `LATE` has its start handed in while
it computes, so that it leaves a trace if the machine dies with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic

import anyio

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    RunRequest,
    RunResult,
    SessionLimits,
)
from holdfast.contracts.payload import SessionDestroyed, SessionState
from holdfast.errors import CallerError, Conflict, HoldfastError, LeaseHeld
from holdfast.journal import Journal, Lease
from holdfast.shell.box import Box, Boxes, Call, Ran
from holdfast.shell.discovery import discovery
from holdfast.shell.refusals import busy, not_found
from holdfast.shell.replay import restore, unfinished
from holdfast.shell.snapshot import Snapshot, pack
from holdfast.shell.story import Story, failed, interrupted, result_of

LEASE_MS = 3000
"""How long a lease lasts unless it is renewed; what a dead process can hold a session up."""

DEBT_MS = 100
DEBT_RUNS = 512
"""The state is saved once this much, or this many runs, would have to be replayed."""

LOST = -1
"""The position of a stream we no longer know: look before the next run."""

LATE = 0.001
"""Seconds after which the start of a run is handed in without waiting for its end."""

_POLL = 0.02
_MARGIN = LEASE_MS / 2000


class Session:
    """A session as this process holds it. `Shell` makes one for each id it meets."""

    def __init__(
        self,
        id_: str,
        journal: Journal,
        boxes: Boxes,
        key: bytes,
        *,
        owner: str,
        defaults: SessionLimits,
    ) -> None:
        self.id = id_
        self.used = monotonic()
        self.busy = False
        self._journal = journal
        self._boxes = boxes
        self._key = key
        self._owner = owner
        self._defaults = defaults
        self._turn = anyio.Lock()
        self._lease: Lease | None = None
        self._fresh_until = 0.0
        self._pos = LOST
        self._limits: SessionLimits | None = None
        self._box: Box | None = None
        self._debt_ms = 0.0
        self._debt_runs = 0
        self._state: str | None = None
        self._warning: Diagnostic | None = None
        self._failure: BaseException | None = None
        self._named: tuple[SessionLimits, Mapping[str, Call]] | None = None

    # -- operations -----------------------------------------------------------------------------------

    async def run(self, request: RunRequest, *, wait_ms: int, durable: bool) -> RunResult:
        """Run code and record it; with `durable`, the record is on disk when this returns."""
        await self._enter(wait_ms)
        try:
            return await self._run(request, durable=durable)
        except BaseException:
            # Whatever went wrong, box and journal may disagree now: make the box again next time.
            with anyio.CancelScope(shield=True):
                await self._drop()
            self._pos = LOST
            raise
        finally:
            self._leave()

    async def destroy(self, *, wait_ms: int) -> None:
        """End the session: nothing runs in it any more, and its bodies may be erased."""
        await self._enter(wait_ms)
        try:
            if self._limits is None:
                raise not_found(self.id)
            await self._append([Draft.of(SessionDestroyed(reason="asked"))], durable=True)
            self._limits = None
            await self._drop()
        finally:
            self._leave()
        await self.close()

    async def close(self) -> None:
        """Save what would have to be replayed, and give box and lease back; raises what could not be recorded."""
        async with self._turn:
            failure, self._failure = self._failure, None
            if self._box is not None and self._debt_runs and failure is None:
                try:
                    await self._take(
                        monotonic()
                    )  # may find that the box is out of date, and drop it
                    await self._save()
                except Conflict:
                    pass  # somebody else has the session by now; the journal has our runs
            await self._drop()
            await self._let_go()
            if failure is not None:
                raise failure

    async def keep(self, *, idle_after: float) -> None:
        """Called now and then: renew the lease while a run is under way, give it back when idle."""
        lease = self._lease
        if lease is None:
            return
        if self.busy:
            try:
                fresh_until = monotonic() + LEASE_MS / 1000
                await self._journal.renew(lease, ttl_ms=LEASE_MS)
                self._fresh_until = fresh_until
            except Conflict:
                self._lease = None  # the run can't be recorded any more and will be told so
        elif monotonic() - self.used > idle_after and not self._turn.locked():
            async with self._turn:
                await self._let_go()

    # -- one run --------------------------------------------------------------------------------------

    async def _run(self, request: RunRequest, *, durable: bool) -> RunResult:
        limits = self._limits_of(request)
        try:
            box = await self._ready(limits)
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)
        story: Story | None = None
        late: asyncio.TimerHandle | None = None

        async def meanwhile() -> None:
            nonlocal story, late
            story = self._story(request, limits)
            late = asyncio.get_running_loop().call_later(LATE, self._tell, story)

        try:
            ran = await box.run(
                request.code,
                inputs=request.inputs,
                limits=limits,
                names=self._names(limits),
                meanwhile=meanwhile,
            )
        except anyio.get_cancelled_exc_class():
            if story is not None:
                with anyio.CancelScope(shield=True):
                    await self._append(story.cancelled())
            raise
        except CallerError as refusal:
            if story is not None or refusal.status is None:
                raise
            return failed(refusal)  # a bad request: nothing ran, nothing is recorded
        finally:
            if late is not None:
                late.cancel()
        story = story or self._story(request, limits)
        return await self._ended(story, ran, save=request.return_snapshot, durable=durable)

    def _story(self, request: RunRequest, limits: SessionLimits) -> Story:
        return Story(
            request,
            limits,
            session_limits=self._limits or self._defaults,
            creates=self._limits is None,
            engine=self._boxes.engine,
        )

    def _names(self, limits: SessionLimits) -> Mapping[str, Call]:
        """What the code can call; made again only when the limits it tells about change."""
        if self._named is None or self._named[0] != limits:
            self._named = (limits, discovery((), limits))
        return self._named[1]

    def _tell(self, story: Story) -> None:
        """Hand in that a run has started. Called by a timer: what goes wrong is told to whoever runs next."""
        drafts = story.start()
        try:
            self._post(len(drafts), lambda: drafts)
            self._limits = self._limits or story.session_limits
        except HoldfastError as failure:
            self._failure = failure

    async def _ended(self, story: Story, ran: Ran, *, save: bool, durable: bool) -> RunResult:
        self._raise_failure()
        self._debt_ms += ran.metrics.duration_ms
        self._debt_runs += 1
        result = result_of(story.run_id, ran, self._warning)
        self._warning = None
        due = save or self._debt_runs >= DEBT_RUNS or self._debt_ms >= DEBT_MS
        if not ran.state_kept:
            await self._drop()
        if durable or (ran.state_kept and due):
            await self._append(story.end(ran, result), durable=durable)
        else:
            self._post(story.pending, lambda: story.end(ran, result))
        self._limits = self._limits or story.session_limits
        if ran.state_kept and due:
            digest = await self._save()
            if save:
                result = result.model_copy(update={"snapshot_id": digest})
        return result

    # -- the lease ------------------------------------------------------------------------------------

    async def _enter(self, wait_ms: int) -> None:
        """Wait for our turn in this process, and for the stream's lease among processes."""
        deadline = monotonic() + wait_ms / 1000
        if self._turn.locked():
            with anyio.move_on_after(wait_ms / 1000) as scope:
                await self._turn.acquire()
            if scope.cancelled_caught:
                raise busy(self.id)
        else:
            self._turn.acquire_nowait()
        self.busy = True
        try:
            await self._take(deadline)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        self.busy = False
        self.used = monotonic()
        self._turn.release()

    async def _take(self, deadline: float) -> None:
        """Make sure that we hold the lease for a while, and know where the stream stands."""
        if self._failure is not None:
            self._pos = LOST
            await self._drop()
            self._raise_failure()
        now = monotonic()
        if self._lease is not None and self._pos != LOST and now < self._fresh_until - _MARGIN:
            return
        self._lease = lease = await self._claim(deadline)
        self._fresh_until = monotonic() + LEASE_MS / 1000 - (monotonic() - now)
        if lease.pos != self._pos:
            await self._drop()
            await self._look(lease)

    async def _claim(self, deadline: float) -> Lease:
        while True:
            try:
                return await self._journal.claim(self.id, self._owner, ttl_ms=LEASE_MS)
            except LeaseHeld:
                if monotonic() >= deadline:
                    raise busy(self.id) from None
                await anyio.sleep(_POLL)

    async def _look(self, lease: Lease) -> None:
        """Learn where the stream stands; a run nobody ended died with its process, and is recorded so."""
        self._pos = lease.pos
        row = await self._journal.row("sessions", self.id)
        self._limits = None
        if row is None or row["status"] != "open":
            return
        self._limits = SessionLimits.model_validate(row["limits"])
        for run_id in await unfinished(self._journal, self.id):
            await self._append([interrupted(run_id)])

    async def _let_go(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await self._journal.release(lease)

    # -- the box --------------------------------------------------------------------------------------

    async def _ready(self, limits: SessionLimits) -> Box:
        """A box in the session's state that can keep `limits`."""
        box = self._box
        if box is not None and box.fits(limits):
            return box
        await self._drop()
        made = await restore(
            self._journal, self._boxes, self._key, session_id=self.id, limits=limits
        )
        self._box, self._debt_ms, self._debt_runs, self._state, self._warning = made
        return made.box

    async def _drop(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def _save(self) -> str | None:
        """Save the state, if it can be saved: a heap near its limit can't, and is replayed instead."""
        box = self._box
        if box is None:
            return None
        try:
            state = await box.dump()
        except HoldfastError:
            await self._drop()
            return None
        sealed = pack(self._key, Snapshot(self.id, self._boxes.engine, state))
        body = Body.of(sealed, role="state", mime="application/x-holdfast-state")
        digest = body.ref.digest
        said = SessionState(state=digest, engine=self._boxes.engine, limits=box.limits)
        await self._append([Draft.of(said, bodies=(body,))])
        await self._supersede(digest)
        return digest

    async def _supersede(self, digest: str) -> None:
        """States replace each other: keeping each of them would grow without bound."""
        old, self._state = self._state, digest
        self._debt_ms, self._debt_runs = 0.0, 0
        if old is not None and old != digest:
            await self._journal.erase(old, reason="superseded")

    # -- records --------------------------------------------------------------------------------------

    def _limits_of(self, request: RunRequest) -> SessionLimits:
        """The session's limits, and over them what this run says of its own."""
        limits = self._limits or self._defaults
        given = request.limits
        own = (
            {} if given is None else {name: getattr(given, name) for name in given.model_fields_set}
        )
        if request.timeout_ms is not None:
            own["wall_ms"] = request.timeout_ms
        return limits.model_copy(update=own) if own else limits

    async def _append(self, drafts: list[Draft], *, durable: bool = False) -> None:
        lease = self._lease
        if lease is None:
            raise busy(self.id)
        done = await self._journal.append(
            self.id, drafts, expected_pos=self._pos, epoch=lease.epoch, durable=durable
        )
        self._pos = done.pos

    def _post(self, count: int, make: Callable[[], list[Draft]]) -> None:
        """Hand `count` records in; whoever runs next hears of a failure."""
        lease = self._lease
        if lease is None:
            raise busy(self.id)
        self._journal.post(
            self.id, make, failed=self._failed, expected_pos=self._pos, epoch=lease.epoch
        )
        self._pos += count

    def _failed(self, failure: BaseException) -> None:
        self._failure = failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
