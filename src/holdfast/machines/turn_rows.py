"""The rows of the turn machine, and the updates they are made of. `turn.py` says why they are so."""

from __future__ import annotations

from typing import Any

from holdfast.machines import turn_guards as g
from holdfast.machines import turn_inputs as t
from holdfast.machines.kernel import Row, row
from holdfast.machines.outcome import TERMINAL_PHASES, Cause, Outcome, TurnPhase, default_text
from holdfast.machines.retry import RetryPlan
from holdfast.machines.turn_inputs import ACTIVE, IMMEDIATE, LIVE, Turn

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

_STARTABLE = TERMINAL_PHASES | {_READY}
_EXTRACTABLE = frozenset({_EXTRACTING, _CALLING, _DRAINING, _RECOVERY})
_INITIAL = Turn()

# -- updates ------------------------------------------------------------------------------------------


def _ended(
    phase: TurnPhase, outcome: Outcome, s: Turn, cause: Cause | None = None, *, more: int = 0
) -> Turn:
    """The state of a run that is over: all that was pending is gone."""
    return Turn(phase, None, s.run_id, s.shape, None, s.boundaries + more, False, outcome, cause)


def _on(
    phase: TurnPhase,
    s: Turn,
    *,
    batch: t.Batch | None = None,
    extraction: t.Extraction | None = None,
    retry: RetryPlan | None = None,
    more: int = 0,
) -> Turn:
    """The state of a run at work. The hot path: `_replace` would take three times as long."""
    # fmt: off
    return Turn(phase, s.run_id, None, s.shape, batch, s.boundaries + more, s.cancel_requested,
                None, None, extraction, retry)
    # fmt: on


def _completed(s: Turn, _: Any) -> Turn:
    return _ended(_COMPLETED, Outcome.COMPLETED, s)


def _cancelling(s: Turn, _: Any) -> Turn:
    return Turn(_CANCELLING, s.run_id, shape=s.shape, boundaries=s.boundaries)


def _registered(s: Turn, i: t.RegisterPendingOps) -> Turn:
    return _on(_WAITING, s, batch=t.Batch(0, True, i.ops, i.barrier))


def _barrier_passed(s: Turn, i: t.OpsBarrierSatisfied) -> Turn:
    batch: Any = s.batch  # only this phase has one, and always does
    return _on(_WAITING, s, batch=t.Batch(0, True, batch.ops - i.ids))


def _answered(s: Turn, _: Any) -> Turn:
    extraction: Any = s.extraction  # the guard saw it
    return _on(_EXTRACTING, s, extraction=extraction._replace(answered=True))


def _asked_again(s: Turn, _: Any) -> Turn:
    extraction: Any = s.extraction  # only this phase has one, and always does
    asked = t.Extraction(extraction.retries, extraction.attempts + 1)
    return _on(_CALLING, s, extraction=asked)


# -- effects ------------------------------------------------------------------------------------------


def _boundary(new: Turn, run_id: str) -> t.BoundaryApplied:
    return t.BoundaryApplied(run_id, new.boundaries)


def _no_output(old: Turn, new: Turn, i: Any) -> tuple[Any, ...]:
    extraction: Any = old.extraction  # the row was for a run that extracts
    return (t.RunCompleted(i.run_id, i.error, extraction.attempts + 1),)


def _output(old: Turn, new: Turn, i: Any) -> tuple[Any, ...]:
    extraction: Any = old.extraction
    return (t.RunCompleted(i.run_id, None, extraction.attempts),)


def _limit(input_: type, outcome: Outcome, cause: Cause) -> Row[Turn]:
    return row(
        input_,
        ACTIVE,
        _FAILED,
        g.RUN,
        update=lambda s, i: _ended(_FAILED, outcome, s, cause),
        effects=lambda old, new, i: (t.RunFailed(i.run_id, outcome, cause, default_text(cause)),),
        emits=f"RunFailed({outcome.value})",
    )


def _stops_at_the_boundary(input_: type, phase: TurnPhase, condition: Any) -> Row[Turn]:
    return row(
        input_,
        [phase],
        _CANCELLED,
        g.RUN,
        condition,
        g.STOPPING,
        update=lambda s, i: _ended(_CANCELLED, Outcome.CANCELLED, s, more=1),
        effects=lambda old, new, i: (_boundary(new, i.run_id), t.RunCancelled(i.run_id)),
        emits="BoundaryApplied, RunCancelled",
    )


