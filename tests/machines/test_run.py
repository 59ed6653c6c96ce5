"""One run as its user sees it: the statuses of `surface.md`."""

from typing import Any

import pytest
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

from holdfast.machines.run import (
    ENDED,
    PARKED,
    RUN,
    Cancel,
    Complete,
    Decided,
    Fail,
    Interrupt,
    Park,
    Resolved,
    Resumable,
    Resume,
    Run,
    Start,
    Status,
    StatusChanged,
    Stopped,
    StopWork,
    TakeOver,
    WithdrawApprovals,
)

NONE: frozenset[str] = frozenset()
P, Q, PQ = frozenset("p"), frozenset("q"), frozenset("pq")
X, XY = frozenset("x"), frozenset("xy")

NEW = Run()
RUNNING = Run(Status.RUNNING, "a")
CANCELLING = RUNNING._replace(cancel_requested=True)
WAITING = Run(Status.WAITING_FOR_APPROVAL, "a", approvals=P)
ATTENTION = Run(Status.NEEDS_ATTENTION, "a", in_doubt=X)
BOTH = Run(Status.NEEDS_ATTENTION, "a", approvals=P, in_doubt=X)
INTERRUPTED = Run(Status.INTERRUPTED, "a")
COMPLETED = Run(Status.COMPLETED, "a")
FAILED = Run(Status.FAILED, "a")
CANCELLED = Run(Status.CANCELLED, "a")
AT_REST = [WAITING, ATTENTION, INTERRUPTED]
OVER = [COMPLETED, FAILED, CANCELLED]


def changed(status: Status) -> StatusChanged:
    return StatusChanged("a", status)


def test_sound():
    assert_sound(RUN)


def test_the_statuses_are_those_of_the_surface():
    shown = "running completed failed cancelled waiting_for_approval needs_attention interrupted"
    assert {status.value for status in Status} - {"new"} == set(shown.split())
    assert {s.phase for s in AT_REST} == PARKED
    assert {s.phase for s in OVER} == ENDED


@pytest.mark.parametrize(
    ("state", "input_", "new", "effects"),
    [
        (NEW, Start("a", 1), RUNNING, (changed(Status.RUNNING),)),
        (RUNNING, Complete("a", 1), COMPLETED, (changed(Status.COMPLETED),)),
        (RUNNING, Fail("a", 1), FAILED, (changed(Status.FAILED),)),
        (RUNNING, Park("a", 1, P), WAITING, (changed(Status.WAITING_FOR_APPROVAL),)),
        (RUNNING, Park("a", 1, NONE, X), ATTENTION, (changed(Status.NEEDS_ATTENTION),)),
        (RUNNING, Park("a", 1, P, X), BOTH, (changed(Status.NEEDS_ATTENTION),)),
        (
            RUNNING,
            Interrupt("a", 1),
            INTERRUPTED,
            (changed(Status.INTERRUPTED), Resumable("a")),
        ),
        (INTERRUPTED, Resume("a", 1), RUNNING, (changed(Status.RUNNING),)),
        (WAITING, Decided("a", "p"), INTERRUPTED, (changed(Status.INTERRUPTED), Resumable("a"))),
        (WAITING._replace(approvals=PQ), Decided("a", "q"), WAITING, ()),
        (BOTH, Decided("a", "p"), ATTENTION, ()),
        (
            ATTENTION,
            Resolved("a", "x"),
            INTERRUPTED,
            (changed(Status.INTERRUPTED), Resumable("a")),
        ),
        (ATTENTION._replace(in_doubt=XY), Resolved("a", "y"), ATTENTION, ()),
        (BOTH, Resolved("a", "x"), WAITING, (changed(Status.WAITING_FOR_APPROVAL),)),
        (CANCELLED._replace(in_doubt=XY), Resolved("a", "y"), CANCELLED._replace(in_doubt=X), ()),
    ],
)
def test_steps(state: Run, input_: Any, new: Run, effects: tuple[Any, ...]):
    assert run(RUN, input_, state=state) == (new, effects)


# -- cancelling ------------------------------------------------------------------------------------------


def test_a_run_at_work_is_asked_to_stop():
    assert run(RUN, Cancel("a"), state=RUNNING) == (CANCELLING, (StopWork("a", 1),))
    # A second request is as good as one.
    assert run(RUN, Cancel("a"), state=CANCELLING) == (CANCELLING, (StopWork("a", 1),))
    assert run(RUN, Stopped("a", 1, X), state=CANCELLING) == (
        CANCELLED._replace(in_doubt=X),
        (changed(Status.CANCELLED),),
    )


