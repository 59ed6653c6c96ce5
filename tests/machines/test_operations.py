"""One operation beside a turn: `machines.md` §17."""

from typing import Any

import pytest
from tests.machines.support import (
    after,
    assert_breaks,
    assert_no_transition,
    assert_refused,
    assert_sound,
    assert_table_covered,
    every_step,
    run,
)

from holdfast.machines.barrier import BARRIER
from holdfast.machines.operations import (
    ENDINGS,
    LIVE,
    OPERATION,
    Abort,
    Cancel,
    Complete,
    Ended,
    Fail,
    Operation,
    OperationKind,
    PeerReady,
    Progress,
    Register,
    Registered,
    RetireCompleted,
    RetireRequested,
    Start,
    Status,
    Terminate,
)

TOOL, CHILD = OperationKind.BACKGROUND_TOOL_OP, OperationKind.MOB_MEMBER_CHILD
ABSENT = Operation()
PROVISIONING = after(OPERATION, Register("x", TOOL))
RUNNING = after(OPERATION, Start(), state=PROVISIONING)
RETIRING = after(OPERATION, RetireRequested(), state=RUNNING)
COMPLETED = after(OPERATION, Complete(1), state=RUNNING)
CHILD_RUNNING = after(OPERATION, Register("x", CHILD), Start())
CHILD_READY = after(OPERATION, PeerReady(), state=CHILD_RUNNING)
AT = {state.phase: state for state in (PROVISIONING, RUNNING, RETIRING)}
ENDING_INPUTS = [
    (Complete, Status.COMPLETED, "Running Retiring"),
    (Fail, Status.FAILED, "Provisioning Running Retiring"),
    (Cancel, Status.CANCELLED, "Provisioning Running Retiring"),
    (Abort, Status.ABORTED, "Provisioning"),
    (RetireCompleted, Status.RETIRED, "Running Retiring"),
    (Terminate, Status.TERMINATED, "Provisioning Running Retiring"),
]


def test_sound():
    assert_sound(OPERATION)


def test_registered_and_started():
    state, effects = run(OPERATION, Register("x", TOOL))
    assert (state, effects) == (Operation(Status.PROVISIONING, "x", TOOL), (Registered("x"),))
    assert run(OPERATION, Start(), state=state) == (RUNNING, ())
    assert run(OPERATION, RetireRequested(), state=RUNNING) == (RETIRING, ())
    assert (RUNNING.phase, RETIRING.phase) == (Status.RUNNING, Status.RETIRING)


@pytest.mark.parametrize(("input_", "status", "phases"), ENDING_INPUTS)
def test_endings(input_: Any, status: Status, phases: str):
    for phase, state in AT.items():
        if phase.value in phases.split():
            ended, effects = run(OPERATION, input_(5), state=state)
            assert ended == state._replace(phase=status, seq=5)
            assert effects == (Ended("x", TOOL, status, 5),)
        else:
            assert_no_transition(OPERATION, state, input_(5))


@pytest.mark.parametrize("state", [RUNNING, RETIRING])
def test_progress_is_counted(state: Operation):
    assert run(OPERATION, Progress(), Progress(), state=state) == (state._replace(progress=2), ())


def test_a_child_becomes_ready_once():
    assert CHILD_RUNNING._replace(peer_ready=True) == CHILD_READY
    retiring = after(OPERATION, RetireRequested(), state=CHILD_RUNNING)
    assert after(OPERATION, PeerReady(), state=retiring).peer_ready


REFUSALS = [
    (CHILD_READY, PeerReady(), "not_ready_yet"),
    (RUNNING, PeerReady(), "is_a_child"),
    *((AT[Status(p.split()[0])], kind(0), "is_numbered") for kind, _, p in ENDING_INPUTS),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(OPERATION, *case)


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        (PROVISIONING, Register("x", TOOL)),
        (RUNNING, Start()),
        (PROVISIONING, Progress()),
        (PROVISIONING, PeerReady()),
        (PROVISIONING, RetireRequested()),
        (RETIRING, RetireRequested()),
        (ABSENT, Start()),
        (ABSENT, Fail(1)),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Operation, input_: Any):
    assert_no_transition(OPERATION, state, input_)


KNOWN = "an operation is known exactly from its registration on"
NUMBERED = "every ending is numbered, and nothing else"
REPORTED = "nothing is reported before it runs"
BROKEN = [
    (ABSENT._replace(op_id="x"), KNOWN),
    (ABSENT._replace(progress=1), KNOWN),
    (RUNNING._replace(op_id=None), KNOWN),
    (RUNNING._replace(kind=None), KNOWN),
    (COMPLETED._replace(seq=None), NUMBERED),
    (RUNNING._replace(seq=1), NUMBERED),
    (RUNNING._replace(peer_ready=True), "only a child becomes ready"),
    (PROVISIONING._replace(progress=1), REPORTED),
    (PROVISIONING._replace(kind=CHILD, peer_ready=True), REPORTED),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Operation, str]):
    assert_breaks(OPERATION, *case)


def test_nothing_is_left_out():
    assert_table_covered(OPERATION, REFUSALS, BROKEN)


# -- the catalogue, §21 ----------------------------------------------------------------------------------


def test_an_ending_is_final():
    assert len(ENDINGS) == 6
    assert {*ENDINGS, *LIVE, Status.ABSENT} == set(Status)
    for status in ENDINGS:
        state = COMPLETED._replace(phase=status)
        for input_ in OPERATION.alphabet(state):
            assert_no_transition(OPERATION, state, input_)


def test_wrong_only_completed_operations_are_numbered():
    for _, input_, new, effects in every_step(OPERATION):
        if new.phase in ENDINGS:
            assert new.seq == input_.seq
            assert [e.seq for e in effects] == [new.seq]


def test_the_effects_of_an_operation_are_the_inputs_of_the_barrier():
    _, effects = run(OPERATION, Register("x", TOOL), Start(), Complete(1))
    registry, _ = run(BARRIER, *effects)
    assert (registry.running, registry.ended, registry.last_seq) == (frozenset(), {"x"}, 1)
