"""One tool server of a session: added, reloaded and removed while the session runs.

An intent is *staged* at any time, *applied* at a boundary, *completed* later by a connection attempt. Each step quotes
what it belongs to (intent `seq`, attempt `task`), so the late result of an abandoned attempt makes nothing visible.
The state is one server's `Record` plus what all servers share: the global phase, the counters and the epoch
(`surfaces.py` keeps many). *Visible* is derived: `base` is `Active`. The epoch counts changes of what is visible, or of
the tools behind it, and nothing else; `aligned` is the last epoch the projection was rebuilt for.

Who closes a connection, exactly once:

* An accepted `Succeeded` hands the connection over to this record; it is named by its attempt's `task`. A refused one
  leaves it with the sender, who closes it. So a shutdown only has to cancel an attempt, not to wait for it.
* `Succeeded` on an `Active` server replaces its connection. The old one stays open for the calls in flight on it, and
  is closed when the last of them ends or 30 s have passed (`PumpOld`); for that, a call names its connection.
* `PumpRemoval` closes what is removed, `Shutdown` closes whatever is still open.

A failed reload leaves the old connection serving. The last failure is kept for the status view (`mcp_status.py`) until
the next attempt or removal.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.machines import surface_steps as steps
from holdfast.machines.kernel import Effects, Machine, Row, row
from holdfast.machines.surface_steps import (
    ACTIVE,
    ADD,
    ATTEMPT,
    BUSY,
    DRAINED,
    NEW_EPOCH,
    NOT_ACTIVE,
    NOT_REMOVING,
    OLD_OVERDUE,
    ON_CURRENT,
    ON_OLD,
    OVERDUE,
    RELOAD,
    REMOVE,
    REMOVING,
    SEQ,
    UNAVAILABLE,
    UNOCCUPIED,
)
from holdfast.machines.surface_types import (
    REMOVAL_TIMEOUT_MS,
    Admit,
    Aligned,
    Apply,
    Base,
    CallFinished,
    CallStarted,
    Cause,
    Delta,
    DeltaPhase,
    Failed,
    Failure,
    Op,
    Phase,
    PumpOld,
    PumpRemoval,
    Record,
    Refresh,
    Reject,
    Shutdown,
    StageAdd,
    StageReload,
    StageRemove,
    Succeeded,
    Surface,
)

# -- the table ----------------------------------------------------------------------------------------

_OPERATING, _SHUTDOWN = Phase
_OP = [_OPERATING]


def _intents() -> tuple[Row[Surface], ...]:
    """Staging, and what a boundary makes of it."""
    return (
        row(StageAdd, _OP, "=", update=steps.stage(Op.ADD), note="the last intent wins"),
        row(StageRemove, _OP, "=", update=steps.stage(Op.REMOVE)),
        row(StageReload, _OP, "=", ACTIVE, update=steps.stage(Op.RELOAD)),
        row(
            Apply,
            _OP,
            "=",
            SEQ,
            ADD,
            UNOCCUPIED,
            NOT_REMOVING,
            update=steps.attempt(Op.ADD),
            effects=steps.emit_connect,
            emits="Connect(Add), Delta(Add, Pending)",
        ),
        row(
            Apply,
            _OP,
            "=",
            SEQ,
            RELOAD,
            UNOCCUPIED,
            update=steps.attempt(Op.RELOAD),
            effects=steps.emit_connect,
            emits="Connect(Reload), Delta(Reload, Pending)",
        ),
        row(
            Apply,
            _OP,
            "=",
            SEQ,
            REMOVE,
            UNOCCUPIED,
            ACTIVE,
            update=steps.start_removal,
            effects=lambda old, new, i: (
                Refresh(new.epoch),
                Delta(Op.REMOVE, DeltaPhase.DRAINING),
            ),
            emits="Refresh, Delta(Remove, Draining)",
            note="Removing",
        ),
        row(
            Apply,
            _OP,
            "=",
            SEQ,
            REMOVE,
            UNOCCUPIED,
            NOT_ACTIVE,
            update=lambda s, i: steps.with_record(s, staged=None, failure=None),
            note="nothing to remove",
        ),
    )


def _attempts() -> tuple[Row[Surface], ...]:
    """How a connection attempt ends."""
    return (
        row(
            Succeeded,
            _OP,
            "=",
            ATTEMPT,
            update=steps.succeed,
            effects=steps.emit_success,
            emits="Refresh, Delta(op, Applied), Close(old) if nothing is in flight on it",
            note="Active",
        ),
        row(
            Failed,
            _OP,
            "=",
            ATTEMPT,
            update=lambda s, i: steps.with_record(
                s, pending=None, failure=Failure(i.cause, i.detail)
            ),
            effects=steps.emit_failure,
            emits="Delta(op, Failed, cause)",
        ),
    )


def _reject(cause: Cause) -> Effects[Surface]:
    return lambda old, new, i: (Reject(cause),)


def _calls() -> tuple[Row[Surface], ...]:
    """Calls."""
    return (
        row(
            CallStarted,
            _OP,
            "=",
            ACTIVE,
            update=lambda s, i: steps.with_record(s, inflight=s.record.inflight + 1),
            effects=lambda old, new, i: (Admit(old.record.connection),),
            emits="Admit",
        ),
        row(
            CallStarted,
            _OP,
            "=",
            REMOVING,
            effects=_reject(Cause.SURFACE_DRAINING),
            emits="Reject(surface_draining)",
        ),
        row(
            CallStarted,
            _OP,
            "=",
            UNAVAILABLE,
            effects=_reject(Cause.SURFACE_UNAVAILABLE),
            emits="Reject(surface_unavailable)",
        ),
        row(
            CallStarted,
            [_SHUTDOWN],
            "=",
            effects=_reject(Cause.SURFACE_UNAVAILABLE),
            emits="Reject(surface_unavailable)",
        ),
        row(
            CallFinished,
            _OP,
            "=",
            ON_CURRENT,
            update=lambda s, i: steps.with_record(s, inflight=s.record.inflight - 1),
        ),
        row(
            CallFinished,
            _OP,
            "=",
            ON_OLD,
            update=steps.finish_on_old,
            effects=steps.emit_closed,
            emits="Close when it was the last",
        ),
        row(CallFinished, [_SHUTDOWN], "="),
    )


def _ending() -> tuple[Row[Surface], ...]:
    """Old connections, removals, alignment, shutdown."""
    return (
        row(
            PumpOld,
            _OP,
            "=",
            OLD_OVERDUE,
            update=lambda s, i: steps.with_record(
                s, old=tuple(one for one in s.record.old if one.deadline > i.now)
            ),
            effects=steps.emit_closed,
            emits="Close",
        ),
        row(
            PumpRemoval,
            _OP,
            "=",
            REMOVING,
            DRAINED,
            update=steps.remove,
            effects=lambda old, new, i: (
                *steps.emit_closed(old, new),
                Delta(Op.REMOVE, DeltaPhase.APPLIED),
            ),
            emits="Close, Delta(Remove, Applied)",
            note="Removed",
        ),
        row(
            PumpRemoval,
            _OP,
            "=",
            BUSY,
            OVERDUE,
            update=steps.remove,
            effects=lambda old, new, i: (
                *steps.emit_closed(old, new),
                Delta(Op.REMOVE, DeltaPhase.FORCED),
            ),
            emits="Close, Delta(Remove, Forced)",
            note="Removed",
        ),
        row(Aligned, _OP, "=", NEW_EPOCH, update=lambda s, i: s._replace(aligned=i.epoch)),
        row(
            Shutdown,
            _OP,
            _SHUTDOWN,
            update=steps.shut_down,
            effects=steps.emit_shutdown,
            emits="Close for all that is open, CancelConnect, Refresh",
        ),
        row(Shutdown, [_SHUTDOWN], "="),
    )


def _alphabet(state: Surface) -> Iterator[object]:
    yield from (StageAdd(), StageRemove(), StageReload(), CallStarted(), Shutdown())
    staged, task = state.next_staged, state.next_task
    yield from (Apply(seq, 0, 1) for seq in (staged - 1, staged))
    for seq in (staged - 1, staged):
        yield from (Succeeded(task, seq, 0), Succeeded(task - 1, seq, 0))
        yield Failed(task, seq)
    yield Failed(0, 0)
    yield from (CallFinished(connection) for connection in range(task + 1))
    for now in (0, REMOVAL_TIMEOUT_MS):
        yield from (PumpRemoval(now), PumpOld(now))
    yield from (Aligned(state.epoch - 1), Aligned(state.epoch), Aligned(state.epoch + 1))


SURFACE = Machine(
    name="tool_surface",
    purpose="One tool server: intents applied at boundaries, connections opened and closed once.",
    initial=Surface(),
    rows=(*_intents(), *_attempts(), *_calls(), *_ending()),
    invariants={
        "Removing exactly with a removal deadline": lambda s: (
            (s.record.base is Base.REMOVING) == (s.record.removal is not None)
        ),
        "connected exactly while Active or Removing": lambda s: (
            (s.record.base in (Base.ACTIVE, Base.REMOVING)) == (s.record.connection is not None)
        ),
        "nothing is pending while Removing": lambda s: (
            s.record.base is not Base.REMOVING or s.record.pending is None
        ),
        "only what is Active is reloaded": lambda s: (
            s.record.base is Base.ACTIVE
            or not (steps.is_staged(s, Op.RELOAD) or steps.is_pending(s, Op.RELOAD))
        ),
        "a removal is no attempt": lambda s: not steps.is_pending(s, Op.REMOVE),
        "calls in flight have a connection": lambda s: (
            s.record.inflight >= 0 and (s.record.inflight == 0 or s.record.connection is not None)
        ),
        "an old connection is kept only for its calls": lambda s: all(
            one.inflight > 0 for one in s.record.old
        ),
        "every open connection is another one": lambda s: (
            len(set(s.record.open)) == len(s.record.open)
        ),
        "tokens were handed out": steps.tokens_known,
        "aligned with an epoch that was": lambda s: 0 <= s.aligned <= s.epoch,
        "nothing is open or wanted after Shutdown": lambda s: (
            s.phase is not _SHUTDOWN or s.record in (Record(), Record(Base.REMOVED))
        ),
    },
    ends=frozenset({_SHUTDOWN}),
    alphabet=_alphabet,
    bounded=lambda s: s.next_staged < 4 and s.record.inflight < 3,
)
