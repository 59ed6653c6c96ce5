"""Every way holdfast can refuse or fail, with a stable code.

Split by who can act on it:

    HoldfastError
    ├─ CallerError            the program or person that asked: fix the request
    │  ├─ NotFound            no such session, run or record
    │  └─ Conflict            somebody else moved first: read again, then retry
    │     ├─ StalePosition    the stream is not where the writer thought
    │     ├─ StaleEpoch       the writer's lease was lost, expired or never taken
    │     └─ LeaseHeld        another owner holds the lease now
    ├─ ModelError             the code an agent wrote: repair it and run again
    ├─ PersonError            a human decision is missing: ask, or answer
    ├─ OperatorError          the machine or its set-up: repair, free, install
    │  ├─ JournalError        the journal's file: full, locked, read-only, damaged, too new
    │  └─ ModelFailure        a model's provider: refuses, is overloaded, or breaks off
    └─ InternalError          holdfast itself: please report it

`holdfast.machines` adds `Rejected` (`NoTransition`, `GuardRejected`) for a lifecycle that refuses a step.

One object serves Python (`except`), JSON (`to_json`), and the command line (`exit_code`). The table
`CODES` is the whole list; a code is never renamed or reused. `docs/reference/errors.md` is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Actor = Literal["caller", "model", "person", "operator", "us"]


class Span(NamedTuple):
    """Where in the agent's code; lines and columns count from 1."""

    line: int
    column: int
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """What is fixed about a code: who acts, which run status and exit code follow, when it is used."""

    code: str
    actor: Actor
    status: str | None
    """The `RunStatus` of a run that ends with it; `None` when it can't end a run."""
    when: str
    exit_code: int = 1


def _table(*rows: ErrorCode) -> dict[str, ErrorCode]:
    return {row.code: row for row in rows}


_INVALID = "validation_error"

