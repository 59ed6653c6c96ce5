"""A request to a peer, and the stream of its events: one record, one end.

The record goes away (`Removed`, with exactly one `Cleanup`) once the request has its outcome and no reader has or may
still claim its stream. That rule runs after every step, so it does not matter in which order the answer, the reader, the
reader's end and the timers come. A finished id stays known for a while (`book.py`), so a late or repeated answer is
refused, and refused answers are never shown to the model.

* An answer counts only from the peer that was asked.
* Every request has a deadline, every reservation a time limit, both in the record: after a restart the timers can be
  set again from it. `Send` therefore takes the time and how long, not only an end.
* Events that come before the reader wait in a bounded buffer; when it is full the oldest go, and the reader is told how
  many are missing. Closing the stream never cancels the request.
* Late and repeated calls are normal here, so each row is there for every phase and says no by a named guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row

DEADLINE_MS = 300_000
"""How long a request waits for its answer."""
RESERVATION_MS = 30_000
"""How long a reserved stream waits for its reader."""
BUFFER = 256
"""How many events wait for a reader."""


class Phase(StrEnum):
    """Where a request is."""

    UNSEEN = "Unseen"
    SENT = "Sent"
    PROGRESS = "Progress"
    DONE = "Done"
    REMOVED = "Removed"


class Outcome(StrEnum):
    """How it ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    SEND_FAILED = "SendFailed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"


class Stream(StrEnum):
    """Its events."""

    NONE = "none"
    RESERVED = "reserved"
    ATTACHED = "attached"
    CLOSED = "closed"


class Outbound(NamedTuple):
    """The state."""

    phase: Phase = Phase.UNSEEN
    peer: str | None = None
    deadline: int = 0
    outcome: Outcome | None = None
    stream: Stream = Stream.NONE
    reserved_until: int = 0
    capacity: int = 0
    buffer: tuple[str, ...] = ()
    """Events that wait for a reader."""
    dropped: int = 0
    """Events that did not fit."""

    @property
    def read(self) -> bool:
        """Whether somebody reads the stream, or may still."""
        return self.stream in (Stream.RESERVED, Stream.ATTACHED)


# -- inputs -------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """A request goes out."""

    peer: str
    now: int
    want_stream: bool
    deadline_ms: int = DEADLINE_MS
    reservation_ms: int = RESERVATION_MS
    capacity: int = BUFFER


class Progress(NamedTuple):
    """Something came back, not the answer yet."""

    sender: str
    event: str


class Terminal(NamedTuple):
    """The answer."""

    sender: str
    completed: bool


class SendFailed(NamedTuple):
    """It never left."""


class TimedOut(NamedTuple):
    """The deadline's timer."""

    now: int


class Cancel(NamedTuple):
    """Nobody waits for the answer any more."""


class Attach(NamedTuple):
    """A reader claims the stream."""


class Detach(NamedTuple):
    """The reader has drained or closed it."""


class StreamTtl(NamedTuple):
    """The reservation's timer."""

    now: int


# -- effects ------------------------------------------------------------------------------------------


class StateChanged(NamedTuple):
    """The request moved."""

    phase: Phase
    outcome: Outcome | None


class Deliver(NamedTuple):
    """An event for the reader."""

    event: str


class Replay(NamedTuple):
    """What the reader missed. `dropped` of them are lost: `stream_truncated`."""

    events: tuple[str, ...]
    dropped: int
    outcome: Outcome | None


class Cleanup(NamedTuple):
    """The record is gone: close its channel, forget its timers."""


# -- guards -------------------------------------------------------------------------------------------

_UNSEEN, _SENT, _PROGRESS, _DONE, _REMOVED = Phase

UNSEEN = guard("id_unseen", lambda s, i: s.phase is _UNSEEN)
OPEN = guard("unanswered", lambda s, i: s.phase in (_SENT, _PROGRESS))
UNHEARD = guard("nothing_came_back", lambda s, i: s.phase is _SENT)
FROM_PEER = guard("from_is_peer", lambda s, i: i.sender == s.peer)
OVERDUE = guard("deadline_passed", lambda s, i: i.now >= s.deadline)
RESERVED = guard("stream_reserved", lambda s, i: s.stream is Stream.RESERVED)
ATTACHED = guard("stream_attached", lambda s, i: s.stream is Stream.ATTACHED)
UNCLAIMED = guard("reservation_over", lambda s, i: i.now >= s.reserved_until)


# -- updates ------------------------------------------------------------------------------------------


def _settled(state: Outbound) -> Outbound:
    """The removal rule."""
    over = state.phase is _DONE and not state.read
    return state._replace(phase=_REMOVED) if over else state


def _send(_: Outbound, send: Send) -> Outbound:
    stream = Stream.RESERVED if send.want_stream else Stream.NONE
    return Outbound(
        _SENT,
        send.peer,
        send.now + send.deadline_ms,
        None,
        stream,
        send.now + send.reservation_ms,
        send.capacity,
    )


