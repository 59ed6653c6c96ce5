"""Code sessions without a model: run, validate, snapshot, restore, fork, reset, diff, destroy, list, show."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Self

import anyio

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    Json,
    Language,
    Record,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    SessionView,
    Setup,
    Severity,
    check_session_id,
    parse,
)
from holdfast.contracts.agent import InputDropped
from holdfast.contracts.payload import CodeValidated
from holdfast.errors import CallerError, Conflict, HoldfastError
from holdfast.gate.redact import Redactor
from holdfast.journal import sweep
from holdfast.journal.pen import renew_all
from holdfast.shell.box import Boxes
from holdfast.shell.diff import Difference, difference
from holdfast.shell.drive import CancelMode
from holdfast.shell.dryrun import DryRun
from holdfast.shell.refusals import not_found
from holdfast.shell.replay import restore
from holdfast.shell.services import Services, setup_of
from holdfast.shell.session import COLD, Session
from holdfast.shell.sessions import Sessions
from holdfast.shell.snapshot import Snapshot, check_capabilities, pack, unpack
from holdfast.shell.story import failed

VALIDATIONS = "holdfast:validations"
"""The stream of code that was checked and not run. Nobody leases it, so checking never waits for a run."""

CONTROL = "holdfast:control"
"""The stream of wishes about sessions and runs that another process may have. Nobody leases it."""

MAX_CODE_BYTES = 1 << 20
"""The longest code a run takes."""

MAX_WARM = 64
"""Sessions that keep their worker process between runs."""

EXPIRE_EVERY = 15.0
"""Seconds between looking for approvals and sessions whose time has run out."""

KEEP_EVERY = 0.5
IDLE_AFTER = 1.0
"""Seconds: between two rounds of upkeep, until an idle session's lease is given back."""


