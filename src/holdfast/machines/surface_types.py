"""The words of the tool surface machine: its state, inputs and effects. The table is in `surface.py`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

REMOVAL_TIMEOUT_MS = 30_000
"""How long a removed server's calls may go on."""
CLOSE_OLD_MS = 30_000
"""How long a replaced connection's calls may go on."""
CONNECT_TIMEOUT_MS = 10_000
"""How long a connection attempt may take."""


class Phase(StrEnum):
    """Of all servers together."""

    OPERATING = "Operating"
    SHUTDOWN = "Shutdown"


class Base(StrEnum):
    """What a server is to the session."""

    ABSENT = "Absent"
    ACTIVE = "Active"
    REMOVING = "Removing"
    REMOVED = "Removed"


class Op(StrEnum):
    """What is wanted of a server."""

    ADD = "Add"
    REMOVE = "Remove"
    RELOAD = "Reload"


class DeltaPhase(StrEnum):
    """How far it got."""

    PENDING = "Pending"
    APPLIED = "Applied"
    DRAINING = "Draining"
    FAILED = "Failed"
    FORCED = "Forced"


class Cause(StrEnum):
    """Why something was refused or failed; the values go over the wire."""

    PENDING_FAILED = "pending_failed"
    SURFACE_DRAINING = "surface_draining"
    SURFACE_UNAVAILABLE = "surface_unavailable"


class Staged(NamedTuple):
    """What the user asked for last."""

    op: Op
    seq: int


class Pending(NamedTuple):
    """A connection attempt, and the intent it was started for."""

    op: Op
    task: int
    seq: int


class Removal(NamedTuple):
    """Waiting for the calls in flight."""

    since: int
    deadline: int
    turn: int


class Old(NamedTuple):
    """A replaced connection that still has calls in flight."""

    connection: int
    inflight: int
    deadline: int


class Failure(NamedTuple):
    """Why the last attempt failed."""

    cause: Cause
    detail: str


class Record(NamedTuple):
    """One server."""

    base: Base = Base.ABSENT
    staged: Staged | None = None
    pending: Pending | None = None
    connection: int | None = None
    """The attempt whose connection serves."""
    inflight: int = 0
    """Calls on it."""
    removal: Removal | None = None
    old: tuple[Old, ...] = ()
    failure: Failure | None = None

    @property
    def visible(self) -> bool:
        """Whether the model sees its tools."""
        return self.base is Base.ACTIVE

    @property
    def open(self) -> tuple[int, ...]:
        """Its connections, oldest first."""
        current = () if self.connection is None else (self.connection,)
        return (*[one.connection for one in self.old], *current) if self.old else current


class Surface(NamedTuple):
    """The state: one server and what all servers share."""

    phase: Phase = Phase.OPERATING
    record: Record = Record()
    next_staged: int = 0
    next_task: int = 0
    epoch: int = 0
    aligned: int = 0


# -- inputs -------------------------------------------------------------------------------------------


class StageAdd(NamedTuple):
    """Connect it, or connect it anew, at the next boundary."""


class StageRemove(NamedTuple):
    """Remove it at the next boundary."""


class StageReload(NamedTuple):
    """Replace its connection at the next boundary."""


class Apply(NamedTuple):
    """A boundary is here: carry out that intent."""

    seq: int
    now: int
    turn: int
    timeout_ms: int = REMOVAL_TIMEOUT_MS


class Succeeded(NamedTuple):
    """The attempt has a connection."""

    task: int
    seq: int
    now: int


class Failed(NamedTuple):
    """The attempt has none."""

    task: int
    seq: int
    cause: Cause = Cause.PENDING_FAILED
    detail: str = ""


class CallStarted(NamedTuple):
    """May a call go out?"""


class CallFinished(NamedTuple):
    """A call that went out on that connection is over."""

    connection: int


class PumpRemoval(NamedTuple):
    """See whether a removal is complete."""

    now: int


class PumpOld(NamedTuple):
    """See whether replaced connections had time enough."""

    now: int


class Aligned(NamedTuple):
    """The projection was rebuilt for that epoch."""

    epoch: int


class Shutdown(NamedTuple):
    """Close everything."""


# -- effects ------------------------------------------------------------------------------------------


class Connect(NamedTuple):
    """Start the attempt."""

    op: Op
    task: int
    seq: int


class CancelConnect(NamedTuple):
    """End the attempt."""

    task: int


class Delta(NamedTuple):
    """Tell whoever watches."""

    op: Op
    phase: DeltaPhase
    cause: Cause | None = None


class Refresh(NamedTuple):
    """Rebuild the projection of what is visible."""

    epoch: int


class Close(NamedTuple):
    """Close the connection."""

    connection: int


class Admit(NamedTuple):
    """The call may go out on this connection."""

    connection: int


class Reject(NamedTuple):
    """The call may not go out."""

    cause: Cause
