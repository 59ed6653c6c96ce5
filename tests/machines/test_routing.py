"""Which model answers: `machines.md` §16."""

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

from holdfast.machines import GuardRejected, Rejected
from holdfast.machines.routing import (
    FINISHED_KEPT,
    ROUTING,
    Activated,
    Active,
    CancelSwitch,
    Changed,
    Finished,
    Outcome,
    Pending,
    Phase,
    Restored,
    Routing,
    SetBaseline,
    Switch,
    SwitchAccepted,
    TurnFinished,
    TurnStarted,
)

BASE = Routing(baseline="m")
TURN = BASE._replace(phase=Phase.IN_TURN)
PENDING = BASE._replace(pending=Pending("a", "x", 2))
ENDLESS = BASE._replace(pending=Pending("a", "x", None))
ACTIVE = TURN._replace(active=Active("a", "x", 2))
BETWEEN = BASE._replace(active=Active("a", "x", 1))


def test_sound():
    assert_sound(ROUTING)


@pytest.mark.parametrize("state", [Routing(), BASE, TURN, PENDING, BETWEEN])
def test_the_baseline_can_always_be_set(state: Routing):
    new, effects = run(ROUTING, SetBaseline("n"), state=state)
    assert new == state._replace(baseline="n")
    assert effects == (Changed(new.model),)
    assert new.model == ("x" if state.active else "n")


@pytest.mark.parametrize("state", [BASE, TURN])
@pytest.mark.parametrize("turns", [None, 1, 7])
def test_a_switch_waits_for_the_next_turn(state: Routing, turns: int | None):
    new, effects = run(ROUTING, Switch("a", "x", turns), state=state)
    assert new == state._replace(pending=Pending("a", "x", turns))
    assert new.model == "m"
    assert effects == (SwitchAccepted("a"),)


def test_a_switch_is_refused():
    assert_refused(ROUTING, Routing(), Switch("a", "x", 1), "baseline_known")
    assert_refused(ROUTING, BASE, Switch("a", "x", 0), "turns_positive")
    for state in (PENDING, ENDLESS, ACTIVE, BETWEEN):
        assert_refused(ROUTING, state, Switch("b", "y", None), "no_scope")
        assert_refused(ROUTING, state, Switch("a", "y", None), "no_scope", "request_new")
    finished = BASE._replace(finished=(Finished("a", Outcome.RESTORED),))
    assert_refused(ROUTING, finished, Switch("a", "x", 1), "request_new")


@pytest.mark.parametrize("state", [PENDING, ENDLESS, ACTIVE, BETWEEN])
def test_a_switch_can_be_cancelled(state: Routing):
    new, effects = run(ROUTING, CancelSwitch("a"), state=state)
    done = (Finished("a", Outcome.CANCELLED),)
    assert new == state._replace(pending=None, active=None, finished=done)
    assert effects == (Changed("m"),)
    for other in (state, new):
        request = "b" if other is state else "a"
        assert_refused(ROUTING, other, CancelSwitch(request), "pending_or_active")


def test_a_finite_switch_takes_effect_with_the_turn():
    state, effects = run(ROUTING, TurnStarted(), state=PENDING)
    assert state == ACTIVE
    assert state.model == "x"
    assert effects == (Activated("a", "x"),)


def test_an_endless_switch_becomes_the_baseline_with_the_turn():
    state, effects = run(ROUTING, TurnStarted(), state=ENDLESS)
    done = (Finished("a", Outcome.APPLIED),)
    assert state == Routing(Phase.IN_TURN, "x", finished=done)
    assert effects == (Changed("x"),)


@pytest.mark.parametrize("state", [BASE, BETWEEN])
def test_a_turn_without_a_switch(state: Routing):
    assert run(ROUTING, TurnStarted(), state=state) == (state._replace(phase=Phase.IN_TURN), ())


def test_a_turn_needs_a_baseline():
    refused_by = ("finite_switch_pending", "endless_switch_pending", "baseline_known")
    assert_refused(ROUTING, Routing(), TurnStarted(), *refused_by)


@pytest.mark.parametrize("state", [BASE, PENDING, ENDLESS, BETWEEN])
def test_one_row_decides_about_a_start(state: Routing):
    assert len(ROUTING.enabled(state, TurnStarted())) == 1


def test_turns_are_counted_when_they_end():
    assert run(ROUTING, TurnFinished(), state=ACTIVE) == (BETWEEN, ())
    last = BETWEEN._replace(phase=Phase.IN_TURN)
    state, effects = run(ROUTING, TurnFinished(), state=last)
    assert state == BASE._replace(finished=(Finished("a", Outcome.RESTORED),))
    assert effects == (Restored("a", "m"),)
    assert run(ROUTING, TurnFinished(), state=TURN) == (BASE, ())
    waiting = TURN._replace(pending=Pending("a", "x", 1))
    assert run(ROUTING, TurnFinished(), state=waiting)[0].pending == Pending("a", "x", 1)


@pytest.mark.parametrize("remaining", [None, 1, 2, 3])
def test_one_row_decides_about_an_end(remaining: int | None):
    state = TURN if remaining is None else TURN._replace(active=Active("a", "x", remaining))
    assert len(ROUTING.enabled(state, TurnFinished())) == 1


def test_turns_do_not_overlap():
    assert_no_transition(ROUTING, TURN, TurnStarted())
    assert_no_transition(ROUTING, BASE, TurnFinished())


# -- the catalogue ------------------------------------------------------------------------------------

