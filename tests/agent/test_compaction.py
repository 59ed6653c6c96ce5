"""A conversation that gets long is told in short: what stays, what is on record, how it is undone."""

from itertools import pairwise
from typing import Any

import pytest
from tests.agent.loop_support import (
    consistent,
    opened,
    questions,
    records,
    said,
    scripted,
    sums_up,
    tools,
    used,
    written,
)

from holdfast import Agent, HoldfastError, capability
from holdfast.agent.transcript import COMPACTED
from holdfast.contracts.message import TextPart, UserMessage, check_messages
from holdfast.contracts.model import ModelAnswer, ModelProfile, ModelRequest
from holdfast.errors import ModelFailure
from holdfast.testing import call, fail, say

SUMMARY = "We looked around a lot."
SHORT = {"at_tokens": 400, "keep_turns": 2, "min_turns_between": 1}


@capability(side_effect="none")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at} " + "x" * 300


def looking(turns: int, *, summary: Any = SUMMARY) -> Any:
    """A model that looks around so many times in a run, then is done; asked to, it sums up."""

    def author(request: ModelRequest) -> Any:
        if sums_up(request):
            return summary() if callable(summary) else summary
        prompts = [m for m in request.messages if isinstance(m, UserMessage) and not m.notice]
        last = prompts[-1] if prompts else None
        after = request.messages[request.messages.index(last) :] if last else request.messages
        n = request.answered if request.answered is not None else 0
        n = max(n, sum(m.role == "assistant" for m in after))
        return call("look", at=str(n)) if n < turns else say("done")

    return written(author)


def compacted(request: ModelRequest) -> UserMessage | None:
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return first if first.text.startswith(COMPACTED) else None


async def test_it_is_told_in_short_and_goes_on() -> None:
    model = looking(8)
    async with opened() as (hf, _):
        run = await tools(model, look, compact=SHORT, instructions="Be brief.").run(
            "Look at everything.", session="s", runtime=hf
        )
        assert (run.status, run.output) == ("completed", "done")
        told = await said(hf, "s", "context_compacted")
        assert told
        for one in told:
            assert one["before"] != one["after"]
            assert one["tokens_after"] < one["tokens_before"]
        for request in model.requests:
            assert check_messages(request.messages) is None
            assert request.instructions.startswith("Be brief.")
        # However often it is shortened, what the run is to do stays word for word.
        for first in filter(None, map(compacted, model.requests[-3:])):
            assert "The user asked: Look at everything." in first.text
            assert SUMMARY in first.text
        await consistent(hf, "s")


async def test_what_a_summary_used_is_counted() -> None:
    model = looking(8)
    model._usage = used(10, 5)
    async with opened() as (hf, _):
        run = await tools(model, look, compact=SHORT).run("go", session="s", runtime=hf)
        asked = len(await questions(hf, "s"))
        assert asked > run.result.turns
        assert (run.usage.input_tokens, run.usage.output_tokens) == (10 * asked, 5 * asked)
        row = await hf.journal.row("runs", run.id)
        assert row is not None
        assert row["usage"]["input_tokens"] == 10 * asked  # type: ignore[index]


async def test_a_summary_is_paid_from_the_budget() -> None:
    model = looking(8)
    async with opened() as (hf, _):
        run = await tools(model, look, compact=SHORT, budget={"tokens": 100_000}).run(
            "go", session="s", runtime=hf
        )
        row = await hf.journal.row("budgets", f"run:{run.id}")
        assert row is not None
        assert row["tokens"] == run.usage.input_tokens + run.usage.output_tokens
        assert row["held_tokens"] == 0


@pytest.mark.parametrize("wrong", [fail("MODEL_OVERLOADED"), say("  "), fail("MODEL_AUTH")])
async def test_a_summary_that_fails_changes_nothing(wrong: Any) -> None:
    model = looking(6, summary=lambda: wrong)
    async with opened() as (hf, _):
        how = {**SHORT, "min_turns_between": 4}
        run = await tools(model, look, compact=how).run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        assert await records(hf, "s", "context_compacted") == []
        assert len(run.messages) == 14
        # Nor is it tried at every question.
        assert sum(map(sums_up, model.requests)) == 1
        await consistent(hf, "s")


