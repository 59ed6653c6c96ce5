"""What a session may use in all: over runs, calls at once, restarts; and the answer that crosses the line is kept."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.support import ASKS_NOT, World, approve, parked, said

import holdfast
from holdfast import RunResult, capability


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def code_of(run: RunResult) -> str | None:
    return run.error.code if run.error else None


def budget(**terms: int) -> dict[str, Any]:
    return {"budget": terms}


async def test_calls_is_enforced_across_runs() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        setup = budget(calls=3)
        assert (await hf.shell.run("look('a')\nlook('b')", setup=setup)).status == "ok"
        run = await hf.shell.run("look('c')\nlook('d')")
        assert (run.status, code_of(run)) == ("resource_exhausted", "BUDGET_EXCEEDED")
        assert code_of(await hf.shell.run("look('e')")) == "BUDGET_EXCEEDED"
        assert (await hf.shell.run("1 + 1")).result == 2  # computing needs no call
        assert (await hf.shell.run("look('f')", session="other")).status == "ok"
    assert world.done == ["look a", "look b", "look c", "look f"]


async def test_budget_can_be_caught() -> None:
    world = World()
    text = "look()\ntry:\n    look()\nexcept Exception as why:\n    result = str(why)"
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        run = await hf.shell.run(text, setup=budget(calls=1))
        assert run.status == "ok"
        assert "1 calls, 0 are left" in str(run.result)
        assert [one.status for one in run.external_calls] == ["ok", "error"]


async def test_calls_is_enforced_across_a_restart(url: str) -> None:
    world = World()
    for at in "abcd":
        async with holdfast.open(url, {}, capabilities=[world.look()]) as hf:
            await hf.shell.run(f"look({at!r})", session="s", setup=budget(calls=2))
    assert world.done == ["look a", "look b"]


async def test_calls_is_enforced_for_calls_at_once() -> None:
    world = World()
    text = """
import asyncio
async def one(n):
    try:
        return await asend(str(n))
    except Exception as why:
        return "no"
result = await asyncio.gather(*[one(n) for n in range(6)])
"""
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.asend()]) as hf:
        run = await hf.shell.run(text, setup=budget(calls=4))
        assert isinstance(run.result, list)
        assert run.result.count("no") == 2
    assert len(world.done) == 4


async def test_declared_cost_is_set_aside() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.charge(cost_micros=40)]) as hf:
        run = await hf.shell.run("for n in 'abc':\n    charge(n)", setup=budget(cost_micros=100))
        assert (run.status, code_of(run)) == ("resource_exhausted", "BUDGET_EXCEEDED")
        intents = await said(hf, run, "effect_intent")
        assert intents[0]["reserved"]["cost_micros"] == 40
        results = await said(hf, run, "effect_result")
        assert results[0]["spent"]["cost_micros"] == 40
    assert world.done == ["a", "b"]


async def test_real_cost_is_settled() -> None:
    """What was set aside and not used can be used by the next call."""
    world = World()
    tool = world.charge(costs=10, cost_micros=40)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run(
            "for n in 'abcdefghi':\n    charge(n)", setup=budget(cost_micros=100)
        )
        assert code_of(run) == "BUDGET_EXCEEDED"
        row = await hf.journal.row("budgets", "default")
        assert row is not None
        assert (row["cost_micros"], row["held_cost_micros"]) == (70, 0)
    assert len(world.done) == 7  # 60 used, 40 set aside: the last one that fits


async def test_answer_that_crosses_is_kept() -> None:
    world = World()
    tool = world.charge(costs=500, cost_micros=40)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run("result = charge('a')", setup=budget(cost_micros=100))
        assert (run.status, run.result) == ("ok", "a")
        (result,) = await said(hf, run, "effect_result")
        assert result["spent"]["cost_micros"] == 500
        assert code_of(await hf.shell.run("charge('b')")) == "BUDGET_EXCEEDED"
    assert world.done == ["a"]


async def test_a_negative_cost_gives_nothing_back() -> None:
    world = World()
    tool = world.charge(costs=-1000, cost_micros=60)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        await hf.shell.run("charge('a')", setup=budget(cost_micros=100))
        row = await hf.journal.row("budgets", "default")
        assert row is not None
        assert row["cost_micros"] == 0


async def test_cost_micros_is_enforced_across_a_restart(url: str) -> None:
    world = World()
    for n in "abc":
        async with holdfast.open(url, {}, capabilities=[world.charge(cost_micros=40)]) as hf:
            await hf.shell.run(f"charge({n!r})", session="s", setup=budget(cost_micros=100))
    assert world.done == ["a", "b"]


async def test_wall_ms_budget_is_enforced() -> None:
    """A call gets no more time than is left, and none once nothing is."""
    done = list[str]()

    async def slow(n: str) -> str:
        done.append(n)
        await anyio.sleep_forever()
        return n

    tool = capability(slow, side_effect="read", timeout_ms=60_000)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run("await slow('a')", setup=budget(wall_ms=100))
        assert code_of(run) == "TIMEOUT_TOOL"
        (result,) = await said(hf, run, "effect_result")
        assert result["spent"]["wall_ms"] >= 100
        assert code_of(await hf.shell.run("await slow('b')")) == "BUDGET_EXCEEDED"
    assert done == ["a"]


async def test_wall_ms_budget_is_shared_by_calls_at_once() -> None:
    """What is set aside for one call is not there for another."""

    async def slow(n: int) -> int:
        await anyio.sleep_forever()
        return n

    text = """
