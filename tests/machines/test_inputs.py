"""One accepted input: `machines.md` §8.4."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import (
    after,
    assert_breaks,
    assert_chosen,
    assert_no_transition,
    assert_refused,
    assert_sound,
    assert_table_covered,
    every_step,
    reachable,
    run,
)

from holdfast.machines import Rejected
from holdfast.machines.admission import Kind, Lane
from holdfast.machines.inputs import (
    INPUT,
    MAX_ATTEMPTS,
    Abandon,
    AbandonReason,
    Accept,
    Admitted,
    Apply,
    ChangeLane,
    Coalesce,
    Consume,
    ConsumeOnAccept,
    Input,
    Phase,
    Requeued,
    Rollback,
    Settled,
    Stage,
    Supersede,
)

ACCEPT = Accept("i", Kind.EXTERNAL_EVENT, Lane.QUEUE, 7)
UNKNOWN = Input()
QUEUED = after(INPUT, ACCEPT)
PROMPT = after(INPUT, ACCEPT._replace(kind=Kind.PROMPT))
STAGED = after(INPUT, Stage("a"), state=QUEUED)
LAST_TRY = STAGED._replace(attempts=MAX_ATTEMPTS)
APPLIED = after(INPUT, Apply("a", 4), state=STAGED)
CONSUMED = after(INPUT, Consume("a"), state=APPLIED)
SUPERSEDED = after(INPUT, Supersede("j"), state=QUEUED)
COALESCED = after(INPUT, Coalesce("j"), state=QUEUED)
ABANDONED = after(INPUT, Abandon(AbandonReason.RESET), state=QUEUED)
TERMINAL = [CONSUMED, SUPERSEDED, COALESCED, ABANDONED]


def test_sound():
    assert_sound(INPUT)


@pytest.mark.parametrize("lane", Lane)
def test_accepted_into_a_lane(lane: Lane):
    state, effects = run(INPUT, ACCEPT._replace(lane=lane))
    assert state == Input(Phase.QUEUED, "i", Kind.EXTERNAL_EVENT, lane, 7)
    assert effects == (Admitted("i", lane),)


def test_staged_applied_consumed():
    assert QUEUED._replace(phase=Phase.STAGED, run_id="a", attempts=1) == STAGED
    assert STAGED._replace(phase=Phase.APPLIED, boundary_seq=4) == APPLIED
    state, effects = run(INPUT, Consume("a"), state=APPLIED)
    assert state == APPLIED._replace(phase=Phase.CONSUMED, lane=None)
    assert effects == (Settled("i", Phase.CONSUMED),)


def test_it_may_change_its_lane_while_it_waits():
    state, effects = run(INPUT, ChangeLane(Lane.STEER), state=QUEUED)
    assert (state, effects) == (QUEUED._replace(lane=Lane.STEER), ())


def test_consumed_as_it_comes():
    state, effects = run(INPUT, ConsumeOnAccept(), state=QUEUED)
    assert state == QUEUED._replace(phase=Phase.CONSUMED, lane=None)
    assert effects == (Settled("i", Phase.CONSUMED),)


@pytest.mark.parametrize(
    ("input_", "phase"), [(Supersede("j"), Phase.SUPERSEDED), (Coalesce("j"), Phase.COALESCED)]
)
def test_another_takes_its_place(input_: Any, phase: Phase):
    state, effects = run(INPUT, input_, state=QUEUED)
    assert state == QUEUED._replace(phase=phase, lane=None, companion="j")
    assert effects == (Settled("i", phase),)


@pytest.mark.parametrize("state", [QUEUED, STAGED, APPLIED])
@pytest.mark.parametrize("reason", AbandonReason)
def test_it_can_be_given_up(state: Input, reason: AbandonReason):
    new, effects = run(INPUT, Abandon(reason), state=state)
    assert new == state._replace(phase=Phase.ABANDONED, lane=None, run_id=None, abandoned=reason)
    assert effects == (Settled("i", Phase.ABANDONED, reason),)


def test_a_run_that_never_started_gives_it_back_to_its_lane():
    state, effects = run(INPUT, Rollback("a", started=False), state=STAGED)
    assert state == QUEUED._replace(attempts=1)
    assert effects == (Requeued("i"),)


# -- refusals --------------------------------------------------------------------------------------------

REFUSALS = [
    (STAGED, Rollback("b", False), "run_matches", "attempts_spent", "run_started"),
    (LAST_TRY, Rollback("b", False), "run_matches", "attempts_left", "run_started"),
    (STAGED, Rollback("b", True), "run_matches", "run_not_started", "attempts_spent"),
    (APPLIED, Rollback("b", True), "run_matches"),
    (APPLIED, Rollback("a", False), "run_started"),
    (STAGED, Apply("b", 1), "run_matches"),
    (APPLIED, Consume("b"), "run_matches"),
    (QUEUED, Supersede("i"), "replaced_by_another"),
    (QUEUED, Coalesce("i"), "joins_another"),
    (PROMPT, Coalesce("j"), "kind_coalesces"),
]
CHOICES = [
    (STAGED, Rollback("a", False), Phase.QUEUED),
    (LAST_TRY, Rollback("a", False), Phase.ABANDONED),
    (STAGED, Rollback("a", True), Phase.ABANDONED),
    (LAST_TRY, Rollback("a", True), Phase.ABANDONED),
    (APPLIED, Rollback("a", True), Phase.ABANDONED),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(INPUT, *case)


@pytest.mark.parametrize("case", CHOICES)
def test_choices(case: tuple[Any, ...]):
    assert_chosen(INPUT, *case)


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        (QUEUED, ACCEPT),
        (UNKNOWN, Stage("a")),
        (STAGED, Stage("a")),
        (STAGED, ChangeLane(Lane.STEER)),
        (QUEUED, Rollback("a", False)),
        (QUEUED, Apply("a", 1)),
        (APPLIED, Apply("a", 1)),
        (STAGED, Consume("a")),
        (STAGED, ConsumeOnAccept()),
        (STAGED, Supersede("j")),
        (STAGED, Coalesce("j")),
        (UNKNOWN, Abandon(AbandonReason.RESET)),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Input, input_: Any):
    assert_no_transition(INPUT, state, input_)


def test_what_ended_takes_nothing():
    for state in TERMINAL:
        for input_ in INPUT.alphabet(state):
            assert_no_transition(INPUT, state, input_)


KNOWN = "an input is known exactly from its acceptance on"
WAITS = "what waits has a lane and no run"
TAKEN = "what a run took names the run"
ONE_WAY = "an input ends in one way"
BROKEN = [
    (UNKNOWN._replace(input_id="i"), KNOWN),
    (UNKNOWN._replace(attempts=1), KNOWN),
    (QUEUED._replace(input_id=None), KNOWN),
    (QUEUED._replace(kind=None), KNOWN),
    (QUEUED._replace(lane=None), WAITS),
    (QUEUED._replace(run_id="a"), WAITS),
    (STAGED._replace(run_id=None), TAKEN),
    (APPLIED._replace(run_id=None), TAKEN),
    (STAGED._replace(attempts=0), TAKEN),
    (APPLIED._replace(boundary_seq=None), "what was applied names its boundary"),
    (CONSUMED._replace(lane=Lane.QUEUE), "what ended has no lane"),
    (ABANDONED._replace(lane=Lane.STEER), "what ended has no lane"),
    (QUEUED._replace(attempts=4), "an input is tried at most three times"),
    (QUEUED._replace(attempts=-1), "an input is tried at most three times"),
    (SUPERSEDED._replace(companion=None), ONE_WAY),
    (COALESCED._replace(companion=None), ONE_WAY),
    (CONSUMED._replace(companion="j"), ONE_WAY),
    (ABANDONED._replace(abandoned=None), ONE_WAY),
    (SUPERSEDED._replace(abandoned=AbandonReason.RESET), ONE_WAY),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Input, str]):
    assert_breaks(INPUT, *case)


def test_nothing_is_left_out():
    assert_table_covered(INPUT, REFUSALS, BROKEN, CHOICES)


# -- the catalogue, §21 ----------------------------------------------------------------------------------


def test_attempts_are_at_most_three():
    assert {state.attempts for state in reachable(INPUT)} == {0, 1, 2, 3}


def test_every_accepted_input_ends_in_one_terminal_kind_and_is_settled_once():
    for old, _, new, effects in every_step(INPUT):
        ended = new.phase in {state.phase for state in TERMINAL}
        told = [e for e in effects if isinstance(e, Settled)]
        assert old.phase not in {state.phase for state in TERMINAL}
        assert [e.how for e in told] == ([new.phase] if ended else [])


@given(st.lists(st.sampled_from(list(INPUT.alphabet(UNKNOWN))), max_size=40))
def test_a_waiter_is_told_at_most_once_whatever_comes(inputs: list[Any]):
    state, told = UNKNOWN, 0
    for input_ in inputs:
        try:
            state, effects = INPUT.apply(state, input_)
        except Rejected:
            continue
        told += sum(isinstance(effect, Settled) for effect in effects)
    assert told == (state.phase in {end.phase for end in TERMINAL})


# -- what was wrong, §8.4 and §8.6 -------------------------------------------------------------------------


def test_wrong_a_consumed_input_can_be_staged_again():
    assert_no_transition(INPUT, CONSUMED, Stage("b"))


def test_wrong_a_failed_run_silently_requeues_its_prompt():
    """Once anything was sent or ran, the input is abandoned and the caller decides."""
    state, effects = run(INPUT, Rollback("a", started=True), state=STAGED)
    assert (state.phase, state.abandoned) == (Phase.ABANDONED, AbandonReason.FAILED)
    assert effects == (Settled("i", Phase.ABANDONED, AbandonReason.FAILED),)


def test_a_run_that_never_starts_is_given_up_after_three():
    state = QUEUED
    for attempt in (1, 2, 3):
        state = after(INPUT, Stage("a"), state=state)
        assert state.attempts == attempt
        state = after(INPUT, Rollback("a", started=False), state=state)
    assert (state.phase, state.abandoned) == (
        Phase.ABANDONED,
        AbandonReason.MAX_ATTEMPTS_EXHAUSTED,
    )
