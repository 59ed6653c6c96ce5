"""One run of code: what is asked and what comes back."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked, Count, Told, listed, optional, unless
from holdfast.contracts.capability import SideEffect
from holdfast.contracts.ids import SessionId
from holdfast.contracts.session import Language, SessionLimits
from holdfast.errors import HoldfastError


class RunStatus(StrEnum):
    """How a run of code ended, or where it stands."""

    OK = "ok"
    VALIDATION_ERROR = "validation_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    PERMISSION_DENIED = "permission_denied"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    INTERRUPTED = "interrupted"


class Severity(StrEnum):
    """How bad a diagnostic is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Span(Told):
    """A place in the code; lines and columns count from 1."""

    line: int = 1
    """First line."""
    column: int = 1
    """First column."""
    end_line: int | None = optional()
    """Last line."""
    end_column: int | None = optional()
    """The column after the last."""


class ErrorObject(Told):
    """An error as JSON: the same everywhere."""

    code: str
    """Stable; the whole list is in docs/reference/errors.md."""
    message: str
    """One sentence."""
    hint: str | None = optional()
    """What to do about it, for whoever can."""
    span: Span | None = optional()
    """Where in the code."""
    effect_id: str | None = optional()
    """The effect it happened in."""

    @classmethod
    def of(cls, error: HoldfastError) -> ErrorObject:
        """The wire form of a raised error."""
        return cls.model_validate(error.to_json())


class Diagnostic(Told):
    """A remark about the code, written for the agent that must repair it."""

    severity: Severity
    """`error` ends the run; the others do not."""
    code: str
    """As in `ErrorObject`."""
    message: str
    """One sentence."""
    hint: str | None = optional()
    """What to change."""
    span: Span | None = optional()
    """Where."""

    @classmethod
    def error(cls, error: ErrorObject) -> Diagnostic:
        """The diagnostic that says the same as `error`."""
        return cls(
            severity=Severity.ERROR,
            code=error.code,
            message=error.message,
            hint=error.hint,
            span=error.span,
        )


class CallStatus(StrEnum):
    """How one call out of the box ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    DENIED = "denied"
    APPROVAL_PENDING = "approval_pending"


class ExternalCallRecord(Told):
    """One call out of the box; arguments and result by digest only."""

    name: str
    """The capability or built-in called."""
    side_effect: SideEffect
    """What it may touch."""
    duration_ms: int
    """How long the caller waited."""
    status: CallStatus
    """How it ended."""
    request_digest: str
    """SHA3-256 of the canonical arguments."""
    response_digest: str | None = optional()
    """SHA3-256 of the canonical result."""
    error: ErrorObject | None = optional()
    """Why it failed."""


class Metrics(Told):
    """What a run used."""

    duration_ms: Count = 0
    """From start to end."""
    memory_peak_bytes: Count = 0
    """Peak resident memory of the worker process so far; 0 where the host can't tell."""
    instructions: Count = 0
    """Instructions executed; 0 with an engine that does not count them."""
    external_calls_count: Count = 0
    """Calls out of the box."""


class RunRequest(Asked):
    """Run this code in that session."""

    session_id: SessionId = "default"
    """Created on first use."""
    language: Language = Language.PYTHON
    """Must be the session's."""
    code: str = ""
    """What to run."""
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    """Read-only top-level variables of this run."""
    timeout_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    """Overrides `wall_ms` for this run."""
    limits: SessionLimits | None = None
    """Overrides the session's limits for this run."""
    return_snapshot: bool = False
    """Save the state after this run and name it in `snapshot_id`."""
    validate_only: bool = False
    """Check the code; run and write nothing."""
    dry_run: bool = unless(False)
    """Run it, answer reads, make no other call: what it would do is in `plan`. The session stays as it is."""
    plan_id: str | None = optional()
    """An approved plan: its calls need no other approval, and any other call is denied."""


class PlannedEffect(Told):
    """A call that a dry run did not make."""

    ordinal: int
    """Its number among the calls of the run."""
    name: str
    """The capability."""
    arguments: JsonValue
    """What it would be called with."""
    side_effect: SideEffect
    """What it may touch."""
    verdict: str
    """What the policy says: `allow`, `ask` or `deny`."""
    rule: str
    """The rule that says so."""
    request_digest: str
    """SHA3-256 of the canonical arguments."""
    capability: str = ""
    """The capability as it was: its digest."""


class RunResult(Told):
    """What a run gave."""

    status: RunStatus = RunStatus.OK
    """How it ended."""
    result: JsonValue = None
    """The global `result` if this run set it, else the value of a final expression, else null."""
    stdout: str = ""
    """What it printed."""
    stderr: str = ""
    """What it printed to standard error."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Every error, warning and remark."""
    external_calls: tuple[ExternalCallRecord, ...] = ()
    """Every call out of the box, in order."""
    snapshot_id: str | None = optional()
    """The saved state, when asked for."""
    metrics: Metrics = Metrics()
    """What it used."""
    error: ErrorObject | None = optional()
    """Present exactly when `status` is not `ok`."""
    run_id: str | None = optional()
    """The run's name in the journal."""
    approval_id: str | None = optional()
    """What it waits for, when it is parked."""
    in_doubt: tuple[str, ...] = listed()
    """Effects nobody knows the end of, when it is interrupted."""
    plan_id: str | None = optional()
    """The plan, after a dry run."""
    plan: tuple[PlannedEffect, ...] = listed()
    """What the code would do, after a dry run."""
