"""The inbox drain: `machines.md` §5."""

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
from holdfast.machines.drain import (
    DRAIN,
    IDLE_MS,
    PERSISTENT,
    CancelDrainTask,
    CancelRespawn,
    Delivered,
    Drain,
    Ensure,
    Exited,
    Mode,
    Notice,
    Phase,
    Reason,
    RespawnAfter,
    Spawn,
    SpawnDrainTask,
    Stop,
    backoff_ms,
)

TIMED = Mode(IDLE_MS)
FAILED = Reason.FAILED
CLEAN = [reason for reason in Reason if reason is not FAILED]


def test_sound():
    assert_sound(DRAIN)


def test_spawn_starts_a_task_with_its_mode():
    state, effects = run(DRAIN, Spawn(TIMED))
    assert state == Drain(Phase.RUNNING, TIMED, task_id=1)
    assert state.live_task == 1
    assert effects == (SpawnDrainTask(1, TIMED),)


def test_spawn_is_for_a_pump_that_does_not_run():
    running = after(DRAIN, Spawn())
    assert_no_transition(DRAIN, running, Spawn())
    for down in (Stop(), Exited(1, FAILED), Exited(1, Reason.ABORTED)):
        assert after(DRAIN, down, Spawn(TIMED), state=running) == Drain(Phase.RUNNING, TIMED, 2)


def test_stop_cancels_the_task_or_its_timer():
    state, effects = run(DRAIN, Stop(), state=after(DRAIN, Spawn()))
    assert state == Drain(Phase.STOPPED, PERSISTENT, 1)
    assert state.live_task is None
    assert effects == (CancelDrainTask(1),)

    state, effects = run(DRAIN, Stop(), state=after(DRAIN, Spawn(), Exited(1, FAILED)))
    assert state == Drain(Phase.STOPPED, PERSISTENT, 1)
    assert effects == (CancelRespawn(1),)

    assert_no_transition(DRAIN, DRAIN.initial, Stop())
    assert_no_transition(DRAIN, after(DRAIN, Spawn(), Stop()), Stop())


def test_a_failed_persistent_pump_comes_back():
    state, effects = run(DRAIN, Exited(1, FAILED), state=after(DRAIN, Spawn()))
    assert state == Drain(Phase.EXITED_RESPAWNABLE, PERSISTENT, 1, failures=1)
    assert effects == (Notice(1, FAILED), RespawnAfter(1, 1_000))
    state, effects = run(DRAIN, Ensure(1), state=state)
    assert state == Drain(Phase.RUNNING, PERSISTENT, 2, failures=1)
    assert effects == (SpawnDrainTask(2, PERSISTENT),)
    state, effects = run(DRAIN, Exited(2, FAILED), state=state)
    assert effects == (Notice(2, FAILED), RespawnAfter(2, 2_000))


@pytest.mark.parametrize("mode", [TIMED, PERSISTENT])
@pytest.mark.parametrize("reason", Reason)
def test_every_other_exit_is_final(mode: Mode, reason: Reason):
    if mode is PERSISTENT and reason is FAILED:
        return
    state, effects = run(DRAIN, Exited(1, reason), state=after(DRAIN, Spawn(mode)))
    assert state == Drain(Phase.STOPPED, mode, 1)
    assert effects == (Notice(1, reason),)


