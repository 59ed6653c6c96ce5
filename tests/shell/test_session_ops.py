"""What can be done with a session: create, fork, reset, diff, destroy, expire, list; in this process or another."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from tests.shell.support import (
    ALLOW,
    World,
    approve,
    elsewhere,
    kinds,
    opened,
    parked,
    until,
    until_done,
)

import holdfast
from holdfast.errors import CallerError, Conflict, NotFound
from holdfast.journal import MemoryJournal, sweep


async def value(hf: holdfast.Runtime, code: str, session: str = "s") -> Any:
    done = await hf.shell.run(code, session=session)
    return done.result if done.error is None else done.error.code


# -- create and list ----------------------------------------------------------------------------------


async def test_create_makes_an_empty_session(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        view = await hf.shell.create("s")
        assert (view.id, view.status, view.runs) == ("s", "open", 0)
        assert [one.id for one in await hf.shell.list()] == ["s"]
        assert await value(hf, "1 + 1") == 2
        assert (await hf.sessions.show("s")).runs == 1


async def test_create_leaves_one_that_is_there_as_it_is(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        before = await kinds(hf, "s")
        await hf.shell.create("s")
        assert await kinds(hf, "s") == before
        assert await value(hf, "x") == 1


async def test_create_opens_one_that_is_there_with_what_it_is_given(file: str) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        await hf.shell.create("s", setup={"clock": True})
        assert await value(hf, "[one['name'] for one in list_tools()]") == ["now"]
        assert await value(hf, "x") == 1
    async with holdfast.open(file, {}) as hf:
        assert await value(hf, "[one['name'] for one in list_tools()]") == ["now"]
        with pytest.raises(CallerError):
            await hf.shell.create("s", setup={"capabilities": ["no.such.module"]})
        assert await value(hf, "[one['name'] for one in list_tools()]") == ["now"]


@pytest.mark.parametrize("session", ["s", "new"])
async def test_create_in_a_language_that_can_not_be_is_refused(session: str) -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.create("s")
        with pytest.raises(CallerError) as refused:
            await hf.shell.create(session, language="typescript")
        assert refused.value.code == "INVALID_ARGUMENT"
        assert "typescript" in refused.value.message
        assert [one.id for one in await hf.shell.list()] == ["s"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 65, "../s"])
async def test_names_that_are_none(name: str) -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s")
        done = await hf.shell.run("1", session=name)
        assert done.error is not None
        assert done.error.code == "INVALID_SESSION_ID"
        for act in (hf.shell.create(name), hf.shell.fork("s", name), hf.shell.show(name)):
            with pytest.raises(CallerError) as refused:
                await act
            assert refused.value.code == "INVALID_SESSION_ID"


async def test_list_is_in_pages() -> None:
    async with holdfast.open("memory:", {}) as hf:
        for name in "dbca":
            await hf.shell.create(name)
        await hf.shell.destroy("c")
        first = await hf.shell.list(limit=2)
        rest = await hf.shell.list(after=first[-1].id)
        assert [one.id for one in [*first, *rest]] == ["a", "b", "d"]


OPERATIONS: dict[str, Callable[[holdfast.Runtime], Awaitable[object]]] = {
    "snapshot": lambda hf: hf.shell.snapshot("no"),
    "fork": lambda hf: hf.shell.fork("no", "new"),
    "reset": lambda hf: hf.shell.reset("no"),
    "diff": lambda hf: hf.shell.diff("no", at=1),
    "destroy": lambda hf: hf.shell.destroy("no"),
    "show": lambda hf: hf.shell.show("no"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_there_is_no_such_session(operation: str) -> None:
    async with holdfast.open("memory:", {}) as hf:
        with pytest.raises(NotFound) as refused:
            await OPERATIONS[operation](hf)
        assert refused.value.code == "SESSION_NOT_FOUND"
        assert await hf.shell.list() == []


# -- fork ---------------------------------------------------------------------------------------------


async def test_fork_goes_on_from_here_and_apart(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = [1]\ndef f(): return len(x)", session="s")
        await hf.shell.fork("s", "t")
        await hf.shell.run("x.append(2)", session="s")
        await hf.shell.run("x.append(3)\nx.append(4)", session="t")
        assert [await value(hf, "[x, f()]", name) for name in "st"] == [[[1, 2], 2], [[1, 3, 4], 3]]
        assert (await hf.shell.show("t")).runs == 2


async def test_fork_into_one_that_is_there_is_refused(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        await hf.shell.run("x = 2", session="t")
        for new in ("t", "s"):
            with pytest.raises(CallerError) as refused:
                await hf.shell.fork("s", new)
            assert refused.value.code == "INVALID_ARGUMENT"
        assert [await value(hf, "x", name) for name in "st"] == [1, 2]


async def test_fork_has_state_and_no_consent() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        run = await parked(hf, "x = pay('a', 1)")
        await approve(hf, run, "approved_for_session")
        assert (await hf.shell.run("pay('b', 2)", session="s")).status == "ok"
        await hf.shell.fork("s", "t")
        asked = await hf.shell.run("pay(x, 3)", session="t")
        assert asked.status == "waiting_for_approval"
        assert world.done == ["pay a 1", "pay b 2"]


HISTORY: list[tuple[str, Any]] = [
    ("x = 1\ny = None", [1, None]),
    ("def f(n):\n    return n + x", [1, None]),
    ("x = f(1)", [2, None]),
    ("y = [tick('a'), tick('b')]", [2, [1, 2]]),
    ("x = 10\n1 / 0", [10, [1, 2]]),
    ("x = x + len(y)", [12, [1, 2]]),
]
"""Code, and `[x, y]` after it."""


@pytest.mark.parametrize("saved", [False, True])
async def test_fork_at_every_record_gives_the_state_of_that_time(url: str, saved: bool) -> None:
    """From the code alone, or from states that were saved on the way."""
    world = World()
    async with opened(url, world) as hf:
        after: dict[str, Any] = {}
        for code, found in HISTORY:
            done = await hf.shell.run(code, session="s", return_snapshot=saved)
            after[str(done.run_id)] = found
        await hf.journal.flush()
        expected: Any = "RUNTIME_ERROR"
        records = [one async for one in hf.journal.read("s")]
        assert len(records) > len(HISTORY)
        for record in records:
            if record.kind in ("run_completed", "run_failed"):
                expected = after[str(record.run_id)]
            name = f"at-{record.seq}"
            await hf.shell.fork("s", name, at=record.seq)
            assert await value(hf, "[x, y]", name) == expected, record.kind
        assert world.done == ["tick a", "tick b"]


async def test_fork_at_a_record_in_the_middle_of_a_run_is_before_it(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\ntick('a')\npay('b', 1)\nx = 3")
        await hf.journal.flush()
        at = await hf.journal.last_seq()
        await approve(hf, run)
        await hf.shell.fork("s", "t", at=at)
        assert [await value(hf, "x", name) for name in "st"] == [3, 1]


async def test_fork_at_a_record_before_the_first_is_refused() -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="other")
        at = await hf.journal.last_seq()
        await hf.shell.run("x = 1", session="s")
        with pytest.raises(CallerError) as refused:
            await hf.shell.fork("s", "t", at=at)
        assert refused.value.code == "INVALID_ARGUMENT"


async def test_a_record_that_is_not_there_yet_is_refused() -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s")
        await hf.journal.flush()
        last = await hf.journal.last_seq()
        await hf.shell.fork("s", "now", at=last)
        for act in (hf.shell.fork("s", "t", at=999_999), hf.shell.diff("s", at=999_999)):
            with pytest.raises(CallerError, match="999999"):
                await act
        assert [one.id for one in await hf.shell.list()] == ["now", "s"]


async def test_fork_at_does_not_reach_a_destroyed_session_of_that_name() -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s", durable=True)
        at = await hf.journal.last_seq()
        await hf.shell.destroy("s")
        await hf.shell.run("y = 1", session="s")
        with pytest.raises(CallerError) as refused:
            await hf.shell.fork("s", "t", at=at)
        assert refused.value.code == "INVALID_ARGUMENT"


async def test_fork_at_a_record_keeps_the_limits_of_a_later_setup(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s", durable=True)
        at = await hf.journal.last_seq()
        await hf.shell.run("x = 2", session="s", setup={"limits": {"memory_mb": 32}})
        for name, where, found in (("t", at, 1), ("u", None, 2)):
            await hf.shell.fork("s", name, at=where)
            done = await hf.shell.run("[x, current_policy()['limits']['memory_mb']]", session=name)
            assert done.result == [found, 32]


async def test_fork_at_reaches_behind_a_reset_and_a_restore(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        at: dict[str, int] = {}
        await hf.shell.run("x = 1", session="s")
        kept = await hf.shell.snapshot("s")
        at["one"] = await hf.journal.last_seq()
        await hf.shell.reset("s")
        await hf.shell.run("x = 2", session="s")
        await hf.journal.flush()
        at["two"] = await hf.journal.last_seq()
        await hf.shell.restore("s", kept)
        await hf.shell.run("x = x + 10", session="s")
        await hf.journal.flush()
        at["three"] = await hf.journal.last_seq()
        await hf.shell.run("x = 0", session="s")
        for name, seq in at.items():
            await hf.shell.fork("s", name, at=seq)
        assert [await value(hf, "x", name) for name in at] == [1, 2, 11]


async def test_fork_in_another_process(file: str) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        await hf.journal.flush()
        at = await hf.journal.last_seq()
        await hf.shell.run("x = 2", session="s")
    text = f"""
