"""What goes wrong between a provider and us, and that it is said in one of our own words, after one attempt."""

import json
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest, ModelSettings
from holdfast.errors import ModelFailure
from holdfast.models import Model, close, model
from holdfast.models.script import Step
from holdfast.testing import ProviderServer, cut, fail, together
from holdfast.testing.providers import Raw

IDS = {
    "openai:gpt-5.2": "/v1",
    "openai-responses:gpt-5.2": "/v1",
    "anthropic:claude-opus-4-6": "",
    "google:gemini-2.5-pro": "",
    "ollama:llama3.2": "/v1",
}
ASK = ModelRequest([UserMessage(text="Go.")])
EVENTS = "text/event-stream"


@asynccontextmanager
async def talking(
    id: str, script: Sequence[Step] = ()
) -> AsyncGenerator[tuple[Model, ProviderServer]]:
    with ProviderServer(script) as server:
        found = model(f"{id}@{server.url}{IDS[id]}")
        try:
            yield found, server
        finally:
            await close(found)


async def streamed(asked: Model, request: ModelRequest = ASK) -> list[ModelDelta | ModelAnswer]:
    return [item async for item in asked.stream(request)]


async def failing(asked: Model, *, stream: bool, request: ModelRequest = ASK) -> ModelFailure:
    waited = streamed(asked, request) if stream else asked.request(request)
    with pytest.raises(ModelFailure) as caught:
        await waited
    return caught.value


def error(**about: Any) -> bytes:
    """An error as OpenAI and Anthropic word it, more or less."""
    return json.dumps({"type": "error", "error": {"message": "no", **about}}).encode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "MODEL_INVALID_REQUEST"),
        (401, "MODEL_AUTH"),
        (402, "MODEL_AUTH"),
        (403, "MODEL_AUTH"),
        (404, "MODEL_UNKNOWN"),
        (408, "MODEL_TIMEOUT"),
        (409, "MODEL_INVALID_REQUEST"),
        (413, "MODEL_CONTEXT_EXCEEDED"),
        (422, "MODEL_INVALID_REQUEST"),
        (429, "MODEL_RATE_LIMITED"),
        (500, "MODEL_OVERLOADED"),
        (502, "MODEL_OVERLOADED"),
        (503, "MODEL_OVERLOADED"),
        (504, "MODEL_TIMEOUT"),
        (529, "MODEL_OVERLOADED"),
    ],
)
async def test_status_is_typed_and_tried_once(id: str, stream: bool, status: int, code: str):
    async with talking(id) as (asked, server):
        server.raw.append(Raw(status, error()))
        why = await failing(asked, stream=stream)
    assert why.code == code
    assert str(status) in why.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[]", b'"no"'])
async def test_error_without_an_error_object_is_typed_by_its_status(id: str, body: bytes):
    async with talking(id) as (asked, server):
        server.raw.append(Raw(503, body, "text/html"))
        assert (await failing(asked, stream=False)).code == "MODEL_OVERLOADED"


@pytest.mark.parametrize("id", IDS)
async def test_time_to_wait_is_read_in_each_of_its_forms(id: str):
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    async with talking(id) as (asked, server):
        server.raw += [
            Raw(429, error(), headers={"retry-after": "7"}),
            Raw(429, error(), headers={"retry-after-ms": "1250", "retry-after": "2"}),
            Raw(503, error(), headers={"retry-after": in_a_minute}),
            Raw(429, error(), headers={"retry-after": "soon"}),
            Raw(429, error()),
        ]
        waits = [(await failing(asked, stream=False)).retry_after_ms for _ in range(5)]
    assert waits[:2] == [7_000, 1_250]
    assert waits[2] is not None
    assert 0 < waits[2] <= 60_000
    assert waits[3:] == [None, None]


@pytest.mark.parametrize("id", ["openai:gpt-5.2", "openai-responses:gpt-5.2"])
async def test_code_of_the_provider_counts_more_than_its_status(id: str):
    by_code = {
        "context_length_exceeded": "MODEL_CONTEXT_EXCEEDED",
        "content_policy_violation": "MODEL_CONTENT_FILTERED",
        "content_filter": "MODEL_CONTENT_FILTERED",
        "model_not_found": "MODEL_UNKNOWN",
        "insufficient_quota": "MODEL_AUTH",
        "invalid_api_key": "MODEL_AUTH",
    }
    async with talking(id) as (asked, server):
        for code, ours in by_code.items():
            status = 429 if code == "insufficient_quota" else 400
            server.raw.append(Raw(status, error(code=code)))
            assert (await failing(asked, stream=True)).code == ours


@pytest.mark.parametrize("id", IDS)
async def test_nobody_there_is_said(id: str):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        asked = model(f"{id}@http://127.0.0.1:{port}/v1")
        for stream in (False, True):
            why = await failing(asked, stream=stream)
            assert why.code == "MODEL_OVERLOADED"
            assert "base URL" in (why.hint or "")
        await close(asked)


# Ollama says no reason for the end, and the responses end in a test of their own.
BEGINNINGS = {
    "openai:gpt-5.2": {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "So far"}, "finish_reason": None}],
    },
    "anthropic:claude-opus-4-6": None,
    "google:gemini-2.5-pro": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "So far"}]}}]
    },
}


