"""The life of models: met in a thread, named by id once, their keys hidden, their prices known, closed at the end."""

import gc
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.agent.loop_support import ASKS_NOT, said, used
from tests.agent.providers_support import at, look, opened

import holdfast
from holdfast import Agent
from holdfast.agent.agents import Agents
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.models.catalog import model
from holdfast.testing import ProviderServer, ScriptedModel, call, cut, fail, say, together

ID = "openai:gpt-5.2"


class Client:
    """A model with a connection."""

    def __init__(self, *script: Any, id: str = "own:client", secret: str | None = None) -> None:
        self.id = id
        self.closed = 0
        self.threads: list[int] = []
        """Where its profile was read."""
        self.inner = ScriptedModel(script, keep_requests=True)
        self._secret = secret

    @property
    def profile(self) -> ModelProfile:
        self.threads.append(threading.get_ident())
        return self.inner.profile

    def secrets(self) -> dict[str, str]:
        return {} if self._secret is None else {"CLIENT_KEY": self._secret}

    async def request(self, request: ModelRequest) -> ModelAnswer:
        return await self.inner.request(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelAnswer]:
        async for item in self.inner.stream(request):
            yield item

    async def aclose(self) -> None:
        self.closed += 1


# -- connections ------------------------------------------------------------------------------------------


async def test_models_are_closed_with_the_runtime() -> None:
    asked, spare, other = Client(fail("MODEL_AUTH")), Client("Hello."), Client("never")
    async with holdfast.open("memory:", ASKS_NOT) as hf:
        agent = Agent(asked, fallbacks=[spare])
        run = await agent.run("Go.", runtime=hf)
        await agent.run("Go.", runtime=hf)
        assert run.output == "Hello."
        assert (asked.closed, spare.closed) == (0, 0)
    assert (asked.closed, spare.closed, other.closed) == (1, 1, 0)


async def test_a_model_that_two_runtimes_ask_is_closed_by_the_last() -> None:
    shared = Client("Hello.")
    async with holdfast.open("memory:", ASKS_NOT) as one:
        await Agent(shared).run("Go.", runtime=one)
        async with holdfast.open("memory:", ASKS_NOT) as other:
            await Agent(shared).run("Go.", runtime=other)
        assert shared.closed == 0
        await Agent(shared).run("Go.", runtime=one)
    assert shared.closed == 1


async def test_one_that_can_not_be_closed_keeps_no_other_open() -> None:
    class Stuck(Client):
        async def aclose(self) -> None:
            raise RuntimeError("no")

    async def run() -> None:
        async with holdfast.open("memory:", ASKS_NOT) as hf:
            for one in (other, stuck):
                await Agent(one).run("Go.", runtime=hf)

    stuck, other = Stuck("Hello."), Client("Hello.")
    with pytest.raises(RuntimeError, match="no"):
        await run()
    assert other.closed == 1


def test_no_socket_is_left_open_by_runs_that_open_their_own_runtime() -> None:
    with ProviderServer(["Hello."]) as server:
        agent = Agent(at(server, ID), url="memory:", config=ASKS_NOT)
        for _ in range(2):
            assert agent.run_sync("Go.").output == "Hello."
    gc.collect()  # a socket that is still open warns, and warnings are errors


async def test_agents_that_name_the_same_model_share_its_client() -> None:
    found: list[str] = []

    def find(id: str) -> Client:
        found.append(id)
        return Client("Hello.", id=id)

    async with holdfast.open("memory:", ASKS_NOT) as hf:
        agents = Agents(hf.shell, model=find)
        for session in ("a", "b"):
            await agents.run(Agent("own:client").definition(), "Go.", session=session)
        await agents.close()
    assert found == ["own:client"]


async def test_a_profile_is_first_read_in_a_thread() -> None:
    asked, spare = Client(fail("MODEL_AUTH")), Client("Hello.")
    async with holdfast.open("memory:", ASKS_NOT) as hf:
        await Agent(asked, fallbacks=[spare]).run("Go.", runtime=hf)
    for one in (asked, spare):
        assert one.threads[0] != threading.get_ident()


async def test_a_spare_model_is_not_met_before_it_is_needed() -> None:
    spare = Client("never")
    async with holdfast.open("memory:", ASKS_NOT) as hf:
        await Agent(Client("Hello."), fallbacks=[spare]).run("Go.", runtime=hf)
    assert spare.threads == []


# -- keys -------------------------------------------------------------------------------------------------


async def test_a_key_that_a_model_repeats_is_not_recorded() -> None:
    key = "sk-sentinel-a81b4d"
    async with holdfast.open("memory:", ASKS_NOT) as hf:
        agent = Agent(Client(f"My key is {key}.", secret=key))
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.output == "My key is [secret:CLIENT_KEY]."
        assert key not in repr(run.messages)


async def test_a_key_that_comes_in_pieces_is_shown_to_nobody() -> None:
    key = "sk-sentinel-a81b4d-of-more-than-one-piece"
    client = Client(
        together(f"My key is {key}, I think.", call("look", item=key)), "Well.", secret=key
    )
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[look]) as hf:
        agent = Agent(client, code_mode=False)
        async with agent.stream("Go.", session="s", runtime=hf) as stream:
            events = [event async for event in stream]
        text = "".join(one.text for one in events if one.kind == "text_delta")
        assert text == "My key is [secret:CLIENT_KEY], I think.Well."
        written = "".join(one.text for one in events if one.kind == "tool_call_delta")
        assert written == '{"item": "[secret:CLIENT_KEY]"}'


@pytest.mark.parametrize("word", ["none", "client"])
async def test_a_word_in_place_of_a_key_is_no_secret(word: str) -> None:
    async with holdfast.open("memory:", ASKS_NOT) as hf:
        agent = Agent(Client(f"Say {word}.", secret=word))
        run = await agent.run(f"What of {word}?", session="s", runtime=hf)
        assert run.output == f"Say {word}."


