"""A live (voice) channel: the turn, how fresh its view of the conversation is, and what a clean close means.

One record. The phases are read off its flags; `Preemptible` is *committed and output started*: before the assistant is
audible, new input may still belong to the same utterance. Freshness is read off `stale_since` and `owed`: a change that
comes during a turn is `StaleDeferred`, and the end of the turn, whichever way it comes, makes it `StaleImmediate`. So a
refresh can't be forgotten, and is never due in the middle of a turn (`rebuild_due`), where it would break barge-in.

* Turns are numbered by the channel, and everything about a turn quotes its number. The provider may commit a turn
  before we have marked it in flight: that starts it. Without numbers a repeated commit after the end would start a
  turn that never ends.
* What the view has seen is a revision of the conversation (`context.py`), not a time. `frontier` is the newest seen.
* Every row is there for every phase: late and repeated events are normal, and refused by a named guard.

On a clean close, `ReattachAndRecover` means that input was accepted whose turn has not ended: start a reconnect cycle
(`reconnect.py`). A turn that was aborted (an error, a close) leaves it so; one that ended settles it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Where the turn is."""

    IDLE = "Idle"
    AWAITING_PROGRESS = "AwaitingProgress"
    COMMITTED = "Committed"
    OUTPUT_STARTED = "OutputStarted"
    PREEMPTIBLE = "Preemptible"


class Freshness(StrEnum):
    """Whether the provider has seen the whole conversation."""

    CLEAN = "Clean"
    STALE_DEFERRED = "StaleDeferred"
    STALE_IMMEDIATE = "StaleImmediate"


class OnCleanClose(StrEnum):
    """What to do when the provider hangs up politely."""

    CLEAN_EXIT = "CleanExit"
    REATTACH = "ReattachAndRecover"


_OF_FLAGS = {
    (False, False): Phase.AWAITING_PROGRESS,
    (True, False): Phase.COMMITTED,
    (False, True): Phase.OUTPUT_STARTED,
    (True, True): Phase.PREEMPTIBLE,
}


class Live(NamedTuple):
    """The state."""

    turn: int = 0
    """The turn in flight, or the last one."""
    in_flight: bool = False
    committed: bool = False
    """The provider has the user's input."""
    output_started: bool = False
    """The assistant is audible."""
    stale_since: int | None = None
    """The first revision the provider has not seen."""
    owed: bool = False
    """A refresh is due as soon as no turn is in flight."""
    frontier: int = 0
    """The newest revision known."""
    on_clean_close: OnCleanClose = OnCleanClose.CLEAN_EXIT

    @property
    def phase(self) -> Phase:
        """Where the turn is."""
        if not self.in_flight:
            return Phase.IDLE
        return _OF_FLAGS[self.committed, self.output_started]

    @property
    def freshness(self) -> Freshness:
        """Whether the provider has seen the whole conversation."""
        if self.stale_since is None:
            return Freshness.CLEAN
        return Freshness.STALE_IMMEDIATE if self.owed else Freshness.STALE_DEFERRED

    @property
    def rebuild_due(self) -> bool:
        """Whether to rebuild the provider's session now."""
        return self.owed and not self.in_flight

    @property
    def preempt_on_input(self) -> bool:
        """Whether new input interrupts the assistant."""
        return self.committed and self.output_started


# -- inputs -------------------------------------------------------------------------------------------


class TurnInFlight(NamedTuple):
    """Input for a new turn was accepted."""

    turn: int


class TurnCommitted(NamedTuple):
    """The provider has the user's input."""

    turn: int


class OutputStarted(NamedTuple):
    """The assistant is audible, or calls a tool."""

    turn: int


class TurnInterrupted(NamedTuple):
    """The assistant was silenced; the turn goes on."""

    turn: int


class TurnTerminal(NamedTuple):
    """The turn is over."""

    turn: int
    aborted: bool = False


class Activity(NamedTuple):
    """The client spoke, or the turn did something: a close now would lose it."""


class ProjectionAdvanced(NamedTuple):
    """The conversation moved on to that revision."""

    revision: int


class ProjectionRefreshed(NamedTuple):
    """The provider has seen it up to that revision."""

    revision: int


class ProjectionReset(NamedTuple):
    """The provider's session is gone; the next one starts from that revision."""

    revision: int


# -- effects ------------------------------------------------------------------------------------------


class PhaseChanged(NamedTuple):
    """The turn moved."""

    turn: int
    phase: Phase


class FreshnessChanged(NamedTuple):
    """So did the view, or what it has not seen."""

    freshness: Freshness
    frontier: int


class PolicyChanged(NamedTuple):
    """So did the meaning of a clean close."""

    on_clean_close: OnCleanClose


# -- guards -------------------------------------------------------------------------------------------


def _must_refresh(state: Live, seen: ProjectionRefreshed | ProjectionReset) -> bool:
    return state.stale_since is not None or seen.revision > state.frontier


IDLE = guard("idle", lambda s, i: not s.in_flight)
IN_FLIGHT = guard("in_flight", lambda s, i: s.in_flight)
NEW_TURN = guard("turn_new", lambda s, i: i.turn > s.turn)
THIS_TURN = guard("turn_current", lambda s, i: i.turn == s.turn)
UNCOMMITTED = guard("uncommitted", lambda s, i: not s.committed)
SILENT = guard("silent", lambda s, i: not s.output_started)
AUDIBLE = guard("audible", lambda s, i: s.output_started)
NOTHING_OWED = guard("not_to_reattach", lambda s, i: s.on_clean_close is OnCleanClose.CLEAN_EXIT)
NEWER = guard("newer", lambda s, i: i.revision > s.frontier)
NOT_OLDER = guard("not_older", lambda s, i: i.revision >= s.frontier)
SOMETHING_NEW = guard("stale_or_newer", _must_refresh)


