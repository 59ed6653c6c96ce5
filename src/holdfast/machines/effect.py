"""One effect: intended, executed, and how it ended; or in doubt, until somebody who knows says so.

What the table guarantees: one intent per effect and nothing executed without it; at most one result, and never before
the intent; a result counts only for the attempt it belongs to; doubt is never cleared by time, by a restart or by an
executor that guesses. It ends by a person's word (it happened / it did not / do it again), or by a reconciler's. Doing
it again keeps the effect id, which is the executor's idempotency key, and raises the attempt.

Only intents and results are on record, so an owner that is gone leaves the same doubt whether it had begun or not;
`Lose` repeats what is harmless to repeat (a read, an idempotent call, a key the other side knows), and doubts the rest.

A timeout of something that must not be repeated is no answer: it is filed as `unknown`. `denied_before_execution`
says "it did not happen", which is only true of the first attempt: a refused repetition leaves the doubt of the attempt
before it. `did_not_happen` ends as `failed`; `resolved` tells a person's word from an executor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Any, Literal, NamedTuple

from holdfast.contracts.effect import EffectStatus
from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Where an effect is; the last six are its statuses."""

    UNRECORDED = "unrecorded"
    INTENT = "intent"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DENIED_BEFORE_EXECUTION = "denied_before_execution"
    UNKNOWN = "unknown"


class Answer(StrEnum):
    """What a person may say about an effect in doubt."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    RETRY = "retry"


class Finding(StrEnum):
    """What a reconciler may say about an effect in doubt."""

    COMPLETED = "completed"
    FAILED = "failed"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


class Effect(NamedTuple):
    """The state."""

    phase: Phase = Phase.UNRECORDED
    effect_id: str | None = None
    attempt: int = 0
    """Counts executions, from 1."""
    repeatable: bool = False
    """Whether doing it again is harmless."""
    reconcilable: bool = False
    """Whether a reconciler can tell what became of it."""
    resolved: Answer | None = None
    """A person's word, when it ended by one."""


# -- inputs -------------------------------------------------------------------------------------------


class Intend(NamedTuple):
    """It is about to happen; durable before it does."""

    effect_id: str
    repeatable: bool = False
    reconcilable: bool = False


class Deny(NamedTuple):
    """It must not, or need not, happen: a policy, an approval, a cancelled run."""

    effect_id: str
    attempt: int


class Begin(NamedTuple):
    """Execute it."""

    effect_id: str
    attempt: int


class Finish(NamedTuple):
    """What the executor says."""

    effect_id: str
    attempt: int
    status: EffectStatus


class Lose(NamedTuple):
    """Its owner is gone, and no result is on record."""

    effect_id: str
    attempt: int


class Reconcile(NamedTuple):
    """What the reconciler found out."""

    effect_id: str
    attempt: int
    said: Finding


class Resolve(NamedTuple):
    """What a person says."""

    effect_id: str
    attempt: int
    said: Answer


# -- effects ------------------------------------------------------------------------------------------


class RecordIntent(NamedTuple):
    """Write the intent, before anything else; the only one."""

    effect_id: str


class RecordAttempt(NamedTuple):
    """Write that it will be tried again, before it is."""

    effect_id: str
    attempt: int


class Execute(NamedTuple):
    """Do it, with the effect id as the idempotency key."""

    effect_id: str
    attempt: int


class RecordResult(NamedTuple):
    """Write how the attempt ended; at most one for each."""

    effect_id: str
    attempt: int
    status: EffectStatus


class RecordResolution(NamedTuple):
    """Write who ended the doubt with which word."""

    effect_id: str
    attempt: int
    said: Answer | Finding


class Ask(NamedTuple):
    """Find out what became of it, from whoever can tell."""

    effect_id: str
    attempt: int
    whom: Literal["reconciler", "person"]


# -- guards -------------------------------------------------------------------------------------------


def _leaves_doubt(s: Effect, status: EffectStatus) -> bool:
    overdue = status is EffectStatus.TIMED_OUT and not s.repeatable
    return overdue or status is EffectStatus.UNKNOWN


