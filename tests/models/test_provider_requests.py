"""What providers are sent, and what their answers become: real client libraries, a real server."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelRequest, ModelSettings, OutputSpec, ToolSpec
from holdfast.models import Model, close, model
from holdfast.models.script import Step
from holdfast.testing import ProviderServer, call, garble, say, together
from holdfast.testing.providers import Raw

IDS = {
    "openai:gpt-5.2": "/v1",
    "openai-responses:gpt-5.2": "/v1",
    "anthropic:claude-opus-4-6": "",
    "google:gemini-2.5-pro": "",
    "ollama:llama3.2": "/v1",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
    "additionalProperties": False,
}


@asynccontextmanager
async def talking(id: str, script: Sequence[Step]) -> AsyncGenerator[tuple[Model, ProviderServer]]:
    with ProviderServer(script) as server:
        found = model(f"{id}@{server.url}{IDS[id]}")
        try:
            yield found, server
        finally:
            await close(found)


def understood(server: ProviderServer) -> ModelRequest:
    """The last request, as the server of that protocol understands it."""
    from holdfast.testing._protocols import PROTOCOLS

    last = server.requests[-1]
    protocol = next(one for one in PROTOCOLS if one.path in last.path)
    return protocol(last.path, last.body).question()


@pytest.mark.parametrize("id", IDS)
async def test_conversation_arrives_as_it_is(id: str):
    said: list[Message] = [
        UserMessage(text="Look up 1 and 2."),
        AssistantMessage(
            parts=(
                TextPart(text="Looking."),
                ToolCallPart(id="c1", name="lookup", arguments={"id": 1, "deep": {"x": [None]}}),
                ToolCallPart(id="c2", name="lookup", arguments={}),
            )
        ),
        ToolMessage(call_id="c1", name="lookup", text="one"),
        ToolMessage(call_id="c2", name="lookup", text="two", is_error=True),
        UserMessage(text="And now?"),
    ]
    tool = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {}})
    async with talking(id, ["Never.", "Fine."]) as (asked, server):
        await asked.request(ModelRequest(said, "Be brief.", [tool]))
    got = understood(server)
    assert got.instructions == "Be brief."
    assert [one.name for one in got.tools] == ["lookup"]
    assert [one.description for one in got.tools] == ["Looks up."]
    sent = [one.model_copy(update={"is_error": False}) for one in said]
    seen = [
        one.model_copy(update={"parts": tuple(p for p in one.parts if p.kind != "thinking")})
        if isinstance(one, AssistantMessage)
        else one.model_copy(update={"is_error": False})
        for one in got.messages
    ]
    assert seen == sent


async def test_error_of_a_tool_is_marked_where_the_protocol_can():
    said: list[Message] = [
        UserMessage(text="Go."),
        AssistantMessage(parts=(ToolCallPart(id="c1", name="lookup"),)),
        ToolMessage(call_id="c1", name="lookup", text="no", is_error=True),
    ]
    async with talking("anthropic:claude-opus-4-6", ["Never.", "Fine."]) as (asked, server):
        await asked.request(ModelRequest(said))
    assert understood(server).messages[-1] == said[-1]


@pytest.mark.parametrize("id", IDS)
async def test_notice_is_told_apart_from_the_user(id: str):
    said = [UserMessage(text="Go."), UserMessage(text="80 % is spent.", notice=True)]
    async with talking(id, ["Fine."]) as (asked, server):
        await asked.request(ModelRequest(said))
    told = [one.text for one in understood(server).messages if isinstance(one, UserMessage)]
    assert "\n".join(told).split() == "Go. [SYSTEM NOTICE] 80 % is spent.".split()


async def test_thoughts_go_back_to_their_own_provider_only():
    thought = say("Fine.", thinking="Hm.")
    async with talking("anthropic:claude-opus-4-6", [thought, "Done."]) as (asked, server):
        first = await asked.request(ModelRequest([UserMessage(text="Go.")]))
        thinking = first.parts[0]
        assert isinstance(thinking, ThinkingPart)
        assert (thinking.text, thinking.provider) == ("Hm.", "anthropic")
        sealed = thinking.model_copy(update={"signature": "seal"})
        said: list[Message] = [
            UserMessage(text="Go."),
            AssistantMessage(parts=(sealed, TextPart(text="Fine."))),
            UserMessage(text="Go on."),
        ]
        await asked.request(ModelRequest(said))
        back = understood(server).messages[1]
        assert isinstance(back, AssistantMessage)
        assert back.parts[0] == sealed
    for other in ("openai:gpt-5.2", "openai-responses:gpt-5.2", "google:gemini-2.5-pro"):
        async with talking(other, ["Never.", "Done."]) as (asked, server):
            await asked.request(ModelRequest(said))
            sent = json.dumps(server.requests[-1].body)
            assert "seal" not in sent
            assert "Hm." not in sent


async def test_seal_of_a_call_goes_back_with_it():
    script = [together("Looking.", call("lookup", id=1)), "Done."]
    tool = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {}})
    async with talking("google:gemini-2.5-pro", script) as (asked, server):
        said: list[Message] = [UserMessage(text="Go.")]
        first = await asked.request(ModelRequest(said, tools=[tool]))
        (made,) = first.message.calls
        said += [first.message, ToolMessage(call_id=made.id, name="lookup", text="ok")]
        await asked.request(ModelRequest(said, tools=[tool]))
        parts = server.requests[-1].body["contents"][1]["parts"]
    assert parts[-1]["functionCall"]["name"] == "lookup"
    assert parts[-1]["thoughtSignature"] == "c2VhbA=="


@pytest.mark.parametrize(
    ("id", "where"),
    [
        ("openai:gpt-5.2", ("response_format", "json_schema", "schema")),
        ("openai-responses:gpt-5.2", ("text", "format", "schema")),
        ("anthropic:claude-opus-4-6", ("output_config", "format", "schema")),
        ("google:gemini-2.5-pro", ("generationConfig", "responseJsonSchema")),
        ("ollama:llama3.2", ("response_format", "json_schema", "schema")),
    ],
)
async def test_shape_of_the_answer_is_demanded_where_the_provider_can(
    id: str, where: Sequence[str]
):
    async with talking(id, ['{"total": 1}']) as (asked, server):
        assert asked.profile.structured
        shape = OutputSpec("sum", SCHEMA)
        answer = await asked.request(ModelRequest([UserMessage(text="Go.")], output=shape))
    found: Any = server.requests[-1].body
    for step in where:
        found = found[step]
    assert found["required"] == ["total"]
    assert answer.message.text == '{"total": 1}'


async def test_shape_is_left_to_the_prompt_where_it_can_not():
    old = "anthropic:claude-3-haiku-20240307"
    with ProviderServer(['{"total": 1}']) as server:
        asked = model(f"{old}@{server.url}")
        assert not asked.profile.structured
        shape = OutputSpec("sum", SCHEMA)
        await asked.request(ModelRequest([UserMessage(text="Go.")], output=shape))
        await close(asked)
    assert "total" not in json.dumps(server.requests[-1].body)


async def test_settings_are_sent():
    settings = ModelSettings(
        temperature=0.25,
        max_tokens=77,
        seed=5,
        parallel_tool_calls=False,
        thinking="low",
        extra={"user": "me"},
    )
    tool = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {}})
    request = ModelRequest([UserMessage(text="Go.")], tools=[tool], settings=settings)
    sent: dict[str, dict[str, Any]] = {}
    for id in ("openai:gpt-4o", *IDS):
        with ProviderServer(["Fine."]) as server:
            asked = model(f"{id}@{server.url}{IDS.get(id, '/v1')}")
            await asked.request(request)
            await close(asked)
        sent[id] = server.requests[-1].body
    plain = sent["openai:gpt-4o"]
    assert plain["temperature"] == 0.25
    assert plain["max_completion_tokens"] == 77
    assert plain["seed"] == 5
    assert plain["parallel_tool_calls"] is False
    assert plain["user"] == "me"
    assert sent["openai:gpt-5.2"]["reasoning_effort"] == "low"
    assert sent["openai-responses:gpt-5.2"]["reasoning"]["effort"] == "low"
    assert sent["openai-responses:gpt-5.2"]["max_output_tokens"] == 77
    assert sent["anthropic:claude-opus-4-6"]["max_tokens"] >= 77
    assert sent["anthropic:claude-opus-4-6"]["user"] == "me"
    # What a provider does not know, it does not get.
    assert "seed" not in sent["anthropic:claude-opus-4-6"]
    assert sent["google:gemini-2.5-pro"]["generationConfig"]["maxOutputTokens"] == 77
    assert "user" not in sent["google:gemini-2.5-pro"]


async def test_prefix_is_cached_where_a_provider_wants_to_be_told():
    async with talking("anthropic:claude-opus-4-6", ["Fine."]) as (asked, server):
        await asked.request(ModelRequest([UserMessage(text="Go.")], "Be brief."))
    assert server.requests[-1].body["system"][0]["cache_control"]["type"] == "ephemeral"


async def test_same_question_is_sent_in_the_same_bytes():
    request = ModelRequest([UserMessage(text="Go.")], "Be brief.")
    for id in IDS:
        async with talking(id, ["Fine."]) as (asked, server):
            await asked.request(request)
            await asked.request(request)
        first, second = (json.dumps(one.body) for one in server.requests)
        assert first == second


@pytest.mark.parametrize("id", ["openai:gpt-5.2", "openai-responses:gpt-5.2"])
@pytest.mark.parametrize("written", ['{"id": ', "[1]", '"text"', '{"id": NaN}', "nonsense"])
async def test_arguments_that_are_no_object_are_kept_and_go_back(id: str, written: str):
    async with talking(id, [garble("lookup", written), "Sorry."]) as (asked, server):
        said: list[Message] = [UserMessage(text="Go.")]
        answer = await asked.request(ModelRequest(said))
        (made,) = answer.message.calls
        assert (made.arguments, made.malformed) == ({}, written)
        said += [answer.message, ToolMessage(call_id=made.id, name="lookup", text="no JSON")]
        assert (await asked.request(ModelRequest(said))).message.text == "Sorry."
        assert json.dumps(written)[1:-1].split('"')[0] in json.dumps(server.requests[-1].body)


async def test_calls_that_are_numbered_anew_get_names_of_their_own():
    chat: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "0", "type": "function", "function": {"name": "a", "arguments": ""}},
                        {
                            "id": "0",
                            "type": "function",
                            "function": {"name": "b", "arguments": "{}"},
                        },
                    ],
                },
            }
        ],
    }
    async with talking("openai:gpt-5.2", []) as (asked, server):
        server.raw += [Raw(body=json.dumps(chat).encode())] * 2
        said: list[Message] = [UserMessage(text="Go.")]
        for _ in range(2):
            answer = await asked.request(ModelRequest(said))
            assert answer.finish == "tool_calls"
            said.append(answer.message)
            said += [
                ToolMessage(call_id=one.id, name=one.name, text="") for one in answer.message.calls
            ]
    made = [
        one.id for message in said if isinstance(message, AssistantMessage) for one in message.calls
    ]
    assert made == ["0", "0_2", "0_3", "0_4"]


def test_model_works_in_one_event_loop_after_another():
    with ProviderServer(["Hello."]) as server:
        asked = model(f"openai:gpt-5.2@{server.url}/v1")

        async def once() -> str:
            answer = await asked.request(ModelRequest([UserMessage(text="Hi.")]))
            await close(asked)
            return answer.message.text

        assert [anyio.run(once) for _ in range(3)] == ["Hello."] * 3


async def test_closed_model_can_be_asked_again():
    async with talking("openai:gpt-5.2", ["Hello."]) as (asked, _):
        for _ in range(2):
            answer = await asked.request(ModelRequest([UserMessage(text="Hi.")]))
            assert answer.message.text == "Hello."
            await close(asked)
