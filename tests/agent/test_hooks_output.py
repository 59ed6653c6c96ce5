"""Hooks at the points of an agent's structured output."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.agent.hooks_support import at, decisions, model, once, ran, texts

import holdfast
from holdfast import Agent
from holdfast.gate.hooks import HookInput
from holdfast.models.script import say

BEFORE, AFTER = "before_structured_output_validation", "after_structured_output_validation"


class Count(BaseModel):
    """How many."""

    n: int


async def test_hints_go_to_the_model_that_has_to_repair_its_output() -> None:
    asked = list[HookInput]()
    one = at(
        BEFORE,
        lambda q: q.request("modify_validation_hints", "Digits, not words."),
        "modify_validation_hints",
        asked=asked,
    )
    asks = model(say("many"), say('{"n": "one"}'), say('{"n": 1}'))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, output=Count))
        assert run.output == Count(n=1)
        assert texts(asks.requests[2])[-1].endswith("Digits, not words.")
    # Words that are no output are none: only what was given as one is looked at.
    assert [q.result for q in asked] == ['{"n": "one"}', '{"n": 1}']


async def test_a_hook_wants_another_output_than_one_that_fits() -> None:
    asked = list[HookInput]()
    again = once(lambda q: q.retry("There are two."))
    one = at(AFTER, again, "request_retry", asked=asked)
    asks = model(say("some"), say('{"n": 1}'), say('{"n": 2}'))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, output=Count))
        assert (run.status, run.output) == ("completed", Count(n=2))
        assert "There are two" in texts(asks.requests[2])[-1]
        assert [q.result for q in asked] == [{"n": 1}, {"n": 2}]
        assert await decisions(hf, run) == [(AFTER, "accepted")]


async def test_a_hook_wants_another_output_than_the_answer_itself() -> None:
    one = at(AFTER, once(lambda q: q.retry("There are two.")), "request_retry")
    asks = model(say('{"n": 1}'), say('{"n": 2}'))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, output=Count))
        assert (run.status, run.output) == ("completed", Count(n=2))
        assert "There are two" in texts(asks.requests[1])[-1]


async def test_the_same_wish_twice_ends_the_asking() -> None:
    one = at(AFTER, lambda q: q.retry("Never good enough."), "request_retry")
    asks = model(*[say('{"n": 1}')] * 5)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, output=Count))
        assert run.status == "completed"
        assert "Never good enough" in str(run.result.output_error)
    assert len(asks.requests) == 3


async def test_a_hook_that_fails_at_the_output_ends_the_run() -> None:
    def fails(question: HookInput) -> Any:
        raise RuntimeError("broken")

    one = at(AFTER, fails, "request_retry", failure="fail_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say('{"n": 1}')), output=Count))
        assert (run.status, run.result.cause) == ("failed", "HookFailure")


@pytest.mark.parametrize("point", [BEFORE, AFTER])
async def test_a_run_stands_at_its_output_until_the_hook_is_repaired(point: str) -> None:
    broken, asks = [True], model(say('{"n": 1}'))

    def fails(question: HookInput) -> Any:
        if broken:
            raise RuntimeError("broken")

    right = "modify_validation_hints" if point == BEFORE else "request_retry"
    one = at(point, fails, right, failure="interrupt_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, output=Count))
        assert (run.status, run.result.cause) == ("needs_attention", "HookFailure")
        broken.clear()
        run = await run.resume()
        assert (run.status, run.output) == ("completed", Count(n=1))
    assert len(asks.requests) == 1


async def test_stop_run_at_the_question_for_the_output_ends_the_run() -> None:
    """A guard that says stop is not overruled because the run has answered in words already."""
    one = at(
        "before_model_call",
        lambda q: q.stop_run("no", "No more.") if len(q.messages or ()) > 1 else None,
        "stop_run",
    )
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("one"), say('{"n": 1}')), output=Count))
        assert (run.status, run.result.cause, run.text) == ("failed", "HookDenied", "one")