async def test_a_summary_that_a_budget_cut_short_changes_nothing() -> None:
    bounds = list[int | None]()

    def author(request: ModelRequest) -> Any:
        if not sums_up(request):
            return call("look", at="it") if len(request.messages) < 13 else say("done")
        bounds.append(request.settings.max_tokens)
        return ModelAnswer(parts=(TextPart(text="We look"),), finish="length")

    agent = tools(written(author), look, compact=SHORT, budget={"tokens": 5000})
    async with opened() as (hf, _):
        run = await agent.run("go", session="s", runtime=hf)
        assert bounds
        assert all(one is not None and one < 4096 for one in bounds)
        assert run.messages[0].text == "go"
        assert not await records(hf, "s", "context_compacted")


async def test_compact_none_is_enforced() -> None:
    model = looking(8)
    async with opened() as (hf, _):
        await tools(model, look, compact=None).run("go", session="s", runtime=hf)
        assert not any(map(sums_up, model.requests))


async def test_min_turns_between_is_enforced() -> None:
    model = looking(10)
    async with opened() as (hf, _):
        how = {"at_tokens": 100, "keep_turns": 1, "min_turns_between": 4}
        await tools(model, look, compact=how).run("go", session="s", runtime=hf)
        places = [n for n, one in enumerate(filter(None, model.requests)) if sums_up(one)]
        assert len(places) >= 2
        assert all(b - a >= 5 for a, b in pairwise(places))


async def test_what_the_provider_counts_is_what_counts() -> None:
    """Our guess may be too low; the provider's figure is not."""
    model = scripted(*[say("short", usage=used(5000, 5))] * 4)
    async with opened() as (hf, _):
        agent = Agent(model, compact={"at_tokens": 4000, "keep_turns": 1, "min_turns_between": 1})
        for n in range(3):
            await agent.run(f"question {n}", session="s", runtime=hf)
        assert await records(hf, "s", "context_compacted") != []
        await consistent(hf, "s")


async def test_a_conversation_of_short_runs_is_shortened_too() -> None:
    model = written(lambda request: SUMMARY if sums_up(request) else "y" * 400)
    async with opened() as (hf, _):
        agent = Agent(model, compact={"at_tokens": 500, "keep_turns": 2, "min_turns_between": 2})
        for n in range(12):
            await agent.run(f"question {n}", session="s", runtime=hf)
        assert len(await records(hf, "s", "context_compacted")) >= 2
        assert len((await hf.agents.messages("s")).messages) < 10
        await consistent(hf, "s")


async def test_pins_stay_word_for_word() -> None:
    model = written(lambda request: SUMMARY if sums_up(request) else "y" * 400)
    async with opened() as (hf, _):
        agent = Agent(model, compact={"at_tokens": 300, "keep_turns": 1, "min_turns_between": 1})
        await agent.run("question", session="s", runtime=hf)
        kept = await hf.agents.pin("s", "The order number is A-17.")
        gone = await hf.agents.pin("s", "Ann is on leave.")
        assert [one.text for one in await hf.agents.pins("s")] == [
            "The order number is A-17.",
            "Ann is on leave.",
        ]
        for n in range(4):
            await agent.run(f"question {n}", session="s", runtime=hf)
        first = compacted(model.requests[-1])
        assert first is not None
        assert "Pinned: The order number is A-17." in first.text
        assert "Ann is on leave." in first.text
        await hf.agents.unpin(gone)
        for n in range(4):
            await agent.run(f"question {n}", session="s", runtime=hf)
        first = compacted(model.requests[-1])
        assert first is not None
        assert "A-17" in first.text
        assert "Ann is on leave." not in first.text
        assert [one.id for one in await hf.agents.pins("s")] == [kept]
        await consistent(hf, "s")


