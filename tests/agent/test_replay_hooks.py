"""What hooks did to a recorded run, they do to it again; none of them is asked."""

from pathlib import Path
from typing import Any

import pytest
from tests.agent.replay_support import QUICK, World, opened

from holdfast import Agent, hook
from holdfast.testing import ScriptedModel, call, replay_async, save_async, say, write_code


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


async def test_hooks_are_not_asked_and_count_all_the_same(world: World, tmp_path: Path):
    asked: list[str] = []

    @hook("before_tool_call", rights=["deny"])
    async def not_b(question: Any) -> Any:
        asked.append("before")
        return question.deny("no.b", "Not today.") if asked.count("before") == 2 else None

    @hook("after_tool_call", rights=["rewrite_tool_result"])
    async def shout(question: Any) -> Any:
        asked.append("result")
        return question.rewrite({"name": "A", "rank": 0, "also": {}})

    @hook("before_context_assembly", rights=["inject_context"])
    async def remind(question: Any) -> Any:
        asked.append("context")
        return question.inject("Mind the gap.") if asked.count("context") == 2 else None

    @hook("after_model_call", rights=["request_retry"])
    async def again(question: Any) -> Any:
        asked.append("after")
        first = sum(one == "after" for one in asked) == 1
        return question.retry("Say it better.") if first else None

    async with opened(hooks=[not_b, shout, remind, again]) as hf:
        code = (
            "found = []\nfor name in 'ab':\n    try:\n        found.append((await look(name))['name'])"
            "\n    except PermissionError as why:\n        found.append(str(why))\nfound"
        )
        agent = Agent(
            ScriptedModel([write_code(code), say("done")]),
            capabilities=world.capabilities(),
            retry=QUICK,
        )
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "completed"
        shown = "".join(one.text for one in run.messages)
        assert "Not today" in shown
        assert '"A"' in shown
        assert "Mind the gap." in shown
        before = [*asked]
        assert before.count("after") == 3
        (await replay_async(run)).check()
        saved = await save_async(run, tmp_path / "run.jsonl")
    (await replay_async(saved)).check()
    assert asked == before


async def test_run_that_a_hook_stopped_is_stopped_again(world: World):
    @hook("before_run_complete", rights=["stop_completion_with_repair_needed"])
    async def never(question: Any) -> Any:
        return question.repair_needed("not.done", "It is not done.")

    async with opened(hooks=[never]) as hf:
        lines = [call("look", name="a"), say("done")]
        agent = Agent(ScriptedModel(lines), capabilities=world.capabilities(), code_mode=False)
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "failed"
        found = (await replay_async(run)).check()
        assert found.result is not None
        assert found.result.error == run.error
