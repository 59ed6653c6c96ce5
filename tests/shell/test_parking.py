"""A run that waits for a person holds nothing, survives its process, and goes on in the middle of its line."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.shell.support import (
    ALLOW,
    BY_REFERENCE,
    World,
    approve,
    codes,
    done_in,
    elsewhere,
    kinds,
    opened,
    parked,
    pending,
)

import holdfast
from holdfast import ApprovalDecision, Decision
from holdfast.errors import CallerError, Conflict

LOOP = """
seen = []
for who in ['ann', 'bob', 'eve']:
    print(f'at {who}')
    seen.append([who, tick(who)])
    if who == 'bob':
        seen.append(pay(who, 100 + len(seen)))
print('done')
result = seen
"""
"""Stands in the middle of the second round."""


# -- goes on where it was -----------------------------------------------------------------------------


async def test_goes_on_in_the_same_round_of_a_loop(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, LOOP)
        assert run.stdout == "at ann\nat bob\n"
        assert world.done == ["tick ann", "tick bob"]
        done = await approve(hf, run)
        assert done.result == [["ann", 1], ["bob", 2], "paid bob", ["eve", 4]]
        assert done.stdout == "at ann\nat bob\nat eve\ndone\n"
        # What came before the call was not run again.
        assert world.done == ["tick ann", "tick bob", "pay bob 102", "tick eve"]
        assert (await hf.shell.run("[who, len(seen)]", session="s")).result == ["eve", 4]


async def test_goes_on_in_another_process(file: str, tmp_path: Path) -> None:
    async with holdfast.open(file, BY_REFERENCE) as hf:
        run = await parked(hf, LOOP)
    told = await elsewhere(
        file,
        f"""
await hf.approvals.decide({run.approval_id!r}, 'approved')
done = await hf.runs.resume({run.run_id!r})
more = await hf.shell.run("[who, len(seen)]", session="s")
tell([done.model_dump(mode='json'), more.result])
""",
    )
    done, more = told
    assert done["result"] == [["ann", 1], ["bob", 2], "paid bob as number 3", ["eve", 4]]
    assert done["stdout"] == "at ann\nat bob\nat eve\ndone\n"
    assert done_in(tmp_path) == ["tick ann", "tick bob", "pay bob 102", "tick eve"]
    assert more == ["eve", 4]
    async with holdfast.open(file, BY_REFERENCE) as hf:
        assert (await hf.runs.result(str(run.run_id))).model_dump(mode="json") == done


async def test_goes_on_though_the_state_at_the_call_is_lost(file: str, tmp_path: Path) -> None:
    """Then the code is run again against the record: nothing is done twice."""
    async with holdfast.open(file, BY_REFERENCE) as hf:
        run = await parked(hf, LOOP)
        [stands] = [one async for one in hf.journal.read("s") if one.kind == "run_parked"]
        assert await hf.journal.erase(str(stands.payload["state"]), reason="test")
    async with holdfast.open(file, BY_REFERENCE) as hf:
        done = await approve(hf, run)
        assert done.result == [["ann", 1], ["bob", 2], "paid bob as number 3", ["eve", 4]]
        assert done.stdout == "at ann\nat bob\nat eve\ndone\n"
        assert done_in(tmp_path) == ["tick ann", "tick bob", "pay bob 102", "tick eve"]
        [resumed] = [one async for one in hf.journal.read("s") if one.kind == "run_resumed"]
        assert resumed.payload["how"] == "replay"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("result = pay('a', 1)\nresult + '!'", "paid a"),
        ("pay('a', 1) + '!'", "paid a!"),
        ("x = pay('a', 1)", None),
        ("[n for n in range(3) if n != 1 or pay('a', 1)]", [0, 1, 2]),
        ("def f(n):\n    m = n + 1\n    return [n, pay('a', m), m]\nf(1)", [1, "paid a", 2]),
        ("try:\n    x = pay('a', 1)\nfinally:\n    y = 7\n[x, y]", ["paid a", 7]),
        (
            "class A:\n    def go(self, n):\n        return [pay('a', n), n]\nA().go(4)",
            ["paid a", 4],
        ),
        ("given['x'] + len(pay('a', 1))", 16),
        ("f'<{pay(chr(97), 1)}>'", "<paid a>"),
        ("await ship('a')", "shipped to a"),
        ("x = [1, 2]\nx[pay('a', 1) == 'paid a'] = 7\nx", [1, 7]),
    ],
)
async def test_whatever_the_code_was_doing_goes_on(code: str, found: Any) -> None:
    world = World()
    async with opened("memory:", world) as hf:
        run = await parked(hf, code, inputs={"given": {"x": 10}})
        done = await approve(hf, run)
        assert (done.status, done.result) == ("ok", found)
        assert len(world.done) == 1


async def test_functions_and_variables_of_earlier_runs_are_there(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("base = 5\ndef f(n):\n    return pay('a', base + n)", session="s")
        run = await parked(hf, "base += 1\nresult = [f(1), base]")
        assert (await approve(hf, run)).result == ["paid a", 6]
        assert world.done == ["pay a 7"]
        assert (await hf.shell.run("base", session="s")).result == 6


async def test_an_uncaught_denial_ends_the_run_where_it_called(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, "x = 1\npay('a', 1)\nx = 2")
        done = await approve(hf, run, "denied")
        assert codes(done) == ("permission_denied", "PERMISSION_DENIED")
        assert done.error is not None
        assert done.error.span is not None
        assert done.error.span.line == 2
        assert world.done == []
        assert [one.status for one in done.external_calls] == ["denied"]
        assert (await hf.shell.run("x", session="s")).result == 1


# -- several questions --------------------------------------------------------------------------------


async def test_two_questions_in_a_row(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, "a = pay('a', 1)\nb = pay('b', 2)\nresult = [a, b]")
        again = await approve(hf, run)
        assert again.status == "waiting_for_approval"
        assert again.run_id == run.run_id
        assert again.approval_id != run.approval_id
        done = await approve(hf, again)
        assert done.result == ["paid a", "paid b"]
        assert world.done == ["pay a 1", "pay b 2"]


GATHER = """
import asyncio

