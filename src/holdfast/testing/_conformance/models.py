"""What the suite for models asks, and what must come of it."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import cast

import anyio
import pytest

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    ThinkingPart,
    ToolMessage,
    UserMessage,
    check_messages,
)
from holdfast.contracts.model import (
    ModelAnswer,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelSettings,
    ToolSpec,
)
from holdfast.errors import ModelFailure
from holdfast.models.base import Model
from holdfast.models.script import Step, after, call, cut, fail, garble, say, together

LOOKUP = ToolSpec(
    "lookup",
    "Looks something up.",
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    },
)
"""The tool that every question of the suite offers."""

FAILURES = (
    "MODEL_RATE_LIMITED",
    "MODEL_OVERLOADED",
    "MODEL_TIMEOUT",
    "MODEL_CONTEXT_EXCEEDED",
    "MODEL_CONTENT_FILTERED",
    "MODEL_AUTH",
    "MODEL_UNKNOWN",
    "MODEL_INVALID_REQUEST",
)
"""What a provider can refuse with, before it has said a word."""

_LONG_MS = 60_000
_PROMPT = "Look up 1 and 2."
_WORDS = "A sentence that is too long for one piece of a stream, with an ä and a 🙂 in it."


def ask(*messages: Message, settings: ModelSettings | None = None) -> ModelRequest:
    """A question of the suite."""
    said = list(messages) or [UserMessage(text=_PROMPT)]
    return ModelRequest(said, "Be brief.", [LOOKUP], settings=settings or ModelSettings())


async def streamed(model: Model, request: ModelRequest) -> tuple[list[ModelDelta], ModelAnswer]:
    """The pieces of an answer, and the answer."""
    items = [item async for item in model.stream(request)]
    assert items, "a stream that ends without an answer"
    assert isinstance(items[-1], ModelAnswer), items[-1]
    pieces = items[:-1]
    assert all(isinstance(piece, ModelDelta) for piece in pieces), pieces
    return cast("list[ModelDelta]", pieces), items[-1]


def put_together(pieces: Sequence[ModelDelta], answer: ModelAnswer) -> None:
    """Check that the pieces are the answer: each in its part, and nothing missing."""
    for place, part in enumerate(answer.parts):
        mine = [piece for piece in pieces if piece.index == place]
        said = "".join(piece.text for piece in mine)
        assert {piece.kind for piece in mine} <= {part.kind}
        if part.kind != "tool_call":
            assert said == part.text
            continue
        assert (mine[0].call_id, mine[0].name) == (part.id, part.name)
        if part.malformed is not None:
            assert said == part.malformed
        else:
            assert json.loads(said or "{}") == part.arguments
    assert all(piece.index < len(answer.parts) for piece in pieces)


def results(answer: ModelAnswer) -> list[Message]:
    """What came of the calls of an answer, in their order; the second went wrong."""
    return [
        ToolMessage(call_id=one.id, name=one.name, text=f"result {place}", is_error=place == 1)
        for place, one in enumerate(answer.message.calls)
    ]


class ModelSuite:
    """What the suite starts from."""

    failures: tuple[str, ...] = FAILURES
    """What the model can be made to fail with."""
    garbles: bool = True
    """Whether its protocol lets a call have arguments that are no JSON."""

    @abstractmethod
    def model(self, script: Sequence[Step]) -> AbstractAsyncContextManager[Model]:
        """A model, for one test, whose answers are those of the script."""
        raise NotImplementedError

    async def failing(self, script: Sequence[Step], *, stream: bool = False) -> ModelFailure:
        """How the first question fails."""
        async with self.model(script) as model:
            asked = streamed(model, ask()) if stream else model.request(ask())
            with pytest.raises(ModelFailure) as caught:
                await asked
        return caught.value


class Answering(ModelSuite):
    """Answers, whole and in pieces."""

    async def test_model_has_an_id_and_a_profile(self):
        async with self.model(["Hello."]) as model:
            assert isinstance(model, Model)
            provider, _, name = model.id.partition(":")
            assert provider
            assert name
            assert isinstance(model.profile, ModelProfile)

    async def test_answer_has_its_words_its_end_and_its_use(self):
        async with self.model([_WORDS]) as model:
            answer = await model.request(ask())
        assert answer.message.text == _WORDS
        assert answer.finish == "stop"
        assert answer.usage.input_tokens > 0
        assert answer.usage.output_tokens > 0

    async def test_calls_of_one_answer_keep_their_order(self):
        script = [together("Both.", call("lookup", id=1), call("lookup", id=2))]
        async with self.model(script) as model:
            answer = await model.request(ask())
        calls = answer.message.calls
        assert answer.message.text == "Both."
        assert [(one.name, one.arguments) for one in calls] == [
            ("lookup", {"id": 1}),
            ("lookup", {"id": 2}),
        ]
        assert len({one.id for one in calls}) == len(calls)
        assert answer.finish == "tool_calls"

    async def test_stream_ends_with_the_answer_and_its_pieces_add_up(self):
        script = [together(_WORDS, call("lookup", id=1), call("lookup", id=123_456_789))]
        async with self.model(script) as model:
            pieces, answer = await streamed(model, ask())
        assert len(pieces) > len(answer.parts) or len(pieces) > 1
        put_together(pieces, answer)

    async def test_stream_and_request_say_the_same(self):
        async with self.model([together(_WORDS, call("lookup", id=1))]) as model:
            whole = await model.request(ask())
            _, last = await streamed(model, ask())
        assert last.parts == whole.parts
        assert last.finish == whole.finish

    async def test_conversation_goes_on_with_results_and_stays_valid(self):
        script = [
            together(call("lookup", id=1), call("lookup", id=2)),
            call("lookup", id=3),
            "Done.",
        ]
        said: list[Message] = [UserMessage(text=_PROMPT)]
        async with self.model(script) as model:
            for _ in script:
                answer = await model.request(ask(*said))
                said += [answer.message, *results(answer)]
        assert check_messages(said) is None
        last = said[-1]
        assert isinstance(last, AssistantMessage)
        assert last.text == "Done."

    async def test_arguments_that_are_no_json_are_kept(self):
        if not self.garbles:
            pytest.skip("calls of this protocol always have JSON")
        async with self.model([garble("lookup", '{"id": 1'), "Sorry."]) as model:
            pieces, answer = await streamed(model, ask())
            put_together(pieces, answer)
            (one,) = answer.message.calls
            assert one.arguments == {}
            assert one.malformed == '{"id": 1'
            said = [UserMessage(text=_PROMPT), answer.message, *results(answer)]
            assert (await model.request(ask(*said))).message.text == "Sorry."

    async def test_foreign_thoughts_and_notices_are_no_obstacle(self):
        foreign = ThinkingPart(text="Hm.", signature="seal", provider="elsewhere", id="t1")
        said: list[Message] = [
            UserMessage(text=_PROMPT),
            AssistantMessage(parts=(foreign,)),
            UserMessage(text="The budget is low.", notice=True),
            UserMessage(text="Go on."),
        ]
        # The conversation has one answer, whatever became of it on the way.
        async with self.model(["Unused.", "Done.", "Done."]) as model:
            assert (await model.request(ask(*said))).message.text in ("Unused.", "Done.")

    async def test_question_is_left_as_it_was(self):
        said: list[Message] = [UserMessage(text=_PROMPT)]
        before = [message.model_copy(deep=True) for message in said]
        async with self.model(["Hello."]) as model:
            await model.request(ask(*said))
            await streamed(model, ask(*said))
        assert said == before


class Failing(ModelSuite):
    """Failures: typed, once, and with what there was."""

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("code", FAILURES)
    async def test_failure_is_typed(self, code: str, stream: bool):
        if code not in self.failures:
            pytest.skip("this model can't be made to fail so")
        why = await self.failing([fail(code)], stream=stream)
        assert why.code == code
        assert why.message
        assert why.partial is None

    async def test_rate_limit_says_how_long(self):
        for stream in (False, True):
            script = [fail("MODEL_RATE_LIMITED", retry_after_ms=7_000)]
            assert (await self.failing(script, stream=stream)).retry_after_ms == 7_000

    async def test_stream_that_is_cut_keeps_what_came(self):
        why = await self.failing([cut(_WORDS)], stream=True)
        assert why.code == "MODEL_STREAM_CUT"
        assert isinstance(why.partial, ModelAnswer)
        assert why.partial.message.text == _WORDS
        assert why.partial.finish == "error"

    async def test_answer_that_is_cut_at_once_is_no_answer(self):
        for stream in (False, True):
            assert (await self.failing([cut()], stream=stream)).code == "MODEL_STREAM_CUT"

    async def test_model_does_not_try_again_by_itself(self):
        async with self.model([fail("MODEL_OVERLOADED"), fail("MODEL_TIMEOUT"), "Ok."]) as model:
            for code in ("MODEL_OVERLOADED", "MODEL_TIMEOUT"):
                with pytest.raises(ModelFailure) as caught:
                    await model.request(ask())
                assert caught.value.code == code
            assert (await model.request(ask())).message.text == "Ok."

    async def test_timeout_ms_is_enforced(self):
        hurry = ModelSettings(timeout_ms=100)
        async with self.model([after(_LONG_MS, say("Late."))]) as model:
            with pytest.raises(ModelFailure) as caught:
                await model.request(ask(settings=hurry))
            assert caught.value.code == "MODEL_TIMEOUT"
            with pytest.raises(ModelFailure) as caught:
                await streamed(model, ask(settings=hurry))
            assert caught.value.code == "MODEL_TIMEOUT"


class Ending(ModelSuite):
    """Being given up, and being asked by many."""

    async def test_cancelled_request_ends(self):
        async with self.model([after(_LONG_MS, say("Late."))]) as model:
            with anyio.move_on_after(0.1) as scope:
                await model.request(ask())
            assert scope.cancelled_caught
            with anyio.move_on_after(0.1) as scope:
                await streamed(model, ask())
            assert scope.cancelled_caught

    async def test_stream_can_be_left_early_and_the_model_asked_again(self):
        async with self.model([_WORDS]) as model:
            items = cast("AsyncGenerator[ModelDelta | ModelAnswer]", model.stream(ask()))
            assert isinstance(await anext(items), ModelDelta)
            await items.aclose()
            assert (await model.request(ask())).message.text == _WORDS

    async def test_many_conversations_at_once(self):
        got: dict[int, str] = {}

        async def converse(number: int, model: Model) -> None:
            first = await model.request(ask())
            said = [UserMessage(text=_PROMPT), first.message, *results(first)]
            got[number] = (await model.request(ask(*said))).message.text

        script = [call("lookup", id=1), "Done."]
        async with self.model(script) as model, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(converse, number, model)
        assert got == dict.fromkeys(range(20), "Done.")
