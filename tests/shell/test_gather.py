"""Calls that are awaited together are under way together, and their order is on record."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.shell.support import (
    BY_REFERENCE,
    World,
    approve,
    codes,
    delivered,
    done_in,
    elsewhere,
    kinds,
    opened,
    parked,
    pending,
    start,
    until,
    until_done,
)

import holdfast
from holdfast import RunResult
from holdfast.shell.rehearsal import rehearse

THREE = """
import asyncio
order = []

async def one(name):
    found = await wait(name)
    order.append(name)
    return found

result = [await asyncio.gather(one('a'), one('b'), one('c')), order]
"""
"""Three calls, and the order in which their answers came."""


async def run(hf: holdfast.Runtime, code: str, into: list[RunResult], **more: Any) -> None:
    into.append(await hf.shell.run(code, session="s", **more))


# -- really concurrent --------------------------------------------------------------------------------


async def test_three_calls_are_under_way_at_once(url: str) -> None:
    """None of them is let go before all have started."""
    world, found = World(), list[RunResult]()
    async with opened(url, world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, THREE, found)
            for name in "abc":
                await until_done(world, f"wait {name}")
            assert not [one for one in world.done if one.startswith("waited")]
            for name in "abc":
                world.gate(name).set()
        [done] = found
        assert done.status == "ok"
        assert [one.name for one in done.external_calls] == ["wait"] * 3
        assert done.metrics.external_calls_count == 3


@pytest.mark.parametrize("order", ["abc", "cab", "cba"])
async def test_answers_come_in_the_order_of_their_results(url: str, order: str) -> None:
    world, found = World(), list[RunResult]()
    async with opened(url, world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, THREE, found)
            for name in "abc":
                await until_done(world, f"wait {name}")
            for name in order:
                world.gate(name).set()
                await until_done(world, f"waited {name}")
        [done] = found
        assert done.result == [["a", "b", "c"], [*order]]
        assert await delivered(hf, done) == ["abc".index(name) for name in order]
        again = await rehearse(hf.shell.services, str(done.run_id))
        assert again.same
        assert again.result.result == done.result


async def test_order_is_kept_when_the_session_is_made_again(tmp_path: Path) -> None:
    """The variables of a later process are those of the run, not those of another order."""
    url, world, found = f"sqlite:///{tmp_path}/journal.db", World(), list[RunResult]()
    async with opened(url, world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, THREE, found)
            for name in "abc":
                await until_done(world, f"wait {name}")
            for name in "bca":
                world.gate(name).set()
                await until_done(world, f"waited {name}")
        # No saved state: another runtime has to run the code again.
        async with opened(url, World()) as other:
            assert (await other.shell.run("order", session="s")).result == ["b", "c", "a"]


async def test_nested_gathers() -> None:
    world = World()
    code = """
import asyncio

async def pair(name):
    return await asyncio.gather(look(name + '1'), look(name + '2'))

result = await asyncio.gather(pair('a'), look('b'), asyncio.gather(look('c'), pair('d')))
"""
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s")
        assert done.result == [
            ["a1 is fine", "a2 is fine"],
            "b is fine",
            ["c is fine", ["d1 is fine", "d2 is fine"]],
        ]
        assert len(done.external_calls) == 6


async def test_one_failing_branch_is_caught() -> None:
    world = World()
    code = """
import asyncio

async def careful():
    try:
        return await fail('broken')
    except ValueError as why:
        return f'caught {why}'

result = await asyncio.gather(look('a'), careful(), look('b'))
"""
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s")
        assert done.result == ["a is fine", "caught broken", "b is fine"]
        # The calls in the order they were made: a branch starts after the arguments of its `gather`.
        assert [one.name for one in done.external_calls] == ["look", "look", "fail"]
        assert [one.status for one in done.external_calls] == ["ok", "ok", "error"]


async def test_one_failing_branch_ends_the_gather_and_the_others_are_on_record() -> None:
    world = World()
    code = """
import asyncio
try:
    await asyncio.gather(look('a'), fail('broken'), look('b'))
except ValueError as why:
    result = str(why)
"""
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s")
        assert done.result == "broken"
        assert sorted(await delivered(hf, done)) == [0, 1, 2]
        assert (await rehearse(hf.shell.services, str(done.run_id))).same


async def test_a_sync_call_while_others_are_under_way() -> None:
    """It is answered at once; the others go on meanwhile."""
    world, found = World(), list[RunResult]()
    code = """
import asyncio

async def slow():
    return await wait('x')

async def quick():
    await look('y')
    return [tick('1'), tick('2')]

