"""One live session in this process: a box, the pen of its stream, and what it may call.

The journal holds all it takes to make the box again: the last saved state and, after it, the code, the inputs and
the answers of every run. So a box may be thrown away at any time, and saving its state after every run is not
necessary: it is saved when replaying what is not in it would cost more than `DEBT_MS`, and when the session is closed.

How one run goes is in `running.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Protocol

import anyio

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    Language,
    RunRequest,
    RunResult,
    SessionLimits,
    Setup,
    canonical_json,
)
from holdfast.contracts.payload import (
    GrantRevoked,
    SessionCreated,
    SessionDestroyed,
    SessionOpened,
    SessionState,
)
from holdfast.contracts.record import MAX_PAYLOAD_BYTES
from holdfast.errors import CallerError, Conflict, HoldfastError, LeaseHeld
from holdfast.gate.budgets import Ledger, Purse
from holdfast.gate.executor import Toolbox
from holdfast.gate.past import pasts_of
from holdfast.gate.policy import Policy
from holdfast.journal.pen import Pen
from holdfast.shell.box import ANYTHING, Box, Boxes, Call
from holdfast.shell.definitions import Definitions
from holdfast.shell.discovery import discovery
from holdfast.shell.drive import CancelMode
from holdfast.shell.parking import withdraw
from holdfast.shell.refusals import busy, not_found, other_limits, run_open
from holdfast.shell.replay import restore
from holdfast.shell.running import Runner
from holdfast.shell.services import Services, outside_of, run_limits, setup_of
from holdfast.shell.snapshot import Snapshot, pack
from holdfast.shell.story import interrupted

COMPACT_OVER = 64 << 10
"""Bytes from which on a saved state is worth compacting: the engine keeps all code it ever got."""


COLD = 300.0
"""Seconds after which the worker of an idle session is given back."""

IDLE = 0.1
"""Seconds after which a worker is looked at before it is used again."""


class Holder(Protocol):
    """Who has a session for longer than one run: an agent."""

    def cancel(self, mode: CancelMode, run_id: str | None, reason: str | None) -> bool:
        """Stop, if it is this run's holder that is meant."""
        ...

    def nudge(self) -> None:
        """Something was said to the session."""
        ...


