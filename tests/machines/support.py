"""What the tests of all machines share: the ways to say "accepted", "refused" and "broken" exactly.

    from tests.machines.support import assert_refused, run

Table tests built on these catch the removal of any single guard or invariant: `assert_refused` wants the input
refused by exactly the guards named, `assert_breaks` wants the state caught by exactly the invariant named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.machines import (
    GuardRejected,
    InvariantBroken,
    Machine,
    NoTransition,
    Stepped,
    explore,
)


class Effects(tuple[Any, ...]):
    """Effects that are equal only to effects of the same types: bare named tuples compare by content alone."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, tuple)
            and tuple.__eq__(self, other)
            and [type(one) for one in self] == [type(one) for one in other]
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __contains__(self, wanted: object) -> bool:
        return any(type(one) is type(wanted) and one == wanted for one in self)

    def __getitem__(self, at: Any) -> Any:
        found = tuple.__getitem__(self, at)
        return Effects(found) if isinstance(at, slice) else found


def step(machine: Machine[Any], state: Any, input_: object) -> Stepped[Any]:
    """One accepted step."""
    return machine.apply(state, input_)


def run(machine: Machine[Any], *inputs: object, state: Any = None) -> tuple[Any, Effects]:
    """Every input accepted, from the initial state or `state`: the last state, and all effects in order."""
    now = machine.initial if state is None else state
    effects: list[Any] = []
    for one in inputs:
        now, emitted = machine.apply(now, one)
        effects += emitted
    return now, Effects(effects)


def after(machine: Machine[Any], *inputs: object, state: Any = None) -> Any:
    """The state after these inputs, all accepted."""
    return run(machine, *inputs, state=state)[0]


def assert_refused(machine: Machine[Any], state: Any, input_: object, *guards: str) -> None:
    """The phase takes the input, but exactly these guards say no; order does not matter."""
    with pytest.raises(GuardRejected) as caught:
        machine.apply(state, input_)
    assert sorted(caught.value.guards) == sorted(guards)
    assert caught.value.phase == state.phase
    assert caught.value.machine == machine.name
    assert machine.rows_for(state, input_), "a guard was blamed where no row lists the phase"


def assert_no_transition(machine: Machine[Any], state: Any, input_: object) -> None:
    """The phase does not take this input at all."""
    with pytest.raises(NoTransition) as caught:
        machine.apply(state, input_)
    assert caught.value.phase == state.phase
    assert caught.value.machine == machine.name


def assert_breaks(machine: Machine[Any], state: Any, invariant: str) -> None:
    """The state breaks this invariant and no other."""
    assert invariant in machine.invariants, f"`{machine.name}` has no invariant `{invariant}`"
    with pytest.raises(InvariantBroken) as caught:
        machine.check(state)
    assert caught.value.machine == machine.name
    broken = [name for name, holds in machine.invariants.items() if not holds(state)]
    assert broken == [invariant]


def assert_sound(machine: Machine[Any], at_most: int = 20_000) -> None:
    """The explorer finds nothing wrong, within `at_most` states."""
    found = explore(machine)
    assert found.problems == []
    assert 1 < found.states <= at_most


def assert_chosen(machine: Machine[Any], state: Any, input_: object, phase: object) -> None:
    """Exactly one row takes the input, and it leads to `phase`."""
    assert len(machine.enabled(state, input_)) == 1
    assert machine.apply(state, input_).state.phase is phase


def assert_table_covered(
    machine: Machine[Any],
    refusals: Iterable[tuple[Any, ...]],
    broken: Iterable[tuple[Any, str]],
    choices: Iterable[tuple[Any, ...]] = (),
) -> None:
    """The tables of a machine's tests leave no guard of any row and no invariant out.

    `refusals` are (state, input, …) that no row takes, `choices` such that exactly one takes: for every guard of
    every row there must be one in which this guard alone keeps the row from firing. `broken` are (state, invariant).
    """
    bites = {
        (number, failed[0])
        for state, input_, *_ in (*refusals, *choices)
        for number, one in enumerate(machine.rows, 1)
        if one.input is type(input_) and state.phase in one.phases
        for failed in [[name for name, holds in one.guards if not holds(state, input_)]]
        if len(failed) == 1
    }
    wanted = {(at, name) for at, one in enumerate(machine.rows, 1) for name, _ in one.guards}
    missing = sorted(wanted - bites)
    names = [f"row {at} ({machine.rows[at - 1].input.__name__}): {name}" for at, name in missing]
    assert names == [], "guards that no refusal shows alone"
    assert set(machine.invariants) == {name for _, name in broken}


def reachable(machine: Machine[Any]) -> list[Any]:
    """Every reachable state within the machine's bounds."""
    found = {machine.initial: None}
    queue = [machine.initial]
    for state in queue:
        for _, new, _ in steps_from(machine, state):
            if new not in found:
                found[new] = None
                queue.append(new)
    return queue


def steps_from(machine: Machine[Any], state: Any) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """Every accepted input of the alphabet in a state, with the state and the effects it leads to."""
    taken: list[tuple[Any, Any, tuple[Any, ...]]] = []
    for input_ in machine.alphabet(state) if machine.bounded(state) else ():
        try:
            new, effects = machine.apply(state, input_)
        except (GuardRejected, NoTransition):
            continue
        taken.append((input_, new, Effects(effects)))
    return taken


def every_step(machine: Machine[Any]) -> list[tuple[Any, Any, Any, tuple[Any, ...]]]:
    """Every reachable (state, accepted input, next state, effects) within the bounds."""
    return [
        (state, input_, new, effects)
        for state in reachable(machine)
        for input_, new, effects in steps_from(machine, state)
    ]
