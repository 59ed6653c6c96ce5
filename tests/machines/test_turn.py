"""One run of the model loop: `machines.md` §3."""

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
from holdfast.machines.outcome import TERMINAL_PHASES, Cause, Outcome, TurnPhase, caller_gets
from holdfast.machines.retry import RETRYABLE, FailureKind, RetryPlan
from holdfast.machines.turn import TURN
from holdfast.machines.turn_inputs import (
    ACTIVE,
    LIVE,
    AcknowledgeTerminal,
    Batch,
    BoundaryApplied,
    BoundaryComplete,
    BoundaryContinue,
    BudgetExhausted,
    CancellationObserved,
    CancelNow,
    CheckCompaction,
    ContentShape,
    EnterExtraction,
    Extraction,
    ExtractionFailed,
    ExtractionStart,
    ExtractionValidationFailed,
    ExtractionValidationPassed,
    FatalFailure,
    LlmReturnedTerminal,
    LlmReturnedToolCalls,
    OpsBarrierSatisfied,
    PrimitiveApplied,
    PrimitiveKind,
    RecoverableFailure,
    RegisterPendingOps,
    RequestCancelAfterBoundary,
    Retrying,
    RetryRequested,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    StartConversation,
    StartImmediate,
    TimeBudgetExceeded,
    ToolCallsResolved,
    Turn,
    TurnLimitReached,
    kind_of,
    staged_shape,
)

READY = Turn()
X, XY = frozenset("x"), frozenset("xy")
NONE: frozenset[str] = frozenset()
PLAN = RetryPlan(1, 2, 500, 500)


def at(*inputs: Any, cancel: bool = False, state: Turn = READY) -> Turn:
    """The state after these inputs; with `cancel`, also asked to stop at the next boundary."""
    wanted = (*inputs, RequestCancelAfterBoundary("a")) if cancel else inputs
    return after(TURN, *wanted, state=state)


START = StartConversation("a", ContentShape.CONVERSATION)
APPLYING = at(START)
APPENDING = at(StartImmediate("a", PrimitiveKind.IMMEDIATE_APPEND))
CALLING = at(PrimitiveApplied("a"), state=APPLYING)
WAITING = at(LlmReturnedToolCalls("a", 2), state=CALLING)
REGISTERED = at(RegisterPendingOps("a", NONE, NONE), state=WAITING)
BEHIND_BARRIER = at(RegisterPendingOps("a", XY, X), state=WAITING)
DRAINING = at(LlmReturnedTerminal("a"), state=CALLING)
EXTRACTING = at(EnterExtraction("a", 1), state=DRAINING)
ASKED = at(ExtractionStart("a"), state=EXTRACTING)
ANSWER_DRAINING = at(LlmReturnedTerminal("a"), state=ASKED)
ANSWERED = at(EnterExtraction("a"), state=ANSWER_DRAINING)
RECOVERY = at(RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN), state=CALLING)
CANCELLING = at(CancelNow("a"), state=CALLING)
COMPLETED = at(BoundaryComplete("a"), state=DRAINING)
FAILED = at(FatalFailure("a", Cause.TOOL_FAILURE), state=CALLING)
CANCELLED = at(CancellationObserved("a"), state=CANCELLING)

EVERY_PHASE = {
    state.phase: state
    for state in (
        *(READY, APPLYING, CALLING, WAITING, DRAINING, EXTRACTING, RECOVERY, CANCELLING),
        *(COMPLETED, FAILED, CANCELLED),
    )
}


def test_sound():
    assert_sound(TURN)


def test_the_states_above_show_all_eleven_phases():
    assert set(EVERY_PHASE) == set(TurnPhase)


# -- what a run does ----------------------------------------------------------------------------------


def test_an_answer_without_tools():
    state, effects = run(
        TURN, START, PrimitiveApplied("a"), LlmReturnedTerminal("a"), BoundaryComplete("a")
    )
    assert effects == (
        RunStarted("a"),
        CheckCompaction(),
        BoundaryApplied("a", 1),
        RunCompleted("a"),
    )
    assert state == Turn(
        TurnPhase.COMPLETED,
        ended_run_id="a",
        shape=ContentShape.CONVERSATION,
        boundaries=1,
        outcome=Outcome.COMPLETED,
    )


