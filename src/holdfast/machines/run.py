"""One run as its user sees it: the statuses of `surface.md`, and what each of them waits for.

A status says who is next. `running`: the owner. `waiting_for_approval`: a person decides. `needs_attention`: a person
says what became of an effect in doubt. `interrupted`: nobody but whoever resumes it; a run whose last question was
answered is there too, because nothing but a resume is missing. The status follows from what is open, so the two can
never disagree; doubt comes before questions, because nothing may go on while an effect is in doubt.

What the table guarantees: only the owner of the current epoch runs, parks or ends a run, so a process that lost it
while it slept is fenced off; a run is resumed only when no question and no doubt is open (resuming one that still
waits changes nothing); an ending is final; a result that was there before a cancel was noticed wins over it.

`NEW` is before the first record. A cancel reaches a run at work as a flag, which the owner answers with `Stopped` or
with its result; whatever else the owner does then ends the run as cancelled. A cancelled run still lists its effects
in doubt until somebody answers for them. Cancels, decisions and answers come from outside and race with everything,
so they are tolerant (machines.md §1.2) and fail on named guards; the owner's own inputs are strict.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, Row, guard, row


class Status(StrEnum):
    """Where a run is."""

    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    NEEDS_ATTENTION = "needs_attention"
    INTERRUPTED = "interrupted"


_NOTHING: frozenset[str] = frozenset()


class Run(NamedTuple):
    """The state."""

    phase: Status = Status.NEW
    run_id: str | None = None
    epoch: int = 1
    """Of its owner."""
    approvals: frozenset[str] = _NOTHING
    """The questions that are open."""
    in_doubt: frozenset[str] = _NOTHING
    """The effects nobody knows the end of."""
    cancel_requested: bool = False
    """Whether the owner was asked to stop."""


# -- inputs -------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """The owner begins."""

    run_id: str
    epoch: int


class Park(NamedTuple):
    """The owner stops at calls that can't go on now."""

    run_id: str
    epoch: int
    approvals: frozenset[str]
    in_doubt: frozenset[str] = _NOTHING


class Interrupt(NamedTuple):
    """The owner stops at a point from which it can be resumed."""

    run_id: str
    epoch: int


class TakeOver(NamedTuple):
    """Another process becomes the owner; the questions and doubts are those on record."""

    run_id: str
    epoch: int
    """Of the owner it replaces."""
    approvals: frozenset[str] = _NOTHING
    in_doubt: frozenset[str] = _NOTHING


class Resume(NamedTuple):
    """The owner goes on."""

    run_id: str
    epoch: int


class Decided(NamedTuple):
    """A question has its answer, whatever it is."""

    run_id: str
    approval_id: str


class Resolved(NamedTuple):
    """A person said what became of an effect."""

    run_id: str
    effect_id: str


class Cancel(NamedTuple):
    """Somebody wants it stopped."""

    run_id: str


class Stopped(NamedTuple):
    """The owner stopped because of a cancel."""

    run_id: str
    epoch: int
    in_doubt: frozenset[str] = _NOTHING


class Complete(NamedTuple):
    """The owner has its result."""

    run_id: str
    epoch: int


class Fail(NamedTuple):
    """The owner has its error."""

    run_id: str
    epoch: int


# -- effects ------------------------------------------------------------------------------------------


class StatusChanged(NamedTuple):
    """Write it, and tell who listens."""

    run_id: str
    status: Status


class Resumable(NamedTuple):
    """Nothing is open any more: whoever wants may resume it."""

    run_id: str


class StopWork(NamedTuple):
    """The owner must stop."""

    run_id: str
    epoch: int


class WithdrawApprovals(NamedTuple):
    """Its questions need no answer any more."""

    run_id: str
    approvals: frozenset[str]


# -- guards -------------------------------------------------------------------------------------------

_NEW, _RUNNING, _COMPLETED, _FAILED, _CANCELLED, _WAITING, _ATTENTION, _INTERRUPTED = Status
PARKED = frozenset({_WAITING, _ATTENTION, _INTERRUPTED})
"""Nobody works on it, and it is not over."""
ENDED = frozenset({_COMPLETED, _FAILED, _CANCELLED})
"""It is over."""
_BEGUN = frozenset(Status) - {_NEW}

