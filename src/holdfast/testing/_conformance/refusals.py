"""Bad input: refused with a code, and without a trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import JsonValue

from holdfast.contracts import Body, ContentRef, Draft
from holdfast.contracts.record import MAX_PAYLOAD_BYTES
from holdfast.errors import CallerError
from holdfast.journal import Journal
from holdfast.testing._conformance._base import Conformance, leaves_no_trace, records_of, refused
from holdfast.testing._drafts import note


def deep(levels: int) -> dict[str, object]:
    """A payload nested that deep."""
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def cycle() -> dict[str, object]:
    """A payload that holds itself."""
    value: dict[str, object] = {}
    value["x"] = [value]
    return value


NOT_JSON: dict[str, Callable[[], dict[str, object]]] = {
    "nan": lambda: {"x": float("nan")},
    "infinity": lambda: {"x": [float("-inf")]},
    "bytes": lambda: {"x": b"bytes"},
    "object": lambda: {"x": object()},
    "set": lambda: {"x": {1, 2}},
    "int key": lambda: {"x": {1: 2}},
    "none key": lambda: {"x": {None: 2}},
    "lone surrogate": lambda: {"x": "\ud800"},
    "lone surrogate in a key": lambda: {"\udfff": 1},
    "cycle": cycle,
    "100k deep": lambda: deep(100_000),
    "900 deep": lambda: deep(900),
    "endless number": lambda: {"x": 10**5000},
}

BAD_IDS = ["", "a\x00b", "a\nb", "\x1b[31m", "\x7f", "\x85", "x" * 513, "ü" * 257, "\ud800"]

BAD_PAYLOADS: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "a field is missing": ("session_destroyed", {}),
    "a field is of another type": ("session_destroyed", {"reason": 7}),
    "a token nobody knows": (
        "session_created",
        {"language": "cobol", "limits": {}, "engine": "test/1"},
    ),
    "a number as text": ("usage_recorded", {"model": "m", "input_tokens": "7"}),
    "a number that is none": ("usage_recorded", {"model": "m", "input_tokens": True}),
    "a negative number": ("usage_recorded", {"model": "m", "cost_micros": -1}),
    "a number beyond all reason": ("usage_recorded", {"model": "m", "cost_micros": 10**400}),
    "an unknown that nobody can reconcile": (
        "effect_result",
        {"effect_id": "e", "terminal_status": "unknown", "redacted_summary": ""},
    ),
}


class Refusals(Conformance):
    """What may not get in."""

    @pytest.mark.parametrize(
        "kind", ["nothing", "Ns.name", "a.b.c", ".a", "a.", "a b.c", 'a."', ""]
    )
    async def test_an_unknown_kind_is_refused(self, journal: Journal, kind: str):
        await leaves_no_trace(
            journal, "INVALID_RECORD", journal.append("s", [note(), Draft(kind=kind)])
        )

    async def test_a_kind_of_your_own_is_accepted(self, journal: Journal):
        await journal.append(
            "s", [Draft(kind="my_app.thing2"), Draft(kind="a.b", payload={"x": 1})]
        )
        first, second = await records_of(journal)
        assert first.known
        assert second.known

    @pytest.mark.parametrize("case", BAD_PAYLOADS)
    async def test_a_payload_that_breaks_its_contract_is_refused(self, journal: Journal, case: str):
        kind, payload = BAD_PAYLOADS[case]
        bad = Draft(kind=kind, payload=payload)
        await leaves_no_trace(journal, "INVALID_RECORD", journal.append("s", [note(), bad]))

    @pytest.mark.parametrize("case", NOT_JSON)
    async def test_a_payload_that_is_not_json_is_refused(self, journal: Journal, case: str):
        payload = NOT_JSON[case]()

        async def append() -> None:
            draft = Draft.model_validate({"kind": "a.b", "payload": payload})
            await journal.append("s", [note(), draft])

        await leaves_no_trace(journal, "PAYLOAD_NOT_JSON", append())

    async def test_what_is_accepted_can_be_read_however_deep(self, journal: Journal):
        deepest, refusal = 0, ""
        for levels in (10, 50, 100, 150, 200, 230, 250, 260):
            try:
                draft = Draft.model_validate({"kind": "a.b", "payload": deep(levels)})
                await journal.append("s", [draft])
            except CallerError as why:
                refusal = why.code
                break
            deepest = levels
        assert deepest >= 50
        assert refusal in ("", "PAYLOAD_NOT_JSON")
        assert (await records_of(journal))[-1].payload == deep(deepest)
        assert (await journal.verify()).ok
        await journal.rebuild()

    async def test_a_record_over_the_limit_is_refused(self, journal: Journal):
        room = MAX_PAYLOAD_BYTES - len('{"n":""}')
        await journal.append("s", [note("x" * room)])
        await leaves_no_trace(
            journal, "RECORD_TOO_LARGE", journal.append("s", [note(), note("x" * (room + 1))])
        )
        await leaves_no_trace(
            journal, "RECORD_TOO_LARGE", journal.append("s", [note("ü" * (room // 2 + 1))])
        )

    async def test_references_count_towards_the_limit(self, journal: Journal):
        body = Body.of(b"body")
        await journal.append("s", [note(bodies=[body])])
        named = ContentRef(digest=body.ref.digest, size=4, mime="x" * MAX_PAYLOAD_BYTES)
        for content in ((named,), (body.ref,) * 1000):
            await leaves_no_trace(
                journal,
                "RECORD_TOO_LARGE",
                journal.append("s", [Draft(kind="a.b", content=content)]),
            )

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_a_bad_stream_is_refused(self, journal: Journal, bad: str):
        await leaves_no_trace(journal, "INVALID_ID", journal.append(bad, [note()]))

    @pytest.mark.parametrize("bad", BAD_IDS)
    @pytest.mark.parametrize("field", ["run_id", "turn_id", "effect_id", "actor"])
    async def test_a_bad_id_is_refused(self, bad: str, field: str):
        with refused("INVALID_ID"):
            Draft.model_validate({"kind": "a.b", field: bad})

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_a_bad_id_in_a_payload_is_refused(self, journal: Journal, bad: str):
        code = "PAYLOAD_NOT_JSON" if bad == "\ud800" else "INVALID_ID"
        payload = {
            "effect_id": bad,
            "kind": "file_write",
            "name": "n",
            "redacted_summary": "",
        }

        async def append() -> None:
            draft = Draft.model_validate({"kind": "effect_intent", "payload": payload})
            await journal.append("s", [note(), draft])

        await leaves_no_trace(journal, code, append())

    @pytest.mark.parametrize("good", ["a", "ü", "a b", "x" * 512, "日本", "../../etc", "'; drop--"])
    async def test_any_printable_id_is_accepted(self, journal: Journal, good: str):
        await journal.append(good, [note(run_id=good)])
        (record,) = await records_of(journal, good)
        assert (record.stream, record.run_id) == (good, good)
        assert (await journal.verify()).ok
