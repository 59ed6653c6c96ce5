"""Once a model can't be had, the run goes on with the next that can do what it needs, and stays with it."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.agent.loop_support import (
    ASKS_NOT,
    consistent,
    opened,
    questions,
    said,
    scripted,
    tools,
    written,
)

from holdfast import Agent, capability
from holdfast.contracts.model import ModelProfile
from holdfast.testing import call, fail, say

DOWN = [fail("MODEL_OVERLOADED")] * 20


@capability(side_effect="none")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def model(name: str, *lines: Any, **facts: Any) -> Any:
    return scripted(
        *lines, id=f"scripted:{name}", profile=ModelProfile(**{"structured": True, **facts})
    )


def asked(found: list[tuple[str, str]]) -> list[str]:
    return [name.removeprefix("model:scripted:") for name, _ in found]


async def test_it_goes_on_with_the_next_and_stays_with_it() -> None:
    one, two = model("one", *DOWN), model("two", call("look", at="sky"), say("blue"))
    async with opened() as (hf, naps):
        agent = tools(one, look, fallbacks=[two], retry={"max_retries": 1})
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "blue")
        assert asked(await questions(hf, "s")) == ["one", "one", "two", "two"]
        (switch,) = await said(hf, "s", "model_switched")
        assert switch == {
            "before": "scripted:one",
            "after": "scripted:two",
            "reason": "MODEL_OVERLOADED",
        }
        assert len(naps.ms) == 2  # one wait for the first, none before the second is asked
        assert naps.ms[1] == 0
        await consistent(hf, "s")


async def test_the_chain_ends() -> None:
    chain = [model(name, *DOWN) for name in ("one", "two", "three")]
    async with opened() as (hf, _):
        agent = Agent(chain[0], fallbacks=chain[1:], retry={"max_retries": 1})
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.result.cause) == ("failed", "RetryExhausted")
        assert asked(await questions(hf, "s")) == ["one", "one", "two", "two", "three", "three"]


@pytest.mark.parametrize("code", ["MODEL_AUTH", "MODEL_UNKNOWN"])
async def test_what_waiting_can_not_mend_goes_elsewhere_at_once(code: str) -> None:
    one, two = model("one", fail(code)), model("two", say("hello"))
    async with opened() as (hf, naps):
        run = await Agent(one, fallbacks=[two]).run("go", session="s", runtime=hf)
        assert (run.output, naps.ms) == ("hello", [0])


@pytest.mark.parametrize("code", ["MODEL_CONTENT_FILTERED", "MODEL_INVALID_REQUEST"])
async def test_a_refusal_is_not_shopped_around(code: str) -> None:
    one, two = model("one", fail(code)), model("two", say("hello"))
    async with opened() as (hf, _):
        run = await Agent(one, fallbacks=[two]).run("go", session="s", runtime=hf)
        assert (run.status, run.error.code, two.requests) == ("failed", code, [])


async def test_a_model_without_tools_is_passed_over() -> None:
    one, deaf, two = model("one", *DOWN), model("deaf", "no", tools=False), model("two", "yes")
    async with opened() as (hf, _):
        agent = tools(one, look, fallbacks=[deaf, two], retry={"max_retries": 0})
        assert (await agent.run("go", session="s", runtime=hf)).output == "yes"
        (switch,) = await said(hf, "s", "model_switched")
        assert (switch["before"], switch["after"]) == ("scripted:one", "scripted:two")


async def test_a_model_that_is_too_small_is_passed_over() -> None:
    one, small, two = (
        model("one", *DOWN),
        model("small", "no", context_tokens=50),
        model("two", "yes"),
    )
    async with opened() as (hf, _):
        agent = tools(one, look, fallbacks=[small, two], retry={"max_retries": 0})
        assert (await agent.run("word " * 100, session="s", runtime=hf)).output == "yes"


class Answer(BaseModel):
    n: int


async def test_a_model_that_can_not_be_held_to_a_shape_is_passed_over() -> None:
    one, loose = model("one", *DOWN), model("loose", '{"n": 1}', structured=False)
    two = model("two", '{"n": 2}')
    async with opened() as (hf, _):
        agent = Agent(one, fallbacks=[loose, two], retry={"max_retries": 0}, output=Answer)
        assert (await agent.run("go", session="s", runtime=hf)).output == Answer(n=2)


async def test_nobody_counts_on_what_the_first_model_could_not_do() -> None:
    one = model("one", *DOWN, structured=False)
    two = model("two", '{"n": 2}', structured=False)
    async with opened() as (hf, _):
        agent = Agent(one, fallbacks=[two], retry={"max_retries": 0}, output=Answer)
        assert (await agent.run("go", session="s", runtime=hf)).output == Answer(n=2)


@capability(side_effect="external_system")
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


async def test_it_stays_with_it_after_a_resume(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/j.db"

    def agent() -> Agent[str]:
        one, two = model("one", *DOWN), model("two", call("send", to="ann"), say("done"))
        return tools(one, send, fallbacks=[two], retry={"max_retries": 0})

    async with opened(url, {}) as (hf, _):
        run = await agent().run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
    async with opened(url, {}) as (hf, _):
        run = await agent().resume(run.id, runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        assert asked(await questions(hf, "s")) == ["one", "two", "two"]


async def test_a_resume_with_other_models_begins_with_the_first_of_them() -> None:
    one, two = model("one", *DOWN), model("two", call("send", to="ann"), say("never"))
    three = model("three", "x", say("done"))
    async with opened(config={}) as (hf, _):
        agent = tools(one, send, fallbacks=[two], retry={"max_retries": 0})
        run = await agent.run("go", session="s", runtime=hf)
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        run = await tools(three, send, fallbacks=[two]).resume(run, runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        assert asked(await questions(hf, "s")) == ["one", "two", "three"]
        await consistent(hf, "s")


async def test_a_new_run_begins_with_the_first_model_again() -> None:
    one = written(lambda _: fail("MODEL_OVERLOADED"), id="scripted:one")
    two = model("two", "a", "b")
    async with opened(config=ASKS_NOT) as (hf, _):
        agent = Agent(one, fallbacks=[two], retry={"max_retries": 0})
        await agent.run("go", session="s", runtime=hf)
        await agent.run("and again", session="s", runtime=hf)
        assert asked(await questions(hf, "s")) == ["one", "two", "one", "two"]