def _leaves_the_boundary(
    input_: type, phase: TurnPhase, condition: Any
) -> tuple[Row[Turn], Row[Turn]]:
    """Done, unless somebody asked to stop here."""
    done = row(
        input_,
        [phase],
        _COMPLETED,
        g.RUN,
        condition,
        g.GOING_ON,
        update=lambda s, i: _ended(_COMPLETED, Outcome.COMPLETED, s, more=1),
        effects=lambda old, new, i: (_boundary(new, i.run_id), t.RunCompleted(i.run_id)),
        emits="BoundaryApplied, RunCompleted",
    )
    return done, _stops_at_the_boundary(input_, phase, condition)


_BEGIN = (
    row(
        t.StartConversation,
        _STARTABLE,
        _APPLYING,
        g.SHAPE,
        update=lambda s, i: Turn(_APPLYING, i.run_id, shape=i.shape),
        effects=lambda old, new, i: (t.RunStarted(i.run_id),),
        emits="RunStarted",
    ),
    row(
        t.StartImmediate,
        _STARTABLE,
        _APPLYING,
        g.KIND,
        update=lambda s, i: Turn(_APPLYING, i.run_id, shape=IMMEDIATE[i.kind]),
        effects=lambda old, new, i: (t.RunStarted(i.run_id),),
        emits="RunStarted",
    ),
    row(
        t.PrimitiveApplied,
        [_APPLYING],
        _CALLING,
        g.RUN,
        g.CONVERSATION,
        update=lambda s, i: _on(_CALLING, s),
        effects=lambda old, new, i: (t.CheckCompaction(),),
        emits="CheckCompaction",
    ),
    *_leaves_the_boundary(t.PrimitiveApplied, _APPLYING, g.APPEND),
)

_ANSWER = (
    row(
        t.LlmReturnedToolCalls,
        [_CALLING],
        _WAITING,
        g.RUN,
        g.SOME_CALLS,
        g.NOT_EXTRACTING,
        update=lambda s, i: _on(_WAITING, s, batch=t.Batch(i.calls)),
    ),
    row(
        t.LlmReturnedTerminal,
        [_CALLING],
        _DRAINING,
        g.RUN,
        update=lambda s, i: _on(_DRAINING, s, extraction=s.extraction),
    ),
    row(
        t.RegisterPendingOps,
        [_WAITING],
        "=",
        g.RUN,
        g.UNREGISTERED,
        g.WITHIN_OPS,
        update=_registered,
    ),
    row(
        t.OpsBarrierSatisfied,
        [_WAITING],
        "=",
        g.RUN,
        g.BARRIER_OPEN,
        g.SAME_BARRIER,
        update=_barrier_passed,
    ),
    row(
        t.ToolCallsResolved,
        [_WAITING],
        _DRAINING,
        g.RUN,
        g.REGISTERED,
        g.NO_BARRIER,
        update=lambda s, i: _on(_DRAINING, s),
    ),
    row(
        t.RecoverableFailure,
        [_CALLING],
        _RECOVERY,
        g.RUN,
        g.RETRYABLE_KIND,
        g.NEXT_ATTEMPT,
        g.WITHIN_MAX,
        update=lambda s, i: _on(_RECOVERY, s, extraction=s.extraction, retry=i.plan),
        effects=lambda old, new, i: (t.Retrying(i.run_id, i.kind, i.plan),),
        emits="Retrying",
    ),
    row(
        t.RetryRequested,
        [_RECOVERY],
        _CALLING,
        g.RUN,
        g.SAME_ATTEMPT,
        update=lambda s, i: _on(_CALLING, s, extraction=s.extraction, retry=s.retry),
    ),
)

_BOUNDARY = (
    row(
        t.BoundaryContinue,
        [_DRAINING],
        _CALLING,
        g.RUN,
        g.NOT_EXTRACTING,
        g.GOING_ON,
        update=lambda s, i: _on(_CALLING, s, more=1),
        effects=lambda old, new, i: (_boundary(new, i.run_id), t.CheckCompaction()),
        emits="BoundaryApplied, CheckCompaction",
    ),
    _stops_at_the_boundary(t.BoundaryContinue, _DRAINING, g.NOT_EXTRACTING),
    *_leaves_the_boundary(t.BoundaryComplete, _DRAINING, g.NOT_EXTRACTING),
)

