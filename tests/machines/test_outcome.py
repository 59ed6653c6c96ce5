"""What the endings of a turn mean: `machines.md` §3.2."""

from itertools import product

import pytest

from holdfast.machines.outcome import (
    MISSING_TERMINAL,
    TERMINAL_PHASES,
    Cause,
    ErrorClass,
    Gets,
    LoopState,
    Outcome,
    TurnPhase,
    caller_gets,
    default_text,
    error_class,
    loop_state,
)


def test_there_are_eleven_phases():
    assert [phase.value for phase in TurnPhase] == [
        "Ready",
        "ApplyingPrimitive",
        "CallingLlm",
        "WaitingForOps",
        "DrainingBoundary",
        "Extracting",
        "ErrorRecovery",
        "Cancelling",
        "Completed",
        "Failed",
        "Cancelled",
    ]


@pytest.mark.parametrize(
    ("state", "phases"),
    [
        ("calling_llm", "Ready ApplyingPrimitive CallingLlm"),
        ("waiting_for_ops", "WaitingForOps"),
        ("draining_events", "DrainingBoundary Extracting"),
        ("error_recovery", "ErrorRecovery"),
        ("cancelling", "Cancelling"),
        ("completed", "Completed Failed Cancelled"),
    ],
)
def test_loop_state(state: str, phases: str):
    assert [p.value for p in TurnPhase if loop_state(p) == state] == phases.split()


def test_every_loop_state_is_shown():
    assert {loop_state(phase) for phase in TurnPhase} == set(LoopState)
    assert {s for s in LoopState if s.is_waiting} == {
        LoopState.CALLING_LLM,
        LoopState.WAITING_FOR_OPS,
    }
    assert all(loop_state(phase) is LoopState.COMPLETED for phase in TERMINAL_PHASES)


@pytest.mark.parametrize(
    ("blamed", "causes"),
    [
        (ErrorClass.HOOK, "HookDenied HookFailure"),
        (ErrorClass.LLM, "LlmFailure RetryExhausted"),
        (ErrorClass.TOOL, "ToolFailure"),
        (ErrorClass.STRUCTURED_OUTPUT, "StructuredOutputValidationFailed"),
        (ErrorClass.BUDGET, "BudgetExhausted TimeBudgetExceeded"),
        (ErrorClass.MAX_TURNS, "TurnLimitReached"),
        (ErrorClass.INTERNAL, "RuntimeApplyFailure Unknown"),
        (ErrorClass.TERMINAL, "FatalFailure"),
    ],
)
def test_error_class(blamed: ErrorClass, causes: str):
    assert {cause.value for cause in Cause if error_class(cause) is blamed} == set(causes.split())


def test_default_texts():
    assert {cause.value: default_text(cause) for cause in Cause} == {
        "Unknown": "unknown failure",
        "HookDenied": "hook denied terminal turn",
        "HookFailure": "hook failure terminal turn",
        "LlmFailure": "LLM failure terminal turn",
        "ToolFailure": "tool failure terminal turn",
        "StructuredOutputValidationFailed": "structured output validation failed",
        "BudgetExhausted": "budget exhausted",
        "TimeBudgetExceeded": "time budget exceeded",
        "RetryExhausted": "retry exhausted",
        "TurnLimitReached": "turn limit reached",
        "RuntimeApplyFailure": "runtime apply failure",
        "FatalFailure": "fatal turn failure",
    }
    assert default_text(None) == "unknown failure"


EVERY_PAIR = list(product((None, *Outcome), (None, *Cause)))


def test_what_the_caller_gets_is_total():
    assert len(EVERY_PAIR) == 7 * 13
    for outcome, cause in EVERY_PAIR:
        result = caller_gets(outcome, cause)
        assert isinstance(result.gets, Gets)
        assert result.outcome is outcome
        assert (result.text == "") == (result.gets is Gets.SUCCESS)


def test_success_and_nothing_else():
    assert {pair for pair in EVERY_PAIR if caller_gets(*pair).gets is Gets.SUCCESS} == {
        (Outcome.COMPLETED, None),
        (Outcome.COMPLETED, Cause.UNKNOWN),
        (Outcome.BUDGET_EXHAUSTED, Cause.BUDGET_EXHAUSTED),
    }


def test_cancelled_and_nothing_else():
    assert {pair for pair in EVERY_PAIR if caller_gets(*pair).gets is Gets.CANCELLED} == {
        (Outcome.CANCELLED, None),
        (Outcome.CANCELLED, Cause.UNKNOWN),
    }


def test_no_outcome_is_our_own_fault():
    pairs = [pair for pair in EVERY_PAIR if caller_gets(*pair).gets is Gets.INTERNAL_ERROR]
    assert pairs == [(None, cause) for cause in (None, *Cause)]
    assert caller_gets(None, None).text == MISSING_TERMINAL == "missing terminal"


def test_a_spent_budget_is_an_orderly_stop_and_a_spent_deadline_a_failure():
    budget = caller_gets(Outcome.BUDGET_EXHAUSTED, Cause.BUDGET_EXHAUSTED)
    assert (budget.gets, budget.cause, budget.text) == (Gets.SUCCESS, Cause.BUDGET_EXHAUSTED, "")
    late = caller_gets(Outcome.TIME_BUDGET_EXCEEDED, Cause.TIME_BUDGET_EXCEEDED)
    assert (late.gets, late.text) == (Gets.TERMINAL_FAILURE, "time budget exceeded")


def test_a_success_has_no_cause_left_over():
    assert caller_gets(Outcome.COMPLETED, Cause.UNKNOWN).cause is None
    assert caller_gets(Outcome.CANCELLED, Cause.UNKNOWN).cause is None