def test_an_answer_with_tools():
    state, effects = run(
        TURN,
        LlmReturnedToolCalls("a", 2),
        RegisterPendingOps("a", XY, X),
        OpsBarrierSatisfied("a", X),
        ToolCallsResolved("a"),
        BoundaryContinue("a"),
        state=CALLING,
    )
    assert effects == (BoundaryApplied("a", 1), CheckCompaction())
    assert state == CALLING._replace(boundaries=1)


def test_the_batch_on_its_way():
    assert WAITING.batch == Batch(2)
    assert BEHIND_BARRIER.batch == Batch(0, True, XY, X)
    passed = at(OpsBarrierSatisfied("a", X), state=BEHIND_BARRIER)
    assert passed.batch == Batch(0, True, frozenset("y"))
    assert at(ToolCallsResolved("a"), state=passed) == DRAINING


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (PrimitiveKind.IMMEDIATE_APPEND, ContentShape.IMMEDIATE_APPEND),
        (PrimitiveKind.IMMEDIATE_CONTEXT_APPEND, ContentShape.IMMEDIATE_CONTEXT),
    ],
)
def test_an_immediate_append_never_reaches_the_model(kind: PrimitiveKind, shape: ContentShape):
    state, effects = run(TURN, StartImmediate("a", kind), PrimitiveApplied("a"))
    assert effects == (RunStarted("a"), BoundaryApplied("a", 1), RunCompleted("a"))
    assert (state.phase, state.shape) == (TurnPhase.COMPLETED, shape)


@pytest.mark.parametrize(
    ("appends", "context", "shape"),
    [
        (True, False, ContentShape.CONVERSATION),
        (True, True, ContentShape.CONVERSATION_AND_CONTEXT),
        (False, True, ContentShape.CONTEXT),
        (False, False, ContentShape.EMPTY),
    ],
)
def test_staged_input_has_a_shape_of_conversations(appends: bool, context: bool, shape: Any):
    assert staged_shape(appends=appends, context=context) is shape
    assert at(StartConversation("a", shape), PrimitiveApplied("a")).phase is TurnPhase.CALLING_LLM


def test_the_kind_follows_from_the_shape():
    assert {shape: kind_of(shape) for shape in ContentShape} == {
        ContentShape.CONVERSATION: PrimitiveKind.CONVERSATION_TURN,
        ContentShape.CONVERSATION_AND_CONTEXT: PrimitiveKind.CONVERSATION_TURN,
        ContentShape.CONTEXT: PrimitiveKind.CONVERSATION_TURN,
        ContentShape.EMPTY: PrimitiveKind.CONVERSATION_TURN,
        ContentShape.IMMEDIATE_APPEND: PrimitiveKind.IMMEDIATE_APPEND,
        ContentShape.IMMEDIATE_CONTEXT: PrimitiveKind.IMMEDIATE_CONTEXT_APPEND,
    }


def test_structured_output_at_the_second_try():
    state, effects = run(
        TURN,
        EnterExtraction("a", 2),
        ExtractionStart("a"),
        LlmReturnedTerminal("a"),
        EnterExtraction("a"),
        ExtractionValidationFailed("a", "no JSON"),
        LlmReturnedTerminal("a"),
        EnterExtraction("a"),
        ExtractionValidationPassed("a"),
        state=DRAINING,
    )
    assert effects == (
        BoundaryApplied("a", 1),
        CheckCompaction(),
        CheckCompaction(),
        RunCompleted("a", None, 1),
    )
    assert (state.phase, state.outcome) == (TurnPhase.COMPLETED, Outcome.COMPLETED)


def test_structured_output_that_never_comes_completes_the_run():
    spent = at(ExtractionValidationFailed("a", "1"), LlmReturnedTerminal("a"), state=ANSWERED)
    spent = at(EnterExtraction("a"), state=spent)
    assert spent.extraction == Extraction(1, 1, True)
    state, effects = run(TURN, ExtractionValidationFailed("a", "no JSON"), state=spent)
    assert effects == (RunCompleted("a", "no JSON", 2),)
    assert state.outcome is Outcome.COMPLETED
    assert caller_gets(state.outcome, state.cause).gets == "success"


