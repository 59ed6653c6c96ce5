"""The five limits of a capability and the six of a session, kept by code that calls out."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.support import ASKS_NOT, World, allowing, approve, kinds, parked, said

import holdfast
from holdfast import RunResult, capability
from holdfast.capabilities.declare import Declared


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def code_of(run: RunResult) -> str | None:
    return run.error.code if run.error else None


def hanging(**terms: Any) -> Declared[..., Any]:
    """A capability that never returns."""

    async def hang(what: str = "") -> str:
        """Hang."""
        await anyio.sleep_forever()
        return what

    return capability(hang, **{"side_effect": "read", **terms})


# -- a capability's -----------------------------------------------------------------------------------


async def test_timeout_ms_is_enforced() -> None:
    async with holdfast.open("memory:", {}, capabilities=[hanging(timeout_ms=50)]) as hf:
        run = await hf.shell.run("await hang()", session="s")
        assert (run.status, code_of(run)) == ("timeout", "TIMEOUT_TOOL")
        assert run.external_calls[0].status == "timeout"
        (result,) = await said(hf, run, "effect_result")
        assert result["terminal_status"] == "timed_out"
        text = "try:\n    await hang()\nexcept TimeoutError as why:\n    result = str(why)"
        run = await hf.shell.run(text, session="s")
        assert run.status == "ok"
        assert "50 ms" in str(run.result)


async def test_a_timeout_of_the_capability_is_its_own() -> None:
    @capability(side_effect="write")
    async def ring() -> str:
        """Raise what a client of somebody else's raises."""
        raise TimeoutError("the other side")

    async with holdfast.open("memory:", ASKS_NOT, capabilities=[ring]) as hf:
        run = await hf.shell.run("await ring()", session="s")
        assert (run.status, code_of(run)) == ("runtime_error", "TOOL_ERROR")
        assert run.error is not None
        assert "the other side" in run.error.message
        (result,) = await said(hf, run, "effect_result")
        assert (result["terminal_status"], result["raised"]) == ("failed", "TimeoutError")


async def test_timeout_ms_of_a_write_leaves_it_in_doubt() -> None:
    """Of what must not be done twice, a deadline is no answer."""
    tool = hanging(timeout_ms=50, side_effect="write")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[tool]) as hf:
        run = await hf.shell.run("await hang()", session="s")
        assert (run.status, code_of(run)) == ("interrupted", "INTERRUPTED")
        (effect,) = run.in_doubt
        assert (await hf.runs.effects(str(run.run_id)))[0].status == "unknown"
        await hf.runs.resolve(str(run.run_id), effect, "happened", value="there")
        assert (await hf.runs.resume(str(run.run_id))).status == "ok"


async def test_timeout_ms_of_a_function_that_ignores_it() -> None:
    """A thread can't be stopped; the code goes on without it."""
    go = threading.Event()

    def stubborn() -> str:
        go.wait(30)
        return "late"

    tool = capability(stubborn, side_effect="read", timeout_ms=50)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run("stubborn()", session="s")
        go.set()
        assert code_of(run) == "TIMEOUT_TOOL"


async def test_max_request_bytes_is_enforced() -> None:
    world = World()
    tool = world.send(max_request_bytes=30)
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[tool]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "ok"
        run = await hf.shell.run("send('a' * 100)", session="s")
        assert (run.status, code_of(run)) == ("runtime_error", "REQUEST_TOO_LARGE")
        text = "try:\n    send('a' * 100)\nexcept ValueError as why:\n    result = 'caught'"
        assert (await hf.shell.run(text, session="s")).result == "caught"
    assert world.done == ["ann"]


async def test_max_request_bytes_is_checked_before_anybody_is_asked() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send(max_request_bytes=30)]) as hf:
        run = await hf.shell.run("send('a' * 100)", session="s")
        assert code_of(run) == "REQUEST_TOO_LARGE"
        assert await hf.approvals.list(status="all") == []


async def test_max_response_bytes_is_enforced() -> None:
    def much(n: int) -> str:
        return "x" * n

    tool = capability(much, side_effect="read", max_response_bytes=50)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        assert (await hf.shell.run("result = len(much(48))", session="s")).result == 48
        run = await hf.shell.run("much(49)", session="s")
        assert (run.status, code_of(run)) == ("runtime_error", "RESPONSE_TOO_LARGE")
        (result,) = await said(hf, run, "effect_result")
        assert result["terminal_status"] == "failed"
        assert not result.get("content_refs")


