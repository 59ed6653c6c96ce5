"""One question to a person: `kernel.md` §4.4–4.9."""

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

from holdfast.contracts.approval import Decision, Risk
from holdfast.machines.approval import (
    APPROVAL,
    Approval,
    Binding,
    Cancel,
    Consume,
    Decide,
    Dispatch,
    DispatcherFailed,
    Expire,
    MakeGrant,
    Phase,
    RecordDecision,
    RecordEnd,
    RecordRequest,
    Release,
    Request,
    ResultLost,
    Withdraw,
)

SHOWN = Binding("e", "args", "schema")
ALL = frozenset(Decision)
REQUEST = Request("a", SHOWN, Risk.HIGH, ALL, "agent", 10, 5)
YES = Decide("a", SHOWN, Decision.APPROVED, "person", 9)

NEW = Approval()
REQUESTED = after(APPROVAL, REQUEST)
DISPATCHED = after(APPROVAL, Dispatch("a", 6), state=REQUESTED)
APPROVED = after(APPROVAL, YES, state=DISPATCHED)
FOR_SESSION = after(
    APPROVAL, YES._replace(decision=Decision.APPROVED_FOR_SESSION), state=DISPATCHED
)
DENIED = after(APPROVAL, YES._replace(decision=Decision.DENIED), state=DISPATCHED)
CONSUMED = after(APPROVAL, Consume("a", SHOWN), state=APPROVED)
TIMED_OUT = after(APPROVAL, Expire("a", 10), state=DISPATCHED)
CANCELLED = after(APPROVAL, Cancel("a"), state=DISPATCHED)
UNAVAILABLE = after(APPROVAL, DispatcherFailed("a"), state=DISPATCHED)
RECOVERY = after(APPROVAL, ResultLost("a"), state=DISPATCHED)
OPEN = [REQUESTED, DISPATCHED]
ENDED = [APPROVED, FOR_SESSION, DENIED, TIMED_OUT, CANCELLED, UNAVAILABLE, RECOVERY]


def test_sound():
    assert_sound(APPROVAL)


def test_the_statuses():
    assert [state.phase.value for state in (NEW, *OPEN, *ENDED)] == list(Phase)


def test_asking_is_recorded_in_full():
    state, effects = run(APPROVAL, REQUEST)
    assert effects == (RecordRequest("a"),)
    assert state == Approval(Phase.REQUESTED, "a", SHOWN, Risk.HIGH, ALL, "agent", 10)


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_an_answer_is_recorded_with_who_gave_it(state: Approval, decision: str):
    answer = YES._replace(decision=Decision(decision))
    decided, effects = run(APPROVAL, answer, state=state)
    assert decided == state._replace(phase=Phase(decision), actor="person")
    assert effects == (RecordDecision("a", Decision(decision), "person"),)


def test_a_session_wide_yes_makes_a_grant():
    answer = YES._replace(decision=Decision.APPROVED_FOR_SESSION)
    state, effects = run(APPROVAL, answer, state=DISPATCHED)
    assert state.phase is Phase.APPROVED_FOR_SESSION
    assert effects == (
        RecordDecision("a", Decision.APPROVED_FOR_SESSION, "person"),
        MakeGrant("a"),
    )


@pytest.mark.parametrize("state", [APPROVED, FOR_SESSION])
def test_a_yes_releases_its_effect_once(state: Approval):
    used, effects = run(APPROVAL, Consume("a", SHOWN), state=state)
    assert effects == (Release("e"),)
    assert used == state._replace(consumed=True)
    assert_refused(APPROVAL, used, Consume("a", SHOWN), "not_consumed")


@pytest.mark.parametrize(
    ("input_", "phase"),
    [
        (Expire("a", 10), Phase.TIMED_OUT),
        (Cancel("a"), Phase.CANCELLED),
        (DispatcherFailed("a"), Phase.DISPATCHER_UNAVAILABLE),
    ],
)
def test_it_can_end_without_an_answer(input_: Any, phase: Phase):
    state, effects = run(APPROVAL, input_, state=REQUESTED)
    assert (state.phase, effects) == (phase, (RecordEnd("a", phase),))