def test_a_retry_keeps_the_call():
    failure = RecoverableFailure("a", FailureKind.RATE_LIMITED, PLAN)
    state, effects = run(TURN, failure, state=CALLING)
    assert effects == (Retrying("a", FailureKind.RATE_LIMITED, PLAN),)
    assert state == CALLING._replace(phase=TurnPhase.ERROR_RECOVERY, retry=PLAN)
    again, effects = run(TURN, RetryRequested("a", 1), state=state)
    assert (again, effects) == (CALLING._replace(retry=PLAN), ())
    # The next attempt is the second; once the model answered, counting starts anew.
    second = PLAN._replace(attempt=2)
    assert_refused(TURN, again, failure, "attempt_is_next")
    assert (
        at(RecoverableFailure("a", FailureKind.CALL_TIMEOUT, second), state=again).retry == second
    )
    assert at(LlmReturnedToolCalls("a", 1), state=again).retry is None
    assert at(LlmReturnedTerminal("a"), state=again) == DRAINING


def test_a_retry_during_extraction_goes_on_extracting():
    failed = at(RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN), state=ASKED)
    again = at(RetryRequested("a", 1), state=failed)
    assert failed.extraction == again.extraction == Extraction(1)


@pytest.mark.parametrize("state", [EVERY_PHASE[phase] for phase in sorted(LIVE)])
def test_a_fatal_failure_ends_every_live_phase(state: Turn):
    ended, effects = run(TURN, FatalFailure("a", Cause.HOOK_DENIED, "no"), state=state)
    assert effects == (RunFailed("a", Outcome.FAILED, Cause.HOOK_DENIED, "no"),)
    assert (ended.phase, ended.outcome, ended.cause) == (
        TurnPhase.FAILED,
        Outcome.FAILED,
        Cause.HOOK_DENIED,
    )


def test_a_failure_without_a_message_says_the_default():
    _, effects = run(TURN, FatalFailure("a", Cause.LLM_FAILURE), state=CALLING)
    assert effects[0].message == "LLM failure terminal turn"


@pytest.mark.parametrize("state", [EVERY_PHASE[phase] for phase in sorted(ACTIVE)])
@pytest.mark.parametrize(
    ("input_", "outcome", "cause"),
    [
        (TurnLimitReached("a"), Outcome.FAILED, Cause.TURN_LIMIT_REACHED),
        (BudgetExhausted("a"), Outcome.BUDGET_EXHAUSTED, Cause.BUDGET_EXHAUSTED),
        (TimeBudgetExceeded("a"), Outcome.TIME_BUDGET_EXCEEDED, Cause.TIME_BUDGET_EXCEEDED),
    ],
)
def test_a_limit_ends_every_phase_at_work(state: Turn, input_: Any, outcome: Any, cause: Any):
    ended, effects = run(TURN, input_, state=state)
    assert (ended.phase, ended.outcome, ended.cause) == (TurnPhase.FAILED, outcome, cause)
    assert [(e.outcome, e.cause) for e in effects] == [(outcome, cause)]
    assert ended.boundaries == state.boundaries


@pytest.mark.parametrize("state", [EVERY_PHASE[phase] for phase in sorted(ACTIVE)])
def test_cancel_now_drops_all_that_is_pending(state: Turn):
    cancelling, effects = run(TURN, CancelNow("a"), state=state)
    assert effects == ()
    assert cancelling == Turn(
        TurnPhase.CANCELLING, "a", shape=state.shape, boundaries=state.boundaries
    )
    assert run(TURN, CancellationObserved("a"), state=cancelling)[1] == (RunCancelled("a"),)


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED])
def test_an_ending_is_acknowledged_or_followed_by_the_next_run(state: Turn):
    assert state.outcome is not None
    assert run(TURN, AcknowledgeTerminal("a", state.outcome), state=state) == (READY, ())
    started, effects = run(TURN, StartConversation("b", ContentShape.EMPTY), state=state)
    assert effects == (RunStarted("b"),)
    assert started == Turn(TurnPhase.APPLYING_PRIMITIVE, "b", shape=ContentShape.EMPTY)


# -- refusals: for every guard of every row, one input that only this guard refuses ---------------------

