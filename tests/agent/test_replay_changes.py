"""A replay with another model, prompt, instructions, policy or capability names the first thing that differs."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.replay_support import (
    FIRST,
    SECOND,
    CountingModel,
    World,
    agent_of,
    opened,
    script,
    whole_run,
)

from holdfast import Agent, capability
from holdfast.errors import HoldfastError
from holdfast.gate.policy import Policy
from holdfast.runtime.agent import Run
from holdfast.testing import ScriptedModel, replay_async, save_async, say, together, write_code

OUTPUT = '{"sent": ["ann"], "refused": 1}'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture
async def run(world: World) -> AsyncGenerator[Run[Any]]:
    async with opened() as hf:
        run = await whole_run(hf, agent_of(world))
        before = world.deeds
        yield run
        assert world.deeds == before


async def test_other_instructions_with_the_recorded_model_change_nothing(run: Run[Any]):
    found = await replay_async(run, instructions="Be brief.")
    assert (found.same, found.difference) == (True, None)
    found.check()


async def test_other_prompt_with_the_recorded_model_changes_nothing(run: Run[Any]):
    found = await replay_async(run, prompt="Send them something, please.")
    assert (found.same, found.difference) == (True, None)
    found.check()


async def test_policy_that_denies_is_named_with_its_rule(run: Run[Any]):
    rules = [{"id": "no-mail", "tool": "send", "then": "deny", "reason": "Not today."}]
    found = await replay_async(run, policy=rules)
    assert not found.same
    first = found.difference
    assert first is not None
    assert (first.kind, first.turn, first.name) == ("policy", 2, "send")
    assert first.then.startswith("ask")
    assert first.now == "deny (no-mail)"
    with pytest.raises(AssertionError, match=r"turn 2, policy of `send`[\s\S]*\+deny \(no-mail\)"):
        found.check()


async def test_policy_that_says_the_same_changes_nothing(run: Run[Any]):
    found = await replay_async(run, policy=Policy())
    assert (found.same, found.difference) == (True, None)
    found.check()


async def test_policy_that_no_longer_asks_is_named(run: Run[Any]):
    found = await replay_async(run, policy=[{"id": "free", "tool": "send", "then": "allow"}])
    assert found.difference is not None
    assert (found.difference.kind, found.difference.now) == ("policy", "allow (free)")


async def test_call_that_was_refused_by_policy_and_would_pass_now_has_no_answer(world: World):
    rules = [{"id": "no-mail", "tool": "send", "then": "deny"}]
    async with opened("memory:") as hf:
        code = "try:\n    send('ann', 1)\nexcept PermissionError:\n    pass\n"
        agent = Agent(
            ScriptedModel([write_code(code), say("done")]),
            capabilities=world.capabilities(),
            setup={"rules": rules},
        )
        run = await agent.run("Go.", runtime=hf)
        (await replay_async(run)).check()
        saved = await save_async(run, world.folder.parent / "run.jsonl")
        assert (await replay_async(saved)).same
        assert world.deeds == []


async def test_other_model_is_asked_and_its_first_other_answer_is_named(run: Run[Any]):
    lines = script()
    other = CountingModel([lines[0], together(say("I send it now."), write_code(SECOND))])
    found = await replay_async(run, model=other)
    assert other.asked >= 2
    first = found.difference
    assert first is not None
    assert (first.kind, first.turn) == ("answer", 2)
    assert first.then.startswith("Now I send.")
    assert first.now.startswith("I send it now.")


async def test_other_model_that_says_the_same_is_the_same(run: Run[Any]):
    other = CountingModel(
        [
            write_code(FIRST),
            together(say("Now I send."), write_code(SECOND)),
            say("All is done."),
            say('{"sent": ["ann"]}'),
            say(OUTPUT),
        ],
        id="scripted:other",
    )
    found = (await replay_async(run, model=other, instructions="As you like.")).check()
    assert other.asked == 5
    assert found.result is not None
    assert found.result.output == {"sent": ["ann"], "refused": 1}


async def test_other_model_goes_on_as_long_as_its_calls_are_on_record(run: Run[Any]):
    lines = [write_code("await look('a')"), write_code("send('ann', 2)"), say(OUTPUT)]
    found = await replay_async(run, model=ScriptedModel(lines))
    assert found.difference is not None
    assert found.difference.kind == "answer"
    assert found.result is None or found.result.status == "completed"
    assert found.calls >= 1


async def test_call_of_another_model_that_is_not_on_record_ends_the_replay(run: Run[Any]):
    other = CountingModel([write_code(FIRST.replace("look('a')", "look('c')")), say("done")])
    found = await replay_async(run, model=other)
    assert found.difference is not None
    assert found.difference.kind == "answer"
    assert found.stopped_at is not None
    assert (found.stopped_at.kind, found.stopped_at.name) == ("call", "look")
    assert found.stopped_at.missing
    assert found.result is None
    assert other.asked == 1  # it went no further
    assert "and stops: turn 1, call of `look`: not on record" in str(found)


async def test_capability_with_another_signature_is_named(run: Run[Any]):
    def send(to: str, rank: int, subject: str) -> str:
        """Send somebody their rank."""
        raise AssertionError

    changed = capability(send, side_effect="external_system", approval="manual")
    found = await replay_async(run, capabilities=[changed, run.agent.definition().capabilities[0]])
    assert found.difference is not None
    assert (found.difference.kind, found.difference.turn) == ("question", 1)
    assert "subject" in found.difference.now
    assert "subject" not in found.difference.then


async def test_call_that_is_not_on_record_is_a_miss_and_names_the_nearest(
    world: World, tmp_path: Path
):
    async with opened() as hf:
        agent = Agent(
            ScriptedModel([write_code("await look(str(len(list_tools())))"), say("done")]),
            capabilities=world.capabilities(),
        )
        run = await agent.run("Go.", runtime=hf)

        def more() -> int:
            """One more."""
            raise AssertionError

        changes: Any = {"capabilities": [*world.capabilities(), capability(more)]}
        found = await replay_async(run, instructions="", **changes)
        assert not found.same
        first = found.difference
        assert first is not None
        assert (first.kind, first.name, first.missing) == ("call", "look", True)
        assert '"2"' in first.then
        assert '"3"' in first.now
        assert found.stopped_at == first
        assert found.result is None
        found = await replay_async(run, **changes)
        assert found.difference is not None
        assert found.difference.kind == "question"  # the model would have been told of one more
        assert (await replay_async(await save_async(run, tmp_path / "run.jsonl"))).same


async def test_what_is_no_capability_is_refused(run: Run[Any]):
    with pytest.raises(HoldfastError, match="is no capability"):
        await replay_async(run, capabilities=["look"])


async def test_policy_that_is_none_is_refused(run: Run[Any]):
    with pytest.raises(HoldfastError):
        await replay_async(run, policy=[{"id": "x", "then": "perhaps"}])