class Shell:
    """Runs code in sessions: `hf.shell` of an open runtime."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._journal = services.journal
        self._boxes = services.boxes
        self._sessions: dict[str, Session] = {}
        self._expire_at = 0.0
        self._heard = 0
        self._known_sessions = Sessions(services.journal)

    @classmethod
    @asynccontextmanager
    async def open(cls, services: Services) -> AsyncGenerator[Self]:
        """A shell; leaving saves every session it has touched."""
        shell = cls(services)
        shell._heard = (await services.journal.head(CONTROL)).pos
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as upkeep:
                upkeep.start_soon(shell._keep)
                try:
                    yield shell
                except Exception as why:  # noqa: BLE001 - a task group would wrap it; raised below
                    failure = why
                finally:
                    upkeep.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await shell._close()
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
            return await self.request(
                parse(RunRequest, fields),
                wait_ms=wait_ms,
                durable=durable,
                setup=_setup(setup),
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
        boxes = self._boxes.get(request.language)
        if boxes is None:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Code in {request.language.value} can't be run by this holdfast.",
                hint=f"Languages here: {', '.join(one.value for one in self._boxes)}.",
            )
        check_request(self.services.gate.redactor, request)
        if request.validate_only:
            return await self._validate(request, boxes, setup)
        if request.dry_run:
            return await DryRun(self.services).run(request, setup, actor=actor)
        await self._make_room(request.session_id)
        session = self._session(request.session_id, request.language)
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
        await self._make_room(session)
        return await live.resume(run_id, wait_ms=wait_ms, durable=durable, setup=_setup(setup))

    def cancel(
        self,
        session: str,
        *,
        mode: CancelMode = "now",
        run_id: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Stop what runs in this process in a session; False when nothing does."""
        live = self._sessions.get(session)
        return live is not None and live.cancel(mode, run_id, reason)

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
        """Make an empty session; one that is there already is left as it is."""
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None or row["status"] != "open":
            live = self._session(session, Language(language))
            await live.put(None, reason="reset", setup=_setup(setup), wait_ms=wait_ms)
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
        opened = _setup(setup)
        live = self._session(session, Language.PYTHON)
        snapshot = unpack(self.services.key, data, engine=live.boxes.engine)
        row = await self._journal.row("sessions", session)
        if opened is None and (row is None or row["status"] != "open"):
            opened = await self._setup_of(snapshot.session_id)
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
        row = await self._journal.row("sessions", new)
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
        setup = await self._setup_of(session)
        origin = session if at is None else f"{session}@{at}"
        live = self._session(new, old.language)
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
        live = await self._found(session)
        await live.destroy(wait_ms=wait_ms, reason=reason)
        await self._abandon_inputs(session)
        self._sessions.pop(session, None)
        await sweep(self._journal, stream=session)

    async def expire(self, *, now: int) -> int:
        """Destroy the sessions that were not used for longer than they were opened for; how many."""
        count = 0
        for row in await self._journal.rows("sessions", tag="open", limit=1_000_000):
            setup = row.value.get("setup")
            ttl = setup.get("ttl_ms") if isinstance(setup, dict) else None
            last = row.value["last_used_at"]
            if row.value.get("open_run") or row.value.get("open_agent"):
                continue  # somebody is asked, or has to say what happened: that does not go away by itself
            if isinstance(ttl, int) and isinstance(last, int) and last + ttl < now:
                with _ignoring_busy():
                    await self.destroy(row.key, wait_ms=0, reason="expired")
                    count += 1
        return count

    async def _abandon_inputs(self, session: str) -> None:
        """Nobody will read what waits for a session that is gone."""
        for row in await self._journal.rows("inputs", tag=f"queued:{session}", limit=1_000_000):
            dropped = InputDropped(id=row.key, reason="session_destroyed")
            try:
                await self._journal.append(CONTROL, [Draft.of(dropped)])
            except CallerError as why:
                if why.code != "ILLEGAL_RECORD":
                    raise  # else it was taken back in this very moment

    # -- inside ---------------------------------------------------------------------------------------

    async def _validate(self, request: RunRequest, boxes: Boxes, setup: Setup | None) -> RunResult:
        if setup is None:
            setup = await self._setup_of(request.session_id)
        toolbox = await self.services.toolbox(setup)
        known = await self.names(request.session_id) | request.inputs.keys()
        found = await boxes.validate(request.code, stubs=toolbox.stubs(), known=frozenset(known))
        errors = [one for one in found if one.severity is Severity.ERROR]
        status = RunStatus.OK
        if errors:
            denied = errors[0].code == "PERMISSION_DENIED"
            status = RunStatus.PERMISSION_DENIED if denied else RunStatus.VALIDATION_ERROR
        code = Body.of(request.code.encode(), role="code", mime="text/x-python")
        said = CodeValidated(
            session_id=request.session_id,
            language=request.language,
            code=code.ref.digest,
            status=status,
        )
        await self._journal.append(VALIDATIONS, [Draft.of(said, bodies=(code,))])
        return RunResult(status=status, diagnostics=found, error=_first(errors) if errors else None)

    async def names(self, session_id: str) -> set[str]:
        """The variables of a session, as far as they are on record."""
        live = self._sessions.get(session_id)
        if live is not None and live.box is not None:
            return set(live.names)
        row = await self._journal.row("sessions", session_id)
        if row is None or row["status"] != "open":
            return set()
        names: set[str] = set()
        binds = self._boxes[Language(str(row["language"]))].binds
        after = int(str(row["state_pos"])) - 1
        async for record in self._journal.read(session_id, after=after):
            if record.kind == "session_state":
                names = set(record.payload.get("names") or ())  # type: ignore[arg-type]
            start = record.payload if record.kind == "run_started" else record.payload.get("start")
            if isinstance(start, dict) and start.get("code"):
                names |= binds((await self._journal.content(str(start["code"]))).decode())
        return names

    async def _as_it_was(self, session_id: str, live: Session, at: int) -> Snapshot:
        """The state of a session after record `at`."""
        row: dict[str, Any] = await self._journal.row("sessions", session_id) or {}
        own = SessionLimits.model_validate(row.get("limits") or {})
        limits = setup_of(self.services, row).limits or live.limits or own
        upto = 0
        # One that was destroyed under this name before is another session.
        async for record in self._journal.read(session_id, after=int(row["created_pos"]) - 1):
            if record.seq > at:
                break
            upto = record.pos
        if upto == 0:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Session `{session_id}` has no record up to {at}.",
                hint="`holdfast journal show` lists its records.",
            )
        made = await restore(
            self.services, live.boxes, session_id=session_id, limits=limits, upto=upto
        )
        try:
            state = await made.box.dump()
        finally:
            await made.box.close()
        return Snapshot(
            session_id,
            live.boxes.engine,
            state,
            limits=limits.model_dump(mode="json"),
            names=tuple(sorted(made.names)),
            sources=made.definitions.told(),
        )

    async def _setup_of(self, session_id: str) -> Setup:
        return setup_of(self.services, await self._journal.row("sessions", session_id))

    @property
    def warm(self) -> int:
        """How many sessions this process has at hand."""
        return len(self._sessions)

    def held(self, session: str) -> bool:
        """Whether an agent has a session here."""
        live = self._sessions.get(session)
        return live is not None and live.holder is not None

    def nudge(self, session: str) -> None:
        """Tell whoever holds a session here that something was said to it."""
        live = self._sessions.get(session)
        if live is not None and live.holder is not None:
            live.holder.nudge()

    async def live(self, session: str, language: Language = Language.PYTHON) -> Session:
        """A session as this process has it, made if need be, for whoever is to hold it."""
        await self._make_room(check_session_id(session))
        return self._session(session, language)

    async def _found(self, session: str) -> Session:
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None or row["status"] != "open":
            raise not_found(session)
        return self._session(session, Language(str(row["language"])))

    def _session(self, id_: str, language: Language) -> Session:
        session = self._sessions.get(id_)
        if session is None:
            session = self._sessions[id_] = Session(id_, self.services, language)
        return session

    async def _make_room(self, wanted: str) -> None:
        """Close the session longest unused when too many hold a worker."""
        if wanted in self._sessions or len(self._sessions) < MAX_WARM:
            return
        idle = [one for one in self._sessions.values() if not one.taken]
        if idle:
            oldest = min(idle, key=lambda one: one.used)
            del self._sessions[oldest.id]
            await oldest.close()

    async def _keep(self) -> None:
        while True:
            await anyio.sleep(KEEP_EVERY)
            await self._expire_now_and_then()
            await self._listen()
            await self._renew()
            due = [one for one in self._sessions.values() if one.due(idle_after=IDLE_AFTER)]
            if not due:
                continue
            async with anyio.create_task_group() as keeping:
                for session in due:
                    keeping.start_soon(self._keep_one, session)

    async def _renew(self) -> None:
        """Make the leases of what is under way here last."""
        aging = [one.pen for one in self._sessions.values() if one.busy and one.pen.ages]
        try:
            await renew_all(self._journal, aging)
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    async def _keep_one(self, session: Session) -> None:
        try:
            await session.keep(idle_after=IDLE_AFTER)
            if not session.taken and monotonic() - session.used > COLD:
                self._sessions.pop(session.id, None)
                await session.close()
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    async def _listen(self) -> None:
        """Hear what other processes want of those who hold sessions here."""
        try:
            if not any(one.holder is not None for one in self._sessions.values()):
                # Looked up first: whoever takes a session while we look is told of all that comes from here on.
                end = (await self._journal.head(CONTROL)).pos
                if not any(one.holder is not None for one in self._sessions.values()):
                    self._heard = end
                    return
            async for record in self._journal.read(CONTROL, after=self._heard):
                self._heard = record.pos
                self._hear(record)
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    def _hear(self, record: Record) -> None:
        said = record.payload
        if record.kind == "input_queued":
            self.nudge(str(said["session_id"]))
        elif record.kind == "run_cancel_requested":
            mode = "now" if said["mode"] == "now" else "after_effect"
            reason = str(said["reason"]) if said.get("reason") else None
            for session in self._sessions.values():
                if session.holder is not None and session.cancel(mode, str(said["run"]), reason):
                    return

    async def _expire_now_and_then(self) -> None:
        if monotonic() < self._expire_at:
            return
        self._expire_at = monotonic() + EXPIRE_EVERY
        try:
            await self.services.approvals.expire()
            await self.expire(now=self.services.approvals.now())
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    async def _close(self) -> None:
        async with AsyncExitStack() as rest:
            for session in self._sessions.values():
                rest.push_async_callback(session.close)
        self._sessions.clear()