CANCEL = {
    state: at(cancel=True, state=state)
    for state in (APPLYING, APPENDING, DRAINING, EXTRACTING, ANSWERED)
}
STALE = [
    (APPLYING, PrimitiveApplied("b"), ("only_appends", "cancel_requested")),
    (APPENDING, PrimitiveApplied("b"), ("asks_the_model", "cancel_requested")),
    (CANCEL[APPENDING], PrimitiveApplied("b"), ("asks_the_model", "cancel_not_requested")),
    (CALLING, LlmReturnedToolCalls("b", 1), ()),
    (CALLING, LlmReturnedTerminal("b"), ()),
    (WAITING, RegisterPendingOps("b", NONE, NONE), ()),
    (BEHIND_BARRIER, OpsBarrierSatisfied("b", X), ()),
    (REGISTERED, ToolCallsResolved("b"), ()),
    (CALLING, RecoverableFailure("b", FailureKind.CALL_TIMEOUT, PLAN), ()),
    (RECOVERY, RetryRequested("b", 1), ()),
    (DRAINING, BoundaryContinue("b"), ("cancel_requested",)),
    (CANCEL[DRAINING], BoundaryContinue("b"), ("cancel_not_requested",)),
    (DRAINING, BoundaryComplete("b"), ("cancel_requested",)),
    (CANCEL[DRAINING], BoundaryComplete("b"), ("cancel_not_requested",)),
    (DRAINING, EnterExtraction("b", 1), ("extracting",)),
    (ANSWER_DRAINING, EnterExtraction("b", 1), ("not_extracting",)),
    (EXTRACTING, ExtractionStart("b"), ()),
    (ANSWERED, ExtractionValidationPassed("b"), ()),
    (ANSWERED, ExtractionValidationFailed("b", "x"), ("may_not_ask_again",)),
    (CANCEL[ANSWERED], ExtractionValidationFailed("b", "x"), ("may_ask_again",)),
    (ASKED, ExtractionFailed("b", "x"), ()),
    (CALLING, FatalFailure("b", Cause.TOOL_FAILURE), ()),
    (CALLING, TurnLimitReached("b"), ()),
    (CALLING, BudgetExhausted("b"), ()),
    (CALLING, TimeBudgetExceeded("b"), ()),
    (CALLING, CancelNow("b"), ()),
    (CALLING, RequestCancelAfterBoundary("b"), ()),
    (CANCELLING, CancellationObserved("b"), ()),
]
REFUSALS = [
    *((state, input_, "run_matches", *others) for state, input_, others in STALE),
    (READY, StartConversation("a", ContentShape.IMMEDIATE_APPEND), "shape_is_a_conversation"),
    (READY, StartImmediate("a", PrimitiveKind.CONVERSATION_TURN), "kind_is_immediate"),
    (CALLING, LlmReturnedToolCalls("a", 0), "some_calls"),
    (ASKED, LlmReturnedToolCalls("a", 1), "not_extracting"),
    (REGISTERED, RegisterPendingOps("a", XY, X), "ops_not_registered"),
    (WAITING, RegisterPendingOps("a", X, XY), "barrier_within_ops"),
    (REGISTERED, OpsBarrierSatisfied("a", NONE), "barrier_open"),
    (BEHIND_BARRIER, OpsBarrierSatisfied("a", XY), "ids_are_the_barrier"),
    (BEHIND_BARRIER, OpsBarrierSatisfied("a", NONE), "ids_are_the_barrier"),
    (WAITING, ToolCallsResolved("a"), "ops_registered"),
    (BEHIND_BARRIER, ToolCallsResolved("a"), "no_barrier_open"),
    (CALLING, RecoverableFailure("a", FailureKind.AUTH, PLAN), "failure_is_retryable"),
    (
        CALLING,
        RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN._replace(attempt=2)),
        "attempt_is_next",
    ),
    (
        CALLING,
        RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN._replace(attempt=0)),
        "attempt_is_next",
    ),
    (
        CALLING,
        RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN._replace(max_retries=0)),
        "attempt_within_max",
    ),
    (RECOVERY, RetryRequested("a", 2), "attempt_is_planned"),
    (ANSWER_DRAINING, BoundaryContinue("a"), "not_extracting", "cancel_requested"),
    (ANSWER_DRAINING, BoundaryComplete("a"), "not_extracting", "cancel_requested"),
    (
        at(cancel=True, state=ANSWER_DRAINING),
        BoundaryContinue("a"),
        "not_extracting",
        "cancel_not_requested",
    ),
    (
        at(cancel=True, state=ANSWER_DRAINING),
        BoundaryComplete("a"),
        "not_extracting",
        "cancel_not_requested",
    ),
    (CANCEL[DRAINING], EnterExtraction("a", 1), "cancel_not_requested", "extracting"),
    (DRAINING, EnterExtraction("a", -1), "retries_not_negative", "extracting"),
    (ANSWERED, ExtractionStart("a"), "not_asked_yet"),
    (CANCEL[EXTRACTING], ExtractionStart("a"), "cancel_not_requested"),
    (EXTRACTING, ExtractionValidationPassed("a"), "answer_to_judge"),
    (EXTRACTING, ExtractionValidationFailed("a", "x"), "answer_to_judge", "may_not_ask_again"),
    (
        CANCEL[EXTRACTING],
        ExtractionValidationFailed("a", "x"),
        "answer_to_judge",
        "may_ask_again",
    ),
    (CALLING, ExtractionFailed("a", "x"), "extracting"),
    (CALLING, FatalFailure("a", Cause.UNKNOWN), "cause_known"),
    (CALLING, FatalFailure("a", Cause.BUDGET_EXHAUSTED), "cause_is_no_limit"),
    (CALLING, FatalFailure("a", Cause.TIME_BUDGET_EXCEEDED), "cause_is_no_limit"),
    (CALLING, FatalFailure("a", Cause.TURN_LIMIT_REACHED), "cause_is_no_limit"),
    (COMPLETED, AcknowledgeTerminal("b", Outcome.COMPLETED), "run_matches_ended"),
    (COMPLETED, AcknowledgeTerminal("a", Outcome.CANCELLED), "outcome_as_stored"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    state, input_, *guards = case
    assert_refused(TURN, state, input_, *guards)


def wrong_phases() -> list[tuple[Turn, Any]]:
    """Each kind of input of the alphabet, in each phase that no row of it lists."""
    listed = {(row.input, phase) for row in TURN.rows for phase in row.phases}
    kinds = {type(i): i for i in TURN.alphabet(READY) if i.run_id == "a"}
    return [
        (state, input_)
        for phase, state in EVERY_PHASE.items()
        for kind, input_ in kinds.items()
        if (kind, phase) not in listed
    ]


def test_the_wrong_phase_is_no_guard():
    assert len(wrong_phases()) > 150
    for state, input_ in wrong_phases():
        assert_no_transition(TURN, state, input_)


# -- choices that guards make: which row fires -----------------------------------------------------------


CHOICES = [
    (APPLYING, PrimitiveApplied("a"), TurnPhase.CALLING_LLM),
    (APPENDING, PrimitiveApplied("a"), TurnPhase.COMPLETED),
    (CANCEL[APPLYING], PrimitiveApplied("a"), TurnPhase.CALLING_LLM),
    (CANCEL[APPENDING], PrimitiveApplied("a"), TurnPhase.CANCELLED),
    (DRAINING, BoundaryContinue("a"), TurnPhase.CALLING_LLM),
    (CANCEL[DRAINING], BoundaryContinue("a"), TurnPhase.CANCELLED),
    (DRAINING, BoundaryComplete("a"), TurnPhase.COMPLETED),
    (CANCEL[DRAINING], BoundaryComplete("a"), TurnPhase.CANCELLED),
    (DRAINING, EnterExtraction("a", 1), TurnPhase.EXTRACTING),
    (ANSWER_DRAINING, EnterExtraction("a", 1), TurnPhase.EXTRACTING),
    (ANSWERED, ExtractionValidationFailed("a", "x"), TurnPhase.CALLING_LLM),
    (CANCEL[ANSWERED], ExtractionValidationFailed("a", "x"), TurnPhase.COMPLETED),
]


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: type(case[1]).__name__)
def test_choices(case: tuple[Any, ...]):
    assert_chosen(TURN, *case)


