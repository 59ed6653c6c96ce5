"""What an incoming item is: `machines.md` §7.3, repaired as §7.7 says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machines import texts
from holdfast.machines.ingress import (
    INBOX_SIZE,
    Ack,
    Class,
    Classification,
    Dismiss,
    Drop,
    Envelope,
    Kind,
    Lifecycle,
    LifecycleKind,
    Message,
    PlainEvent,
    Request,
    Response,
    ResponseStatus,
    Supervisor,
    Terminality,
    classify,
    is_acknowledged,
    refusal,
)

SILENT = frozenset({"hush"})


def from_peer(kind: Kind) -> Envelope:
    return Envelope("item", "ana", "peer-id", kind)


def text_of(intent: str, params: Any = None) -> str:
    return texts.request("peer-id", "item", intent, params, "ana")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Message("hi"), Classification(Class.ACTIONABLE_MESSAGE, "[COMMS MESSAGE from ana]\nhi")),
        (
            Request("review", {"a": 1}),
            Classification(
                Class.ACTIONABLE_REQUEST, text_of("review", {"a": 1}), request_id="item"
            ),
        ),
        (
            Request("hush", None),
            Classification(Class.SILENT_REQUEST, text_of("hush"), request_id="item"),
        ),
        (
            Lifecycle(LifecycleKind.PEER_ADDED, {"peer": "bob"}),
            Classification(Class.PEER_ADDED, "", lifecycle_peer="bob"),
        ),
        (
            Lifecycle(LifecycleKind.PEER_RETIRED, {"peer": ""}),
            Classification(Class.PEER_RETIRED, "", lifecycle_peer="ana"),
        ),
        (
            Lifecycle(LifecycleKind.PEER_UNWIRED, {"peer": 7}),
            Classification(Class.PEER_UNWIRED, "", lifecycle_peer="ana"),
        ),
        (
            Lifecycle(LifecycleKind.PEER_ADDED, None),
            Classification(Class.PEER_ADDED, "", lifecycle_peer="ana"),
        ),
        (
            Supervisor("pause", None),
            Classification(Class.SUPERVISOR_COMMAND, "", request_id="item"),
        ),
        (Dismiss(), Classification(Class.DISMISS, "")),
        (
            Response("req", ResponseStatus.ACCEPTED, None),
            Classification(
                Class.RESPONSE_PROGRESS,
                "[COMMS RESPONSE from ana (to request: req)]\nStatus: accepted",
                request_id="req",
                terminality=Terminality.PROGRESS,
            ),
        ),
        (
            Response("req", ResponseStatus.COMPLETED, {"a": 1}),
            Classification(
                Class.RESPONSE_TERMINAL,
                "[COMMS RESPONSE from ana (to request: req)]\nStatus: completed\n"
                'Result: {\n  "a": 1\n}',
                request_id="req",
                terminality=Terminality.COMPLETED,
            ),
        ),
        (
            Response("req", ResponseStatus.FAILED, {}),
            Classification(
                Class.RESPONSE_TERMINAL,
                "[COMMS RESPONSE from ana (to request: req)]\nStatus: failed",
                request_id="req",
                terminality=Terminality.FAILED,
            ),
        ),
        (
            Ack("req"),
            Classification(Class.ACK, "[COMMS ACK from ana (to request: req)]", request_id="req"),
        ),
    ],
)
def test_the_exact_table(kind: Kind, expected: Classification):
    found = classify(from_peer(kind), SILENT)
    assert found == expected
    assert found.auth_required


def test_a_plain_event():
    found = classify(PlainEvent("webhook", " hi "))
    assert found == Classification(Class.PLAIN_EVENT, "[EVENT via webhook] hi", auth_required=False)


def test_what_wakes_and_what_a_model_reads():
    wakes = {class_ for class_ in Class if Classification(class_, "").wakes}
    assert wakes == {
        Class.ACTIONABLE_MESSAGE,
        Class.ACTIONABLE_REQUEST,
        Class.RESPONSE_PROGRESS,
        Class.RESPONSE_TERMINAL,
        Class.PLAIN_EVENT,
    }
    read = {class_ for class_ in Class if Classification(class_, "").for_model}
    assert read == wakes | {Class.SILENT_REQUEST}


def test_payloads_are_fenced_on_request():
    fence = texts.Fence(max_bytes=8)
    asked = classify(from_peer(Request("review", {"a": 1})), fence=fence)
    assert "Params (untrusted peer content):" in asked.text
    said = classify(from_peer(Response("req", ResponseStatus.FAILED, {"a": 1})), fence=fence)
    assert "[cut after 8 of 12 bytes" in said.text


# -- the catalogue ------------------------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["peer", "x"]), inner)
    ),
    max_leaves=4,
)
words = st.text(max_size=8)
kinds: st.SearchStrategy[Kind] = st.one_of(
    st.builds(Message, words),
    st.builds(Request, st.sampled_from(["hush", "mob.peer_added", "review"]), json_values),
    st.builds(Response, words, st.sampled_from(ResponseStatus), json_values),
    st.builds(Lifecycle, st.sampled_from(LifecycleKind), json_values),
    st.builds(Supervisor, words, json_values),
    st.just(Dismiss()),
    st.builds(Ack, words),
)
items = st.one_of(
    st.builds(Envelope, words, words, words, kinds), st.builds(PlainEvent, words, words)
)


@given(items, st.sampled_from([frozenset[str](), SILENT]))
def test_total_over_facts(item: Envelope | PlainEvent, silent: frozenset[str]):
    found = classify(item, silent)
    assert found.auth_required == isinstance(item, Envelope)
    assert (found.terminality is not None) == (
        found.class_ in (Class.RESPONSE_PROGRESS, Class.RESPONSE_TERMINAL)
    )


@given(items)
def test_unknown_sender_and_auth_required_is_not_queued(item: Envelope | PlainEvent):
    found = classify(item)
    refused = refusal(found, trusted=False, dismissable=True)
    assert refused is (Drop.UNTRUSTED_SENDER if isinstance(item, Envelope) else None)
    assert refusal(found, trusted=True, dismissable=True) is None
    assert refusal(found, trusted=False, authenticate=False, dismissable=True) is None


@pytest.mark.parametrize(
    "kind",
    [*(Lifecycle(kind, None) for kind in LifecycleKind), Ack("req"), Supervisor("x", 1), Dismiss()],
)
def test_lifecycle_and_ack_never_reach_the_model(kind: Kind):
    found = classify(from_peer(kind))
    assert not found.for_model
    assert not found.wakes


def test_why_an_item_is_not_let_in():
    found = classify(from_peer(Message("hi")))
    assert refusal(found, trusted=True, closed=True) is Drop.SESSION_CLOSED
    assert refusal(found, trusted=False, queued=INBOX_SIZE) is Drop.UNTRUSTED_SENDER
    assert refusal(found, trusted=True, queued=INBOX_SIZE) is Drop.INBOX_FULL
    assert refusal(found, trusted=True, queued=INBOX_SIZE - 1) is None


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_the_supervisor_is_exempt_from_authentication():
    found = classify(from_peer(Request("supervisor.bridge", None)))
    assert found.class_ is Class.ACTIONABLE_REQUEST
    for kind in (Request("supervisor.bridge", None), Supervisor("pause", None)):
        assert refusal(classify(from_peer(kind)), trusted=False) is Drop.UNTRUSTED_SENDER


@pytest.mark.parametrize("intent", [kind.value for kind in LifecycleKind])
def test_wrong_lifecycle_is_a_magic_intent(intent: str):
    found = classify(from_peer(Request(intent, {"peer": "bob"})))
    assert found.class_ is Class.ACTIONABLE_REQUEST
    assert found.lifecycle_peer is None


def test_wrong_any_peer_that_says_dismiss_stops_the_host():
    assert classify(from_peer(Message(" dismiss "))).class_ is Class.ACTIONABLE_MESSAGE
    typed = classify(from_peer(Dismiss()))
    assert refusal(typed, trusted=True) is Drop.CLASSIFICATION_REJECTED
    assert refusal(typed, trusted=True, dismissable=True) is None


def test_wrong_an_idle_session_drops_its_mail():
    # There is no phase to be in: whatever comes is classified and, unless the session is gone, let in.
    found = classify(from_peer(Message("hi")))
    assert refusal(found, trusted=True, closed=False) is None


def test_wrong_lifecycle_notices_are_never_acknowledged():
    kinds: list[Kind] = [
        Message("hi"),
        Request("review", None),
        Response("req", ResponseStatus.COMPLETED, None),
        Lifecycle(LifecycleKind.PEER_ADDED, None),
        Supervisor("pause", None),
        Dismiss(),
    ]
    assert all(is_acknowledged(kind) for kind in kinds)
    assert not is_acknowledged(Ack("req"))


def test_wrong_trust_is_taken_from_classification_time():
    # Classification knows nothing about trust; whoever queues the item asks at that moment.
    found = classify(from_peer(Message("hi")))
    assert [refusal(found, trusted=trusted) for trusted in (True, False)] == [
        None,
        Drop.UNTRUSTED_SENDER,
    ]
