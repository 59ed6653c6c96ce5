"""A run that must give a value of some shape: taken as it is, mended, asked for, repaired, or told to be missing."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.agent.loop_support import consistent, opened, questions, said, scripted, used

from holdfast import Agent, capability
from holdfast.contracts.message import TextPart
from holdfast.contracts.model import ModelAnswer
from holdfast.machines.texts import EXTRACTION_PROMPT
from holdfast.testing import call, cut, fail, say, write_code


class Invoice(BaseModel):
    number: str
    cents: int = Field(ge=0)


@dataclass
class Line:
    text: str
    cents: int


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
GOOD = '{"number": "A1", "cents": 500}'
NEGATIVE = '{"number": "A1", "cents": -5}'


def asked(model: Any) -> list[bool]:
    """Which questions were held to the shape."""
    return [one.output is not None for one in model.requests]


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        (Invoice, GOOD, Invoice(number="A1", cents=500)),
        (Line, '{"text": "ink", "cents": 5}', Line("ink", 5)),
        (list[int], "[1, 2, 3]", [1, 2, 3]),
        (SCHEMA, '{"n": 5}', {"n": 5}),
        (int, "5", 5),
        (str, "Five of them.", "Five of them."),
        (str, '"Five."', '"Five."'),
        (Annotated[str, Field(max_length=20)], "Five of them.", "Five of them."),
        (Literal["yes", "no"], "no", "no"),
        (date, "2026-02-03", date(2026, 2, 3)),
    ],
)
async def test_an_answer_that_fits_is_taken_as_it_is(shape: Any, text: str, value: Any) -> None:
    model = scripted(text)
    async with opened() as (hf, _):
        run: Any = await Agent(model, output=shape).run("go", session="s", runtime=hf)
        assert (run.status, run.result.output_error) == ("completed", None)
        assert run.output == value
        assert type(run.output) is type(value)
        assert (run.text, run.result.turns) == (text, 1)
        assert asked(model) == [False]


async def test_it_is_asked_for_once_the_work_is_done() -> None:
    model = scripted(write_code("500"), say("It is number A1 over 5.00."), say(GOOD))
    async with opened() as (hf, _):
        run = await Agent(model, output=Invoice, instructions="Be brief.").run(
            "go", session="s", runtime=hf
        )
        assert run.output == Invoice(number="A1", cents=500)
        assert asked(model) == [False, False, True]
        last = model.requests[-1]
        assert last.messages[-1].text == EXTRACTION_PROMPT
        assert (list(last.tools), last.settings.temperature) == ([], 0.0)
        assert last.instructions == "Be brief."
        (checked,) = await said(hf, "s", "output_checked")
        assert checked["valid"] is True
        await consistent(hf, "s")


async def test_almost_json_is_mended() -> None:
    model = scripted(say("Done."), say("Here:\n```json\n{'number': \"A1\", cents: 500,}\n```"))
    async with opened() as (hf, _):
        run = await Agent(model, output=Invoice).run("go", session="s", runtime=hf)
        assert run.output == Invoice(number="A1", cents=500)
        (checked,) = await said(hf, "s", "output_checked")
        assert checked["repaired"] is True


async def test_what_does_not_fit_is_repaired_by_the_model() -> None:
    model = scripted("Done.", "no json at all", NEGATIVE, GOOD)
    async with opened() as (hf, _):
        run = await Agent(model, output=Invoice).run("go", session="s", runtime=hf)
        assert run.output == Invoice(number="A1", cents=500)
        checked = await said(hf, "s", "output_checked")
        assert [(one["attempt"], one["valid"]) for one in checked] == [
            (1, False),
            (2, False),
            (3, True),
        ]
        told = model.requests[-1].messages[-1]
        assert told.role == "user"
        assert "cents" in told.text
        await consistent(hf, "s")


async def test_output_retries_is_enforced() -> None:
    wrong = ["nothing", NEGATIVE, '{"number": 5}', GOOD]
    async with opened() as (hf, _):
        run = await Agent(scripted("Done.", *wrong), output=Invoice, output_retries=2).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.result.cause) == ("completed", None)  # the work itself was done
        assert run.output is None
        assert run.result.output_error
        assert run.result.partial == '{"number": 5}'
        assert len(await questions(hf, "s")) == 4
        await consistent(hf, "s")


async def test_the_same_mistake_twice_is_the_end() -> None:
    async with opened() as (hf, _):
        model = scripted("Done.", NEGATIVE, NEGATIVE, GOOD)
        run = await Agent(model, output=Invoice, output_retries=5).run(
            "go", session="s", runtime=hf
        )
        assert run.output is None
        assert run.result.partial == NEGATIVE
        assert len(model.requests) == 3
        assert (await said(hf, "s", "output_checked"))[-1]["stop"]


async def test_calls_in_place_of_the_output_are_the_end() -> None:
    async with opened() as (hf, _):
        model = scripted("Done.", call("search_tools", query="x"), GOOD)
        run = await Agent(model, output=Invoice).run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", None)
        assert "tool calls instead of JSON: search_tools" in str(run.result.output_error)
        await consistent(hf, "s")
        # The conversation is still one that a provider takes.
        again = await Agent(scripted("x", "y", "ok")).run("go on", session="s", runtime=hf)
        assert again.output == "ok"
        await consistent(hf, "s")


@pytest.mark.parametrize("code", ["MODEL_AUTH", "MODEL_INVALID_REQUEST"])
async def test_a_model_that_fails_meanwhile_does_not_fail_the_run(code: str) -> None:
    async with opened() as (hf, _):
        run = await Agent(scripted("Done.", fail(code), GOOD), output=Invoice).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.output) == ("completed", None)
        assert run.result.output_error
        assert run.text == "Done."


async def test_a_question_for_it_is_retried_like_any_other() -> None:
    async with opened() as (hf, naps):
        model = scripted("Done.", fail("MODEL_OVERLOADED"), cut('{"num'), GOOD)
        run = await Agent(model, output=Invoice).run("go", session="s", runtime=hf)
        assert run.output == Invoice(number="A1", cents=500)
        assert len(naps.ms) == 2
        await consistent(hf, "s")


async def test_a_budget_that_ends_meanwhile_ends_the_run_without_it() -> None:
    async with opened() as (hf, _):
        model = scripted(say("Done.", usage=used(950, 10)), GOOD)
        run = await Agent(
            model, output=Invoice, budget={"tokens": 1000}, settings={"max_tokens": 50}
        ).run("go", session="s", runtime=hf)
        assert (run.status, run.output, run.text) == ("completed", None, "Done.")
        assert "tokens" in str(run.result.output_error)


@capability(side_effect="external_system")
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


async def test_it_is_of_the_type_after_a_resume(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/j.db"

    def agent() -> Agent[Invoice]:
        model = scripted(write_code("await send('ann')"), "Done.", NEGATIVE, GOOD)
        return Agent(model, output=Invoice, capabilities=[send])

    async with opened(url, {}) as (hf, _):
        run = await agent().run("go", session="s", runtime=hf)
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
    async with opened(url, {}) as (hf, _):
        run = await agent().resume(run.id, runtime=hf)
        assert run.output == Invoice(number="A1", cents=500)
        again = await agent().resume(run.id, runtime=hf)  # it is over: this is what it gave
        assert again.output == run.output
        await consistent(hf, "s")


async def test_each_run_of_a_session_has_a_shape_of_its_own() -> None:
    async with opened() as (hf, _):
        one: Any = await Agent(scripted(GOOD), output=Invoice).run("a", session="s", runtime=hf)
        two: Any = await Agent(scripted("x", "[1]"), output=list[int]).run(
            "b", session="s", runtime=hf
        )
        three = await Agent(scripted("x", "y", "words")).run("c", session="s", runtime=hf)
        assert one.output == Invoice(number="A1", cents=500)
        assert two.output == [1]
        assert three.output == "words"
        await consistent(hf, "s")


@pytest.mark.parametrize(
    ("shape", "short", "whole", "value"),
    [
        (list[str], '["ink", "paper"', '["ink", "paper", "glue"]', ["ink", "paper", "glue"]),
        (Annotated[str, Field(min_length=3)], "Ink, pap", "Ink, paper.", "Ink, paper."),
    ],
)
async def test_an_answer_that_ended_at_its_length_limit_is_asked_for_again(
    shape: Any, short: str, whole: str, value: Any
) -> None:
    ends = ModelAnswer(parts=(TextPart(text=short),), finish="length")
    model = scripted(ends, ends, whole)
    async with opened() as (hf, _):
        run: Any = await Agent(model, output=shape).run("go", session="s", runtime=hf)
        assert (run.status, run.output, run.result.output_error) == ("completed", value, None)
        assert asked(model) == [False, True, True]
        checked = [one["valid"] for one in await said(hf, "s", "output_checked")]
        assert checked == [False, True]