def test_entering_extraction_counts_the_boundary_once():
    assert (DRAINING.boundaries, EXTRACTING.boundaries, ANSWERED.boundaries) == (0, 1, 1)


# -- invariants: for each, states that only it forbids ---------------------------------------------------

READY_EMPTY = "Ready holds nothing"
LIVE_RUN = "a live phase has a run and no ending, and no other phase has a run"
ENDING = "a terminal phase names its run, a fitting outcome, and on a failure the cause"
OPERATIONS = "operations are open exactly while they are waited for, the barrier among them"
EXTRACTION = "extraction stays in its phases and within its retries"
PLANNED = "recovery follows a plan of 1 ≤ attempt ≤ max"
IMMEDIATE = "immediate appends never reach the model"
CANCEL_PENDING = "a cancel is only pending in a run at work"
BOUNDARIES = "boundaries come after what was admitted and before completion"

BROKEN = [
    (READY._replace(ended_run_id="a"), READY_EMPTY),
    (READY._replace(shape=ContentShape.EMPTY), READY_EMPTY),
    (READY._replace(boundaries=1), READY_EMPTY),
    (READY._replace(outcome=Outcome.COMPLETED), READY_EMPTY),
    (READY._replace(cause=Cause.LLM_FAILURE), READY_EMPTY),
    (CALLING._replace(run_id=None), LIVE_RUN),
    (CANCELLING._replace(run_id=None), LIVE_RUN),
    (APPLYING._replace(shape=None), LIVE_RUN),
    (CALLING._replace(outcome=Outcome.COMPLETED), LIVE_RUN),
    (CALLING._replace(cause=Cause.LLM_FAILURE), LIVE_RUN),
    (CALLING._replace(ended_run_id="b"), LIVE_RUN),
    (COMPLETED._replace(run_id="a"), LIVE_RUN),
    (COMPLETED._replace(ended_run_id=None), ENDING),
    (COMPLETED._replace(outcome=None), ENDING),
    (COMPLETED._replace(outcome=Outcome.FAILED), ENDING),
    (COMPLETED._replace(cause=Cause.UNKNOWN), ENDING),
    (CANCELLED._replace(outcome=Outcome.COMPLETED), ENDING),
    (CANCELLED._replace(cause=Cause.TOOL_FAILURE), ENDING),
    (FAILED._replace(outcome=Outcome.COMPLETED), ENDING),
    (FAILED._replace(outcome=Outcome.STRUCTURED_OUTPUT_VALIDATION_FAILED), ENDING),
    (FAILED._replace(cause=None), ENDING),
    (FAILED._replace(cause=Cause.UNKNOWN), ENDING),
    (FAILED._replace(outcome=Outcome.BUDGET_EXHAUSTED), ENDING),
    (FAILED._replace(cause=Cause.BUDGET_EXHAUSTED), ENDING),
    (FAILED._replace(outcome=Outcome.TIME_BUDGET_EXCEEDED), ENDING),
    (FAILED._replace(cause=Cause.TIME_BUDGET_EXCEEDED), ENDING),
    (WAITING._replace(batch=None), OPERATIONS),
    (CALLING._replace(batch=Batch(0, True)), OPERATIONS),
    (CANCELLED._replace(batch=Batch(0, True, X)), OPERATIONS),
    (WAITING._replace(batch=Batch(0)), OPERATIONS),
    (WAITING._replace(batch=Batch(1, False, X)), OPERATIONS),
    (WAITING._replace(batch=Batch(1, False, NONE, X)), OPERATIONS),
    (WAITING._replace(batch=Batch(1, True)), OPERATIONS),
    (WAITING._replace(batch=Batch(0, True, X, XY)), OPERATIONS),
    (EXTRACTING._replace(extraction=None), EXTRACTION),
    (EXTRACTING._replace(extraction=Extraction(1, 2)), EXTRACTION),
    (EXTRACTING._replace(extraction=Extraction(1, -1)), EXTRACTION),
    (ASKED._replace(extraction=Extraction(1, 0, True)), EXTRACTION),
    (CANCELLING._replace(extraction=Extraction(1), boundaries=1), EXTRACTION),
    (COMPLETED._replace(extraction=Extraction(1)), EXTRACTION),
    (RECOVERY._replace(retry=None), PLANNED),
    (RECOVERY._replace(retry=PLAN._replace(attempt=0)), PLANNED),
    (RECOVERY._replace(retry=PLAN._replace(attempt=3)), PLANNED),
    (DRAINING._replace(retry=PLAN), PLANNED),
    (CALLING._replace(shape=ContentShape.IMMEDIATE_APPEND), IMMEDIATE),
    (WAITING._replace(shape=ContentShape.IMMEDIATE_CONTEXT), IMMEDIATE),
    (DRAINING._replace(shape=ContentShape.IMMEDIATE_APPEND), IMMEDIATE),
    (EXTRACTING._replace(shape=ContentShape.IMMEDIATE_APPEND), IMMEDIATE),
    (RECOVERY._replace(shape=ContentShape.IMMEDIATE_APPEND), IMMEDIATE),
    (CANCELLING._replace(cancel_requested=True), CANCEL_PENDING),
    (COMPLETED._replace(cancel_requested=True), CANCEL_PENDING),
    (APPLYING._replace(boundaries=1), BOUNDARIES),
    (COMPLETED._replace(boundaries=0), BOUNDARIES),
    (EXTRACTING._replace(boundaries=0), BOUNDARIES),
    (CALLING._replace(boundaries=-1), BOUNDARIES),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case[0].phase.value)
