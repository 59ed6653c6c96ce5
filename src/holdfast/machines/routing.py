"""Which model answers: the session's own, or another one for a while.

A switch waits for the next turn. With a number of turns it covers exactly so many, and then the baseline answers again;
without, it becomes the baseline. At most one switch is pending or active; every accepted request is in exactly one of
pending, active and finished, and the last ones that finished are remembered, so a repeated request is refused.

Turns are counted when they end, so what a reader is told between turns is right. A switch that is cancelled in the
middle of its turn stops counting there; the turn itself has already asked its model.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row

FINISHED_KEPT = 256
"""How many finished requests are remembered."""


class Phase(StrEnum):
    """Whether a turn is under way."""

    IDLE = "Idle"
    IN_TURN = "InTurn"


class Outcome(StrEnum):
    """How a switch ended."""

    CANCELLED = "cancelled"
    APPLIED = "applied"
    """It is the baseline now."""
    RESTORED = "restored"
    """Its turns are over."""


class Pending(NamedTuple):
    """A switch that waits for the next turn."""

    request: str
    model: str
    turns: int | None
    """`None`: until changed."""


class Active(NamedTuple):
    """A switch in effect."""

    request: str
    model: str
    remaining: int
    """Turns it still covers, the current one included."""


class Finished(NamedTuple):
    """A switch that is over."""

    request: str
    outcome: Outcome


class Routing(NamedTuple):
    """The state."""

    phase: Phase = Phase.IDLE
    baseline: str | None = None
    pending: Pending | None = None
    active: Active | None = None
    finished: tuple[Finished, ...] = ()
    """Oldest first."""

    @property
    def model(self) -> str | None:
        """The model that answers."""
        return self.baseline if self.active is None else self.active.model

    @property
    def requests(self) -> tuple[str, ...]:
        """Every request still known."""
        scope = [one.request for one in (self.pending, self.active) if one is not None]
        return (*scope, *(one.request for one in self.finished))


# -- inputs -------------------------------------------------------------------------------------------


class SetBaseline(NamedTuple):
    """The session's own model."""

    model: str


class Switch(NamedTuple):
    """Another model from the next turn on, for so many turns or until changed."""

    request: str
    model: str
    turns: int | None


class CancelSwitch(NamedTuple):
    """Not any more."""

    request: str


class TurnStarted(NamedTuple):
    """A turn is about to ask its model."""


class TurnFinished(NamedTuple):
    """It is over."""


# -- effects ------------------------------------------------------------------------------------------


class Changed(NamedTuple):
    """Another model answers, or will."""

    model: str | None


class SwitchAccepted(NamedTuple):
    """The request waits for the next turn."""

    request: str


class Activated(NamedTuple):
    """The request is in effect."""

    request: str
    model: str


class Restored(NamedTuple):
    """The request's turns are over."""

    request: str
    model: str


# -- guards -------------------------------------------------------------------------------------------

_IDLE, _IN_TURN = Phase


def _in_scope(state: Routing, cancel: CancelSwitch) -> bool:
    return any(one and one.request == cancel.request for one in (state.pending, state.active))


def _finite(state: Routing) -> bool:
    return state.pending is not None and state.pending.turns is not None


def _endless(state: Routing) -> bool:
    return state.pending is not None and state.pending.turns is None


def _left(state: Routing) -> int:
    return 0 if state.active is None else state.active.remaining


BASELINE = guard("baseline_known", lambda s, i: s.baseline is not None)
NEW = guard("request_new", lambda s, i: i.request not in s.requests)
SOME_TURNS = guard("turns_positive", lambda s, i: i.turns is None or i.turns >= 1)
NO_SCOPE = guard("no_scope", lambda s, i: s.pending is None and s.active is None)
IN_SCOPE = guard("pending_or_active", _in_scope)
FINITE = guard("finite_switch_pending", lambda s, i: _finite(s))
ENDLESS = guard("endless_switch_pending", lambda s, i: _endless(s))
NOTHING_PENDING = guard("nothing_pending", lambda s, i: s.pending is None)
MORE_TURNS = guard("turns_left", lambda s, i: _left(s) > 1)
LAST_TURN = guard("last_turn", lambda s, i: _left(s) == 1)
NOTHING_ACTIVE = guard("nothing_active", lambda s, i: s.active is None)


# -- updates ------------------------------------------------------------------------------------------


def _finish(state: Routing, request: str, outcome: Outcome, **changes: Any) -> Routing:
    finished = (*state.finished, Finished(request, outcome))[-FINISHED_KEPT:]
    return state._replace(pending=None, active=None, finished=finished, **changes)