CODES: dict[str, ErrorCode] = _table(
    # -- the caller -----------------------------------------------------------------------------------
    ErrorCode("INVALID_ARGUMENT", "caller", _INVALID, "an argument is missing or malformed", 2),
    ErrorCode("INVALID_SESSION_ID", "caller", _INVALID, "a session id breaks its pattern", 2),
    ErrorCode(
        "INVALID_TOOL_NAME", "caller", _INVALID, "a capability is not an ASCII identifier", 2
    ),
    ErrorCode("INVALID_ID", "caller", _INVALID, "an id is empty, too long or unprintable", 2),
    ErrorCode("METHOD_NOT_FOUND", "caller", _INVALID, "no such operation", 2),
    ErrorCode("SESSION_NOT_FOUND", "caller", _INVALID, "no session has this id", 2),
    ErrorCode("NOT_FOUND", "caller", None, "no run, record or content has this name", 2),
    ErrorCode("UNAUTHENTICATED", "caller", None, "no token, or one that is wrong or revoked", 1),
    ErrorCode("FORBIDDEN", "caller", None, "the token is not good for this", 1),
    ErrorCode("TOO_MANY_REQUESTS", "caller", None, "the caller asks more often than it may", 1),
    ErrorCode("REQUEST_TIMEOUT", "caller", None, "a request took too long to come in", 1),
    ErrorCode("IDEMPOTENCY_CONFLICT", "caller", None, "a key stands for another request", 1),
    ErrorCode("SESSION_BUSY", "caller", None, "another run of the session is under way", 1),
    ErrorCode("RUN_OPEN", "caller", None, "a run of the session waits or was interrupted", 1),
    ErrorCode("APPROVAL_CLOSED", "caller", None, "the approval is decided, expired or withdrawn"),
    ErrorCode("DECISION_REFUSED", "caller", None, "the answer is not one the request allows"),
    ErrorCode("EFFECT_NOT_IN_DOUBT", "caller", None, "the effect has a result, or never began"),
    ErrorCode("PRICE_UNKNOWN", "caller", None, "money is limited, and a model has no price", 2),
    ErrorCode("POLICY_INVALID", "caller", None, "a policy rule can't be understood", 2),
    ErrorCode("HOOK_INVALID", "caller", None, "a hook asks for what its point does not allow", 2),
    ErrorCode("SNAPSHOT_VERSION_MISMATCH", "caller", _INVALID, "a snapshot of another version"),
    ErrorCode("SNAPSHOT_CAPABILITY_MISMATCH", "caller", _INVALID, "capabilities changed since"),
    ErrorCode("SNAPSHOT_CORRUPT", "caller", _INVALID, "a saved state fails its integrity check"),
    ErrorCode(
        "INVALID_RECORD", "caller", None, "a record's kind or payload breaks its contract", 2
    ),
    ErrorCode("ILLEGAL_RECORD", "caller", None, "a record that may not follow those before it"),
    ErrorCode("PAYLOAD_NOT_JSON", "caller", None, "a payload holds what JSON can't express", 2),
    ErrorCode("RECORD_TOO_LARGE", "caller", None, "a record's payload is over its size limit", 2),
    ErrorCode("CONTENT_TOO_LARGE", "caller", None, "a content body is over its size limit", 2),
    ErrorCode(
        "CONTENT_NOT_ALLOWED", "caller", None, "the content's privacy class forbids the read"
    ),
    ErrorCode("CONTENT_ERASED", "caller", None, "the content was erased; only its digest remains"),
    ErrorCode("STALE_POSITION", "caller", None, "the stream moved since the writer read it"),
    ErrorCode("STALE_EPOCH", "caller", None, "the writer does not hold the stream's lease"),
    ErrorCode("LEASE_HELD", "caller", None, "another owner holds the stream's lease"),
    ErrorCode("NO_TRANSITION", "caller", None, "a lifecycle has no such step in its phase"),
    ErrorCode("GUARD_REJECTED", "caller", None, "a lifecycle's state does not allow the step"),
    # -- the model ------------------------------------------------------------------------------------
    ErrorCode("SYNTAX_ERROR", "model", _INVALID, "the code does not parse"),
    ErrorCode("TYPE_ERROR", "model", _INVALID, "the code fails the static type check"),
    ErrorCode("UNKNOWN_TOOL", "model", _INVALID, "the code calls a name nobody defined"),
    ErrorCode("UNSUPPORTED_FEATURE", "model", _INVALID, "outside the supported language subset"),
    ErrorCode("RESULT_NOT_SERIALIZABLE", "model", _INVALID, "the result is not JSON"),
    ErrorCode("RUNTIME_ERROR", "model", "runtime_error", "the code raised"),
    ErrorCode("TOOL_ERROR", "model", "runtime_error", "a capability failed"),
    ErrorCode("PERMISSION_DENIED", "model", "permission_denied", "not granted to this session"),
    ErrorCode("REQUEST_TOO_LARGE", "model", "runtime_error", "a call's arguments are too long"),
    ErrorCode("RESPONSE_TOO_LARGE", "model", "runtime_error", "a call's result is too long"),
    ErrorCode("RATE_LIMITED", "model", "runtime_error", "a capability is called too often"),
    ErrorCode("SURFACE_UNAVAILABLE", "model", "runtime_error", "a tool's server is not there now"),
    ErrorCode("SURFACE_DRAINING", "model", "runtime_error", "a tool's server is being removed"),
    ErrorCode("MAX_TURNS", "person", "resource_exhausted", "an agent asked its model too often"),
    ErrorCode("BUDGET_EXCEEDED", "person", "resource_exhausted", "the session's budget is used"),
    ErrorCode("TIMEOUT_CPU", "model", "timeout", "computed longer than `cpu_ms`"),
    ErrorCode("TIMEOUT_WALL", "model", "timeout", "took longer than `wall_ms`"),
    ErrorCode("TIMEOUT_TOOL", "model", "timeout", "a capability took longer than its limit"),
    ErrorCode("MEMORY_EXCEEDED", "model", "resource_exhausted", "used more than `memory_mb`"),
    ErrorCode("STDOUT_EXCEEDED", "model", "resource_exhausted", "flooded its output"),
    ErrorCode("EXTERNAL_CALLS_EXCEEDED", "model", "resource_exhausted", "called out too often"),
    ErrorCode("STACK_OVERFLOW", "model", "resource_exhausted", "recursed too deep"),
    ErrorCode("OUTPUT_TRUNCATED", "model", None, "a warning: output was cut at `max_stdout_bytes`"),
    # -- a person -------------------------------------------------------------------------------------
    ErrorCode("WAITING_FOR_APPROVAL", "person", "waiting_for_approval", "parked at a call", 3),
    ErrorCode("INTERRUPTED", "person", "interrupted", "stopped at a resumable point", 4),
    ErrorCode("SIGN_IN_REQUIRED", "person", "permission_denied", "a credential needs a sign-in"),
    ErrorCode("CANCELLED", "person", "cancelled", "cancelled by user or host"),
    # -- the operator ---------------------------------------------------------------------------------
    ErrorCode("IO_ERROR", "operator", "runtime_error", "the host could not read or write"),
    ErrorCode("JAIL_UNAVAILABLE", "operator", None, "the jail was demanded and can't be built"),
    ErrorCode("ENGINE_UNAVAILABLE", "operator", "runtime_error", "the code engine can't start"),
    ErrorCode("SURFACE_FAILED", "operator", "runtime_error", "a tool surface can't be connected"),
    ErrorCode("VAULT_UNAVAILABLE", "operator", "runtime_error", "the vault's key or file fails"),
    ErrorCode("AUTH_FAILED", "operator", "runtime_error", "an authorization server refuses"),
    ErrorCode("HOOK_FAILED", "operator", "runtime_error", "a hook failed that may not fail"),
    ErrorCode("MODEL_RATE_LIMITED", "operator", "runtime_error", "the provider wants fewer calls"),
    ErrorCode(
        "MODEL_OVERLOADED", "operator", "runtime_error", "the provider has trouble of its own"
    ),
    ErrorCode("MODEL_TIMEOUT", "operator", "runtime_error", "the provider did not answer in time"),
    ErrorCode("MODEL_STREAM_CUT", "operator", "runtime_error", "an answer broke off in the middle"),
    ErrorCode("MODEL_CONTEXT_EXCEEDED", "operator", "runtime_error", "the prompt is too long"),
    ErrorCode("MODEL_CONTENT_FILTERED", "operator", "runtime_error", "the provider won't answer"),
    ErrorCode(
        "MODEL_AUTH", "operator", "runtime_error", "the provider refuses the key, or has none"
    ),
    ErrorCode(
        "MODEL_INVALID_REQUEST", "operator", "runtime_error", "the provider refuses a request"
    ),
    ErrorCode("MODEL_UNKNOWN", "operator", "runtime_error", "there is no such model", 2),
    ErrorCode("REPLAY_MISMATCH", "operator", None, "a replayed run differs from its record"),
    ErrorCode("SHUTTING_DOWN", "operator", None, "the server is about to stop"),
    ErrorCode("JOURNAL_BUSY", "operator", None, "the journal's file stayed locked"),
    ErrorCode("JOURNAL_FULL", "operator", None, "no room left to append"),
    ErrorCode("JOURNAL_READ_ONLY", "operator", None, "the journal's file can't be written"),
    ErrorCode("JOURNAL_DAMAGED", "operator", None, "the journal's file is torn or not a journal"),
    ErrorCode("JOURNAL_TOO_NEW", "operator", None, "written by a newer holdfast"),
    ErrorCode("JOURNAL_CLOSED", "operator", None, "used after it was closed"),
    ErrorCode("JOURNAL_IO", "operator", None, "reading or writing the journal's file failed"),
    # -- us -------------------------------------------------------------------------------------------
    ErrorCode("SERIALIZE_ERROR", "us", "runtime_error", "the host could not encode a value"),
    ErrorCode("INVARIANT_BROKEN", "us", None, "a lifecycle reached a state that can't be"),
    ErrorCode("INTERNAL_ERROR", "us", "runtime_error", "a bug in holdfast"),
)