@pytest.mark.parametrize("id", BEGINNINGS)
async def test_stream_that_ends_without_its_end_is_cut(id: str):
    # The connection ends as it should; only the answer does not.
    begun = BEGINNINGS[id]
    async with talking(id) as (asked, server):
        body = f"data: {json.dumps(begun)}\n\n".encode() if begun else _anthropic()
        server.raw.append(Raw(200, body, EVENTS))
        why = await failing(asked, stream=True)
    assert why.code == "MODEL_STREAM_CUT"
    assert isinstance(why.partial, ModelAnswer)
    assert why.partial.message.text == "So far"


def _anthropic() -> bytes:
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
    block = {"type": "text", "text": "", "citations": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "So far"},
        },
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


async def test_responses_stream_that_ends_without_its_end_is_cut():
    async with talking("openai-responses:gpt-5.2") as (asked, server):
        response = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
        more = {"status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto"}
        begun = {"type": "response.created", "sequence_number": 0}
        event = {**begun, "response": {**response, **more, "tools": []}}
        body = f"event: response.created\ndata: {json.dumps(event)}\n\n".encode()
        server.raw.append(Raw(200, body, EVENTS))
        assert (await failing(asked, stream=True)).code == "MODEL_STREAM_CUT"


@pytest.mark.parametrize("id", IDS)
async def test_events_that_are_no_json_cut_the_stream(id: str):
    async with talking(id) as (asked, server):
        server.raw.append(Raw(200, b'data: {"id": "x", "choi\n\n', EVENTS))
        assert (await failing(asked, stream=True)).code == "MODEL_STREAM_CUT"


@pytest.mark.parametrize("id", IDS)
async def test_body_that_is_no_json_is_no_answer(id: str):
    async with talking(id) as (asked, server):
        server.raw += [Raw(200, b'{"id": "x", "choi'), Raw(200, b"<html>", "text/html")]
        for _ in range(2):
            why = await failing(asked, stream=False)
            assert why.code == "MODEL_STREAM_CUT"


@pytest.mark.parametrize("id", IDS)
async def test_body_of_another_shape_is_no_answer(id: str):
    async with talking(id) as (asked, server):
        server.raw.append(Raw(200, b'{"something": "else"}'))
        why = await failing(asked, stream=False)
        assert why.code == "MODEL_STREAM_CUT"


@pytest.mark.parametrize("id", IDS)
async def test_body_that_breaks_off_is_no_answer(id: str):
    async with talking(id, [cut("So far")]) as (asked, server):
        assert (await failing(asked, stream=False)).code == "MODEL_STREAM_CUT"
    assert len(server.requests) == 1


@pytest.mark.parametrize("id", IDS)
async def test_pieces_come_before_the_cut(id: str):
    words = "A sentence that needs some pieces."
    got: list[ModelDelta | ModelAnswer] = []

    async def listen(asked: Model) -> None:
        async for item in asked.stream(ASK):
            got.append(item)

    async with talking(id, [cut(together(words))]) as (asked, _):
        with pytest.raises(ModelFailure) as caught:
            await listen(asked)
    assert len(got) > 1
    assert "".join(item.text for item in got if isinstance(item, ModelDelta)) == words
    assert isinstance(caught.value.partial, ModelAnswer)
    assert caught.value.partial.message.text == words


@pytest.mark.parametrize("id", IDS)
async def test_time_is_up_in_the_middle_of_a_stream(id: str):
    words = "A sentence that needs some pieces, each of which takes its time."
    hurry = ModelRequest([UserMessage(text="Go.")], settings=ModelSettings(timeout_ms=900))
    async with talking(id, ["", words]) as (asked, server):
        await asked.request(ASK)  # so that no time goes into the import
        server.model = ProviderServer([words]).model
        server.pause_ms = 400
        why = await failing(asked, stream=True, request=hurry)
    assert why.code == "MODEL_TIMEOUT"
    assert "900 ms" in why.message


async def test_error_inside_a_stream_is_typed():
    body = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    async with talking("anthropic:claude-opus-4-6") as (asked, server):
        server.raw.append(Raw(200, _anthropic() + body, EVENTS))
        why = await failing(asked, stream=True)
    assert why.code == "MODEL_OVERLOADED"
    assert isinstance(why.partial, ModelAnswer)
    assert why.partial.message.text == "So far"


async def test_unknown_reason_for_the_end_is_a_reason():
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": "Fine."}, "finish_reason": "eos"}
    body = f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\ndata: [DONE]\n\n"
    async with talking("openai:gpt-5.2") as (asked, server):
        server.raw.append(Raw(200, body.encode(), EVENTS))
        answer = (await streamed(asked))[-1]
    assert isinstance(answer, ModelAnswer)
    assert (answer.message.text, answer.finish) == ("Fine.", "stop")


async def test_refusal_says_what_the_model_said():
    chat = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "refusal": "I can't help with that."},
            }
        ],
    }
    async with talking("openai:gpt-5.2") as (asked, server):
        server.raw.append(Raw(200, json.dumps(chat).encode()))
        why = await failing(asked, stream=False)
    assert why.code == "MODEL_CONTENT_FILTERED"
    assert "I can't help with that" in why.message


async def test_long_errors_are_cut():
    async with talking("openai:gpt-5.2") as (asked, server):
        server.raw.append(Raw(400, error(message="x" * 10_000)))
        assert len((await failing(asked, stream=False)).message) < 500


async def test_server_goes_on_with_the_script_after_a_failure():
    async with talking("openai:gpt-5.2", [fail("MODEL_OVERLOADED"), "Fine."]) as (asked, server):
        await failing(asked, stream=False)
        assert (await asked.request(ASK)).message.text == "Fine."
    assert len(server.requests) == 2
