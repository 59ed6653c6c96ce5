"""From "something arrived" to "this goes into the next turn". Pure functions; the input machine keeps the state.

Four questions about an arrival, each with one table: may it come in at all (`refusal`), how is it treated (`policy`),
who must be nudged (`admission_signal`), and what goes together into one turn (`select_batch`).

Where this differs from `machines.md` §8, on purpose:

* Silence is kept: an idle session is woken only by what asks for it, so progress and silent requests do not start a
  turn. Accepting never cancels a running turn.
* An explicit `queue` is a mode like any other and is not mistaken for "no mode said".
* A batch is always a prefix of its lane. The original took the prefix that fits the first item able to drive the loop,
  which is empty when an unlike item is ahead of it: the lane would stand still.
* Items whose turn metadata contradict each other do not share a batch, so nothing is rejected for having been merged.
* A prompt never shares a batch with another prompt, in either lane.
* The steer lane is drained at the boundary of the running turn, and is a reason to go on (`at_boundary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Literal, NamedTuple

from holdfast.machines.spine import Phase


class Kind(StrEnum):
    """What arrived."""

    PROMPT = "Prompt"
    PEER_MESSAGE = "PeerMessage"
    PEER_REQUEST = "PeerRequest"
    PEER_RESPONSE_PROGRESS = "PeerResponseProgress"
    PEER_RESPONSE_TERMINAL = "PeerResponseTerminal"
    FLOW_STEP = "FlowStep"
    EXTERNAL_EVENT = "ExternalEvent"
    CONTINUATION = "Continuation"
    OPERATION = "Operation"


class Lane(StrEnum):
    """Where it waits: for a turn of its own, or for the next boundary of the running one."""

    QUEUE = "Queue"
    STEER = "Steer"


class Wake(StrEnum):
    """What it asks of the loop."""

    NONE = "none"
    IF_IDLE = "wake_if_idle"
    INTERRUPT = "interrupt_yielding"


class Origin(StrEnum):
    """Who sent it."""

    OPERATOR = "operator"
    PEER = "peer"
    FLOW = "flow"
    SYSTEM = "system"
    EXTERNAL = "external"


class Durability(StrEnum):
    """How long it lasts: for ever, until a restart, or as long as what it can be derived from."""

    DURABLE = "durable"
    EPHEMERAL = "ephemeral"
    DERIVED = "derived"


# -- may it come in? ----------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why something was not accepted."""

    NOT_READY = "not_ready"
    DURABILITY_VIOLATION = "durability_violation"
    PEER_HANDLING_MODE_INVALID = "peer_handling_mode_invalid"
    PEER_RESPONSE_TERMINAL_INVALID = "peer_response_terminal_invalid"
    CONTRADICTORY_FLAGS = "contradictory_flags"
    NOTHING_TO_INTERRUPT = "nothing_to_interrupt"


class Refused(NamedTuple):
    """It was not accepted."""

    reason: Reason
    detail: str = ""


class Deduplicated(NamedTuple):
    """It was accepted before."""

    existing_id: str


class Arrival(NamedTuple):
    """The facts about it that decide."""

    kind: Kind
    origin: Origin
    durability: Durability = Durability.DURABLE
    mode: Lane | None = None
    """How its sender wants it handled."""
    idempotency_key: str | None = None
    terminal_fault: str | None = None
    """What is wrong with the facts of a terminal response."""


_UNDERIVABLE = frozenset(
    {
        Kind.PROMPT,
        Kind.PEER_MESSAGE,
        Kind.PEER_REQUEST,
        Kind.PEER_RESPONSE_TERMINAL,
        Kind.FLOW_STEP,
    }
)
_OUTSIDE = frozenset({Origin.OPERATOR, Origin.PEER, Origin.EXTERNAL})
MODELESS = frozenset({Kind.PEER_RESPONSE_PROGRESS, Kind.OPERATION})
"""The kinds no handling mode applies to."""
COALESCING = frozenset({Kind.EXTERNAL_EVENT, Kind.PEER_RESPONSE_PROGRESS})
"""The kinds of which several may become one."""