# -- questions --------------------------------------------------------------------------------------------


async def test_every_question_says_which_attempt_it_is() -> None:
    client = Client(call("look", item="a"), fail("MODEL_OVERLOADED"), cut("So"), say("Done."))
    async with opened() as (hf, _):
        run = await Agent(client, capabilities=[look], code_mode=False).run("Go.", runtime=hf)
        assert run.output == "Done."
        assert [one.attempt for one in client.inner.requests] == [1, 1, 2, 3]


# -- money ------------------------------------------------------------------------------------------------

LIMIT = {"cost_micros": 1_000_000}
FREE = {"input_micros": 0, "output_micros": 0}


@pytest.mark.parametrize("whose", ["run", "session", "account"])
@pytest.mark.parametrize("place", ["model", "fallback"])
async def test_a_limit_on_money_needs_a_price(whose: str, place: str) -> None:
    with ProviderServer(["Hello."]) as server:
        unknown = at(server, ID)
        more: dict[str, Any] = {"budget": LIMIT} if whose == "run" else {}
        if whose == "session":
            more["setup"] = {"budget": LIMIT}
        account = "team" if whose == "account" else None
        models = [unknown] if place == "model" else [ScriptedModel(["never"]), unknown]
        async with opened() as (hf, _):
            await hf.agents.open_account("team", LIMIT)
            agent = Agent(models[0], fallbacks=models[1:], **more)
            with pytest.raises(holdfast.HoldfastError) as caught:
                await agent.run("Go.", session="s", runtime=hf, account=account)
            assert caught.value.code == "PRICE_UNKNOWN"
            assert unknown in caught.value.message
            assert "prices=" in (caught.value.hint or "")
            assert await said(hf, "s", "run_started") == []
            assert server.requests == []
            priced = Agent(unknown, prices={unknown: FREE}, **more)
            run = await priced.run("Go.", session="s", runtime=hf, account=account)
            assert run.output == "Hello."


async def test_other_limits_need_no_price() -> None:
    with ProviderServer(["Hello."]) as server:
        async with opened() as (hf, _):
            agent = Agent(at(server, ID), budget={"tokens": 100_000, "calls": 5})
            run = await agent.run("Go.", runtime=hf)
            assert run.output == "Hello."


async def test_money_is_limited_by_the_declared_price() -> None:
    script = [
        together(call("look", item="a"), usage=used(100_000, 1_000)),
        say("never", usage=used(100_000, 1_000)),
    ]
    with ProviderServer(script) as server:
        name = at(server, ID)
        price = {"input_micros": 1_000_000, "output_micros": 2_000_000}
        async with opened() as (hf, _):
            agent = Agent(
                name,
                capabilities=[look],
                code_mode=False,
                prices={name: price},
                budget={"cost_micros": 103_000},
            )
            run = await agent.run("Go.", session="s", runtime=hf)
            assert (run.status, run.error.code) == ("needs_attention", "BUDGET_EXCEEDED")
            assert run.usage.cost_micros == 102_000
            assert len(server.requests) == 1


async def test_an_answer_that_breaks_off_is_paid_for_by_estimate() -> None:
    with ProviderServer([cut("So far so good"), say("Done.", usage=used(50, 5))]) as server:
        name = at(server, ID)
        price = {"input_micros": 1_000_000, "output_micros": 2_000_000}
        async with opened() as (hf, _):
            agent = Agent(name, prices={name: price}, budget=LIMIT)
            async with agent.stream("Go.", session="s", runtime=hf) as stream:
                run = await stream.run()
            broken, whole = await said(hf, "s", "effect_result")
            first, _ = await said(hf, "s", "effect_intent")
            usage, spent = broken["usage"], broken["spent"]
            assert usage["estimated"] is True
            assert usage["output_tokens"] == len("So far so good") // 4
            cost = usage["input_tokens"] + 2 * usage["output_tokens"]
            assert (usage["cost_micros"], spent["cost_micros"]) == (cost, cost)
            assert spent["cost_micros"] <= first["reserved"]["cost_micros"]
            assert spent["tokens"] <= first["reserved"]["tokens"]
            assert whole["usage"]["cost_micros"] == 60
            assert run.usage.cost_micros == cost + 60


async def test_a_refused_question_costs_nothing() -> None:
    with ProviderServer([fail("MODEL_RATE_LIMITED"), "Hello."]) as server:
        async with opened() as (hf, _):
            await Agent(at(server, ID)).run("Go.", session="s", runtime=hf)
            refused, _ = await said(hf, "s", "effect_result")
            assert refused["usage"] == {"input_tokens": 0, "output_tokens": 0}


async def test_prices_are_on_record_for_whoever_goes_on_with_the_run() -> None:
    asks = {"policy": {"rules": [{"id": "all", "tool": "look", "then": "ask"}]}}
    script = [call("look", item="a"), say("Done.", usage=used(1_000, 0))]
    with ProviderServer(script) as server:
        name = at(server, ID)
        async with opened(config=asks, capabilities=[look]) as (hf, _):
            prices = {name: {"input_micros": 1_000_000, "output_micros": 0}}
            agent = Agent(name, code_mode=False, prices=prices, budget=LIMIT)
            run = await agent.run("Go.", session="s", runtime=hf)
            before = run.usage.cost_micros
            await hf.approvals.decide(run.approvals[0], "approved", actor="amy")
            elsewhere = Agents(hf.shell, model=model)
            found = await elsewhere.resume(run.id)
            await elsewhere.close()
            assert (found.text, found.usage.cost_micros) == ("Done.", before + 1_000)
