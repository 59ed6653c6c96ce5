"""Whole runs through the real client libraries, against servers that speak the providers' protocols."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.agent.loop_support import consistent, results, said, used
from tests.agent.providers_support import IDS, at, check_requests, look, opened, ran

import holdfast
from holdfast import Agent
from holdfast.contracts.message import AssistantMessage, ThinkingPart
from holdfast.models.script import Line, TextPart
from holdfast.testing import ProviderServer, call, say, together, write_code

STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
PROTOCOL = pytest.mark.parametrize("id", IDS)


@STREAMING
@PROTOCOL
async def test_a_model_that_writes_code(id: str, streaming: bool) -> None:
    script = [
        together("First a look.", write_code("found = await look('leaf')\nfound")),
        write_code("found.upper("),
        write_code("found.upper()"),
        say("LEAF IS GREEN"),
    ]
    with ProviderServer(script) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, id), instructions="Be brief.", capabilities=[look])
            run, events = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.output, run.result.turns) == ("completed", "LEAF IS GREEN", 4)
            first, broken, mended = await results(hf, "s")
            assert "leaf is green" in first.text
            assert broken.is_error
            assert "SYNTAX_ERROR" in broken.text
            assert "LEAF IS GREEN" in mended.text
            await consistent(hf, "s")
        told = "".join(one.text for one in events if one.kind == "text_delta")
        assert told == ("First a look.LEAF IS GREEN" if streaming else "")
        assert len(server.requests) == 4
        check_requests(server)


@STREAMING
@PROTOCOL
async def test_a_model_that_calls_tools_side_by_side(id: str, streaming: bool) -> None:
    script = [
        together("All three.", call("look", item="a"), call("look", item="b"), call("nowhere")),
        together(call("look", item="c")),
        say("Done."),
    ]
    with ProviderServer(script) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, id), capabilities=[look], code_mode=False)
            run, _ = await ran(agent, hf, streaming=streaming)
            assert (run.status, run.output) == ("completed", "Done.")
            found = await results(hf, "s")
            assert [one.is_error for one in found] == [False, False, True, False]
            assert ["green" in one.text for one in found] == [True, True, False, True]
            again = await agent.run("And now?", session="s", runtime=hf)
            assert again.status == "failed"  # the script has no more to say; the question was valid
            await consistent(hf, "s")
        check_requests(server)
        assert len(server.requests) == 4


class Total(BaseModel):
    total: int


@STREAMING
@PROTOCOL
async def test_an_output_is_demanded_of_a_provider_that_can_be_held_to_it(
    id: str, streaming: bool
) -> None:
    script = [call("look", item="a"), say("It is three."), say('{"total": 3}')]
    with ProviderServer(script) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, id), output=Total, capabilities=[look], code_mode=False)
            run, _ = await ran(agent, hf, streaming=streaming)
            assert run.output == Total(total=3)
        # The last question has the shape in place of the tools.
        check_requests(server, last=2)
        check_requests(server, first=2)
        asked = server.requests[2].body
        assert not asked.get("tools")
        assert shape_of(asked)["properties"]["total"]["type"] == "integer"


def shape_of(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema that a provider is to hold its model to."""
    for where in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
        ("generationConfig", "responseJsonSchema"),
    ):
        found: Any = body
        for name in where:
            found = (found or {}).get(name)
        if found is not None:
            return found
    raise AssertionError(f"no shape in {sorted(body)}")


def thought(seal: str | None) -> Line:
    thinking = ThinkingPart(text="Let me see.", signature=seal, id="rs_1", provider="any")
    return Line((thinking, TextPart(text="A leaf?")))