EFFECT_ID = guard("effect_matches", lambda s, i: i.effect_id == s.effect_id)
ATTEMPT = guard("attempt_current", lambda s, i: i.attempt == s.attempt)
TOKEN = (EFFECT_ID, ATTEMPT)
FIRST = guard("never_tried", lambda s, i: s.attempt == 1)
AGAIN = guard("tried_before", lambda s, i: s.attempt > 1)
EXECUTED = guard(
    "says_it_was_tried", lambda s, i: i.status is not EffectStatus.DENIED_BEFORE_EXECUTION
)
CERTAIN = guard("answer_is_certain", lambda s, i: not _leaves_doubt(s, i.status))
DOUBTFUL = guard("answer_leaves_doubt", lambda s, i: _leaves_doubt(s, i.status))
REPEATABLE = guard("repeatable", lambda s, i: s.repeatable)
UNREPEATABLE = guard("not_repeatable", lambda s, i: not s.repeatable)
RECONCILABLE = guard("has_a_reconciler", lambda s, i: s.reconcilable)
FOUND = guard("found_out", lambda s, i: i.said in (Finding.COMPLETED, Finding.FAILED))
NOT_STARTED = guard("found_not_started", lambda s, i: i.said is Finding.NOT_STARTED)
NOT_FOUND = guard("found_nothing", lambda s, i: i.said is Finding.UNKNOWN)
SETTLED = guard("answer_settles_it", lambda s, i: i.said is not Answer.RETRY)
RETRY = guard("answer_is_retry", lambda s, i: i.said is Answer.RETRY)

_NEW, _INTENT, _EXECUTING, _COMPLETED, _FAILED, _TIMED_OUT, _CANCELLED, _DENIED, _UNKNOWN = Phase
_SETTLES = {Answer.HAPPENED: _COMPLETED, Answer.DID_NOT_HAPPEN: _FAILED}

# -- updates and effects ------------------------------------------------------------------------------


def _again(s: Effect, _: Any) -> Effect:
    return s._replace(phase=_INTENT, attempt=s.attempt + 1)


def _doubt(s: Effect, _: Any) -> Effect:
    return s._replace(phase=_UNKNOWN)


def _ask(old: Effect, new: Effect, i: Any) -> tuple[Any, ...]:
    return (Ask(i.effect_id, new.attempt, "reconciler" if new.reconcilable else "person"),)


def _recorded(old: Effect, new: Effect, i: Any) -> tuple[Any, ...]:
    return (RecordResult(i.effect_id, i.attempt, EffectStatus(new.phase.value)),)


def _attempt(old: Effect, new: Effect, i: Any) -> tuple[Any, ...]:
    return (RecordAttempt(i.effect_id, new.attempt),)


def _resolved(old: Effect, new: Effect, i: Reconcile | Resolve) -> tuple[Any, ...]:
    said = RecordResolution(i.effect_id, i.attempt, i.said)
    return (said, *_attempt(old, new, i)) if new.phase is _INTENT else (said,)


