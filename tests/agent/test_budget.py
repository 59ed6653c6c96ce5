"""What a run, a session, or many runs together may use: set aside before, settled after, and a clear stop."""

from typing import Any

import anyio
import pytest
from tests.agent.loop_support import (
    consistent,
    opened,
    questions,
    records,
    results,
    said,
    scripted,
    tools,
    used,
    written,
)
from tests.gate.support import FailsAt

import holdfast
from holdfast import Agent, HoldfastError, capability
from holdfast.contracts.model import ModelAnswer, ModelProfile, ModelRequest
from holdfast.errors import JournalError
from holdfast.journal import MemoryJournal
from holdfast.testing import after, call, cut, say, together, write_code

FAN = 50
ROOM = 10


class World:
    """What was done to it, and how much of that at once."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def send(self, **terms: Any) -> Any:
        async def send(n: int) -> int:
            """Send something."""
            self.done.append(n)
            await anyio.sleep(0.001)
            return n

        return capability(send, **{"side_effect": "external_system", **terms})


async def account(hf: holdfast.Runtime, key: str) -> dict[str, Any]:
    row: Any = await hf.journal.row("budgets", key)
    return row or {}


def stands(run: Any) -> bool:
    """Whether a run stands because a budget is used up."""
    end = (run.status, run.result.cause, run.error.code if run.error else None)
    return end == ("needs_attention", "BudgetExhausted", "BUDGET_EXCEEDED")


# -- tokens -----------------------------------------------------------------------------------------


async def test_tokens_is_enforced_and_the_answer_that_crosses_it_is_kept() -> None:
    model = scripted(
        together(say("First."), call("search_tools", query="x"), usage=used(900, 300)), "never"
    )
    async with opened() as (hf, _):
        run = await Agent(model, budget={"tokens": 1000}, settings={"max_tokens": 50}).run(
            "go", session="s", runtime=hf
        )
        assert stands(run)
        assert (run.text, run.result.turns) == ("First.", 2)
        assert (run.usage.input_tokens, run.usage.output_tokens) == (900, 300)
        assert len(model.requests) == 1
        assert "raise" in run.error.hint
        assert run.messages[1].role == "assistant"
        await consistent(hf, "s")


async def test_a_run_that_stands_goes_on_once_its_budget_is_raised(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/j.db"
    lines = (call("search_tools", query="x"), say("done"))

    def agent(tokens: int) -> Agent[str]:
        model = scripted(*lines, usage=used(900, 90))
        return Agent(model, budget={"tokens": tokens}, settings={"max_tokens": 100})

    async with opened(url) as (hf, _):
        run = await agent(1000).run("go", session="s", runtime=hf)
        assert stands(run)
    async with opened(url) as (hf, _):
        again = await agent(1000).resume(run.id, runtime=hf)
        assert stands(again)  # nobody raised it
        again = await agent(5000).resume(run.id, runtime=hf)
        assert (again.status, again.output, again.error) == ("completed", "done", None)
        assert again.result.turns == 2
        assert again.usage.input_tokens == 1800
        await consistent(hf, "s")
        ends = [one.kind for one in await records(hf, "s") if one.kind == "run_completed"]
        assert ends == ["run_completed"]


async def test_a_new_run_ends_one_that_stands_without_a_budget() -> None:
    model = scripted(call("search_tools", query="x"), say("new"), usage=used(900, 90))
    async with opened() as (hf, _):
        poor = Agent(model, budget={"tokens": 1000}, settings={"max_tokens": 100})
        first = await poor.run("go", session="s", runtime=hf)
        assert stands(first)
        second = await Agent(model).run("something else", session="s", runtime=hf)
        assert (second.status, second.output) == ("completed", "new")
        # It is over: an orderly stop, with what it had said by then.
        ended = await poor.resume(first, runtime=hf)
        assert (ended.status, ended.result.cause) == ("completed", "BudgetExhausted")
        assert ended.error.code == "BUDGET_EXCEEDED"
        await consistent(hf, "s")


async def test_a_run_that_stands_without_a_budget_can_be_cancelled() -> None:
    async with opened() as (hf, _):
        run = await Agent(scripted("never"), budget={"tokens": 1}).run(
            "go", session="s", runtime=hf
        )
        assert stands(run)
        await hf.runs.cancel(run.id)
        row = await hf.journal.row("runs", run.id)
        assert row is not None
        assert row["status"] == "cancelled"


async def test_an_answer_may_be_no_longer_than_there_is_room_for() -> None:
    model = scripted(say("ok", usage=used(10, 10)))
    async with opened() as (hf, _):
        await Agent(model, budget={"tokens": 1000}, code_mode=False).run(
            "go", session="s", runtime=hf
        )
        allowed = model.requests[0].settings.max_tokens
        (intent,) = await said(hf, "s", "effect_intent")
        assert allowed is not None
        assert 900 < allowed < 1000
        assert intent["reserved"]["tokens"] == 1000


async def test_what_was_asked_for_is_not_made_longer() -> None:
    model = scripted(say("ok", usage=used(10, 10)))
    async with opened() as (hf, _):
        agent = Agent(model, budget={"tokens": 100_000}, settings={"max_tokens": 77})
        await agent.run("go", session="s", runtime=hf)
        assert model.requests[0].settings.max_tokens == 77


async def test_without_a_budget_nobody_bounds_an_answer() -> None:
    model = scripted(say("ok"))
    async with opened() as (hf, _):
        await Agent(model, budget={"calls": 3}).run("go", session="s", runtime=hf)
        assert model.requests[0].settings.max_tokens is None


async def test_an_answer_that_the_budget_cut_short_says_so() -> None:
    def author(request: ModelRequest) -> ModelAnswer:
        limit = request.settings.max_tokens or 0
        return ModelAnswer.model_validate(
            {
                "parts": [{"kind": "text", "text": "So far"}],
                "finish": "length",
                "usage": {"input_tokens": 10, "output_tokens": limit},
            }
        )

    async with opened() as (hf, _):
        run = await Agent(written(author), budget={"tokens": 900}).run(
            "go", session="s", runtime=hf
        )
        assert (run.status, run.result.cause) == ("completed", "BudgetExhausted")
        assert (run.output, run.error.code) == ("So far", "BUDGET_EXCEEDED")
        assert (await account(hf, f"run:{run.id}"))["tokens"] <= 900


async def test_a_bad_guess_is_made_better() -> None:
    """A provider that counts more tokens than we do is believed."""
    model = scripted(*[call("search_tools", query="x")] * 30, usage=used(3000, 20))
    async with opened() as (hf, _):
        run = await Agent(model, budget={"tokens": 20_000}, settings={"max_tokens": 100}).run(
            "go", session="s", runtime=hf
        )
        assert stands(run)
        assert (await account(hf, f"run:{run.id}"))["tokens"] <= 20_000


# -- money, calls, time -----------------------------------------------------------------------------


async def test_cost_micros_is_enforced() -> None:
    """A model with a price: what it may cost is set aside, and what it cost is taken."""
    model = scripted(*[call("search_tools", query="x")] * 50, usage=used(400, 100))
    prices = {"scripted:script": {"input_micros": 1_000_000, "output_micros": 4_000_000}}
    async with opened() as (hf, _):
        agent = Agent(
            model, budget={"cost_micros": 4000}, settings={"max_tokens": 200}, prices=prices
        )
        run = await agent.run("go", session="s", runtime=hf)
        assert stands(run)
        assert 3000 < run.usage.cost_micros <= 4000
        assert run.usage.cost_micros == 800 * len(model.requests)
        intents = await said(hf, "s", "effect_intent")
        assert all(one["reserved"]["cost_micros"] > 0 for one in intents if one.get("reserved"))
        # The last answer was allowed to be shorter, not to cost more than there was.
        bounds = [one.settings.max_tokens or 0 for one in model.requests]
        assert bounds[0] == 200 > bounds[-1]
        assert bounds == sorted(bounds, reverse=True)


async def test_calls_is_enforced_and_the_model_is_told() -> None:
    world = World()
    model = scripted(*[call("send", n=n) for n in range(3)], say("I stop."))
    async with opened() as (hf, _):
        agent = tools(model, world.send(), budget={"calls": 2})
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output, world.done) == ("completed", "I stop.", [0, 1])
        last = (await results(hf, "s"))[-1]
        assert last.is_error
        assert "Of the run's 2 calls, 0 are left" in last.text
        await consistent(hf, "s")


async def test_wall_ms_is_enforced() -> None:
    model = scripted(after(60_000, "too late"))
    async with opened() as (hf, _):
        run = await Agent(model, budget={"wall_ms": 30}).run("go", session="s", runtime=hf)
        assert stands(run)


async def test_what_a_session_may_use_holds_for_its_runs_and_their_code() -> None:
    world = World()
    code = "for n in range(3):\n    await send(n)"
    model = written(lambda r: write_code(code) if r.messages[-1].role == "user" else say("ok"))
    async with opened(capabilities=[world.send()]) as (hf, _):
        agent = Agent(model, setup={"budget": {"calls": 7, "tokens": 100_000}})
        for _ in range(3):
            await agent.run("go", session="s", runtime=hf)
        assert len(world.done) == 7
        row = await account(hf, "s")
        assert (row["calls"], row["held_calls"], row["held_tokens"]) == (7, 0, 0)
        assert row["tokens"] > 0
        await consistent(hf, "s")


async def test_code_and_model_use_up_one_and_the_same() -> None:
    """What code spent between two questions is gone when the second is asked."""

    @capability(side_effect="none", cost_micros=600)
    async def buy() -> int:
        """Buy something."""
        return 1

    model = scripted(
        write_code("await buy()"), say("never"), id="openai:gpt-4o", usage=used(1, 1, 300)
    )
    async with opened(capabilities=[buy]) as (hf, _):
        agent = Agent(model, setup={"budget": {"cost_micros": 1100}}, settings={"max_tokens": 20})
        run = await agent.run("go", session="s", runtime=hf)
        assert stands(run)
        row = await account(hf, "s")
        assert row["cost_micros"] == 900


# -- warnings ---------------------------------------------------------------------------------------


async def test_most_of_a_budget_is_warned_about_once() -> None:
    world = World()
    model = scripted(*[call("send", n=n) for n in range(9)], say("ok"), usage=used(90, 0))
    async with opened() as (hf, _):
        agent = tools(
            model, world.send(), budget={"calls": 10, "tokens": 1000}, settings={"max_tokens": 20}
        )
        await agent.run("go", session="s", runtime=hf)
        told = await said(hf, "s", "budget_warned")
        assert [(one["of"], one["unit"], one["limit"]) for one in told] == [
            ("run", "calls", 10),
            ("run", "tokens", 1000),
        ]
        assert told[0]["used"] == 8


async def test_a_warning_is_not_repeated_by_the_next_run() -> None:
    model = scripted(*[say("ok", usage=used(300, 0))] * 3)
    async with opened() as (hf, _):
        agent = Agent(
            model, setup={"budget": {"tokens": 1700}}, settings={"max_tokens": 20}, code_mode=False
        )
        for _ in range(3):
            await agent.run("go", session="s", runtime=hf)
        assert await said(hf, "s", "budget_warned") == []
        agent = Agent(
            scripted(*["x"] * 3, *[say("ok", usage=used(300, 0))] * 2),
            setup={"budget": {"tokens": 1700}},
            settings={"max_tokens": 20},
            code_mode=False,
        )
        for _ in range(2):
            await agent.run("go", session="s", runtime=hf)
        told = await said(hf, "s", "budget_warned")
        assert [(one["of"], one["unit"], one["used"]) for one in told] == [
            ("session", "tokens", 1500)
        ]


# -- accounts ---------------------------------------------------------------------------------------


async def test_an_account_must_be_opened() -> None:
    async with opened() as (hf, _):
        with pytest.raises(HoldfastError, match="no account `team`"):
            await Agent(scripted("x")).run("go", session="s", account="team", runtime=hf)


async def test_runs_use_an_account_up_together() -> None:
    model = scripted(say("ok", usage=used(400, 10)))
    async with opened() as (hf, _):
        await hf.agents.open_account("team", {"tokens": 1000})
        agent = Agent(model, settings={"max_tokens": 20})
        ends = [
            await agent.run("go", session=f"s{n}", account="team", runtime=hf) for n in range(4)
        ]
        assert [run.status for run in ends] == ["completed"] * 2 + ["needs_attention"] * 2
        assert (await account(hf, "account:team"))["tokens"] == 820
        await hf.agents.open_account("team", {"tokens": 5000})
        for run in ends[2:]:
            again = await run.resume()
            assert (again.status, again.output) == ("completed", "ok")
        row = await account(hf, "account:team")
        assert (row["tokens"], row["held_tokens"], row["held_wall_ms"]) == (1640, 0, 0)


# -- fan-out: never more than there is --------------------------------------------------------------


def many(n: int) -> Any:
    return together(*[call("send", n=one) for one in range(n)])


async def test_fifty_calls_at_once_with_room_for_ten() -> None:
    world = World()
    async with opened() as (hf, _):
        agent = tools(scripted(many(FAN), say("ok")), world.send(), budget={"calls": ROOM})
        run = await agent.run("go", session="s", runtime=hf)
        assert run.output == "ok"
        assert len(world.done) == ROOM
        shown = await results(hf, "s")
        assert (len(shown), sum(one.is_error for one in shown)) == (FAN, FAN - ROOM)
        row = await account(hf, f"run:{run.id}")
        assert (row["calls"], row["held_calls"]) == (ROOM, 0)
        await consistent(hf, "s")


GATHER = f"""
import asyncio
async def one(n):
    try:
        return await send(n)
    except Exception:
        return -1
