"""A run can be stopped at every point: at once, or once the effect that is under way has ended."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.shell.support import (
    BY_REFERENCE,
    World,
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
from holdfast import RunResult, RunStatus
from holdfast.contracts import RunView
from holdfast.errors import Conflict
from holdfast.journal import MemoryJournal
from holdfast.shell import running as running_module


async def active(hf: holdfast.Runtime) -> list[RunView]:
    return await hf.runs.list(status="active")


async def stopped(
    hf: holdfast.Runtime,
    code: str,
    when: Callable[[], Awaitable[Any]],
    mode: Any = "now",
    then: Callable[[], object] = lambda: None,
) -> RunResult:
    """A run that is cancelled at a point; `then` is done right after."""
    found: list[RunResult] = []

    async def run() -> None:
        found.append(await hf.shell.run(code, session="s"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await when()
        [view] = await until(lambda: active(hf), lambda runs: len(runs) == 1)
        tasks.start_soon(lambda: hf.runs.cancel(view.id, mode=mode, reason="enough"))
        await anyio.sleep(0.02)
        then()
    return found[0]


async def check_over(hf: holdfast.Runtime, run: RunResult) -> None:
    """It is cancelled, on record, and the session is as it was before."""
    assert codes(run) == ("cancelled", "CANCELLED")
    assert run.error is not None
    assert "enough" in run.error.message
    assert [one.code for one in run.diagnostics if one.severity == "error"] == ["CANCELLED"]
    await hf.journal.flush()
    view = await hf.runs.show(str(run.run_id))
    assert view.status == "cancelled"
    assert (await kinds(hf, "s"))[-1] == "run_cancelled"
    assert await pending(hf) == {}
    assert (await hf.shell.run("x", session="s")).result == 1
    report = await hf.journal.verify()
    assert report.ok


# -- at once, at every point --------------------------------------------------------------------------

POINTS = {
    "computing": ("x = 2\nwhile True: pass", ""),
    "computing after a call": ("x = 2\ntick('a')\nwhile True: pass", "tick a"),
    "at an awaited call": ("x = 2\nawait wait('a')", "wait a"),
    "in a gather": (
        "import asyncio\nx = 2\nawait asyncio.gather(wait('a'), wait('b'), look('c'))",
        "wait b",
    ),
    "computing beside a call": ("x = 2\ncall = wait('a')\ntick('b')\nwhile True: pass", "tick b"),
    "after its last line": ("x = 2\ncall = wait('a')", "wait a"),
}


@pytest.mark.parametrize("point", POINTS)
async def test_now(url: str, point: str) -> None:
    world = World()
    code, what = POINTS[point]
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")

        async def when() -> None:
            if what:
                await until_done(world, what)
            else:
                await until(lambda: active(hf), lambda runs: len(runs) == 1)

        await check_over(hf, await stopped(hf, code, when))
        assert not [one for one in world.done if one.startswith("waited")]


async def test_at_a_sync_call(url: str) -> None:
    """Its thread can't be stopped; nobody waits for it."""
    entered, leave = anyio.Event(), []

    def stuck() -> str:
        """Hang until it is told to leave."""
        import time

        anyio.from_thread.run_sync(entered.set)
        while not leave:
            time.sleep(0.005)
        return "left"

    tool = holdfast.capability(stuck, side_effect="read", timeout_ms=60_000)
    async with holdfast.open(url, {}, capabilities=[tool]) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(hf, "x = 2\nstuck()\nx = 3", entered.wait)
        leave.append(True)
        await check_over(hf, run)


async def test_without_any_capability(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        code = "x = 2\nwhile True: pass"
        await check_over(hf, await stopped(hf, code, anyio.lowlevel.checkpoint))


@pytest.mark.parametrize("first", ["caller", "other"])
async def test_without_any_capability_by_its_caller_and_another(url: str, first: str) -> None:
    """Who gave up gets nothing, whoever was first; whoever it was goes on unharmed."""
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        found: list[RunResult] = []
        gave_up = anyio.CancelScope()

        async def run() -> None:
            with gave_up:
                found.append(await hf.shell.run("x = 2\nwhile True: pass", session="s"))
            await anyio.sleep(0.01)  # nothing of it is left to cancel this
            assert (await hf.shell.run("x", session="s")).result == 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: active(hf), lambda runs: len(runs) == 1)
            for who in (first, "caller", "other"):
                if who == "caller":
                    gave_up.cancel()
                else:
                    assert hf.shell.cancel("s", reason="enough")
        assert gave_up.cancelled_caught
        assert not found
        assert (await kinds(hf, "s")).count("run_cancelled") == 1