def refusal(arrival: Arrival, session: Phase) -> Refused | None:
    """Why it may not come in, or `None`."""
    if session not in (Phase.IDLE, Phase.RUNNING):
        return Refused(Reason.NOT_READY, session.value)
    if arrival.durability is Durability.DERIVED and (
        arrival.origin in _OUTSIDE or arrival.kind in _UNDERIVABLE
    ):
        return Refused(Reason.DURABILITY_VIOLATION, f"{arrival.kind.value} can't be derived")
    if arrival.kind is Kind.PEER_RESPONSE_PROGRESS and arrival.mode is not None:
        return Refused(
            Reason.PEER_HANDLING_MODE_INVALID,
            "handling_mode is forbidden on accepted peer responses",
        )
    if arrival.kind is Kind.PEER_RESPONSE_TERMINAL and arrival.terminal_fault is not None:
        return Refused(Reason.PEER_RESPONSE_TERMINAL_INVALID, arrival.terminal_fault)
    return None


def admit(
    arrival: Arrival, session: Phase, known: Mapping[str, str]
) -> Refused | Deduplicated | None:
    """Whether to make an input of it: `None` says yes. `known` maps idempotency keys to input ids."""
    refused = refusal(arrival, session)
    if refused is not None or arrival.idempotency_key is None:
        return refused
    existing = known.get(arrival.idempotency_key)
    return None if existing is None else Deduplicated(existing)


def supersession_scope(runtime: str, kind: Kind, key: str | None) -> tuple[str, Kind, str] | None:
    """Inputs of one scope replace each other; `None`: it replaces nothing."""
    return None if key is None else (runtime, kind, key)


# -- how is it treated? -------------------------------------------------------------------------------


class Policy(NamedTuple):
    """The four choices that are real."""

    lane: Lane | None
    """Where it waits; `None`: nowhere, it is consumed as it comes."""
    wake: Wake
    consume_on: Literal["run_complete", "accept"] = "run_complete"
    visible: bool = True
    """Whether it becomes part of the transcript."""


_Q, _S = Lane.QUEUE, Lane.STEER
_NO, _WAKE, _INTERRUPT = Wake.NONE, Wake.IF_IDLE, Wake.INTERRUPT

# Kind → (lane, wake when idle, wake when running, visible).
_POLICIES: dict[Kind, tuple[Lane | None, Wake, Wake, bool]] = {
    Kind.PROMPT: (_Q, _WAKE, _NO, True),
    Kind.FLOW_STEP: (_Q, _WAKE, _NO, True),
    Kind.EXTERNAL_EVENT: (_Q, _WAKE, _NO, True),
    Kind.PEER_MESSAGE: (_Q, _WAKE, _INTERRUPT, True),
    Kind.PEER_REQUEST: (_Q, _WAKE, _INTERRUPT, True),
    Kind.PEER_RESPONSE_PROGRESS: (_S, _NO, _NO, True),
    Kind.PEER_RESPONSE_TERMINAL: (_Q, _WAKE, _WAKE, True),
    Kind.CONTINUATION: (_S, _WAKE, _INTERRUPT, False),
    Kind.OPERATION: (None, _NO, _NO, False),
}


def policy(kind: Kind, *, idle: bool, mode: Lane | None = None, silent: bool = False) -> Policy:
    """How an input is treated. `silent`: its intent is one of those that never wake anybody."""
    lane, when_idle, when_running, visible = _POLICIES[kind]
    if kind is Kind.OPERATION:
        return Policy(lane, _NO, "accept", visible)
    if silent and kind is Kind.PEER_REQUEST:
        return Policy(_Q, _NO, visible=visible)
    if mode is not None and kind not in MODELESS:
        lane, when_idle, when_running = mode, _WAKE, _NO if mode is _Q else _INTERRUPT
    return Policy(lane, when_idle if idle else when_running, visible=visible)


def drives(kind: Kind, *, mode: Lane | None = None, silent: bool = False) -> bool:
    """Whether an input may start a turn: it would wake an idle session, also if it came to a busy one."""
    return policy(kind, idle=True, mode=mode, silent=silent).wake is not _NO


# -- who must be nudged? ------------------------------------------------------------------------------