result = await asyncio.gather(slow(), quick())
"""
    async with opened("memory:", world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, code, found)
            await until_done(world, "tick 2")
            assert "waited x" not in world.done
            world.gate("x").set()
        [done] = found
        assert done.result == ["x", [3, 4]]
        assert (await rehearse(hf.shell.services, str(done.run_id))).same


async def test_concurrency_of_the_capability_is_kept() -> None:
    """More than it allows wait their turn, and all of them come."""
    most = now = 0

    async def narrow(n: int) -> int:
        """Count who is in here."""
        nonlocal most, now
        now += 1
        most = max(most, now)
        await anyio.sleep(0.002)
        now -= 1
        return n

    tool = holdfast.capability(narrow, side_effect="read", concurrency=2)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        code = "import asyncio\nawait asyncio.gather(*[narrow(n) for n in range(7)])"
        assert (await hf.shell.run(code)).result == [*range(7)]
        assert most == 2


async def test_order_is_kept_by_whoever_goes_on_after_a_kill(file: str, tmp_path: Path) -> None:
    """Results that were on record come first and in their order, though the others could be faster now."""
    with start(file, f"await hf.shell.run({THREE!r}, session='s')") as process:
        try:
            async with holdfast.open(file, BY_REFERENCE) as hf:
                for name in "cb":
                    (tmp_path / name).touch()
                    ordinal = "abc".index(name)
                    await until(lambda: finished(hf), lambda done, n=ordinal: n in done)
        finally:
            process.kill()
    (tmp_path / "a").touch()
    async with holdfast.open(file, BY_REFERENCE) as hf:
        [run] = await hf.runs.list(status="active")
        done = await hf.runs.resume(run.id)
        assert done.result == [["a", "b", "c"], ["c", "b", "a"]]
        assert await delivered(hf, done) == [2, 1, 0]
        assert done_in(tmp_path).count("wait b") == done_in(tmp_path).count("wait c") == 1


async def finished(hf: holdfast.Runtime) -> list[int]:
    runs = await hf.runs.list()
    return await delivered(hf, runs[0].id) if runs else []


# -- while somebody is asked --------------------------------------------------------------------------

MIXED = """
import asyncio
order = []

async def one(call):
    found = await call
    order.append(found)
    return found

print('before')
got = await asyncio.gather(one(ship('ann')), one(look('a')), one(ship('bob')), one(look('b')))
print('after')
result = [got, order]
"""


async def test_the_others_go_on_while_one_waits_for_a_person(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, MIXED)
        assert world.done == ["look a", "look b"]
        assert await delivered(hf, run) == [1, 3]
        assert [one.status for one in run.external_calls] == [
            "approval_pending",
            "ok",
            "approval_pending",
            "ok",
        ]
        assert run.error is not None
        assert run.error.message.count("`ship`") == 2


async def test_goes_on_with_some_answered(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, MIXED)
        asked = await pending(hf)
        await hf.approvals.decide(asked["bob"], "approved")
        again = await hf.runs.resume(str(run.run_id))
        assert codes(again) == ("waiting_for_approval", "WAITING_FOR_APPROVAL")
        assert again.approval_id == asked["ann"]
        assert world.done == ["look a", "look b", "ship bob"]
        await hf.approvals.decide(asked["ann"], "approved")
        done = await hf.runs.resume(str(run.run_id))
        assert done.result == [
            ["shipped to ann", "a is fine", "shipped to bob", "b is fine"],
            ["a is fine", "b is fine", "shipped to bob", "shipped to ann"],
        ]
        assert done.stdout == "before\nafter\n"
        assert world.done == ["look a", "look b", "ship bob", "ship ann"]
        assert await delivered(hf, done) == [1, 3, 2, 0]
        assert (await rehearse(hf.shell.services, str(run.run_id))).same


async def test_parks_only_when_nothing_else_can_proceed() -> None:
    """A branch that is free goes through all of its calls first."""
    world, found = World(), list[RunResult]()
    code = """
import asyncio

async def long():
    await look('a')
    await wait('x')
    await look('b')
    return tick('end')

result = await asyncio.gather(ship('ann'), long())
"""
    async with opened("memory:", world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, code, found)
            await until(lambda: pending(hf), lambda asked: "ann" in asked)
            await until_done(world, "wait x")
            assert found == []
            world.gate("x").set()
        [run_] = found
        assert run_.status == "waiting_for_approval"
        assert world.done == ["look a", "wait x", "waited x", "look b", "tick end"]
        done = await approve(hf, run_)
        assert done.result == ["shipped to ann", 5]
        assert world.done[5:] == ["ship ann"]


async def test_a_denied_branch_is_caught_and_the_others_are_kept(url: str) -> None:
    world = World()
    code = """