@pytest.mark.parametrize("state", [*AT_REST, BOTH])
def test_a_run_at_rest_is_cancelled_at_once_and_its_questions_withdrawn(state: Run):
    new, effects = run(RUN, Cancel("a"), state=state)
    assert new == CANCELLED._replace(in_doubt=state.in_doubt)
    withdrawn = (WithdrawApprovals("a", P),) if state.approvals else ()
    assert effects == (changed(Status.CANCELLED), *withdrawn)


def test_a_result_that_is_there_wins_over_a_later_cancel():
    assert after(RUN, Complete("a", 1), state=CANCELLING) == COMPLETED
    assert after(RUN, Fail("a", 1), state=CANCELLING) == FAILED


@pytest.mark.parametrize(
    ("input_", "doubt", "withdrawn"),
    [
        (Park("a", 1, P, X), X, (WithdrawApprovals("a", P),)),
        (Interrupt("a", 1), NONE, ()),
        (TakeOver("a", 1, P, X), X, (WithdrawApprovals("a", P),)),
    ],
)
def test_a_cancelled_run_does_not_rest(input_: Any, doubt: Any, withdrawn: Any):
    new, effects = run(RUN, input_, state=CANCELLING)
    assert (new.phase, new.in_doubt, new.approvals) == (Status.CANCELLED, doubt, NONE)
    assert effects == (changed(Status.CANCELLED), *withdrawn)


# -- another owner ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((NONE, NONE), Status.INTERRUPTED),
        ((P, NONE), Status.WAITING_FOR_APPROVAL),
        ((NONE, X), Status.NEEDS_ATTENTION),
        ((P, X), Status.NEEDS_ATTENTION),
    ],
)
def test_a_dead_owner_leaves_what_is_on_record(found: Any, status: Status):
    new, effects = run(RUN, TakeOver("a", 1, *found), state=RUNNING)
    assert new == Run(status, "a", 2, *found)
    assert effects[0] == changed(status)
    assert (Resumable("a") in effects) == (status is Status.INTERRUPTED)


@pytest.mark.parametrize("state", [*AT_REST, BOTH])
def test_taking_over_a_run_at_rest_changes_the_owner_only(state: Run):
    assert run(RUN, TakeOver("a", 1, Q, XY), state=state) == (state._replace(epoch=2), ())


@pytest.mark.parametrize(
    "input_",
    [
        Park("a", 1, P),
        Interrupt("a", 1),
        Complete("a", 1),
        Fail("a", 1),
        Stopped("a", 1),
        TakeOver("a", 1),
    ],
)
def test_an_owner_that_lost_the_run_is_fenced_off(input_: Any):
    taken = after(RUN, TakeOver("a", 1), Resume("a", 2), Cancel("a"), state=RUNNING)
    assert "epoch_current" in RUN.failed_guards(taken, input_)
    assert RUN.enabled(taken, input_) == []


# -- refusals --------------------------------------------------------------------------------------------

TOKENS = [
    (RUNNING, Park("a", 1, P), ["cancel_requested"]),
    (CANCELLING, Park("a", 1, P), ["cancel_not_requested"]),
    (RUNNING, Interrupt("a", 1), ["cancel_requested"]),
    (CANCELLING, Interrupt("a", 1), ["cancel_not_requested"]),
    (RUNNING, TakeOver("a", 1), []),
    (INTERRUPTED, Resume("a", 1), []),
    (CANCELLING, Stopped("a", 1), []),
    (RUNNING, Complete("a", 1), []),
    (RUNNING, Fail("a", 1), []),
]
REFUSALS = [
    (NEW, Start("a", 2), "epoch_current"),
    *((s, i._replace(run_id="b"), "run_matches", *others) for s, i, others in TOKENS),
    *((s, i._replace(epoch=2), "epoch_current", *others) for s, i, others in TOKENS),
    (RUNNING, Park("a", 1, NONE), "waits_for_something", "cancel_requested"),
    (CANCELLING, Park("a", 1, NONE), "waits_for_something", "cancel_not_requested"),
    (WAITING, Resume("a", 1), "no_question_open"),
    (ATTENTION, Resume("a", 1), "nothing_in_doubt"),
    (BOTH, Resume("a", 1), "no_question_open", "nothing_in_doubt"),
    (WAITING, Decided("b", "p"), "run_matches"),
    *((s, Decided("a", "q"), "asks_it") for s in (RUNNING, *AT_REST, *OVER)),
    (ATTENTION, Resolved("b", "x"), "run_matches"),
    *((s, Resolved("a", "y"), "doubts_it") for s in (RUNNING, *AT_REST, *OVER)),
    (WAITING, Cancel("b"), "run_matches"),
    (RUNNING, Cancel("b"), "run_matches"),
    *((s, Cancel("a"), "not_ended") for s in OVER),
    (RUNNING, Stopped("a", 1), "cancel_requested"),
]
CHOICES = [
    (RUNNING, Park("a", 1, P), Status.WAITING_FOR_APPROVAL),
    (CANCELLING, Park("a", 1, P), Status.CANCELLED),
    (RUNNING, Interrupt("a", 1), Status.INTERRUPTED),
    (CANCELLING, Interrupt("a", 1), Status.CANCELLED),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(RUN, *case)


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: type(case[1]).__name__)
def test_choices(case: tuple[Any, ...]):
    assert_chosen(RUN, *case)


