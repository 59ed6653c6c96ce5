"""What the phases and endings of a turn mean to everybody outside of it. Pure functions, total.

A run's ending is two facts: the outcome, and on a failure its cause. Whether the caller gets a value or an error
follows from the two by `caller_gets` and by nothing else; a message never classifies anything. A spent token or
tool-call budget is an orderly stop with a partial answer, a spent deadline is a failure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TurnPhase(StrEnum):
    """Where a turn is."""

    READY = "Ready"
    APPLYING_PRIMITIVE = "ApplyingPrimitive"
    CALLING_LLM = "CallingLlm"
    WAITING_FOR_OPS = "WaitingForOps"
    DRAINING_BOUNDARY = "DrainingBoundary"
    EXTRACTING = "Extracting"
    ERROR_RECOVERY = "ErrorRecovery"
    CANCELLING = "Cancelling"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    # The turn machine looks its phase up on every step; the enum's own hash is a Python function.
    __hash__ = str.__hash__


class LoopState(StrEnum):
    """What a user is told about a turn; goes over the wire."""

    CALLING_LLM = "calling_llm"
    WAITING_FOR_OPS = "waiting_for_ops"
    DRAINING_EVENTS = "draining_events"
    ERROR_RECOVERY = "error_recovery"
    CANCELLING = "cancelling"
    COMPLETED = "completed"

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for somebody else."""
        return self in (LoopState.CALLING_LLM, LoopState.WAITING_FOR_OPS)