class Session:
    """A session as this process holds it. `Shell` makes one for each id it meets."""

    def __init__(self, id_: str, services: Services, language: Language) -> None:
        self.id = id_
        self.used = monotonic()
        self.busy = False
        self.coming: anyio.CancelScope | None = None
        """Ends a run that has its turn and has not begun: its box and its surfaces are being made ready. Code that
        can call nobody takes it over when it begins: one scope less to open for every run."""
        self.services = services
        self.language = language
        self.pen = Pen(services.journal, id_, services.owner)
        self.limits: SessionLimits | None = None
        """The session's own; `None` while it is not on record."""
        self.setup = services.setup
        self._remembered = services.setup
        self.toolbox: Toolbox = services.tools(services.setup)
        self.policy: Policy = services.policy.within(services.setup.rules)
        self.box: Box | None = None
        self._names: set[str] = set()
        self._unread: list[str] = []
        self.definitions = Definitions(self.boxes, {})
        """What its code defined."""
        self.debt_ms = 0.0
        self.debt_runs = 0
        self.warning: Diagnostic | None = None
        self.open_run: str | None = None
        """A run that waits, or that died with its process after it had called out."""
        self.open_agent: str | None = None
        """An agent's run that waits, or that died with its process."""
        self.more: tuple[object, ...] = ()
        """Capabilities that whoever holds the session brought along."""
        self.holder: Holder | None = None
        """Who holds it."""
        self.shared: tuple[Purse, ...] = ()
        """Budgets of whoever holds it, which its runs use up, too."""
        self._purse: Purse | None = None
        self.runner = Runner(self)
        self._turn = anyio.Lock()
        self._state: str | None = None
        self._size = 0
        self._named: tuple[SessionLimits, Toolbox, Mapping[str, Call]] | None = None
        self._epoch = -1
        self._told: object = None

    @property
    def names(self) -> set[str]:
        """The variables and functions its code may have defined."""
        unread, self._unread = self._unread, []
        for code in unread:
            self._names |= self.boxes.binds(code)
        return self._names

    @names.setter
    def names(self, names: set[str]) -> None:
        self._names, self._unread = names, []

    def reads(self, code: str, inputs: Iterable[str] = ()) -> None:
        """Take note of code that is about to run; what it defines is found out when somebody asks."""
        self._unread.append(code)
        self._names.update(inputs)

    @property
    def boxes(self) -> Boxes:
        """The engine of its language."""
        return self.services.boxes[self.language]

    @property
    def taken(self) -> bool:
        """Whether somebody uses it, or is next."""
        return self.busy or self._turn.locked()

    # -- operations -----------------------------------------------------------------------------------

    async def run(
        self,
        request: RunRequest,
        *,
        wait_ms: int,
        durable: bool,
        setup: Setup | None = None,
        actor: str | None = None,
        run_id: str | None = None,
    ) -> RunResult:
        """Run code and record it; with `durable`, the record is on disk when this returns."""
        with anyio.CancelScope() as coming:
            async with _Turn(self, wait_ms, coming=coming):
                self._check_free()
                await self.fit(setup)
                return await self.runner.run(request, durable=durable, actor=actor, run_id=run_id)
        return self.runner.stopped(coming)

    async def resume(
        self, run_id: str, *, wait_ms: int, durable: bool, setup: Setup | None = None
    ) -> RunResult:
        """Go on with a run that stands; one that still waits is left as it is."""
        async with _Turn(self, wait_ms, resumes=run_id):
            await self.fit(setup)
            return await self.runner.resume(run_id, durable=durable)

    @asynccontextmanager
    async def hold(
        self,
        holder: Holder,
        *,
        wait_ms: int,
        setup: Setup | None = None,
        more: tuple[object, ...] = (),
        resumes: str | None = None,
    ) -> AsyncGenerator[None]:
        """Have the session for as long as this is open, to run code in it, and to write its story.

        `more` are capabilities of the holder's own; `resumes` is the run it goes on with, if it does.
        """
        async with _Turn(self, wait_ms, resumes=resumes):
            if resumes is None or self.open_agent != resumes:
                self._check_free()
            self.holder = holder
            try:
                await self.fit(setup, more)
                yield
            finally:
                self.holder, self.shared, self._purse = None, (), None
                await self._let_go()

    async def _let_go(self) -> None:
        """What stands may be taken up by any process; that need not wait for us."""
        if self.open_agent is not None:
            await self.drop()
            if self.pen.held:
                await self.pen.release()

    async def withdraw(self, run_id: str) -> None:
        """Whoever was asked on behalf of a run need not answer; a run of code that stands in it is cancelled."""
        if self.open_run is not None:
            await self.runner.abandon(self.open_run, None)
            self.open_run = None
        await withdraw(self, run_id)

    def created(self) -> list[Draft]:
        """That the session exists, unless that is on record."""
        if self.limits is not None:
            return []
        self.limits = self.defaults()
        said = SessionCreated(
            language=self.language,
            limits=self.limits,
            engine=self.boxes.engine,
            setup=self.setup if self.setup.model_fields_set else None,
        )
        return [Draft.of(said)]

    async def purses(self) -> tuple[Purse, ...]:
        """The budgets that what runs here uses up."""
        budget = self.setup.budget
        if budget is None:
            return self.shared
        if self.holder is None or self._purse is None or self._purse.budget != budget:
            ledger = Ledger.of(await self.services.journal.row("budgets", self.id))
            self._purse = Purse(budget, ledger)
        # Whoever holds the session and the code it runs there use up one and the same.
        return (self._purse, *self.shared)

    def _check_free(self) -> None:
        standing = self.open_run or self.open_agent
        if standing is not None:
            raise run_open(self.id, standing)

    async def abandon(self, run_id: str, *, wait_ms: int, reason: str | None) -> None:
        """Cancel a run that stands."""
        async with _Turn(self, wait_ms):
            if run_id in (self.open_run, self.open_agent) and self.open_run is not None:
                await self.runner.abandon(self.open_run, reason)
                self.open_run = None
            if run_id == self.open_agent:
                await self.runner.abandon(run_id, reason)
                self.open_agent = None

    async def record(self, drafts: list[Draft], *, wait_ms: int) -> None:
        """Append to its stream while nothing runs in it."""
        async with _Turn(self, wait_ms):
            await self.pen.append(drafts, durable=True)

    def cancel(
        self, mode: CancelMode, run_id: str | None = None, reason: str | None = None
    ) -> bool:
        """Stop what runs here now; False when nothing does."""
        if self.holder is not None and self.holder.cancel(mode, run_id, reason):
            return True
        if self.runner.cancel(mode, run_id, reason):
            return True
        if self.coming is None or run_id is not None:
            return False
        self.coming.cancel()
        return True

    async def destroy(self, *, wait_ms: int, reason: str = "asked") -> None:
        """End the session: nothing runs in it any more, and its bodies may be erased."""
        async with _Turn(self, wait_ms):
            if self.limits is None:
                raise not_found(self.id)
            for standing in (self.open_run, self.open_agent):
                if standing is not None:
                    await self.runner.abandon(standing, reason)
            # A session that is made under this name later is another one: it has no consent.
            drafts = [
                Draft.of(GrantRevoked(id=grant.id, reason="session_destroyed"))
                for grant in await self.services.approvals.grants(self.id)
            ]
            drafts.append(Draft.of(SessionDestroyed(reason=reason)))
            await self.pen.append(drafts, durable=True)
            self.limits, self.open_run, self.open_agent = None, None, None
            await self.drop()
        await self.close()

    async def snapshot(self, *, wait_ms: int) -> Snapshot:
        """What is in the session, as it would leave it."""
        async with _Turn(self, wait_ms):
            if self.limits is None:
                raise not_found(self.id)
            await self.fit(None)
            box = await self.ready(self.limits_of(RunRequest()))
            state = await box.dump()
            return Snapshot(
                self.id,
                self.boxes.engine,
                state,
                limits=box.limits.model_dump(mode="json"),
                names=tuple(sorted(self.names)),
                sources=self.definitions.told(),
                capabilities={one.name: one.digest for one in self.toolbox.all()},
                pending={"run_id": self.open_run} if self.open_run else None,
            )

    async def put(
        self,
        snapshot: Snapshot | None,
        *,
        reason: str,
        origin: str | None = None,
        setup: Setup | None = None,
        wait_ms: int,
    ) -> None:
        """Replace what is in the session, or make it with this in it; `None` empties it."""
        async with _Turn(self, wait_ms):
            self._check_free()
            if setup is not None:
                self.services.tools(setup)  # what can't be opened is refused before it is recorded
            limits = self._limits_for(snapshot, setup)
            drafts: list[Draft] = []
            if self.limits is None:
                created = SessionCreated(
                    language=self.language,
                    limits=limits,
                    engine=self.boxes.engine,
                    setup=setup,
                )
                drafts.append(Draft.of(created))
            elif setup is not None and setup != self._remembered:
                drafts.append(Draft.of(SessionOpened(setup=setup)))
            await self.drop()
            inside = limits
            if snapshot is None:
                self.box = await self.boxes.open(limits)
                snapshot = Snapshot(self.id, self.boxes.engine, await self.box.dump(), sources={})
            else:
                if snapshot.limits is not None:
                    inside = SessionLimits.model_validate(snapshot.limits)
                self.box = await self.boxes.open(inside, snapshot.state)
            self.names = set(snapshot.names)
            self.definitions = Definitions(self.boxes, snapshot.sources)
            self._size = len(snapshot.state)
            drafts.append(self._saved(snapshot.state, inside, reason=reason, origin=origin))
            await self.pen.append(drafts, durable=True)
            self.limits = limits
            self.debt_ms, self.debt_runs, self._state = 0.0, 0, None
            if setup is not None:
                self._use(setup)
                self._remembered = setup

    def _limits_for(self, snapshot: Snapshot | None, setup: Setup | None) -> SessionLimits:
        """The session's limits once this is in it: two of them are built into an engine's state."""
        limits = self.limits or self.defaults(setup)
        if snapshot is None or snapshot.limits is None:
            return limits
        inside = SessionLimits.model_validate(snapshot.limits)
        fitting = limits.model_copy(
            update={"memory_mb": inside.memory_mb, "max_stack_depth": inside.max_stack_depth}
        )
        said = (setup or self._remembered).limits or self.limits
        if said is not None and not _same_built_in(said, inside):
            raise other_limits(self.id, inside)
        return fitting

    async def close(self) -> None:
        """Save what would have to be replayed, and give box and lease back; raises what could not be recorded."""
        async with self._turn:
            failure: BaseException | None = None
            try:
                self.pen.raise_failure()
            except Exception as why:  # noqa: BLE001 - raised below, once everything is given back
                failure = why
            if self.box is not None and self.debt_runs and failure is None:
                try:
                    # It may turn out that the box is out of date; then it is dropped.
                    await self._take(monotonic())
                    await self.save()
                except Conflict:
                    pass  # somebody else has the session by now; the journal has our runs
            await self.drop()
            await self.pen.release()
            if failure is not None:
                raise failure

    def due(self, *, idle_after: float) -> bool:
        """Whether there is anything to keep."""
        if self.busy:
            return self.holder is None
        idle = monotonic() - self.used
        return bool(self._unread) or idle > COLD or (self.pen.held and idle > idle_after)

    async def keep(self, *, idle_after: float) -> None:
        """Called now and then: hear of a wish to cancel while a run is under way, give the lease back when idle."""
        if self.busy:
            if self.holder is None:
                await self.runner.look_for_cancel()
        elif self._unread and not self._turn.locked():
            _ = self.names  # now that nobody waits for it
        elif self.pen.held and monotonic() - self.used > idle_after and not self._turn.locked():
            async with self._turn:
                await self.pen.release()

    # -- what it may call -----------------------------------------------------------------------------

    def defaults(self, setup: Setup | None = None) -> SessionLimits:
        """The limits of a session that is opened like this."""
        setup = setup or self.setup
        return setup.limits or self.services.limits

    async def fit(self, setup: Setup | None, more: tuple[object, ...] = ()) -> None:
        """Open it with `setup`, or with what it remembers; another one goes on record.

        Only here: what it remembers may be gone by now, and a session can be ended, or opened otherwise, all the same.
        """
        wanted = self._remembered if setup is None else setup
        surfaces = self.services.surfaces
        if surfaces is not None:
            await surfaces.boundary(wanted)
        moved = surfaces is not None and surfaces.epoch != self._epoch
        if wanted is self.setup and wanted is self._remembered and more == self.more and not moved:
            return
        if wanted != self.setup or more != self.more or moved:
            self.more = more
            self._use(wanted)
        if wanted != self._remembered and self.limits is not None:
            await self.pen.append([Draft.of(SessionOpened(setup=wanted))])
        self._remembered = wanted

    async def boundary(self, turn: int) -> list[str]:
        """Between two questions of a model: take what it may call by now, and give what it has to be told of that."""
        surfaces = self.services.surfaces
        if surfaces is None:
            return []
        await surfaces.boundary(self.setup, wait=False)
        if surfaces.epoch != self._epoch:
            self._use(self.setup)
        self._told, words = surfaces.news(self.setup, self._told, self.toolbox.all(), turn)
        return words

    def _use(self, setup: Setup) -> None:
        if self.services.surfaces is not None:
            self._epoch = self.services.surfaces.epoch
        self.toolbox = self.services.tools(setup, self.more)
        self.policy = self.services.policy.within(setup.rules)
        self.setup = setup
        self._named = None

    def discovery(self, limits: SessionLimits) -> Mapping[str, Call]:
        """What the code can ask about its box; made again only when what it tells changes."""
        if self._named is None or self._named[0] != limits or self._named[1] is not self.toolbox:
            found = discovery(self.toolbox, self.policy, limits)
            self._named = (limits, self.toolbox, found)
        return self._named[2]

    def outside(self) -> dict[str, bool]:
        """What the code can call, and whether it awaits it."""
        return outside_of(self.toolbox)

    def meant(self, code: str) -> frozenset[str]:
        """Awaited capabilities that can only be meant by their names, as no code has bound one of these."""
        if "await" not in code or ANYTHING in self.names:
            return frozenset()
        bound = self.names
        return frozenset(
            one.name for one in self.toolbox.all() if one.asynchronous and one.name not in bound
        )

    # -- the turn -------------------------------------------------------------------------------------

    async def enter(
        self,
        wait_ms: int,
        resumes: str | None = None,
        coming: anyio.CancelScope | None = None,
    ) -> None:
        """Wait for our turn in this process, and for the stream's lease among processes."""
        deadline = monotonic() + wait_ms / 1000
        if self._turn.locked():
            with anyio.move_on_after(wait_ms / 1000) as scope:
                await self._turn.acquire()
            if scope.cancelled_caught:
                raise busy(self.id)
        else:
            self._turn.acquire_nowait()
        self.busy, self.coming = True, coming
        try:
            await self._take(deadline, resumes)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Let the next one in."""
        self.busy, self.coming = False, None
        self.used = monotonic()
        self._turn.release()

    async def _take(self, deadline: float, resumes: str | None = None) -> None:
        try:
            moved = await self.pen.take(deadline)
        except LeaseHeld:
            raise busy(self.id) from None
        except BaseException:
            await self.drop()
            raise
        if moved:
            await self.drop()
            await self._look(resumes)

    async def _look(self, resumes: str | None) -> None:
        """Learn how things stand.

        A run that died with its process and had called nobody is recorded as over, unless it is to go on now.
        """
        journal = self.services.journal
        row = await journal.row("sessions", self.id)
        self.limits, self.open_run, self.open_agent = None, None, None
        self._remembered = self.services.setup
        if row is None or row["status"] != "open":
            return
        self.limits = SessionLimits.model_validate(row["limits"])
        self._remembered = setup_of(self.services, row)
        agent = row.get("open_agent")
        self.open_agent = agent if isinstance(agent, str) else None
        run_id = row.get("open_run")
        if isinstance(run_id, str):
            run = await journal.row("runs", run_id) or {}
            self.open_run = run_id
            if run.get("status") == "running" and run_id != resumes and "parent" not in run:
                after = int(str(run.get("start_pos", 1)))
                called = await pasts_of(journal, self.id, run_id, after=after)
                if not called.calls:
                    await self.pen.append([interrupted(run_id)])
                    self.open_run = None

    # -- the box --------------------------------------------------------------------------------------

    async def ready(self, limits: SessionLimits) -> Box:
        """A box in the session's state that can keep `limits`."""
        box = self.box
        # A worker may have died since it was last used, which is nobody's fault that is about to run.
        idle = monotonic() - self.used > IDLE
        if box is not None and box.fits(limits) and (not idle or box.alive()):
            return box
        await self.drop()
        made = await restore(self.services, self.boxes, session_id=self.id, limits=limits)
        self.box, self.debt_ms, self.debt_runs, self._state, self.warning, self.names = made[:6]
        self.definitions, self._size = made.definitions, made.size
        return made.box

    async def drop(self) -> None:
        """Throw the box away."""
        box, self.box = self.box, None
        if box is not None:
            await box.close()

    async def save(self) -> str | None:
        """Save the state, if it can be saved: one that is too large can't, and is replayed instead."""
        box = self.box
        if box is None:
            return None
        try:
            state = await self._small(box, await box.dump())
            draft = self._saved(state, box.limits)
        except HoldfastError:
            await self.drop()
            return None
        digest = draft.bodies[0].ref.digest
        await self.pen.append([draft])
        await self._supersede(digest)
        return digest

    def _saved(
        self,
        state: bytes,
        limits: SessionLimits,
        *,
        reason: str = "saved",
        origin: str | None = None,
    ) -> Draft:
        names = tuple(sorted(self.names))
        sources = self.definitions.told()
        snapshot = Snapshot(self.id, self.boxes.engine, state, names=names, sources=sources)
        sealed = pack(self.services.key, snapshot)
        body = Body.of(sealed, role="state", mime="application/x-holdfast-state")
        said = SessionState.model_validate(
            {
                "state": body.ref.digest,
                "engine": self.boxes.engine,
                "limits": limits,
                "names": _that_fit(names),
                "reason": reason,
                "origin": origin,
            }
        )
        return Draft.of(said, bodies=(body,))

    async def _small(self, box: Box, state: bytes) -> bytes:
        """The state, or a smaller one with the same in it; then the box is replaced by one that has it.

        Tried when the state has outgrown a power of two: so it is tried seldom, by whatever process saves.
        """
        outgrown = len(state).bit_length() > max(self._size, COMPACT_OVER - 1).bit_length()
        sources = self.definitions.told() if outgrown else None
        if sources is not None:
            names = frozenset(self.names)
            small = await self.boxes.compact(state, box.limits, names=names, sources=sources)
            if small is not None and 2 * len(small) <= len(state):
                self.box = await self.boxes.open(box.limits, small)
                await box.close()
                state = small
        self._size = len(state)
        return state

    async def _supersede(self, digest: str) -> None:
        """States replace each other: keeping each of them would grow without bound."""
        old, self._state = self._state, digest
        self.debt_ms, self.debt_runs = 0.0, 0
        if old is not None and old != digest:
            await self.services.journal.erase(old, reason="superseded")

    def limits_of(self, request: RunRequest) -> SessionLimits:
        """The session's limits, and over them what this run says of its own."""
        limits = self.setup.limits or self.limits or self.services.limits
        return run_limits(request, limits)