async def test_concurrency_is_enforced() -> None:
    now, most = 0, 0

    async def step(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(0.005)
        now -= 1
        return n

    tool = capability(step, side_effect="read", concurrency=2)
    text = "import asyncio\nresult = await asyncio.gather(*[step(n) for n in range(9)])"
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        found = dict[str, RunResult]()

        async def run(session: str) -> None:
            found[session] = await hf.shell.run(text, session=session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "a")
            tasks.start_soon(run, "b")
        assert [one.result for one in found.values()] == [list(range(9))] * 2
    assert most == 2


async def test_rate_per_min_is_enforced() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(rate_per_min=2)]) as hf:
        run = await hf.shell.run("look('a')\nlook('b')\nlook('c')", session="s")
        assert (run.status, code_of(run)) == ("runtime_error", "RATE_LIMITED")
        # Sessions share the capability, and so its rate.
        assert code_of(await hf.shell.run("look('d')", session="t")) == "RATE_LIMITED"
    assert world.done == ["look a", "look b"]


async def test_rate_per_min_is_enforced_across_a_restart(url: str) -> None:
    world = World()
    for at in ("a", "b", "c", "d"):
        async with holdfast.open(url, {}, capabilities=[world.look(rate_per_min=2)]) as hf:
            await hf.shell.run(f"look({at!r})", session="s")
    assert world.done == ["look a", "look b"]


async def test_refused_calls_do_not_count_for_the_rate(url: str) -> None:
    """Neither in this process nor in the next: what was not made uses nothing up."""
    world = World()
    config = {"policy": {"rules": [{"id": "x", "where": "args.at == 'x'", "then": "deny"}]}}
    for at in ("x", "x", "a", "x", "b", "c", "c", "c"):
        async with holdfast.open(url, config, capabilities=[world.look(rate_per_min=2)]) as hf:
            await hf.shell.run(f"look({at!r})", session="s")
    assert world.done == ["look a", "look b"]


async def test_rate_uses_up_the_approval() -> None:
    """An approval that meets a full minute is used; the next call asks again."""
    world = World()
    text = "send('a')\ntry:\n    send('b')\nexcept Exception as why:\n    result = str(why)"
    tool = world.send(rate_per_min=1)
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await approve(hf, await approve(hf, await parked(hf, text)))
        assert run.status == "ok"
        assert "within a minute" in str(run.result)
        assert (await kinds(hf, run)).count("approval_settled") == 2
        for effect in await hf.runs.effects(str(run.run_id)):
            assert effect.status not in ("open", "unknown")
    assert world.done == ["a"]


async def test_rule_makes_a_limit_smaller() -> None:
    rules: dict[str, Any] = {
        "policy": {"rules": [{"id": "r", "then": "allow", "limits": {"timeout_ms": 50}}]}
    }
    async with holdfast.open("memory:", rules, capabilities=[hanging(timeout_ms=60_000)]) as hf:
        assert code_of(await hf.shell.run("await hang()", session="s")) == "TIMEOUT_TOOL"


async def test_rule_does_not_make_a_limit_greater() -> None:
    rules: dict[str, Any] = {
        "policy": {"rules": [{"id": "r", "then": "allow", "limits": {"timeout_ms": 60_000}}]}
    }
    async with holdfast.open("memory:", rules, capabilities=[hanging(timeout_ms=50)]) as hf:
        assert code_of(await hf.shell.run("await hang()", session="s")) == "TIMEOUT_TOOL"


# -- a session's, in runs that call out ---------------------------------------------------------------


async def test_wall_ms_is_enforced_while_a_capability_runs() -> None:
    async with holdfast.open("memory:", {}, capabilities=[hanging(timeout_ms=60_000)]) as hf:
        run = await hf.shell.run("await hang()", session="s", limits={"wall_ms": 200})
        assert (run.status, code_of(run)) == ("timeout", "TIMEOUT_WALL")
        assert (await hf.shell.run("1 + 1", session="s")).result == 2


async def test_wall_ms_does_not_count_waiting_for_a_person() -> None:
    world = World()
    limits = {"wall_ms": 1000}

    async def slowly(_: holdfast.ApprovalView) -> str:
        await anyio.sleep(1.1)
        return "approved"

    async with holdfast.open("memory:", {}, capabilities=[world.send()], on_approval=slowly) as hf:
        run = await hf.shell.run("result = send('ann')", session="s", limits=limits)
        assert (run.status, run.result) == ("ok", "sent to ann")
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, limits=limits)
        await anyio.sleep(1.1)
        assert (await approve(hf, run)).status == "ok"


