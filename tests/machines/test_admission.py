"""From "something arrived" to "this goes into the next turn": `machines.md` §8.2–8.6."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machines.admission import (
    COALESCING,
    Arrival,
    Deduplicated,
    Durability,
    Flags,
    Item,
    Kind,
    Lane,
    Origin,
    Policy,
    Reason,
    Refused,
    Signal,
    Wake,
    admission_signal,
    admit,
    at_boundary,
    drives,
    flags,
    merged_metadata,
    policy,
    refusal,
    select_batch,
    strongest,
    supersession_scope,
)
from holdfast.machines.spine import Phase

Q, S = Lane.QUEUE, Lane.STEER
NO, WAKE, INTERRUPT = Wake.NONE, Wake.IF_IDLE, Wake.INTERRUPT
PROMPT = Arrival(Kind.PROMPT, Origin.OPERATOR)


# -- may it come in? -------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [Phase.STOPPED, Phase.DESTROYED])
def test_nothing_comes_into_a_session_that_is_over(session: Phase):
    assert refusal(PROMPT, session) == Refused(Reason.NOT_READY, session.value)


@pytest.mark.parametrize("session", [Phase.IDLE, Phase.RUNNING])
def test_everything_durable_may_come_in(session: Phase):
    for kind, origin in product(Kind, Origin):
        assert refusal(Arrival(kind, origin), session) is None


def test_what_may_be_derived():
    """Nothing from outside, and from inside only what can be made again."""
    allowed = {
        (kind, origin)
        for kind, origin in product(Kind, Origin)
        if refusal(Arrival(kind, origin, Durability.DERIVED), Phase.IDLE) is None
    }
    kinds = {
        Kind.PEER_RESPONSE_PROGRESS,
        Kind.EXTERNAL_EVENT,
        Kind.CONTINUATION,
        Kind.OPERATION,
    }
    assert allowed == set(product(kinds, {Origin.FLOW, Origin.SYSTEM}))
    refused = refusal(PROMPT._replace(durability=Durability.DERIVED), Phase.IDLE)
    assert refused == Refused(Reason.DURABILITY_VIOLATION, "Prompt can't be derived")


def test_progress_carries_no_mode():
    progress = Arrival(Kind.PEER_RESPONSE_PROGRESS, Origin.PEER, Durability.EPHEMERAL, S)
    refused = refusal(progress, Phase.RUNNING)
    assert refused is not None
    assert refused.reason is Reason.PEER_HANDLING_MODE_INVALID
    assert refused.detail == "handling_mode is forbidden on accepted peer responses"
    assert refusal(progress._replace(mode=None), Phase.RUNNING) is None
    for kind in set(Kind) - {Kind.PEER_RESPONSE_PROGRESS}:
        assert refusal(Arrival(kind, Origin.PEER, mode=Q), Phase.RUNNING) is None


def test_a_terminal_response_must_be_whole():
    fault = "correlation id cannot be empty"
    terminal = Arrival(Kind.PEER_RESPONSE_TERMINAL, Origin.PEER, terminal_fault=fault)
    assert refusal(terminal, Phase.IDLE) == Refused(Reason.PEER_RESPONSE_TERMINAL_INVALID, fault)
    assert refusal(terminal._replace(kind=Kind.PEER_MESSAGE), Phase.IDLE) is None


def test_the_same_idempotency_key_is_one_input():
    keyed = PROMPT._replace(idempotency_key="k")
    known: dict[str, str] = {}
    made = 0
    for _ in range(3):
        answer = admit(keyed, Phase.IDLE, known)
        if answer is None:
            made += 1
            known["k"] = "input-1"
        else:
            assert answer == Deduplicated("input-1")
    assert made == 1
    assert admit(PROMPT, Phase.IDLE, known) is None
    assert admit(keyed._replace(idempotency_key="other"), Phase.IDLE, known) is None
    assert admit(keyed, Phase.STOPPED, known) == Refused(Reason.NOT_READY, "Stopped")


def test_inputs_of_one_scope_replace_each_other():
    assert supersession_scope("r", Kind.PROMPT, None) is None
    scopes = {
        supersession_scope(r, k, s)
        for r in "rq"
        for k in (Kind.PROMPT, Kind.FLOW_STEP)
        for s in "st"
    }
    assert len(scopes) == 8


def test_only_events_and_progress_coalesce():
    assert {Kind.EXTERNAL_EVENT, Kind.PEER_RESPONSE_PROGRESS} == COALESCING


# -- how is it treated? ----------------------------------------------------------------------------------

TABLE = {
    Kind.PROMPT: (Q, WAKE, NO, "run_complete", True),
    Kind.FLOW_STEP: (Q, WAKE, NO, "run_complete", True),
    Kind.EXTERNAL_EVENT: (Q, WAKE, NO, "run_complete", True),
    Kind.PEER_MESSAGE: (Q, WAKE, INTERRUPT, "run_complete", True),
    Kind.PEER_REQUEST: (Q, WAKE, INTERRUPT, "run_complete", True),
    Kind.PEER_RESPONSE_PROGRESS: (S, NO, NO, "run_complete", True),
    Kind.PEER_RESPONSE_TERMINAL: (Q, WAKE, WAKE, "run_complete", True),
    Kind.CONTINUATION: (S, WAKE, INTERRUPT, "run_complete", False),
    Kind.OPERATION: (None, NO, NO, "accept", False),
}


def test_the_nine_rows():
    assert len(TABLE) == len(Kind) == 9
    for kind, (lane, idle, running, consumed, visible) in TABLE.items():
        assert policy(kind, idle=True) == Policy(lane, idle, consumed, visible)
        assert policy(kind, idle=False) == Policy(lane, running, consumed, visible)


@pytest.mark.parametrize(
    "kind", [k for k in Kind if k not in (Kind.PEER_RESPONSE_PROGRESS, Kind.OPERATION)]
)
def test_an_explicit_mode_decides_lane_and_wake(kind: Kind):
    visible = TABLE[kind][4]
    assert policy(kind, idle=True, mode=Q) == Policy(Q, WAKE, visible=visible)
    assert policy(kind, idle=False, mode=Q) == Policy(Q, NO, visible=visible)
    assert policy(kind, idle=True, mode=S) == Policy(S, WAKE, visible=visible)
    assert policy(kind, idle=False, mode=S) == Policy(S, INTERRUPT, visible=visible)


@pytest.mark.parametrize("kind", [Kind.PEER_RESPONSE_PROGRESS, Kind.OPERATION])
@pytest.mark.parametrize("mode", Lane)
def test_a_mode_does_not_apply_to_progress_and_operations(kind: Kind, mode: Lane):
    for idle in (True, False):
        assert policy(kind, idle=idle, mode=mode) == policy(kind, idle=idle)
        assert flags(kind, idle=idle, mode=mode) == Flags()


def test_a_silent_request_waits_as_context_and_never_wakes():
    for idle, mode in product((True, False), (None, *Lane)):
        silent = policy(Kind.PEER_REQUEST, idle=idle, mode=mode, silent=True)
        assert silent == Policy(Q, NO)
        assert flags(Kind.PEER_REQUEST, idle=idle, mode=mode, silent=True) == Flags()
    assert not drives(Kind.PEER_REQUEST, silent=True)
    # Only requests have an intent that can be silent.
    assert policy(Kind.PROMPT, idle=True, silent=True).wake is WAKE


def test_what_may_start_a_turn():
    assert {kind for kind in Kind if not drives(kind)} == {
        Kind.PEER_RESPONSE_PROGRESS,
        Kind.OPERATION,
    }
    assert drives(Kind.PROMPT, mode=Q)


# -- who must be nudged? ---------------------------------------------------------------------------------

BOTH = Refused(Reason.CONTRADICTORY_FLAGS, "immediate and interrupt")
NOBODY = Refused(Reason.NOTHING_TO_INTERRUPT)


@pytest.mark.parametrize(
    ("session", "immediate", "interrupt", "wake", "signal"),
    [
        (Phase.IDLE, False, False, False, Signal.NONE),
        (Phase.IDLE, False, False, True, Signal.WAKE_LOOP),
        (Phase.IDLE, True, False, False, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Phase.IDLE, True, False, True, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Phase.IDLE, False, True, False, NOBODY),
        (Phase.IDLE, False, True, True, NOBODY),
        (Phase.IDLE, True, True, False, BOTH),
        (Phase.IDLE, True, True, True, BOTH),
        (Phase.RUNNING, False, False, False, Signal.NONE),
        (Phase.RUNNING, False, False, True, Signal.WAKE_LOOP),
        (Phase.RUNNING, True, False, False, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Phase.RUNNING, True, False, True, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Phase.RUNNING, False, True, False, Signal.INTERRUPT_YIELDING),
        (Phase.RUNNING, False, True, True, Signal.INTERRUPT_YIELDING),
        (Phase.RUNNING, True, True, False, BOTH),
        (Phase.RUNNING, True, True, True, BOTH),
    ],
)
def test_the_signal_table(
    session: Phase, immediate: bool, interrupt: bool, wake: bool, signal: Any
):
    assert admission_signal(session, Flags(immediate, interrupt, wake)) == signal


@pytest.mark.parametrize("session", [Phase.STOPPED, Phase.DESTROYED])
def test_no_accept_in_a_session_that_is_over(session: Phase):
    for asked in product((False, True), repeat=3):
        refused = admission_signal(session, Flags(*asked))
        assert refused == Refused(Reason.NOT_READY, session.value)


def test_the_flags_of_a_policy_never_contradict():
    for kind, idle, mode, silent in product(Kind, (True, False), (None, *Lane), (True, False)):
        asked = flags(kind, idle=idle, mode=mode, silent=silent)
        session = Phase.IDLE if idle else Phase.RUNNING
        assert sum(asked) <= 1
        assert isinstance(admission_signal(session, asked), Signal)


@pytest.mark.parametrize(
    ("kind", "idle", "mode", "signal"),
    [
        (Kind.PROMPT, True, None, Signal.WAKE_LOOP),
        (Kind.PROMPT, False, None, Signal.NONE),
        (Kind.PROMPT, False, S, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Kind.PROMPT, True, S, Signal.REQUEST_IMMEDIATE_PROCESSING),
        (Kind.PEER_MESSAGE, False, None, Signal.INTERRUPT_YIELDING),
        (Kind.PEER_RESPONSE_TERMINAL, False, None, Signal.WAKE_LOOP),
        (Kind.PEER_RESPONSE_PROGRESS, True, None, Signal.NONE),
    ],
)
def test_from_kind_to_signal(kind: Kind, idle: bool, mode: Lane | None, signal: Signal):
    session = Phase.IDLE if idle else Phase.RUNNING
    assert admission_signal(session, flags(kind, idle=idle, mode=mode)) is signal


def test_the_strongest_signal_of_a_batch_wins():
    names = [signal.name for signal in sorted(Signal)]
    assert names == ["NONE", "WAKE_LOOP", "INTERRUPT_YIELDING", "REQUEST_IMMEDIATE_PROCESSING"]
    assert strongest([]) is Signal.NONE
    assert strongest([Signal.WAKE_LOOP, Signal.NONE, Signal.INTERRUPT_YIELDING]) == 2
    assert [signal.wakes for signal in Signal] == [False, True, True, True]


# -- what goes into one turn? ----------------------------------------------------------------------------


def item(name: str, kind: Kind = Kind.PEER_MESSAGE, lane: Lane = Q, **more: Any) -> Item:
    return Item(name, kind, lane, more.pop("drives", True), tuple(more.items()))


def ids(*waiting: Item, in_turn: bool = False) -> str:
    return "".join(one.input_id for one in select_batch(waiting, in_turn=in_turn))


def test_steering_comes_first_and_in_order():
    assert ids(item("a"), item("b", lane=S), item("c"), item("d", lane=S)) == "bd"


def test_nothing_drives_nothing_runs():
    assert ids() == ""
    assert ids(item("a", drives=False), item("b", drives=False)) == ""
    assert ids(item("a", drives=False), item("b")) == "ab"


def test_steering_that_does_not_drive_joins_what_runs():
    assert ids(item("a", Kind.PEER_RESPONSE_PROGRESS, S, drives=False), in_turn=True) == "a"


def test_a_prompt_ends_the_batch():
    assert ids(item("a", Kind.PROMPT), item("b")) == "a"
    assert ids(item("a", Kind.PROMPT), item("b", Kind.PROMPT)) == "a"


def test_a_batch_not_driven_by_a_prompt_stops_before_one():
    assert ids(item("a"), item("b", Kind.PROMPT)) == "a"
    assert ids(item("a", drives=False), item("b", Kind.PROMPT), item("c")) == "ab"


def test_unlike_items_do_not_share_a_batch():
    assert ids(item("a"), item("b", Kind.PEER_RESPONSE_TERMINAL), item("c")) == "a"
    assert ids(item("a"), item("b", Kind.CONTINUATION), item("c")) == "a"
    assert (
        ids(item("a", lane=S), item("b", Kind.PEER_RESPONSE_TERMINAL, S), item("c", lane=S)) == "a"
    )
    assert ids(item("a", Kind.CONTINUATION), item("b", Kind.CONTINUATION), item("c")) == "ab"


def test_what_opens_a_turn_does_not_join_one():
    terminal = item("a", Kind.PEER_RESPONSE_TERMINAL, S)
    assert ids(terminal, in_turn=True) == ""
    assert ids(terminal) == "a"
    assert ids(item("a"), in_turn=True) == ""
    assert ids(item("a"), item("b", lane=S), in_turn=True) == "b"


def test_settings_of_a_batch_agree():
    batch = select_batch([item("a", model="x"), item("b", effort="high"), item("c", model="y")])
    assert [one.input_id for one in batch] == ["a", "b"]
    assert merged_metadata(batch) == {"model": "x", "effort": "high"}


ITEMS = st.lists(
    st.builds(
        Item,
        st.uuids().map(str),
        st.sampled_from(Kind),
        st.sampled_from(Lane),
        st.booleans(),
        st.sampled_from([(), (("model", "x"),), (("model", "y"),), (("effort", "low"),)]),
    ),
    max_size=12,
)


@given(ITEMS, st.booleans())
def test_a_batch_is_a_prefix_of_its_lane_with_at_most_one_prompt(waiting: Any, in_turn: bool):
    batch = select_batch(waiting, in_turn=in_turn)
    lanes = {one.lane for one in batch}
    assert len(lanes) <= 1
    for lane in lanes:
        assert list(batch) == [one for one in waiting if one.lane is lane][: len(batch)]
    assert sum(one.kind is Kind.PROMPT for one in batch) <= 1
    if any(one.lane is S for one in waiting):
        assert S in lanes or in_turn
        assert Q not in lanes
    for name, value in merged_metadata(batch).items():
        assert all(dict(one.metadata).get(name, value) == value for one in batch)


@given(ITEMS)
def test_every_input_is_taken_in_the_end_and_in_order(waiting: list[Item]):
    """Taking batch after batch empties both lanes, up to what nothing drives."""
    left, taken = list(waiting), []
    while batch := select_batch(left):
        taken += batch
        left = left[:0] + [one for one in left if one not in batch]
    assert all(one.lane is Q and not one.drives for one in left)
    for lane in Lane:
        order = [one for one in taken if one.lane is lane]
        assert order == [one for one in waiting if one in order]


# -- what was wrong, §8.3 and §8.6 -------------------------------------------------------------------------


def test_wrong_an_explicit_queue_is_taken_for_no_mode():
    """A queued peer message must not interrupt a running turn."""
    assert flags(Kind.PEER_MESSAGE, idle=False, mode=Q) == Flags()


def test_wrong_an_unlike_item_ahead_makes_the_lane_stand_still():
    assert ids(item("a", Kind.CONTINUATION, drives=False), item("b")) == "a"


def test_wrong_a_conflict_of_settings_rejects_the_whole_batch():
    assert ids(item("a", model="x"), item("b", model="y")) == "a"


def test_wrong_steering_never_enters_the_running_turn():
    assert at_boundary(answered=True, steering=False) == "complete"
    assert at_boundary(answered=True, steering=True) == "continue"
    assert at_boundary(answered=False, steering=False) == "continue"


def test_wrong_accepting_a_peer_message_cancels_the_running_turn():
    """It nudges a turn that yields, and that is all it does: the answer is one signal."""
    asked = flags(Kind.PEER_MESSAGE, idle=False)
    assert admission_signal(Phase.RUNNING, asked) is Signal.INTERRUPT_YIELDING


def test_wrong_an_idle_session_is_woken_by_what_does_not_ask_for_it():
    asked = flags(Kind.PEER_RESPONSE_PROGRESS, idle=True)
    assert admission_signal(Phase.IDLE, asked) is Signal.NONE
