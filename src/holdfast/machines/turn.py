"""One run of the model loop, from what was admitted to how it ended.

What the table guarantees: every input quotes its run, so a late call from an earlier run is refused; tool calls are
resolved only when no operation of the barrier is open; a requested cancel stops the run at its next boundary and no
further model call is started; an ending is never rewritten; nothing that was pending survives the end of a run.

Whether the barrier is open is the set itself, and what kind of work a run is follows from its shape: neither is
stored twice. Where this differs from `machines.md` §3.6, on purpose:

* Two extraction facts, not one. With `attempts = 0` alone the first question could be asked again and again after its
  answer; `answered` makes "ask" and "judge" exclude each other, so there are at most 1 + retries calls.
* A requested cancel also ends the asking in an extraction: the main answer is committed by then, so the run completes
  without structured output instead of starting another call.
* `ended_run_id`: an acknowledgement is late like anything else, so it too must name its run.
* Attempts of a retry count up one by one, and only typed retryable failures get a plan.
* `FatalFailure` may not claim the cause of a limit: limits have inputs of their own, so outcome and cause always pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.machines import turn_inputs as t
from holdfast.machines.kernel import Machine, Within
from holdfast.machines.outcome import TERMINAL_PHASES, Cause, Outcome, TurnPhase
from holdfast.machines.retry import FailureKind, RetryPlan
from holdfast.machines.turn_inputs import (
    ACTIVE,
    CONVERSATIONS,
    LIVE,
    ContentShape,
    PrimitiveKind,
    Turn,
)
from holdfast.machines.turn_rows import ROWS

# Looking a member up in its class is a Python call before 3.12, and this is the hot path.
(
    _READY,
    _APPLYING,
    _CALLING,
    _WAITING,
    _DRAINING,
    _EXTRACTING,
    _RECOVERY,
    _CANCELLING,
    _COMPLETED,
    _FAILED,
    _CANCELLED,
) = TurnPhase
_UNKNOWN = Cause.UNKNOWN
_INITIAL = Turn()
_ASKING = LIVE - {_APPLYING, _CANCELLING}
_EXTRACTABLE = frozenset({_EXTRACTING, _CALLING, _DRAINING, _RECOVERY})
_ENDINGS = {
    _COMPLETED: {Outcome.COMPLETED},
    _CANCELLED: {Outcome.CANCELLED},
    _FAILED: {Outcome.FAILED, Outcome.BUDGET_EXHAUSTED, Outcome.TIME_BUDGET_EXCEEDED},
}
_PAIRS = {
    Outcome.BUDGET_EXHAUSTED: Cause.BUDGET_EXHAUSTED,
    Outcome.TIME_BUDGET_EXCEEDED: Cause.TIME_BUDGET_EXCEEDED,
}

# -- invariants: `machines.md` §3.7, in its order --------------------------------------------------------


def _live_or_not(s: Turn) -> bool:
    if s.phase not in LIVE:
        return s.run_id is None
    given = s.run_id is not None and s.shape is not None
    return given and s.outcome is None and s.cause is None and s.ended_run_id is None


def _ending_fits(s: Turn) -> bool:
    if s.ended_run_id is None or s.outcome not in _ENDINGS[s.phase]:
        return False
    if s.phase is not _FAILED:
        return s.cause is None
    if s.cause is None or s.cause is _UNKNOWN:
        return False
    return all((s.outcome is outcome) == (s.cause is cause) for outcome, cause in _PAIRS.items())


def _batch_fits(s: Turn) -> bool:
    batch = s.batch
    if batch is None or s.phase is not _WAITING:
        return batch is None and s.phase is not _WAITING
    if not batch.registered:
        return batch.calls > 0 and not batch.ops and not batch.barrier
    return batch.calls == 0 and batch.barrier <= batch.ops


def _extraction_fits(s: Turn) -> bool:
    asked = s.extraction
    if asked is None:
        return s.phase is not _EXTRACTING
    if s.phase not in _EXTRACTABLE or (asked.answered and s.phase is not _EXTRACTING):
        return False
    return 0 <= asked.attempts <= asked.retries


def _retry_fits(s: Turn) -> bool:
    plan = s.retry
    if plan is None:
        return s.phase is not _RECOVERY
    at_the_model = s.phase is _RECOVERY or s.phase is _CALLING
    return at_the_model and 1 <= plan.attempt <= plan.max_retries


def _boundaries_fit(s: Turn) -> bool:
    """As much of the ninth as one state shows; that the count only rises is a matter of steps."""
    if s.boundaries:
        return s.phase is not _APPLYING and s.boundaries > 0
    return s.extraction is None and s.phase is not _COMPLETED


_INVARIANTS: dict[str, Callable[[Turn], bool]] = {
    "Ready holds nothing": Within(frozenset({_READY}), lambda s: s == _INITIAL),
    "a live phase has a run and no ending, and no other phase has a run": _live_or_not,
    "a terminal phase names its run, a fitting outcome, and on a failure the cause": Within(
        TERMINAL_PHASES, _ending_fits
    ),
    "operations are open exactly while they are waited for, the barrier among them": _batch_fits,
    "extraction stays in its phases and within its retries": _extraction_fits,
    "recovery follows a plan of 1 ≤ attempt ≤ max": _retry_fits,
    "immediate appends never reach the model": Within(_ASKING, lambda s: s.shape in CONVERSATIONS),
    "a cancel is only pending in a run at work": Within(
        frozenset(TurnPhase) - ACTIVE, lambda s: not s.cancel_requested
    ),
    "boundaries come after what was admitted and before completion": _boundaries_fit,
}


def _alphabet(s: Turn) -> Iterator[Any]:
    """Inputs of two runs, and for the run at hand every argument that makes a difference."""
    for run in ("a", "b"):
        yield t.StartConversation(run, ContentShape.CONVERSATION)
        yield t.StartConversation(run, ContentShape.IMMEDIATE_APPEND)
        yield t.StartImmediate(run, PrimitiveKind.IMMEDIATE_APPEND)
        yield t.StartImmediate(run, PrimitiveKind.CONVERSATION_TURN)
        yield from (kind(run) for kind in _PLAIN)
        for count in (0, 1):
            yield t.LlmReturnedToolCalls(run, count)
        for ops, barrier in (("", ""), ("x", ""), ("x", "x"), ("xy", "x"), ("x", "y")):
            yield t.RegisterPendingOps(run, frozenset(ops), frozenset(barrier))
        for ids in ("", "x", "xy"):
            yield t.OpsBarrierSatisfied(run, frozenset(ids))
        for retries in (-1, 0, 1):
            yield t.EnterExtraction(run, retries)
        for error in (t.ExtractionValidationFailed, t.ExtractionFailed):
            yield error(run, "bad")
        for attempt in (0, 1, 2, 3):
            plan = RetryPlan(attempt, 2, 500, 500)
            yield t.RecoverableFailure(run, FailureKind.CALL_TIMEOUT, plan)
            yield t.RetryRequested(run, attempt)
        yield t.RecoverableFailure(run, FailureKind.AUTH, RetryPlan(1, 2, 500, 500))
        for cause in (Cause.TOOL_FAILURE, Cause.UNKNOWN, Cause.BUDGET_EXHAUSTED):
            yield t.FatalFailure(run, cause)
        for outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED):
            yield t.AcknowledgeTerminal(run, outcome)
        yield t.AcknowledgeTerminal(run, Outcome.BUDGET_EXHAUSTED)
        yield t.AcknowledgeTerminal(run, Outcome.TIME_BUDGET_EXCEEDED)


_PLAIN = (
    t.PrimitiveApplied,
    t.LlmReturnedTerminal,
    t.ToolCallsResolved,
    t.BoundaryContinue,
    t.BoundaryComplete,
    t.ExtractionStart,
    t.ExtractionValidationPassed,
    t.TurnLimitReached,
    t.BudgetExhausted,
    t.TimeBudgetExceeded,
    t.CancelNow,
    t.RequestCancelAfterBoundary,
    t.CancellationObserved,
)

TURN: Machine[Turn] = Machine(
    name="turn",
    purpose="One run of the model loop, from what was admitted to how it ended.",
    initial=_INITIAL,
    rows=ROWS,
    invariants=_INVARIANTS,
    ends=frozenset({_READY, *TERMINAL_PHASES}),
    alphabet=_alphabet,
    bounded=lambda s: s.boundaries < 3,
)