meanwhile = st.lists(
    st.sampled_from(
        [
            Switch("b", "y", 1),  # denied: something is in scope
            Switch("a", "y", None),  # denied: a known request
            CancelSwitch("b"),  # denied: not in scope
            SetBaseline("n"),
            TurnFinished(),  # denied between turns
        ]
    ),
    max_size=4,
)


@given(st.integers(1, 6), st.lists(meanwhile, min_size=8, max_size=8))
def test_finite_switch_of_n_covers_exactly_n_turns_whatever_is_denied(
    turns: int, meanwhile: list[list[Any]]
):
    state = after(ROUTING, SetBaseline("m"), Switch("a", "x", turns))
    covered: list[bool] = []
    for between in meanwhile:
        for input_ in between:
            # Once "a" is over, "b" may start: then the scope is no longer ours.
            if isinstance(input_, Switch) and not (state.pending or state.active):
                continue
            try:
                state, _ = ROUTING.apply(state, input_)
            except Rejected:
                continue
        state, _ = ROUTING.apply(state, TurnStarted())
        covered.append(state.model == "x")
        state, _ = ROUTING.apply(state, TurnFinished())
    assert covered == [number < turns for number in range(8)]


@given(st.integers(1, 4), st.integers(0, 5), st.booleans())
def test_finite_switch_of_n_covers_exactly_n_turns_whatever_is_cancelled(
    turns: int, cancel_after: int, in_turn: bool
):
    """A switch that is cancelled covers the turns begun before that; the next one all of its own."""
    state = after(ROUTING, SetBaseline("m"), Switch("a", "x", turns))
    covered = {"x": 0, "y": 0, "m": 0}
    for number in range(12):
        if number == cancel_after and not in_turn:
            state = _replaced(state, turns)
        state, _ = ROUTING.apply(state, TurnStarted())
        covered[str(state.model)] += 1
        if number == cancel_after and in_turn:
            state = _replaced(state, turns)
        state, _ = ROUTING.apply(state, TurnFinished())
    begun = min(turns, cancel_after + in_turn)
    assert covered == {"x": begun, "y": turns, "m": 12 - begun - turns}


def _replaced(state: Routing, turns: int) -> Routing:
    try:
        state, _ = ROUTING.apply(state, CancelSwitch("a"))
    except GuardRejected:
        pass  # its turns are over
    return after(ROUTING, Switch("b", "y", turns), state=state)


@given(st.lists(st.sampled_from(list(ROUTING.alphabet(BASE))), max_size=40))
def test_every_request_id_is_accounted_for_once(inputs: list[Any]):
    state = ROUTING.initial
    accepted: list[str] = []
    for input_ in inputs:
        try:
            state, effects = ROUTING.apply(state, input_)
        except Rejected:
            continue
        accepted += [one.request for one in effects if isinstance(one, SwitchAccepted)]
        assert sorted(state.requests) == sorted(accepted)


def test_finished_requests_are_remembered_up_to_a_limit():
    state = BASE
    for number in range(FINISHED_KEPT + 2):
        state = after(ROUTING, Switch(str(number), "x", 1), CancelSwitch(str(number)), state=state)
    assert len(state.finished) == FINISHED_KEPT
    assert state.finished[0].request == "2"
    assert_refused(ROUTING, state, Switch("2", "x", 1), "request_new")


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_restored_carries_an_empty_request_id():
    _, effects = run(ROUTING, TurnFinished(), state=BETWEEN._replace(phase=Phase.IN_TURN))
    assert effects == (Restored("a", "m"),)


def test_wrong_an_endless_switch_overwrites_a_pending_finite_one():
    assert_refused(ROUTING, PENDING, Switch("b", "y", None), "no_scope")


def test_wrong_terminal_maps_grow_for_ever():
    too_many = tuple(Finished(str(n), Outcome.APPLIED) for n in range(FINISHED_KEPT + 1))
    assert_breaks(ROUTING, BASE._replace(finished=too_many), "the finished are bounded")


def test_wrong_a_duplicate_request_is_accepted():
    state = after(ROUTING, CancelSwitch("a"), state=PENDING)
    assert_refused(ROUTING, state, Switch("a", "x", 1), "request_new")


def test_wrong_a_switch_can_be_stuck_before_it_was_activated():
    assert after(ROUTING, CancelSwitch("a"), state=PENDING).requests == ("a",)


def test_wrong_enum_members_that_are_never_produced():
    outcomes = {
        after(ROUTING, *inputs, state=BASE).finished[-1].outcome
        for inputs in (
            (Switch("a", "x", 1), CancelSwitch("a")),
            (Switch("a", "x", None), TurnStarted()),
            (Switch("a", "x", 1), TurnStarted(), TurnFinished()),
        )
    }
    assert outcomes == set(Outcome)


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (
            BASE._replace(pending=Pending("a", "x", 1), active=Active("b", "x", 1)),
            "pending and active exclude each other",
        ),
        (BASE._replace(active=Active("a", "x", 0)), "an active switch has turns left"),
        (BASE._replace(pending=Pending("a", "x", 0)), "a pending switch has turns or no end"),
        (
            PENDING._replace(finished=(Finished("a", Outcome.APPLIED),)),
            "every request is accounted for once",
        ),
        (
            BASE._replace(finished=(Finished("a", Outcome.APPLIED),) * 2),
            "every request is accounted for once",
        ),
        (Routing(Phase.IN_TURN), "a turn or a switch has a baseline"),
        (PENDING._replace(baseline=None), "a turn or a switch has a baseline"),
        (BETWEEN._replace(baseline=None), "a turn or a switch has a baseline"),
    ],
)
def test_invariants(state: Routing, invariant: str):
    assert_breaks(ROUTING, state, invariant)
