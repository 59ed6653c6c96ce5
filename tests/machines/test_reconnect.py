"""The reconnect cycle of a live channel: `machines.md` §15.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import after, assert_breaks, assert_refused, assert_sound, run

from holdfast.machines.reconnect import (
    RECONNECT,
    AttemptAfter,
    AttemptFailed,
    GaveUp,
    Lost,
    Phase,
    Reattached,
    Reconnect,
    Recovered,
    delay_ms,
)

NOW = 1_000
FIRST = Reconnect(Phase.RECONNECTING, 1, 1, NOW)
THIRD = FIRST._replace(attempt=3)


def test_sound():
    assert_sound(RECONNECT)


def test_three_attempts_then_it_is_over():
    state, effects = run(
        RECONNECT,
        Lost(NOW, 1.0),
        AttemptFailed(1, 1, NOW, 1.0),
        AttemptFailed(1, 2, NOW, 1.0),
    )
    assert state == THIRD
    assert effects == (
        AttemptAfter(1, 1, 500),
        AttemptAfter(1, 2, 1_000),
        AttemptAfter(1, 3, 2_000),
    )
    state, effects = run(RECONNECT, AttemptFailed(1, 3, NOW, 1.0), state=state)
    assert (state, effects) == (THIRD._replace(phase=Phase.EXHAUSTED), (GaveUp(3),))


def test_an_attempt_that_works_ends_the_cycle():
    state, effects = run(RECONNECT, Reattached(1, 1), state=FIRST)
    assert (state, effects) == (Reconnect(cycle=1), (Recovered(1),))
    assert after(RECONNECT, Lost(NOW, 0.0), state=state) == FIRST._replace(cycle=2)


def test_no_attempt_starts_after_30_seconds():
    last = NOW + 30_000 - 1_000
    assert after(RECONNECT, AttemptFailed(1, 1, last, 1.0), state=FIRST).attempt == 2
    over, effects = run(RECONNECT, AttemptFailed(1, 1, last + 1, 1.0), state=FIRST)
    assert (over.phase, effects) == (Phase.EXHAUSTED, (GaveUp(1),))


@pytest.mark.parametrize("now", [NOW, NOW + 60_000])
@pytest.mark.parametrize("state", [FIRST, THIRD])
def test_one_row_decides_about_a_failure(state: Reconnect, now: int):
    assert len(RECONNECT.enabled(state, AttemptFailed(1, state.attempt, now, 1.0))) == 1


def test_late_news_of_another_attempt_or_cycle_are_refused():
    for cycle, attempt in ((1, 0), (1, 2), (0, 1), (2, 1)):
        failed = AttemptFailed(cycle, attempt, NOW, 1.0)
        assert_refused(RECONNECT, FIRST, failed, "attempt_current", "attempts_or_time_spent")
        failed = AttemptFailed(cycle, attempt, NOW + 60_000, 1.0)
        assert_refused(RECONNECT, FIRST, failed, "attempt_current", "may_retry")
        assert_refused(RECONNECT, FIRST, Reattached(cycle, attempt), "attempt_current")


def test_news_are_for_a_cycle_under_way():
    gone = FIRST._replace(phase=Phase.EXHAUSTED)
    failed = AttemptFailed(1, 1, NOW, 1.0)
    assert_refused(RECONNECT, gone, failed, "reconnecting", "attempts_or_time_spent")
    failed = AttemptFailed(1, 1, NOW + 60_000, 1.0)
    assert_refused(RECONNECT, gone, failed, "reconnecting", "may_retry")
    assert_refused(RECONNECT, gone, Reattached(1, 1), "reconnecting")
    assert_refused(RECONNECT, gone, Lost(NOW, 1.0), "idle")
    assert_refused(RECONNECT, FIRST, Lost(NOW, 1.0), "idle")


@given(st.integers(1, 100), st.floats(0, 1))
def test_the_wait_is_jittered_in_full_and_capped(attempt: int, luck: float):
    longest = min(500 * 2 ** (attempt - 1), 5_000)
    assert 0 <= delay_ms(attempt, luck) <= longest
    assert delay_ms(attempt, 1.0) == longest
    assert delay_ms(attempt, 0.0) == 0


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (
            Reconnect(Phase.RECONNECTING, 1, 0),
            "attempts exactly once the connection was lost",
        ),
        (Reconnect(Phase.IDLE, 1, 1), "attempts exactly once the connection was lost"),
        (THIRD._replace(attempt=4), "attempts are bounded"),
        (FIRST._replace(cycle=0), "attempts belong to a cycle"),
        (Reconnect(cycle=-1), "attempts belong to a cycle"),
    ],
)
def test_invariants(state: Reconnect, invariant: str):
    assert_breaks(RECONNECT, state, invariant)