@STREAMING
@pytest.mark.parametrize(
    ("id", "stranger"),
    [
        ("anthropic:claude-opus-4-6", "openai:gpt-5.2"),
        ("openai-responses:gpt-5.2", "anthropic:claude-opus-4-6"),
    ],
)
async def test_thoughts_go_back_to_their_provider_and_to_nobody_else(
    id: str, stranger: str, streaming: bool
) -> None:
    script = [thought("c2VhbGVk"), say("Yes."), say("No.")]
    with ProviderServer(script) as own, ProviderServer(script) as other:
        async with opened() as (hf, _):
            await ran(Agent(at(own, id)), hf, streaming=streaming)
            await ran(Agent(at(own, id)), hf, streaming=streaming)
            run, _ = await ran(Agent(at(other, stranger)), hf, streaming=streaming)
            assert run.output == "No."
            first = next(one for one in run.messages if isinstance(one, AssistantMessage))
            assert [part.kind for part in first.parts] == ["thinking", "text"]
        assert "c2VhbGVk" in json.dumps(own.requests[1].body)
        told = json.dumps(other.requests[0].body)
        assert "c2VhbGVk" not in told
        assert "Let me see" not in told
        assert "A leaf?" in told
        check_requests(own)


async def test_a_thought_without_a_seal_does_not_come_back_as_words_of_the_user() -> None:
    with ProviderServer([thought(None), say("Yes.")]) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, "anthropic:claude-opus-4-6"))
            await agent.run("Go.", session="s", runtime=hf)
            await agent.run("On.", session="s", runtime=hf)
        told = server.requests[1].body["messages"]
        assert [one["role"] for one in told] == ["user", "assistant", "user"]
        assert "Let me see" not in json.dumps(told)


@PROTOCOL
async def test_usage_and_price_are_on_record(id: str) -> None:
    script = [
        together(call("look", item="a"), usage=used(1_000, 100)),
        say("Done.", usage=used(2_000, 50)),
    ]
    with ProviderServer(script) as server:
        name = at(server, id)
        prices = {name: {"input_micros": 3_000_000, "output_micros": 15_000_000}}
        async with opened() as (hf, _):
            agent = Agent(
                name,
                capabilities=[look],
                code_mode=False,
                prices=prices,
                budget={"cost_micros": 1_000_000},
            )
            run = await agent.run("Go.", session="s", runtime=hf)
            assert run.usage.input_tokens == 3_000
            assert run.usage.output_tokens == 150
            assert run.usage.cost_micros == 4_500 + 6_750
            ends = [one for one in await said(hf, "s", "effect_result") if one.get("usage")]
            assert [one["usage"]["cost_micros"] for one in ends] == [4_500, 6_750]
            assert [one["spent"]["cost_micros"] for one in ends] == [4_500, 6_750]
            row: Any = await hf.journal.row("budgets", f"run:{run.id}")
            assert (row["cost_micros"], row["held_cost_micros"]) == (11_250, 0)


SHOP = '''
import sys

import anyio

import holdfast
from holdfast import Agent, capability


@capability(side_effect="external_system")
async def send(to: str) -> dict:
    """Send."""
    with open("sent.txt", "a") as sent:
        sent.write(to + "\\n")
    return {"sent": to}


def agent(model):
    return Agent(model, instructions="Be brief.", capabilities=[send])


async def main(url, model, run_id, approval):
    async with holdfast.open(url) as hf:
        await hf.approvals.decide(approval, "approved", actor="amy")
        run = await agent(model).resume(run_id, runtime=hf)
        print(run.status, run.output)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
'''


@PROTOCOL
async def test_another_process_goes_on_with_the_same_provider(id: str, tmp_path: Path) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    spec = importlib.util.spec_from_file_location("shop", shop)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    url = f"sqlite:///{tmp_path}/journal.db"
    script = [write_code("got = await send('bob')\ngot"), write_code("got['sent']"), "Sent."]
    with ProviderServer(script) as server:
        name = at(server, id)
        async with holdfast.open(url) as hf:
            run = await module.agent(name).run("Go.", session="s", runtime=hf)
            assert run.status == "waiting_for_approval"
        command = [sys.executable, "-W", "error", str(shop), url, name, run.id, run.approvals[0]]
        done = await anyio.run_process(command, cwd=tmp_path, check=False)
        assert (done.stdout, done.stderr) == (b"completed Sent.\n", b"")
        assert (tmp_path / "sent.txt").read_text() == "bob\n"
        assert len(server.requests) == 3
        check_requests(server)
    async with holdfast.open(url) as hf:
        await consistent(hf, "s")
