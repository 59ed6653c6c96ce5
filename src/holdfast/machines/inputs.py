"""One accepted input: where it waits, which run took it, and how it was used up.

What the table guarantees: an input ends exactly once, in one of four ways, and whoever waits for it is told exactly
once; it is in at most one run at a time, and only that run can say what became of it; it is never tried more than
three times.

A run that failed gives its inputs back only if it had not started, that is, nothing was sent to a provider and no
tool ran. Otherwise they are abandoned and the caller decides: a second try would repeat what was already done, behind
the back of a caller who was told that it failed. What was applied is consumed or abandoned; there is no state between.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.admission import COALESCING, Kind, Lane
from holdfast.machines.kernel import Machine, guard, row

MAX_ATTEMPTS = 3
"""So often is an input given to a run that never starts."""


class Phase(StrEnum):
    """Where an input is."""

    UNKNOWN = "Unknown"
    QUEUED = "Queued"
    STAGED = "Staged"
    APPLIED = "Applied"
    CONSUMED = "Consumed"
    SUPERSEDED = "Superseded"
    COALESCED = "Coalesced"
    ABANDONED = "Abandoned"


class AbandonReason(StrEnum):
    """Why an input was given up."""

    RETIRED = "retired"
    RESET = "reset"
    STOPPED = "stopped"
    DESTROYED = "destroyed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    MAX_ATTEMPTS_EXHAUSTED = "max_attempts_exhausted"


class Input(NamedTuple):
    """The state."""

    phase: Phase = Phase.UNKNOWN
    input_id: str | None = None
    kind: Kind | None = None
    lane: Lane | None = None
    """Where it waits, or would wait again."""
    admission_seq: int = 0
    """Its place in the order of arrival."""
    run_id: str | None = None
    """The run that took it."""
    attempts: int = 0
    """Runs that took it so far."""
    boundary_seq: int | None = None
    """The boundary at which it became part of the conversation."""
    companion: str | None = None
    """The input that took its place."""
    abandoned: AbandonReason | None = None


# -- inputs -------------------------------------------------------------------------------------------


class Accept(NamedTuple):
    """It is in."""

    input_id: str
    kind: Kind
    lane: Lane
    admission_seq: int


class ChangeLane(NamedTuple):
    """It should wait elsewhere."""

    lane: Lane


class Stage(NamedTuple):
    """A run takes it."""

    run_id: str


class Rollback(NamedTuple):
    """The run that took it failed."""

    run_id: str
    started: bool
    """Whether anything was sent to a provider, or any tool ran."""


class Apply(NamedTuple):
    """It is part of the conversation."""

    run_id: str
    boundary_seq: int


class Consume(NamedTuple):
    """The run that applied it is complete."""

    run_id: str


class ConsumeOnAccept(NamedTuple):
    """It needs no run."""


class Supersede(NamedTuple):
    """A newer one replaces it."""

    by: str


class Coalesce(NamedTuple):
    """It became part of another."""

    into: str


class Abandon(NamedTuple):
    """It is given up."""

    reason: AbandonReason


# -- effects ------------------------------------------------------------------------------------------


class Admitted(NamedTuple):
    """It waits now."""

    input_id: str
    lane: Lane


class Requeued(NamedTuple):
    """It waits again; not a reason to wake anybody."""

    input_id: str


class Settled(NamedTuple):
    """Tell whoever waits for it; happens once."""

    input_id: str
    how: Phase
    reason: AbandonReason | None = None


# -- guards -------------------------------------------------------------------------------------------

_UNKNOWN, _QUEUED, _STAGED, _APPLIED, _CONSUMED, _SUPERSEDED, _COALESCED, _ABANDONED = Phase
_TERMINAL = frozenset({_CONSUMED, _SUPERSEDED, _COALESCED, _ABANDONED})

RUN_ID = guard("run_matches", lambda s, i: i.run_id == s.run_id)
NOT_STARTED = guard("run_not_started", lambda s, i: not i.started)
STARTED = guard("run_started", lambda s, i: i.started)
ATTEMPTS_LEFT = guard("attempts_left", lambda s, i: s.attempts < MAX_ATTEMPTS)
ATTEMPTS_SPENT = guard("attempts_spent", lambda s, i: s.attempts >= MAX_ATTEMPTS)
BY_ANOTHER = guard("replaced_by_another", lambda s, i: i.by != s.input_id)
INTO_ANOTHER = guard("joins_another", lambda s, i: i.into != s.input_id)
COALESCES = guard("kind_coalesces", lambda s, i: s.kind in COALESCING)

# -- updates and effects ------------------------------------------------------------------------------


def _abandoned(s: Input, reason: AbandonReason) -> Input:
    return s._replace(phase=_ABANDONED, lane=None, run_id=None, abandoned=reason)


def _replaced(s: Input, phase: Phase, companion: str) -> Input:
    return s._replace(phase=phase, lane=None, companion=companion)


def _settled(old: Input, new: Input, _: Any) -> tuple[Any, ...]:
    return (Settled(str(new.input_id), new.phase, new.abandoned),)


_ROWS = (
    row(
        Accept,
        [_UNKNOWN],
        _QUEUED,
        update=lambda s, i: Input(_QUEUED, i.input_id, i.kind, i.lane, i.admission_seq),
        effects=lambda old, new, i: (Admitted(i.input_id, i.lane),),
        emits="Admitted",
    ),
    row(ChangeLane, [_QUEUED], "=", update=lambda s, i: s._replace(lane=i.lane)),
    row(
        Stage,
        [_QUEUED],
        _STAGED,
        update=lambda s, i: s._replace(phase=_STAGED, run_id=i.run_id, attempts=s.attempts + 1),
        note="keeps its lane, to go back to",
    ),
    row(
        Rollback,
        [_STAGED],
        _QUEUED,
        RUN_ID,
        NOT_STARTED,
        ATTEMPTS_LEFT,
        update=lambda s, i: s._replace(phase=_QUEUED, run_id=None),
        effects=lambda old, new, i: (Requeued(new.input_id),),
        emits="Requeued",
    ),
    row(
        Rollback,
        [_STAGED],
        _ABANDONED,
        RUN_ID,
        NOT_STARTED,
        ATTEMPTS_SPENT,
        update=lambda s, i: _abandoned(s, AbandonReason.MAX_ATTEMPTS_EXHAUSTED),
        effects=_settled,
        emits="Settled",
    ),
    row(
        Rollback,
        [_STAGED, _APPLIED],
        _ABANDONED,
        RUN_ID,
        STARTED,
        update=lambda s, i: _abandoned(s, AbandonReason.FAILED),
        effects=_settled,
        emits="Settled",
    ),
    row(
        Apply,
        [_STAGED],
        _APPLIED,
        RUN_ID,
        update=lambda s, i: s._replace(phase=_APPLIED, boundary_seq=i.boundary_seq),
    ),
    row(
        Consume,
        [_APPLIED],
        _CONSUMED,
        RUN_ID,
        update=lambda s, i: s._replace(phase=_CONSUMED, lane=None),
        effects=_settled,
        emits="Settled",
    ),
    row(
        ConsumeOnAccept,
        [_QUEUED],
        _CONSUMED,
        update=lambda s, i: s._replace(phase=_CONSUMED, lane=None),
        effects=_settled,
        emits="Settled",
    ),
    row(
        Supersede,
        [_QUEUED],
        _SUPERSEDED,
        BY_ANOTHER,
        update=lambda s, i: _replaced(s, _SUPERSEDED, i.by),
        effects=_settled,
        emits="Settled",
    ),
    row(
        Coalesce,
        [_QUEUED],
        _COALESCED,
        INTO_ANOTHER,
        COALESCES,
        update=lambda s, i: _replaced(s, _COALESCED, i.into),
        effects=_settled,
        emits="Settled",
    ),
    row(
        Abandon,
        [_QUEUED, _STAGED, _APPLIED],
        _ABANDONED,
        update=lambda s, i: _abandoned(s, i.reason),
        effects=_settled,
        emits="Settled",
    ),
)


def _alphabet(s: Input) -> Iterator[Any]:
    for kind in (Kind.PROMPT, Kind.EXTERNAL_EVENT):
        yield from (Accept("i", kind, lane, 1) for lane in Lane)
    yield from (ChangeLane(lane) for lane in Lane)
    for run in ("a", "b"):
        yield Stage(run)
        yield from (Rollback(run, started) for started in (False, True))
        yield Apply(run, 1)
        yield Consume(run)
    yield ConsumeOnAccept()
    for other in ("i", "j"):
        yield Supersede(other)
        yield Coalesce(other)
    yield from (Abandon(reason) for reason in (AbandonReason.RESET, AbandonReason.CANCELLED))


INPUT: Machine[Input] = Machine(
    name="input",
    purpose="One accepted input: where it waits, which run took it, how it was used up.",
    initial=Input(),
    rows=_ROWS,
    invariants={
        "an input is known exactly from its acceptance on": lambda s: (
            s == Input() if s.phase is _UNKNOWN else s.input_id is not None and s.kind is not None
        ),
        "what waits has a lane and no run": lambda s: (
            s.phase is not _QUEUED or (s.lane is not None and s.run_id is None)
        ),
        "what a run took names the run": lambda s: (
            s.phase not in (_STAGED, _APPLIED) or (s.run_id is not None and s.attempts >= 1)
        ),
        "what was applied names its boundary": lambda s: (
            s.phase is not _APPLIED or s.boundary_seq is not None
        ),
        "what ended has no lane": lambda s: s.phase not in _TERMINAL or s.lane is None,
        "an input is tried at most three times": lambda s: 0 <= s.attempts <= MAX_ATTEMPTS,
        "an input ends in one way": lambda s: (
            (s.companion is not None) == (s.phase in (_SUPERSEDED, _COALESCED))
            and (s.abandoned is not None) == (s.phase is _ABANDONED)
        ),
    },
    ends=_TERMINAL,
    alphabet=_alphabet,
)
