"""A model that fails is asked again: how patiently, how often, and what is on record of it."""

from typing import Any

import pytest
from tests.agent.loop_support import consistent, opened, questions, said, scripted, tools

from holdfast import Agent
from holdfast.runtime.embedded import Thinking
from holdfast.testing import ScriptedModel, after, call, cut, fail, say

OVERLOADED, LIMITED = "MODEL_OVERLOADED", "MODEL_RATE_LIMITED"
FAILED, DONE = ("model:scripted:script", "failed"), ("model:scripted:script", "completed")


async def test_every_attempt_is_an_effect_of_its_own() -> None:
    model = scripted(fail(OVERLOADED), cut("Half an"), fail("MODEL_TIMEOUT"), say("Here."))
    async with opened() as (hf, naps):
        run = await Agent(model).run("go", session="s", runtime=hf)
        assert (run.status, run.output, run.result.turns) == ("completed", "Here.", 1)
        assert await questions(hf, "s") == [FAILED, FAILED, FAILED, DONE]
        told = await said(hf, "s", "model_retry")
        assert [one["attempt"] for one in told] == [1, 2, 3]
        assert len({one["effect_id"] for one in told}) == 3
        assert [one["delay_ms"] for one in told] == naps.ms
        for delay, base in zip(naps.ms, (500, 1000, 2000), strict=True):
            assert base * 0.9 <= delay <= base * 1.1
        await consistent(hf, "s")


async def test_max_retries_is_enforced() -> None:
    model = scripted(*[fail(OVERLOADED)] * 9, say("never"))
    async with opened() as (hf, naps):
        run = await Agent(model, retry={"max_retries": 2}).run("go", session="s", runtime=hf)
        assert (run.status, run.result.cause) == ("failed", "RetryExhausted")
        assert run.error.code == OVERLOADED
        assert len(naps.ms) == 2
        assert len(model.requests) == 3


@pytest.mark.parametrize(
    "code",
    ["MODEL_AUTH", "MODEL_UNKNOWN", "MODEL_CONTENT_FILTERED", "MODEL_INVALID_REQUEST"],
)
async def test_what_asking_again_can_not_mend_is_not_asked_again(code: str) -> None:
    model = scripted(fail(code), say("never"))
    async with opened() as (hf, naps):
        run = await Agent(model).run("go", session="s", runtime=hf)
        assert (run.status, run.result.cause, run.error.code) == ("failed", "LlmFailure", code)
        assert (naps.ms, len(model.requests)) == ([], 1)


async def test_a_longer_wish_of_the_server_wins() -> None:
    model = scripted(
        fail(OVERLOADED, retry_after_ms=7000), fail(LIMITED, retry_after_ms=61_000), "ok"
    )
    async with opened() as (hf, naps):
        await Agent(model).run("go", session="s", runtime=hf)
        assert naps.ms == [7000, 61_000]
        assert [one["hint_ms"] for one in await said(hf, "s", "model_retry")] == naps.ms


async def test_a_rate_limit_is_left_alone_for_half_a_minute() -> None:
    model = scripted(fail(LIMITED), fail(LIMITED, retry_after_ms=10), say("ok"))
    async with opened() as (hf, naps):
        await Agent(model).run("go", session="s", runtime=hf)
        assert naps.ms == [30_000, 30_000]
        assert all(one["floor"] for one in await said(hf, "s", "model_retry"))


async def test_no_wait_is_longer_than_the_run_has_left() -> None:
    model = scripted(fail(LIMITED), say("ok"))
    async with opened() as (hf, naps):
        run = await Agent(model, timeout_ms=5000).run("go", session="s", runtime=hf)
        assert run.status == "completed"
        assert naps.ms[0] <= 5000
        assert (await said(hf, "s", "model_retry"))[0]["capped"] is True