@pytest.mark.parametrize("input_", [Expire("a", 10), Cancel("a")])
def test_who_was_told_hears_that_it_is_over(input_: Any):
    _, effects = run(APPROVAL, input_, state=DISPATCHED)
    assert effects[1:] == (Withdraw("a"),)


def test_telling_somebody_changes_nothing_else():
    assert run(APPROVAL, Dispatch("a", 9), state=REQUESTED) == (DISPATCHED, ())


def test_a_result_that_could_not_be_written_needs_recovery():
    assert run(APPROVAL, ResultLost("a"), state=DISPATCHED)[1] == (
        RecordEnd("a", Phase.RECOVERY_REQUIRED),
    )


def test_no_deadline_is_never_too_late():
    patient = after(APPROVAL, REQUEST._replace(deadline=None))
    assert_refused(APPROVAL, patient, Expire("a", 10**15), "deadline_passed")
    assert after(APPROVAL, YES._replace(now=10**15), state=patient).phase is Phase.APPROVED


def test_the_deadline_itself_is_too_late():
    assert after(APPROVAL, YES._replace(now=9), state=DISPATCHED).phase is Phase.APPROVED
    assert_refused(APPROVAL, DISPATCHED, YES._replace(now=10), "before_deadline")
    assert_refused(APPROVAL, DISPATCHED, Expire("a", 9), "deadline_passed")
    assert after(APPROVAL, Expire("a", 10), state=DISPATCHED) == TIMED_OUT


# -- refusals --------------------------------------------------------------------------------------------

OTHER_EFFECT = SHOWN._replace(effect_id="other")
OTHER_ARGS = SHOWN._replace(args_digest="x")
OTHER_SCHEMA = SHOWN._replace(schema_digest="x")
ONCE = after(APPROVAL, REQUEST._replace(offered=frozenset({Decision.APPROVED})))

