"""One live session in this process: what can be done with it, and how it stands.

The journal holds all it takes to make it again: the last saved state and, after it, the code, the inputs and the
answers of every run.

Who is in it is in `turn.py`, what is in it in `contents.py`, what its code may call in `opening.py`, and how one run
goes in `running.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Protocol

import anyio

from holdfast.contracts import Draft, Language, RunRequest, RunResult, SessionLimits, Setup
from holdfast.contracts.payload import (
    GrantRevoked,
    SessionCreated,
    SessionDestroyed,
    SessionOpened,
)
from holdfast.errors import Conflict
from holdfast.gate.budgets import Ledger, Purse
from holdfast.gate.executor import Toolbox
from holdfast.gate.policy import Policy
from holdfast.journal.pen import Pen
from holdfast.shell.box import Boxes
from holdfast.shell.contents import Contents
from holdfast.shell.drive import CancelMode
from holdfast.shell.opening import Opening
from holdfast.shell.parking import withdraw
from holdfast.shell.refusals import not_found, other_limits, run_open
from holdfast.shell.running import Runner
from holdfast.shell.services import Services, run_limits
from holdfast.shell.snapshot import Snapshot
from holdfast.shell.turn import Turn, take

COLD = 300.0
"""Seconds after which the worker of an idle session is given back."""


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
        """Ends a run that has its turn and has not begun: its box and its surfaces are being made ready."""
        self.services = services
        self.language = language
        self.lock = anyio.Lock()
        """Whoever has its turn has it."""
        self.pen = Pen(services.journal, id_, services.owner)
        self.contents = Contents(id_, services, services.boxes[language], self.pen)
        """What is in it."""
        self.opening = Opening(services, self.pen)
        """What it is opened with, and so what it may call."""
        self.limits: SessionLimits | None = None
        """The session's own; `None` while it is not on record."""
        self.open_run: str | None = None
        """A run that waits, or that died with its process after it had called out."""
        self.open_agent: str | None = None
        """An agent's run that waits, or that died with its process."""
        self.holder: Holder | None = None
        """Who holds it."""
        self.shared: tuple[Purse, ...] = ()
        """Budgets of whoever holds it, which its runs use up, too."""
        self._purse: Purse | None = None
        self.runner = Runner(self)

    @property
    def boxes(self) -> Boxes:
        """The engine of its language."""
        return self.contents.boxes

    @property
    def toolbox(self) -> Toolbox:
        """What its code may call."""
        return self.opening.toolbox

    @property
    def policy(self) -> Policy:
        """What is decided about that."""
        return self.opening.policy

    @property
    def taken(self) -> bool:
        """Whether somebody uses it, or is next."""
        return self.busy or self.lock.locked()

    @property
    def overdue(self) -> bool:
        """Whether it was not used here for longer than it was opened for; perhaps it was elsewhere."""
        ttl = self.opening.remembered.ttl_ms
        return ttl is not None and (monotonic() - self.used) * 1000 > ttl

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
        if self._waits_for_nothing(request, setup):
            async with Turn(self, wait_ms):
                self._check_free()
                return await self.runner.run(request, durable=durable, actor=actor, run_id=run_id)
        with anyio.CancelScope() as coming:
            async with Turn(self, wait_ms, coming=coming):
                self._check_free()
                await self.opening.fit(setup, on_record=self.limits is not None)
                return await self.runner.run(request, durable=durable, actor=actor, run_id=run_id)
        return self.runner.stopped()

    def _waits_for_nothing(self, request: RunRequest, setup: Setup | None) -> bool:
        """Whether a run can begin here and now: then nobody can want it stopped before that."""
        if self.lock.locked() or not self.pen.fresh or not self.opening.settled(setup):
            return False
        return self.contents.at_hand(self.limits_of(request), used=self.used) is not None

    async def resume(
        self, run_id: str, *, wait_ms: int, durable: bool, setup: Setup | None = None
    ) -> RunResult:
        """Go on with a run that stands; one that still waits is left as it is."""
        async with Turn(self, wait_ms, resumes=run_id):
            await self.opening.fit(setup, on_record=self.limits is not None)
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
        async with Turn(self, wait_ms, resumes=resumes):
            if resumes is None or self.open_agent != resumes:
                self._check_free()
            self.holder = holder
            try:
                await self.opening.fit(setup, more, on_record=self.limits is not None)
                yield
            finally:
                self.holder, self.shared, self._purse = None, (), None
                await self._let_go()

    async def _let_go(self) -> None:
        """What stands may be taken up by any process; that need not wait for us."""
        if self.open_agent is not None:
            await self.contents.drop()
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
        self.limits = self.opening.defaults()
        setup = self.opening.setup
        said = SessionCreated(
            language=self.language,
            limits=self.limits,
            engine=self.boxes.engine,
            setup=setup if setup.model_fields_set else None,
        )
        return [Draft.of(said)]

    async def purses(self) -> tuple[Purse, ...]:
        """The budgets that what runs here uses up."""
        budget = self.opening.setup.budget
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
        async with Turn(self, wait_ms):
            if run_id in (self.open_run, self.open_agent) and self.open_run is not None:
                await self.runner.abandon(self.open_run, reason)
                self.open_run = None
            if run_id == self.open_agent:
                await self.runner.abandon(run_id, reason)
                self.open_agent = None

    async def record(self, drafts: list[Draft], *, wait_ms: int) -> None:
        """Append to its stream while nothing runs in it."""
        async with Turn(self, wait_ms):
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
        async with Turn(self, wait_ms):
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
            await self.contents.drop()
        await self.close()

    async def snapshot(self, *, wait_ms: int) -> Snapshot:
        """What is in the session, as it would leave it."""
        async with Turn(self, wait_ms):
            if self.limits is None:
                raise not_found(self.id)
            await self.opening.fit(None, on_record=True)
            return await self.contents.snapshot(
                self.limits_of(RunRequest()),
                used=self.used,
                capabilities={one.name: one.digest for one in self.toolbox.all()},
                pending={"run_id": self.open_run} if self.open_run else None,
            )

    async def open(self, setup: Setup, *, wait_ms: int) -> None:
        """Open the session with another setup, and remember it."""
        async with Turn(self, wait_ms):
            self._check_free()
            await self.opening.fit(setup, on_record=self.limits is not None)

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
        async with Turn(self, wait_ms):
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
            elif setup is not None and setup != self.opening.remembered:
                drafts.append(Draft.of(SessionOpened(setup=setup)))
            drafts.append(
                await self.contents.replace(snapshot, limits, reason=reason, origin=origin)
            )
            await self.pen.append(drafts, durable=True)
            self.limits = limits
            if setup is not None:
                self.opening.use(setup)
                self.opening.remembered = setup

    def _limits_for(self, snapshot: Snapshot | None, setup: Setup | None) -> SessionLimits:
        """The session's limits once this is in it: two of them are built into an engine's state."""
        limits = self.limits or self.opening.defaults(setup)
        if snapshot is None or snapshot.limits is None:
            return limits
        inside = SessionLimits.model_validate(snapshot.limits)
        fitting = limits.model_copy(
            update={"memory_mb": inside.memory_mb, "max_stack_depth": inside.max_stack_depth}
        )
        said = (setup or self.opening.remembered).limits or self.limits
        if said is not None and not _same_built_in(said, inside):
            raise other_limits(self.id, inside)
        return fitting

    async def close(self) -> None:
        """Save what would have to be replayed, and give box and lease back; raises what could not be recorded."""
        async with self.lock:
            failure: BaseException | None = None
            try:
                self.pen.raise_failure()
            except Exception as why:  # noqa: BLE001 - raised below, once everything is given back
                failure = why
            contents = self.contents
            if contents.box is not None and contents.debt_runs and failure is None:
                try:
                    # It may turn out that the box is out of date; then it is dropped.
                    await take(self, monotonic())
                    await contents.save()
                except Conflict:
                    pass  # somebody else has the session by now; the journal has our runs
            await self.contents.drop()
            await self.pen.release()
            if failure is not None:
                raise failure

    def due(self, *, idle_after: float) -> bool:
        """Whether there is anything to keep."""
        if self.busy:
            return self.holder is None
        idle = monotonic() - self.used
        return self.contents.unread or idle > COLD or (self.pen.held and idle > idle_after)

    async def keep(self, *, idle_after: float) -> None:
        """Called now and then: hear of a wish to cancel while a run is under way, give the lease back when idle."""
        if self.busy:
            if self.holder is None:
                await self.runner.look_for_cancel()
        elif self.contents.unread and not self.lock.locked():
            _ = self.contents.names  # now that nobody waits for it
        elif self.pen.held and monotonic() - self.used > idle_after and not self.lock.locked():
            async with self.lock:
                await self.pen.release()

    # -- what it may call -----------------------------------------------------------------------------

    def boundary(self, turn: int) -> Awaitable[list[str]]:
        """Between two questions of a model: take what it may call by now, and give what it has to be told of that."""
        return self.opening.boundary(turn)

    def limits_of(self, request: RunRequest) -> SessionLimits:
        """The session's limits, and over them what this run says of its own."""
        limits = self.opening.setup.limits or self.limits or self.services.limits
        return run_limits(request, limits)


def _same_built_in(one: SessionLimits, other: SessionLimits) -> bool:
    return (one.memory_mb, one.max_stack_depth) == (other.memory_mb, other.max_stack_depth)
