"""The conversation: valid at every cut, and the same whether it is lived or folded from the records."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Agent, capability
from holdfast.agent.history import history_of
from holdfast.agent.transcript import Transcript
from holdfast.contracts._dump import dumped
from holdfast.contracts.message import (
    AssistantMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    check_messages,
)
from holdfast.contracts.model import ModelAnswer
from holdfast.models.script import Step, call, cut, garble, say, together, write_code
from holdfast.models.scripted import Scripted

SESSION = "talk"
CONFIG: dict[str, Any] = {"shell": {"jail": "off"}, "policy": {"default": "allow"}}


@capability(side_effect="read")
async def table(rows: int, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Rows with their columns in no order."""
    return [
        {"name": f"n{row}", "id": row, "ratio": 1.0, "by": {"z": 1, "a": 2}} for row in range(rows)
    ]


@capability(side_effect="write", idempotent=True)
async def store(value: Any, key: str = "k") -> dict[str, Any]:
    """Give it back."""
    return {"value": value, "key": key}


@capability(side_effect="write")
async def breaks(why: str) -> None:
    """Does not work."""
    raise ValueError(why)


async def talk(script: Sequence[Step], *, prompts: int = 2, **options: Any) -> None:
    """Let a model say all that; every question must have been asked with what the records say."""
    model = Scripted([*script, *[say("Well.")] * prompts], keep_requests=True)
    agent = Agent(model, capabilities=[table, store, breaks], **options)
    async with holdfast.open("memory:", CONFIG) as hf:
        for number in range(prompts):  # the second one goes on with what this process has in mind
            await agent.run(f"Prompt {number}.", session=SESSION, runtime=hf)
        asked = [[dumped(one) for one in request.messages] for request in model.requests]
        folded: list[list[Any]] = []
        async for record in hf.journal.read(SESSION):
            if record.payload.get("kind") == "provider_request":
                found = (await history_of(hf.journal, SESSION, upto=record.pos - 1)).transcript
                assert found.digest == record.payload["context"], f"at {record.pos}"
                folded.append([dumped(one) for one in found.messages])
            whole = (await history_of(hf.journal, SESSION, upto=record.pos)).transcript
            whole.close()
            assert check_messages(whole.messages) is None, f"at {record.pos}"
        assert len(asked) > 2
        # As bytes: a provider's cache does not know that the order of keys means nothing.
        assert json.dumps(folded) == json.dumps(asked)


@pytest.mark.parametrize("code_mode", [False, True], ids=["tools", "code"])
async def test_odd_answers_are_folded_as_they_were(code_mode: bool) -> None:
    """Arguments in any order, results with keys in any order, errors, calls that can't be made."""
    await talk(
        [
            together(
                say("Ünïcode “quotes” \u2028 \U0001f600", thinking="hm"),
                call("table", rows=2, options={"z": [{"b": 1, "a": 2.0}], "y": None}),
                call("store", value={"b": 1e300, "a": [1.0, 1]}, key="\U0001f600"),
            ),
            together(call("breaks", why="because"), call("nosuch", b=1, a=2), garble("table", "{")),
            together(call("search_tools", query="rows"), call("describe_tool", name="table")),
            write_code("r = await table(2)\nprint(r)\nr"),
            write_code("1 / 0"),
            together(write_code("a = 1"), write_code("a + 1"), call("table", rows=1)),
        ],
        code_mode=code_mode,
    )


async def test_long_results_are_cut_the_same() -> None:
    await talk(
        [call("table", rows=500), write_code("await table(500)"), call("store", value="x" * 5000)],
        code_mode=False,
        view_bytes=512,
    )


async def test_answers_that_broke_off_are_not_part_of_it_once_it_was_asked_again() -> None:
    await talk(
        [cut("So fa"), say("So far so good.")], code_mode=False, retry={"initial_delay_ms": 0}
    )


async def test_what_was_seen_of_an_answer_that_never_ended_stays() -> None:
    """Live and folded: the next question is asked with it."""
    retry = {"max_retries": 0}
    await talk([cut("I was about to say"), say("Again.")], prompts=3, code_mode=False, retry=retry)


async def test_a_repaired_output_is_folded_with_its_prompts() -> None:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    lines = [
        call("table", rows=1),
        say("One."),
        say('{"n": "one"}'),
        say('{"n": 1}'),
        say('{"n": 2}'),
    ]
    await talk(lines, code_mode=False, output=shape)


# -- on its own -----------------------------------------------------------------------------------------

_IDS = st.sampled_from("abcd")
_TEXT = st.text(max_size=5)


@st.composite
def _operations(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for turn in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(("user", "answer", "partial", "close")))
        if kind == "answer":
            names = draw(st.lists(_IDS, unique=True, max_size=3))
            ids = [f"{name}{turn}" for name in names]
            found.append(("answer", draw(_TEXT), ids))
            # Results come in any order, some not at all, some twice, some of calls that nobody made.
            for call_id in draw(st.lists(st.sampled_from([*ids, "x"]), max_size=4)):
                found.append(("result", call_id, draw(_TEXT)))
        else:
            found.append((kind, draw(_TEXT)))
    return found


def _applied(operations: Sequence[tuple[Any, ...]]) -> Transcript:
    transcript = Transcript()
    for operation in operations:
        match operation:
            case ("user", text):
                transcript.user(text)
            case ("answer", text, ids):
                calls = tuple(ToolCallPart(id=one, name="t") for one in ids)
                answer = ModelAnswer(parts=(TextPart(text=text), *calls))
                transcript.answered(answer, json.dumps([text, ids]))
            case ("result", call_id, text):
                transcript.result(call_id, "t", text)
            case ("partial", text):
                transcript.partial = ModelAnswer(parts=(TextPart(text=text),))
            case _:
                transcript.close()
    return transcript


@given(_operations())
def test_it_is_valid_whatever_comes_and_whatever_does_not(
    operations: list[tuple[Any, ...]],
) -> None:
    transcript = _applied(operations)
    if not transcript.waiting:
        assert check_messages(transcript.messages) is None
    transcript.close()
    assert check_messages(transcript.messages) is None
    assert transcript.count == len(transcript.messages)
    assert _applied([*operations, ("close", "")]).digest == transcript.digest


@given(_operations(), _operations())
def test_its_digest_names_it(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    first, second = _applied([*one, ("close", "")]), _applied([*other, ("close", "")])
    same = [dumped(m) for m in first.messages] == [dumped(m) for m in second.messages]
    assert same or first.digest != second.digest


def test_what_a_provider_refuses_is_found() -> None:
    asks = AssistantMessage(parts=(ToolCallPart(id="a", name="t"), ToolCallPart(id="b", name="t")))
    a, b = (ToolMessage(call_id=one, name="t", text="") for one in "ab")
    user = UserMessage(text="go")
    assert check_messages([user, asks, a, b]) is None
    for wrong in (
        [user, asks, b, a],
        [user, asks, a],
        [asks, a, user, b],
        [user, a],
        [asks, a, b, b],
    ):
        assert check_messages(wrong) is not None, wrong
    assert check_messages([asks, a, b, user, asks, a, b]) is not None, "the same calls again"
