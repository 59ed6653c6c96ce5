"""One effect: `kernel.md` §2.8, §2.9, §3."""

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
    run,
)

from holdfast.contracts.effect import EffectStatus
from holdfast.machines.effect import (
    EFFECT,
    Answer,
    Ask,
    Begin,
    Deny,
    Effect,
    Execute,
    Finding,
    Finish,
    Intend,
    Lose,
    Phase,
    Reconcile,
    RecordAttempt,
    RecordIntent,
    RecordResolution,
    RecordResult,
    Resolve,
)

UNRECORDED = Effect()
INTENT = after(EFFECT, Intend("e"))
EXECUTING = after(EFFECT, Begin("e", 1), state=INTENT)
REPEATABLE = after(EFFECT, Intend("e", repeatable=True))
REPEATING = after(EFFECT, Begin("e", 1), state=REPEATABLE)
DOUBT = after(EFFECT, Lose("e", 1), state=EXECUTING)
RECONCILABLE = after(EFFECT, Intend("e", reconcilable=True), Begin("e", 1), Lose("e", 1))
AGAIN = after(EFFECT, Resolve("e", 1, Answer.RETRY), state=DOUBT)
ENDED = [
    after(EFFECT, Finish("e", 1, EffectStatus.COMPLETED), state=EXECUTING),
    after(EFFECT, Finish("e", 1, EffectStatus.FAILED), state=EXECUTING),
    after(EFFECT, Finish("e", 1, EffectStatus.CANCELLED), state=EXECUTING),
    after(EFFECT, Finish("e", 1, EffectStatus.TIMED_OUT), state=REPEATING),
    after(EFFECT, Deny("e", 1), state=INTENT),
]


def test_sound():
    assert_sound(EFFECT)


def test_intended_executed_completed():
    state, effects = run(EFFECT, Intend("e"), Begin("e", 1), Finish("e", 1, EffectStatus.COMPLETED))
    assert state == Effect(Phase.COMPLETED, "e", 1)
    assert effects == (
        RecordIntent("e"),
        Execute("e", 1),
        RecordResult("e", 1, EffectStatus.COMPLETED),
    )


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_what_the_executor_says_is_the_status(status: str):
    state, effects = run(EFFECT, Finish("e", 1, EffectStatus(status)), state=EXECUTING)
    assert state.phase == status
    assert effects == (RecordResult("e", 1, EffectStatus(status)),)


def test_denied_before_execution():
    state, effects = run(EFFECT, Deny("e", 1), state=INTENT)
    assert state.phase is Phase.DENIED_BEFORE_EXECUTION
    assert effects == (RecordResult("e", 1, EffectStatus.DENIED_BEFORE_EXECUTION),)


def test_a_timeout_is_an_answer_only_of_what_may_be_repeated():
    timed_out = Finish("e", 1, EffectStatus.TIMED_OUT)
    state, effects = run(EFFECT, timed_out, state=REPEATING)
    assert (state.phase, len(effects)) == (Phase.TIMED_OUT, 1)
    state, effects = run(EFFECT, timed_out, state=EXECUTING)
    assert state.phase is Phase.UNKNOWN
    assert effects == (RecordResult("e", 1, EffectStatus.UNKNOWN), Ask("e", 1, "person"))


def test_an_executor_that_does_not_know_leaves_doubt():
    state, effects = run(EFFECT, Finish("e", 1, EffectStatus.UNKNOWN), state=REPEATING)
    assert state.phase is Phase.UNKNOWN
    assert effects == (RecordResult("e", 1, EffectStatus.UNKNOWN), Ask("e", 1, "person"))


# -- an owner that is gone -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", [REPEATABLE, REPEATING])
def test_what_may_be_repeated_is_repeated_under_the_same_id(state: Effect):
    again, effects = run(EFFECT, Lose("e", 1), state=state)
    assert again == REPEATABLE._replace(attempt=2)
    assert effects == (RecordAttempt("e", 2),)


@pytest.mark.parametrize("state", [INTENT, EXECUTING])
def test_what_may_not_be_repeated_is_in_doubt(state: Effect):
    assert run(EFFECT, Lose("e", 1), state=state) == (DOUBT, (Ask("e", 1, "person"),))


def test_the_reconciler_is_asked_first():
    state, effects = run(EFFECT, Intend("e", reconcilable=True), Begin("e", 1), Lose("e", 1))
    assert state.phase is Phase.UNKNOWN
    assert effects[-1] == Ask("e", 1, "reconciler")