def test_invariants(case: tuple[Turn, str]):
    assert_breaks(TURN, *case)


def test_nothing_is_left_out():
    assert_table_covered(TURN, REFUSALS, BROKEN, CHOICES)


# -- the catalogue, §21 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED])
def test_terminal_phases_accept_only_acknowledge_and_start(state: Turn):
    accepted = {type(i) for i in TURN.alphabet(state) if TURN.rows_for(state, i)}
    assert accepted == {AcknowledgeTerminal, StartConversation, StartImmediate}


def test_boundary_count_is_monotone_and_rises_exactly_when_a_boundary_is_left():
    """The ninth invariant, over every step there is."""
    for old, input_, new, effects in every_step(TURN):
        left = [e for e in effects if isinstance(e, BoundaryApplied)]
        if isinstance(input_, StartConversation | StartImmediate | AcknowledgeTerminal):
            assert new.boundaries == 0
        else:
            assert new.boundaries - old.boundaries == len(left) <= 1
            assert all(e.sequence == new.boundaries for e in left)


inputs = st.lists(
    st.sampled_from([i for i in TURN.alphabet(READY) if i.run_id == "a"]), max_size=60
)


@given(before=inputs, later=inputs)
def test_soft_cancel_starts_no_model_call_after_the_next_boundary(before: Any, later: Any):
    """At most one more model answer in progress; none is started once a boundary was reached."""
    state = CALLING
    for input_ in (*before, RequestCancelAfterBoundary("a")):
        try:
            state, _ = TURN.apply(state, input_)
        except Rejected:
            continue
    if not state.cancel_requested:
        return
    reached = state.phase in (TurnPhase.DRAINING_BOUNDARY, TurnPhase.EXTRACTING)
    for input_ in later:
        try:
            new, _ = TURN.apply(state, input_)
        except Rejected:
            continue
        if new.phase not in LIVE:
            return
        reached |= new.phase in (TurnPhase.DRAINING_BOUNDARY, TurnPhase.EXTRACTING)
        assert not (reached and new.phase is TurnPhase.CALLING_LLM)
        assert new.cancel_requested or new.phase is TurnPhase.CANCELLING
        state = new


