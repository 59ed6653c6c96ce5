"""A request from a peer: `machines.md` §11."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import assert_breaks, assert_refused, assert_sound, run

from holdfast.machines import GuardRejected
from holdfast.machines.book import Book, write
from holdfast.machines.codec import dump, load
from holdfast.machines.inbound import (
    INBOUND,
    Inbound,
    InboundChanged,
    Lapse,
    Phase,
    ProgressReply,
    Received,
    Replied,
)

NOW = 5_000
DEADLINE = NOW + 300_000
RECEIVED = Inbound(Phase.RECEIVED, "p", DEADLINE)
REPLIED = RECEIVED._replace(phase=Phase.REPLIED)
LAPSED = RECEIVED._replace(phase=Phase.LAPSED)


def test_sound():
    assert_sound(INBOUND)


def test_a_request_is_received_once():
    assert run(INBOUND, Received("p", NOW)) == (RECEIVED, (InboundChanged(Phase.RECEIVED),))
    for state in (RECEIVED, REPLIED, LAPSED):
        assert_refused(INBOUND, state, Received("p", NOW), "id_unseen")


def test_a_progress_reply_changes_nothing():
    assert run(INBOUND, ProgressReply("p"), state=RECEIVED) == (RECEIVED, ())
    assert_refused(INBOUND, RECEIVED, ProgressReply("q"), "to_is_peer")
    for state in (REPLIED, LAPSED):
        assert_refused(INBOUND, state, ProgressReply("p"), "reply_owed")


def test_a_reply_goes_to_whoever_asked():
    reply = run(INBOUND, Replied("p"), state=RECEIVED)
    assert reply == (REPLIED, (InboundChanged(Phase.REPLIED),))
    assert_refused(INBOUND, RECEIVED, Replied("q"), "to_is_peer")
    assert_refused(INBOUND, INBOUND.initial, Replied("p"), "reply_owed", "to_is_peer")


def test_a_request_lapses_at_its_deadline():
    assert_refused(INBOUND, RECEIVED, Lapse(DEADLINE - 1), "deadline_passed")
    lapse = run(INBOUND, Lapse(DEADLINE), state=RECEIVED)
    assert lapse == (LAPSED, (InboundChanged(Phase.LAPSED),))
    for state in (REPLIED, LAPSED):
        assert_refused(INBOUND, state, Lapse(DEADLINE), "reply_owed")


def test_the_deadline_can_be_set():
    assert run(INBOUND, Received("p", NOW, deadline_ms=1))[0].deadline == NOW + 1


# -- the catalogue ------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(list(INBOUND.alphabet(INBOUND.initial))), max_size=20))
def test_reply_at_most_once(inputs: list[Any]):
    book: Book[Any] = Book()
    ends: list[Phase] = []
    for input_ in inputs:
        try:
            book, effects = write(INBOUND, book, "id", input_)
        except GuardRejected:
            continue
        ends += [effect.phase for effect in effects if effect.phase is not Phase.RECEIVED]
    assert len(ends) == len(book.finished) <= 1


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_a_repeated_request_after_its_reply_is_accepted_as_new():
    book: Book[Any] = Book()
    for input_ in (Received("p", NOW), Replied("p")):
        book, _ = write(INBOUND, book, "id", input_)
    with pytest.raises(GuardRejected) as caught:
        write(INBOUND, book, "id", Received("p", NOW))
    assert caught.value.guards == ("id_unseen",)


def test_wrong_a_restart_forgets_what_is_owed():
    assert load(INBOUND, dump(RECEIVED)) == RECEIVED


def test_wrong_a_reply_to_a_different_peer_is_not_detected():
    assert_refused(INBOUND, RECEIVED, Replied("q"), "to_is_peer")


@pytest.mark.parametrize("state", [RECEIVED._replace(peer=None), Inbound(peer="p")])
def test_invariants(state: Inbound):
    assert_breaks(INBOUND, state, "a peer exactly once it was received")
