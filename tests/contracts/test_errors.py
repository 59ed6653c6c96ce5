"""The error table: the codes of the shell's specification, and one object for all uses."""

import json

import pytest

from holdfast.contracts import Diagnostic, ErrorObject, RunStatus, Severity
from holdfast.errors import (
    CODES,
    CallerError,
    HoldfastError,
    InternalError,
    JournalError,
    LeaseHeld,
    ModelError,
    NotFound,
    OperatorError,
    PersonError,
    Span,
    StaleEpoch,
    StalePosition,
)

# shell.md §2
SHELL = {
    "SYNTAX_ERROR TYPE_ERROR UNKNOWN_TOOL UNSUPPORTED_FEATURE RESULT_NOT_SERIALIZABLE"
    " SNAPSHOT_VERSION_MISMATCH SNAPSHOT_CAPABILITY_MISMATCH SNAPSHOT_CORRUPT INVALID_SESSION_ID"
    " INVALID_TOOL_NAME INVALID_ARGUMENT METHOD_NOT_FOUND SESSION_NOT_FOUND": "validation_error",
    "PERMISSION_DENIED": "permission_denied",
    "WAITING_FOR_APPROVAL": "waiting_for_approval",
    "INTERRUPTED": "interrupted",
    "TIMEOUT_WALL TIMEOUT_CPU TIMEOUT_TOOL": "timeout",
    "CANCELLED": "cancelled",
    "MEMORY_EXCEEDED STDOUT_EXCEEDED EXTERNAL_CALLS_EXCEEDED STACK_OVERFLOW": "resource_exhausted",
    "RUNTIME_ERROR TOOL_ERROR IO_ERROR SERIALIZE_ERROR": "runtime_error",
}
PAIRS = [(code, status) for codes, status in SHELL.items() for code in codes.split()]


@pytest.mark.parametrize(("code", "status"), PAIRS)
def test_the_codes_of_the_shell(code: str, status: str):
    assert CODES[code].status == status


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_complete(code: str):
    row = CODES[code]
    assert row.code == code == code.upper()
    assert row.status is None or row.status in list(RunStatus)
    assert row.status != "ok"
    assert row.exit_code > 0
    assert row.when
    error = HoldfastError(code, "It failed.")
    assert (error.exit_code, error.status) == (row.exit_code, row.status)


ERRORS = [
    HoldfastError("RUNTIME_ERROR", "It raised."),
    CallerError("INVALID_ARGUMENT", "No.", hint="Yes."),
    ModelError("SYNTAX_ERROR", "No.", span=Span(1, 2)),
    ModelError("SYNTAX_ERROR", "No.", hint="Yes.", span=Span(1, 2, 3, 4)),
    PersonError("WAITING_FOR_APPROVAL", "Ask.", effect_id="e"),
    OperatorError("IO_ERROR", "Broken."),
    JournalError("JOURNAL_FULL", "Full.", hint="Free some."),
    InternalError("Impossible."),
    StalePosition("s", 1, 2),
    StaleEpoch("s", 1, 2, "of old"),
    LeaseHeld("s", "me", 3),
    NotFound("NOT_FOUND", "Nothing."),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_python_and_json(error: HoldfastError):
    said = error.to_json()
    seen = ErrorObject.of(error)
    assert seen.model_dump(mode="json") == said == json.loads(seen.model_dump_json())
    assert ErrorObject.model_validate(said) == seen
    assert str(error).startswith(f"{error.code}: {error.message}")
    assert (error.hint or "") in str(error)
    diagnostic = Diagnostic.error(seen)
    assert diagnostic.severity is Severity.ERROR
    assert (diagnostic.code, diagnostic.message) == (error.code, error.message)
    assert (diagnostic.hint, diagnostic.span) == (seen.hint, seen.span)


def test_who_can_act_follows_from_the_code():
    actors = {CallerError: "caller", ModelError: "model", PersonError: "person"}
    for error in ERRORS:
        for kind, actor in actors.items():
            if isinstance(error, kind):
                assert CODES[error.code].actor == actor
    assert {row.actor for row in CODES.values()} == {"caller", "model", "person", "operator", "us"}
