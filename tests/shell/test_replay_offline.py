"""A recorded run can be run again offline: nothing is called, and another policy or other code shows what would change."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.shell.support import ALLOW, World, approve, kinds, opened, parked

import holdfast
from holdfast import Rule, capability
from holdfast.contracts import Verdict
from holdfast.errors import NotFound
from holdfast.gate.policy import Policy
from holdfast.shell.rehearsal import Rehearsal, rehearse

CODE = """
import asyncio
print('start')
n = tick('a') + given
two = await asyncio.gather(look('b'), look('c'))
try:
    await fail('d')
except ValueError as why:
    two.append(str(why))
result = [n, two, pay('ann', n)]
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def traps(world: World) -> list[Any]:
    """Capabilities like those of a world, that must not be called."""

    def tick(name: str) -> int:
        """Count."""
        raise AssertionError

    def pay(to: str, cents: int) -> str:
        """Pay somebody, which somebody has to approve."""
        raise AssertionError

    async def look(at: str) -> str:
        """Look at something; awaited."""
        raise AssertionError

    async def fail(why: str) -> str:
        """Fail; awaited."""
        raise AssertionError

    del world
    return [
        capability(tick, side_effect="read"),
        capability(pay, side_effect="external_system", approval="manual"),
        capability(look, side_effect="read"),
        capability(fail, side_effect="read"),
    ]


async def record(url: str) -> str:
    """A run that called a lot, and waited for a person."""
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("given = 10", session="s")
        run = await parked(hf, CODE, inputs={"given": 100})
        done = await approve(hf, run)
        assert done.result == [101, ["b is fine", "c is fine", "d"], "paid ann"]
        await hf.shell.run("n = 0", session="s")
        return str(run.run_id)


async def again(url: str, run_id: str, **more: Any) -> Rehearsal:
    """The same in another runtime, where every capability is a trap; nothing may be recorded."""
    async with holdfast.open(url, ALLOW, capabilities=traps(World())) as hf:
        before = await hf.journal.last_seq()
        found = await rehearse(hf.shell.services, run_id, **more)
        await hf.journal.flush()
        assert await hf.journal.last_seq() == before
        assert (await hf.shell.run("n", session="s")).result == 0
        return found


async def test_the_same_again_and_nothing_is_called(url: str) -> None:
    found = await again(url, await record(url))
    assert found.same
    assert found.stopped_at is None
    assert found.result.result == [101, ["b is fine", "c is fine", "d"], "paid ann"]
    assert found.result.stdout == "start\n"
    assert found.before is not None
    assert found.before.result == found.result.result
    assert [(one.name, one.status, one.reached) for one in found.calls] == [
        ("tick", "completed", True),
        ("look", "completed", True),
        ("look", "completed", True),
        ("fail", "failed", True),
        ("pay", "completed", True),
    ]
    assert [one.verdict_now for one in found.calls] == [None] * 5
    assert [one.status for one in found.result.external_calls] == ["ok", "ok", "ok", "error", "ok"]


async def test_without_any_capability(url: str) -> None:
    run_id = await record(url)
    async with holdfast.open(url, ALLOW) as hf:
        found = await rehearse(hf.shell.services, run_id)
        assert found.same


async def test_another_policy_tells_what_it_would_say(url: str) -> None:
    policy = Policy(
        [
            Rule(id="no-c", tool="look", where="args.at == 'c'", then=Verdict.DENY),
            Rule(id="ask-ticks", tool="tick", then=Verdict.ASK),
            Rule(id="free", tool="pay", then=Verdict.ALLOW),
        ]
    )
    found = await again(url, await record(url), policy=policy)
    assert found.same
    assert [(one.name, one.verdict_now, one.rule_now) for one in found.calls] == [
        ("tick", "ask", "ask-ticks"),
        ("look", "allow", "default.read"),
        ("look", "deny", "no-c"),
        ("fail", "allow", "default.read"),
        ("pay", "allow", "free"),
    ]
    assert found.calls[0].rules_then == ("all",)
    assert "capability.manual" in found.calls[4].rules_then


