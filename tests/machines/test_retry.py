"""How long to wait before asking the model again: `machines.md` §4.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machines.retry import (
    RATE_LIMIT_FLOOR_MS,
    RETRYABLE,
    CallTimeout,
    FailureKind,
    RetryPlan,
    RetryPolicy,
    call_timeout,
    retry_delay,
)

POLICY = RetryPolicy()
KINDS = st.sampled_from(sorted(RETRYABLE))
MS = st.integers(0, 10_000_000)
POLICIES = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 10),
    initial_delay_ms=st.integers(0, 100_000),
    multiplier=st.floats(1.0, 10.0),
    max_delay_ms=st.integers(0, 1_000_000),
)


def plan(
    attempt: int = 1,
    kind: FailureKind = FailureKind.CALL_TIMEOUT,
    hint_ms: int | None = None,
    remaining_ms: int | None = None,
    jitter: float = 0.0,
    policy: RetryPolicy = POLICY,
) -> RetryPlan:
    return retry_delay(
        attempt, policy, kind, hint_ms=hint_ms, remaining_ms=remaining_ms, jitter=jitter
    )


def test_defaults():
    assert RetryPolicy() == (3, 500, 2.0, 30_000, None)


def test_the_delay_doubles_up_to_its_cap():
    computed = [plan(attempt).selected_delay_ms for attempt in range(1, 10)]
    assert computed == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]


def test_a_plan_says_why():
    assert plan(2) == RetryPlan(2, 3, 1000, 1000)
    assert plan(2, FailureKind.RATE_LIMITED) == RetryPlan(2, 3, 1000, 30_000, None, True)
    assert plan(1, hint_ms=7000, remaining_ms=6000) == RetryPlan(
        1, 3, 500, 6000, 7000, budget_capped=True
    )


def test_a_longer_hint_wins_and_a_shorter_one_does_not():
    assert plan(1, hint_ms=60_000).selected_delay_ms == 60_000
    assert plan(1, hint_ms=500).selected_delay_ms == 500
    assert plan(3, hint_ms=100).selected_delay_ms == 2000


def test_the_server_knows_better_than_the_floor():
    said = plan(1, FailureKind.RATE_LIMITED, hint_ms=5000)
    assert (said.selected_delay_ms, said.rate_limit_floor_applied) == (5000, False)
    unsaid = plan(1, FailureKind.RATE_LIMITED, hint_ms=100)
    assert (unsaid.selected_delay_ms, unsaid.rate_limit_floor_applied) == (30_000, True)


def test_the_floor_is_for_rate_limits_only():
    for kind in RETRYABLE - {FailureKind.RATE_LIMITED}:
        assert plan(1, kind).selected_delay_ms == 500


def test_no_time_left_is_no_wait():
    assert plan(1, remaining_ms=0) == RetryPlan(1, 3, 500, 0, budget_capped=True)
    assert plan(1, remaining_ms=-5).selected_delay_ms == 0
    assert not plan(1, remaining_ms=500).budget_capped


def test_many_attempts_do_not_overflow():
    assert plan(100_000).computed_delay_ms == 30_000
    assert plan(100_000, policy=RetryPolicy(initial_delay_ms=0)).computed_delay_ms == 0


@given(
    attempt=st.integers(1, 200),
    policy=POLICIES,
    kind=KINDS,
    hint_ms=st.none() | MS,
    remaining_ms=st.none() | MS,
    jitter=st.floats(-1, 1),
)
def test_the_delay_is_bounded_before_and_after_capping(
    attempt: int,
    policy: RetryPolicy,
    kind: FailureKind,
    hint_ms: int | None,
    remaining_ms: int | None,
    jitter: float,
):
    free = plan(attempt, kind, hint_ms, None, jitter, policy)
    bound = max(policy.max_delay_ms, hint_ms or 0, RATE_LIMIT_FLOOR_MS)
    assert 0 <= free.selected_delay_ms <= bound
    assert not free.budget_capped
    capped = plan(attempt, kind, hint_ms, remaining_ms, jitter, policy)
    if remaining_ms is not None:
        assert capped.selected_delay_ms == min(free.selected_delay_ms, remaining_ms)
        assert capped.budget_capped == (free.selected_delay_ms > remaining_ms)


@given(attempt=st.integers(1, 200), policy=POLICIES, jitter=st.floats(allow_nan=False))
def test_jitter_stays_within_ten_percent(attempt: int, policy: RetryPolicy, jitter: float):
    """Also when the random number is out of its range."""
    uncapped = policy._replace(max_delay_ms=1 << 62)
    plain = plan(attempt, policy=uncapped).computed_delay_ms
    shaken = plan(attempt, jitter=jitter, policy=uncapped).computed_delay_ms
    assert plain * 0.9 - 1 <= shaken <= plain * 1.1 + 1
    assert plan(attempt, jitter=jitter, policy=policy).computed_delay_ms <= policy.max_delay_ms


@given(attempt=st.integers(1, 50), policy=POLICIES, kind=KINDS, hint_ms=st.none() | MS)
def test_the_floor_is_noted_exactly_when_it_raised_the_value(
    attempt: int, policy: RetryPolicy, kind: FailureKind, hint_ms: int | None
):
    made = plan(attempt, kind, hint_ms, policy=policy)
    raised = made.selected_delay_ms > max(made.computed_delay_ms, hint_ms or 0)
    assert made.rate_limit_floor_applied == raised
    if made.rate_limit_floor_applied:
        assert kind is FailureKind.RATE_LIMITED
        assert made.selected_delay_ms == RATE_LIMIT_FLOOR_MS > made.computed_delay_ms


def test_what_is_retryable_is_typed():
    assert {kind.value for kind in RETRYABLE} == {
        "RateLimited",
        "NetworkTimeout",
        "CallTimeout",
        "RetryableProviderError",
    }
    assert {kind.value for kind in set(FailureKind) - RETRYABLE} == {
        "Auth",
        "InvalidModel",
        "ContextExceeded",
        "ContentFilter",
        "InvalidRequest",
    }


# -- how long one call may take ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("explicit", "profile", "policy", "expected"),
    [
        (10, 20, 30, 10),
        (None, 20, 30, 20),
        (None, None, 30, 30),
        (None, None, None, None),
        ("disabled", 20, 30, None),
        (0, 20, 30, 0),
    ],
)
def test_the_closest_timeout_wins(explicit, profile, policy, expected):
    given_policy = RetryPolicy(call_timeout_ms=policy)
    assert call_timeout(explicit, profile, given_policy, None) == CallTimeout(expected, False)


def test_which_limit_it_is_is_known_before_waiting():
    assert call_timeout(10, None, POLICY, 11) == CallTimeout(10, False)
    assert call_timeout(10, None, POLICY, 10) == CallTimeout(10, True)
    assert call_timeout(None, None, POLICY, 10) == CallTimeout(10, True)
    assert call_timeout("disabled", 5, POLICY, 10) == CallTimeout(10, True)
    assert call_timeout(10, None, POLICY, -1) == CallTimeout(0, True)