async def one(call):
    try:
        return await call
    except PermissionError:
        return 'no'

result = await asyncio.gather(one(ship('a')), one(ship('b')))
"""


async def test_both_are_answered_before_it_goes_on(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, GATHER)
        for one in (await pending(hf)).values():
            await hf.approvals.decide(one, "approved")
        done = await hf.runs.resume(str(run.run_id))
        assert done.result == ["shipped to a", "shipped to b"]
        assert sorted(world.done) == ["ship a", "ship b"]


async def test_one_is_denied(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, GATHER)
        asked = await pending(hf)
        await hf.approvals.decide(asked["a"], "denied")
        still = await hf.runs.resume(str(run.run_id))
        assert (still.status, still.approval_id) == ("waiting_for_approval", asked["b"])
        await hf.approvals.decide(asked["b"], "approved")
        assert (await hf.runs.resume(str(run.run_id))).result == ["no", "shipped to b"]
        assert world.done == ["ship b"]


# -- while it stands ----------------------------------------------------------------------------------


async def test_its_session_takes_no_other_run_and_others_go_on(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\npay('a', 1)")
        with pytest.raises(Conflict) as refused:
            await hf.shell.run("x", session="s")
        assert refused.value.code == "RUN_OPEN"
        assert str(run.run_id) in refused.value.message
        for act in (hf.shell.reset("s"), hf.shell.restore("s", await hf.shell.snapshot("s"))):
            with pytest.raises(Conflict) as refused:
                await act
            assert refused.value.code == "RUN_OPEN"
        assert (await hf.shell.run("tick('x')", session="t")).result == 1
        valid = await hf.shell.run("x + 1", session="s", validate_only=True)
        assert valid.status == "ok"
        assert (await approve(hf, run)).status == "ok"
        assert (await hf.shell.run("x", session="s")).result == 2


async def test_a_run_that_stands_is_not_in_what_is_saved_or_forked(url: str) -> None:
    """A copy of the session has the state before the run."""
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("x = 1", session="s")
        run = await parked(hf, "x = 2\npay('a', 1)\nx = 3")
        await hf.shell.fork("s", "t")
        assert (await hf.shell.run("x", session="t")).result == 1
        await hf.shell.restore("u", await hf.shell.snapshot("s"))
        assert (await hf.shell.run("x", session="u")).result == 1
        assert (await approve(hf, run)).status == "ok"
        assert (await hf.shell.run("x", session="s")).result == 3


def children() -> set[str]:
    """The processes below this one."""
    found: dict[str, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if fields[0] != "Z":
            found[pid] = fields[1]
    below, new = set[str](), {str(os.getpid())}
    while new:
        new = {pid for pid, parent in found.items() if parent in new}
        below |= new
    return below


async def test_no_process_and_no_lease_are_held(tmp_path: Path) -> None:
    world = World()
    async with opened(f"sqlite:///{tmp_path}/journal.db", world) as hf:
        before = children()
        for number in range(5):
            await parked(hf, "pay('a', 1)", f"s{number}")
            head = await hf.journal.head(f"s{number}")
            assert head.owner is None or head.until == 0
        assert len(children()) <= len(before)


async def test_resuming_while_it_waits_changes_nothing(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, LOOP)
        await hf.journal.flush()
        before = await hf.journal.last_seq()
        again = await hf.runs.resume(str(run.run_id))
        assert again == run
        await hf.journal.flush()
        assert await hf.journal.last_seq() == before
        assert world.done == ["tick ann", "tick bob"]


async def test_the_call_it_waits_at_is_told_by_its_digest(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, LOOP)
        *_, line = run.external_calls
        assert (line.name, line.status) == ("pay", "approval_pending")
        assert run.metrics.external_calls_count == len(run.external_calls) == 3
        done = await approve(hf, run)
        assert done.external_calls[2].request_digest == line.request_digest
        assert len(line.request_digest) == 64


@pytest.mark.parametrize("asked", [False, True])
async def test_its_state_is_named_if_its_caller_asked_for_that(url: str, asked: bool) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await hf.shell.run("pay('ann', 1)", session="s", return_snapshot=asked)
        done = await approve(hf, run)
        assert done.status == "ok"
        assert (done.snapshot_id is not None) == asked


async def test_resuming_what_is_over_gives_its_result(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        run = await parked(hf, LOOP)
        done = await approve(hf, run)
        before = await kinds(hf, "s")
        assert await hf.runs.resume(str(run.run_id)) == done
        assert await kinds(hf, "s") == before


async def test_resuming_without_the_capabilities_is_refused_and_loses_nothing(
    file: str, tmp_path: Path
) -> None:
    tools = World().tools()
    async with holdfast.open(file, ALLOW, capabilities=tools) as hf:
        run = await parked(hf, LOOP)
        await hf.approvals.decide(str(run.approval_id), "approved")
    before: int | None = None
    async with holdfast.open(file, ALLOW) as hf:
        before = await hf.journal.last_seq()
        with pytest.raises(CallerError) as refused:
            await hf.runs.resume(str(run.run_id))
        assert refused.value.code == "SNAPSHOT_CAPABILITY_MISMATCH"
        assert "pay" in refused.value.message
        await hf.journal.flush()
        assert await hf.journal.last_seq() == before
    world = World()
    async with opened(file, world) as hf:
        done = await hf.runs.resume(str(run.run_id))
        assert done.status == "ok"
        assert world.done == ["pay bob 102", "tick eve"]


async def test_two_who_resume_at_once_call_once(file: str, tmp_path: Path) -> None:
    async with holdfast.open(file, BY_REFERENCE) as hf:
        run = await parked(hf, LOOP)
        await hf.approvals.decide(str(run.approval_id), "approved")
    async with holdfast.open(file, BY_REFERENCE) as one, holdfast.open(file, BY_REFERENCE) as two:
        found: list[Any] = []

        async def resume(hf: holdfast.Runtime) -> None:
            found.append(await hf.runs.resume(str(run.run_id)))

        async with anyio.create_task_group() as tasks:
            for hf in (one, two, one):
                tasks.start_soon(resume, hf)
        assert [done.status for done in found] == ["ok"] * 3
        assert found[0] == found[1] == found[2]
    assert done_in(tmp_path) == ["tick ann", "tick bob", "pay bob 102", "tick eve"]


async def test_waiting_for_a_person_is_not_the_runs_time() -> None:
    """Also when the person is asked at once: the run does not even park."""

    async def ask(_: object) -> ApprovalDecision:
        await anyio.sleep(1.6)
        return ApprovalDecision(decision=Decision.APPROVED, actor="ann")

    world = World()
    async with holdfast.open("memory:", ALLOW, capabilities=world.tools(), on_approval=ask) as hf:
        code = "import asyncio\nawait asyncio.gather(ship('a'), look('b'))"
        done = await hf.shell.run(code, session="s", timeout_ms=1500)
        assert done.result == ["shipped to a", "b is fine"]
        done = await hf.shell.run("pay('a', 1)", session="s", timeout_ms=1500)
        assert done.result == "paid a"


async def test_cpu_ms_is_enforced_after_it_went_on() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        run = await parked(hf, "pay('a', 1)\nwhile True: pass", limits={"cpu_ms": 300})
        done = await approve(hf, run)
        assert codes(done) == ("timeout", "TIMEOUT_CPU")
        assert (await hf.shell.run("1", session="s")).result == 1


async def test_limits_of_the_run_hold_after_it_went_on() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        code = "tick('1')\npay('a', 1)\ntick('2')\ntick('3')"
        run = await parked(hf, code, limits={"max_external_calls": 3})
        done = await approve(hf, run)
        assert codes(done) == ("resource_exhausted", "EXTERNAL_CALLS_EXCEEDED")
        assert world.done == ["tick 1", "pay a 1", "tick 2"]
        assert len(done.external_calls) == 3