def _activate(state: Routing, _: TurnStarted) -> Routing:
    assert state.pending is not None
    request, model, turns = state.pending
    assert turns is not None
    return state._replace(phase=_IN_TURN, pending=None, active=Active(request, model, turns))


def _apply(state: Routing, _: TurnStarted) -> Routing:
    assert state.pending is not None
    request, model, _turns = state.pending
    return _finish(state, request, Outcome.APPLIED, phase=_IN_TURN, baseline=model)


def _count(state: Routing, _: TurnFinished) -> Routing:
    assert state.active is not None
    left = state.active._replace(remaining=state.active.remaining - 1)
    return state._replace(phase=_IDLE, active=left)


def _restore(state: Routing, _: TurnFinished) -> Routing:
    assert state.active is not None
    return _finish(state, state.active.request, Outcome.RESTORED, phase=_IDLE)


def _activated(_: Routing, new: Routing, __: TurnStarted) -> tuple[Any, ...]:
    assert new.active is not None
    return (Activated(new.active.request, new.active.model),)


def _restored(old: Routing, new: Routing, _: TurnFinished) -> tuple[Any, ...]:
    assert old.active is not None
    assert new.model is not None
    return (Restored(old.active.request, new.model),)


def _changed(_: Routing, new: Routing, __: object) -> tuple[Changed]:
    return (Changed(new.model),)


def _alphabet(_: Routing) -> Iterator[object]:
    yield from (SetBaseline("m"), SetBaseline("n"), TurnStarted(), TurnFinished())
    for request in "abc":
        yield CancelSwitch(request)
        yield from (Switch(request, "x", turns) for turns in (None, 0, 1, 3))


def _accounted_for_once(state: Routing) -> bool:
    return len(set(state.requests)) == len(state.requests)


_CHANGES: dict[str, Any] = {"effects": _changed, "emits": "Changed"}

ROUTING = Machine(
    name="model_routing",
    purpose="Which model answers: the session's own, or another for a number of turns.",
    initial=Routing(),
    rows=(
        row(
            SetBaseline,
            Phase,
            "=",
            update=lambda s, i: s._replace(baseline=i.model),
            **_CHANGES,
        ),
        row(
            Switch,
            Phase,
            "=",
            BASELINE,
            NEW,
            SOME_TURNS,
            NO_SCOPE,
            update=lambda s, i: s._replace(pending=Pending(*i)),
            effects=lambda old, new, i: (SwitchAccepted(i.request),),
            emits="SwitchAccepted",
        ),
        row(
            CancelSwitch,
            Phase,
            "=",
            IN_SCOPE,
            update=lambda s, i: _finish(s, i.request, Outcome.CANCELLED),
            **_CHANGES,
        ),
        row(
            TurnStarted,
            [_IDLE],
            _IN_TURN,
            FINITE,
            update=_activate,
            effects=_activated,
            emits="Activated",
        ),
        row(TurnStarted, [_IDLE], _IN_TURN, ENDLESS, update=_apply, **_CHANGES),
        row(
            TurnStarted,
            [_IDLE],
            _IN_TURN,
            NOTHING_PENDING,
            BASELINE,
            update=lambda s, i: s._replace(phase=_IN_TURN),
        ),
        row(TurnFinished, [_IN_TURN], _IDLE, MORE_TURNS, update=_count),
        row(
            TurnFinished,
            [_IN_TURN],
            _IDLE,
            LAST_TURN,
            update=_restore,
            effects=_restored,
            emits="Restored",
        ),
        row(
            TurnFinished,
            [_IN_TURN],
            _IDLE,
            NOTHING_ACTIVE,
            update=lambda s, i: s._replace(phase=_IDLE),
        ),
    ),
    invariants={
        "pending and active exclude each other": lambda s: s.pending is None or s.active is None,
        "an active switch has turns left": lambda s: s.active is None or s.active.remaining >= 1,
        "a pending switch has turns or no end": lambda s: (
            s.pending is None or s.pending.turns is None or s.pending.turns >= 1
        ),
        "every request is accounted for once": _accounted_for_once,
        "a turn or a switch has a baseline": lambda s: (
            s.baseline is not None or (s.phase is _IDLE and s.pending is None and s.active is None)
        ),
        "the finished are bounded": lambda s: len(s.finished) <= FINISHED_KEPT,
    },
    ends=frozenset({_IDLE}),
    alphabet=_alphabet,
    bounded=lambda s: len(s.finished) < 3,
)