class _Turn:
    """A turn in a session: if it goes wrong, box and journal may disagree, and the box is made again."""

    def __init__(
        self,
        session: Session,
        wait_ms: int,
        resumes: str | None = None,
        coming: anyio.CancelScope | None = None,
    ) -> None:
        self._session = session
        self._wait_ms = wait_ms
        self._resumes = resumes
        self._coming = coming

    async def __aenter__(self) -> None:
        await self._session.enter(self._wait_ms, self._resumes, self._coming)

    async def __aexit__(self, kind: type[BaseException] | None, why: object, _: object) -> None:
        session = self._session
        try:
            if kind is not None and not _harmless(why):
                with anyio.CancelScope(shield=True):
                    await session.drop()
                session.pen.lose()
        finally:
            session.leave()


def _that_fit(names: Iterable[str]) -> tuple[str, ...]:
    """The names that a record has room for, short ones first; the state itself has them all."""
    found: list[str] = []
    room = MAX_PAYLOAD_BYTES // 2
    for name in sorted(names, key=len):
        room -= len(canonical_json(name)) + 1
        if room < 0:
            break
        found.append(name)
    return tuple(sorted(found))


def _same_built_in(one: SessionLimits, other: SessionLimits) -> bool:
    return (one.memory_mb, one.max_stack_depth) == (other.memory_mb, other.max_stack_depth)


def _harmless(why: object) -> bool:
    """A refusal before anything was touched."""
    return isinstance(why, CallerError) and why.code in ("RUN_OPEN", "SESSION_NOT_FOUND")
