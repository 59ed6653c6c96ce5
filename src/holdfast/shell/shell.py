"""Code sessions without a model: run, validate, snapshot, restore, fork, reset, diff, destroy, list, show."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Self

import anyio

from holdfast.contracts import (
    Draft,
    Json,
    Language,
    RunRequest,
    RunResult,
    SessionLimits,
    SessionView,
    Setup,
    check_session_id,
    parse,
)
from holdfast.errors import CallerError, Conflict, HoldfastError
from holdfast.gate.executor import Executor
from holdfast.journal import sweep
from holdfast.shell.control import Control
from holdfast.shell.diff import Difference, difference
from holdfast.shell.drive import CancelMode
from holdfast.shell.dryrun import DryRun
from holdfast.shell.plans import planned_setup
from holdfast.shell.refusals import not_found, other_language
from holdfast.shell.replay import as_it_was
from holdfast.shell.requests import (
    UNSAID,
    check_language,
    check_request,
    given_setup,
    only_code,
)
from holdfast.shell.services import Services, setup_of
from holdfast.shell.session import Session
from holdfast.shell.sessions import Sessions, expired
from holdfast.shell.snapshot import Snapshot, check_capabilities, pack, unpack
from holdfast.shell.story import failed
from holdfast.shell.upkeep import Upkeep
from holdfast.shell.validation import recorded_names, validate
from holdfast.shell.warm import Warm


class Shell:
    """Runs code in sessions: `hf.shell` of an open runtime."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._journal = services.journal
        self._boxes = services.boxes
        self._warm = Warm(services)
        self._control = Control(services.journal, self._warm)
        self._known_sessions = Sessions(services.journal, services.approvals.now)

    @classmethod
    @asynccontextmanager
    async def open(cls, services: Services) -> AsyncGenerator[Self]:
        """A shell; leaving saves every session it has touched."""
        shell = cls(services)
        await shell._control.begin()
        keeper = Upkeep(services, shell._warm, shell._control, lambda now: shell.expire(now=now))
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as upkeep:
                upkeep.start_soon(keeper.keep)
                try:
                    yield shell
                except Exception as why:  # noqa: BLE001 - a task group would wrap it; raised below
                    failure = why
                finally:
                    upkeep.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await shell._warm.close()
        if failure is not None:
            raise failure

    async def run(
        self,
        code: str,
        *,
        session: str = "default",
        inputs: Mapping[str, Json] | None = None,
        limits: SessionLimits | Mapping[str, Json] | None = None,
        timeout_ms: int | None = None,
        language: Language | str = Language.PYTHON,
        return_snapshot: bool = False,
        validate_only: bool = False,
        dry_run: bool = False,
        plan: str | None = None,
        setup: Setup | Mapping[str, Json] | None = None,
        actor: str | None = None,
        wait_ms: int = 30_000,
        durable: bool = False,
        run_id: str | None = None,
    ) -> RunResult:
        """Run code in a session, which is created on first use.

        A bad request, like failing code, is a result with `status` and `error`; only what the operator must
        mend is raised. `setup` is what the session is opened with: it remembers it. `plan` is an approved plan the
        run must keep to. `wait_ms` is how long to wait while another run has the session. The run is recorded in
        any case; with `durable` the record is on disk when this returns, else a moment later. `run_id` is the
        run's name, for whoever must know it before: no other run may have had it.
        """
        try:
            said = (inputs, timeout_ms, limits, return_snapshot, validate_only, dry_run, plan)
            request = only_code(session, language, code) if said == UNSAID else None
            if request is None:
                fields = {
                    "session_id": session,
                    "language": language,
                    "code": code,
                    "inputs": dict(inputs or {}),
                    "timeout_ms": timeout_ms,
                    "limits": dict(limits) if isinstance(limits, Mapping) else limits,
                    "return_snapshot": return_snapshot,
                    "validate_only": validate_only,
                    "dry_run": dry_run,
                    "plan_id": plan,
                }
                request = parse(RunRequest, fields)
            return await self.request(
                request,
                wait_ms=wait_ms,
                durable=durable,
                setup=given_setup(setup),
                actor=actor,
                run_id=run_id,
            )
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)

    async def request(
        self,
        request: RunRequest,
        *,
        wait_ms: int = 30_000,
        durable: bool = False,
        setup: Setup | None = None,
        actor: str | None = None,
        run_id: str | None = None,
    ) -> RunResult:
        """The same for a request that came over a wire."""
        check_language(self._boxes, request.language)
        check_request(self.services.gate.redactor, request)
        live = self._warm.get(request.session_id)
        if live is None or live.overdue:
            await self._row(request.session_id)
        if request.validate_only:
            return await self._validate(request, setup)
        if request.dry_run:
            return await DryRun(self.services).run(request, setup, actor=actor)
        if setup is None and request.plan_id is not None:
            setup = await planned_setup(self._journal, request)
        session = await self._warm.roomy(request.session_id, request.language)
        return await session.run(
            request, wait_ms=wait_ms, durable=durable, setup=setup, actor=actor, run_id=run_id
        )

    async def resume(
        self,
        session: str,
        run_id: str,
        *,
        wait_ms: int = 30_000,
        durable: bool = False,
        setup: Setup | Mapping[str, Json] | None = None,
    ) -> RunResult:
        """Go on with a run that stands; one that still waits is left as it is."""
        live = await self._found(session)
        return await live.resume(run_id, wait_ms=wait_ms, durable=durable, setup=given_setup(setup))

    def cancel(
        self,
        session: str,
        *,
        mode: CancelMode = "now",
        run_id: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Stop what runs in this process in a session; False when nothing does."""
        live = self._warm.get(session)
        return live is not None and live.cancel(mode, run_id, reason)

    async def let_go(self) -> None:
        """Give every session back with what runs in it as it is on record, for a host that ends here and now."""
        await self._warm.let_go()

    async def abandon(
        self, session: str, run_id: str, *, wait_ms: int = 30_000, reason: str | None = None
    ) -> None:
        """Cancel a run that stands."""
        live = await self._found(session)
        await live.abandon(run_id, wait_ms=wait_ms, reason=reason)

    async def record(self, session: str, drafts: list[Draft], *, wait_ms: int = 30_000) -> None:
        """Append to a session's stream while nothing runs in it."""
        live = await self._found(session)
        await live.record(drafts, wait_ms=wait_ms)

    async def executor(self, session: str, name: str) -> Executor | None:
        """What a session calls by this name; `None`: this process does not know it."""
        live = self._warm.get(session)  # whoever holds it may have brought more along
        found = None if live is None else live.toolbox.get(name)
        if found is not None:
            return found
        row = await self._journal.row("sessions", session)
        try:
            return (await self.services.toolbox(setup_of(self.services, row))).get(name)
        except HoldfastError:
            return None  # what the session was opened with is gone

    async def list(self, *, after: str = "", limit: int = 100) -> list[SessionView]:
        """Open sessions, by id."""
        return await self._known_sessions.list(after=after, limit=limit)

    async def show(self, session: str) -> SessionView:
        """One session, also a destroyed one."""
        return await self._known_sessions.show(session)

    async def create(
        self,
        session: str,
        *,
        language: Language | str = Language.PYTHON,
        setup: Setup | Mapping[str, Json] | None = None,
        wait_ms: int = 30_000,
    ) -> SessionView:
        """Make an empty session; one that is there already keeps what is in it, and is opened with `setup`."""
        row = await self._row(check_session_id(session))
        wanted, opened = check_language(self._boxes, language), given_setup(setup)
        if row is None or row["status"] != "open":
            live = self._warm.session(session, wanted)
            await live.put(None, reason="reset", setup=opened, wait_ms=wait_ms)
        elif row["language"] != wanted.value:
            raise other_language(session, str(row["language"]))
        elif opened is not None:
            live = self._warm.session(session, wanted)
            await live.open(opened, wait_ms=wait_ms)
        return await self.show(session)

    async def snapshot(self, session: str, *, wait_ms: int = 30_000) -> bytes:
        """What is in a session, sealed, to be kept or put into another session."""
        live = await self._found(session)
        return pack(self.services.key, await live.snapshot(wait_ms=wait_ms))

    async def restore(
        self,
        session: str,
        data: bytes,
        *,
        setup: Setup | Mapping[str, Json] | None = None,
        wait_ms: int = 30_000,
    ) -> SessionView:
        """Put a snapshot into a session, which is created if need be, in place of what is there."""
        check_session_id(session)
        opened = given_setup(setup)
        live = self._warm.session(session, Language.PYTHON)
        snapshot = unpack(self.services.key, data, engine=live.boxes.engine)
        row = await self._row(session)
        if opened is None and (row is None or row["status"] != "open"):
            opened = await self.remembers(snapshot.session_id)
        now = opened or setup_of(self.services, row)
        toolbox = await self.services.toolbox(now)
        check_capabilities(snapshot, {one.name: one.digest for one in toolbox.all()})
        await live.put(
            snapshot, reason="restored", origin=snapshot.session_id, setup=opened, wait_ms=wait_ms
        )
        return await self.show(session)

    async def fork(
        self, session: str, new: str, *, at: int | None = None, wait_ms: int = 30_000
    ) -> SessionView:
        """Another session that goes on from where this one is, or was at record `at`."""
        check_session_id(new)
        old = await self._found(session)
        row = await self._row(new)
        if row is not None and row["status"] == "open":
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Session `{new}` exists already.",
                hint="Fork into a new id, or destroy that session first.",
            )
        if at is None:
            snapshot = await old.snapshot(wait_ms=wait_ms)
        else:
            snapshot = await self._as_it_was(session, old, at)
        setup = await self.remembers(session)
        origin = session if at is None else f"{session}@{at}"
        live = self._warm.session(new, old.language)
        await live.put(snapshot, reason="forked", origin=origin, setup=setup, wait_ms=wait_ms)
        return await self.show(new)

    async def reset(self, session: str, *, wait_ms: int = 30_000) -> SessionView:
        """Empty a session: its variables and functions are gone, its history stays."""
        live = await self._found(session)
        await live.put(None, reason="reset", wait_ms=wait_ms)
        return await self.show(session)

    async def diff(
        self,
        session: str,
        *,
        other: str | None = None,
        at: int | None = None,
        snapshot: bytes | None = None,
        wait_ms: int = 30_000,
    ) -> Difference:
        """What changed in a session's variables since record `at` or a snapshot, or against another session."""
        live = await self._found(session)
        now = await live.snapshot(wait_ms=wait_ms)
        if snapshot is not None:
            then = unpack(self.services.key, snapshot, engine=live.boxes.engine)
        elif at is not None:
            then = await self._as_it_was(session, live, at)
        elif other is not None:
            then = await (await self._found(other)).snapshot(wait_ms=wait_ms)
        else:
            raise CallerError(
                "INVALID_ARGUMENT",
                "There is nothing to compare with.",
                hint="Name a record (`at`), a snapshot, or another session.",
            )
        return await difference(live.boxes, then, now)

    async def destroy(self, session: str, *, wait_ms: int = 30_000, reason: str = "asked") -> None:
        """End a session and erase what it held; the record that it was stays."""
        await self._end(await self._found(session), wait_ms, reason)

    async def expire(self, *, now: int) -> int:
        """Destroy the sessions that were not used for longer than they were opened for; how many."""
        count = 0
        for row in await self._journal.rows("sessions", tag="open", limit=1_000_000):
            if expired(row.value, now):
                count += await self._expire(row.key, row.value)
        return count

    # -- inside ---------------------------------------------------------------------------------------

    async def _validate(self, request: RunRequest, setup: Setup | None) -> RunResult:
        if setup is None:
            setup = await self.remembers(request.session_id)
        toolbox = await self.services.toolbox(setup)
        known = await self.names(request.session_id)
        return await validate(self.services, request, toolbox, known=known)

    async def names(self, session_id: str) -> set[str]:
        """The variables of a session, as far as they are on record."""
        live = self._warm.get(session_id)
        if live is not None and live.contents.box is not None:
            return set(live.contents.names)
        return await recorded_names(self.services, session_id)

    async def _as_it_was(self, session: str, live: Session, at: int) -> Snapshot:
        return await as_it_was(
            self.services, live.boxes, session_id=session, limits=live.limits, at=at
        )

    async def remembers(self, session_id: str) -> Setup:
        """What a session is opened with when nobody says otherwise."""
        return setup_of(self.services, await self._row(session_id))

    @property
    def warm(self) -> int:
        """How many sessions this process has at hand."""
        return len(self._warm)

    def held(self, session: str) -> bool:
        """Whether an agent has a session here."""
        live = self._warm.get(session)
        return live is not None and live.holder is not None

    def nudge(self, session: str) -> None:
        """Tell whoever holds a session here that something was said to it."""
        self._control.nudge(session)

    async def live(self, session: str, language: Language = Language.PYTHON) -> Session:
        """A session as this process has it, made if need be, for whoever is to hold it."""
        await self._row(check_session_id(session))
        return await self._warm.roomy(session, language)

    async def _found(self, session: str) -> Session:
        row = await self._row(check_session_id(session))
        if row is None or row["status"] != "open":
            raise not_found(session)
        return self._at_hand(session, row)

    def _at_hand(self, session: str, row: Mapping[str, Json]) -> Session:
        return self._warm.session(session, Language(str(row["language"])))

    async def _row(self, session: str) -> dict[str, Json] | None:
        """What is on record of a session, after one whose time has run out is destroyed."""
        row = await self._journal.row("sessions", session)
        if row is None or row["status"] != "open":
            return row
        if not expired(row, self.services.approvals.now()):
            return row
        await self._expire(session, row)
        return await self._journal.row("sessions", session)

    async def _expire(self, session: str, row: Mapping[str, Json]) -> bool:
        try:
            await self._end(self._at_hand(session, row), 0, "expired")
        except Conflict:
            return False  # somebody uses it after all
        return True

    async def _end(self, live: Session, wait_ms: int, reason: str) -> None:
        await live.destroy(wait_ms=wait_ms, reason=reason)
        await self._control.abandon_inputs(live.id)
        self._warm.forget(live.id)
        await sweep(self._journal, stream=live.id)