RUN_ID = guard("run_matches", lambda s, i: i.run_id == s.run_id)
EPOCH = guard("epoch_current", lambda s, i: i.epoch == s.epoch)
OWNER = (RUN_ID, EPOCH)
REASON = guard("waits_for_something", lambda s, i: bool(i.approvals or i.in_doubt))
GOING_ON = guard("cancel_not_requested", lambda s, i: not s.cancel_requested)
STOPPING = guard("cancel_requested", lambda s, i: s.cancel_requested)
NOTHING_ASKED = guard("no_question_open", lambda s, i: not s.approvals)
NOTHING_IN_DOUBT = guard("nothing_in_doubt", lambda s, i: not s.in_doubt)
ASKED = guard("asks_it", lambda s, i: i.approval_id in s.approvals)
DOUBTED = guard("doubts_it", lambda s, i: i.effect_id in s.in_doubt)
NOT_ENDED = guard("not_ended", lambda s, i: s.phase not in ENDED)

# -- updates and effects ------------------------------------------------------------------------------


def _parked(s: Run, approvals: frozenset[str], in_doubt: frozenset[str]) -> Run:
    """At rest, with the status that says who is next."""
    status = _ATTENTION if in_doubt else _WAITING if approvals else _INTERRUPTED
    return Run(status, s.run_id, s.epoch, approvals, in_doubt)


def _cancelled(s: Run, in_doubt: frozenset[str]) -> Run:
    return Run(_CANCELLED, s.run_id, s.epoch, in_doubt=in_doubt)


def _taken_over(s: Run, i: TakeOver) -> Run:
    s = s._replace(epoch=s.epoch + 1)
    if s.phase is not _RUNNING:
        return s
    if s.cancel_requested:
        return _cancelled(s, i.in_doubt)
    return _parked(s, i.approvals, i.in_doubt)


def _resolved(s: Run, i: Resolved) -> Run:
    left = s.in_doubt - {i.effect_id}
    return s._replace(in_doubt=left) if s.phase is _CANCELLED else _parked(s, s.approvals, left)


def _changed(old: Run, new: Run, i: Any) -> tuple[Any, ...]:
    """What follows from the two statuses, whichever input led from one to the other."""
    if old.phase is new.phase:
        return ()
    effects: list[Any] = [StatusChanged(i.run_id, new.phase)]
    asked = getattr(i, "approvals", _NOTHING) | old.approvals
    if new.phase is _CANCELLED and asked:
        effects.append(WithdrawApprovals(i.run_id, asked))
    if new.phase is _INTERRUPTED:
        effects.append(Resumable(i.run_id))
    return tuple(effects)


_EMITS = "StatusChanged"


def _ends(input_: type, status: Status) -> Row[Run]:
    return row(
        input_,
        [_RUNNING],
        status,
        *OWNER,
        update=lambda s, i: Run(status, s.run_id, s.epoch),
        effects=_changed,
        emits=_EMITS,
    )


def _stops(input_: type, *condition: tuple[str, Any]) -> Row[Run]:
    """What the owner of a run that was cancelled does next ends it."""
    return row(
        input_,
        [_RUNNING],
        _CANCELLED,
        *OWNER,
        *condition,
        STOPPING,
        update=lambda s, i: _cancelled(s, getattr(i, "in_doubt", _NOTHING)),
        effects=_changed,
        emits=f"{_EMITS}, WithdrawApprovals",
    )


