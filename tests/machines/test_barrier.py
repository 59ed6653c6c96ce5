"""All operations of a session, and the one wait on some of them: `machines.md` §3.8, §17."""

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
    run,
)

from holdfast.machines import Rejected
from holdfast.machines.barrier import (
    BARRIER,
    Barrier,
    CancelWaitAll,
    Forget,
    Phase,
    RequestWaitAll,
    WaitAllSatisfied,
)
from holdfast.machines.operations import Ended, OperationKind, Registered, Status

NONE: frozenset[str] = frozenset()


def ended(op: str, seq: int, status: Status = Status.COMPLETED) -> Ended:
    return Ended(op, OperationKind.BACKGROUND_TOOL_OP, status, seq)


X, XY = frozenset("x"), frozenset("xy")
EMPTY = Barrier()
TWO = after(BARRIER, Registered("x"), Registered("y"))
ONE_ENDED = after(BARRIER, ended("y", 1), state=TWO)
WAITING = after(BARRIER, RequestWaitAll("w", ("x", "y")), state=TWO)
LAST = after(BARRIER, ended("y", 1), state=WAITING)


def test_sound():
    assert_sound(BARRIER)


def test_registered_and_ended():
    assert Barrier(running=XY) == TWO
    assert Barrier(running=X, ended=frozenset("y"), last_seq=1) == ONE_ENDED
    assert run(BARRIER, ended("x", 2), state=ONE_ENDED) == (Barrier(ended=XY, last_seq=2), ())


def test_a_wait_is_over_with_its_last_operation():
    state, effects = run(BARRIER, RequestWaitAll("w", ("x", "y")), state=TWO)
    assert effects == ()
    assert state == TWO._replace(phase=Phase.WAITING, wait_id="w", members=XY)
    state, effects = run(BARRIER, ended("y", 1), state=state)
    assert (state.phase, state.missing, effects) == (Phase.WAITING, X, ())
    state, effects = run(BARRIER, ended("x", 2), state=state)
    assert (state, effects) == (Barrier(ended=XY, last_seq=2), (WaitAllSatisfied("w", XY),))


def test_operations_nobody_waits_for_do_not_matter():
    waiting = after(BARRIER, RequestWaitAll("w", ("x",)), Registered("z"), state=TWO)
    state, effects = run(BARRIER, ended("y", 1), state=waiting)
    assert (state.phase, effects) == (Phase.WAITING, ())


@pytest.mark.parametrize("ids", [(), ("y",)])
def test_what_is_over_is_answered_at_once(ids: tuple[str, ...]):
    state, effects = run(BARRIER, RequestWaitAll("w", ids), state=ONE_ENDED)
    assert state is ONE_ENDED
    assert effects == (WaitAllSatisfied("w", frozenset(ids)),)


def test_some_over_is_waited_for():
    state = after(BARRIER, RequestWaitAll("w", ("x", "y")), state=ONE_ENDED)
    assert (state.members, state.missing) == (XY, X)


def test_dropping_the_wait():
    assert run(BARRIER, CancelWaitAll("w"), state=WAITING) == (TWO, ())
    assert after(BARRIER, RequestWaitAll("v", ("x",)), state=TWO).wait_id == "v"


def test_a_record_is_forgotten_once_it_is_over():
    forgotten = after(BARRIER, Forget("y"), state=ONE_ENDED)
    assert (forgotten.ended, forgotten.last_seq) == (NONE, 1)
    assert_refused(BARRIER, forgotten, RequestWaitAll("w", ("y",)), "ids_known", "some_open")