class Signal(IntEnum):
    """How strongly the loop is nudged; the strongest of a batch wins."""

    NONE = 0
    WAKE_LOOP = 1
    INTERRUPT_YIELDING = 2
    REQUEST_IMMEDIATE_PROCESSING = 3

    @property
    def wakes(self) -> bool:
        """Whether the loop looks at its lanes."""
        return self >= Signal.WAKE_LOOP


class Flags(NamedTuple):
    """What acceptance asks for."""

    immediate: bool = False
    interrupt: bool = False
    wake: bool = False


def flags(kind: Kind, *, idle: bool, mode: Lane | None = None, silent: bool = False) -> Flags:
    """What accepting such an input asks for."""
    treated = policy(kind, idle=idle, mode=mode, silent=silent)
    if mode is _S and kind not in MODELESS and treated.wake is not _NO:
        return Flags(immediate=True)
    return Flags(interrupt=treated.wake is _INTERRUPT, wake=treated.wake is _WAKE)


def admission_signal(session: Phase, asked: Flags) -> Signal | Refused:
    """What accepting an input means to the loop."""
    if session not in (Phase.IDLE, Phase.RUNNING):
        return Refused(Reason.NOT_READY, session.value)
    if asked.immediate and asked.interrupt:
        return Refused(Reason.CONTRADICTORY_FLAGS, "immediate and interrupt")
    if asked.interrupt and session is Phase.IDLE:
        return Refused(Reason.NOTHING_TO_INTERRUPT)
    if asked.immediate:
        return Signal.REQUEST_IMMEDIATE_PROCESSING
    if asked.interrupt:
        return Signal.INTERRUPT_YIELDING
    return Signal.WAKE_LOOP if asked.wake else Signal.NONE


def strongest(signals: Iterable[Signal]) -> Signal:
    """The one signal to send for several."""
    return max(signals, default=Signal.NONE)


# -- what goes into one turn? -------------------------------------------------------------------------


class Item(NamedTuple):
    """An input that waits in a lane."""

    input_id: str
    kind: Kind
    lane: Lane = Lane.QUEUE
    drives: bool = True
    """Whether it may start a turn: see `drives`."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Settings it wants for its turn."""

    @property
    def opens_a_turn(self) -> bool:
        """Whether it can't join a turn that is under way."""
        return self.lane is _Q or self.kind is Kind.PEER_RESPONSE_TERMINAL


def _group(item: Item) -> tuple[bool, bool, bool]:
    """What all items of a batch share: boundary, execution kind, and whether they answer a request."""
    resumes = item.kind is Kind.CONTINUATION
    return item.opens_a_turn, resumes, item.kind is Kind.PEER_RESPONSE_TERMINAL


def select_batch(waiting: Sequence[Item], *, in_turn: bool = False) -> tuple[Item, ...]:
    """What goes into the next turn: in order of arrival within a lane, steering first.

    With `in_turn`, what goes into the one under way at its boundary: steering only.
    """
    lane = [item for item in waiting if item.lane is _S]
    if in_turn and lane and lane[0].opens_a_turn:
        return ()
    if not lane and not in_turn:
        lane = [item for item in waiting if item.lane is _Q]
        if not any(item.drives for item in lane):
            return ()
    return tuple(_prefix(lane))


def _prefix(lane: Sequence[Item]) -> Iterator[Item]:
    driven = False
    settings: dict[str, str] = {}
    for item in lane:
        is_prompt = item.kind is Kind.PROMPT
        alike = _group(item) == _group(lane[0]) and _agrees(settings, item)
        if not alike or (is_prompt and driven):
            return
        yield item
        if is_prompt:
            return
        driven = driven or item.drives
        settings.update(item.metadata)


def _agrees(settings: Mapping[str, str], item: Item) -> bool:
    return all(settings.get(name, value) == value for name, value in item.metadata)


def merged_metadata(batch: Iterable[Item]) -> dict[str, str]:
    """The settings of a batch; `select_batch` saw to it that they agree."""
    return {name: value for item in batch for name, value in item.metadata}


def at_boundary(*, answered: bool, steering: bool) -> Literal["continue", "complete"]:
    """What to do at a boundary: a run is complete when the model answered and nobody is steering it."""
    return "complete" if answered and not steering else "continue"
