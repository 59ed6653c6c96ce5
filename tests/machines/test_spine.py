"""The spine of a session: `machines.md` §2."""

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
from holdfast.machines.spine import (
    SPINE,
    CancelAfterBoundary,
    Commit,
    Destroy,
    Destroyed,
    Phase,
    Prepare,
    Recycle,
    Recycled,
    RunBound,
    RunClosed,
    RunOrphaned,
    Spine,
    Stop,
    Stopped,
    TakeOver,
)

RUNNING = Spine(Phase.RUNNING, "a")
STOPPING = Spine(Phase.RUNNING, "a", stop_requested=True)
STOPPED = Spine(Phase.STOPPED)
DESTROYED = Spine(Phase.DESTROYED)

inputs = st.lists(st.sampled_from(list(SPINE.alphabet(SPINE.initial))), max_size=40)


def test_sound():
    assert_sound(SPINE)


def test_a_run_is_bound_and_closed():
    state, effects = run(SPINE, Prepare("a", 1))
    assert (state, effects) == (RUNNING, (RunBound("a"),))
    state, effects = run(SPINE, Commit("a", 1), state=state)
    assert (state, effects) == (Spine(), (RunClosed("a"),))


def test_stop_at_once_when_idle():
    assert run(SPINE, Stop()) == (STOPPED, (Stopped(),))


def test_stop_waits_for_the_open_run():
    assert run(SPINE, Stop(), state=RUNNING) == (STOPPING, (CancelAfterBoundary(),))
    # A second request is as good as one.
    assert run(SPINE, Stop(), state=STOPPING) == (STOPPING, (CancelAfterBoundary(),))
    assert run(SPINE, Commit("a", 1), state=STOPPING) == (STOPPED, (RunClosed("a"), Stopped()))


@pytest.mark.parametrize(
    ("left", "found", "orphan"),
    [
        (Spine(), Spine(owner_epoch=2), None),
        (RUNNING, Spine(owner_epoch=2), "a"),
        (STOPPING, Spine(Phase.STOPPED, owner_epoch=2), "a"),
        (STOPPED, Spine(Phase.STOPPED, owner_epoch=2), None),
    ],
)
def test_take_over_keeps_a_stop_and_orphans_the_run(left: Spine, found: Spine, orphan: str | None):
    assert run(SPINE, TakeOver(1), state=left) == (found, (RunOrphaned(orphan),))


def test_take_over_quotes_the_epoch_it_replaces():
    taken = after(SPINE, TakeOver(1))
    assert_refused(SPINE, taken, TakeOver(1), "epoch_current")
    assert after(SPINE, TakeOver(2), state=taken).owner_epoch == 3


def test_recycle_and_destroy():
    assert run(SPINE, Recycle(), state=STOPPED) == (Spine(), (Recycled(),))
    assert run(SPINE, Destroy()) == (DESTROYED, (Destroyed(),))
    assert run(SPINE, Destroy(), state=STOPPED) == (DESTROYED, (Destroyed(),))


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        (RUNNING, Prepare("b", 1)),
        (STOPPED, Prepare("a", 1)),
        (Spine(), Commit("a", 1)),
        (STOPPED, Commit("a", 1)),
        (STOPPED, Stop()),
        (Spine(), Recycle()),
        (RUNNING, Recycle()),
        (RUNNING, Destroy()),
        *((DESTROYED, input_) for input_ in SPINE.alphabet(DESTROYED)),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Spine, input_: Any):
    assert_no_transition(SPINE, state, input_)


# -- the catalogue ------------------------------------------------------------------------------------


@given(inputs)
def test_never_two_open_runs(inputs: list[Any]):
    state = SPINE.initial
    open_runs: list[str] = []
    for input_ in inputs:
        before = state
        try:
            state, effects = SPINE.apply(state, input_)
        except Rejected:
            continue
        for effect in effects:
            if isinstance(effect, RunBound):
                open_runs.append(effect.run_id)
            elif isinstance(effect, RunClosed | RunOrphaned) and effect.run_id is not None:
                open_runs.remove(effect.run_id)
        assert open_runs == ([state.run_id] if state.run_id else [])
        assert before.phase is not Phase.DESTROYED
        assert state.owner_epoch - before.owner_epoch == isinstance(input_, TakeOver)


def test_commit_with_a_stale_epoch_or_run_is_refused():
    # The row for the other answer to "was a stop requested" always says no as well.
    assert_refused(SPINE, RUNNING, Commit("b", 1), "run_matches", "stop_requested")
    assert_refused(SPINE, RUNNING, Commit("a", 2), "epoch_current", "stop_requested")
    assert_refused(SPINE, STOPPING, Commit("b", 1), "run_matches", "stop_not_requested")
    assert_refused(SPINE, STOPPING, Commit("a", 2), "epoch_current", "stop_not_requested")


@given(inputs)
def test_stop_during_a_run_always_ends_in_stopped_never_in_idle(inputs: list[Any]):
    state = STOPPING
    for input_ in inputs:
        try:
            state, _ = SPINE.apply(state, input_)
        except Rejected:
            continue
        if state.phase is not Phase.RUNNING:
            assert state.phase is Phase.STOPPED
            break


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_retire_while_running_leaves_a_run_that_can_not_finish():
    assert after(SPINE, Prepare("a", 1), Stop(), Commit("a", 1)) == STOPPED


def test_wrong_registering_silently_replaces_another_id():
    assert_no_transition(SPINE, RUNNING, Prepare("b", 1))


def test_wrong_a_stale_owner_is_not_fenced():
    taken = after(SPINE, Prepare("a", 1), TakeOver(1))
    assert_refused(SPINE, taken, Prepare("b", 1), "epoch_current")
    again = after(SPINE, Prepare("a", 2), state=taken)
    assert_refused(SPINE, again, Commit("a", 1), "epoch_current", "stop_requested")


def test_wrong_seven_phases_for_two_booleans():
    assert [phase.value for phase in SPINE.phases] == ["Idle", "Running", "Stopped", "Destroyed"]


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (Spine(Phase.RUNNING), "a run is open exactly while Running"),
        (Spine(Phase.IDLE, "a"), "a run is open exactly while Running"),
        (Spine(stop_requested=True), "a stop is only pending while Running"),
        (Spine(owner_epoch=0), "epochs start at 1"),
    ],
)
def test_invariants(state: Spine, invariant: str):
    assert_breaks(SPINE, state, invariant)