def test_tool_calls_resolved_is_impossible_while_a_barrier_id_is_open():
    for old, input_, _, _ in every_step(TURN):
        if isinstance(input_, ToolCallsResolved):
            assert old.batch.registered
            assert not old.batch.barrier


def test_detached_only_ops_never_block():
    detached = at(RegisterPendingOps("a", XY, NONE), state=WAITING)
    assert at(ToolCallsResolved("a"), state=detached) == DRAINING


@given(retries=st.integers(0, 4), again=st.lists(st.booleans(), max_size=12))
def test_model_calls_in_extraction_are_at_most_one_plus_retries(retries: int, again: list[bool]):
    """Whatever the loop tries: asking again at once, or after a bad answer."""
    state, calls = at(EnterExtraction("a", retries), state=DRAINING), 0
    for at_once in (*again, *([False] * 2 * (retries + 2))):
        if state.phase not in LIVE:
            break
        asks = (
            ExtractionStart("a") if at_once or calls == 0 else ExtractionValidationFailed("a", "x")
        )
        try:
            state, _ = TURN.apply(state, asks)
        except Rejected:
            continue
        if state.phase is TurnPhase.CALLING_LLM:
            calls += 1
            state = at(LlmReturnedTerminal("a"), EnterExtraction("a"), state=state)
    assert state.phase is TurnPhase.COMPLETED
    assert calls == 1 + retries


def test_budget_outcome_and_cause_always_pair():
    pairs = {
        Outcome.BUDGET_EXHAUSTED: Cause.BUDGET_EXHAUSTED,
        Outcome.TIME_BUDGET_EXCEEDED: Cause.TIME_BUDGET_EXCEEDED,
    }
    ended = [state for state in reachable(TURN) if state.phase is TurnPhase.FAILED]
    assert {state.outcome for state in ended} == {Outcome.FAILED, *pairs}
    for state in ended:
        for outcome, cause in pairs.items():
            assert (state.outcome is outcome) == (state.cause is cause)


def test_a_wrong_run_id_is_always_a_guard():
    starts = (StartConversation, StartImmediate)
    for state in reachable(TURN):
        for input_ in TURN.alphabet(state):
            if input_.run_id in (state.run_id, state.ended_run_id) or isinstance(input_, starts):
                continue
            if TURN.rows_for(state, input_):
                names = TURN.failed_guards(state, input_)
                assert {"run_matches", "run_matches_ended"} & set(names)
                assert TURN.enabled(state, input_) == []