_ROWS = (
    row(
        Start,
        [_NEW],
        _RUNNING,
        EPOCH,
        update=lambda s, i: Run(_RUNNING, i.run_id, s.epoch),
        effects=_changed,
        emits=_EMITS,
    ),
    row(
        Park,
        [_RUNNING],
        "waiting_for_approval or needs_attention",
        *OWNER,
        REASON,
        GOING_ON,
        update=lambda s, i: _parked(s, i.approvals, i.in_doubt),
        effects=_changed,
        emits=_EMITS,
    ),
    _stops(Park, REASON),
    row(
        Interrupt,
        [_RUNNING],
        _INTERRUPTED,
        *OWNER,
        GOING_ON,
        update=lambda s, i: _parked(s, _NOTHING, _NOTHING),
        effects=_changed,
        emits=f"{_EMITS}, Resumable",
    ),
    _stops(Interrupt),
    row(
        TakeOver,
        {_RUNNING} | PARKED,
        "= if parked, else cancelled, needs_attention, waiting_for_approval or interrupted",
        *OWNER,
        update=_taken_over,
        effects=_changed,
        emits=f"{_EMITS}, Resumable",
    ),
    row(
        Resume,
        PARKED,
        _RUNNING,
        *OWNER,
        NOTHING_ASKED,
        NOTHING_IN_DOUBT,
        update=lambda s, i: s._replace(phase=_RUNNING),
        effects=_changed,
        emits=_EMITS,
    ),
    row(
        Decided,
        _BEGUN,
        "= or interrupted",
        RUN_ID,
        ASKED,
        update=lambda s, i: _parked(s, s.approvals - {i.approval_id}, s.in_doubt),
        effects=_changed,
        emits=f"{_EMITS}, Resumable with the last one",
    ),
    row(
        Resolved,
        _BEGUN,
        "= or waiting_for_approval or interrupted",
        RUN_ID,
        DOUBTED,
        update=_resolved,
        effects=_changed,
        emits=f"{_EMITS}, Resumable with the last one",
    ),
    row(
        Cancel,
        PARKED,
        _CANCELLED,
        RUN_ID,
        update=lambda s, i: _cancelled(s, s.in_doubt),
        effects=_changed,
        emits=f"{_EMITS}, WithdrawApprovals",
    ),
    row(
        Cancel,
        {_RUNNING} | ENDED,
        "=",
        RUN_ID,
        NOT_ENDED,
        update=lambda s, i: s._replace(cancel_requested=True),
        effects=lambda old, new, i: (StopWork(i.run_id, new.epoch),),
        emits="StopWork",
    ),
    _stops(Stopped),
    _ends(Complete, _COMPLETED),
    _ends(Fail, _FAILED),
)


def _alphabet(s: Run) -> Iterator[Any]:
    some = (_NOTHING, frozenset("x"), frozenset("xy"))
    for run, epoch in (("a", s.epoch), ("a", s.epoch - 1), ("b", s.epoch)):
        yield from (kind(run, epoch) for kind in (Start, Interrupt, Resume, Complete, Fail))
        for approvals in some:
            yield from (Park(run, epoch, approvals, doubt) for doubt in some)
            yield from (TakeOver(run, epoch, approvals, doubt) for doubt in some)
        yield from (Stopped(run, epoch, doubt) for doubt in some)
    for run in ("a", "b"):
        yield Cancel(run)
        yield from (kind(run, name) for kind in (Decided, Resolved) for name in "xyz")


RUN: Machine[Run] = Machine(
    name="run",
    purpose="One run as its user sees it: at work, waiting for somebody, or over.",
    initial=Run(),
    rows=_ROWS,
    invariants={
        "a run has an id once it started": lambda s: (s.run_id is None) == (s.phase is _NEW),
        "doubt needs attention, or is left over from a cancelled run": lambda s: (
            bool(s.in_doubt) if s.phase is _ATTENTION else not s.in_doubt or s.phase is _CANCELLED
        ),
        "open questions are waited for": lambda s: (
            bool(s.approvals) if s.phase is _WAITING else not s.approvals or s.phase is _ATTENTION
        ),
        "a cancel is only pending while it runs": lambda s: (
            not s.cancel_requested or s.phase is _RUNNING
        ),
        "epochs start at 1": lambda s: s.epoch >= 1,
    },
    ends=ENDED,
    alphabet=_alphabet,
    bounded=lambda s: s.epoch < 4,
)
