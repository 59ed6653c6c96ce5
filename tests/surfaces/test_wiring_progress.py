"""How far a call is, told to whoever watches the run of an agent."""

from typing import Any

import anyio
import pytest
from tests.mcp.support import npm
from tests.surfaces.support import opened

from holdfast import Agent
from holdfast.agent.feeds import STEPS, Feed
from holdfast.contracts.agent_event import DELTAS, EffectStarted, ToolProgress
from holdfast.testing import ScriptedModel, call, say, write_code

EVERYTHING = npm("everything", connect_timeout_ms=30_000)
TOOL = "all_trigger_long_running_operation"


@pytest.mark.parametrize("code_mode", [True, False])
async def test_whoever_streams_a_run_is_told_how_far_its_calls_are(*, code_mode: bool):
    slow: dict[str, Any] = {"duration": 0.6, "steps": 3}
    first = write_code(f"await {TOOL}(0.6, 3)") if code_mode else call(TOOL, **slow)
    agent = Agent(ScriptedModel([first, say("done")]), code_mode=code_mode)
    async with (
        opened(surfaces={"all": EVERYTHING}) as hf,
        agent.stream("Go.", session="s", runtime=hf) as stream,
    ):
        told = [event async for event in stream]
        run = await stream.run()
        assert run.status == "completed"
        steps = [one for one in told if isinstance(one, ToolProgress)]
        assert steps
        assert {one.total for one in steps} == {3}
        ends = [one for one in told if isinstance(one, EffectStarted)]
        assert {one.effect_id for one in steps} == {one.effect_id for one in ends}
        assert {one.name for one in ends} == {TOOL}
        assert [one.progress for one in steps] == sorted(one.progress for one in steps)
        # On no record: whoever comes later is told the rest, and not that.
        again = [event async for event in hf.agents.events(run.id)]
        assert again == [one for one in told if not isinstance(one, DELTAS)]


def test_a_slow_watcher_gets_the_last_step_of_each_call_and_not_of_too_many():
    feed = Feed()
    listener = feed.listen()
    for n in range(STEPS + 5):
        feed.step("run_1", f"eff_{n}", 1.0)
        feed.step("run_1", f"eff_{n}", 2.0, 5.0, "half")
    found = listener.steps()
    assert len(found) == STEPS
    assert {one.progress for one in found} == {2.0}
    assert listener.steps() == []


async def test_a_step_wakes_whoever_waits():
    feed = Feed()
    listener = feed.listen()
    async with anyio.create_task_group() as group:
        group.start_soon(listener.wait)
        feed.step("run_1", "eff_1", 1.0)
    assert [one.progress for one in listener.steps()] == [1.0]