async def test_timeout_ms_of_a_call_is_enforced_and_the_call_made_again() -> None:
    model = scripted(after(60_000, "too late"))
    async with opened() as (hf, naps):
        run = await Agent(model, settings={"timeout_ms": 20}, retry={"max_retries": 1}).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.result.cause) == ("failed", "RetryExhausted")
        assert len(naps.ms) == 1


async def test_timeout_ms_of_a_run_is_enforced_and_ends_it() -> None:
    model = scripted(after(60_000, "too late"))
    async with opened() as (hf, naps):
        run = await Agent(model, timeout_ms=30, settings={"timeout_ms": 50_000}).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.result.cause) == ("failed", "TimeBudgetExceeded")
        assert run.error.code == "TIMEOUT_WALL"
        assert naps.ms == []


async def test_a_run_of_one_turn_may_still_try_again() -> None:
    async with opened() as (hf, _):
        model = scripted(fail(OVERLOADED), say("ok"))
        run = await Agent(model, max_turns=1).run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "ok")


async def test_max_turns_is_enforced() -> None:
    model = scripted(*[call("search_tools", query="x")] * 5)
    async with opened() as (hf, _):
        run = await Agent(model, max_turns=3).run("go", session="s", runtime=hf)
        assert (run.status, run.result.cause) == ("failed", "TurnLimitReached")
        assert (run.error.code, run.result.turns) == ("MAX_TURNS", 3)
        # The conversation is kept: somebody may ask it to go on.
        other = scripted(*["x"] * 3, say("done"))
        assert (await Agent(other).run("go on", session="s", runtime=hf)).output == "done"
        await consistent(hf, "s")


async def test_attempts_before_a_crash_count(tmp_path: Any) -> None:
    """A process that dies while it waits does not begin to count anew."""

    class Dead(Exception):
        pass

    async def dies(_: float) -> None:
        raise Dead

    from dataclasses import replace

    from holdfast.agent.agents import Agents
    from holdfast.models.catalog import model as find

    url = f"sqlite:///{tmp_path}/j.db"
    lines = [*[fail(OVERLOADED)] * 3, say("ok")]
    agent = tools(scripted(*lines), retry={"max_retries": 2})
    async with opened(url) as (hf, _):
        dying = replace(hf, _thinking=Thinking(hf.shell, Agents(hf.shell, model=find, sleep=dies)))
        with pytest.raises(Dead):
            await agent.run("go", session="s", runtime=dying)
        (row,) = await hf.journal.rows("runs")
    async with opened(url) as (hf, naps):
        run = await agent.resume(row.key, runtime=hf)
        assert (run.status, run.result.cause) == ("failed", "RetryExhausted")
        assert len(naps.ms) == 1
        assert await questions(hf, "s") == [FAILED] * 3
        turns = {one["turn"] for one in await said(hf, "s", "effect_intent")}
        assert turns == {1}


async def test_usage_of_an_answer_that_broke_off_is_counted() -> None:
    async with opened() as (hf, _):
        run = await Agent(scripted(cut("Half an answer"), say("All of it."))).run(
            "go", session="s", runtime=hf
        )
        row = await hf.journal.row("runs", run.id)
        assert row is not None
        assert run.usage.output_tokens == row["usage"]["output_tokens"]  # type: ignore[index]
        assert run.usage.input_tokens == row["usage"]["input_tokens"]  # type: ignore[index]


async def test_a_model_that_raises_what_it_should_not_is_named() -> None:
    """Nobody can tell what it means, so it is not tried again; who wrote the model is told what it should raise."""

    class Odd(ScriptedModel):
        async def request(self, request: Any) -> Any:
            raise ZeroDivisionError("by zero")

    async with opened() as (hf, naps):
        run = await Agent(Odd(["x"], id="scripted:odd")).run("go", session="s", runtime=hf)
        assert (run.status, run.error.code, naps.ms) == ("failed", "TOOL_ERROR", [])
        assert run.error.message == "`scripted:odd` raised ZeroDivisionError: by zero"
        assert "ModelFailure" in run.error.hint
        assert await questions(hf, "s") == [("model:scripted:odd", "failed")]
