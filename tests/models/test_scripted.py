"""The model that follows a script."""

import json
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelAnswer, ModelRequest, ModelSettings, ModelUsage
from holdfast.errors import CallerError, ModelFailure
from holdfast.models import model as by_id
from holdfast.models.scripted import Scripted, deltas
from holdfast.testing import (
    ScriptedModel,
    after,
    call,
    cut,
    fail,
    garble,
    say,
    together,
    write_code,
)
from holdfast.testing._conformance.models import put_together


def ask(
    *answers: ModelAnswer | str, answered: int | None = None, attempt: int | None = None
) -> ModelRequest:
    """A question after so many answers."""
    said: list[Message] = [UserMessage(text="Go.")]
    for one in answers:
        if isinstance(one, str):
            said.append(AssistantMessage(parts=(TextPart(text=one),)))
            continue
        said.append(one.message)
        said += [
            ToolMessage(call_id=made.id, name=made.name, text="ok") for made in one.message.calls
        ]
    return ModelRequest(said, answered=answered, attempt=attempt)


async def test_script_goes_on_where_the_conversation_stands():
    script = [write_code("1 + 1"), together(call("a", x=1), call("b")), "Done."]
    first = await Scripted(script).request(ask())
    # Another object, as after a restart: the question says where it is.
    second = await Scripted(script).request(ask(first))
    third = await Scripted(script).request(ask(first, second))
    assert first.message.calls[0].name == "run_code"
    assert first.message.calls[0].arguments == {"code": "1 + 1"}
    assert [one.name for one in second.message.calls] == ["a", "b"]
    assert third.message.text == "Done."


async def test_same_place_gives_the_same_answer():
    model = ScriptedModel([call("a"), call("a")])
    first = await model.request(ask())
    assert await model.request(ask()) == first
    second = await model.request(ask(first))
    assert first.message.calls[0].id != second.message.calls[0].id


async def test_answered_counts_where_messages_were_dropped():
    model = ScriptedModel(["one", "two", "three"])
    assert (await model.request(ask(answered=2))).message.text == "three"


async def test_failures_are_used_up_by_attempts():
    model = ScriptedModel([fail("MODEL_OVERLOADED"), cut("so"), "well"])
    codes: list[str] = []
    for _ in range(2):
        with pytest.raises(ModelFailure) as caught:
            await model.request(ask())
        codes.append(caught.value.code)
    assert codes == ["MODEL_OVERLOADED", "MODEL_STREAM_CUT"]
    assert (await model.request(ask())).message.text == "well"
    # Once past, the place is past for everybody who does not say which attempt it is.
    assert (await model.request(ask())).message.text == "well"


async def test_attempt_says_which_failure_it_is():
    model = ScriptedModel([fail("MODEL_OVERLOADED"), "well"])
    for _ in range(3):
        with pytest.raises(ModelFailure):
            await model.request(ask(attempt=1))
    assert (await model.request(ask(attempt=2))).message.text == "well"


async def test_thousand_conversations_share_one_script():
    model = ScriptedModel([call("a"), fail("MODEL_TIMEOUT"), "Done."], latency_ms=1)
    ended: list[str] = []

    async def converse() -> None:
        first = await model.request(ask(attempt=1))
        with pytest.raises(ModelFailure):
            await model.request(ask(first, attempt=1))
        ended.append((await model.request(ask(first, attempt=2))).message.text)

    async with anyio.create_task_group() as tasks:
        for _ in range(1_000):
            tasks.start_soon(converse)
    assert ended == ["Done."] * 1_000


@pytest.mark.parametrize("script", [[], ["one"], ["one", "two"]])
async def test_end_of_the_script_is_said(script: list[str]):
    with pytest.raises(ModelFailure) as caught:
        await ScriptedModel(script).request(ask(*script))
    assert caught.value.code == "MODEL_INVALID_REQUEST"
    assert f"has {len(script)} answers" in caught.value.message
    assert caught.value.hint


async def test_script_may_end_with_failures():
    model = ScriptedModel(["one", fail("MODEL_AUTH")])
    codes: list[str] = []
    for _ in range(2):
        with pytest.raises(ModelFailure) as caught:
            await model.request(ask("one"))
        codes.append(caught.value.code)
    assert codes == ["MODEL_AUTH", "MODEL_INVALID_REQUEST"]


async def test_function_decides():
    def echo(request: ModelRequest) -> str:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        return last.text.upper()

    async def later(request: ModelRequest) -> object:
        await anyio.lowlevel.checkpoint()
        return call("a", answers=request.answered or 0)

    assert (await ScriptedModel(echo).request(ask())).message.text == "GO."
    (made,) = (await ScriptedModel(later).request(ask(answered=7))).message.calls  # pyright: ignore[reportArgumentType]
    assert made.arguments == {"answers": 7}
    assert made.id == "call_8_1"


async def test_function_may_fail_in_either_way():
    def raises(request: ModelRequest) -> str:
        raise ModelFailure("MODEL_AUTH", "no")

    for script in (raises, lambda request: fail("MODEL_AUTH")):
        with pytest.raises(ModelFailure) as caught:
            await ScriptedModel(script).request(ask())
        assert caught.value.code == "MODEL_AUTH"