def test_every_ending_is_something_to_its_caller():
    for state in reachable(TURN):
        if state.phase in TERMINAL_PHASES:
            assert caller_gets(state.outcome, state.cause).gets != "internal_error"


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - RETRYABLE))
def test_non_retryable_kinds_never_reach_error_recovery(kind: FailureKind):
    assert_refused(TURN, CALLING, RecoverableFailure("a", kind, PLAN), "failure_is_retryable")


# -- what was wrong, §3.5 -------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [BoundaryContinue("a"), BoundaryComplete("a")])
def test_w1_a_soft_cancel_is_honoured_at_the_boundary(leave: Any):
    state, effects = run(TURN, leave, state=CANCEL[DRAINING])
    assert (state.phase, state.outcome) == (TurnPhase.CANCELLED, Outcome.CANCELLED)
    assert effects == (BoundaryApplied("a", 1), RunCancelled("a"))


def test_w2_tool_calls_resolved_needs_a_satisfied_barrier():
    assert_refused(TURN, WAITING, ToolCallsResolved("a"), "ops_registered")
    assert_refused(TURN, BEHIND_BARRIER, ToolCallsResolved("a"), "no_barrier_open")


def test_w3_an_ending_is_never_rewritten():
    for old, input_, new, _ in every_step(TURN):
        if old.phase in TERMINAL_PHASES and new.phase in TERMINAL_PHASES:
            pytest.fail(f"{input_} rewrote {old} to {new}")


def test_w4_no_row_is_dead_and_cancelling_an_idle_turn_is_told_apart():
    assert_no_transition(TURN, READY, CancelNow("a"))
    assert_no_transition(TURN, READY, RequestCancelAfterBoundary("a"))


def test_w5_acknowledging_trusts_the_stored_outcome_only():
    assert_refused(TURN, FAILED, AcknowledgeTerminal("a", Outcome.COMPLETED), "outcome_as_stored")
    assert at(AcknowledgeTerminal("a", Outcome.FAILED), state=FAILED) == READY


def test_w6_a_late_call_from_a_previous_run_is_refused():
    second = at(
        StartConversation("b", ContentShape.CONVERSATION), PrimitiveApplied("b"), state=COMPLETED
    )
    assert_refused(TURN, second, LlmReturnedTerminal("a"), "run_matches")
    ended = at(LlmReturnedTerminal("b"), BoundaryComplete("b"), state=second)
    assert_refused(TURN, ended, AcknowledgeTerminal("a", Outcome.COMPLETED), "run_matches_ended")


def test_w7_a_retry_never_exceeds_its_maximum_and_only_repeats_a_model_call():
    over = RetryPlan(2, 1, 500, 500)
    again = at(RetryRequested("a", 1), state=RECOVERY)
    failure = RecoverableFailure("a", FailureKind.CALL_TIMEOUT, over)
    assert_refused(TURN, again, failure, "attempt_within_max")
    for state in (WAITING, DRAINING, EXTRACTING):
        assert_no_transition(TURN, state, RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN))


def test_w8_extraction_fails_only_where_there_is_one_and_also_in_recovery():
    assert_refused(TURN, CALLING, ExtractionFailed("a", "x"), "extracting")
    assert_refused(TURN, RECOVERY, ExtractionFailed("a", "x"), "extracting")
    asleep = at(RecoverableFailure("a", FailureKind.CALL_TIMEOUT, PLAN), state=ASKED)
    for state in (EXTRACTING, ASKED, ANSWER_DRAINING, asleep):
        ended, effects = run(TURN, ExtractionFailed("a", "budget"), state=state)
        assert effects == (RunCompleted("a", "budget", 1),)
        assert ended.phase is TurnPhase.COMPLETED


def test_w9_the_boundary_before_an_extraction_counts():
    state, effects = run(TURN, EnterExtraction("a", 1), state=DRAINING)
    assert effects == (BoundaryApplied("a", 1),)
    assert state.boundaries == 1


def test_w10_pending_operations_do_not_survive_the_wait_for_them():
    for state in reachable(TURN):
        assert (state.batch is not None) == (state.phase is TurnPhase.WAITING_FOR_OPS)


def test_w11_a_spent_budget_fails_in_the_only_machine_there_is():
    spent = at(BudgetExhausted("a"), state=CALLING)
    assert (spent.phase, spent.outcome) == (TurnPhase.FAILED, Outcome.BUDGET_EXHAUSTED)
    assert caller_gets(spent.outcome, spent.cause).gets == "success"
