"""A credential lease: `machines.md` §9."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import (
    after,
    assert_breaks,
    assert_no_transition,
    assert_refused,
    assert_sound,
    run,
)

from holdfast.machines import Rejected
from holdfast.machines.lease import (
    LEASE,
    Acquire,
    BeginRefresh,
    CompleteRefresh,
    Lease,
    Lifecycle,
    Observe,
    Phase,
    RefreshFailed,
    Release,
    RequireReauth,
    usable,
)

NOW = 1_000_000
EXPIRY = NOW + 600_000
NEW = LEASE.initial
VALID = Lease(Phase.VALID, 1, EXPIRY, NOW)
EXPIRING = VALID._replace(phase=Phase.EXPIRING)
EXPIRED = VALID._replace(phase=Phase.EXPIRED)
REFRESHING = VALID._replace(phase=Phase.REFRESHING)
REAUTH = VALID._replace(phase=Phase.REAUTH_REQUIRED)
RELEASED = Lease(generation=1)
PUBLISHED = [VALID, EXPIRING, EXPIRED, REFRESHING, REAUTH]


def test_sound():
    assert_sound(LEASE)


@pytest.mark.parametrize("state", [NEW, RELEASED, *PUBLISHED])
def test_acquire_publishes_from_anywhere(state: Lease):
    new, effects = run(LEASE, Acquire(EXPIRY, NOW), state=state)
    assert new == Lease(Phase.VALID, state.generation + 1, EXPIRY, NOW)
    assert effects == (Lifecycle(Phase.VALID, state.generation + 1),)
    assert after(LEASE, Acquire(None, NOW), state=state).expires_at is None
    assert_refused(LEASE, state, Acquire(NOW, NOW), "expiry_live")


@pytest.mark.parametrize(
    ("remaining", "phase"),
    [
        (60_001, Phase.VALID),
        (60_000, Phase.EXPIRING),
        (1, Phase.EXPIRING),
        (0, Phase.EXPIRED),
        (-1, Phase.EXPIRED),
    ],
)
def test_observe_boundary_cases(remaining: int, phase: Phase):
    state, effects = run(LEASE, Observe(EXPIRY - remaining), state=VALID)
    assert state == VALID._replace(phase=phase)
    assert effects == (() if phase is Phase.VALID else (Lifecycle(phase, 1),))
    assert len(LEASE.enabled(VALID, Observe(EXPIRY - remaining))) == 1


def test_observe_moves_an_expiring_credential_only_to_expired():
    assert run(LEASE, Observe(EXPIRY - 1), state=EXPIRING) == (EXPIRING, ())
    assert run(LEASE, Observe(NOW), state=EXPIRING) == (EXPIRING, ())
    assert run(LEASE, Observe(EXPIRY), state=EXPIRING)[0] == EXPIRED
    assert len(LEASE.enabled(EXPIRING, Observe(EXPIRY))) == 1


@pytest.mark.parametrize("state", [NEW, EXPIRED, REFRESHING, REAUTH])
def test_observe_elsewhere_is_an_accepted_no_op(state: Lease):
    assert run(LEASE, Observe(EXPIRY), state=state) == (state, ())


def test_observe_without_an_expiry_never_ages():
    forever = Lease(Phase.VALID, 1, None, NOW)
    assert run(LEASE, Observe(10**15), state=forever) == (forever, ())


def test_the_window_can_be_set():
    assert after(LEASE, Observe(EXPIRY - 10, window_ms=9), state=VALID).phase is Phase.VALID
    assert after(LEASE, Observe(EXPIRY - 10, window_ms=10), state=VALID).phase is Phase.EXPIRING


@pytest.mark.parametrize("state", [VALID, EXPIRING, EXPIRED])
def test_refresh_begins_from_whatever_was_published(state: Lease):
    new, effects = run(LEASE, BeginRefresh(), state=state)
    assert new == REFRESHING
    assert effects == (Lifecycle(Phase.REFRESHING, 1),)


@pytest.mark.parametrize("state", [NEW, REFRESHING, REAUTH])
def test_refresh_does_not_begin_elsewhere(state: Lease):
    assert_no_transition(LEASE, state, BeginRefresh())


def test_a_completed_refresh_publishes():
    failed = REFRESHING._replace(attempt=2)
    state, effects = run(LEASE, CompleteRefresh(1, EXPIRY + 1, NOW + 1), state=failed)
    assert state == Lease(Phase.VALID, 2, EXPIRY + 1, NOW + 1)
    assert effects == (Lifecycle(Phase.VALID, 2),)
    assert_refused(LEASE, REFRESHING, CompleteRefresh(1, NOW, NOW), "expiry_live")


@pytest.mark.parametrize(
    ("input_", "phase"),
    [
        (RefreshFailed(1, False, EXPIRY - 1), Phase.EXPIRING),
        (RefreshFailed(1, False, EXPIRY), Phase.EXPIRED),
        (RefreshFailed(1, True, EXPIRY - 1), Phase.REAUTH_REQUIRED),
        (RefreshFailed(1, True, EXPIRY), Phase.REAUTH_REQUIRED),
    ],
)
def test_a_failed_refresh(input_: RefreshFailed, phase: Phase):
    state, effects = run(LEASE, input_, state=REFRESHING)
    assert state == REFRESHING._replace(phase=phase, attempt=1)
    assert effects == (Lifecycle(phase, 1),)
    assert len(LEASE.enabled(REFRESHING, input_)) == 1


@pytest.mark.parametrize("state", [VALID, EXPIRING, EXPIRED, REFRESHING])
def test_reauth_can_be_required_of_whatever_was_published(state: Lease):
    new, effects = run(LEASE, RequireReauth(), state=state)
    assert (new, effects) == (REAUTH, (Lifecycle(Phase.REAUTH_REQUIRED, 1),))
    assert_no_transition(LEASE, NEW, RequireReauth())
    assert_no_transition(LEASE, REAUTH, RequireReauth())


@pytest.mark.parametrize("state", PUBLISHED)
def test_release_keeps_only_the_generation(state: Lease):
    assert run(LEASE, Release(), state=state) == (RELEASED, (Lifecycle(Phase.RELEASED, 1),))
    assert run(LEASE, Release(), state=RELEASED) == (RELEASED, ())


# -- the catalogue ------------------------------------------------------------------------------------

times = st.integers(0, 200_000)
expiries = st.one_of(st.none(), times)
generations = st.integers(0, 4)
inputs = st.lists(
    st.one_of(
        st.builds(Acquire, expiries, times),
        st.builds(Observe, times),
        st.just(BeginRefresh()),
        st.builds(CompleteRefresh, generations, expiries, times),
        st.builds(RefreshFailed, generations, st.booleans(), times),
        st.sampled_from([RequireReauth(), Release()]),
    ),
    max_size=30,
)


@given(inputs)
def test_generation_strictly_increases_on_publish_and_never_otherwise(inputs: list[Any]):
    state = LEASE.initial
    for input_ in inputs:
        before = state
        try:
            state, effects = LEASE.apply(state, input_)
        except Rejected:
            continue
        publishes = isinstance(input_, (Acquire, CompleteRefresh))
        assert state.generation - before.generation == publishes
        told = (Lifecycle(state.phase, state.generation),)
        assert effects == (told if state != before else ())


@given(inputs, times)
def test_usable_means_not_expired(inputs: list[Any], now: int):
    state = LEASE.initial
    for input_ in inputs:
        try:
            state, _ = LEASE.apply(state, input_)
        except Rejected:
            continue
    if usable(state, now):
        assert state.phase in (Phase.VALID, Phase.EXPIRING)
        assert state.expires_at is None or now < state.expires_at


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        (VALID, EXPIRY - 1, True),
        (EXPIRING, EXPIRY - 1, True),
        (VALID, EXPIRY, False),
        (EXPIRING, EXPIRY, False),
        (Lease(Phase.VALID, 1, None, NOW), EXPIRY, True),
        (EXPIRED, NOW, False),
        (REFRESHING, NOW, False),
        (REAUTH, NOW, False),
        (NEW, NOW, False),
    ],
)
def test_usable(state: Lease, now: int, expected: bool):
    assert usable(state, now) is expected


def test_n_concurrent_callers_mean_one_refresh():
    state, started = EXPIRING, 0
    for _ in range(10):
        try:
            state, _ = LEASE.apply(state, BeginRefresh())
            started += 1
        except Rejected:
            continue
    assert started == 1


def test_a_late_refresh_result_after_release_or_new_login_is_discarded():
    late = CompleteRefresh(1, EXPIRY, NOW)
    assert_no_transition(LEASE, after(LEASE, Release(), state=REFRESHING), late)
    signed_in = after(LEASE, Acquire(EXPIRY, NOW), state=REFRESHING)
    assert_no_transition(LEASE, signed_in, late)
    again = after(LEASE, BeginRefresh(), state=signed_in)
    assert_refused(LEASE, again, late, "generation_current")


@pytest.mark.parametrize(
    ("input_", "other_rows"),
    [
        (RefreshFailed(0, False, EXPIRY - 1), ("old_expiry_passed", "permanent")),
        (RefreshFailed(0, False, EXPIRY), ("old_expiry_live", "permanent")),
        (RefreshFailed(0, True, EXPIRY - 1), ("old_expiry_passed", "transient")),
    ],
)
def test_a_late_failure_is_discarded(input_: RefreshFailed, other_rows: tuple[str, ...]):
    assert_refused(LEASE, REFRESHING, input_, "generation_current", *other_rows)


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_nobody_marks_a_credential_expiring():
    assert after(LEASE, Observe(EXPIRY - 60_000), state=VALID).phase is Phase.EXPIRING


def test_wrong_a_fresh_machine_is_valid_without_a_credential():
    assert Lease(Phase.RELEASED) == NEW
    assert not usable(NEW, 0)


def test_wrong_a_refresh_is_published_although_it_has_already_expired():
    assert_refused(LEASE, REFRESHING, CompleteRefresh(1, NOW - 1, NOW), "expiry_live")


def test_wrong_released_still_takes_refreshes_and_keeps_its_expiry():
    assert RELEASED.expires_at is None
    for input_ in (BeginRefresh(), CompleteRefresh(1, None, NOW), RequireReauth()):
        assert_no_transition(LEASE, RELEASED, input_)


def test_wrong_reauth_is_not_reachable_from_expired():
    assert after(LEASE, RequireReauth(), state=EXPIRED).phase is Phase.REAUTH_REQUIRED


def test_wrong_an_event_is_emitted_although_nothing_changed():
    assert run(LEASE, Observe(NOW), state=VALID)[1] == ()
    assert run(LEASE, Release())[1] == ()


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (VALID._replace(phase=Phase.RELEASED), "Released exactly while nothing is published"),
        (
            Lease(Phase.VALID, 1),
            "Released exactly while nothing is published",
        ),
        (RELEASED._replace(expires_at=1), "what is not published neither expires nor fails"),
        (RELEASED._replace(attempt=1), "what is not published neither expires nor fails"),
        (VALID._replace(generation=0), "generation 0 is Released"),
        (NEW._replace(generation=-1), "generation 0 is Released"),
        (VALID._replace(attempt=1), "a Valid credential has no failed refresh"),
        (EXPIRING._replace(attempt=-1), "a Valid credential has no failed refresh"),
        (EXPIRED._replace(expires_at=None), "what is Expired had an expiry"),
        (VALID._replace(expires_at=NOW), "what was published was live"),
    ],
)
def test_invariants(state: Lease, invariant: str):
    assert_breaks(LEASE, state, invariant)
