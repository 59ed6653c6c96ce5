"""A request to a peer with its stream: `machines.md` §11 and §14."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import (
    after,
    assert_breaks,
    assert_refused,
    assert_sound,
    run,
)

from holdfast.machines import GuardRejected
from holdfast.machines.book import Book, write
from holdfast.machines.codec import dump, load
from holdfast.machines.outbound import (
    BUFFER,
    DEADLINE_MS,
    OUTBOUND,
    RESERVATION_MS,
    Attach,
    Cancel,
    Cleanup,
    Deliver,
    Detach,
    Outbound,
    Outcome,
    Phase,
    Progress,
    Replay,
    Send,
    SendFailed,
    StateChanged,
    Stream,
    StreamTtl,
    Terminal,
    TimedOut,
)

NOW = 5_000
DEADLINE = NOW + DEADLINE_MS
CLAIM_BY = NOW + RESERVATION_MS
NEW = OUTBOUND.initial
SENT = after(OUTBOUND, Send("p", NOW, False))
RESERVED = after(OUTBOUND, Send("p", NOW, True))
ATTACHED = after(OUTBOUND, Attach(), state=RESERVED)
PROGRESS = after(OUTBOUND, Progress("p", "e"), state=SENT)
DONE_RESERVED = after(OUTBOUND, Terminal("p", True), state=RESERVED)
DONE_ATTACHED = after(OUTBOUND, Terminal("p", True), state=ATTACHED)
REMOVED = after(OUTBOUND, Terminal("p", True), state=SENT)

ENDINGS = [
    (Terminal("p", True), Outcome.COMPLETED),
    (Terminal("p", False), Outcome.FAILED),
    (SendFailed(), Outcome.SEND_FAILED),
    (TimedOut(DEADLINE), Outcome.TIMED_OUT),
    (Cancel(), Outcome.CANCELLED),
]


def test_sound():
    assert_sound(OUTBOUND)


@pytest.mark.parametrize("want_stream", [False, True])
def test_send(want_stream: bool):
    state, effects = run(OUTBOUND, Send("p", NOW, want_stream))
    stream = Stream.RESERVED if want_stream else Stream.NONE
    assert state == Outbound(Phase.SENT, "p", DEADLINE, None, stream, CLAIM_BY, BUFFER)
    assert effects == (StateChanged(Phase.SENT, None),)


@pytest.mark.parametrize("state", [SENT, PROGRESS, DONE_RESERVED, REMOVED])
def test_an_id_is_sent_once(state: Outbound):
    assert_refused(OUTBOUND, state, Send("p", NOW, False), "id_unseen")


@pytest.mark.parametrize("state", [SENT, PROGRESS])
def test_progress_may_repeat(state: Outbound):
    new, effects = run(OUTBOUND, Progress("p", "e"), state=state)
    assert new == state._replace(phase=Phase.PROGRESS)
    assert effects == (StateChanged(Phase.PROGRESS, None),)


@pytest.mark.parametrize(("ending", "outcome"), ENDINGS)
def test_without_a_reader_the_record_goes_with_its_outcome(ending: Any, outcome: Outcome):
    state, effects = run(OUTBOUND, ending, state=SENT)
    assert state == SENT._replace(phase=Phase.REMOVED, outcome=outcome)
    assert effects == (StateChanged(Phase.DONE, outcome), Cleanup())


@pytest.mark.parametrize(("ending", "outcome"), ENDINGS)
def test_with_a_reader_the_record_stays_until_the_reader_is_done(ending: Any, outcome: Outcome):
    for state, leave in ((RESERVED, StreamTtl(CLAIM_BY)), (ATTACHED, Detach())):
        done, effects = run(OUTBOUND, ending, state=state)
        assert done == state._replace(phase=Phase.DONE, outcome=outcome)
        assert effects == (StateChanged(Phase.DONE, outcome),)
        gone, effects = run(OUTBOUND, leave, state=done)
        assert gone == done._replace(phase=Phase.REMOVED, stream=Stream.CLOSED)
        assert effects == (Cleanup(),)


@pytest.mark.parametrize("ending", [ending for ending, _ in ENDINGS])
@pytest.mark.parametrize("state", [NEW, DONE_RESERVED, DONE_ATTACHED, REMOVED])
def test_what_is_not_waiting_takes_no_answer(state: Outbound, ending: Any):
    guards = ["nothing_came_back" if isinstance(ending, SendFailed) else "unanswered"]
    if state is NEW and isinstance(ending, Terminal):
        guards.append("from_is_peer")
    assert_refused(OUTBOUND, state, ending, *guards)
    if state is not NEW:
        assert_refused(OUTBOUND, state, Progress("p", "e"), "unanswered")


def test_what_came_back_was_sent():
    assert_refused(OUTBOUND, PROGRESS, SendFailed(), "nothing_came_back")


@pytest.mark.parametrize("state", [SENT, PROGRESS])
def test_the_deadline_is_kept(state: Outbound):
    assert_refused(OUTBOUND, state, TimedOut(DEADLINE - 1), "deadline_passed")
    assert after(OUTBOUND, TimedOut(DEADLINE), state=state).outcome is Outcome.TIMED_OUT


def test_limits_can_be_set():
    state = after(OUTBOUND, Send("p", NOW, True, deadline_ms=2, reservation_ms=1, capacity=3))
    assert (state.deadline, state.reserved_until, state.capacity) == (NOW + 2, NOW + 1, 3)


# -- the stream ---------------------------------------------------------------------------------------


def test_events_wait_for_the_reader():
    waiting = after(OUTBOUND, Progress("p", "e1"), Progress("p", "e2"), state=RESERVED)
    state, effects = run(OUTBOUND, Attach(), state=waiting)
    assert effects == (Replay(("e1", "e2"), 0, None),)
    assert state == ATTACHED._replace(phase=Phase.PROGRESS)
    _, effects = run(OUTBOUND, Progress("p", "e3"), state=state)
    assert effects == (StateChanged(Phase.PROGRESS, None), Deliver("e3"))


def test_the_buffer_is_bounded_and_tells_what_is_missing():
    state = after(OUTBOUND, Send("p", NOW, True, capacity=2))
    state = after(OUTBOUND, *(Progress("p", f"e{n}") for n in range(5)), state=state)
    assert (state.buffer, state.dropped) == (("e3", "e4"), 3)
    _, effects = run(OUTBOUND, Attach(), state=state)
    assert effects == (Replay(("e3", "e4"), 3, None),)


def test_a_reader_that_comes_after_the_answer_gets_it():
    state = after(OUTBOUND, Progress("p", "e"), Terminal("p", False), state=RESERVED)
    state, effects = run(OUTBOUND, Attach(), state=state)
    assert effects == (Replay(("e",), 0, Outcome.FAILED),)
    assert state.phase is Phase.DONE


def test_a_stream_is_attached_once():
    assert_refused(OUTBOUND, ATTACHED, Attach(), "stream_reserved")
    assert_refused(OUTBOUND, SENT, Attach(), "stream_reserved")
    closed = after(OUTBOUND, StreamTtl(CLAIM_BY), state=RESERVED)
    assert_refused(OUTBOUND, closed, Attach(), "stream_reserved")


def test_a_stream_is_detached_once():
    closed = after(OUTBOUND, Detach(), state=ATTACHED)
    for state in (RESERVED, SENT, closed):
        assert_refused(OUTBOUND, state, Detach(), "stream_attached")


def test_a_reservation_runs_out_only_unclaimed_and_in_time():
    assert_refused(OUTBOUND, RESERVED, StreamTtl(CLAIM_BY - 1), "reservation_over")
    assert_refused(OUTBOUND, ATTACHED, StreamTtl(CLAIM_BY), "stream_reserved")
    waiting = after(OUTBOUND, Progress("p", "e"), state=RESERVED)
    state, effects = run(OUTBOUND, StreamTtl(CLAIM_BY), state=waiting)
    assert state == waiting._replace(stream=Stream.CLOSED, buffer=())
    assert effects == ()


def test_closing_the_stream_never_cancels_the_request():
    state = after(OUTBOUND, Detach(), state=ATTACHED)
    assert state == ATTACHED._replace(stream=Stream.CLOSED)
    assert after(OUTBOUND, Terminal("p", True), state=state).outcome is Outcome.COMPLETED


def test_events_after_the_reader_has_left_go_nowhere():
    state = after(OUTBOUND, Detach(), state=ATTACHED)
    new, effects = run(OUTBOUND, Progress("p", "e"), state=state)
    assert new.buffer == ()
    assert effects == (StateChanged(Phase.PROGRESS, None),)


# -- the catalogue ------------------------------------------------------------------------------------

inputs = st.lists(st.sampled_from(list(OUTBOUND.alphabet(NEW))), max_size=25)


@given(inputs)
def test_exactly_one_cleanup_per_id_and_outcome_immutable(inputs: list[Any]):
    state = after(OUTBOUND, Send("p", 0, True, capacity=1))
    cleanups, outcome = 0, None
    for input_ in inputs:
        try:
            state, effects = OUTBOUND.apply(state, input_)
        except GuardRejected:
            continue
        cleanups += effects.count(Cleanup())
        outcome = outcome or state.outcome
        assert state.outcome is outcome
        assert cleanups == (state.phase is Phase.REMOVED)


@pytest.mark.parametrize("state", [SENT, RESERVED, ATTACHED, PROGRESS])
def test_wrong_sender_reply_never_changes_state(state: Outbound):
    assert_refused(OUTBOUND, state, Terminal("q", True), "from_is_peer")
    assert_refused(OUTBOUND, state, Terminal("q", False), "from_is_peer")
    assert_refused(OUTBOUND, state, Progress("q", "e"), "from_is_peer")


endings = st.sampled_from([ending for ending, _ in ENDINGS])


@given(st.booleans(), endings, st.permutations([0, 1, 2, 3]), inputs)
def test_attach_complete_detach_ttl_in_any_order_leaves_no_record_behind(
    want_stream: bool, ending: Any, order: list[int], before: list[Any]
):
    """Whatever came before: once each of them was tried (and the reader left again), nothing is left."""
    each = [Attach(), ending, Detach(), StreamTtl(CLAIM_BY)]
    # A reader leaves some time; so does the deadline come.
    inputs = [*before, *(each[n] for n in order), Detach(), TimedOut(DEADLINE)]
    book: Book[Any] = write(OUTBOUND, Book(), "id", Send("p", NOW, want_stream)).book
    cleanups: Counter[Any] = Counter()
    for input_ in inputs:
        try:
            book, effects = write(OUTBOUND, book, "id", input_)
        except GuardRejected:
            continue
        cleanups.update(effects)
    assert dict(book.live) == {}
    assert list(book.finished) == ["id"]
    assert cleanups[Cleanup()] == 1


# -- the book -----------------------------------------------------------------------------------------


def test_the_book_remembers_the_last_finished_ids():
    book: Book[Any] = Book()
    for n in range(5):
        book, _ = write(OUTBOUND, book, f"id{n}", Send("p", NOW, False), keep=3)
        book, _ = write(OUTBOUND, book, f"id{n}", Cancel(), keep=3)
    assert list(book.finished) == ["id2", "id3", "id4"]
    for id_ in book.finished:
        assert_refused(OUTBOUND, book.get(id_, OUTBOUND), Send("p", NOW, False), "id_unseen")
    assert book.get("id0", OUTBOUND) == NEW


def test_the_book_keeps_records_apart():
    book: Book[Any] = Book()
    for id_ in ("a", "b"):
        book, _ = write(OUTBOUND, book, id_, Send(id_, NOW, False))
    book, _ = write(OUTBOUND, book, "a", Terminal("a", True))
    assert list(book.live) == ["b"]
    assert list(book.finished) == ["a"]
    with pytest.raises(GuardRejected):
        write(OUTBOUND, book, "b", Terminal("a", True))


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_a_response_from_any_peer_with_the_right_id_is_accepted():
    assert_refused(OUTBOUND, SENT, Terminal("q", True), "from_is_peer")


def test_wrong_a_terminal_response_with_an_unknown_id_is_injected():
    with pytest.raises(GuardRejected) as caught:
        write(OUTBOUND, Book(), "never sent", Terminal("p", True))
    assert "unanswered" in caught.value.guards


def test_wrong_no_request_timeout_exists():
    assert after(OUTBOUND, TimedOut(DEADLINE), state=SENT).phase is Phase.REMOVED


def test_wrong_a_restart_forgets_what_is_awaited():
    waiting = after(OUTBOUND, Progress("p", "e"), state=RESERVED)
    assert load(OUTBOUND, dump(waiting)) == waiting
    # What the timers need is in the record.
    assert (waiting.deadline, waiting.reserved_until) == (DEADLINE, CLAIM_BY)


def test_wrong_the_reaper_times_out_requests_whose_stream_is_attached():
    assert_refused(OUTBOUND, ATTACHED, StreamTtl(10**9), "stream_reserved")
    assert_refused(OUTBOUND, ATTACHED, TimedOut(CLAIM_BY), "deadline_passed")


def test_wrong_completion_while_reserved_is_refused_and_leaks():
    assert DONE_RESERVED.phase is Phase.DONE
    assert after(OUTBOUND, StreamTtl(CLAIM_BY), state=DONE_RESERVED).phase is Phase.REMOVED


def test_wrong_a_claim_that_comes_too_late_ends_the_request():
    late = after(OUTBOUND, StreamTtl(CLAIM_BY), state=RESERVED)
    assert_refused(OUTBOUND, late, Attach(), "stream_reserved")
    assert after(OUTBOUND, Terminal("p", True), state=late).outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (SENT._replace(outcome=Outcome.FAILED), "an outcome exactly when it is over"),
        (REMOVED._replace(outcome=None), "an outcome exactly when it is over"),
        (REMOVED._replace(phase=Phase.DONE), "Done is kept only for a reader"),
        (REMOVED._replace(stream=Stream.ATTACHED), "a removed record has no live stream"),
        (SENT._replace(peer=None), "a peer exactly once it was sent"),
        (NEW._replace(peer="p"), "a peer exactly once it was sent"),
        (NEW._replace(stream=Stream.RESERVED), "no stream before it was sent"),
        (SENT._replace(buffer=("e",)), "events wait only for a reservation"),
        (ATTACHED._replace(dropped=1), "events wait only for a reservation"),
        (RESERVED._replace(buffer=("e",), capacity=0), "the buffer is bounded"),
    ],
)
def test_invariants(state: Outbound, invariant: str):
    assert_breaks(OUTBOUND, state, invariant)