class HoldfastError(Exception):
    """Any refusal or failure of holdfast: a stable `code`, one sentence, and a hint for whoever can act."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        span: Span | None = None,
        effect_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.span = span
        self.effect_id = effect_id

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        return CODES[self.code].exit_code

    @property
    def status(self) -> str | None:
        """The `RunStatus` of a run that ends with this error, if one can."""
        return CODES[self.code].status

    def to_json(self) -> dict[str, object]:
        """The `ErrorObject` of this error; absent parts are left out."""
        found: dict[str, object] = {"code": self.code, "message": self.message}
        if self.hint is not None:
            found["hint"] = self.hint
        if self.span is not None:
            found["span"] = {k: v for k, v in self.span._asdict().items() if v is not None}
        if self.effect_id is not None:
            found["effect_id"] = self.effect_id
        return found

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class CallerError(HoldfastError):
    """The request can't be carried out as it was made."""


class NotFound(CallerError):
    """What the request names does not exist."""


class Conflict(CallerError):
    """Somebody else moved first; nothing was written."""


class StalePosition(Conflict):
    """The stream's head is not at the expected position."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            "STALE_POSITION",
            f"Stream `{stream}` is at position {actual}, not {expected}; nothing was written.",
            hint="Read the stream from your last position, then append again.",
        )
        self.expected = expected
        self.actual = actual


class StaleEpoch(Conflict):
    """The writer's epoch is not the stream's, or its lease has run out."""

    def __init__(self, stream: str, given: int | None, actual: int, why: str) -> None:
        super().__init__(
            "STALE_EPOCH",
            f"Stream `{stream}` refused a writer {why}; nothing was written.",
            hint="Claim the stream, read what happened since, and append with the new epoch.",
        )
        self.given = given
        self.actual = actual


class LeaseHeld(Conflict):
    """Another owner holds the lease and it has not run out."""

    def __init__(self, stream: str, owner: str, until: int) -> None:
        super().__init__(
            "LEASE_HELD",
            f"Stream `{stream}` is held by `{owner}` until {until} (unix ms).",
            hint="Wait for the owner to finish, or for the lease to run out, and claim again.",
        )
        self.owner = owner
        self.until = until


class ModelError(HoldfastError):
    """The code an agent wrote failed; the message and hint are written for its repair."""


class PersonError(HoldfastError):
    """A person must decide before this can go on."""


class OperatorError(HoldfastError):
    """The machine, its files or its set-up stand in the way."""


class JournalError(OperatorError):
    """The journal's file stands in the way."""


class ModelFailure(OperatorError):
    """A model's provider refused, was overloaded, or broke off. The code says which, and only the code counts."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        retry_after_ms: int | None = None,
        partial: object = None,
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.retry_after_ms = retry_after_ms
        """How long the provider wants to be left alone."""
        self.partial = partial
        """What came before it broke off: a `ModelAnswer`, or `None`."""


class InternalError(HoldfastError):
    """A bug in holdfast. If you get this error, please report it."""

    def __init__(self, message: str) -> None:
        super().__init__("INTERNAL_ERROR", message, hint="Please report this with the message.")