await hf.shell.fork("s", "now")
await hf.shell.fork("s", "then", at={at})
tell([(await hf.shell.run("x", session=name)).result for name in ("s", "now", "then")])
"""
    assert await elsewhere(file, text, {}) == [2, 2, 1]


# -- reset, diff, destroy -----------------------------------------------------------------------------


async def test_reset_empties_and_keeps_the_history(file: str) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        view = await hf.shell.reset("s")
        assert (view.status, view.runs) == ("open", 1)
        assert await value(hf, "x") == "RUNTIME_ERROR"
        await hf.shell.run("y = 2", session="s")
        assert len(await hf.runs.list(session="s")) == 3
    assert await elsewhere(file, "tell((await hf.shell.run('y', session='s')).result)", {}) == 2
    gone = "tell((await hf.shell.run('x', session='s')).status.value)"
    assert await elsewhere(file, gone, {}) == "runtime_error"


async def test_diff_tells_what_changed(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("a = 1\nb = [1]\nc = 'x'", session="s")
        kept = await hf.shell.snapshot("s")
        await hf.journal.flush()
        at = await hf.journal.last_seq()
        await hf.shell.fork("s", "t")
        await hf.shell.run("b.append(2)\nd = {'k': None}\nc = 'x'", session="s")
        for found in (
            await hf.shell.diff("s", at=at),
            await hf.shell.diff("s", snapshot=kept),
            await hf.shell.diff("s", other="t"),
        ):
            assert found.added == {"d": "{'k': None}"}
            assert found.removed == {}
            assert {name: (one.before, one.after) for name, one in found.changed.items()} == {
                "b": ("[1]", "[1, 2]")
            }
        back = await hf.shell.diff("t", other="s")
        assert (list(back.added), list(back.removed)) == ([], ["d"])
        with pytest.raises(CallerError):
            await hf.shell.diff("s")
        assert await value(hf, "b") == [1, 2]


async def test_diff_leaves_no_trace_in_the_session(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("a = 1", session="s")
        before = await kinds(hf, "s")
        assert not (await hf.shell.diff("s", other="s")).changed
        assert await kinds(hf, "s") == before


async def test_destroyed_is_gone_for_every_process(file: str) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.run("x = 'hunter2'", session="s")
        await elsewhere(file, "await hf.shell.destroy('s')", {})
        assert (await hf.shell.show("s")).status == "destroyed"
        assert await value(hf, "x") == "RUNTIME_ERROR"
        assert (await hf.shell.show("s")).status == "open"


async def left(hf: holdfast.Runtime, word: str) -> list[str]:
    """The kinds of the records whose content still holds a word."""
    found: list[str] = []
    async for record in hf.journal.read_all():
        for ref in record.content:
            try:
                body = await hf.journal.content(ref.digest)
            except CallerError:
                continue
            if word.encode() in body:
                found.append(record.kind)
    return found


async def test_destroying_erases_code_that_was_validated_or_tried_before_it_ran() -> None:
    async with holdfast.open("memory:", {}) as hf:
        code = "address = 'Harbour Street'"
        await hf.shell.run(code, session="s", validate_only=True)
        await hf.shell.run(code, session="s", dry_run=True)
        assert (await hf.shell.run(code, session="s")).status == "ok"
        await hf.shell.destroy("s")
        assert await left(hf, "Harbour Street") == []


async def test_sweeping_erases_what_was_never_run_in_a_destroyed_session() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        await hf.shell.run("1", session="s")
        await hf.shell.run("'Harbour Street'", session="s", validate_only=True)
        tried = await hf.shell.run("pay('Harbour Street', 1)", session="s", dry_run=True)
        assert tried.plan_id is not None
        assert await sweep(hf.journal) == []
        await hf.shell.destroy("s")
        await sweep(hf.journal)
        assert await left(hf, "Harbour Street") == []
        # A plan for a session that comes after it is not the old one's.
        tried = await hf.shell.run("pay('Quay', 1)", session="s", dry_run=True)
        assert await sweep(hf.journal) == []
        await hf.shell.run("1", session="s")
        assert await sweep(hf.journal) == []
        assert await left(hf, "Quay") != []
        await hf.shell.destroy("s")
        await sweep(hf.journal)
        assert await left(hf, "Quay") == []
        assert (await hf.journal.verify()).ok


async def test_destroying_withdraws_what_its_run_waits_for(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, "pay('a', 1)")
        await hf.shell.destroy("s")
        assert (await hf.runs.show(str(run.run_id))).status == "cancelled"
        assert (await hf.approvals.show(str(run.approval_id))).status == "cancelled"
        with pytest.raises(Conflict):
            await hf.approvals.decide(str(run.approval_id), "approved")
        assert world.done == []


# -- time to live -------------------------------------------------------------------------------------


async def test_ttl_ms_is_enforced(url: str) -> None:
    """Unused for longer than it was opened for, a session is destroyed; one that is used is not."""
    async with holdfast.open(url, {}) as hf:
        await hf.shell.create("short", setup={"ttl_ms": 1000})
        await hf.shell.run("x = 1", session="long", setup={"ttl_ms": 1_000_000})
        await hf.shell.run("x = 1", session="ever")
        used = (await hf.shell.show("short")).last_used_at
        assert await hf.shell.expire(now=used + 1000) == 0
        assert await hf.shell.expire(now=used + 1001) == 1
        assert [one.id for one in await hf.shell.list()] == ["ever", "long"]
        [ended] = [one async for one in hf.journal.read("short") if one.kind == "session_destroyed"]
        assert ended.payload["reason"] == "expired"


async def test_ttl_ms_counts_from_the_last_use(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.create("s", setup={"ttl_ms": 1000})
        first = (await hf.shell.show("s")).last_used_at
        await anyio.sleep(0.01)
        await hf.shell.run("1", session="s")
        await hf.journal.flush()
        assert (await hf.shell.show("s")).last_used_at > first
        assert await hf.shell.expire(now=first + 1001) == 0


async def test_ttl_ms_does_not_end_a_session_in_use() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        await hf.shell.create("s", setup={"ttl_ms": 1})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: hf.shell.run("x = await wait('a')", session="s"))
            await until_done(world, "wait a")
            assert await hf.shell.expire(now=10**15) == 0
            world.gate("a").set()
        assert await value(hf, "x") == "a"


async def test_a_session_whose_time_has_run_out_is_gone_for_whoever_comes_next() -> None:
    """Also where no process was there to end it: the clock of this journal stands at a time long past."""
    journal = MemoryJournal(clock=lambda: 1_000_000)
    async with holdfast.open(journal, {}) as hf:
        for name in "abcdef":
            await hf.shell.run("x = 1", session=name, setup={"ttl_ms": 1000, "clock": True})
        await hf.shell.run("x = 1", session="stays")
    async with holdfast.open(journal, {}) as hf:
        assert [one.id for one in await hf.sessions.list(limit=1)] == ["stays"]
        assert [one.id for one in await hf.shell.list()] == ["stays"]
        assert (await hf.shell.show("a")).status == "destroyed"
        fresh = await hf.shell.run("x", session="a")
        assert (fresh.error and fresh.error.code) == "RUNTIME_ERROR"
        assert (await hf.shell.run("list_tools()", session="a")).result == []
        checked = await hf.shell.run("x()", session="b", validate_only=True)
        assert (checked.error and checked.error.code) == "UNKNOWN_TOOL"
        assert (await hf.shell.create("c")).runs == 0
        for act in (hf.shell.fork("d", "new"), hf.shell.snapshot("e"), hf.shell.reset("f")):
            with pytest.raises(NotFound):
                await act
        reasons = [
            one.payload["reason"]
            async for one in hf.journal.read_all()
            if one.kind == "session_destroyed"
        ]
        assert reasons == ["expired"] * 6


async def test_a_session_that_is_at_hand_expires_without_upkeep() -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s", setup={"ttl_ms": 5})
        await hf.journal.flush()
        await anyio.sleep(0.02)  # what is waited for is time itself
        gone = await hf.shell.run("x", session="s")
        assert (gone.error and gone.error.code) == "RUNTIME_ERROR"


async def test_sessions_of_a_process_that_is_gone_expire(file: str) -> None:
    text = "await hf.shell.run('x = 1', session='s', setup={'ttl_ms': 50})"
    await elsewhere(file, text, {})
    async with holdfast.open(file, {}) as hf:
        await anyio.sleep(0.1)
        await until(hf.shell.list, lambda found: not found)
        assert (await hf.shell.show("s")).status == "destroyed"


# -- one run at a time --------------------------------------------------------------------------------


async def test_second_run_waits_its_turn_or_is_refused(url: str) -> None:
    world, found = World(), list[Any]()
    async with opened(url, world) as hf:

        async def run(code: str) -> None:
            found.append((await hf.shell.run(code, session="s")).result)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "x = [await wait('a')]\nx")
            await until_done(world, "wait a")
            tasks.start_soon(run, "x.append(2)\nx")
            with pytest.raises(Conflict) as refused:
                await hf.shell.run("x", session="s", wait_ms=0)
            assert refused.value.code == "SESSION_BUSY"
            for act in (
                hf.shell.snapshot("s", wait_ms=0),
                hf.shell.reset("s", wait_ms=0),
                hf.shell.destroy("s", wait_ms=0),
                hf.shell.fork("s", "t", wait_ms=0),
            ):
                with pytest.raises(Conflict):
                    await act
            assert (await hf.shell.run("1", session="other", wait_ms=0)).result == 1
            assert found == []
            world.gate("a").set()
        assert found == [["a"], ["a", 2]]


async def test_a_session_never_sees_another(url: str) -> None:
    async with holdfast.open(url, ALLOW) as hf:
        for name in "ab":
            code = f"secret = '{name}'\ndef f(): return secret"
            await hf.shell.run(code, session=name)
        assert [await value(hf, "f()", name) for name in "ab"] == ["a", "b"]
        for code in ("secret", "f()", "globals()['secret']", "vars()"):
            assert (await hf.shell.run(code, session="c")).status != "ok"
