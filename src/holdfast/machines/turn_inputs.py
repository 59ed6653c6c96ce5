"""What goes into and comes out of the turn machine: its state, its inputs, its effects."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.outcome import Cause, Outcome, TurnPhase
from holdfast.machines.retry import FailureKind, RetryPlan

ACTIVE = frozenset(
    {
        TurnPhase.APPLYING_PRIMITIVE,
        TurnPhase.CALLING_LLM,
        TurnPhase.WAITING_FOR_OPS,
        TurnPhase.DRAINING_BOUNDARY,
        TurnPhase.EXTRACTING,
        TurnPhase.ERROR_RECOVERY,
    }
)
"""The phases in which a run is at work."""

LIVE = ACTIVE | {TurnPhase.CANCELLING}
"""The phases in which there is a run."""


class ContentShape(StrEnum):
    """What was admitted into a turn."""

    CONVERSATION = "conversation"
    CONVERSATION_AND_CONTEXT = "conversation+context"
    CONTEXT = "context"
    EMPTY = "empty"
    IMMEDIATE_APPEND = "immediate_append"
    IMMEDIATE_CONTEXT = "immediate_context"


class PrimitiveKind(StrEnum):
    """What kind of work a turn is; follows from its shape."""

    CONVERSATION_TURN = "ConversationTurn"
    IMMEDIATE_APPEND = "ImmediateAppend"
    IMMEDIATE_CONTEXT_APPEND = "ImmediateContextAppend"


IMMEDIATE = {
    PrimitiveKind.IMMEDIATE_APPEND: ContentShape.IMMEDIATE_APPEND,
    PrimitiveKind.IMMEDIATE_CONTEXT_APPEND: ContentShape.IMMEDIATE_CONTEXT,
}
"""The kinds that never reach the model, and their shapes."""

CONVERSATIONS = frozenset(ContentShape) - frozenset(IMMEDIATE.values())
"""The shapes a model is asked about."""


def staged_shape(*, appends: bool, context: bool) -> ContentShape:
    """The shape of staged input."""
    if appends:
        return ContentShape.CONVERSATION_AND_CONTEXT if context else ContentShape.CONVERSATION
    return ContentShape.CONTEXT if context else ContentShape.EMPTY


def kind_of(shape: ContentShape) -> PrimitiveKind:
    """The kind of work a shape is."""
    for kind, immediate in IMMEDIATE.items():
        if shape is immediate:
            return kind
    return PrimitiveKind.CONVERSATION_TURN


class Batch(NamedTuple):
    """The tool calls of one model answer."""

    calls: int
    """Those whose operations are not known yet."""
    registered: bool = False
    """Whether the operations are known."""
    ops: frozenset[str] = frozenset()
    """The operations that may still be open."""
    barrier: frozenset[str] = frozenset()
    """Those of them that must end before the calls count as resolved."""


class Extraction(NamedTuple):
    """The asking for structured output."""

    retries: int
    """How often the model may be asked again."""
    attempts: int = 0
    """Answers that were no good."""
    answered: bool = False
    """Whether an answer is here and not judged yet."""


class Turn(NamedTuple):
    """The state of one run."""

    phase: TurnPhase = TurnPhase.READY
    run_id: str | None = None
    """The run, while it lives."""
    ended_run_id: str | None = None
    """The run, once it is over and until it is acknowledged."""
    shape: ContentShape | None = None
    """What was admitted."""
    batch: Batch | None = None
    """The tool calls under way."""
    boundaries: int = 0
    """Boundaries left so far."""
    cancel_requested: bool = False
    """Stop at the next boundary."""
    outcome: Outcome | None = None
    """How it ended."""
    cause: Cause | None = None
    """Why, on a failure."""
    extraction: Extraction | None = None
    """Present while the model is being asked for structured output."""
    retry: RetryPlan | None = None
    """The newest plan of the model call under way."""


# -- inputs: every one quotes the run it means ---------------------------------------------------------


class StartConversation(NamedTuple):
    """Begin a run that asks the model."""

    run_id: str
    shape: ContentShape


class StartImmediate(NamedTuple):
    """Begin a run that only appends."""

    run_id: str
    kind: PrimitiveKind


class PrimitiveApplied(NamedTuple):
    """What was admitted is part of the conversation now."""

    run_id: str


class LlmReturnedToolCalls(NamedTuple):
    """The model wants tools."""

    run_id: str
    calls: int


class LlmReturnedTerminal(NamedTuple):
    """The model answered without tools."""

    run_id: str


class RegisterPendingOps(NamedTuple):
    """The tool calls became these operations."""

    run_id: str
    ops: frozenset[str]
    barrier: frozenset[str]


class OpsBarrierSatisfied(NamedTuple):
    """Every operation of the barrier ended."""

    run_id: str
    ids: frozenset[str]


class ToolCallsResolved(NamedTuple):
    """Every tool call has its result."""

    run_id: str


class BoundaryContinue(NamedTuple):
    """Leave the boundary for another model call."""

    run_id: str


class BoundaryComplete(NamedTuple):
    """Leave the boundary: the run is done."""

    run_id: str


class EnterExtraction(NamedTuple):
    """Ask for structured output, or judge the answer to that."""

    run_id: str
    retries: int = 2


class ExtractionStart(NamedTuple):
    """Ask for the structured output."""

    run_id: str


class ExtractionValidationPassed(NamedTuple):
    """The structured output is good."""

    run_id: str


class ExtractionValidationFailed(NamedTuple):
    """The structured output is no good."""

    run_id: str
    error: str


class ExtractionFailed(NamedTuple):
    """There will be no structured output."""

    run_id: str
    error: str


class RecoverableFailure(NamedTuple):
    """The model call failed and may be tried again."""

    run_id: str
    kind: FailureKind
    plan: RetryPlan


class RetryRequested(NamedTuple):
    """The wait is over."""

    run_id: str
    attempt: int


class FatalFailure(NamedTuple):
    """The run can't go on."""

    run_id: str
    cause: Cause
    message: str = ""


class TurnLimitReached(NamedTuple):
    """As many model calls as allowed."""

    run_id: str


class BudgetExhausted(NamedTuple):
    """The token or tool-call budget is spent."""

    run_id: str


class TimeBudgetExceeded(NamedTuple):
    """The time is up."""

    run_id: str


class CancelNow(NamedTuple):
    """Stop without waiting for a boundary."""

    run_id: str


class RequestCancelAfterBoundary(NamedTuple):
    """Stop at the next boundary."""

    run_id: str


class CancellationObserved(NamedTuple):
    """The work has stopped."""

    run_id: str


class AcknowledgeTerminal(NamedTuple):
    """The ending was taken note of."""

    run_id: str
    outcome: Outcome


# -- effects ------------------------------------------------------------------------------------------


class RunStarted(NamedTuple):
    """The run began."""

    run_id: str


class CheckCompaction(NamedTuple):
    """See whether the history is too long for the call that follows."""


class BoundaryApplied(NamedTuple):
    """A boundary was left; the run's messages up to here are committed."""

    run_id: str
    sequence: int


class Retrying(NamedTuple):
    """Sleep, then request the retry."""

    run_id: str
    kind: FailureKind
    plan: RetryPlan


class RunCompleted(NamedTuple):
    """The run is done."""

    run_id: str
    extraction_error: str | None = None
    """Why there is no structured output, when some was wanted."""
    extraction_attempts: int = 0
    """Answers that were no good."""


class RunFailed(NamedTuple):
    """The run failed."""

    run_id: str
    outcome: Outcome
    cause: Cause
    message: str


class RunCancelled(NamedTuple):
    """The run was stopped."""

    run_id: str