import asyncio

async def careful(call):
    try:
        return await call
    except PermissionError:
        return 'denied'

result = await asyncio.gather(careful(ship('ann')), look('a'), careful(ship('bob')))
"""
    async with opened(url, world) as hf:
        run = await parked(hf, code)
        asked = await pending(hf)
        await hf.approvals.decide(asked["ann"], "denied")
        await hf.approvals.decide(asked["bob"], "approved")
        done = await hf.runs.resume(str(run.run_id))
        assert done.result == ["denied", "a is fine", "shipped to bob"]
        assert world.done == ["look a", "ship bob"]


async def test_goes_on_in_another_process_with_some_answered(file: str, tmp_path: Path) -> None:
    async with holdfast.open(file, BY_REFERENCE) as hf:
        run = await parked(hf, MIXED)
        asked = await pending(hf)
    resume = f"tell((await hf.runs.resume({run.run_id!r})).model_dump(mode='json'))"
    for who, status in (("bob", "waiting_for_approval"), ("ann", "ok")):
        answer = f"await hf.approvals.decide({asked[who]!r}, 'approved')\n{resume}"
        told = await elsewhere(file, answer)
        assert told["status"] == status
    assert told["result"][1] == ["a is fine", "b is fine", "shipped to bob", "shipped to ann"]
    assert sorted(done_in(tmp_path)[:2]) == ["look a", "look b"]
    assert done_in(tmp_path)[2:] == ["ship bob", "ship ann"]


async def test_state_and_record_lead_to_the_same_place(file: str, tmp_path: Path) -> None:
    """From the saved state at the call, and by running the code again: the same end, and nothing twice."""
    ends: list[Any] = []
    for number, lost in enumerate((False, True)):
        session = f"s{number}"
        async with holdfast.open(file, BY_REFERENCE) as hf:
            run = await parked(hf, MIXED, session)
            if lost:
                await lose_state(hf, session)
        async with holdfast.open(file, BY_REFERENCE) as hf:
            for one in await hf.approvals.list():
                await hf.approvals.decide(one.id, "approved")
            done = await hf.runs.resume(str(run.run_id))
            [how] = [
                one.payload["how"]
                for one in await hf.runs.records(str(run.run_id))
                if one.kind == "run_resumed"
            ]
            assert how == ("replay" if lost else "state")
            assert done.status == "ok"
            ends.append((sorted(map(str, done.result[1])), done.stdout, done.status))  # type: ignore[index]
    assert ends[0] == ends[1]
    assert sorted(done_in(tmp_path)) == sorted(["look a", "look b", "ship ann", "ship bob"] * 2)


async def lose_state(hf: holdfast.Runtime, session: str) -> None:
    """Erase what was saved where a run stands."""
    async for record in hf.journal.read(session):
        if record.kind == "run_parked":
            assert await hf.journal.erase(str(record.payload["state"]), reason="test")


# -- never awaited ------------------------------------------------------------------------------------


async def test_a_call_that_is_never_awaited_is_part_of_the_run() -> None:
    world, found = World(), list[RunResult]()
    async with opened("memory:", world) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, hf, "x = wait('a')\nresult = 1", found)
            await until_done(world, "wait a")
            await anyio.sleep(0.01)
            assert found == []
            world.gate("a").set()
        [done] = found
        assert (done.status, done.result) == ("ok", 1)
        assert [one.status for one in done.external_calls] == ["ok"]
        assert await delivered(hf, done) == [0]
        assert (await rehearse(hf.shell.services, str(done.run_id))).same


async def test_a_question_of_a_call_that_is_never_awaited_is_withdrawn(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        done = await hf.shell.run("x = ship('ann')\nresult = 1", session="s")
        assert (done.status, done.result) == ("ok", 1)
        assert await pending(hf) == {}
        [asked] = await hf.approvals.list(status="all")
        assert asked.status == "cancelled"
        assert world.done == []
        assert "approval_settled" in await kinds(hf, "s")
        assert (await hf.shell.run("2", session="s")).result == 2
        report = await hf.journal.verify()
        assert report.ok


async def test_a_branch_left_behind_by_a_failing_one_is_withdrawn() -> None:
    world = World()
    code = "import asyncio\ntry:\n    await asyncio.gather(ship('ann'), fail('x'))\nexcept ValueError:\n    result = 2"
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s")
        assert (done.status, done.result) == ("ok", 2)
        [asked] = await hf.approvals.list(status="all")
        assert asked.status == "cancelled"
        assert world.done == ["fail x"]