result = await asyncio.gather(*[one(n) for n in range({FAN})])
"""


@pytest.mark.parametrize("whose", ["run", "session", "account"])
async def test_fifty_calls_at_once_in_code_with_room_for_ten(whose: str) -> None:
    world = World()
    setup: dict[str, Any] = {"limits": {"max_external_calls": 100}}
    terms: dict[str, Any] = {"budget": {"calls": ROOM}} if whose == "run" else {}
    if whose == "session":
        setup["budget"] = {"calls": ROOM}
    async with opened() as (hf, _):
        await hf.agents.open_account("team", {"calls": ROOM})
        agent = Agent(
            scripted(write_code(GATHER), say("ok")),
            capabilities=[world.send()],
            setup=setup,
            **terms,
        )
        run = await agent.run(
            "go", session="s", runtime=hf, account="team" if whose == "account" else None
        )
        assert run.output == "ok"
        assert len(world.done) == ROOM
        assert (await results(hf, "s"))[0].text.count("-1") == FAN - ROOM
        await consistent(hf, "s")


async def test_fifty_sessions_on_one_account_with_room_for_ten_calls() -> None:
    world = World()
    async with opened() as (hf, _):
        await hf.agents.open_account("team", {"calls": ROOM})
        agent = tools(scripted(call("send", n=1), say("ok")), world.send())
        async with anyio.create_task_group() as group:
            for n in range(FAN):

                async def one(n: int = n) -> None:
                    run = await agent.run("go", session=f"s{n}", account="team", runtime=hf)
                    assert run.output == "ok"

                group.start_soon(one)
        assert len(world.done) == ROOM
        row = await account(hf, "account:team")
        assert (row["calls"], row["held_calls"]) == (ROOM, 0)
        for n in range(FAN):
            await consistent(hf, f"s{n}")


async def test_fifty_sessions_on_one_account_with_tokens_for_ten() -> None:
    """No answer is asked for that might cross the line: what is set aside at once is never more than there is."""
    peak, under_way = 0, 0

    async def author(request: ModelRequest) -> ModelAnswer:
        nonlocal peak, under_way
        under_way += 1
        peak = max(peak, under_way)
        await anyio.sleep(0.02)
        under_way -= 1
        return ModelAnswer.model_validate(
            {
                "parts": [{"kind": "text", "text": "ok"}],
                "usage": {"input_tokens": 1, "output_tokens": 99},
            }
        )

    async with opened() as (hf, _):
        agent = Agent(written(author), settings={"max_tokens": 990}, code_mode=False)
        await hf.agents.open_account("team", {"tokens": 1000 * ROOM})
        ends: list[str] = []
        async with anyio.create_task_group() as group:
            for n in range(FAN):

                async def one(n: int = n) -> None:
                    run = await agent.run("go", session=f"s{n}", account="team", runtime=hf)
                    ends.append(run.status)

                group.start_soon(one)
        row = await account(hf, "account:team")
        assert row["tokens"] == 100 * ends.count("completed") <= 1000 * ROOM
        assert row["held_tokens"] == 0
        assert peak <= ROOM + 1
        assert set(ends) <= {"completed", "needs_attention"}
        assert await questions(hf, "s0")


@pytest.mark.parametrize("mode", ["question", "call", "code"])
async def test_what_an_account_had_no_room_for_is_not_done_by_whoever_goes_on(mode: str) -> None:
    """The process dies after the journal refused an effect, and before that is told: it stays refused."""
    world, inner = World(), MemoryJournal()
    lines = {
        "question": [say("never")],
        "call": [call("send", n=1), say("ok")],
        "code": [write_code("await send(1)"), say("ok")],
    }[mode]
    agent = Agent(scripted(*lines), capabilities=[world.send()], code_mode=mode == "code")
    nth = 1 if mode == "question" else 2
    limits = {"tokens": 1} if mode == "question" else {"calls": 0}
    async with opened(inner) as (hf, _):
        await hf.agents.open_account("team", limits)
    with pytest.raises(JournalError, match="The disk is gone"):
        async with opened(FailsAt(inner, "effect_result", nth)) as (hf, _):
            await agent.run("go", session="s", account="team", runtime=hf)
    async with opened(inner) as (hf, _):
        (row,) = [r for r in await hf.journal.rows("runs") if r.value["kind"] == "agent"]
        run = await agent.resume(row.key, runtime=hf)
        assert world.done == []
        if mode == "question":
            assert stands(run)
            assert "account `team`" in run.error.message
        else:
            assert run.output == "ok"
            assert "BUDGET_EXCEEDED" in (await results(hf, "s"))[0].text
        assert (await account(hf, "account:team"))["held_calls"] == 0
        await consistent(hf, "s")


async def test_a_cut_answer_gives_back_what_it_did_not_use() -> None:
    async with opened() as (hf, _):
        model = scripted(cut("Half"), say("whole"))
        run = await Agent(model, budget={"tokens": 50_000}).run("go", session="s", runtime=hf)
        row = await account(hf, f"run:{run.id}")
        assert (run.output, row["held_tokens"]) == ("whole", 0)
        assert row["tokens"] == run.usage.input_tokens + run.usage.output_tokens


async def test_the_window_of_a_model_bounds_what_is_set_aside() -> None:
    model = scripted(say("ok"), profile=ModelProfile(max_output_tokens=123))
    async with opened() as (hf, _):
        await Agent(model, budget={"tokens": 50_000}).run("go", session="s", runtime=hf)
        assert model.requests[0].settings.max_tokens == 123