import asyncio
async def one(n):
    try:
        await slow(n)
    except TimeoutError:
        return "slow"
    except Exception:
        return "no"
result = await asyncio.gather(*[one(n) for n in range(3)])
"""
    tool = capability(slow, side_effect="read", timeout_ms=100)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run(text, setup=budget(wall_ms=150))
        assert run.result == ["slow", "slow", "no"]


async def test_waiting_for_a_person_costs_no_budget() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, setup=budget(wall_ms=60_000, calls=1))
        row = await hf.journal.row("budgets", "s")
        assert row is None  # nothing is set aside before somebody said yes
        assert (await approve(hf, run)).status == "ok"
        row = await hf.journal.row("budgets", "s")
        assert row is not None
        assert row["calls"] == 1


async def test_refused_calls_cost_nothing() -> None:
    world = World()
    config = {"policy": {"rules": [{"id": "x", "where": "args.at == 'x'", "then": "deny"}]}}
    text = """
for at in ["x", "x", "a", "x", "b"]:
    try:
        look(at)
    except PermissionError:
        pass
"""
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        assert (await hf.shell.run(text, setup=budget(calls=2))).status == "ok"
    assert world.done == ["look a", "look b"]


async def test_failed_call_is_counted() -> None:
    def fails() -> str:
        raise ValueError("no")

    tool = capability(fails, side_effect="read", cost_micros=10)
    text = "for n in range(3):\n    try:\n        fails()\n    except ValueError:\n        pass"
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        assert code_of(await hf.shell.run(text, setup=budget(calls=2))) == "BUDGET_EXCEEDED"


async def test_effect_in_doubt_keeps_what_was_set_aside(url: str) -> None:
    async def hang() -> str:
        await anyio.sleep_forever()
        return ""

    tool = capability(hang, side_effect="write", timeout_ms=30, cost_micros=60)
    setup = budget(cost_micros=100)
    async with holdfast.open(url, ASKS_NOT, capabilities=[tool]) as hf:
        run = await hf.shell.run("await hang()", session="s", setup=setup)
        assert run.status == "interrupted"
    async with holdfast.open(url, ASKS_NOT, capabilities=[tool]) as hf:
        row = await hf.journal.row("budgets", "s")
        assert row is not None
        assert (row["held_cost_micros"], row["cost_micros"]) == (60, 0)
        await hf.runs.resolve(str(run.run_id), run.in_doubt[0], "did_not_happen")
        row = await hf.journal.row("budgets", "s")
        assert row is not None
        assert row["held_cost_micros"] == 0


async def test_budget_that_is_used_up_meets_an_approval() -> None:
    """The approval is used up all the same, and nothing stays open."""
    world = World()
    text = "send('a')\nsend('b')"
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, text, setup=budget(calls=1))
        run = await approve(hf, await approve(hf, run))
        assert code_of(run) == "BUDGET_EXCEEDED"
        assert await hf.approvals.list() == []
        for effect in await hf.runs.effects(str(run.run_id)):
            assert effect.status not in ("open", "unknown")
    assert world.done == ["a"]


async def test_replay_costs_nothing(url: str) -> None:
    """A run that is taken up again is not charged for what it did before."""
    world = World()
    tools = [world.look(), world.send()]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        run = await parked(hf, "look('a')\nsend('b')\nlook('c')", setup=budget(calls=3))
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        assert (await approve(hf, run)).status == "ok"
        row = await hf.journal.row("budgets", "s")
        assert row is not None
        assert (row["calls"], row["held_calls"]) == (3, 0)