@pytest.mark.parametrize(
    ("found", "phase", "attempt", "more"),
    [
        (Finding.COMPLETED, Phase.COMPLETED, 1, ()),
        (Finding.FAILED, Phase.FAILED, 1, ()),
        (Finding.NOT_STARTED, Phase.INTENT, 2, (RecordAttempt("e", 2),)),
    ],
)
def test_what_the_reconciler_found(found: Finding, phase: Phase, attempt: int, more: Any):
    state, effects = run(EFFECT, Reconcile("e", 1, found), state=RECONCILABLE)
    assert (state.phase, state.attempt, state.resolved) == (phase, attempt, None)
    assert effects == (RecordResolution("e", 1, found), *more)


def test_a_reconciler_that_found_nothing_leaves_it_to_a_person():
    found = run(EFFECT, Reconcile("e", 1, Finding.UNKNOWN), state=RECONCILABLE)
    assert found == (RECONCILABLE, (Ask("e", 1, "person"),))


# -- a person's word ------------------------------------------------------------------------------------


@pytest.mark.parametrize("doubt", [DOUBT, RECONCILABLE])
@pytest.mark.parametrize(
    ("said", "phase"),
    [(Answer.HAPPENED, Phase.COMPLETED), (Answer.DID_NOT_HAPPEN, Phase.FAILED)],
)
def test_a_person_ends_the_doubt(doubt: Effect, said: Answer, phase: Phase):
    state, effects = run(EFFECT, Resolve("e", 1, said), state=doubt)
    assert (state.phase, state.resolved, state.attempt) == (phase, said, 1)
    assert effects == (RecordResolution("e", 1, said),)


def test_do_it_again_keeps_the_id_and_raises_the_attempt():
    state, effects = run(EFFECT, Resolve("e", 1, Answer.RETRY), state=DOUBT)
    assert state == Effect(Phase.INTENT, "e", 2)
    assert effects == (RecordResolution("e", 1, Answer.RETRY), RecordAttempt("e", 2))
    done, effects = run(EFFECT, Begin("e", 2), Finish("e", 2, EffectStatus.COMPLETED), state=state)
    assert (done.phase, done.resolved) == (Phase.COMPLETED, None)
    assert effects == (Execute("e", 2), RecordResult("e", 2, EffectStatus.COMPLETED))


def test_a_denied_repetition_leaves_the_doubt_of_the_attempt_before():
    state, effects = run(EFFECT, Deny("e", 2), state=AGAIN)
    assert state == Effect(Phase.UNKNOWN, "e", 2)
    assert effects == (Ask("e", 2, "person"),)


def test_doubt_stays_until_somebody_answers():
    stays = (Finish("e", 1, EffectStatus.COMPLETED), Lose("e", 1), Begin("e", 1), Deny("e", 1))
    for input_ in stays:
        assert_no_transition(EFFECT, DOUBT, input_)


# -- refusals --------------------------------------------------------------------------------------------

DONE = EffectStatus.COMPLETED
LOST = EffectStatus.UNKNOWN
# Each state with an input that would be taken, and the guards of its other rows.
TAKEN = [
    (INTENT, Deny("e", 1), ["tried_before"]),
    (AGAIN, Deny("e", 2), ["never_tried"]),
    (INTENT, Begin("e", 1), []),
    (EXECUTING, Finish("e", 1, DONE), ["answer_leaves_doubt"]),
    (EXECUTING, Finish("e", 1, LOST), ["answer_is_certain"]),
    (REPEATABLE, Lose("e", 1), ["not_repeatable"]),
    (INTENT, Lose("e", 1), ["repeatable"]),
    (RECONCILABLE, Reconcile("e", 1, Finding.COMPLETED), ["found_not_started", "found_nothing"]),
    (RECONCILABLE, Reconcile("e", 1, Finding.NOT_STARTED), ["found_out", "found_nothing"]),
    (RECONCILABLE, Reconcile("e", 1, Finding.UNKNOWN), ["found_out", "found_not_started"]),
    (DOUBT, Resolve("e", 1, Answer.HAPPENED), ["answer_is_retry"]),
    (DOUBT, Resolve("e", 1, Answer.RETRY), ["answer_settles_it"]),
]
REFUSALS = [
    *(
        (state, input_._replace(effect_id="other"), "effect_matches", *others)
        for state, input_, others in TAKEN
    ),
    *(
        (state, input_._replace(attempt=input_.attempt - 1), "attempt_current", *others)
        for state, input_, others in TAKEN
    ),
    (
        EXECUTING,
        Finish("e", 1, EffectStatus.DENIED_BEFORE_EXECUTION),
        "says_it_was_tried",
        "answer_leaves_doubt",
    ),
    *(
        (DOUBT, input_, "has_a_reconciler", *others)
        for _, input_, others in TAKEN
        if isinstance(input_, Reconcile)
    ),
]
CHOICES = [
    (INTENT, Deny("e", 1), Phase.DENIED_BEFORE_EXECUTION),
    (AGAIN, Deny("e", 2), Phase.UNKNOWN),
    (EXECUTING, Finish("e", 1, DONE), Phase.COMPLETED),
    (EXECUTING, Finish("e", 1, LOST), Phase.UNKNOWN),
    (REPEATABLE, Lose("e", 1), Phase.INTENT),
    (INTENT, Lose("e", 1), Phase.UNKNOWN),
    (RECONCILABLE, Reconcile("e", 1, Finding.COMPLETED), Phase.COMPLETED),
    (RECONCILABLE, Reconcile("e", 1, Finding.NOT_STARTED), Phase.INTENT),
    (RECONCILABLE, Reconcile("e", 1, Finding.UNKNOWN), Phase.UNKNOWN),
    (DOUBT, Resolve("e", 1, Answer.HAPPENED), Phase.COMPLETED),
    (DOUBT, Resolve("e", 1, Answer.RETRY), Phase.INTENT),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(EFFECT, *case)


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: type(case[1]).__name__)
def test_choices(case: tuple[Any, ...]):
    assert_chosen(EFFECT, *case)


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        (INTENT, Intend("e")),
        (UNRECORDED, Begin("e", 0)),
        (UNRECORDED, Finish("e", 0, DONE)),
        (INTENT, Finish("e", 1, DONE)),
        (EXECUTING, Begin("e", 1)),
        (EXECUTING, Deny("e", 1)),
        (EXECUTING, Resolve("e", 1, Answer.HAPPENED)),
        (INTENT, Reconcile("e", 1, Finding.COMPLETED)),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Effect, input_: Any):
    assert_no_transition(EFFECT, state, input_)