def _progress(state: Outbound, progress: Progress) -> Outbound:
    moved = state._replace(phase=_PROGRESS)
    if state.stream is not Stream.RESERVED:
        return moved
    events = (*state.buffer, progress.event)
    dropped = max(len(events) - state.capacity, 0)
    return moved._replace(buffer=events[dropped:], dropped=state.dropped + dropped)


def _end(outcome: Outcome) -> Any:
    def ended(state: Outbound, _: object) -> Outbound:
        return _settled(state._replace(phase=_DONE, outcome=outcome))

    return ended


def _answer(state: Outbound, terminal: Terminal) -> Outbound:
    outcome = Outcome.COMPLETED if terminal.completed else Outcome.FAILED
    return _end(outcome)(state, terminal)


def _close(state: Outbound, _: object) -> Outbound:
    return _settled(state._replace(stream=Stream.CLOSED, buffer=(), dropped=0))


# -- effects of a step --------------------------------------------------------------------------------


def _gone(old: Outbound, new: Outbound, _: object) -> tuple[Any, ...]:
    return (Cleanup(),) if new.phase is _REMOVED else ()


def _moved(old: Outbound, new: Outbound, input_: object) -> tuple[Any, ...]:
    # Whoever waits is told that it is done, whether or not the record outlives that.
    phase = _DONE if new.phase is _REMOVED else new.phase
    return (StateChanged(phase, new.outcome), *_gone(old, new, input_))


def _came(old: Outbound, new: Outbound, progress: Progress) -> tuple[Any, ...]:
    read = old.stream is Stream.ATTACHED
    return (*_moved(old, new, progress), *((Deliver(progress.event),) if read else ()))


_MOVES: dict[str, Any] = {"effects": _moved, "emits": "StateChanged, Cleanup if removed"}
_GOES: dict[str, Any] = {"effects": _gone, "emits": "Cleanup if removed"}
_ENDS = "Done, Removed"


def _alphabet(_: Outbound) -> Iterator[object]:
    yield from (Send("p", 0, want, capacity=1) for want in (False, True))
    for sender in "pq":
        yield Progress(sender, "e")
        yield from (Terminal(sender, completed) for completed in (False, True))
    yield from (SendFailed(), Cancel(), Attach(), Detach())
    yield from (TimedOut(0), TimedOut(DEADLINE_MS), StreamTtl(0), StreamTtl(RESERVATION_MS))


OUTBOUND = Machine(
    name="outbound_request",
    purpose="A request to a peer and the stream of its events: answered once, cleaned up once.",
    initial=Outbound(),
    rows=(
        row(Send, Phase, _SENT, UNSEEN, update=_send, effects=_moved, emits="StateChanged"),
        row(
            Progress,
            Phase,
            _PROGRESS,
            OPEN,
            FROM_PEER,
            update=_progress,
            effects=_came,
            emits="StateChanged, Deliver to a reader",
        ),
        row(Terminal, Phase, _ENDS, OPEN, FROM_PEER, update=_answer, **_MOVES),
        row(SendFailed, Phase, _ENDS, UNHEARD, update=_end(Outcome.SEND_FAILED), **_MOVES),
        row(TimedOut, Phase, _ENDS, OPEN, OVERDUE, update=_end(Outcome.TIMED_OUT), **_MOVES),
        row(Cancel, Phase, _ENDS, OPEN, update=_end(Outcome.CANCELLED), **_MOVES),
        row(
            Attach,
            Phase,
            "=",
            RESERVED,
            update=lambda s, i: s._replace(stream=Stream.ATTACHED, buffer=(), dropped=0),
            effects=lambda old, new, i: (Replay(old.buffer, old.dropped, old.outcome),),
            emits="Replay",
        ),
        row(Detach, Phase, "=, Removed", ATTACHED, update=_close, **_GOES),
        row(StreamTtl, Phase, "=, Removed", RESERVED, UNCLAIMED, update=_close, **_GOES),
    ),
    invariants={
        "an outcome exactly when it is over": lambda s: (
            (s.outcome is not None) == (s.phase in (_DONE, _REMOVED))
        ),
        "Done is kept only for a reader": lambda s: s.phase is not _DONE or s.read,
        "a removed record has no live stream": lambda s: s.phase is not _REMOVED or not s.read,
        "a peer exactly once it was sent": lambda s: (
            (s.peer is not None) == (s.phase is not _UNSEEN)
        ),
        "no stream before it was sent": lambda s: s.phase is not _UNSEEN or s.stream is Stream.NONE,
        "events wait only for a reservation": lambda s: (
            s.stream is Stream.RESERVED or (not s.buffer and s.dropped == 0)
        ),
        "the buffer is bounded": lambda s: len(s.buffer) <= s.capacity,
    },
    ends=frozenset({_REMOVED}),
    alphabet=_alphabet,
    bounded=lambda s: s.dropped < 2,
)
