"""Code that is checked and not run, and the variables it may count on."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    Language,
    RunRequest,
    RunResult,
    RunStatus,
    Severity,
)
from holdfast.contracts.payload import CodeValidated
from holdfast.gate.executor import Toolbox
from holdfast.shell.services import Services

VALIDATIONS = "holdfast:validations"
"""The stream of code that was checked and not run. Nobody leases it, so checking never waits for a run."""


async def validate(
    services: Services, request: RunRequest, toolbox: Toolbox, *, known: AbstractSet[str]
) -> RunResult:
    """What is wrong with code that may call `toolbox` and finds the variables `known`; it goes on record."""
    boxes = services.boxes[request.language]
    names = frozenset(known | request.inputs.keys())
    found = await boxes.validate(request.code, stubs=toolbox.stubs(), known=names)
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
    await services.journal.append(VALIDATIONS, [Draft.of(said, bodies=(code,))])
    return RunResult(status=status, diagnostics=found, error=_first(errors) if errors else None)


async def recorded_names(services: Services, session_id: str) -> set[str]:
    """The variables of a session, as far as they are on record."""
    journal = services.journal
    row = await journal.row("sessions", session_id)
    if row is None or row["status"] != "open":
        return set()
    names: set[str] = set()
    started: dict[str | None, str] = {}
    failed: dict[str | None, str] = {}
    after = int(str(row["state_pos"])) - 1
    async for record in journal.read(session_id, after=after):
        if record.kind == "session_state":
            names = set(record.payload.get("names") or ())  # type: ignore[arg-type]
            started.clear()
        start = record.payload if record.kind == "run_started" else record.payload.get("start")
        if isinstance(start, dict) and start.get("code"):
            started[record.run_id] = str(start["code"])
        error = record.payload.get("error")
        if record.payload.get("state_kept") is False:
            started.pop(record.run_id, None)  # it was undone, or none of it was run
        elif isinstance(error, dict):
            failed[record.run_id] = str(error.get("code"))
    binds = services.boxes[Language(str(row["language"]))].binds
    for run_id, code in started.items():
        names |= binds((await journal.content(code)).decode(), failed.get(run_id))
    return names


def _first(errors: list[Diagnostic]) -> ErrorObject:
    first = errors[0]
    return ErrorObject(code=first.code, message=first.message, hint=first.hint, span=first.span)
