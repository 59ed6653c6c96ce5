"""A request from a peer: owed one reply, to that peer, until its deadline.

`Replied` is sent after the reply has left, not before: a reply that could not be sent may be tried again. Progress
replies change nothing. Both ends are final, and the id stays known for a while (`book.py`), so a repeated request is not
taken for a new one. Repeats are normal, so each row is there for every phase and says no by a named guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.kernel import Machine, guard, row
from holdfast.machines.outbound import DEADLINE_MS


class Phase(StrEnum):
    """Where a request is."""

    UNSEEN = "Unseen"
    RECEIVED = "Received"
    REPLIED = "Replied"
    LAPSED = "Lapsed"


class Inbound(NamedTuple):
    """The state."""

    phase: Phase = Phase.UNSEEN
    peer: str | None = None
    deadline: int = 0


# -- inputs -------------------------------------------------------------------------------------------


class Received(NamedTuple):
    """It came."""

    sender: str
    now: int
    deadline_ms: int = DEADLINE_MS


class ProgressReply(NamedTuple):
    """A progress reply to that peer has left."""

    to: str


class Replied(NamedTuple):
    """The reply to that peer has left."""

    to: str


class Lapse(NamedTuple):
    """The deadline's timer."""

    now: int


# -- effects ------------------------------------------------------------------------------------------


class InboundChanged(NamedTuple):
    """The request moved."""

    phase: Phase


# -- guards -------------------------------------------------------------------------------------------

_UNSEEN, _RECEIVED, _REPLIED, _LAPSED = Phase

UNSEEN = guard("id_unseen", lambda s, i: s.phase is _UNSEEN)
OWED = guard("reply_owed", lambda s, i: s.phase is _RECEIVED)
TO_PEER = guard("to_is_peer", lambda s, i: i.to == s.peer)
OVERDUE = guard("deadline_passed", lambda s, i: i.now >= s.deadline)


def _moved(_: Inbound, new: Inbound, __: object) -> tuple[InboundChanged]:
    return (InboundChanged(new.phase),)


def _alphabet(_: Inbound) -> Iterator[object]:
    for peer in "pq":
        yield from (Received(peer, 0), ProgressReply(peer), Replied(peer))
    yield from (Lapse(0), Lapse(DEADLINE_MS))


INBOUND = Machine(
    name="inbound_request",
    purpose="A request from a peer: one reply, to that peer, or none in time.",
    initial=Inbound(),
    rows=(
        row(
            Received,
            Phase,
            _RECEIVED,
            UNSEEN,
            update=lambda s, i: Inbound(_RECEIVED, i.sender, i.now + i.deadline_ms),
            effects=_moved,
            emits="InboundChanged",
        ),
        row(ProgressReply, Phase, "=", OWED, TO_PEER),
        row(
            Replied,
            Phase,
            _REPLIED,
            OWED,
            TO_PEER,
            update=lambda s, i: s._replace(phase=_REPLIED),
            effects=_moved,
            emits="InboundChanged",
        ),
        row(
            Lapse,
            Phase,
            _LAPSED,
            OWED,
            OVERDUE,
            update=lambda s, i: s._replace(phase=_LAPSED),
            effects=_moved,
            emits="InboundChanged",
        ),
    ),
    invariants={
        "a peer exactly once it was received": lambda s: (
            (s.peer is not None) == (s.phase is not _UNSEEN)
        ),
    },
    ends=frozenset({_REPLIED, _LAPSED}),
    alphabet=_alphabet,
)
