"""Who owns a session id: `machines.md` §13."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import after, assert_breaks, assert_refused, assert_sound, run

from holdfast.machines import GuardRejected
from holdfast.machines.claim import (
    CLAIM,
    Acquire,
    Acquired,
    Claim,
    ClaimToken,
    Phase,
    Release,
    Released,
    acquire,
    already_claimed,
    release,
)
from holdfast.machines.spine import SPINE, Prepare, TakeOver

CLAIMED = Claim(Phase.CLAIMED, "a")


def test_sound():
    assert_sound(CLAIM)


def test_acquire_and_release():
    assert run(CLAIM, Acquire("a")) == (CLAIMED, (Acquired("a"),))
    assert run(CLAIM, Release("a"), state=CLAIMED) == (Claim(), (Released("a"),))


def test_release_is_idempotent():
    assert_refused(CLAIM, after(CLAIM, Release("a"), state=CLAIMED), Release("a"), "nonce_matches")


def test_sessions_are_claimed_apart():
    one, two = ClaimToken("s1", "a"), ClaimToken("s2", "b")
    claims = acquire(acquire({}, one), two)
    assert claims == {"s1": "a", "s2": "b"}
    assert release(claims, one) == {"s2": "b"}
    with pytest.raises(GuardRejected):
        release(claims, ClaimToken("s3", "a"))


def test_the_loser_is_told():
    assert already_claimed("s1") == "session identity already claimed: s1"


# -- the catalogue ------------------------------------------------------------------------------------


def test_two_concurrent_acquires_have_one_winner():
    claims = acquire({}, ClaimToken("s", "a"))
    with pytest.raises(GuardRejected) as caught:
        acquire(claims, ClaimToken("s", "b"))
    assert caught.value.guards == ("unclaimed",)
    # Not even twice for the same nonce.
    assert_refused(CLAIM, CLAIMED, Acquire("a"), "unclaimed")
    assert_refused(CLAIM, CLAIMED, Acquire("b"), "unclaimed")


@given(st.lists(st.sampled_from(["acquire", "release newest", "release any"]), max_size=30))
def test_releasing_an_old_token_never_frees_a_new_claim(moves: list[str]):
    state: Any = CLAIM.initial
    owner: int | None = None
    for number, move in enumerate(moves):
        if move == "acquire":
            input_, mine = Acquire(str(number)), owner is None
        else:
            which = owner if move == "release newest" and owner is not None else number - 2
            input_, mine = Release(str(which)), which == owner
        try:
            state, _ = CLAIM.apply(state, input_)
            assert mine
            owner = number if move == "acquire" else None
        except GuardRejected:
            assert not mine
        assert state.nonce == (None if owner is None else str(owner))


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_a_second_release_frees_the_new_owners_claim():
    state = after(CLAIM, Acquire("a"), Release("a"), Acquire("b"))
    assert_refused(CLAIM, state, Release("a"), "nonce_matches")
    assert state == Claim(Phase.CLAIMED, "b")


def test_wrong_two_processes_on_one_store_run_the_same_session():
    # A claim is for one process; between processes the session's epoch decides.
    taken = after(SPINE, TakeOver(1))
    assert_refused(SPINE, taken, Prepare("run", 1), "epoch_current")


@pytest.mark.parametrize("state", [Claim(Phase.CLAIMED), Claim(Phase.FREE, "a")])
def test_invariants(state: Claim):
    assert_breaks(CLAIM, state, "a nonce exactly while claimed")