_EXTRACTION = (
    row(
        t.EnterExtraction,
        [_DRAINING],
        _EXTRACTING,
        g.RUN,
        g.NOT_EXTRACTING,
        g.GOING_ON,
        g.NOT_NEGATIVE,
        update=lambda s, i: _on(_EXTRACTING, s, extraction=t.Extraction(i.retries), more=1),
        effects=lambda old, new, i: (_boundary(new, i.run_id),),
        emits="BoundaryApplied",
    ),
    row(
        t.EnterExtraction,
        [_DRAINING],
        _EXTRACTING,
        g.RUN,
        g.EXTRACTING,
        update=_answered,
        note="with the answer",
    ),
    row(
        t.ExtractionStart,
        [_EXTRACTING],
        _CALLING,
        g.RUN,
        g.NOT_ANSWERED,
        g.GOING_ON,
        update=lambda s, i: _on(_CALLING, s, extraction=s.extraction),
        effects=lambda old, new, i: (t.CheckCompaction(),),
        emits="CheckCompaction",
    ),
    row(
        t.ExtractionValidationPassed,
        [_EXTRACTING],
        _COMPLETED,
        g.RUN,
        g.ANSWERED,
        update=_completed,
        effects=_output,
        emits="RunCompleted",
    ),
    row(
        t.ExtractionValidationFailed,
        [_EXTRACTING],
        _CALLING,
        g.RUN,
        g.ANSWERED,
        g.ASK_AGAIN,
        update=_asked_again,
        effects=lambda old, new, i: (t.CheckCompaction(),),
        emits="CheckCompaction",
    ),
    row(
        t.ExtractionValidationFailed,
        [_EXTRACTING],
        _COMPLETED,
        g.RUN,
        g.ANSWERED,
        g.NO_MORE,
        update=_completed,
        effects=_no_output,
        emits="RunCompleted(extraction_error)",
    ),
    row(
        t.ExtractionFailed,
        _EXTRACTABLE,
        _COMPLETED,
        g.RUN,
        g.EXTRACTING,
        update=_completed,
        effects=_no_output,
        emits="RunCompleted(extraction_error)",
    ),
)

_END = (
    row(
        t.FatalFailure,
        LIVE,
        _FAILED,
        g.RUN,
        g.KNOWN_CAUSE,
        g.NO_LIMIT,
        update=lambda s, i: _ended(_FAILED, Outcome.FAILED, s, i.cause),
        effects=lambda old, new, i: (
            t.RunFailed(i.run_id, Outcome.FAILED, i.cause, i.message or default_text(i.cause)),
        ),
        emits="RunFailed",
    ),
    _limit(t.TurnLimitReached, Outcome.FAILED, Cause.TURN_LIMIT_REACHED),
    _limit(t.BudgetExhausted, Outcome.BUDGET_EXHAUSTED, Cause.BUDGET_EXHAUSTED),
    _limit(t.TimeBudgetExceeded, Outcome.TIME_BUDGET_EXCEEDED, Cause.TIME_BUDGET_EXCEEDED),
    row(t.CancelNow, ACTIVE, _CANCELLING, g.RUN, update=_cancelling),
    row(
        t.RequestCancelAfterBoundary,
        ACTIVE,
        "=",
        g.RUN,
        update=lambda s, i: s._replace(cancel_requested=True),
    ),
    row(
        t.CancellationObserved,
        [_CANCELLING],
        _CANCELLED,
        g.RUN,
        update=lambda s, i: _ended(_CANCELLED, Outcome.CANCELLED, s),
        effects=lambda old, new, i: (t.RunCancelled(i.run_id),),
        emits="RunCancelled",
    ),
    row(
        t.AcknowledgeTerminal,
        TERMINAL_PHASES,
        _READY,
        g.ENDED_RUN,
        g.OUTCOME,
        update=lambda s, i: _INITIAL,
    ),
)

ROWS = (*_BEGIN, *_ANSWER, *_BOUNDARY, *_EXTRACTION, *_END)
"""The table."""