async def test_a_policy_by_session_is_asked_about_this_session(url: str) -> None:
    policy = Policy([Rule(id="here", session="s", tool="tick", then=Verdict.DENY)])
    found = await again(url, await record(url), policy=policy)
    assert (found.calls[0].verdict_now, found.calls[0].rule_now) == ("deny", "here")


async def test_edited_code_gets_the_recorded_answers(url: str) -> None:
    code = "print('start')\nn = tick('a')\nresult = [n + 1, await look('c')]"
    found = await again(url, await record(url), code=code)
    assert found.result.status == "ok"
    assert found.result.result == [2, "c is fine"]
    assert not found.same
    assert [(one.name, one.reached) for one in found.calls] == [
        ("tick", True),
        ("look", False),
        ("look", True),
        ("fail", False),
        ("pay", False),
    ]


async def test_edited_code_that_gives_the_same_by_other_calls_is_not_the_same(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await hf.shell.run("tick('a')\ntick('b')\nresult = 1", session="s")
        await hf.shell.run("n = 0", session="s")
    found = await again(url, str(run.run_id), code="tick('b')\nresult = 1")
    assert found.result.result == 1
    assert not found.same
    assert [one.reached for one in found.calls] == [False, True]


async def test_edited_code_shows_where_it_goes_another_way(url: str) -> None:
    code = CODE.replace("look('c')", "look('z')")
    found = await again(url, await record(url), code=code)
    assert not found.same
    assert found.stopped_at is not None
    assert found.stopped_at.code == "REPLAY_MISMATCH"
    assert "`look`" in found.stopped_at.message
    assert '"z"' in found.stopped_at.message
    assert found.result.status == "interrupted"
    assert not found.calls[4].reached


async def test_edited_code_that_calls_more_often_than_the_run_did(url: str) -> None:
    found = await again(url, await record(url), code="[tick('a'), tick('a')]")
    assert found.stopped_at is not None
    assert "`tick`" in found.stopped_at.message


async def test_edited_code_gets_recorded_errors(url: str) -> None:
    code = "try:\n    await fail('d')\nexcept ValueError as why:\n    result = [type(why).__name__, str(why)]"
    found = await again(url, await record(url), code=code)
    assert found.result.result == ["ValueError", "d"]


async def test_a_run_that_failed(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await hf.shell.run("tick('a')\nawait fail('b')", session="s")
        await hf.shell.run("n = 0", session="s")
    found = await again(url, str(run.run_id))
    assert found.same
    assert found.result.error is not None
    assert found.result.error.code == "TOOL_ERROR"
    assert found.result.error == run.error


async def test_a_denied_call_is_denied_again(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, "try:\n    pay('a', 1)\nexcept PermissionError:\n    result = 'no'")
        await approve(hf, run, "denied")
        await hf.shell.run("n = 0", session="s")
    found = await again(url, str(run.run_id))
    assert (found.same, found.result.result) == (True, "no")


async def test_a_run_that_stands_is_told_where(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, "tick('a')\npay('a', 1)")
        before = await kinds(hf, "s")
        found = await rehearse(hf.shell.services, str(run.run_id))
        assert found.before is None
        assert found.stopped_at is not None
        assert "`pay`" in found.stopped_at.message
        assert await kinds(hf, "s") == before
        assert (await approve(hf, run)).status == "ok"


async def test_state_of_the_session_before_the_run_is_what_counts(url: str) -> None:
    """Whatever ran after it, and was saved after it."""
    async with holdfast.open(url, ALLOW, capabilities=traps(World())) as hf:
        await hf.shell.run("x = 1\ndef f(): return x * 10", session="s")
        run = await hf.shell.run("x = x + 1\nf()", session="s", return_snapshot=True)
        await hf.shell.run("x = 50\ndef f(): return None", session="s", return_snapshot=True)
        found = await rehearse(hf.shell.services, str(run.run_id))
        assert (found.same, found.result.result) == (True, 20)
        changed = await rehearse(hf.shell.services, str(run.run_id), code="x = x + 2\nf()")
        assert (changed.same, changed.result.result) == (False, 30)


async def test_there_is_no_such_run() -> None:
    async with holdfast.open("memory:", {}) as hf:
        with pytest.raises(NotFound):
            await rehearse(hf.shell.services, "run_nothing")


async def test_many_at_once_do_not_disturb_the_session(url: str) -> None:
    run_id = await record(url)
    async with holdfast.open(url, ALLOW, capabilities=traps(World())) as hf:
        found: list[Rehearsal] = []

        async def one() -> None:
            found.append(await rehearse(hf.shell.services, run_id))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
            tasks.start_soon(lambda: hf.shell.run("n = n + 1", session="s"))
        assert [one.same for one in found] == [True] * 3
        assert (await hf.shell.run("n", session="s")).result == 1


async def test_code_that_looks_at_the_order_of_keys_gives_the_same_again(url: str):
    """A record has its keys in one order, which is all that a replay knows: code never sees another one."""

    def row() -> dict[str, Any]:
        """A row."""
        return {"name": "ann", "age": 7, "also": [{"z": 1, "y": 2}]}

    async with holdfast.open(url, {}, capabilities=[capability(row, side_effect="read")]) as hf:
        code = "found = row()\nlist(found), list(found['also'][0]), list(given)"
        first = await hf.shell.run(code, session="s", inputs={"given": {"b": 1, "a": 2}})
        assert first.result == [["age", "also", "name"], ["y", "z"], ["a", "b"]]
        assert first.run_id is not None
        assert (await rehearse(hf.shell.services, first.run_id)).same


async def test_a_session_is_restored_though_a_call_of_it_never_ended(tmp_path: Path) -> None:
    """The code ended while a write was under way that nobody knows the end of; later runs build on it."""

    @capability(side_effect="write")
    async def slow(n: int) -> int:
        """Take long."""
        await anyio.sleep(0.3)
        raise TimeoutError if n < 0 else ValueError("never seen")

    @capability(side_effect="write")
    async def bad(n: int) -> int:
        """Fail at once."""
        raise ValueError("no")

    url = f"sqlite:///{tmp_path}/journal.db"
    rules = {"policy": {"default": "allow"}}
    limits = {"wall_ms": 100}
    async with holdfast.open(url, rules, capabilities=[slow, bad]) as hf:
        await hf.shell.run("x = 1", session="s")
        code = "import asyncio\nx = 2\nawait asyncio.gather(slow(1), bad(2))"
        run = await hf.shell.run(code, session="s", limits=limits)
        assert run.error is not None
        before = (await hf.shell.run("x", session="s")).result
    async with holdfast.open(url, rules, capabilities=[slow, bad]) as hf:
        await hf.shell.run("y = x", session="s")
        session = await hf.shell.live("s")
        await session.contents.drop()  # its worker is gone, with what was not saved
        assert (await hf.shell.run("[x, y]", session="s")).result == [before, before]


async def test_a_run_goes_on_though_a_tool_that_answered_is_gone(tmp_path: Path) -> None:
    @capability(side_effect="read")
    async def once(key: str) -> str:
        """Answer."""
        return key.upper()

    @capability(name="once", side_effect="read")
    async def renamed(word: str) -> str:
        """Answer, by another name of its argument."""
        return word

    @capability(side_effect="external_system", approval="manual")
    async def send(text: str) -> str:
        """Wait for a person."""
        return f"sent {text}"

    for others in ([send], [renamed, send]):
        url = f"sqlite:///{tmp_path}/{len(others)}.db"
        async with holdfast.open(url, {}, capabilities=[once, send]) as hf:
            code = "a = await once(key='k')\nawait send(a)"
            run = await hf.shell.run(code, session="s")
            assert run.approval_id is not None
            await hf.approvals.decide(run.approval_id, "approved")
            [stands] = [one async for one in hf.journal.read("s") if one.kind == "run_parked"]
            assert await hf.journal.erase(str(stands.payload["state"]), reason="test")
        async with holdfast.open(url, {}, capabilities=others) as hf:
            done = await hf.runs.resume(str(run.run_id))
            assert done.result == "sent K", done.error