def test_a_final_status_takes_nothing():
    for state in ENDED:
        for input_ in EFFECT.alphabet(state):
            assert_no_transition(EFFECT, state, input_)


IDENTIFIED = "an effect has an id and an attempt exactly when it is intended"
BROKEN = [
    (UNRECORDED._replace(effect_id="e"), IDENTIFIED),
    (UNRECORDED._replace(attempt=1), IDENTIFIED),
    (INTENT._replace(effect_id=None), IDENTIFIED),
    (INTENT._replace(attempt=0), IDENTIFIED),
    (
        Effect(Phase.DENIED_BEFORE_EXECUTION, "e", 2),
        "only the first attempt can be denied before execution",
    ),
    (Effect(Phase.TIMED_OUT, "e", 1), "a timeout is an answer only of what may be repeated"),
    (DOUBT._replace(resolved=Answer.HAPPENED), "a person's word fits the status"),
    (ENDED[0]._replace(resolved=Answer.DID_NOT_HAPPEN), "a person's word fits the status"),
    (ENDED[0]._replace(resolved=Answer.RETRY), "a person's word fits the status"),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Effect, str]):
    assert_breaks(EFFECT, *case)


def test_nothing_is_left_out():
    assert_table_covered(EFFECT, REFUSALS, BROKEN, CHOICES)


# -- over every step there is ----------------------------------------------------------------------------


def test_one_intent_and_one_result_for_each_attempt():
    for old, input_, new, effects in every_step(EFFECT):
        kinds = [type(effect) for effect in effects]
        assert (RecordIntent in kinds) == (old.phase is Phase.UNRECORDED)
        assert kinds.count(RecordResult) <= 1
        if RecordResult in kinds:
            # Never before the intent, never a second time: nothing leads back without a new attempt.
            assert old.phase in (Phase.INTENT, Phase.EXECUTING)
            assert new.phase not in (Phase.INTENT, Phase.EXECUTING)
        if old.phase is Phase.UNKNOWN and new.phase is Phase.INTENT:
            assert new.attempt == old.attempt + 1
            assert (new.effect_id, new.repeatable) == (old.effect_id, old.repeatable)
        assert new.attempt >= old.attempt
        assert isinstance(input_, Begin) == (Execute in kinds)


def test_an_attempt_is_executed_at_most_once():
    for old, input_, new, _ in every_step(EFFECT):
        if isinstance(input_, Begin):
            assert (old.phase, new.phase) == (Phase.INTENT, Phase.EXECUTING)
        elif new.phase is Phase.INTENT:
            assert new.attempt > old.attempt


def test_nothing_that_must_not_be_repeated_is_repeated_without_somebodys_word():
    for old, input_, new, _ in every_step(EFFECT):
        if new.attempt > old.attempt >= 1 and not old.repeatable:
            assert isinstance(input_, Resolve | Reconcile)


def test_denied_before_execution_comes_only_from_intent():
    for old, _, new, _ in every_step(EFFECT):
        if new.phase is Phase.DENIED_BEFORE_EXECUTION:
            assert (old.phase, old.attempt) == (Phase.INTENT, 1)


def test_a_late_result_of_an_earlier_attempt_is_refused():
    second = after(EFFECT, Begin("e", 2), state=AGAIN)
    assert_refused(EFFECT, second, Finish("e", 1, DONE), "attempt_current", "answer_leaves_doubt")
