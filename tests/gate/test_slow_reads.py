"""A read is on record with its result; one that takes long, before it."""

import anyio
from tests.agent.watching import until

import holdfast
from holdfast import Runtime, capability
from holdfast.gate.hooks import HookInput, hook

gates: dict[str, anyio.Event] = {}


@capability(side_effect="read")
async def look(what: str) -> str:
    """Look something up; it takes as long as the test wants."""
    if what in gates:
        await gates[what].wait()
    return what


async def kinds(hf: Runtime) -> list[str]:
    return [one.kind async for one in hf.journal.read("s") if one.kind.startswith("effect_")]


async def test_a_read_that_takes_long_is_on_record_before_it_ends():
    gates["slow"] = anyio.Event()
    async with (
        holdfast.open("memory:", config={}, capabilities=[look]) as hf,
        anyio.create_task_group() as tasks,
    ):
        code = "[await look('quick'), await look('slow'), await look('quick')]"
        done: list[object] = []

        async def run() -> None:
            done.append((await hf.shell.run(code, session="s")).result)

        tasks.start_soon(run)
        while await kinds(hf) != ["effect_intent", "effect_result", "effect_intent"]:
            assert not done
            await anyio.sleep(0.05)
        (run_id,) = [one.id for one in await hf.runs.list(status="active")]
        assert [one.status for one in await hf.runs.effects(run_id)] == ["completed", "open"]
        gates["slow"].set()
        await until(lambda: bool(done))
        assert done == [["quick", "slow", "quick"]]
        assert await kinds(hf) == ["effect_intent", "effect_result"] * 3
        assert (await hf.journal.verify()).ok


async def test_one_that_fails_late_is_on_record_once():
    gates["slow"] = anyio.Event()
    limits = {"wall_ms": 1500}
    async with holdfast.open("memory:", config={}, capabilities=[look]) as hf:
        ended = await hf.shell.run("await look('slow')", session="s", limits=limits)
        assert ended.error is not None
        assert await kinds(hf) == ["effect_intent", "effect_result"]


async def test_one_whose_result_hooks_look_at_for_long_is_on_record_once():
    @hook("after_tool_call", rights=["rewrite_tool_result"], timeout_ms=5000)
    async def slow(asked: HookInput) -> None:
        await anyio.sleep(1.2)

    async with holdfast.open("memory:", config={}, capabilities=[look], hooks=[slow]) as hf:
        ended = await hf.shell.run("await look('quick')", session="s")
        assert ended.result == "quick"
        assert await kinds(hf) == ["effect_intent", "effect_result", "effect_seen"]
