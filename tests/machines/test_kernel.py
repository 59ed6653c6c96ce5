"""A table with a mistake in it: a step that would break an invariant is not taken."""

from enum import StrEnum
from typing import NamedTuple

import pytest

from holdfast.machines import InvariantBroken, Machine
from holdfast.machines.kernel import Within, row


class At(StrEnum):
    """Where a lift is."""

    GROUND = "ground"
    UP = "up"


class Lift(NamedTuple):
    """A lift with people in it."""

    phase: At = At.GROUND
    people: int = 0


class Board(NamedTuple):
    """So many get on."""

    people: int


class Rise(NamedTuple):
    """It goes up."""


asked: list[At] = []


def _carries(lift: Lift) -> bool:
    asked.append(lift.phase)
    return lift.people <= 2


LIFT = Machine(
    name="lift",
    purpose="Goes up with no more than two.",
    initial=Lift(),
    rows=(
        row(Board, [At.GROUND], "=", update=lambda s, i: Lift(s.phase, s.people + i.people)),
        row(Rise, [At.GROUND], At.UP, update=lambda s, i: Lift(At.UP, s.people)),
    ),
    invariants={
        "nobody is missing": lambda s: s.people >= 0,
        "two at most are up": Within(frozenset({At.UP}), _carries),
    },
    ends=frozenset({At.UP}),
    alphabet=lambda s: (),
)


@pytest.mark.parametrize("step", [LIFT.apply, LIFT.advance])
def test_a_step_that_breaks_an_invariant_is_refused(step: object) -> None:
    assert callable(step)
    with pytest.raises(InvariantBroken, match="nobody is missing"):
        step(Lift(), Board(-1))
    with pytest.raises(InvariantBroken, match="two at most are up"):
        step(Lift(At.GROUND, 3), Rise())


def test_an_invariant_is_asked_in_its_phases_only() -> None:
    asked.clear()
    state = LIFT.advance(Lift(), Board(3))
    assert asked == []
    assert LIFT.check(state) is state
    assert asked == []
    assert LIFT.apply(Lift(At.GROUND, 2), Rise()).state == Lift(At.UP, 2)
    assert asked == [At.UP]
    with pytest.raises(InvariantBroken, match="two at most"):
        LIFT.check(Lift(At.UP, 3))
