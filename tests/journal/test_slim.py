"""Stored bytes are few, say all that was handed in, and can't be changed unnoticed."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts import ApprovalRequest, Body, Draft, SideEffect, canonical_json
from holdfast.contracts.canonical import json_string
from holdfast.journal._slim import WORTH, slim, whole
from holdfast.journal._squeeze import squeezed, unsqueezed
from holdfast.journal.chain import encode
from holdfast.testing._drafts import STORY

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
# Words that the places of a body are found by, where they do not belong.
misleading = st.sampled_from(
    [',"pos":1', '"seq":', ',"time":1,"v":1}', ',"privacy":"', "\x00", "\\"]
)
words = text | misleading
payloads = st.dictionaries(
    words | st.sampled_from(["pos", "prev", "privacy", "seq", "stream", "time", "v"]),
    st.recursive(
        st.none() | st.integers() | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=5,
)
names = ids | st.sampled_from([',"pos":1', '"seq":', ',"time":1', ',"privacy":"'])


@given(
    payload=payloads,
    more=st.sampled_from(["", "x" * WORTH]),  # squeezed, or not worth it
    stream=names,
    run_id=names,
    turn_id=st.none() | names,
    actor=names,
)
def test_a_slim_body_is_made_whole_again(
    payload: dict[str, Any], more: str, stream: str, run_id: str, turn_id: str | None, actor: str
):
    payload = {**payload, "more": more}
    draft = Draft(kind="a.b", payload=payload, run_id=run_id, turn_id=turn_id, actor=actor)
    entry, name, prev = encode(draft), json_string(stream), "ab" * 32
    body = entry.body(7, prev, 12, name, 1234)
    assert body == canonical_json(json.loads(body))
    kept = slim(entry.cut(1234))
    assert whole(kept, 12, name, 7, prev) == body
    assert body not in (
        whole(kept, 13, name, 7, prev),
        whole(kept, 12, json_string(stream + "x"), 7, prev),
        whole(kept, 12, name, 8, prev),
        whole(kept, 12, name, 7, "cd" * 32),
    )


@pytest.mark.parametrize("draft", STORY, ids=lambda draft: draft.kind)
def test_what_is_encoded_fast_is_canonical(draft: Draft):
    body = Body.of(b"{}", role="result", mime="application/json")
    draft = draft.model_copy(update={"bodies": (body,), "cause": 3, "turn_id": "t"})
    stored = encode(draft).body(1, "0" * 64, 1, '"s"', 1)
    assert stored == canonical_json(json.loads(stored))
    assert json.loads(stored)["payload"] == draft.payload


def test_numbers_in_a_form_are_spelled_as_ever():
    form = {"type": "object", "properties": {"n": {"type": "number", "maximum": 1e-7}}}
    asks = ApprovalRequest(
        id="a",
        effect_id="e",
        tool="tool",
        arguments="ab" * 32,
        side_effect=SideEffect.WRITE,
        summary="May it?",
        form=form,
    )
    stored = encode(Draft.of(asks)).body(1, "0" * 64, 1, '"s"', 1)
    assert b'"maximum":1e-07' in stored
    assert stored == canonical_json(json.loads(stored))


@given(st.binary(max_size=3000))
@example(b"")
@example(b"{}" * 50_000)
def test_what_was_squeezed_comes_back(data: bytes):
    assert unsqueezed(squeezed(data)) == data


@given(st.binary(max_size=200) | payloads.map(canonical_json), st.data())
def test_no_bit_of_it_can_be_changed(data: bytes, draw: st.DataObject):
    stored = bytearray(squeezed(data))
    at = draw.draw(st.integers(0, len(stored) * 8 - 1))
    stored[at // 8] ^= 1 << (at % 8)
    assert unsqueezed(bytes(stored)) is None
    assert unsqueezed(bytes(stored[:-1])) is None


@given(st.binary(max_size=60))
def test_what_is_no_squeezed_data_is_nothing(data: bytes):
    assert unsqueezed(data) is None
    for stored in (data, b"\x01" + data, b"\x02" + data.replace(b"\0", b"")):
        assert whole(stored, 1, "s", 1, "0" * 64) == stored


def test_what_was_squeezed_once_can_be_read_for_ever():
    """The dictionary is part of the file format: with another, no journal could be read."""
    stored = "f36907c92045a50000087d067c006f68d032ec8ab7ff165af386bd5904"
    said = {"effect_id": "eff_1", "kind": "tool_execution", "side_effect": "network"}
    assert unsqueezed(bytes.fromhex(stored)) == canonical_json(said)
