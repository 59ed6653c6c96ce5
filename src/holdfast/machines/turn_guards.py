"""What the rows of the turn machine may ask, by name."""

from __future__ import annotations

from holdfast.machines.kernel import guard
from holdfast.machines.outcome import Cause
from holdfast.machines.retry import RETRYABLE
from holdfast.machines.turn_inputs import CONVERSATIONS, IMMEDIATE, Turn

_LIMITS = frozenset({Cause.TURN_LIMIT_REACHED, Cause.BUDGET_EXHAUSTED, Cause.TIME_BUDGET_EXCEEDED})


def _may_ask_again(s: Turn) -> bool:
    asked = s.extraction
    return asked is not None and asked.attempts < asked.retries and not s.cancel_requested


RUN = guard("run_matches", lambda s, i: i.run_id == s.run_id)
ENDED_RUN = guard("run_matches_ended", lambda s, i: i.run_id == s.ended_run_id)
OUTCOME = guard("outcome_as_stored", lambda s, i: i.outcome is s.outcome)
SHAPE = guard("shape_is_a_conversation", lambda s, i: i.shape in CONVERSATIONS)
KIND = guard("kind_is_immediate", lambda s, i: i.kind in IMMEDIATE)
CONVERSATION = guard("asks_the_model", lambda s, i: s.shape in CONVERSATIONS)
APPEND = guard("only_appends", lambda s, i: s.shape not in CONVERSATIONS)
GOING_ON = guard("cancel_not_requested", lambda s, i: not s.cancel_requested)
STOPPING = guard("cancel_requested", lambda s, i: s.cancel_requested)
NOT_EXTRACTING = guard("not_extracting", lambda s, i: s.extraction is None)
EXTRACTING = guard("extracting", lambda s, i: s.extraction is not None)
SOME_CALLS = guard("some_calls", lambda s, i: i.calls > 0)
UNREGISTERED = guard("ops_not_registered", lambda s, i: not s.batch.registered)
REGISTERED = guard("ops_registered", lambda s, i: s.batch.registered)
WITHIN_OPS = guard("barrier_within_ops", lambda s, i: i.barrier <= i.ops)
BARRIER_OPEN = guard("barrier_open", lambda s, i: bool(s.batch.barrier))
SAME_BARRIER = guard("ids_are_the_barrier", lambda s, i: i.ids == s.batch.barrier)
NO_BARRIER = guard("no_barrier_open", lambda s, i: not s.batch.barrier)
NOT_NEGATIVE = guard("retries_not_negative", lambda s, i: i.retries >= 0)
NOT_ANSWERED = guard("not_asked_yet", lambda s, i: not s.extraction.answered)
ANSWERED = guard("answer_to_judge", lambda s, i: s.extraction.answered)
ASK_AGAIN = guard("may_ask_again", lambda s, i: _may_ask_again(s))
NO_MORE = guard("may_not_ask_again", lambda s, i: not _may_ask_again(s))
RETRYABLE_KIND = guard("failure_is_retryable", lambda s, i: i.kind in RETRYABLE)
NEXT_ATTEMPT = guard(
    "attempt_is_next", lambda s, i: i.plan.attempt == (s.retry.attempt if s.retry else 0) + 1
)
WITHIN_MAX = guard("attempt_within_max", lambda s, i: i.plan.attempt <= i.plan.max_retries)
SAME_ATTEMPT = guard("attempt_is_planned", lambda s, i: i.attempt == s.retry.attempt)
KNOWN_CAUSE = guard("cause_known", lambda s, i: i.cause is not Cause.UNKNOWN)
NO_LIMIT = guard("cause_is_no_limit", lambda s, i: i.cause not in _LIMITS)
