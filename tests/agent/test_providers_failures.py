"""What goes wrong between a run and its provider: it goes on where it can, and ends with a word where it can't."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.loop_support import consistent, questions, results, said
from tests.agent.providers_support import (
    IDS,
    at,
    check_requests,
    conversation,
    look,
    opened,
    ran,
)

import holdfast
from holdfast import Agent
from holdfast.contracts.message import AssistantMessage
from holdfast.testing import ProviderServer, call, cut, fail, garble, say, write_code
from holdfast.testing.providers import Raw

STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
PROTOCOL = pytest.mark.parametrize("id", IDS)
EVENTS = "text/event-stream"
KEY = "sk-sentinel-5f2c9d0e7b"


@STREAMING
@PROTOCOL
async def test_it_waits_as_long_as_the_provider_asks(id: str, streaming: bool) -> None:
    script = [
        call("look", item="a"),
        fail("MODEL_RATE_LIMITED", retry_after_ms=61_000),
        fail("MODEL_OVERLOADED", retry_after_ms=7_000),
        say("Done."),
    ]
    with ProviderServer(script) as server:
        async with opened() as (hf, naps):
            agent = Agent(at(server, id), capabilities=[look], code_mode=False)
            run, _ = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.output, run.result.turns) == ("completed", "Done.", 2)
            assert naps.ms == [61_000, 7_000]
            told = await said(hf, "s", "model_retry")
            assert [one["kind"] for one in told] == ["RateLimited", "RetryableProviderError"]
            ends = [end for _, end in await questions(hf, "s")]
            assert ends == ["completed", "failed", "failed", "completed"]
            await consistent(hf, "s")
        check_requests(server)
        # The client libraries did not try again by themselves.
        assert len(server.requests) == 4


@PROTOCOL
async def test_a_provider_that_is_down_ends_the_run_after_its_retries(id: str) -> None:
    with ProviderServer([fail("MODEL_OVERLOADED")] * 9) as server:
        async with opened() as (hf, naps):
            agent = Agent(at(server, id), retry={"max_retries": 2})
            run = await agent.run("Go.", session="s", runtime=hf)
            assert (run.status, run.error.code) == ("failed", "MODEL_OVERLOADED")
            assert (len(server.requests), len(naps.ms)) == (3, 2)


@STREAMING
@PROTOCOL
async def test_an_answer_that_breaks_off_is_asked_for_again(id: str, streaming: bool) -> None:
    script = [cut("Half an ans"), say("All of it.")]
    with ProviderServer(script) as server:
        async with opened() as (hf, _):
            run, events = await ran(Agent(at(server, id)), hf, streaming=streaming)
            assert (run.status, run.output) == ("completed", "All of it.")
            assert [one.text for one in run.messages if isinstance(one, AssistantMessage)] == [
                "All of it."
            ]
            ends = await said(hf, "s", "effect_result")
            assert ends[0]["error"]["code"] == "MODEL_STREAM_CUT"
            assert ends[0]["usage"]["estimated"] is True
            assert ends[0]["usage"]["input_tokens"] > 0
            assert "estimated" not in ends[1]["usage"]
            assert run.usage.input_tokens == sum(one["usage"]["input_tokens"] for one in ends)
            await consistent(hf, "s")
        if streaming:
            told = "".join(one.text for one in events if one.kind == "text_delta")
            assert told == "Half an ansAll of it."
        check_requests(server)


@PROTOCOL
async def test_what_came_before_a_cancel_stays_in_the_conversation(id: str) -> None:
    with ProviderServer(["A long answer, word by word.", "Then this."]) as server:
        server.pause_ms = 50
        async with opened() as (hf, _):
            agent = Agent(at(server, id))
            seen = ""
            async with agent.stream("Go.", session="s", runtime=hf) as stream:
                async for event in stream:
                    if event.kind == "text_delta":
                        seen += event.text
                        break
            server.pause_ms = 0
            transcript = await hf.agents.messages("s")
            last = transcript.messages[-1]
            assert isinstance(last, AssistantMessage)
            assert last.text.startswith(seen)
            assert "A long answer, word by word.".startswith(last.text)
            (end,) = await said(hf, "s", "effect_result")
            assert (end["terminal_status"], end["usage"]["estimated"]) == ("cancelled", True)
            run = await agent.run("Go on.", session="s", runtime=hf)
            assert run.output == "Then this."
            await consistent(hf, "s")
        assert json.dumps(last.text) in conversation(server.requests[-1])[-2]
        check_requests(server)


# Anthropic has no place for them in a whole answer, and Google none at all.
GARBLED = [
    ("openai:gpt-5.2", False),
    ("openai:gpt-5.2", True),
    ("openai-responses:gpt-5.2", False),
    ("openai-responses:gpt-5.2", True),
    ("anthropic:claude-opus-4-6", True),
]


@pytest.mark.parametrize(("id", "streaming"), GARBLED)
async def test_arguments_that_are_no_json_are_repaired_by_the_model(
    id: str, streaming: bool
) -> None:
    script = [garble("look", '{"item": "a'), call("look", item="a"), say("Done.")]
    with ProviderServer(script) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, id), capabilities=[look], code_mode=False)
            run, _ = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.output) == ("completed", "Done.")
            wrong, right = await results(hf, "s")
            assert wrong.is_error
            assert "JSON" in wrong.text
            assert not right.is_error
            await consistent(hf, "s")
        check_requests(server)


@STREAMING
@PROTOCOL
@pytest.mark.parametrize(
    "body", [b'data: {"id": \n\n', b"event: ?\ndata: [1, 2\n\n", b"<html>Bad gateway</html>"]
)
async def test_a_stream_that_can_not_be_read_is_asked_for_again(
    id: str, streaming: bool, body: bytes
) -> None:
    with ProviderServer([say("Here.")]) as server:
        server.raw = [Raw(body=body, content_type=EVENTS if streaming else "application/json")]
        async with opened() as (hf, naps):
            run, _ = await ran(Agent(at(server, id)), hf, streaming=streaming)
            assert (run.status, run.output) == ("completed", "Here.")
            assert len(naps.ms) == 1
            ends = await said(hf, "s", "effect_result")
            assert ends[0]["error"]["code"] == "MODEL_STREAM_CUT"


def files_with(text: str, folder: Path) -> list[Path]:
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert files
    return [one for one in files if text.encode() in one.read_bytes()]


@STREAMING
@PROTOCOL
async def test_a_key_that_is_refused_is_shown_nowhere(
    id: str,
    streaming: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SHOP_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "journal.db"
    refusal = {"error": {"message": f"Incorrect API key provided: {KEY}.", "type": "auth"}}
    with ProviderServer([say("never")], key="another") as server:
        server.raw = [Raw(401, json.dumps(refusal).encode())]
        async with opened(f"sqlite:///{path}") as (hf, naps):
            agent = Agent(at(server, id, "SHOP_KEY"))
            run, events = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.error.code, naps.ms) == ("failed", "MODEL_AUTH", [])
            assert "[secret:SHOP_KEY]" in run.error.message
            logging.getLogger("somebody").warning("with %s", KEY)
            shown = [repr(run), repr(events), run.result.model_dump_json()]
        assert any(KEY in value for value in server.requests[0].headers.values())
    shown.append(caplog.text)
    shown += [repr(one.__dict__) for one in caplog.records]
    for one in shown:
        assert KEY not in one
    assert files_with(KEY, tmp_path) == []


async def test_a_prompt_with_the_key_of_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", KEY)
    with ProviderServer(["never"]) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, "openai:gpt-5.2", "SHOP_KEY"))
            with pytest.raises(holdfast.HoldfastError) as caught:
                await agent.run(f"Is {KEY} valid?", session="s", runtime=hf)
            assert caught.value.code == "INVALID_ARGUMENT"
        assert server.requests == []


PAIRS = [
    ("openai:gpt-5.2", "anthropic:claude-opus-4-6"),
    ("anthropic:claude-opus-4-6", "openai-responses:gpt-5.2"),
    ("openai-responses:gpt-5.2", "google:gemini-2.5-pro"),
    ("google:gemini-2.5-pro", "openai:gpt-5.2"),
]


@STREAMING
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_another_provider_goes_on_with_the_conversation(
    first: str, second: str, streaming: bool
) -> None:
    begin: list[Any] = [write_code("n = 6 * 7\nn"), *[fail("MODEL_OVERLOADED")] * 3]
    script = [say("never"), write_code("n + 1"), say("43")]
    with ProviderServer(begin) as down, ProviderServer(script) as up:
        names = (at(down, first), at(up, second))
        async with opened() as (hf, naps):
            agent = Agent(names[0], fallbacks=[names[1]], retry={"max_retries": 1})
            run, _ = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.output) == ("completed", "43")
            (switched,) = await said(hf, "s", "model_switched")
            assert (switched["before"], switched["after"]) == names
            assert len(naps.ms) == 2
            asked = [name for name, _ in await questions(hf, "s")]
            assert asked == [f"model:{names[0]}"] * 3 + [f"model:{names[1]}"] * 2
            await consistent(hf, "s")
        check_requests(down)
        check_requests(up)


async def test_a_call_that_takes_too_long_ends_its_request() -> None:
    async def dawdle(_: Any) -> str:
        await anyio.sleep_forever()
        return "never"

    with ProviderServer(dawdle) as server:
        async with opened() as (hf, _):
            agent = Agent(
                at(server, "openai:gpt-5.2"),
                settings={"timeout_ms": 300},
                retry={"max_retries": 0},
            )
            run = await agent.run("Go.", session="s", runtime=hf)
            assert (run.status, run.error.code) == ("failed", "MODEL_TIMEOUT")
            (end,) = await said(hf, "s", "effect_result")
            assert end["usage"]["estimated"] is True
