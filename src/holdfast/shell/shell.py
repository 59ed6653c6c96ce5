"""Code sessions without a model: run, validate, list, show, destroy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Self

import anyio

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    Json,
    Language,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    SessionView,
    Severity,
    check_session_id,
    new_id,
    parse,
)
from holdfast.contracts.payload import CodeValidated
from holdfast.errors import CallerError, HoldfastError
from holdfast.journal import Journal, sweep
from holdfast.shell.box import Boxes
from holdfast.shell.refusals import not_found
from holdfast.shell.session import Session
from holdfast.shell.story import failed

VALIDATIONS = "holdfast:validations"
"""The stream of code that was checked and not run. Nobody leases it, so checking never waits for a run."""

MAX_CODE_BYTES = 1 << 20
"""The longest code a run takes."""

MAX_WARM = 64
"""Sessions that keep their worker process between runs."""

KEEP_EVERY = 0.5
IDLE_AFTER = 1.0
COLD_AFTER = 300.0
"""Seconds: between two rounds of upkeep, until an idle session's lease is given back, until its worker is."""


class Shell:
    """Runs code in sessions. Make one with `Shell.open`, or take `hf.shell` of an open runtime."""

    def __init__(
        self,
        journal: Journal,
        boxes: Mapping[Language, Boxes],
        key: bytes,
        limits: SessionLimits,
    ) -> None:
        self._journal = journal
        self._boxes = boxes
        self._key = key
        self._limits = limits
        self._owner = new_id("shell")
        self._sessions: dict[str, Session] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        journal: Journal,
        boxes: Mapping[Language, Boxes],
        key: bytes,
        *,
        limits: SessionLimits | None = None,
    ) -> AsyncGenerator[Self]:
        """A shell over a journal; leaving saves every session it has touched.

        `key` seals saved states; `limits` are those of sessions that are created without any.
        """
        shell = cls(journal, boxes, key, limits or SessionLimits())
        failure: Exception | None = None
        async with anyio.create_task_group() as upkeep:
            upkeep.start_soon(shell._keep)
            try:
                yield shell
            except Exception as why:  # noqa: BLE001 - raised again below: the group would wrap it
                failure = why
            finally:
                upkeep.cancel_scope.cancel()
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
        wait_ms: int = 30_000,
        durable: bool = False,
    ) -> RunResult:
        """Run code in a session, which is created on first use.

        A bad request, like failing code, is a result with `status` and `error`; only what the operator must
        mend is raised. `wait_ms` is how long to wait while another run has the session. The run is recorded in
        any case; with `durable` the record is on disk when this returns, else a moment later.
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
            }
            return await self.request(parse(RunRequest, fields), wait_ms=wait_ms, durable=durable)
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)

    async def request(
        self, request: RunRequest, *, wait_ms: int = 30_000, durable: bool = False
    ) -> RunResult:
        """The same for a request that came over a wire."""
        boxes = self._boxes.get(request.language)
        if boxes is None:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Code in {request.language.value} can't be run by this holdfast.",
                hint=f"Languages here: {', '.join(one.value for one in self._boxes)}.",
            )
        _check_code(request.code)
        if request.validate_only:
            return await self._validate(request, boxes)
        await self._make_room(request.session_id)
        session = self._session(request.session_id, boxes)
        return await session.run(request, wait_ms=wait_ms, durable=durable)

    async def list(self, *, after: str = "", limit: int = 100) -> list[SessionView]:
        """Open sessions, by id."""
        rows = await self._journal.rows("sessions", tag="open", after=after, limit=limit)
        return [await self._view(row.value) for row in rows]

    async def show(self, session: str) -> SessionView:
        """One session, also a destroyed one."""
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None:
            raise not_found(session)
        return await self._view(row)

    async def destroy(self, session: str, *, wait_ms: int = 30_000) -> None:
        """End a session and erase what it held; the record that it was stays."""
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None or row["status"] != "open":
            raise not_found(session)
        live = self._session(session, self._boxes[Language(str(row["language"]))])
        await live.destroy(wait_ms=wait_ms)
        self._sessions.pop(session, None)
        await sweep(self._journal)

    async def _validate(self, request: RunRequest, boxes: Boxes) -> RunResult:
        found = await boxes.validate(request.code)
        errors = [one for one in found if one.severity is Severity.ERROR]
        status = RunStatus.VALIDATION_ERROR if errors else RunStatus.OK
        code = Body.of(request.code.encode(), role="code", mime="text/x-python")
        said = CodeValidated(
            session_id=request.session_id,
            language=request.language,
            code=code.ref.digest,
            status=status,
        )
        await self._journal.append(VALIDATIONS, [Draft.of(said, bodies=(code,))])
        return RunResult(status=status, diagnostics=found, error=_first(errors) if errors else None)

    async def _view(self, row: Mapping[str, Json]) -> SessionView:
        head = await self._journal.head(str(row["id"]))
        return SessionView.model_validate({**row, "last_seq": head.seq})

    def _session(self, id_: str, boxes: Boxes) -> Session:
        session = self._sessions.get(id_)
        if session is None:
            session = Session(
                id_, self._journal, boxes, self._key, owner=self._owner, defaults=self._limits
            )
            self._sessions[id_] = session
        return session

    async def _make_room(self, wanted: str) -> None:
        """Close the session longest unused when too many hold a worker."""
        if wanted in self._sessions or len(self._sessions) < MAX_WARM:
            return
        idle = [one for one in self._sessions.values() if not one.busy]
        if idle:
            oldest = min(idle, key=lambda one: one.used)
            del self._sessions[oldest.id]
            await oldest.close()

    async def _keep(self) -> None:
        while True:
            await anyio.sleep(KEEP_EVERY)
            for session in list(self._sessions.values()):
                try:
                    await session.keep(idle_after=IDLE_AFTER)
                    if not session.busy and monotonic() - session.used > COLD_AFTER:
                        self._sessions.pop(session.id, None)
                        await session.close()
                except HoldfastError:
                    continue  # the journal is in trouble; whoever runs next is told

    async def _close(self) -> None:
        async with AsyncExitStack() as rest:
            for session in self._sessions.values():
                rest.push_async_callback(session.close)
        self._sessions.clear()


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


def _first(errors: list[Diagnostic]) -> ErrorObject:
    first = errors[0]
    return ErrorObject(code=first.code, message=first.message, hint=first.hint, span=first.span)
