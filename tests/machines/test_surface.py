"""One tool server and all of them: `machines.md` §6."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import (
    after,
    assert_breaks,
    assert_no_transition,
    assert_refused,
    assert_sound,
    run,
)

from holdfast.machines import Rejected
from holdfast.machines.surface import SURFACE
from holdfast.machines.surface_types import (
    CLOSE_OLD_MS,
    REMOVAL_TIMEOUT_MS,
    Admit,
    Aligned,
    Apply,
    Base,
    CallFinished,
    CallStarted,
    CancelConnect,
    Cause,
    Close,
    Connect,
    Delta,
    DeltaPhase,
    Failed,
    Failure,
    Old,
    Op,
    Pending,
    Phase,
    PumpOld,
    PumpRemoval,
    Record,
    Refresh,
    Reject,
    Removal,
    Shutdown,
    StageAdd,
    Staged,
    StageReload,
    StageRemove,
    Succeeded,
    Surface,
)
from holdfast.machines.surfaces import Emitted, Surfaces, shut_down, step

NOW = 1_000
NEW = SURFACE.initial
CONNECTING = after(SURFACE, StageAdd(), Apply(1, NOW, 1))
ACTIVE = after(SURFACE, Succeeded(1, 1, NOW), state=CONNECTING)
BUSY = after(SURFACE, CallStarted(), CallStarted(), state=ACTIVE)
RELOADING = after(SURFACE, StageReload(), Apply(2, NOW, 1), state=BUSY)
REPLACED = after(SURFACE, Succeeded(2, 2, NOW), state=RELOADING)
REMOVING = after(SURFACE, StageRemove(), Apply(2, NOW, 7), state=BUSY)
REMOVED = after(SURFACE, CallFinished(1), CallFinished(1), PumpRemoval(NOW), state=REMOVING)
SHUT = after(SURFACE, Shutdown())

LIVE = [NEW, CONNECTING, ACTIVE, BUSY, RELOADING, REPLACED, REMOVING, REMOVED]


def test_sound():
    assert_sound(SURFACE)


# -- intents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("input_", "op"),
    [(StageAdd(), Op.ADD), (StageRemove(), Op.REMOVE), (StageReload(), Op.RELOAD)],
)
def test_last_staged_intent_wins(input_: Any, op: Op):
    state, effects = run(SURFACE, StageAdd(), StageRemove(), input_, state=ACTIVE)
    assert state.record.staged == Staged(op, 4)
    assert effects == ()
    other_ops = {"add_staged", "reload_staged", "remove_staged"} - {f"{op.lower()}_staged"}
    assert_refused(SURFACE, state, Apply(3, NOW, 1), "intent_current", "not_active", *other_ops)


@pytest.mark.parametrize("state", [NEW, CONNECTING, REMOVING, REMOVED])
def test_only_what_is_active_can_be_reloaded(state: Surface):
    assert_refused(SURFACE, state, StageReload(), "active")


def test_add_starts_an_attempt():
    state, effects = run(SURFACE, StageAdd(), Apply(1, NOW, 1))
    assert state == Surface(
        record=Record(pending=Pending(Op.ADD, 1, 1)), next_staged=1, next_task=1
    )
    assert effects == (Connect(Op.ADD, 1, 1), Delta(Op.ADD, DeltaPhase.PENDING))


def test_reload_starts_an_attempt_beside_the_connection_that_serves():
    state, effects = run(SURFACE, StageReload(), Apply(2, NOW, 1), state=ACTIVE)
    assert state.record == Record(Base.ACTIVE, None, Pending(Op.RELOAD, 2, 2), connection=1)
    assert state.epoch == ACTIVE.epoch
    assert effects == (Connect(Op.RELOAD, 2, 2), Delta(Op.RELOAD, DeltaPhase.PENDING))


def test_remove_hides_the_server_and_waits_for_its_calls():
    state, effects = run(SURFACE, StageRemove(), Apply(2, NOW, 7), state=BUSY)
    removal = Removal(NOW, NOW + REMOVAL_TIMEOUT_MS, 7)
    assert state.record == Record(Base.REMOVING, connection=1, inflight=2, removal=removal)
    assert state.epoch == BUSY.epoch + 1
    assert effects == (Refresh(2), Delta(Op.REMOVE, DeltaPhase.DRAINING))


def test_remove_of_nothing_only_takes_the_intent_back():
    failed = after(SURFACE, Failed(1, 1, detail="no route"), state=CONNECTING)
    state, effects = run(SURFACE, StageRemove(), Apply(2, NOW, 1), state=failed)
    assert (state.record, effects) == (Record(), ())
    state, effects = run(SURFACE, StageRemove(), Apply(3, NOW, 1), state=REMOVED)
    assert (state.record, effects) == (Record(Base.REMOVED), ())


def test_nothing_staged_nothing_applied():
    assert_refused(
        SURFACE,
        NEW,
        Apply(0, NOW, 1),
        "intent_current",
        "add_staged",
        "reload_staged",
        "remove_staged",
        "active",
    )


def test_a_withdrawn_intent_is_not_applied_to_what_is_not_there():
    staged = after(SURFACE, StageRemove())
    refused_by = ("intent_current", "add_staged", "reload_staged", "active")
    assert_refused(SURFACE, staged, Apply(0, NOW, 1), *refused_by)


def test_add_while_removing_stays_staged_until_the_removal_is_over():
    state = after(SURFACE, StageAdd(), state=REMOVING)
    other_rows = ("reload_staged", "remove_staged", "active")
    assert_refused(SURFACE, state, Apply(3, NOW, 1), "not_removing", *other_rows)
    state = after(SURFACE, PumpRemoval(NOW + REMOVAL_TIMEOUT_MS), Apply(3, NOW, 1), state=state)
    assert state.record.pending == Pending(Op.ADD, 2, 3)


@pytest.mark.parametrize("state", [CONNECTING, RELOADING])
def test_what_is_staged_while_an_attempt_runs_waits_for_it(state: Surface):
    seq = state.next_staged + 1
    ops = {"add_staged", "reload_staged", "remove_staged"}
    other = "not_active" if state.record.visible else "active"
    for input_, mine in ((StageAdd(), "add_staged"), (StageRemove(), "remove_staged")):
        staged = after(SURFACE, input_, state=state)
        refused_by = ("nothing_pending", other, *(ops - {mine}))
        assert_refused(SURFACE, staged, Apply(seq, NOW, 1), *refused_by)
    again = after(SURFACE, StageReload(), state=RELOADING)
    refused_by = ("nothing_pending", "not_active", "add_staged", "remove_staged")
    assert_refused(SURFACE, again, Apply(3, NOW, 1), *refused_by)


def test_one_row_decides_about_a_removal():
    for state in (ACTIVE, REMOVED):
        staged = after(SURFACE, StageRemove(), state=state)
        assert len(SURFACE.enabled(staged, Apply(staged.next_staged, NOW, 1))) == 1


def test_the_removal_timeout_can_be_set():
    state = after(SURFACE, StageRemove(), Apply(2, NOW, 1, timeout_ms=5), state=BUSY)
    assert state.record.removal == Removal(NOW, NOW + 5, 1)


# -- attempts -----------------------------------------------------------------------------------------


def test_success_makes_the_server_visible():
    state, effects = run(SURFACE, Succeeded(1, 1, NOW), state=CONNECTING)
    assert state.record == Record(Base.ACTIVE, connection=1)
    assert state.epoch == 1
    assert effects == (Refresh(1), Delta(Op.ADD, DeltaPhase.APPLIED))


def test_success_keeps_what_was_staged_meanwhile():
    state = after(SURFACE, StageRemove(), Succeeded(1, 1, NOW), state=CONNECTING)
    assert state.record.staged == Staged(Op.REMOVE, 2)


def test_replacing_an_idle_connection_closes_it_at_once():
    reloading = after(SURFACE, StageReload(), Apply(2, NOW, 1), state=ACTIVE)
    state, effects = run(SURFACE, Succeeded(2, 2, NOW), state=reloading)
    assert state.record == Record(Base.ACTIVE, connection=2)
    assert state.epoch == 2
    assert effects == (Refresh(2), Delta(Op.RELOAD, DeltaPhase.APPLIED), Close(1))


def test_a_second_add_replaces_the_connection():
    state, effects = run(SURFACE, StageAdd(), Apply(2, NOW, 1), Succeeded(2, 2, NOW), state=ACTIVE)
    assert state.record == Record(Base.ACTIVE, connection=2)
    assert effects[-2:] == (Delta(Op.ADD, DeltaPhase.APPLIED), Close(1))


def test_failure_keeps_what_was_there():
    state, effects = run(SURFACE, Failed(1, 1, detail="no route"), state=CONNECTING)
    assert state.record == Record(failure=Failure(Cause.PENDING_FAILED, "no route"))
    assert effects == (Delta(Op.ADD, DeltaPhase.FAILED, Cause.PENDING_FAILED),)
    assert state.epoch == 0

    state, effects = run(SURFACE, Failed(2, 2), state=RELOADING)
    assert state.record == BUSY.record._replace(failure=Failure(Cause.PENDING_FAILED, ""))
    assert effects == (Delta(Op.RELOAD, DeltaPhase.FAILED, Cause.PENDING_FAILED),)
    assert state.epoch == BUSY.epoch


def test_the_next_attempt_forgets_the_last_failure():
    failed = after(SURFACE, Failed(1, 1), StageAdd(), state=CONNECTING)
    assert after(SURFACE, Apply(2, NOW, 1), state=failed).record.failure is None
    reload_failed = after(SURFACE, Failed(2, 2), StageRemove(), state=RELOADING)
    assert after(SURFACE, Apply(3, NOW, 1), state=reload_failed).record.failure is None


@pytest.mark.parametrize("task", range(4))
@pytest.mark.parametrize("seq", range(4))
def test_a_stale_completion_never_makes_a_tool_visible(task: int, seq: int):
    retried = after(
        SURFACE, Failed(1, 1), StageAdd(), StageAdd(), Apply(3, NOW, 1), state=CONNECTING
    )
    assert retried.record.pending == Pending(Op.ADD, 2, 3)
    if (task, seq) != (2, 3):
        assert_refused(SURFACE, retried, Succeeded(task, seq, NOW), "attempt_current")
        assert_refused(SURFACE, retried, Failed(task, seq), "attempt_current")
    for state in (NEW, ACTIVE, REMOVING, REMOVED):
        assert_refused(SURFACE, state, Succeeded(task, seq, NOW), "attempt_current")
    assert_no_transition(SURFACE, SHUT, Succeeded(task, seq, NOW))


# -- calls --------------------------------------------------------------------------------------------


def test_calls_are_admitted_only_while_active():
    state, effects = run(SURFACE, CallStarted(), state=ACTIVE)
    assert (state.record.inflight, effects) == (1, (Admit(1),))
    for state, cause in (
        (NEW, Cause.SURFACE_UNAVAILABLE),
        (CONNECTING, Cause.SURFACE_UNAVAILABLE),
        (REMOVING, Cause.SURFACE_DRAINING),
        (REMOVED, Cause.SURFACE_UNAVAILABLE),
        (SHUT, Cause.SURFACE_UNAVAILABLE),
    ):
        assert run(SURFACE, CallStarted(), state=state) == (state, (Reject(cause),))


@pytest.mark.parametrize("state", LIVE)
def test_one_row_decides_about_a_call(state: Surface):
    assert len(SURFACE.enabled(state, CallStarted())) == 1


def test_a_finished_call_is_counted_once_on_its_connection():
    state = after(SURFACE, CallFinished(1), CallFinished(1), state=BUSY)
    assert state == ACTIVE
    assert_refused(SURFACE, state, CallFinished(1), "in_flight", "in_flight_on_old")
    assert_refused(SURFACE, BUSY, CallFinished(2), "in_flight", "in_flight_on_old")


def test_a_replaced_connection_is_closed_after_its_last_call():
    assert REPLACED.record == Record(
        Base.ACTIVE, connection=2, old=(Old(1, 2, NOW + CLOSE_OLD_MS),)
    )
    state, effects = run(SURFACE, CallStarted(), CallFinished(1), state=REPLACED)
    assert effects == (Admit(2),)
    assert state.record.inflight == 1
    state, effects = run(SURFACE, CallFinished(1), state=state)
    assert (state.record.old, effects) == ((), (Close(1),))
    assert_refused(SURFACE, state, CallFinished(1), "in_flight", "in_flight_on_old")


def test_a_replaced_connection_is_closed_after_30_seconds():
    late = NOW + CLOSE_OLD_MS
    assert_refused(SURFACE, REPLACED, PumpOld(late - 1), "old_overdue")
    state, effects = run(SURFACE, PumpOld(late), state=REPLACED)
    assert (state.record.old, effects) == ((), (Close(1),))
    assert_refused(SURFACE, state, PumpOld(late), "old_overdue")


def test_only_what_is_overdue_is_closed():
    twice = after(
        SURFACE,
        CallStarted(),
        StageReload(),
        Apply(3, NOW, 1),
        Succeeded(3, 3, NOW + 1),
        state=REPLACED,
    )
    assert twice.record.open == (1, 2, 3)
    state, effects = run(SURFACE, PumpOld(NOW + CLOSE_OLD_MS), state=twice)
    assert (state.record.open, effects) == ((2, 3), (Close(1),))
    state, effects = run(SURFACE, CallFinished(2), state=twice)
    assert (state.record.open, effects) == ((1, 3), (Close(2),))


# -- removal ------------------------------------------------------------------------------------------


def test_after_removing_no_new_call_is_admitted_and_it_ends_within_the_timeout():
    deadline = NOW + REMOVAL_TIMEOUT_MS
    assert run(SURFACE, CallStarted(), state=REMOVING)[0] == REMOVING
    waiting = ("nothing_in_flight", "removal_overdue")
    assert_refused(SURFACE, REMOVING, PumpRemoval(deadline - 1), *waiting)
    state, effects = run(SURFACE, PumpRemoval(deadline), state=REMOVING)
    assert state.record == Record(Base.REMOVED)
    assert effects == (Close(1), Delta(Op.REMOVE, DeltaPhase.FORCED))
    assert_refused(SURFACE, state, CallFinished(1), "in_flight", "in_flight_on_old")


@pytest.mark.parametrize("now", [NOW, NOW + REMOVAL_TIMEOUT_MS])
def test_removal_is_clean_when_nothing_is_in_flight(now: int):
    drained = after(SURFACE, CallFinished(1), CallFinished(1), state=REMOVING)
    state, effects = run(SURFACE, PumpRemoval(now), state=drained)
    assert state.record == Record(Base.REMOVED)
    assert effects == (Close(1), Delta(Op.REMOVE, DeltaPhase.APPLIED))
    assert state.epoch == drained.epoch
    assert len(SURFACE.enabled(drained, PumpRemoval(now))) == 1


@pytest.mark.parametrize("state", [NEW, ACTIVE, REMOVED])
def test_only_a_removal_is_pumped(state: Surface):
    refused_by = ("removing", "something_in_flight", "removal_overdue")
    assert_refused(SURFACE, state, PumpRemoval(NOW), *refused_by)


def test_a_busy_server_is_not_removed_by_a_pump_alone():
    refused_by = ("removing", "nothing_in_flight", "removal_overdue")
    assert_refused(SURFACE, BUSY, PumpRemoval(10**9), *refused_by)


# -- epoch, alignment, shutdown -----------------------------------------------------------------------


def test_alignment_follows_the_epoch():
    state = after(SURFACE, Aligned(1), state=ACTIVE)
    assert state.aligned == 1
    for epoch in (0, 1, 2):
        assert_refused(SURFACE, state, Aligned(epoch), "epoch_new_and_known")


def test_shutdown_closes_everything_that_is_open():
    loading = after(SURFACE, StageReload(), Apply(3, NOW, 1), StageRemove(), state=REPLACED)
    state, effects = run(SURFACE, Shutdown(), state=loading)
    assert state == loading._replace(
        phase=Phase.SHUTDOWN, record=Record(Base.REMOVED), epoch=loading.epoch + 1
    )
    assert effects == (Close(1), Close(2), CancelConnect(3), Refresh(3))
    assert run(SURFACE, Shutdown(), state=state) == (state, ())


def test_shutdown_of_what_is_not_visible_is_no_new_epoch():
    assert run(SURFACE, Shutdown()) == (Surface(Phase.SHUTDOWN), ())
    state, effects = run(SURFACE, Shutdown(), state=REMOVING)
    assert (state.epoch, effects) == (REMOVING.epoch, (Close(1),))


@pytest.mark.parametrize(
    "input_",
    [
        StageAdd(),
        StageRemove(),
        StageReload(),
        Apply(1, NOW, 1),
        Succeeded(1, 1, NOW),
        Failed(1, 1),
        PumpRemoval(NOW),
        PumpOld(NOW),
        Aligned(1),
    ],
)
def test_everything_else_after_shutdown_is_a_mistake(input_: Any):
    assert_no_transition(SURFACE, after(SURFACE, Shutdown(), state=CONNECTING), input_)
    assert run(SURFACE, CallFinished(1), state=SHUT) == (SHUT, ())


# -- all servers --------------------------------------------------------------------------------------

SERVERS = ("a", "b", "c")


class Move:
    """One server does the next thing of a kind, with the tokens it has at that moment."""

    KINDS = ("add", "remove", "reload", "apply", "ok", "fail", "call", "done", "pump", "old")

    @staticmethod
    def input(surfaces: Surfaces, server: str, kind: str, now: int) -> Any:
        record = surfaces.records.get(server, Record())
        staged, pending = (
            record.staged or Staged(Op.ADD, 0),
            record.pending or Pending(Op.ADD, 0, 0),
        )
        return {
            "add": StageAdd(),
            "remove": StageRemove(),
            "reload": StageReload(),
            "apply": Apply(staged.seq, now, 1),
            "ok": Succeeded(pending.task, pending.seq, now),
            "fail": Failed(pending.task, pending.seq),
            "call": CallStarted(),
            "done": CallFinished(record.open[0] if record.open else 0),
            "pump": PumpRemoval(now),
            "old": PumpOld(now),
        }[kind]


moves = st.lists(
    st.tuples(st.sampled_from(SERVERS), st.sampled_from(Move.KINDS), st.sampled_from([0, 30_000])),
    min_size=20,
    max_size=60,
)


@given(moves)
def test_visible_set_changes_exactly_when_the_epoch_changes(moves: list[tuple[str, str, int]]):
    surfaces = Surfaces()
    for server, kind, now in moves:
        input_ = Move.input(surfaces, server, kind, now)
        before = surfaces
        try:
            surfaces, _ = step(surfaces, server, input_)
        except Rejected:
            continue
        # A new connection of a visible server changes its tools, not the set of servers.
        tools_changed = isinstance(input_, Succeeded)
        seen_changed = before.visible != surfaces.visible or tools_changed
        assert (surfaces.epoch != before.epoch) == seen_changed
        assert surfaces.epoch - before.epoch in (0, 1)


@given(moves)
def test_shutdown_closes_every_opened_connection_exactly_once(moves: list[tuple[str, str, int]]):
    surfaces = Surfaces()
    opened: set[int] = set()
    closed: Counter[int] = Counter()
    for server, kind, now in moves:
        input_ = Move.input(surfaces, server, kind, now)
        try:
            surfaces, emitted = step(surfaces, server, input_)
        except Rejected:
            continue
        if isinstance(input_, Succeeded):
            opened.add(input_.task)
        closed.update(one.effect.connection for one in emitted if isinstance(one.effect, Close))
    surfaces, emitted = step(surfaces, "a", Shutdown())
    closed.update(one.effect.connection for one in emitted if isinstance(one.effect, Close))
    assert closed == Counter(opened)
    assert shut_down(surfaces) == (surfaces, ())


def test_all_servers_share_counters_and_disappear_in_one_epoch():
    surfaces = Surfaces()
    for number, server in enumerate(SERVERS, 1):
        surfaces, _ = step(surfaces, server, StageAdd())
        surfaces, emitted = step(surfaces, server, Apply(number, NOW, 1))
        assert emitted[0] == Emitted(server, Connect(Op.ADD, number, number))
        surfaces, _ = step(surfaces, server, Succeeded(number, number, NOW))
    assert surfaces.visible == set(SERVERS)
    surfaces, _ = step(surfaces, "", Aligned(3))
    assert surfaces.aligned == 3
    surfaces, emitted = shut_down(surfaces)
    assert [(one.server, one.effect) for one in emitted] == [
        ("a", Close(1)),
        ("b", Close(2)),
        ("c", Close(3)),
        ("", Refresh(4)),
    ]
    assert surfaces.visible == frozenset()
    assert surfaces.phase is Phase.SHUTDOWN


def test_a_call_to_an_unknown_server_leaves_no_record():
    surfaces, emitted = step(Surfaces(), "x", CallStarted())
    assert surfaces == Surfaces()
    assert emitted == (Emitted("x", Reject(Cause.SURFACE_UNAVAILABLE)),)


def test_a_withdrawn_server_keeps_no_intent():
    surfaces, _ = step(Surfaces(), "a", StageRemove())
    surfaces, _ = step(surfaces, "a", Apply(1, NOW, 1))
    assert surfaces.records == {"a": Record()}


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_calls_and_late_completions_are_accepted_after_shutdown():
    state = after(SURFACE, Shutdown(), state=CONNECTING)
    assert_no_transition(SURFACE, state, Succeeded(1, 1, NOW))
    assert run(SURFACE, CallStarted(), state=state)[1] == (Reject(Cause.SURFACE_UNAVAILABLE),)


def test_wrong_alignment_takes_any_number():
    assert_refused(SURFACE, NEW, Aligned(99), "epoch_new_and_known")


def test_wrong_a_failure_of_nothing_is_reported():
    assert_refused(SURFACE, NEW, Failed(0, 0), "attempt_current")


def test_wrong_the_epoch_advances_for_what_is_only_pending():
    assert CONNECTING.epoch == 0


def test_wrong_the_time_of_staging_is_asked_for_and_unused():
    assert [kind._fields for kind in (StageAdd, StageRemove, StageReload)] == [()] * 3


def test_wrong_active_and_visible_are_kept_twice():
    assert [state.record.visible for state in LIVE] == [
        state.record.base is Base.ACTIVE for state in LIVE
    ]
    assert "visible" not in Record._fields


def test_wrong_the_removal_timeout_is_not_configurable():
    state = after(SURFACE, StageRemove(), Apply(2, 0, 1, timeout_ms=1), state=BUSY)
    assert after(SURFACE, PumpRemoval(1), state=state).record.base is Base.REMOVED


def test_wrong_reload_closes_the_old_connection_without_draining_its_calls():
    _, effects = run(SURFACE, Succeeded(2, 2, NOW), state=RELOADING)
    assert Close(1) not in effects


# -- invariants ---------------------------------------------------------------------------------------

_LATER = Removal(0, 1, 1)


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (
            Surface(record=Record(Base.REMOVING, connection=1), next_task=1),
            "Removing exactly with a removal deadline",
        ),
        (Surface(record=Record(removal=_LATER)), "Removing exactly with a removal deadline"),
        (Surface(record=Record(Base.ACTIVE)), "connected exactly while Active or Removing"),
        (
            Surface(record=Record(connection=1), next_task=1),
            "connected exactly while Active or Removing",
        ),
        (
            Surface(
                record=Record(
                    Base.REMOVING, None, Pending(Op.ADD, 2, 1), connection=1, removal=_LATER
                ),
                next_staged=1,
                next_task=2,
            ),
            "nothing is pending while Removing",
        ),
        (
            Surface(record=Record(staged=Staged(Op.RELOAD, 1)), next_staged=1),
            "only what is Active is reloaded",
        ),
        (
            Surface(record=Record(pending=Pending(Op.RELOAD, 1, 1)), next_staged=1, next_task=1),
            "only what is Active is reloaded",
        ),
        (
            Surface(record=Record(pending=Pending(Op.REMOVE, 1, 1)), next_staged=1, next_task=1),
            "a removal is no attempt",
        ),
        (Surface(record=Record(inflight=1)), "calls in flight have a connection"),
        (
            Surface(record=Record(Base.ACTIVE, connection=1, inflight=-1), next_task=1),
            "calls in flight have a connection",
        ),
        (
            Surface(record=Record(old=(Old(1, 0, 0),)), next_task=1),
            "an old connection is kept only for its calls",
        ),
        (
            Surface(record=Record(Base.ACTIVE, connection=1, old=(Old(1, 1, 0),)), next_task=1),
            "every open connection is another one",
        ),
        (Surface(record=Record(Base.ACTIVE, connection=1)), "tokens were handed out"),
        (Surface(record=Record(staged=Staged(Op.ADD, 0))), "tokens were handed out"),
        (Surface(aligned=1), "aligned with an epoch that was"),
        (
            Surface(Phase.SHUTDOWN, Record(Base.ACTIVE, connection=1), next_task=1),
            "nothing is open or wanted after Shutdown",
        ),
    ],
)
def test_invariants(state: Surface, invariant: str):
    assert_breaks(SURFACE, state, invariant)