REFUSALS = [
    (TWO, Registered("x"), "not_already_registered"),
    (ONE_ENDED, Registered("y"), "not_already_registered"),
    (WAITING, Registered("x"), "not_already_registered"),
    (ONE_ENDED, ended("y", 2), "not_ended_yet"),
    (EMPTY, ended("x", 1), "not_ended_yet"),
    (TWO, ended("x", 0), "next_in_sequence"),
    (TWO, ended("x", 2), "next_in_sequence"),
    (LAST, ended("y", 2), "not_ended_yet", "last_one_missing"),
    (LAST, ended("x", 1), "next_in_sequence", "others_missing"),
    (LAST, ended("x", 3), "next_in_sequence", "others_missing"),
    (ONE_ENDED, RequestWaitAll("w", ("y", "z")), "ids_known", "some_open"),
    (TWO, RequestWaitAll("w", ("x", "z")), "ids_known", "all_over"),
    (ONE_ENDED, RequestWaitAll("w", ("y", "y")), "ids_unique", "some_open"),
    (TWO, RequestWaitAll("w", ("x", "x")), "ids_unique", "all_over"),
    (WAITING, CancelWaitAll("v"), "wait_matches"),
    (TWO, CancelWaitAll("w"), "wait_matches"),
    (TWO, Forget("x"), "has_ended"),
    (LAST, Forget("y"), "nobody_waits_for_it"),
]
CHOICES = [
    (WAITING, ended("x", 1), Phase.WAITING),
    (LAST, ended("x", 2), Phase.FREE),
    (TWO, ended("x", 1), Phase.FREE),
    (ONE_ENDED, RequestWaitAll("w", ("y",)), Phase.FREE),
    (ONE_ENDED, RequestWaitAll("w", ("x", "y")), Phase.WAITING),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(BARRIER, *case)


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: type(case[1]).__name__)
def test_choices(case: tuple[Any, ...]):
    assert_chosen(BARRIER, *case)


def test_one_wait_at_a_time():
    for wait in ("w", "v"):
        assert_no_transition(BARRIER, WAITING, RequestWaitAll(wait, ("x",)))


WAIT = "a wait is open exactly while one of its operations is"
MEMBERS = "only a wait has members, and it knows them"
BROKEN = [
    (TWO._replace(ended=X, last_seq=1), "an operation is open or over"),
    (ONE_ENDED._replace(last_seq=0), "every ending was numbered"),
    (WAITING._replace(wait_id=None), WAIT),
    (WAITING._replace(running=NONE, ended=XY, last_seq=2), WAIT),
    (TWO._replace(wait_id="w"), WAIT),
    (ONE_ENDED._replace(members=frozenset("y")), MEMBERS),
    (LAST._replace(ended=NONE), MEMBERS),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Barrier, str]):
    assert_breaks(BARRIER, *case)


def test_nothing_is_left_out():
    assert_table_covered(BARRIER, REFUSALS, BROKEN, CHOICES)


# -- the catalogue, §21 ----------------------------------------------------------------------------------


def test_a_wait_resolves_exactly_when_all_members_are_over():
    for old, input_, new, effects in every_step(BARRIER):
        for effect in effects:
            assert isinstance(effect, WaitAllSatisfied)
            assert effect.ids.isdisjoint(new.running)
        if new.phase is Phase.WAITING:
            assert not new.members.isdisjoint(new.running)
        if old.phase is Phase.WAITING and new.phase is Phase.FREE:
            assert bool(effects) != isinstance(input_, CancelWaitAll)


@pytest.mark.parametrize(
    "status", ["Completed", "Failed", "Aborted", "Cancelled", "Retired", "Terminated"]
)
def test_a_failed_member_still_satisfies_a_barrier(status: str):
    _, effects = run(BARRIER, ended("x", 2, Status(status)), state=LAST)
    assert effects == (WaitAllSatisfied("w", XY),)


@given(st.lists(st.sampled_from(list(BARRIER.alphabet(EMPTY))), max_size=60))
def test_sequence_numbers_are_gapless(inputs: list[Any]):
    state = EMPTY
    numbers: list[int] = []
    for input_ in inputs:
        if isinstance(input_, Ended):
            input_ = input_._replace(seq=input_.seq + state.last_seq)
        try:
            state, _ = BARRIER.apply(state, input_)
        except Rejected:
            continue
        if isinstance(input_, Ended):
            numbers.append(input_.seq)
    assert numbers == list(range(1, len(numbers) + 1))
    assert state.last_seq == len(numbers)


# -- what was wrong, §17 ---------------------------------------------------------------------------------


def test_wrong_asking_for_a_wait_has_no_guard():
    assert_refused(BARRIER, EMPTY, RequestWaitAll("w", ("x",)), "ids_known", "some_open")
    assert_refused(BARRIER, TWO, RequestWaitAll("w", ("x", "x")), "ids_unique", "all_over")
    assert_no_transition(BARRIER, WAITING, RequestWaitAll("v", ("x",)))