def check_request(redactor: Redactor, request: RunRequest) -> None:
    """Refuse code that is too long, and code and inputs that hold a live secret."""
    _check_code(request.code)
    _check_secrets(redactor, request)


def _check_code(code: str) -> None:
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        raise CallerError("INVALID_ARGUMENT", "The code is not Unicode text.") from None
    if size > MAX_CODE_BYTES:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"The code has {size} bytes; {MAX_CODE_BYTES} are allowed.",
            hint="Hand data in as inputs, and split the code into several runs.",
        )


def _check_secrets(redactor: Redactor, request: RunRequest) -> None:
    """Refuse code and inputs that hold a live secret: they are recorded, and the code could print them."""
    if not redactor.names:
        return
    inputs: Json = {**request.inputs}
    if redactor.text(request.code) != request.code or redactor.json(inputs) != inputs:
        raise CallerError(
            "INVALID_ARGUMENT",
            "The code or an input holds the value of a secret.",
            hint="Secrets do not pass through code: give them to the capability that needs them.",
        )


def _first(errors: list[Diagnostic]) -> ErrorObject:
    first = errors[0]
    return ErrorObject(code=first.code, message=first.message, hint=first.hint, span=first.span)


def _setup(given: Setup | Mapping[str, Json] | None) -> Setup | None:
    return parse(Setup, dict(given)) if isinstance(given, Mapping) else given


@contextmanager
def _ignoring_busy() -> Generator[None]:
    try:
        yield
    except Conflict:
        pass  # somebody uses it after all