def test_the_wait_doubles_up_to_a_minute():
    seconds = [backoff_ms(failures) // 1_000 for failures in (1, 2, 3, 6, 7, 8, 10_000)]
    assert seconds == [1, 2, 4, 32, 60, 60, 60]


def test_delivery_ends_a_run_of_failures():
    state = after(DRAIN, Spawn(), Exited(1, FAILED), Ensure(1), Delivered(2))
    assert state == Drain(Phase.RUNNING, PERSISTENT, 2)
    _, effects = run(DRAIN, Exited(2, FAILED), state=state)
    assert effects[1] == RespawnAfter(2, 1_000)
    assert_refused(DRAIN, state, Delivered(1), "task_matches")
    assert_refused(DRAIN, after(DRAIN, Stop(), state=state), Delivered(2), "running")


# -- the catalogue ------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(list(DRAIN.alphabet(DRAIN.initial))), max_size=30))
def test_live_tasks_are_at_most_one(inputs: list[Any]):
    state: Any = DRAIN.initial
    live: set[int] = set()
    for input_ in inputs:
        try:
            state, effects = DRAIN.apply(state, input_)
        except Rejected:
            continue
        if isinstance(input_, Exited):
            live.remove(input_.task_id)
        for effect in effects:
            if isinstance(effect, SpawnDrainTask):
                live.add(effect.task_id)
            if isinstance(effect, CancelDrainTask):
                live.remove(effect.task_id)
        assert live == ({state.live_task} if state.live_task else set())


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("mode", [TIMED, PERSISTENT])
def test_exit_of_an_old_task_id_never_changes_state(mode: Mode, reason: Reason):
    comes_back = mode is PERSISTENT and reason is FAILED
    other_row = "timed_or_not_failed" if comes_back else "persistent_and_failed"
    newer = after(DRAIN, Spawn(mode), Stop(), Spawn(mode))
    assert_refused(DRAIN, newer, Exited(1, reason), "task_matches", other_row)
    stopped = after(DRAIN, Stop(), state=newer)
    assert_refused(DRAIN, stopped, Exited(2, reason), "running", other_row)


@pytest.mark.parametrize("mode", [TIMED, PERSISTENT])
def test_dismiss_ends_in_stopped_and_never_respawns(mode: Mode):
    state = after(DRAIN, Spawn(mode), Exited(1, Reason.DISMISSED))
    assert state.phase is Phase.STOPPED
    assert_refused(DRAIN, state, Ensure(1), "waiting_to_respawn")


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_late_exit_of_an_old_task_resets_a_newer_pump():
    replaced = after(DRAIN, Spawn(), Exited(1, FAILED), Spawn())
    assert_refused(DRAIN, replaced, Exited(1, FAILED), "task_matches", "timed_or_not_failed")
    assert replaced.live_task == 2


def test_wrong_respawnable_without_a_mode_or_timed():
    assert_refused(
        DRAIN,
        DRAIN.initial,
        Exited(0, FAILED),
        "running",
        "persistent_and_failed",
    )
    assert after(DRAIN, Spawn(TIMED), Exited(1, FAILED)).phase is Phase.STOPPED


def test_wrong_ensure_twice_starts_two_tasks():
    waiting = after(DRAIN, Spawn(), Exited(1, FAILED))
    running, effects = run(DRAIN, Ensure(1), state=waiting)
    assert effects == (SpawnDrainTask(2, PERSISTENT),)
    assert_refused(DRAIN, running, Ensure(1), "waiting_to_respawn", "task_matches")


def test_wrong_nothing_respawns_a_respawnable_drain():
    _, effects = run(DRAIN, Spawn(), Exited(1, FAILED))
    timers = [effect for effect in effects if isinstance(effect, RespawnAfter)]
    assert [timer.task_id for timer in timers] == [1]


def test_the_timer_of_a_replaced_pump_is_ignored():
    waiting = after(DRAIN, Spawn(), Exited(1, FAILED), Spawn(), Exited(2, FAILED))
    assert_refused(DRAIN, waiting, Ensure(1), "task_matches")
    stopped = after(DRAIN, Stop(), state=waiting)
    assert_refused(DRAIN, stopped, Ensure(2), "waiting_to_respawn")


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (Drain(Phase.STOPPED), "Inactive exactly until the first spawn"),
        (Drain(Phase.RUNNING, None, 1), "a mode is set exactly once a task was spawned"),
        (Drain(Phase.RUNNING, TIMED, 1, 1), "only a persistent pump fails and comes back"),
        (
            Drain(Phase.EXITED_RESPAWNABLE, PERSISTENT, 1),
            "whoever waits to come back has failed",
        ),
        (Drain(Phase.STOPPED, PERSISTENT, 1, 1), "a pump that is down counts no failures"),
    ],
)
def test_invariants(state: Drain, invariant: str):
    assert_breaks(DRAIN, state, invariant)
