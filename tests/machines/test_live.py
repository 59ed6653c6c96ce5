"""A live channel: `machines.md` §15."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import after, assert_breaks, assert_refused, assert_sound, run

from holdfast.machines import GuardRejected
from holdfast.machines.live import (
    LIVE,
    Activity,
    Freshness,
    FreshnessChanged,
    Live,
    OnCleanClose,
    OutputStarted,
    Phase,
    PhaseChanged,
    PolicyChanged,
    ProjectionAdvanced,
    ProjectionRefreshed,
    ProjectionReset,
    TurnCommitted,
    TurnInFlight,
    TurnInterrupted,
    TurnTerminal,
)

NEW = LIVE.initial
AWAITING = Live(1, True)
COMMITTED = Live(1, True, committed=True)
AUDIBLE = Live(1, True, output_started=True)
PREEMPTIBLE = Live(1, True, True, True)
OVER = Live(1)
IN_TURN = [AWAITING, COMMITTED, AUDIBLE, PREEMPTIBLE]

IDLE, IN_FLIGHT, THIS = "idle", "in_flight", "turn_current"


def test_sound():
    assert_sound(LIVE)


def test_the_phase_is_read_off_the_flags():
    phases = [state.phase for state in (NEW, *IN_TURN)]
    assert phases == list(Phase)


# The table of 15.1: input × (Idle, then the four phases of a turn) → the state, or the guards that refuse.
TABLE: list[tuple[Any, list[Live | tuple[str, ...]]]] = [
    (
        TurnInFlight(1),
        [AWAITING, *[(IDLE, "turn_new")] * 4],
    ),
    (
        TurnCommitted(1),
        [
            COMMITTED,
            COMMITTED,
            (IDLE, "turn_new", "uncommitted"),
            PREEMPTIBLE,
            (IDLE, "turn_new", "uncommitted"),
        ],
    ),
    (
        OutputStarted(1),
        [(IN_FLIGHT, THIS), AUDIBLE, PREEMPTIBLE, ("silent",), ("silent",)],
    ),
    (
        TurnInterrupted(1),
        [(THIS, "audible"), ("audible",), ("audible",), AWAITING, COMMITTED],
    ),
    (
        TurnTerminal(1),
        [(IN_FLIGHT, THIS), OVER, OVER, OVER, OVER],
    ),
]


@pytest.mark.parametrize(("input_", "cells"), TABLE)
def test_the_turn(input_: Any, cells: list[Live | tuple[str, ...]]):
    for state, cell in zip([NEW, *IN_TURN], cells, strict=True):
        if isinstance(cell, Live):
            assert run(LIVE, input_, state=state) == (cell, (PhaseChanged(1, cell.phase),))
        else:
            assert_refused(LIVE, state, input_, *cell)


@pytest.mark.parametrize("state", IN_TURN)
def test_another_turns_events_are_refused(state: Live):
    for turn in (0, 2):
        stale = ("turn_new",) if turn == 0 else ()
        assert_refused(LIVE, state, TurnTerminal(turn), THIS)
        assert_refused(LIVE, state, TurnInFlight(turn), IDLE, *stale)
        committed = ("uncommitted",) if state.committed else ()
        assert_refused(LIVE, state, TurnCommitted(turn), IDLE, THIS, *stale, *committed)
        silent = ("silent",) if state.output_started else ()
        assert_refused(LIVE, state, OutputStarted(turn), THIS, *silent)
        audible = () if state.output_started else ("audible",)
        assert_refused(LIVE, state, TurnInterrupted(turn), THIS, *audible)


def test_a_finished_turn_takes_nothing():
    assert_refused(LIVE, OVER, TurnInFlight(1), "turn_new")
    assert_refused(LIVE, OVER, TurnCommitted(1), "turn_new", IN_FLIGHT)
    assert_refused(LIVE, OVER, OutputStarted(1), IN_FLIGHT)
    assert_refused(LIVE, OVER, TurnInterrupted(1), "audible")
    assert_refused(LIVE, OVER, TurnTerminal(1), IN_FLIGHT)


# -- freshness ----------------------------------------------------------------------------------------


def test_an_advance_is_due_at_once_when_idle():
    state, effects = run(LIVE, ProjectionAdvanced(3))
    assert state == Live(stale_since=3, owed=True, frontier=3)
    assert state.freshness is Freshness.STALE_IMMEDIATE
    assert state.rebuild_due
    assert effects == (FreshnessChanged(Freshness.STALE_IMMEDIATE, 3),)


def test_an_advance_is_deferred_during_a_turn():
    state, effects = run(LIVE, ProjectionAdvanced(3), ProjectionAdvanced(5), state=AWAITING)
    assert state == AWAITING._replace(stale_since=3, frontier=5)
    assert state.freshness is Freshness.STALE_DEFERRED
    assert not state.rebuild_due
    assert effects == (
        FreshnessChanged(Freshness.STALE_DEFERRED, 3),
        FreshnessChanged(Freshness.STALE_DEFERRED, 5),
    )


def test_what_is_owed_stays_owed_during_the_next_turn():
    state = after(LIVE, ProjectionAdvanced(3), TurnInFlight(1), ProjectionAdvanced(4))
    assert state.freshness is Freshness.STALE_IMMEDIATE
    assert not state.rebuild_due
    assert after(LIVE, TurnTerminal(1), state=state).rebuild_due


def test_an_old_advance_is_refused():
    state = after(LIVE, ProjectionAdvanced(3))
    for revision in (2, 3):
        assert_refused(LIVE, state, ProjectionAdvanced(revision), "newer")


def test_a_refresh_must_reach_the_frontier():
    stale = after(LIVE, ProjectionAdvanced(3))
    assert_refused(LIVE, stale, ProjectionRefreshed(2), "not_older")
    state, effects = run(LIVE, ProjectionRefreshed(3), state=stale)
    assert state == Live(frontier=3)
    assert state.freshness is Freshness.CLEAN
    assert effects == (FreshnessChanged(Freshness.CLEAN, 3),)
    assert_refused(LIVE, state, ProjectionRefreshed(3), "stale_or_newer")
    assert_refused(LIVE, state, ProjectionRefreshed(2), "stale_or_newer", "not_older")


def test_own_commits_do_not_count_as_stale():
    state, effects = run(LIVE, ProjectionRefreshed(4), state=AWAITING)
    assert state == AWAITING._replace(frontier=4)
    assert effects == (FreshnessChanged(Freshness.CLEAN, 4),)
    assert_refused(LIVE, state, ProjectionAdvanced(4), "newer")


def test_a_reset_is_clean_whatever_was_owed():
    stale = after(LIVE, ProjectionAdvanced(3))
    for revision, frontier in ((1, 3), (3, 3), (7, 7)):
        state = after(LIVE, ProjectionReset(revision), state=stale)
        assert state == Live(frontier=frontier)
    assert_refused(LIVE, Live(frontier=3), ProjectionReset(3), "stale_or_newer")
    assert after(LIVE, ProjectionReset(4), state=Live(frontier=3)) == Live(frontier=4)


# -- the policy on a clean close ----------------------------------------------------------------------


def test_activity_asks_to_reattach():
    state, effects = run(LIVE, Activity(), state=AWAITING)
    assert state.on_clean_close is OnCleanClose.REATTACH
    assert effects == (PolicyChanged(OnCleanClose.REATTACH),)
    assert_refused(LIVE, state, Activity(), "not_to_reattach")


def test_a_turn_that_ends_settles_everything():
    state = after(LIVE, Activity(), ProjectionAdvanced(3), state=PREEMPTIBLE)
    state, effects = run(LIVE, TurnTerminal(1), state=state)
    assert state == Live(1, stale_since=3, owed=True, frontier=3)
    assert effects == (
        PhaseChanged(1, Phase.IDLE),
        FreshnessChanged(Freshness.STALE_IMMEDIATE, 3),
        PolicyChanged(OnCleanClose.CLEAN_EXIT),
    )


def test_an_aborted_turn_still_asks_to_reattach():
    state = after(LIVE, Activity(), ProjectionAdvanced(3), TurnTerminal(1, True), state=COMMITTED)
    assert state.on_clean_close is OnCleanClose.REATTACH
    assert state.rebuild_due


# -- the catalogue ------------------------------------------------------------------------------------

turns, revisions = st.integers(1, 4), st.integers(0, 9)
inputs = st.lists(
    st.one_of(
        *(
            st.builds(kind, turns)
            for kind in (TurnInFlight, TurnCommitted, OutputStarted, TurnInterrupted)
        ),
        st.builds(TurnTerminal, turns, st.booleans()),
        st.just(Activity()),
        *(
            st.builds(kind, revisions)
            for kind in (ProjectionAdvanced, ProjectionRefreshed, ProjectionReset)
        ),
    ),
    max_size=40,
)


@given(inputs)
def test_deferred_means_in_flight_frontier_monotone_no_rebuild_in_flight(inputs: list[Any]):
    state = LIVE.initial
    for input_ in inputs:
        before = state
        try:
            state, _ = LIVE.apply(state, input_)
        except GuardRejected:
            continue
        assert state.freshness is not Freshness.STALE_DEFERRED or state.in_flight
        assert state.frontier >= before.frontier
        assert not (state.rebuild_due and state.in_flight)
        assert state.preempt_on_input == (state.phase is Phase.PREEMPTIBLE)


def test_preempt_only_when_committed_and_output_started():
    found = [state.preempt_on_input for state in (NEW, *IN_TURN)]
    assert found == [False, False, False, False, True]


# -- what was wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("aborted", [False, True])
def test_wrong_a_turn_that_is_preempted_or_closed_leaves_its_refresh_deferred(aborted: bool):
    stale = after(LIVE, ProjectionAdvanced(1), state=PREEMPTIBLE)
    state = after(LIVE, TurnTerminal(1, aborted), state=stale)
    assert state.freshness is Freshness.STALE_IMMEDIATE


def test_wrong_a_commit_before_our_mark_is_lost():
    assert after(LIVE, TurnCommitted(1)) == COMMITTED
    # Our own mark comes late then, and changes nothing.
    assert_refused(LIVE, COMMITTED, TurnInFlight(1), "idle", "turn_new")


def test_wrong_policy_and_freshness_are_tied_through_one_input():
    state = after(LIVE, Activity(), state=AWAITING)
    assert after(LIVE, TurnTerminal(1), state=state).freshness is Freshness.CLEAN
    stale = after(LIVE, ProjectionAdvanced(1), state=AWAITING)
    assert after(LIVE, TurnTerminal(1), state=stale).on_clean_close is OnCleanClose.CLEAN_EXIT


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (Live(committed=True), "only a turn in flight is committed or audible"),
        (Live(output_started=True), "only a turn in flight is committed or audible"),
        (Live(stale_since=1, frontier=1), "a deferred refresh has a turn that ends"),
        (Live(owed=True), "a refresh is owed for something"),
        (Live(stale_since=2, owed=True, frontier=1), "stale since a revision that was seen"),
        (Live(stale_since=0, owed=True), "stale since a revision that was seen"),
        (Live(0, True), "turns are numbered from 1"),
        (Live(-1), "turns are numbered from 1"),
    ],
)
def test_invariants(state: Live, invariant: str):
    assert_breaks(LIVE, state, invariant)
