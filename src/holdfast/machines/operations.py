"""Operations that run beside a turn, and the one wait that a turn may have on them.

Two machines. `operation` is one of them, from provisioning to one of six endings. `barrier` is the registry of all: it
knows which are open, numbers the endings, and holds the wait. The effect of one is the input of the other: `Registered`
and `Ended` go from an operation into the barrier, unchanged.

What the tables guarantee: an ending is final; every ending is numbered, not only the good ones, without gaps, so a
reader with a cursor misses none; a wait names known operations, each once, and is over exactly when the last of them
ended, however it ended: a failed one counts. There is one wait at a time. Nobody has to say that a wait is satisfied:
it follows from the last ending, so it can't be forgotten, claimed early, or claimed for other operations.

Asking for a wait is strict, dropping one is tolerant: whoever waits drops it on the way out, often after it was over.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, Row, guard, row


class OperationKind(StrEnum):
    """What runs."""

    MOB_MEMBER_CHILD = "MobMemberChild"
    BACKGROUND_TOOL_OP = "BackgroundToolOp"


class Status(StrEnum):
    """Where an operation is; the last six are final."""

    ABSENT = "Absent"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    RETIRING = "Retiring"
    COMPLETED = "Completed"
    FAILED = "Failed"
    ABORTED = "Aborted"
    CANCELLED = "Cancelled"
    RETIRED = "Retired"
    TERMINATED = "Terminated"


class Operation(NamedTuple):
    """The state of one."""

    phase: Status = Status.ABSENT
    op_id: str | None = None
    kind: OperationKind | None = None
    peer_ready: bool = False
    """Whether a child can be talked to."""
    progress: int = 0
    """Reports so far."""
    seq: int | None = None
    """The number of its ending, among those of all operations."""


# -- inputs of an operation -----------------------------------------------------------------------------


class Register(NamedTuple):
    """Make room for it."""

    op_id: str
    kind: OperationKind


class Start(NamedTuple):
    """It runs."""


class PeerReady(NamedTuple):
    """The child can be talked to."""


class Progress(NamedTuple):
    """It says how far it is."""


class RetireRequested(NamedTuple):
    """It should come to its end."""


class Complete(NamedTuple):
    """It has its result. `seq`, here and below: the next number of the registry."""

    seq: int


class Fail(NamedTuple):
    """It has an error."""

    seq: int


class Cancel(NamedTuple):
    """It was stopped."""

    seq: int


class Abort(NamedTuple):
    """It never got to run."""

    seq: int


class RetireCompleted(NamedTuple):
    """It came to its end as asked."""

    seq: int


class Terminate(NamedTuple):
    """Its owner is gone."""

    seq: int


# -- effects of an operation, inputs of the barrier -----------------------------------------------------


class Registered(NamedTuple):
    """There is one more."""

    op_id: str


class Ended(NamedTuple):
    """One is over: an entry of the feed that readers keep cursors on."""

    op_id: str
    kind: OperationKind
    status: Status
    seq: int


# -- the table of an operation --------------------------------------------------------------------------

_ABSENT, _PROVISIONING, _RUNNING, _RETIRING = tuple(Status)[:4]
LIVE = frozenset({_PROVISIONING, _RUNNING, _RETIRING})
"""Not over."""
ENDINGS = frozenset(tuple(Status)[4:])
"""Over, for good."""
_WORKING = frozenset({_RUNNING, _RETIRING})

NUMBERED = guard("is_numbered", lambda s, i: i.seq >= 1)
IS_CHILD = guard("is_a_child", lambda s, i: s.kind is OperationKind.MOB_MEMBER_CHILD)
NOT_READY = guard("not_ready_yet", lambda s, i: not s.peer_ready)


def _ends(input_: type, phases: frozenset[Status], to: Status) -> Row[Operation]:
    return row(
        input_,
        phases,
        to,
        NUMBERED,
        update=lambda s, i: s._replace(phase=to, seq=i.seq),
        effects=lambda old, new, i: (Ended(new.op_id, new.kind, to, i.seq),),
        emits="Ended",
    )


_OPERATION_ROWS = (
    row(
        Register,
        [_ABSENT],
        _PROVISIONING,
        update=lambda s, i: Operation(_PROVISIONING, i.op_id, i.kind),
        effects=lambda old, new, i: (Registered(i.op_id),),
        emits="Registered",
    ),
    row(Start, [_PROVISIONING], _RUNNING, update=lambda s, i: s._replace(phase=_RUNNING)),
    row(
        PeerReady,
        _WORKING,
        "=",
        IS_CHILD,
        NOT_READY,
        update=lambda s, i: s._replace(peer_ready=True),
    ),
    row(Progress, _WORKING, "=", update=lambda s, i: s._replace(progress=s.progress + 1)),
    row(RetireRequested, [_RUNNING], _RETIRING, update=lambda s, i: s._replace(phase=_RETIRING)),
    _ends(Complete, _WORKING, Status.COMPLETED),
    _ends(Fail, LIVE, Status.FAILED),
    _ends(Cancel, LIVE, Status.CANCELLED),
    _ends(Abort, frozenset({_PROVISIONING}), Status.ABORTED),
    _ends(RetireCompleted, _WORKING, Status.RETIRED),
    _ends(Terminate, LIVE, Status.TERMINATED),
)

_ENDING_INPUTS = (Complete, Fail, Cancel, Abort, RetireCompleted, Terminate)


def _operation_alphabet(s: Operation) -> Iterator[Any]:
    yield from (Register("x", kind) for kind in OperationKind)
    yield from (kind() for kind in (Start, PeerReady, Progress, RetireRequested))
    yield from (kind(seq) for kind in _ENDING_INPUTS for seq in (0, 1))


OPERATION: Machine[Operation] = Machine(
    name="operation",
    purpose="One operation beside a turn: a child agent, or a tool in the background.",
    initial=Operation(),
    rows=_OPERATION_ROWS,
    invariants={
        "an operation is known exactly from its registration on": lambda s: (
            s == Operation() if s.phase is _ABSENT else s.op_id is not None and s.kind is not None
        ),
        "every ending is numbered, and nothing else": lambda s: (
            (s.seq is not None) == (s.phase in ENDINGS)
        ),
        "only a child becomes ready": lambda s: (
            not s.peer_ready or s.kind is OperationKind.MOB_MEMBER_CHILD
        ),
        "nothing is reported before it runs": lambda s: (
            s.phase is not _PROVISIONING or (s.progress == 0 and not s.peer_ready)
        ),
    },
    ends=ENDINGS,
    alphabet=_operation_alphabet,
    bounded=lambda s: s.progress < 2,
)
