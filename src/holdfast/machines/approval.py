"""One question to a person, bound to exactly what it would release.

What the table guarantees: an effect is released only by a yes that was offered, in time, by somebody other than who
asked, about the very arguments and schema the person saw; and once. A late answer, a forged one and a repeated one are
refused by guards with names of their own and change nothing. No answer ever counts as a yes: running out of time, a
dispatcher that fails and a lost result all end closed.

Decisions, expiries and cancellations race with each other, so those inputs are tolerant (machines.md §1.2): after the
end they fail on `still_open`. Asking, telling people and releasing are strict: doing them in the wrong phase is a bug.

Asking (`requested`) and telling somebody (`dispatched`) are two steps, but either may be answered: the request is
durable, so any process can answer by id. `dispatch_intent_recorded` of `kernel.md` §4.4 is not a phase here: telling
people is an effect and has its own machine. `recovery_required` is what a result that could not be written becomes.
What a session-wide yes allows later is the business of the `grant` machine; here it releases its own effect like any
other yes, and is never on offer for critical risk.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple

from holdfast.contracts.approval import Decision, Risk
from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Where an approval is; the last seven are final."""

    UNREQUESTED = "unrequested"
    REQUESTED = "requested"
    DISPATCHED = "dispatched"
    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    DENIED = "denied"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DISPATCHER_UNAVAILABLE = "dispatcher_unavailable"
    RECOVERY_REQUIRED = "recovery_required"


class Binding(NamedTuple):
    """What a yes is about. The digests are of what the person saw."""

    effect_id: str
    args_digest: str
    schema_digest: str


class Approval(NamedTuple):
    """The state."""

    phase: Phase = Phase.UNREQUESTED
    approval_id: str | None = None
    binding: Binding | None = None
    """What it would release."""
    risk: Risk = Risk.MEDIUM
    offered: frozenset[Decision] = frozenset()
    """The answers that count."""
    requester: str | None = None
    """Who asked; may not answer."""
    deadline: int | None = None
    """Unix milliseconds; at this moment it is too late. `None`: never."""
    actor: str | None = None
    """Who answered."""
    consumed: bool = False
    """Whether it released its effect."""


# -- inputs -------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """Ask."""

    approval_id: str
    binding: Binding
    risk: Risk
    offered: frozenset[Decision]
    requester: str
    deadline: int | None
    now: int


class Dispatch(NamedTuple):
    """Somebody was told."""

    approval_id: str
    now: int


class Decide(NamedTuple):
    """An answer."""

    approval_id: str
    binding: Binding
    """What the answer is about: what its author was shown."""
    decision: Decision
    actor: str
    now: int


class Expire(NamedTuple):
    """The time is up."""

    approval_id: str
    now: int


class Cancel(NamedTuple):
    """The answer is not needed any more."""

    approval_id: str


class DispatcherFailed(NamedTuple):
    """Nobody can be told."""

    approval_id: str


class ResultLost(NamedTuple):
    """Somebody was told, and what came of it could not be recorded."""

    approval_id: str


class Consume(NamedTuple):
    """Release the effect, with the arguments and the schema as they are now."""

    approval_id: str
    binding: Binding


# -- effects ------------------------------------------------------------------------------------------


class RecordRequest(NamedTuple):
    """Write the question, so that any process can answer it."""

    approval_id: str


class RecordDecision(NamedTuple):
    """Write the answer and who gave it."""

    approval_id: str
    decision: Decision
    actor: str


class MakeGrant(NamedTuple):
    """Remember the yes for the session, if there is one."""

    approval_id: str


class RecordEnd(NamedTuple):
    """Write that it ended without an answer."""

    approval_id: str
    status: Phase


class Withdraw(NamedTuple):
    """Tell those who were told that no answer is needed."""

    approval_id: str


class Release(NamedTuple):
    """The effect may be intended."""

    effect_id: str


# -- guards -------------------------------------------------------------------------------------------