class Outcome(StrEnum):
    """How a turn ended; `None` while it has not."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    TIME_BUDGET_EXCEEDED = "TimeBudgetExceeded"
    STRUCTURED_OUTPUT_VALIDATION_FAILED = "StructuredOutputValidationFailed"
    """Not reached by the turn machine, where a failed extraction completes; other hosts may report it."""


class Cause(StrEnum):
    """Why a turn failed. `Unknown` is never good enough for a failure."""

    UNKNOWN = "Unknown"
    HOOK_DENIED = "HookDenied"
    HOOK_FAILURE = "HookFailure"
    LLM_FAILURE = "LlmFailure"
    TOOL_FAILURE = "ToolFailure"
    STRUCTURED_OUTPUT_VALIDATION_FAILED = "StructuredOutputValidationFailed"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    TIME_BUDGET_EXCEEDED = "TimeBudgetExceeded"
    RETRY_EXHAUSTED = "RetryExhausted"
    TURN_LIMIT_REACHED = "TurnLimitReached"
    RUNTIME_APPLY_FAILURE = "RuntimeApplyFailure"
    FATAL_FAILURE = "FatalFailure"


class ErrorClass(StrEnum):
    """Which part of the system failed."""

    LLM = "Llm"
    STORE = "Store"
    TOOL = "Tool"
    MCP = "Mcp"
    SESSION_NOT_FOUND = "SessionNotFound"
    BUDGET = "Budget"
    MAX_TOKENS = "MaxTokens"
    CONTENT_FILTERED = "ContentFiltered"
    MAX_TURNS = "MaxTurns"
    CANCELLED = "Cancelled"
    INVALID_STATE = "InvalidState"
    OPERATION_NOT_FOUND = "OperationNotFound"
    DEPTH_LIMIT = "DepthLimit"
    CONCURRENCY_LIMIT = "ConcurrencyLimit"
    CONFIG = "Config"
    INTERNAL = "Internal"
    BUILD = "Build"
    AUTH = "Auth"
    CALLBACK_PENDING = "CallbackPending"
    STRUCTURED_OUTPUT = "StructuredOutput"
    INVALID_OUTPUT_SCHEMA = "InvalidOutputSchema"
    HOOK = "Hook"
    TERMINAL = "Terminal"
    NO_PENDING_BOUNDARY = "NoPendingBoundary"


TERMINAL_PHASES = frozenset({TurnPhase.COMPLETED, TurnPhase.FAILED, TurnPhase.CANCELLED})
"""Nothing goes on from here but an acknowledgement or the next start."""

_LOOP_STATES = {
    TurnPhase.READY: LoopState.CALLING_LLM,
    TurnPhase.APPLYING_PRIMITIVE: LoopState.CALLING_LLM,
    TurnPhase.CALLING_LLM: LoopState.CALLING_LLM,
    TurnPhase.WAITING_FOR_OPS: LoopState.WAITING_FOR_OPS,
    TurnPhase.DRAINING_BOUNDARY: LoopState.DRAINING_EVENTS,
    TurnPhase.EXTRACTING: LoopState.DRAINING_EVENTS,
    TurnPhase.ERROR_RECOVERY: LoopState.ERROR_RECOVERY,
    TurnPhase.CANCELLING: LoopState.CANCELLING,
    TurnPhase.COMPLETED: LoopState.COMPLETED,
    TurnPhase.FAILED: LoopState.COMPLETED,
    TurnPhase.CANCELLED: LoopState.COMPLETED,
}

_CLASSES = {
    Cause.UNKNOWN: ErrorClass.INTERNAL,
    Cause.HOOK_DENIED: ErrorClass.HOOK,
    Cause.HOOK_FAILURE: ErrorClass.HOOK,
    Cause.LLM_FAILURE: ErrorClass.LLM,
    Cause.TOOL_FAILURE: ErrorClass.TOOL,
    Cause.STRUCTURED_OUTPUT_VALIDATION_FAILED: ErrorClass.STRUCTURED_OUTPUT,
    Cause.BUDGET_EXHAUSTED: ErrorClass.BUDGET,
    Cause.TIME_BUDGET_EXCEEDED: ErrorClass.BUDGET,
    Cause.RETRY_EXHAUSTED: ErrorClass.LLM,
    Cause.TURN_LIMIT_REACHED: ErrorClass.MAX_TURNS,
    Cause.RUNTIME_APPLY_FAILURE: ErrorClass.INTERNAL,
    Cause.FATAL_FAILURE: ErrorClass.TERMINAL,
}

_TEXTS = {
    Cause.UNKNOWN: "unknown failure",
    Cause.HOOK_DENIED: "hook denied terminal turn",
    Cause.HOOK_FAILURE: "hook failure terminal turn",
    Cause.LLM_FAILURE: "LLM failure terminal turn",
    Cause.TOOL_FAILURE: "tool failure terminal turn",
    Cause.STRUCTURED_OUTPUT_VALIDATION_FAILED: "structured output validation failed",
    Cause.BUDGET_EXHAUSTED: "budget exhausted",
    Cause.TIME_BUDGET_EXCEEDED: "time budget exceeded",
    Cause.RETRY_EXHAUSTED: "retry exhausted",
    Cause.TURN_LIMIT_REACHED: "turn limit reached",
    Cause.RUNTIME_APPLY_FAILURE: "runtime apply failure",
    Cause.FATAL_FAILURE: "fatal turn failure",
}

MISSING_TERMINAL = "missing terminal"
"""The text of a result that was asked for before there was one."""


class Gets(StrEnum):
    """What the caller of a run gets."""

    SUCCESS = "success"
    CANCELLED = "cancelled"
    TERMINAL_FAILURE = "terminal_failure"
    INTERNAL_ERROR = "internal_error"


class CallerResult(NamedTuple):
    """The ending of a run as its caller sees it."""

    gets: Gets
    """A value or which kind of error."""
    outcome: Outcome | None
    """As the turn recorded it."""
    cause: Cause | None
    """Set on a failure, and on the success of a spent budget: the answer is partial."""
    text: str = ""
    """The default text of an error; empty on success."""


def loop_state(phase: TurnPhase) -> LoopState:
    """What a user is told about a turn in `phase`."""
    return _LOOP_STATES[phase]


def error_class(cause: Cause) -> ErrorClass:
    """Which part of the system a cause blames."""
    return _CLASSES[cause]


def default_text(cause: Cause | None) -> str:
    """What a failure says when nobody said more."""
    return "unknown failure" if cause is None else _TEXTS[cause]


def caller_gets(outcome: Outcome | None, cause: Cause | None) -> CallerResult:
    """What a run's ending is to its caller; every pair has an answer."""
    uncaused = cause is None or cause is Cause.UNKNOWN
    if outcome is None:
        return CallerResult(Gets.INTERNAL_ERROR, outcome, cause, MISSING_TERMINAL)
    if outcome is Outcome.COMPLETED and uncaused:
        return CallerResult(Gets.SUCCESS, outcome, None)
    if outcome is Outcome.BUDGET_EXHAUSTED and cause is Cause.BUDGET_EXHAUSTED:
        return CallerResult(Gets.SUCCESS, outcome, cause)
    if outcome is Outcome.CANCELLED and uncaused:
        return CallerResult(Gets.CANCELLED, outcome, None, "cancelled")
    return CallerResult(Gets.TERMINAL_FAILURE, outcome, cause, default_text(cause))