# -- updates ------------------------------------------------------------------------------------------


def _begin(state: Live, input_: TurnInFlight | TurnCommitted) -> Live:
    return state._replace(
        turn=input_.turn, in_flight=True, committed=isinstance(input_, TurnCommitted)
    )


def _terminate(state: Live, terminal: TurnTerminal) -> Live:
    policy = state.on_clean_close if terminal.aborted else OnCleanClose.CLEAN_EXIT
    return state._replace(
        in_flight=False,
        committed=False,
        output_started=False,
        owed=state.stale_since is not None,
        on_clean_close=policy,
    )


def _advance(state: Live, advanced: ProjectionAdvanced) -> Live:
    since = advanced.revision if state.stale_since is None else state.stale_since
    owed = state.owed or not state.in_flight
    return state._replace(stale_since=since, owed=owed, frontier=advanced.revision)


def _freshen(state: Live, seen: ProjectionRefreshed | ProjectionReset) -> Live:
    frontier = max(state.frontier, seen.revision)
    return state._replace(stale_since=None, owed=False, frontier=frontier)


# -- effects of a step --------------------------------------------------------------------------------


def _told(old: Live, new: Live, _: object) -> tuple[Any, ...]:
    """What differs."""
    effects: list[Any] = []
    if (old.turn, old.phase) != (new.turn, new.phase):
        effects.append(PhaseChanged(new.turn, new.phase))
    if (old.freshness, old.frontier) != (new.freshness, new.frontier):
        effects.append(FreshnessChanged(new.freshness, new.frontier))
    if old.on_clean_close is not new.on_clean_close:
        effects.append(PolicyChanged(new.on_clean_close))
    return tuple(effects)


def _set(**flags: Any) -> Any:
    def changed(state: Live, _: object) -> Live:
        return state._replace(**flags)

    return changed


_MOVES: dict[str, Any] = {"effects": _told, "emits": "PhaseChanged"}
_ENDS: dict[str, Any] = {
    "effects": _told,
    "emits": "PhaseChanged, FreshnessChanged, PolicyChanged",
}
_AGES: dict[str, Any] = {"effects": _told, "emits": "FreshnessChanged"}


def _alphabet(state: Live) -> Iterator[object]:
    for turn in (state.turn - 1, state.turn, state.turn + 1):
        yield from (TurnInFlight(turn), TurnCommitted(turn), OutputStarted(turn))
        yield from (TurnInterrupted(turn), TurnTerminal(turn), TurnTerminal(turn, aborted=True))
    yield Activity()
    for revision in (state.frontier - 1, state.frontier, state.frontier + 1):
        yield ProjectionAdvanced(revision)
        yield from (ProjectionRefreshed(revision), ProjectionReset(revision))


LIVE = Machine(
    name="live_turn",
    purpose="A live channel: its turn, how fresh its view is, and what a clean close means.",
    initial=Live(),
    rows=(
        row(
            TurnInFlight,
            Phase,
            Phase.AWAITING_PROGRESS,
            IDLE,
            NEW_TURN,
            update=_begin,
            **_MOVES,
        ),
        row(
            TurnCommitted,
            Phase,
            Phase.COMMITTED,
            IDLE,
            NEW_TURN,
            update=_begin,
            note="the provider was faster",
            **_MOVES,
        ),
        row(
            TurnCommitted,
            Phase,
            "Committed, Preemptible",
            IN_FLIGHT,
            THIS_TURN,
            UNCOMMITTED,
            update=_set(committed=True),
            **_MOVES,
        ),
        row(
            OutputStarted,
            Phase,
            "OutputStarted, Preemptible",
            IN_FLIGHT,
            THIS_TURN,
            SILENT,
            update=_set(output_started=True),
            **_MOVES,
        ),
        row(
            TurnInterrupted,
            Phase,
            "AwaitingProgress, Committed",
            THIS_TURN,
            AUDIBLE,
            update=_set(output_started=False),
            **_MOVES,
        ),
        row(TurnTerminal, Phase, Phase.IDLE, IN_FLIGHT, THIS_TURN, update=_terminate, **_ENDS),
        row(
            Activity,
            Phase,
            "=",
            NOTHING_OWED,
            update=_set(on_clean_close=OnCleanClose.REATTACH),
            effects=_told,
            emits="PolicyChanged",
        ),
        row(ProjectionAdvanced, Phase, "=", NEWER, update=_advance, **_AGES),
        row(
            ProjectionRefreshed,
            Phase,
            "=",
            NOT_OLDER,
            SOMETHING_NEW,
            update=_freshen,
            **_AGES,
        ),
        row(ProjectionReset, Phase, "=", SOMETHING_NEW, update=_freshen, **_AGES),
    ),
    invariants={
        "only a turn in flight is committed or audible": lambda s: (
            s.in_flight or not (s.committed or s.output_started)
        ),
        "a deferred refresh has a turn that ends": lambda s: (
            s.freshness is not Freshness.STALE_DEFERRED or s.in_flight
        ),
        "a refresh is owed for something": lambda s: not s.owed or s.stale_since is not None,
        "stale since a revision that was seen": lambda s: (
            s.stale_since is None or 0 < s.stale_since <= s.frontier
        ),
        "turns are numbered from 1": lambda s: s.turn > 0 or (s.turn == 0 and not s.in_flight),
    },
    ends=frozenset({Phase.IDLE}),
    alphabet=_alphabet,
    bounded=lambda s: s.turn < 3 and s.frontier < 4,
)