async def test_pins_that_can_not_be() -> None:
    async with opened() as (hf, _):
        with pytest.raises(HoldfastError, match="no session"):
            await hf.agents.pin("nowhere", "x")
        await Agent(scripted("a")).run("q", session="s", runtime=hf)
        for text in ("", " ", "x" * 8001):
            with pytest.raises(HoldfastError, match="between 1 and 8000"):
                await hf.agents.pin("s", text)
        with pytest.raises(HoldfastError, match="no pin"):
            await hf.agents.unpin("pin_1")
        one = await hf.agents.pin("s", "x")
        await hf.agents.unpin(one)
        with pytest.raises(HoldfastError, match="no pin"):
            await hf.agents.unpin(one)


async def test_a_session_of_the_same_name_has_no_pins_of_the_old_one() -> None:
    async with opened() as (hf, _):
        await Agent(scripted("a")).run("q", session="s", runtime=hf)
        await hf.agents.pin("s", "x")
        await hf.shell.destroy("s")
        await Agent(scripted("a")).run("q", session="s", runtime=hf)
        assert await hf.agents.pins("s") == []


async def test_it_can_be_undone() -> None:
    model = looking(6)
    async with opened() as (hf, _):
        agent = tools(model, look, compact={**SHORT, "min_turns_between": 3})
        run = await agent.run("Look at everything.", session="s", runtime=hf)
        short = len(run.messages)
        whole = await hf.agents.restore_context("s")
        assert len(whole.messages) == 14 > short
        assert check_messages(whole.messages) is None
        (told,) = await said(hf, "s", "context_restored")
        assert told["after"] == whole.digest
        # What is told at length is not told at length again.
        assert (await hf.agents.restore_context("s")).digest == whole.digest
        assert len(await records(hf, "s", "context_restored")) == 1
        again = await Agent(scripted(*["x"] * 7, "and so on"), compact=None).run(
            "Go on.", session="s", runtime=hf
        )
        assert again.output == "and so on"
        assert len(again.messages) == 16
        assert len({m.model_dump_json() for m in again.messages[:14]}) == 14
        await consistent(hf, "s")


async def test_a_compacted_conversation_is_the_same_in_another_process(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/j.db"
    async with opened(url) as (hf, _):
        await tools(looking(8), look, compact=SHORT).run("go", session="s", runtime=hf)
    model = scripted(*["x"] * 9, say("still here"))
    async with opened(url) as (hf, _):
        before = await hf.agents.messages("s")
        run = await tools(model, look, compact=None).run("and?", session="s", runtime=hf)
        assert run.output == "still here"
        assert list(model.requests[0].messages[:-1]) == before.messages
        await consistent(hf, "s")


def too_long(limit: int, turns: int) -> Any:
    """A model that takes so many characters of conversation and no more."""
    inner = looking(turns)

    def author(request: ModelRequest) -> Any:
        size = sum(len(m.model_dump_json()) for m in request.messages)
        if size > limit:
            raise ModelFailure("MODEL_CONTEXT_EXCEEDED", f"{size} is too long.")
        return inner._author(request)

    return written(author)


async def test_a_conversation_that_does_not_fit_is_shortened_and_asked_again() -> None:
    model = too_long(4000, 12)
    async with opened() as (hf, naps):
        run = await tools(model, look).run("Look at everything.", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        assert run.result.turns == 13
        assert await records(hf, "s", "context_compacted") != []
        assert naps.ms == []
        failed = [end for _, end in await questions(hf, "s") if end == "failed"]
        assert len(failed) >= len(await records(hf, "s", "context_compacted"))
        await consistent(hf, "s")


async def test_what_does_not_fit_even_so_goes_to_a_model_that_takes_more() -> None:
    small = written(
        lambda _: fail("MODEL_CONTEXT_EXCEEDED"),
        id="scripted:small",
        profile=ModelProfile(context_tokens=100),
    )
    same = scripted("no", id="scripted:same", profile=ModelProfile(context_tokens=100))
    large = scripted("yes", id="scripted:large", profile=ModelProfile(context_tokens=10_000))
    async with opened() as (hf, _):
        agent = Agent(small, fallbacks=[same, large])
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "yes")


async def test_what_fits_nowhere_fails() -> None:
    async with opened() as (hf, _):
        run = await Agent(scripted(fail("MODEL_CONTEXT_EXCEEDED"))).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.error.code) == ("failed", "MODEL_CONTEXT_EXCEEDED")
        assert run.result.cause == "LlmFailure"
