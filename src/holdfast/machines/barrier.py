"""The registry of all operations and the one wait on some of them. `operations.py` says what the two guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row
from holdfast.machines.operations import Ended, OperationKind, Registered, Status

_NONE: frozenset[str] = frozenset()


class Phase(StrEnum):
    """Whether somebody waits."""

    FREE = "Free"
    WAITING = "Waiting"


class Barrier(NamedTuple):
    """The state."""

    phase: Phase = Phase.FREE
    running: frozenset[str] = _NONE
    """The operations that are not over."""
    ended: frozenset[str] = _NONE
    """Those that are, and are still known."""
    last_seq: int = 0
    """The number of the newest ending."""
    wait_id: str | None = None
    members: frozenset[str] = _NONE
    """What is waited for."""

    @property
    def missing(self) -> frozenset[str]:
        """Those of the members that are not over."""
        return self.members & self.running


class RequestWaitAll(NamedTuple):
    """Wait until all of these are over."""

    wait_id: str
    ids: tuple[str, ...]


class CancelWaitAll(NamedTuple):
    """Nobody waits any more."""

    wait_id: str


class Forget(NamedTuple):
    """Its record is not kept any longer."""

    op_id: str


class WaitAllSatisfied(NamedTuple):
    """All of them are over."""

    wait_id: str
    ids: frozenset[str]


_FREE, _WAITING = Phase
_BOTH = frozenset(Phase)

NEW = guard("not_already_registered", lambda s, i: i.op_id not in s.running | s.ended)
RUNNING = guard("not_ended_yet", lambda s, i: i.op_id in s.running)
ENDED = guard("has_ended", lambda s, i: i.op_id in s.ended)
NOT_AWAITED = guard("nobody_waits_for_it", lambda s, i: i.op_id not in s.members)
NEXT = guard("next_in_sequence", lambda s, i: i.seq == s.last_seq + 1)
LAST = guard("last_one_missing", lambda s, i: s.missing == {i.op_id})
NOT_LAST = guard("others_missing", lambda s, i: s.missing != {i.op_id})
KNOWN = guard("ids_known", lambda s, i: s.running.union(s.ended).issuperset(i.ids))
UNIQUE = guard("ids_unique", lambda s, i: len(set(i.ids)) == len(i.ids))
ALL_OVER = guard("all_over", lambda s, i: s.running.isdisjoint(i.ids))
SOME_OPEN = guard("some_open", lambda s, i: not s.running.isdisjoint(i.ids))
SAME_WAIT = guard("wait_matches", lambda s, i: i.wait_id == s.wait_id)


def _ended(s: Barrier, i: Ended) -> Barrier:
    return s._replace(
        running=s.running - {i.op_id},
        ended=s.ended | {i.op_id},
        last_seq=i.seq,
    )


def _freed(s: Barrier) -> Barrier:
    return s._replace(phase=_FREE, wait_id=None, members=_NONE)


_ROWS = (
    row(
        Registered,
        _BOTH,
        "=",
        NEW,
        update=lambda s, i: s._replace(running=s.running | {i.op_id}),
    ),
    row(
        Ended,
        _BOTH,
        "=",
        RUNNING,
        NEXT,
        NOT_LAST,
        update=_ended,
    ),
    row(
        Ended,
        [_WAITING],
        _FREE,
        NEXT,
        LAST,
        update=lambda s, i: _freed(_ended(s, i)),
        effects=lambda old, new, i: (WaitAllSatisfied(old.wait_id, old.members),),
        emits="WaitAllSatisfied",
    ),
    row(
        RequestWaitAll,
        [_FREE],
        "=",
        KNOWN,
        UNIQUE,
        ALL_OVER,
        effects=lambda old, new, i: (WaitAllSatisfied(i.wait_id, frozenset(i.ids)),),
        emits="WaitAllSatisfied",
        note="answered at once",
    ),
    row(
        RequestWaitAll,
        [_FREE],
        _WAITING,
        KNOWN,
        UNIQUE,
        SOME_OPEN,
        update=lambda s, i: s._replace(phase=_WAITING, wait_id=i.wait_id, members=frozenset(i.ids)),
    ),
    row(
        CancelWaitAll,
        _BOTH,
        _FREE,
        SAME_WAIT,
        update=lambda s, i: _freed(s),
    ),
    row(
        Forget,
        _BOTH,
        "=",
        ENDED,
        NOT_AWAITED,
        update=lambda s, i: s._replace(ended=s.ended - {i.op_id}),
    ),
)


def _alphabet(s: Barrier) -> Iterator[Any]:
    tool = OperationKind.BACKGROUND_TOOL_OP
    for op in "xyz":
        yield Registered(op)
        yield Forget(op)
        for seq in (s.last_seq, s.last_seq + 1):
            yield Ended(op, tool, Status.FAILED, seq)
    for wait in ("w", "v"):
        yield CancelWaitAll(wait)
        for ids in ((), ("x",), ("x", "y"), ("x", "x")):
            yield RequestWaitAll(wait, ids)


BARRIER: Machine[Barrier] = Machine(
    name="barrier",
    purpose="All operations of a session: which are open, in which order they ended, who waits for which.",
    initial=Barrier(),
    rows=_ROWS,
    invariants={
        "an operation is open or over": lambda s: s.running.isdisjoint(s.ended),
        "every ending was numbered": lambda s: s.last_seq >= len(s.ended),
        "a wait is open exactly while one of its operations is": lambda s: (
            (s.phase is _WAITING) == (s.wait_id is not None) == bool(s.missing)
        ),
        "only a wait has members, and it knows them": lambda s: (
            s.members <= s.running | s.ended if s.phase is _WAITING else not s.members
        ),
    },
    ends=frozenset({_FREE}),
    alphabet=_alphabet,
    bounded=lambda s: s.last_seq < 4,
)
