"""What the rows of `surface.py` test, change and emit."""

from __future__ import annotations

from typing import Any

from holdfast.machines.kernel import Update, guard
from holdfast.machines.surface_types import (
    CLOSE_OLD_MS,
    Apply,
    Base,
    CallFinished,
    CancelConnect,
    Close,
    Connect,
    Delta,
    DeltaPhase,
    Failed,
    Old,
    Op,
    Pending,
    Phase,
    PumpRemoval,
    Record,
    Refresh,
    Removal,
    Shutdown,
    Staged,
    Succeeded,
    Surface,
)

# -- guards -------------------------------------------------------------------------------------------


def is_staged(state: Surface, op: Op) -> bool:
    """Whether that intent waits for a boundary."""
    return state.record.staged is not None and state.record.staged.op is op


def is_pending(state: Surface, op: Op) -> bool:
    """Whether such an attempt is under way."""
    return state.record.pending is not None and state.record.pending.op is op


def tokens_known(state: Surface) -> bool:
    """Whether every number in the record was handed out by the counters."""
    staged, pending = state.record.staged, state.record.pending
    if staged is not None and not 0 < staged.seq <= state.next_staged:
        return False
    if pending is not None and not (
        0 < pending.seq <= state.next_staged and 0 < pending.task <= state.next_task
    ):
        return False
    return all(0 < task <= state.next_task for task in state.record.open)


def _seq_matches(state: Surface, apply: Apply) -> bool:
    return state.record.staged is not None and state.record.staged.seq == apply.seq


def _attempt_matches(state: Surface, done: Succeeded | Failed) -> bool:
    pending = state.record.pending
    return pending is not None and (pending.task, pending.seq) == (done.task, done.seq)


def _on_current(state: Surface, done: CallFinished) -> bool:
    return state.record.connection == done.connection and state.record.inflight > 0


def _overdue(state: Surface, pump: PumpRemoval) -> bool:
    return state.record.removal is not None and pump.now >= state.record.removal.deadline


ADD = guard("add_staged", lambda s, i: is_staged(s, Op.ADD))
RELOAD = guard("reload_staged", lambda s, i: is_staged(s, Op.RELOAD))
REMOVE = guard("remove_staged", lambda s, i: is_staged(s, Op.REMOVE))
SEQ = guard("intent_current", _seq_matches)
UNOCCUPIED = guard("nothing_pending", lambda s, i: s.record.pending is None)
ATTEMPT = guard("attempt_current", _attempt_matches)
ACTIVE = guard("active", lambda s, i: s.record.base is Base.ACTIVE)
NOT_ACTIVE = guard("not_active", lambda s, i: s.record.base is not Base.ACTIVE)
REMOVING = guard("removing", lambda s, i: s.record.base is Base.REMOVING)
NOT_REMOVING = guard("not_removing", lambda s, i: s.record.base is not Base.REMOVING)
UNAVAILABLE = guard("unavailable", lambda s, i: s.record.base in (Base.ABSENT, Base.REMOVED))
ON_CURRENT = guard("in_flight", _on_current)
ON_OLD = guard(
    "in_flight_on_old", lambda s, i: i.connection in {one.connection for one in s.record.old}
)
DRAINED = guard("nothing_in_flight", lambda s, i: s.record.inflight == 0)
BUSY = guard("something_in_flight", lambda s, i: s.record.inflight > 0)
OVERDUE = guard("removal_overdue", _overdue)
OLD_OVERDUE = guard("old_overdue", lambda s, i: any(one.deadline <= i.now for one in s.record.old))
NEW_EPOCH = guard("epoch_new_and_known", lambda s, i: s.aligned < i.epoch <= s.epoch)


# -- updates ------------------------------------------------------------------------------------------


def with_record(state: Surface, **changes: Any) -> Surface:
    """The state with some of its record changed."""
    return state._replace(record=state.record._replace(**changes))


def stage(op: Op) -> Update[Surface]:
    """Replace the intent."""

    def staged(state: Surface, _: object) -> Surface:
        seq = state.next_staged + 1
        return with_record(state._replace(next_staged=seq), staged=Staged(op, seq))

    return staged


def attempt(op: Op) -> Update[Surface]:
    """Turn the intent into a connection attempt."""

    def applied(state: Surface, apply: Apply) -> Surface:
        task = state.next_task + 1
        pending = Pending(op, task, apply.seq)
        return with_record(
            state._replace(next_task=task), pending=pending, staged=None, failure=None
        )

    return applied


def emit_connect(_: Surface, new: Surface, __: Apply) -> tuple[Any, ...]:
    """Start the attempt."""
    assert new.record.pending is not None
    return (Connect(*new.record.pending), Delta(new.record.pending.op, DeltaPhase.PENDING))


def start_removal(state: Surface, apply: Apply) -> Surface:
    """Hide it, and let its calls finish."""
    removal = Removal(apply.now, apply.now + apply.timeout_ms, apply.turn)
    return with_record(
        state._replace(epoch=state.epoch + 1),
        base=Base.REMOVING,
        staged=None,
        removal=removal,
        failure=None,
    )


def succeed(state: Surface, done: Succeeded) -> Surface:
    """The new connection serves; one that still has calls is kept for them."""
    record, old = state.record, state.record.old
    if record.connection is not None and record.inflight:
        old = (*old, Old(record.connection, record.inflight, done.now + CLOSE_OLD_MS))
    new = Record(Base.ACTIVE, record.staged, connection=done.task, old=old)
    return state._replace(record=new, epoch=state.epoch + 1)


def finish_on_old(state: Surface, done: CallFinished) -> Surface:
    """One call fewer on a replaced connection; none left, and it goes."""
    left = (
        one._replace(inflight=one.inflight - (one.connection == done.connection))
        for one in state.record.old
    )
    return with_record(state, old=tuple(one for one in left if one.inflight))


def shut_down(state: Surface, _: Shutdown) -> Surface:
    """Forget everything but whether it was ever there."""
    base = Base.ABSENT if state.record.base is Base.ABSENT else Base.REMOVED
    epoch = state.epoch + state.record.visible
    return state._replace(phase=Phase.SHUTDOWN, record=Record(base), epoch=epoch)


def remove(state: Surface, _: PumpRemoval) -> Surface:
    """The removal is complete."""
    return with_record(state, base=Base.REMOVED, connection=None, inflight=0, removal=None)


# -- effects of a step --------------------------------------------------------------------------------


def emit_closed(old: Surface, new: Surface, _: object = None) -> tuple[Close, ...]:
    """Every connection that was open and is no longer, once."""
    return tuple(Close(one) for one in old.record.open if one not in new.record.open)


def emit_success(old: Surface, new: Surface, _: Succeeded) -> tuple[Any, ...]:
    """What is visible changed, and an old connection may be free."""
    assert old.record.pending is not None
    applied = Delta(old.record.pending.op, DeltaPhase.APPLIED)
    return (Refresh(new.epoch), applied, *emit_closed(old, new))


def emit_failure(old: Surface, _: Surface, done: Failed) -> tuple[Any, ...]:
    """Tell why."""
    assert old.record.pending is not None
    return (Delta(old.record.pending.op, DeltaPhase.FAILED, done.cause),)


def emit_shutdown(old: Surface, new: Surface, _: Shutdown) -> tuple[Any, ...]:
    """Close and cancel all there is."""
    pending = old.record.pending
    cancelled = () if pending is None else (CancelConnect(pending.task),)
    refreshed = () if new.epoch == old.epoch else (Refresh(new.epoch),)
    return (*emit_closed(old, new), *cancelled, *refreshed)