_NEW, _REQUESTED, _DISPATCHED, _APPROVED, _FOR_SESSION, _DENIED = tuple(Phase)[:6]
_TIMED_OUT, _CANCELLED, _UNAVAILABLE, _RECOVERY = tuple(Phase)[6:]
_OPEN = frozenset({_REQUESTED, _DISPATCHED})
_YES = frozenset({_APPROVED, _FOR_SESSION})
_ASKED = frozenset(Phase) - {_NEW}


def _unsafe_offer(risk: Risk, offered: frozenset[Decision]) -> bool:
    return risk is Risk.CRITICAL and Decision.APPROVED_FOR_SESSION in offered


def _in_time(s: Approval, now: int) -> bool:
    return s.deadline is None or now < s.deadline


APPROVAL_ID = guard("approval_matches", lambda s, i: i.approval_id == s.approval_id)
BOUND = guard("bound_to_what_is_shown", lambda s, i: all(i.binding))
OFFERS = guard("offers_an_answer", lambda s, i: bool(i.offered))
NOT_FOR_CRITICAL = guard(
    "no_session_answer_for_critical", lambda s, i: not _unsafe_offer(i.risk, i.offered)
)
AHEAD = guard("deadline_ahead", lambda s, i: i.deadline is None or i.now < i.deadline)
OPEN = guard("still_open", lambda s, i: s.phase in _OPEN)
IN_TIME = guard("before_deadline", lambda s, i: _in_time(s, i.now))
OVERDUE = guard("deadline_passed", lambda s, i: not _in_time(s, i.now))
OFFERED = guard("decision_offered", lambda s, i: i.decision in s.offered)
NOT_SELF = guard("answered_by_another", lambda s, i: i.actor != s.requester)
SAME_EFFECT = guard("effect_matches", lambda s, i: i.binding.effect_id == s.binding.effect_id)
SAME_ARGS = guard("args_as_shown", lambda s, i: i.binding.args_digest == s.binding.args_digest)
SAME_SCHEMA = guard(
    "schema_as_shown", lambda s, i: i.binding.schema_digest == s.binding.schema_digest
)
SHOWN = (SAME_EFFECT, SAME_ARGS, SAME_SCHEMA)
UNUSED = guard("not_consumed", lambda s, i: not s.consumed)

# -- effects of rows ----------------------------------------------------------------------------------


def _decided(old: Approval, new: Approval, i: Decide) -> tuple[Any, ...]:
    said = RecordDecision(i.approval_id, i.decision, i.actor)
    return (said, MakeGrant(i.approval_id)) if new.phase is _FOR_SESSION else (said,)


def _ended(old: Approval, new: Approval, i: Any) -> tuple[Any, ...]:
    """Whoever was told must hear that it is over."""
    end = RecordEnd(i.approval_id, new.phase)
    return (end, Withdraw(i.approval_id)) if old.phase is _DISPATCHED else (end,)


