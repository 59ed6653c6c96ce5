"""Calls while surfaces come, go, break and change: each ends, none reaches a tool it was not meant for."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.surfaces.support import SPEC, World, opened, settled_context, tool, until

import holdfast
from holdfast.contracts import Setup, SideEffect
from holdfast.contracts.approval import Asks
from holdfast.errors import ModelError
from holdfast.gate.executor import NeedsAnswer, Question, Unsure
from holdfast.journal import MemoryJournal
from holdfast.machines.surface_types import CLOSE_OLD_MS, REMOVAL_TIMEOUT_MS
from holdfast.runtime import _surface_upkeep
from holdfast.runtime._surface_tool import SurfaceTool
from holdfast.runtime.surfaces import Surfaces


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@asynccontextmanager
async def supervised(
    world: World, *names: str, clock: Callable[[], int] | None = None
) -> AsyncGenerator[Surfaces]:
    """Surfaces without a runtime around them, all of them connected."""
    async with Surfaces.open(MemoryJournal(), world.make, now=clock) as surfaces:
        for name in names:
            await surfaces.add(name, SPEC)
        await surfaces.wait_ready()
        yield surfaces


def the(surfaces: Surfaces, name: str) -> SurfaceTool:
    """A tool as a session sees it now."""
    return next(one for one in surfaces.tools(Setup()) if one.capability.name == name)


async def call(one: SurfaceTool, n: int = 1) -> Any:
    return await one.execute({"n": n}, settled_context())


def pump(surfaces: Surfaces) -> None:
    surfaces._upkeep.pump()


async def refused(one: SurfaceTool) -> ModelError:
    with pytest.raises(ModelError) as found:
        await call(one)
    return found.value


async def test_a_lost_connection_keeps_its_tools_refuses_calls_and_is_made_again():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        one = the(surfaces, "a_one")
        world["a"].broken = OSError("503")
        world["a"].lose()
        await until(lambda: world.open == 0)
        assert surfaces.tools(Setup()) == (one,)
        why = await refused(one)
        assert why.code == "SURFACE_UNAVAILABLE"
        assert "connected again" in (why.hint or "")
        view = await surfaces.view("a")
        assert (view.status, view.tools) == ("disconnected", ("a_one",))
        clock.ms += 60_000
        pump(surfaces)  # that fails
        await anyio.wait_all_tasks_blocked()
        assert surfaces.tools(Setup()) == (one,)
        world["a"].broken = None
        pump(surfaces)  # too early
        await anyio.wait_all_tasks_blocked()
        assert world.open == 0
        clock.ms += 60_000
        pump(surfaces)
        await until(lambda: world.open == 1)
        assert (await call(one, 7))["n"] == 7  # the same tool: it is bound to no connection
        assert (await surfaces.view("a")).generation == 2


async def test_back_off_gets_longer_and_is_bounded():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        world["a"].broken = OSError("503")
        world["a"].lose()
        await until(lambda: world.open == 0)
        waits: list[int] = []
        for _ in range(10):
            again = surfaces._board.fate("a").again_at
            assert again is not None
            waits.append(again - clock.ms)
            clock.ms = again
            pump(surfaces)
            await anyio.wait_all_tasks_blocked()
        assert 450 <= waits[0] <= 550
        assert waits[3] > waits[1]
        assert all(one <= 30_000 for one in waits)
        assert waits[-1] >= 27_000


async def test_a_call_under_way_on_a_lost_connection_ends_unsure():
    world = World()
    async with supervised(world, "a") as surfaces:
        world["a"].hold = anyio.Event()
        one = the(surfaces, "a_one")
        ends: list[Exception] = []

        async def calling() -> None:
            with pytest.raises(Unsure) as found:
                await call(one)
            ends.append(found.value)

        async with anyio.create_task_group() as group:
            group.start_soon(calling)
            await until(lambda: world["a"].calls)
            world["a"].lose()
        assert len(ends) == 1
        await until(lambda: world["a"].opened == 2)
        assert (await surfaces.view("a")).inflight == 0


async def test_a_removal_waits_for_its_calls_and_takes_no_new_ones():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        world["a"].hold = hold = anyio.Event()
        one = the(surfaces, "a_one")
        given: list[Any] = []

        async def calling() -> None:
            given.append(await call(one))

        async with anyio.create_task_group() as group:
            group.start_soon(calling)
            await until(lambda: world["a"].calls)
            await surfaces.remove("a")
            await surfaces.boundary(Setup())
            assert surfaces.tools(Setup()) == ()
            assert (await refused(one)).code == "SURFACE_DRAINING"
            clock.ms += REMOVAL_TIMEOUT_MS - 1
            pump(surfaces)
            assert world.open == 1
            hold.set()
        assert given == [{"tool": "one", "n": 1}]
        await until(lambda: world.open == 0)
        why = await refused(one)
        assert why.code == "SURFACE_UNAVAILABLE"
        assert "was removed" in why.message


async def test_a_removal_is_forced_at_its_deadline():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        world["a"].hold = anyio.Event()
        one = the(surfaces, "a_one")
        async with anyio.create_task_group() as group:

            async def calling() -> None:
                with pytest.raises(Unsure):
                    await call(one)

            group.start_soon(calling)
            await until(lambda: world["a"].calls)
            await surfaces.remove("a")
            await surfaces.boundary(Setup())
            clock.ms += REMOVAL_TIMEOUT_MS
            pump(surfaces)
        await until(lambda: world.open == 0)
        _, words = surfaces.news(Setup(), None, [], 1)
        assert words == []  # who saw nothing of it is told nothing


async def test_a_replaced_connection_serves_its_calls_until_its_deadline():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        world["a"].hold = anyio.Event()
        one = the(surfaces, "a_one")

        async def calling() -> None:
            with pytest.raises(Unsure):
                await call(one)

        async with anyio.create_task_group() as group:
            group.start_soon(calling)
            await until(lambda: world["a"].calls)
            await surfaces.reload("a")
            await surfaces.wait_ready()
            assert world.open == 2
            clock.ms += CLOSE_OLD_MS
            pump(surfaces)
        await until(lambda: world.open == 1)


@pytest.mark.parametrize("relists", [False, True])
async def test_a_tool_that_changed_is_not_called_by_code_that_knows_the_old_one(relists: bool):
    world = World(relists=relists)
    world["a"].tools["two"] = tool("a_two")
    async with supervised(world, "a") as surfaces:
        one, two = the(surfaces, "a_one"), the(surfaces, "a_two")
        before = surfaces.epoch
        world["a"].change(one=tool("a_one", answer="word"), two=None, three=tool("a_three"))
        await anyio.wait_all_tasks_blocked()
        assert surfaces.epoch == before  # not before a boundary
        await surfaces.boundary(Setup())
        await until(lambda: surfaces.epoch > before)
        assert world["a"].opened == (1 if relists else 2)
        changed, gone = await refused(one), await refused(two)
        assert changed.code == gone.code == "SURFACE_UNAVAILABLE"
        assert "changed since this code was written" in changed.message
        assert "describe_tool" in (changed.hint or "")
        assert "not offered any more" in gone.message
        assert (await call(the(surfaces, "a_one")))["tool"] == "one"
        assert {one.capability.name for one in surfaces.tools(Setup())} == {"a_one", "a_three"}
        world["a"].change(four=tool("a_four"))  # and it still listens
        await anyio.wait_all_tasks_blocked()
        before = surfaces.epoch
        await surfaces.boundary(Setup())
        await until(lambda: surfaces.epoch > before)
        assert "a_four" in {one.capability.name for one in surfaces.tools(Setup())}


@pytest.mark.parametrize("relists", [False, True])
async def test_a_change_that_could_not_be_learnt_is_asked_for_again(relists: bool):
    world = World(relists=relists)
    async with supervised(world, "a") as surfaces:
        world["a"].broken = OSError("not now")
        world["a"].change(one=tool("a_one", answer="word"))
        await anyio.wait_all_tasks_blocked()
        await surfaces.boundary(Setup())
        await anyio.wait_all_tasks_blocked()
        assert (await surfaces.view("a")).status == "connected"
        world["a"].broken, before = None, surfaces.epoch
        await surfaces.boundary(Setup())
        await until(lambda: surfaces.epoch > before)
        assert (await call(the(surfaces, "a_one")))["tool"] == "one"
        world["a"].change(two=tool("a_two"))  # and it still listens
        await anyio.wait_all_tasks_blocked()
        before = surfaces.epoch
        await surfaces.boundary(Setup())
        await until(lambda: surfaces.epoch > before)
        assert "a_two" in {one.capability.name for one in surfaces.tools(Setup())}


async def test_what_stays_the_same_over_a_reload_is_the_same_object():
    world = World()
    async with supervised(world, "a") as surfaces:
        before = surfaces.tools(Setup())
        await surfaces.reload("a")
        await surfaces.wait_ready()
        assert surfaces.tools(Setup()) == before


async def test_a_connection_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch):
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        monkeypatch.setattr(_surface_upkeep, "IDLE_S", 0.0)
        pump(surfaces)
        await anyio.wait_all_tasks_blocked()
        assert (await surfaces.view("a")).status == "connected"  # it does
        world["a"].dead = True
        pump(surfaces)
        await until(lambda: world.open == 0)
        assert (await surfaces.view("a")).status == "disconnected"


async def test_after_a_call_that_took_too_long_somebody_looks():
    world = World()
    async with supervised(world, "a") as surfaces:
        world["a"].hold, world["a"].dead = anyio.Event(), True
        with anyio.move_on_after(0.05):
            await call(the(surfaces, "a_one"))
        await until(lambda: world["a"].closed == 1)
        assert (await surfaces.view("a")).status == "disconnected"


async def test_a_changed_contract_ends_the_consent_to_it(world: World):
    world["a"].tools["one"] = tool("a_one", side_effect=SideEffect.WRITE)
    asked: list[str] = []

    async def yes(request: Any) -> str:
        asked.append(request.tool)
        return "approved_for_session"

    async with holdfast.open("memory:", {}, on_approval=yes) as hf:
        await hf.surfaces.add("a", SPEC)
        for _ in range(2):
            assert (await hf.shell.run("a_one(n=1)['n']")).result == 1
        assert asked == ["a_one"]
        epoch = hf.surfaces.epoch
        world["a"].change(one=tool("a_one", answer="word", side_effect=SideEffect.WRITE))
        await anyio.wait_all_tasks_blocked()
        await hf.shell.run("1")
        await until(lambda: hf.surfaces.epoch > epoch)
        assert (await hf.shell.run("a_one(n=1)['n']")).result == 1
        assert asked == ["a_one", "a_one"]
        ended = [
            one.payload["reason"]
            async for one in hf.journal.read_all()
            if one.kind == "grant_revoked"
        ]
        assert ended == ["capability_changed"]


async def test_a_call_that_must_not_be_made_twice_is_in_doubt_when_its_server_goes(world: World):
    world["a"].tools["one"] = tool("a_one", side_effect=SideEffect.EXTERNAL_SYSTEM)
    world["a"].hold = anyio.Event()
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        ends: list[Any] = []
        async with anyio.create_task_group() as group:

            async def run() -> None:
                ends.append(await hf.shell.run("a_one(n=1)"))

            group.start_soon(run)
            await until(lambda: world["a"].calls)
            world["a"].lose()
        assert ends[0].status == "interrupted"
        assert ends[0].error.effect_id is not None
        assert len(world["a"].calls) == 1


async def test_a_call_of_a_server_that_wants_a_sign_in_asks_for_it_and_is_made_after_it():
    world, clock = World(), Clock()
    async with supervised(world, "a", clock=clock) as surfaces:
        one = the(surfaces, "a_one")
        world["a"].broken = NeedsAnswer(Question(Asks.SIGN_IN, "Sign in.", url="https://x.example"))
        world["a"].lose()
        await until(lambda: world.open == 0)
        clock.ms += 60_000
        pump(surfaces)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(NeedsAnswer) as found:
            await call(one)
        assert found.value.question.url == "https://x.example"
        world["a"].broken = None
        assert (await call(one, 3))["n"] == 3  # it does not wait for the next attempt


async def test_a_read_whose_server_goes_fails_alone(world: World):
    world["a"].hold = anyio.Event()
    code = """
try:
    a_one(n=1)
except Exception as why:
    said = str(why)
[said, b_one(n=2)['n']]
"""
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        ends: list[Any] = []
        async with anyio.create_task_group() as group:

            async def run() -> None:
                ends.append(await hf.shell.run(code))

            group.start_soon(run)
            await until(lambda: world["a"].calls)
            world["a"].lose()
        assert ends[0].status == "ok", ends[0].error
        assert "was lost while the call was under way" in ends[0].result[0]
        assert ends[0].result[1] == 2


async def test_a_call_does_not_outlast_its_deadline(world: World):
    world["a"].tools["one"] = tool("a_one", timeout_ms=50)
    world["a"].hold = anyio.Event()
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        with anyio.fail_after(10):
            found = await hf.shell.run("a_one(n=1)")
        assert found.error is not None
        assert found.error.code in ("TIMEOUT_TOOL", "RUNTIME_ERROR")