async def test_wall_ms_goes_on_where_the_parked_run_stopped() -> None:
    """What was used before the wait is used."""
    world = World()
    tools = [world.send(), hanging(timeout_ms=600)]
    text = """
try:
    await hang()
except TimeoutError:
    pass
send('ann')
try:
    await hang()
except TimeoutError:
    pass
"""
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        run = await parked(hf, text, limits={"wall_ms": 1100})
        run = await approve(hf, run)
        assert code_of(run) == "TIMEOUT_WALL"


async def test_max_external_calls_is_enforced() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        text = "for n in range(9):\n    look(str(n))"
        run = await hf.shell.run(text, session="s", limits={"max_external_calls": 3})
        assert (run.status, code_of(run)) == ("resource_exhausted", "EXTERNAL_CALLS_EXCEEDED")
    assert len(world.done) == 3


async def test_max_external_calls_is_enforced_for_calls_at_once() -> None:
    world = World()
    text = "import asyncio\nawait asyncio.gather(*[asend(str(n)) for n in range(9)])"
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.asend()]) as hf:
        run = await hf.shell.run(text, session="s", limits={"max_external_calls": 3})
        assert code_of(run) == "EXTERNAL_CALLS_EXCEEDED"
    assert len(world.done) <= 3


async def test_max_external_calls_is_enforced_across_a_wait(url: str) -> None:
    world = World()
    text = "for n in range(9):\n    send(str(n))"
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, text, limits={"max_external_calls": 2})
        run = await approve(hf, run)
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, run)
        assert code_of(run) == "EXTERNAL_CALLS_EXCEEDED"
    assert world.done == ["0", "1"]


async def test_cpu_ms_is_enforced_after_a_call() -> None:
    world = World()
    limits = {"cpu_ms": 100, "wall_ms": 20_000}
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        run = await hf.shell.run("look()\nwhile True:\n    pass", session="s", limits=limits)
        assert (run.status, code_of(run)) == ("timeout", "TIMEOUT_CPU")


async def test_cpu_ms_does_not_count_a_call() -> None:
    limits = {"cpu_ms": 400, "wall_ms": 20_000}
    text = "try:\n    await hang()\nexcept TimeoutError:\n    result = 'fine'"
    async with holdfast.open("memory:", {}, capabilities=[hanging(timeout_ms=700)]) as hf:
        run = await hf.shell.run(text, session="s", limits=limits)
        assert (run.status, run.result) == ("ok", "fine")


async def test_memory_mb_is_enforced_by_what_calls_give() -> None:
    def much() -> str:
        return "x" * 1_000_000

    tool = capability(much, side_effect="read")
    limits = {"memory_mb": 16, "max_external_calls": 100}
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        text = "kept = []\nfor n in range(99):\n    kept.append(much() + str(n))"
        run = await hf.shell.run(text, session="s", limits=limits)
        assert (run.status, code_of(run)) == ("resource_exhausted", "MEMORY_EXCEEDED")
        assert (await hf.shell.run("1 + 1", session="s")).result == 2


async def test_max_stdout_bytes_is_enforced_across_calls() -> None:
    world = World()
    limits = {"max_stdout_bytes": 10}
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        run = await hf.shell.run("print('12345678')\nlook()\nprint('12345678')", limits=limits)
        assert run.status == "ok"
        assert len(run.stdout.encode()) <= 10
        assert any(one.code == "OUTPUT_TRUNCATED" for one in run.diagnostics)


async def test_max_stack_depth_is_enforced_around_a_call() -> None:
    world = World()
    text = "def f(n):\n    if n == 0:\n        return look()\n    return f(n - 1)\nresult = f({})"
    limits = {"max_stack_depth": 20}
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        run = await hf.shell.run(text.format(10), session="s", limits=limits)
        assert run.status == "ok"
        run = await hf.shell.run(text.format(50), session="s", limits=limits)
        assert (run.status, code_of(run)) == ("resource_exhausted", "STACK_OVERFLOW")
    assert len(world.done) == 1


async def test_limits_of_the_settings_hold() -> None:
    world = World()
    config = allowing(shell={"limits": {"max_external_calls": 1}})
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        run = await hf.shell.run("send('a')\nsend('b')", session="s")
        assert code_of(run) == "EXTERNAL_CALLS_EXCEEDED"
    assert world.done == ["a"]
