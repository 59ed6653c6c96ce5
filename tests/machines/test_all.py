"""What holds for every machine: the generic properties G1-G6, and that the reference draws what runs."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machines import GuardRejected, InvariantBroken, Machine, NoTransition, explore, walk
from holdfast.machines.codec import dump, load
from holdfast.machines.registry import MACHINES
from holdfast.machines.render import mermaid, page, table

EVERY = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@EVERY
def test_g4_explored_machine_is_sound(machine: Machine[Any]) -> None:
    """G1 for every reachable state, G3 (no undeclared overlap) and G4 (no dead row, phase or trap)."""
    found = explore(machine)
    assert found.problems == []
    assert found.states > 1
    assert found.refused > 0, "the alphabet must hold inputs that are refused"


@EVERY
@given(seed=st.integers(0, 2**32))
def test_g1_g2_refusals_change_nothing_and_are_of_the_right_kind(
    machine: Machine[Any], seed: int
) -> None:
    choose = random.Random(seed).choice
    state = machine.initial
    for _ in range(30):
        inputs = list(machine.alphabet(state))
        if not inputs or not machine.bounded(state):
            return
        input_ = choose(inputs)
        before = dump(state)
        try:
            new, effects = machine.apply(state, input_)
            assert machine.advance(state, input_) == new
        except NoTransition:
            assert not machine.rows_for(state, input_)
            assert dump(state) == before
        except GuardRejected as refused:
            named = refused.guards
            assert machine.rows_for(state, input_)
            assert named
            assert named == machine.failed_guards(state, input_)
            assert dump(state) == before
        else:
            assert isinstance(effects, tuple)
            machine.check(new)
            state = new


@EVERY
@given(seed=st.integers(0, 2**32))
def test_g5_a_state_survives_being_stored(machine: Machine[Any], seed: int) -> None:
    state = machine.initial
    for input_, accepted in walk(machine, random.Random(seed).choice, 25):
        if accepted:
            state, _ = machine.apply(state, input_)
            assert load(machine, dump(state)) == state


@EVERY
@given(seed=st.integers(0, 2**32))
def test_g6_replaying_the_accepted_inputs_gives_state_and_effects_again(
    machine: Machine[Any], seed: int
) -> None:
    taken = [i for i, ok in walk(machine, random.Random(seed).choice, 25) if ok]

    def play() -> tuple[Any, list[Any]]:
        state, told = machine.initial, []
        for input_ in taken:
            state, effects = machine.apply(state, input_)
            told.append(effects)
        return state, told

    assert play() == play()


@EVERY
def test_every_row_guard_and_invariant_has_a_name_and_is_drawn(machine: Machine[Any]) -> None:
    text = page(machine)
    assert machine.purpose.endswith(".")
    assert mermaid(machine) in text
    for one in machine.rows:
        assert f"`{one.input.__name__}" in table(machine)
        for name, _ in one.guards:
            assert f"`{name}`" in table(machine)
    for name in machine.invariants:
        assert f"* {name}" in text
    for phase in machine.phases:
        assert phase.value in mermaid(machine)


def test_loading_a_state_that_cannot_be_fails() -> None:
    spine = MACHINES["session_spine"]
    with pytest.raises(InvariantBroken):
        load(spine, b'["Running", null, false, 1]')