def test_resuming_a_run_that_still_waits_changes_nothing():
    assert_refused(RUN, WAITING, Resume("a", 1), "no_question_open")


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        *((NEW, input_) for input_ in RUN.alphabet(NEW) if not isinstance(input_, Start)),
        *((state, Start("a", 1)) for state in (RUNNING, *AT_REST, *OVER)),
        (RUNNING, Resume("a", 1)),
        *((s, i) for s in AT_REST for i in (Park("a", 1, P), Interrupt("a", 1))),
        *((s, i) for s in (*AT_REST, *OVER) for i in (Complete("a", 1), Fail("a", 1))),
        *((s, i) for s in (*AT_REST, *OVER) for i in [Stopped("a", 1)]),
        *((s, i) for s in OVER for i in (TakeOver("a", 1), Resume("a", 1))),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Run, input_: Any):
    assert_no_transition(RUN, state, input_)


DOUBT = "doubt needs attention, or is left over from a cancelled run"
QUESTIONS = "open questions are waited for"
BROKEN = [
    (NEW._replace(run_id="a"), "a run has an id once it started"),
    (RUNNING._replace(run_id=None), "a run has an id once it started"),
    (ATTENTION._replace(in_doubt=NONE), DOUBT),
    (RUNNING._replace(in_doubt=X), DOUBT),
    (WAITING._replace(in_doubt=X), DOUBT),
    (INTERRUPTED._replace(in_doubt=X), DOUBT),
    (WAITING._replace(approvals=NONE), QUESTIONS),
    (RUNNING._replace(approvals=P), QUESTIONS),
    (CANCELLED._replace(approvals=P), QUESTIONS),
    (INTERRUPTED._replace(approvals=P), QUESTIONS),
    (INTERRUPTED._replace(cancel_requested=True), "a cancel is only pending while it runs"),
    (CANCELLED._replace(cancel_requested=True), "a cancel is only pending while it runs"),
    (RUNNING._replace(epoch=0), "epochs start at 1"),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Run, str]):
    assert_breaks(RUN, *case)


def test_nothing_is_left_out():
    assert_table_covered(RUN, REFUSALS, BROKEN, CHOICES)


# -- over every step there is ----------------------------------------------------------------------------


def test_an_ending_is_final():
    for old, _, new, effects in every_step(RUN):
        if old.phase in ENDED:
            assert new._replace(in_doubt=old.in_doubt) == old
            assert effects == ()


def test_nothing_goes_on_while_something_is_open():
    for old, _, new, _ in every_step(RUN):
        if new.phase is Status.RUNNING and old.phase in PARKED:
            assert old.phase is Status.INTERRUPTED


def test_every_change_is_told_once():
    for old, _, new, effects in every_step(RUN):
        told = [e for e in effects if isinstance(e, StatusChanged)]
        assert [e.status for e in told] == ([new.phase] if new.phase is not old.phase else [])


def test_questions_of_a_cancelled_run_are_withdrawn():
    for old, input_, new, effects in every_step(RUN):
        if new.phase is Status.CANCELLED and old.phase is not Status.CANCELLED:
            asked = old.approvals | getattr(input_, "approvals", NONE)
            assert any(isinstance(e, WithdrawApprovals) for e in effects) == bool(asked)
        assert new.approvals == NONE or new.phase in PARKED


def test_no_doubt_is_lost():
    """An effect in doubt leaves the list only by a person's word."""
    for old, input_, new, _ in every_step(RUN):
        answered = {input_.effect_id} if isinstance(input_, Resolved) else set()
        assert old.in_doubt - new.in_doubt == answered


def test_epochs_never_fall_and_only_rise_by_taking_over():
    for old, input_, new, _ in every_step(RUN):
        assert new.epoch - old.epoch == isinstance(input_, TakeOver)


def test_what_can_be_resumed_has_nothing_open():
    for state in reachable(RUN):
        if state.phase is Status.INTERRUPTED:
            assert not state.approvals
            assert not state.in_doubt