async def test_whole_answer_is_given_as_it_is():
    answer = ModelAnswer(
        parts=(
            ThinkingPart(text="hm", signature="s", provider="p"),
            ToolCallPart(id="mine", name="a"),
        ),
        finish="length",
        usage=ModelUsage(input_tokens=5, output_tokens=6, cost_micros=7),
        model="m-1",
        response_id="r-1",
    )
    assert await ScriptedModel([answer]).request(ask()) == answer
    assert await ScriptedModel(lambda request: answer).request(ask()) is answer


async def test_recording_is_played(tmp_path: Path):
    answers = [
        await ScriptedModel([together("a", call("b", c=1))]).request(ask()),
        ModelAnswer(parts=(TextPart(text="Done."),)),
    ]
    lines = [answers[0].model_dump(mode="json"), {"fail": "MODEL_TIMEOUT", "retry_after_ms": 3}]
    lines.append(answers[1].model_dump(mode="json"))
    as_lines, as_array = tmp_path / "a.jsonl", tmp_path / "a.json"
    as_lines.write_text("\n".join(json.dumps(line) for line in lines))
    as_array.write_text(json.dumps([*lines[:2], "Done."]))
    for path in (as_lines, as_array):
        model = by_id(f"scripted:{path}")
        assert await model.request(ask()) == answers[0]
        with pytest.raises(ModelFailure) as caught:
            await model.request(ask(answers[0]))
        assert (caught.value.code, caught.value.retry_after_ms) == ("MODEL_TIMEOUT", 3)
        assert (await model.request(ask(answers[0]))).message.text == "Done."


@pytest.mark.parametrize("text", ['{"parts": [', '{"parts": 7}', "7", '{"fail": "NOT_FOUND"}'])
def test_recording_that_is_none_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ModelFailure) as caught:
        by_id(f"scripted:{path}")
    assert caught.value.code == "MODEL_UNKNOWN"


async def test_usage_is_counted_or_given():
    counted = await ScriptedModel(["x" * 400]).request(ask())
    assert counted.usage.output_tokens == 100
    assert counted.usage.input_tokens > 0
    assert counted.usage.cost_micros is None
    longer = await ScriptedModel(["", "x"]).request(ask("y" * 400))
    assert longer.usage.input_tokens == counted.usage.input_tokens + 100
    given_usage = ModelUsage(input_tokens=1, output_tokens=2, cost_micros=3)
    for model in (
        ScriptedModel(["x"], usage=given_usage),
        ScriptedModel([say("x", usage=given_usage)]),
    ):
        assert (await model.request(ask())).usage == given_usage


async def test_requests_are_kept_when_asked():
    model = ScriptedModel(["one", "two"], keep_requests=True)
    said: list[Message] = [UserMessage(text="Go.")]
    request = ModelRequest(said, "Be brief.")
    said.append((await model.request(request)).message)
    await model.request(request)
    assert [len(one.messages) for one in model.requests] == [1, 2]
    assert model.requests[0].instructions == "Be brief."
    silent = ScriptedModel(["one"])
    await silent.request(ask())
    assert silent.requests == []


async def test_latency_is_waited_and_counts_against_the_timeout():
    hurry = ModelSettings(timeout_ms=5)
    for model in (ScriptedModel(["x"], latency_ms=60_000), ScriptedModel([after(60_000, "x")])):
        with pytest.raises(ModelFailure) as caught:
            await model.request(ModelRequest([UserMessage(text="Go.")], settings=hurry))
        assert caught.value.code == "MODEL_TIMEOUT"
    assert (await ScriptedModel([after(1, "x")]).request(ask())).message.text == "x"


async def test_cut_call_is_part_of_what_came():
    model = ScriptedModel([cut(together("so far", garble("a", '{"x": ')))])
    with pytest.raises(ModelFailure) as caught:
        async for _ in model.stream(ask()):
            pass
    partial = caught.value.partial
    assert isinstance(partial, ModelAnswer)
    assert partial.message.text == "so far"
    assert partial.message.calls[0].malformed == '{"x": '


@pytest.mark.parametrize(
    "make",
    [
        lambda: fail("NO_SUCH_CODE"),
        lambda: fail("NOT_FOUND"),
        lambda: together("a", fail("MODEL_AUTH")),
        lambda: cut(fail("MODEL_AUTH")),
        lambda: ScriptedModel([7]),  # pyright: ignore[reportArgumentType]
        lambda: ScriptedModel([{"parts": 7}]),
    ],
)
def test_lines_that_make_no_sense_are_refused(make: object):
    with pytest.raises(CallerError) as caught:
        make()  # pyright: ignore[reportCallIssue]
    assert caught.value.code == "INVALID_ARGUMENT"


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_parts = st.one_of(
    st.text(max_size=60).map(lambda text: TextPart(text=text)),
    st.text(max_size=60).map(lambda text: ThinkingPart(text=text)),
    st.dictionaries(
        st.text(max_size=8), cast("st.SearchStrategy[JsonValue]", _values), max_size=4
    ).map(lambda arguments: ToolCallPart(id="c", name="n", arguments=arguments)),
    st.text(min_size=1, max_size=60).map(
        lambda text: ToolCallPart(id="c", name="n", malformed=text)
    ),
)


@given(st.lists(_parts, max_size=5), st.integers(1, 30))
def test_pieces_of_any_answer_add_up_to_it(parts: list[TextPart], size: int):
    answer = ModelAnswer(parts=tuple(parts))
    pieces = list(deltas(answer, size))
    assert all(len(piece.text) <= size for piece in pieces)
    put_together(pieces, answer)