_ROWS = (
    row(
        Request,
        [_NEW],
        _REQUESTED,
        BOUND,
        OFFERS,
        NOT_FOR_CRITICAL,
        AHEAD,
        update=lambda s, i: Approval(
            _REQUESTED, i.approval_id, i.binding, i.risk, i.offered, i.requester, i.deadline
        ),
        effects=lambda old, new, i: (RecordRequest(i.approval_id),),
        emits="RecordRequest",
    ),
    row(
        Dispatch,
        [_REQUESTED],
        _DISPATCHED,
        APPROVAL_ID,
        IN_TIME,
        update=lambda s, i: s._replace(phase=_DISPATCHED),
    ),
    row(
        Decide,
        _ASKED,
        "approved, approved_for_session, denied, as it says",
        APPROVAL_ID,
        OPEN,
        *SHOWN,
        OFFERED,
        NOT_SELF,
        IN_TIME,
        update=lambda s, i: s._replace(phase=Phase(i.decision.value), actor=i.actor),
        effects=_decided,
        emits="RecordDecision, MakeGrant if for the session",
    ),
    row(
        Expire,
        _ASKED,
        _TIMED_OUT,
        APPROVAL_ID,
        OPEN,
        OVERDUE,
        update=lambda s, i: s._replace(phase=_TIMED_OUT),
        effects=_ended,
        emits="RecordEnd, Withdraw if dispatched",
    ),
    row(
        Cancel,
        _ASKED,
        _CANCELLED,
        APPROVAL_ID,
        OPEN,
        update=lambda s, i: s._replace(phase=_CANCELLED),
        effects=_ended,
        emits="RecordEnd, Withdraw if dispatched",
    ),
    row(
        DispatcherFailed,
        _ASKED,
        _UNAVAILABLE,
        APPROVAL_ID,
        OPEN,
        update=lambda s, i: s._replace(phase=_UNAVAILABLE),
        effects=lambda old, new, i: (RecordEnd(i.approval_id, new.phase),),
        emits="RecordEnd",
    ),
    row(
        ResultLost,
        [_DISPATCHED],
        _RECOVERY,
        APPROVAL_ID,
        update=lambda s, i: s._replace(phase=_RECOVERY),
        effects=lambda old, new, i: (RecordEnd(i.approval_id, new.phase),),
        emits="RecordEnd",
    ),
    row(
        Consume,
        _YES,
        "=",
        APPROVAL_ID,
        *SHOWN,
        UNUSED,
        update=lambda s, i: s._replace(consumed=True),
        effects=lambda old, new, i: (Release(i.binding.effect_id),),
        emits="Release",
    ),
)

_SHOWN = Binding("e", "args", "schema")
_FORGED = (
    Binding("other", "args", "schema"),
    Binding("e", "x", "schema"),
    Binding("e", "args", "x"),
)
_ANSWERS = frozenset(Decision)
_ONCE = frozenset({Decision.APPROVED, Decision.DENIED})


def _alphabet(s: Approval) -> Iterator[Any]:
    for risk, offered, deadline in product(
        (Risk.HIGH, Risk.CRITICAL), (_ANSWERS, _ONCE, frozenset[Decision]()), (None, 10)
    ):
        yield Request("a", _SHOWN, risk, offered, "agent", deadline, 5)
    yield Request("a", Binding("e", "", "schema"), Risk.LOW, _ONCE, "agent", None, 5)
    yield Request("a", _SHOWN, Risk.LOW, _ONCE, "agent", 5, 5)
    for name, now in product(("a", "other"), (9, 10)):
        yield Dispatch(name, now)
        yield Expire(name, now)
        for decision, actor in product(Decision, ("person", "agent")):
            yield Decide(name, _SHOWN, decision, actor, now)
    for kind in (Cancel, DispatcherFailed, ResultLost):
        yield from (kind(name) for name in ("a", "other"))
    yield from (Decide("a", forged, Decision.APPROVED, "person", 9) for forged in _FORGED)
    yield from (Consume("a", binding) for binding in (_SHOWN, *_FORGED))
    yield Consume("other", _SHOWN)


APPROVAL: Machine[Approval] = Machine(
    name="approval",
    purpose="One question to a person: asked, told, answered in time or not, used once.",
    initial=Approval(),
    rows=_ROWS,
    invariants={
        "a question is bound to an effect and a digest of what was shown": lambda s: (
            s == Approval()
            if s.phase is _NEW
            else s.approval_id is not None and s.binding is not None and all(s.binding)
        ),
        "a session-wide yes is never offered for critical risk": lambda s: (
            not _unsafe_offer(s.risk, s.offered)
        ),
        "what was answered was offered, by somebody else than who asked": lambda s: (
            s.actor is None
            if s.phase not in _YES and s.phase is not _DENIED
            else s.actor not in (None, s.requester) and Decision(s.phase.value) in s.offered
        ),
        "only a yes is consumed": lambda s: not s.consumed or s.phase in _YES,
    },
    ends=_ASKED - _OPEN,
    alphabet=_alphabet,
)