REFUSALS = [
    (NEW, REQUEST._replace(binding=SHOWN._replace(args_digest="")), "bound_to_what_is_shown"),
    (NEW, REQUEST._replace(binding=SHOWN._replace(schema_digest="")), "bound_to_what_is_shown"),
    (NEW, REQUEST._replace(binding=SHOWN._replace(effect_id="")), "bound_to_what_is_shown"),
    (NEW, REQUEST._replace(offered=frozenset()), "offers_an_answer"),
    (NEW, REQUEST._replace(risk=Risk.CRITICAL), "no_session_answer_for_critical"),
    (NEW, REQUEST._replace(deadline=5), "deadline_ahead"),
    (REQUESTED, Dispatch("other", 6), "approval_matches"),
    (REQUESTED, Dispatch("a", 10), "before_deadline"),
    (DISPATCHED, YES._replace(approval_id="other"), "approval_matches"),
    (DISPATCHED, YES._replace(binding=OTHER_EFFECT), "effect_matches"),
    (DISPATCHED, YES._replace(binding=OTHER_ARGS), "args_as_shown"),
    (DISPATCHED, YES._replace(binding=OTHER_SCHEMA), "schema_as_shown"),
    (ONCE, YES._replace(decision=Decision.DENIED), "decision_offered"),
    (DISPATCHED, YES._replace(actor="agent"), "answered_by_another"),
    (DISPATCHED, YES._replace(actor="agent", decision=Decision.DENIED), "answered_by_another"),
    (DISPATCHED, YES._replace(now=10), "before_deadline"),
    *((state, YES, "still_open") for state in ENDED),
    (DISPATCHED, Expire("other", 10), "approval_matches"),
    (DISPATCHED, Expire("a", 9), "deadline_passed"),
    *((state, Expire("a", 10), "still_open") for state in ENDED),
    (DISPATCHED, Cancel("other"), "approval_matches"),
    *((state, Cancel("a"), "still_open") for state in ENDED),
    (DISPATCHED, DispatcherFailed("other"), "approval_matches"),
    *((state, DispatcherFailed("a"), "still_open") for state in ENDED),
    (DISPATCHED, ResultLost("other"), "approval_matches"),
    (APPROVED, Consume("other", SHOWN), "approval_matches"),
    (APPROVED, Consume("a", OTHER_EFFECT), "effect_matches"),
    (APPROVED, Consume("a", OTHER_ARGS), "args_as_shown"),
    (APPROVED, Consume("a", OTHER_SCHEMA), "schema_as_shown"),
    (CONSUMED, Consume("a", SHOWN), "not_consumed"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(APPROVAL, *case)


def test_a_refusal_names_everything_that_is_wrong():
    forged = Decide("other", OTHER_ARGS, Decision.DENIED, "agent", 10)
    late = after(APPROVAL, Cancel("a"), state=ONCE)
    assert_refused(
        APPROVAL,
        late,
        forged,
        "approval_matches",
        "still_open",
        "args_as_shown",
        "decision_offered",
        "answered_by_another",
        "before_deadline",
    )


@pytest.mark.parametrize(
    ("state", "input_"),
    [
        (REQUESTED, REQUEST),
        (NEW, Dispatch("a", 6)),
        (DISPATCHED, Dispatch("a", 6)),
        (NEW, YES),
        (NEW, Expire("a", 10)),
        (NEW, Cancel("a")),
        (NEW, DispatcherFailed("a")),
        (REQUESTED, ResultLost("a")),
        (APPROVED, ResultLost("a")),
        *((state, Consume("a", SHOWN)) for state in (*OPEN, *ENDED[2:])),
    ],
)
def test_the_wrong_phase_is_no_guard(state: Approval, input_: Any):
    assert_no_transition(APPROVAL, state, input_)


BOUND = "a question is bound to an effect and a digest of what was shown"
ANSWERED = "what was answered was offered, by somebody else than who asked"
BROKEN = [
    (NEW._replace(approval_id="a"), BOUND),
    (REQUESTED._replace(approval_id=None), BOUND),
    (REQUESTED._replace(binding=None), BOUND),
    (REQUESTED._replace(binding=SHOWN._replace(args_digest="")), BOUND),
    (
        REQUESTED._replace(risk=Risk.CRITICAL),
        "a session-wide yes is never offered for critical risk",
    ),
    (APPROVED._replace(actor=None), ANSWERED),
    (APPROVED._replace(actor="agent"), ANSWERED),
    (DENIED._replace(offered=frozenset({Decision.APPROVED})), ANSWERED),
    (FOR_SESSION._replace(offered=frozenset({Decision.APPROVED})), ANSWERED),
    (DISPATCHED._replace(actor="person"), ANSWERED),
    (DENIED._replace(consumed=True), "only a yes is consumed"),
    (DISPATCHED._replace(consumed=True), "only a yes is consumed"),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Approval, str]):
    assert_breaks(APPROVAL, *case)


def test_nothing_is_left_out():
    assert_table_covered(APPROVAL, REFUSALS, BROKEN)


# -- over every step there is ----------------------------------------------------------------------------


def test_an_effect_is_released_only_by_a_yes_and_only_once():
    for old, _, new, effects in every_step(APPROVAL):
        if any(isinstance(effect, Release) for effect in effects):
            assert old.phase in (Phase.APPROVED, Phase.APPROVED_FOR_SESSION)
            assert not old.consumed
            assert new.consumed
        else:
            assert new.consumed == old.consumed


def test_a_yes_is_never_undone_and_never_given_by_time():
    for old, input_, new, _ in every_step(APPROVAL):
        if old.phase in (Phase.APPROVED, Phase.APPROVED_FOR_SESSION):
            assert new.phase is old.phase
        elif new.phase in (Phase.APPROVED, Phase.APPROVED_FOR_SESSION):
            assert isinstance(input_, Decide)


def test_critical_risk_is_approved_one_by_one():
    for _, _, new, effects in every_step(APPROVAL):
        if new.risk is Risk.CRITICAL:
            assert new.phase is not Phase.APPROVED_FOR_SESSION
            assert MakeGrant("a") not in effects
