"""What is stored is canonical JSON, whatever was handed in, and says what was handed in."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import Body, Draft, Privacy, Retention, canonical_json, digest
from holdfast.errors import HoldfastError
from holdfast.journal import ChainCheck, MemoryJournal
from holdfast.testing import FakeClock

text = st.text(max_size=15)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=15)
payloads = st.dictionaries(
    text,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)
bodies = st.builds(
    Body.of,
    st.binary(max_size=50),
    role=st.none() | ids,
    mime=text,
    privacy=st.sampled_from(Privacy),
    retention=st.sampled_from(Retention),
)
drafts = st.fixed_dictionaries(
    {
        "kind": st.just("test.any")
        | st.from_regex(r"[a-z][a-z0-9_]{0,5}\.[a-z]{1,5}", fullmatch=True),
        "payload": payloads,
    },
    optional={
        "run_id": ids,
        "turn_id": ids,
        "effect_id": ids,
        "actor": ids,
        "cause": st.integers(1, 1 << 62),
        "privacy": st.sampled_from(Privacy),
        "bodies": st.lists(bodies, max_size=3).map(tuple),
    },
)


@settings(max_examples=50)
@given(st.lists(st.tuples(ids, st.lists(drafts, min_size=1, max_size=3)), max_size=6))
async def test_stored_bytes_are_canonical(batches: list[tuple[str, list[dict[str, Any]]]]):
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    taken: list[tuple[str, dict[str, Any]]] = []
    for stream, batch in batches:
        try:
            await journal.append(stream, [Draft.model_validate(fields) for fields in batch])
            taken += [(stream, fields) for fields in batch]
        except HoldfastError as refusal:
            assert refusal.code == "PAYLOAD_NOT_JSON"  # noqa: PT017 - some are no JSON, most are
    stored = await journal.page(None, 0, 1000)
    assert len(stored) == len(taken)
    check = ChainCheck()
    for record, (stream, fields) in zip(stored, taken, strict=True):
        assert not check.add(record)
        said = json.loads(record.body)
        assert record.body == canonical_json(said)
        assert record.hash == digest(record.body)
        assert said["stream"] == record.stream == stream
        for name, value in fields.items():
            if name != "bodies":
                assert said[name] == value
        refs = [body.ref.model_dump(mode="json") for body in fields.get("bodies", ())]
        assert said.get("content", []) == refs
        optional = {"run_id", "turn_id", "effect_id", "cause"} & fields.keys()
        always = {
            "actor",
            "kind",
            "payload",
            "pos",
            "prev",
            "privacy",
            "seq",
            "stream",
            "time",
            "v",
        }
        assert said.keys() == always | optional | ({"content"} if refs else set())
    decoded = [record async for record in journal.read_all()]
    for record, (_, fields) in zip(decoded, taken, strict=True):
        assert record.known
        assert record.payload == fields["payload"]
        assert [ref.digest for ref in record.content] == [
            body.ref.digest for body in fields.get("bodies", ())
        ]
        for body in fields.get("bodies", ()):
            assert await journal.content(body.ref.digest) == body.data