_ROWS = (
    row(
        Intend,
        [_NEW],
        _INTENT,
        update=lambda s, i: Effect(_INTENT, i.effect_id, 1, i.repeatable, i.reconcilable),
        effects=lambda old, new, i: (RecordIntent(i.effect_id),),
        emits="RecordIntent",
    ),
    row(
        Deny,
        [_INTENT],
        _DENIED,
        *TOKEN,
        FIRST,
        update=lambda s, i: s._replace(phase=_DENIED),
        effects=_recorded,
        emits="RecordResult",
    ),
    row(
        Deny,
        [_INTENT],
        _UNKNOWN,
        *TOKEN,
        AGAIN,
        update=_doubt,
        effects=_ask,
        emits="Ask",
    ),
    row(
        Begin,
        [_INTENT],
        _EXECUTING,
        *TOKEN,
        update=lambda s, i: s._replace(phase=_EXECUTING),
        effects=lambda old, new, i: (Execute(i.effect_id, new.attempt),),
        emits="Execute",
    ),
    row(
        Finish,
        [_EXECUTING],
        "completed, failed, cancelled, timed_out, as it says",
        *TOKEN,
        EXECUTED,
        CERTAIN,
        update=lambda s, i: s._replace(phase=Phase(i.status.value)),
        effects=_recorded,
        emits="RecordResult",
    ),
    row(
        Finish,
        [_EXECUTING],
        _UNKNOWN,
        *TOKEN,
        DOUBTFUL,
        update=_doubt,
        effects=lambda old, new, i: (*_recorded(old, new, i), *_ask(old, new, i)),
        emits="RecordResult, Ask",
    ),
    row(
        Lose,
        [_INTENT, _EXECUTING],
        _INTENT,
        *TOKEN,
        REPEATABLE,
        update=_again,
        effects=_attempt,
        emits="RecordAttempt",
    ),
    row(
        Lose,
        [_INTENT, _EXECUTING],
        _UNKNOWN,
        *TOKEN,
        UNREPEATABLE,
        update=_doubt,
        effects=_ask,
        emits="Ask",
    ),
    row(
        Reconcile,
        [_UNKNOWN],
        "completed, failed, as found",
        *TOKEN,
        RECONCILABLE,
        FOUND,
        update=lambda s, i: s._replace(phase=Phase(i.said.value)),
        effects=_resolved,
        emits="RecordResolution",
    ),
    row(
        Reconcile,
        [_UNKNOWN],
        _INTENT,
        *TOKEN,
        RECONCILABLE,
        NOT_STARTED,
        update=_again,
        effects=_resolved,
        emits="RecordResolution, RecordAttempt",
    ),
    row(
        Reconcile,
        [_UNKNOWN],
        "=",
        *TOKEN,
        RECONCILABLE,
        NOT_FOUND,
        effects=lambda old, new, i: (Ask(i.effect_id, new.attempt, "person"),),
        emits="Ask(person)",
    ),
    row(
        Resolve,
        [_UNKNOWN],
        "completed, failed, as the person says",
        *TOKEN,
        SETTLED,
        update=lambda s, i: s._replace(phase=_SETTLES[i.said], resolved=i.said),
        effects=_resolved,
        emits="RecordResolution",
    ),
    row(
        Resolve,
        [_UNKNOWN],
        _INTENT,
        *TOKEN,
        RETRY,
        update=_again,
        effects=_resolved,
        emits="RecordResolution, RecordAttempt",
    ),
)


def _alphabet(s: Effect) -> Iterator[Any]:
    yield from (Intend("e", *flags) for flags in product((False, True), repeat=2))
    for token in (("e", s.attempt), ("e", s.attempt - 1), ("other", s.attempt)):
        yield from (kind(*token) for kind in (Deny, Begin, Lose))
        yield from (Finish(*token, status) for status in EffectStatus)
        yield from (Reconcile(*token, finding) for finding in Finding)
        yield from (Resolve(*token, answer) for answer in Answer)


EFFECT: Machine[Effect] = Machine(
    name="effect",
    purpose="One effect on the world: intended, executed, ended; or in doubt until somebody knows.",
    initial=Effect(),
    rows=_ROWS,
    invariants={
        "an effect has an id and an attempt exactly when it is intended": lambda s: (
            s == Effect() if s.phase is _NEW else s.effect_id is not None and s.attempt >= 1
        ),
        "only the first attempt can be denied before execution": lambda s: (
            s.phase is not _DENIED or s.attempt == 1
        ),
        "a timeout is an answer only of what may be repeated": lambda s: (
            s.phase is not _TIMED_OUT or s.repeatable
        ),
        "a person's word fits the status": lambda s: (
            s.resolved is None or _SETTLES.get(s.resolved) is s.phase
        ),
    },
    ends=frozenset({_COMPLETED, _FAILED, _TIMED_OUT, _CANCELLED, _DENIED}),
    alphabet=_alphabet,
    bounded=lambda s: s.attempt < 4,
)