async def test_without_any_capability_twice(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")

        def again() -> None:
            hf.shell.cancel("s", reason="more than enough")

        code = "x = 2\nwhile True: pass"
        await check_over(hf, await stopped(hf, code, anyio.lowlevel.checkpoint, then=again))


async def test_while_another_branch_waits_for_a_person(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        code = "import asyncio\nx = 2\nawait asyncio.gather(ship('ann'), wait('a'))"

        async def when() -> None:
            await until_done(world, "wait a")
            await until(lambda: pending(hf), lambda asked: "ann" in asked)

        await check_over(hf, await stopped(hf, code, when))
        [asked] = await hf.approvals.list(status="all")
        assert asked.status == "cancelled"
        assert world.done == ["wait a"]


@pytest.mark.parametrize("mode", ["now", "after_effect"])
async def test_while_somebody_is_being_asked(mode: str) -> None:
    """By a callback that takes its time."""
    asked = anyio.Event()

    async def ask(_: object) -> Any:
        asked.set()
        await anyio.sleep_forever()

    world = World()
    async with holdfast.open("memory:", capabilities=world.tools(), on_approval=ask) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(hf, "x = 2\npay('ann', 1)", asked.wait, mode)
        await check_over(hf, run)
        [said] = await hf.approvals.list(status="all")
        assert (said.status, world.done) == ("cancelled", [])


@pytest.mark.parametrize("mode", ["now", "after_effect"])
async def test_parked(url: str, mode: Any) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\npay('ann', 1)")
        view = await hf.runs.cancel(str(run.run_id), mode=mode, reason="enough")
        assert view.status == "cancelled"
        await check_over(hf, await hf.runs.result(str(run.run_id)))
        with pytest.raises(Conflict) as late:
            await hf.approvals.decide(str(run.approval_id), "approved")
        assert late.value.code == "APPROVAL_CLOSED"
        again = await hf.runs.resume(str(run.run_id))
        assert again.status == "cancelled"
        assert world.done == []


async def test_answered_and_not_yet_gone_on(url: str) -> None:
    """The answer is not used any more."""
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\npay('ann', 1)")
        await hf.approvals.decide(str(run.approval_id), "approved")
        await hf.runs.cancel(str(run.run_id), reason="enough")
        await check_over(hf, await hf.runs.result(str(run.run_id)))
        assert (await hf.runs.resume(str(run.run_id))).status == "cancelled"
        assert world.done == []


async def test_before_it_starts(url: str) -> None:
    """A run that waits for its turn and is given up leaves no trace."""
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")

        async def first() -> None:
            await hf.shell.run("await wait('a')", session="s")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await until_done(world, "wait a")
            with anyio.move_on_after(0.05) as scope:
                await hf.shell.run("x = 2", session="s")
            assert scope.cancelled_caught
            world.gate("a").set()
        assert (await hf.shell.run("x", session="s")).result == 1
        assert len(await hf.runs.list(session="s")) == 3


async def test_nothing_is_there_to_cancel() -> None:
    async with opened("memory:", World()) as hf:
        done = await hf.shell.run("x = 1", session="s")
        assert hf.shell.cancel("s") is False
        assert hf.shell.cancel("nobody") is False
        before = await hf.journal.last_seq()
        assert (await hf.runs.cancel(str(done.run_id))).status == "completed"
        assert await hf.journal.last_seq() == before


@pytest.mark.parametrize("late", [0.0, 60.0])
@pytest.mark.parametrize("tools", [True, False])
async def test_first_run_of_a_session(
    late: float, tools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its start was on record or not, the session works afterwards."""
    monkeypatch.setattr(running_module, "LATE", late)
    given = World().tools() if tools else []
    async with holdfast.open("memory:", {}, capabilities=given) as hf:
        found: list[RunResult] = []

        async def run() -> None:
            found.append(await hf.shell.run("while True: pass", session="new"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(30):
                while True:
                    await anyio.sleep(0.01)
                    if hf.shell.cancel("new"):
                        break
        assert [one.status for one in found] == [RunStatus.CANCELLED]
        assert (await hf.shell.run("1 + 1", session="new")).result == 2
        assert (await hf.shell.show("new")).status == "open"


async def test_caller_that_gives_up_cancels(url: str) -> None:
    """The task that runs the code is cancelled, at every moment of a run with calls."""
    world = World()
    code = "x = 2\nfor n in range(5):\n    tick('a')\n    await look('b')\nx = 3"
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        for step in range(12):
            with anyio.move_on_after(0.002 * step):
                await hf.shell.run(code, session="s")
            found = await hf.shell.run("x", session="s")
            assert found.result in (1, 3)
            assert await active(hf) == []
        report = await hf.journal.verify()
        assert report.ok


# -- after the effect ---------------------------------------------------------------------------------


async def test_after_effect_lets_it_complete_and_nothing_after_it_starts(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        code = "x = 2\nawait send('a')\ntick('after')"
        run = await stopped(
            hf, code, lambda: until_done(world, "send a"), "after_effect", world.gate("a").set
        )
        await check_over(hf, run)
        assert world.done == ["send a", "sent a"]
        [effect] = await hf.runs.effects(str(run.run_id))
        assert effect.status == "completed"
        assert run.in_doubt == ()


async def test_after_effect_waits_for_all_that_are_under_way(url: str) -> None:
    world = World()
    code = """
import asyncio
x = 2

async def two(name):
    await send(name)
    return tick(f'after {name}')

await asyncio.gather(two('a'), two('b'))
"""

    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")

        async def when() -> None:
            await until_done(world, "send a")
            await until_done(world, "send b")

        async def one_by_one() -> None:
            world.gate("a").set()
            await until_done(world, "sent a")
            await anyio.sleep(0.02)
            world.gate("b").set()

        found: list[RunResult] = []
        async with anyio.create_task_group() as tasks:
            found.append(
                await stopped(hf, code, when, "after_effect", lambda: tasks.start_soon(one_by_one))
            )
        [run] = found
        await check_over(hf, run)
        assert world.done == ["send a", "send b", "sent a", "sent b"]
        assert await delivered(hf, run) == [0, 1]


@pytest.mark.parametrize("code", ["while True: pass", "tick('a')\nwhile True: pass"])
async def test_after_effect_with_none_under_way_is_at_once(code: str) -> None:
    world = World()
    async with opened("memory:", world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(hf, f"x = 2\n{code}", lambda: anyio.sleep(0.05), "after_effect")
        await check_over(hf, run)


async def test_after_effect_starts_no_call_the_code_comes_to_meanwhile() -> None:
    """The code computes, and then calls: too late."""
    world = World()
    code = (
        "x = 2\ncall = send('a')\ntick('b')\nfor n in range(3_000_000): pass\ntick('c')\nawait call"
    )
    async with opened("memory:", world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(
            hf, code, lambda: until_done(world, "tick b"), "after_effect", world.gate("a").set
        )
        await check_over(hf, run)
        assert world.done == ["send a", "tick b", "sent a"]


async def test_now_beats_after_effect() -> None:
    world, found = World(), list[RunResult]()
    async with opened("memory:", world) as hf:

        async def run() -> None:
            found.append(await hf.shell.run("await wait('a')", session="s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until_done(world, "wait a")
            [view] = await active(hf)
            for mode in ("after_effect", "now", "after_effect"):
                await hf.runs.cancel(view.id, mode=mode)
        assert found[0].status == "cancelled"
        assert world.done == ["wait a"]


# -- what is in doubt ---------------------------------------------------------------------------------


async def test_a_write_that_is_cut_off_is_in_doubt_and_named(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        code = "x = 2\ntick('a')\nawait send('b')"
        run = await stopped(hf, code, lambda: until_done(world, "send b"))
        await check_over(hf, run)
        first, second = await hf.runs.effects(str(run.run_id))
        assert (first.status, second.status) == ("completed", "unknown")
        assert run.in_doubt == (second.id,)
        assert [(one.name, one.status) for one in run.external_calls] == [
            ("tick", "ok"),
            ("send", "timeout"),
        ]
        assert run.external_calls[1].request_digest


async def test_a_read_that_is_cut_off_is_not_in_doubt(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(hf, "await wait('a')", lambda: until_done(world, "wait a"))
        await check_over(hf, run)
        assert run.in_doubt == ()
        [call] = run.external_calls
        assert (call.name, call.status) == ("wait", "error")


async def test_what_is_in_doubt_can_be_resolved_afterwards(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await stopped(hf, "await send('b')", lambda: until_done(world, "send b"))
        found = await hf.runs.resolve(
            str(run.run_id), run.in_doubt[0], "happened", value="sent to b"
        )
        assert found.status == "completed"
        assert (await hf.runs.show(str(run.run_id))).status == "cancelled"


# -- from another process -----------------------------------------------------------------------------

FAR = {
    "computing": "x = 2\nwhile True: pass",
    "computing after a call": "x = 2\ntick('a')\nwhile True: pass",
    "at a call": "x = 2\nawait wait('never')",
}


@pytest.mark.parametrize(
    ("point", "tools"), [*((point, True) for point in FAR), ("computing", False)]
)
async def test_a_run_that_another_process_has(file: str, point: str, tools: bool) -> None:
    config = BY_REFERENCE if tools else {k: BY_REFERENCE[k] for k in ("policy", "shell")}
    text = f"""
await hf.shell.run("x = 1", session="s")
done = await hf.shell.run({FAR[point]!r}, session="s")
tell([done.status.value, (await hf.shell.run("x", session="s")).result])
"""
    async with holdfast.open(file, config) as hf:
        with start(file, text, config) as process:
            try:
                runs = await until(hf.runs.list, lambda runs: len(runs) == 2)
                view = await hf.runs.cancel(runs[1].id)
                assert view.status == "cancelled"
                told, _ = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=30))
            finally:
                process.kill()
        assert told.strip() == '["cancelled", 1]'


async def test_a_process_that_goes_on_with_another_run_is_not_waited_for(file: str) -> None:
    text = """
for n in range(2):
    done = await hf.shell.run("await wait('never')", session="s")
    tell(done.status.value)
"""
    async with holdfast.open(file, BY_REFERENCE) as hf:
        with start(file, text) as process:
            try:
                for count in (1, 2):
                    runs = await until(hf.runs.list, lambda runs, n=count: len(runs) == n)
                    view = await hf.runs.cancel(runs[-1].id)
                    assert view.status == "cancelled"
                told, _ = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=30))
            finally:
                process.kill()
        assert told.split() == ['"cancelled"'] * 2


async def test_after_effect_from_another_process(file: str, tmp_path: Path) -> None:
    text = """
done = await hf.shell.run("await send('a', after='go')\\ntick('b')", session="s")
tell([done.status.value, list(done.in_doubt)])
"""
    async with holdfast.open(file, BY_REFERENCE) as hf:
        with start(file, text) as process:
            try:
                [view] = await until(lambda: active(hf), lambda runs: len(runs) == 1)

                async def look() -> list[str]:
                    return done_in(tmp_path)

                await until(look, lambda done: done == ["send a"])
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(lambda: hf.runs.cancel(view.id, mode="after_effect"))
                    await until(
                        lambda: hf.journal.row("runs", view.id),
                        lambda row: row is not None and row["cancel"] == "after_effect",
                    )
                    await anyio.sleep(1)  # it looks twice a second
                    (tmp_path / "go").touch()
                told, _ = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=30))
            finally:
                process.kill()
        assert told.strip() == '["cancelled", []]'
        assert done_in(tmp_path) == ["send a", "sent a"]


async def test_a_parked_run_is_cancelled_by_another_process(file: str, tmp_path: Path) -> None:
    async with holdfast.open(file, BY_REFERENCE) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\npay('ann', 1)")
        told = await elsewhere(
            file, f"tell((await hf.runs.cancel({run.run_id!r})).status)", BY_REFERENCE
        )
        assert told == "cancelled"
        assert (await hf.shell.run("x", session="s")).result == 1
        assert done_in(tmp_path) == []


async def test_a_run_whose_process_died_is_cancelled(file: str, tmp_path: Path) -> None:
    """What it was doing is in doubt, and stays so."""
    text = """
await hf.shell.run("x = 1", session="s", durable=True)
await hf.shell.run("x = 2\\nawait send('a', after='never')", session="s")
"""

    async def look() -> list[str]:
        return done_in(tmp_path)

    with start(file, text) as process:
        try:
            await until(look, lambda done: done == ["send a"])
        finally:
            process.kill()
    async with holdfast.open(file, BY_REFERENCE) as hf:
        [view] = await active(hf)
        assert (await hf.runs.cancel(view.id)).status == "cancelled"
        assert (await hf.shell.run("x", session="s")).result == 1
        assert done_in(tmp_path) == ["send a"]


class SlowJournal(MemoryJournal):
    """Takes its time to append."""

    def append_now(self, *args: Any, **kwargs: Any) -> Any:
        return None

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        await anyio.sleep(0.05)
        return await super().append(*args, **kwargs)


@pytest.mark.parametrize("after", [0.02, 0.07, 0.12, 0.17, 0.22])
@pytest.mark.parametrize("code", ["note(1)\nnote(2)", "send(1)"])
async def test_a_task_cancelled_while_something_is_written(code: str, after: float) -> None:
    """Whatever was being written, the run is over and on record as cancelled, and the session goes on."""

    @holdfast.capability(side_effect="write", idempotent=True)
    async def note(n: int) -> int:
        """Write something down."""
        return n

    @holdfast.capability(side_effect="write", approval="manual")
    async def send(n: int) -> int:
        """Ask first."""
        return n

    rules = {"policy": {"rules": [{"id": "notes", "tool": "note", "then": "allow"}]}}
    code = "\n".join(f"await {line}" for line in code.splitlines())
    async with holdfast.open(SlowJournal(), config=rules, capabilities=[note, send]) as hf:
        done: list[RunResult] = []
        with anyio.move_on_after(after):
            done.append(await hf.shell.run(code, session="s"))
        if not done:  # else it was over, or parked, before anybody gave up
            assert {run.status for run in await hf.runs.list()} <= {"cancelled"}
            assert (await hf.shell.run("1 + 1", session="s")).result == 2
        assert (await hf.journal.verify()).ok
