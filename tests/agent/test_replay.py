"""A recorded run of an agent replays offline: the same answers, the same effects, and nothing happens."""

import socket
from pathlib import Path
from typing import Any

import pytest
from tests.agent.replay_support import (
    QUICK,
    CountingModel,
    Report,
    World,
    agent_of,
    opened,
    script,
    whole_run,
)

from holdfast import Agent, capability
from holdfast.errors import CallerError, NotFound
from holdfast.testing import (
    Recording,
    ScriptedModel,
    call,
    fail,
    replay,
    replay_async,
    say,
    together,
    write_code,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


async def test_run_with_everything_replays_the_same(world: World):
    async with opened() as hf:
        run = await whole_run(hf, agent_of(world))
        assert run.output == Report(sent=["ann"], refused=1)
        found = (await replay_async(run)).check()
        assert found.same
        assert found.difference is None
        assert (found.turns, found.calls) == (5, 4)
        assert found.before == run.result
        assert found.result is not None
        assert found.result.output == run.result.output


async def test_nothing_happens_in_a_replay(world: World, no_network: None):
    async with opened() as hf:
        model = CountingModel(script())
        run = await whole_run(hf, agent_of(world, model))
        before, asked, seq = world.deeds, model.asked, await hf.journal.last_seq()
        (await replay_async(run)).check()
        (await hf.agents.replay(run.id)).check()
        assert world.deeds == before
        assert model.asked == asked
        assert await hf.journal.last_seq() == seq
        assert await hf.approvals.list() == []


async def test_capability_that_is_not_here_is_not_needed(world: World):
    async with opened() as hf:
        run = await whole_run(hf, agent_of(world))
        found = await hf.agents.replay(run.id)  # nobody told this runtime about `look` and `send`
        assert found.same


async def test_direct_calls_side_by_side(world: World):
    lines = [
        together(call("look", name="b"), call("look", name="a"), call("nothing", x=1)),
        together(call("send", to="ann", rank=1), call("send", to="bob", rank=2)),
        say("done"),
    ]
    async with opened() as hf:
        agent = Agent(ScriptedModel(lines), capabilities=world.capabilities(), code_mode=False)
        run = await agent.run("Go.", session="s", runtime=hf)
        for approval, answer in zip(run.approvals, ("denied", "approved"), strict=True):
            await hf.approvals.decide(approval, answer, actor="ann")
        run = await run.resume()
        assert run.status == "completed"
        deeds = world.deeds
        assert (await replay_async(run)).check().calls == 4
        assert (await hf.agents.replay(run.id)).same
        assert world.deeds == deeds


async def test_run_that_waits_replays_up_to_there(world: World):
    async with opened() as hf:
        run = await agent_of(world).run("Send them.", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        found = (await replay_async(run)).check()
        assert found.before is not None
        assert found.result is not None
        assert found.before.status == found.result.status == "waiting_for_approval"


async def test_second_run_of_a_session_finds_what_the_first_left(world: World):
    async with opened() as hf:
        lines = [
            write_code("kept = {'z': 1, 'a': 2}"),
            say("kept"),
            write_code("list(kept)"),
            say("ok"),
        ]
        agent = Agent(ScriptedModel(lines), capabilities=world.capabilities())
        await agent.run("Keep it.", session="s", runtime=hf)
        await hf.shell.run("more = 3", session="s")
        run = await agent.run("Look.", session="s", runtime=hf)
        assert "z" in run.messages[-2].text
        assert (await replay_async(run)).check().turns == 2


async def test_steered_run_is_steered_again():
    async with opened() as hf:

        async def answer(request: Any) -> Any:
            if len(request.messages) == 1:
                await hf.agents.say("s", "Make it three.")
                return write_code("2")
            return say(f"{len(request.messages)} messages")

        run = await Agent(ScriptedModel(answer)).run("Two, please.", session="s", runtime=hf)
        assert [one.text for one in run.messages if one.role == "user"] == [
            "Two, please.",
            "Make it three.",
        ]
        (await replay_async(run)).check()


async def test_run_that_began_with_what_waited():
    async with opened() as hf:
        agent = Agent(ScriptedModel([say("one"), say("two")]))
        await agent.run("First.", session="s", runtime=hf)
        await hf.agents.say("s", "Also this.", lane="queue")
        run = await agent.run("And that.", session="s", runtime=hf)
        said = [one.text for one in run.messages if one.role == "user"]
        assert said == ["First.", "Also this.", "And that."]
        assert (await replay_async(run)).check().turns == 1
        other = (await replay_async(run, prompt="And something else.")).check()
        assert other.result is not None
        assert other.result.output == "two"


async def test_failed_run_fails_again():
    async with opened() as hf:
        agent = Agent(
            ScriptedModel([write_code("1/0"), *[fail("MODEL_OVERLOADED")] * 3]),
            retry={**QUICK, "max_retries": 2},
        )
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "failed"
        found = (await replay_async(run)).check()
        assert found.result is not None
        assert found.result.error == run.error


async def test_run_that_went_over_to_another_model():
    async with opened() as hf:
        first = ScriptedModel([fail("MODEL_AUTH")], id="scripted:first")
        second = ScriptedModel([write_code("1"), say("done")], id="scripted:second")
        run = await Agent(first, fallbacks=[second], retry=QUICK).run("Go.", runtime=hf)
        assert run.status == "completed"
        (await replay_async(run)).check()


async def test_run_whose_conversation_was_told_in_short():
    async with opened() as hf:
        counted = 0

        def counting(request: Any) -> Any:
            nonlocal counted
            if not request.tools:
                return say(f"It went well, {counted} times.")
            counted += 1
            return say("done") if counted > 5 else write_code(f"'{'x' * 400}'")

        agent = Agent(
            ScriptedModel(counting),
            compact={"at_tokens": 300, "keep_turns": 1, "min_turns_between": 1},
        )
        run = await agent.run("Go on.", session="s", runtime=hf)
        assert run.status == "completed"
        kinds = [one.kind async for one in hf.journal.read("s")]
        assert "context_compacted" in kinds
        (await replay_async(run)).check()


async def test_cancelled_run_replays_as_far_as_it_came():
    async with opened() as hf:

        def stop() -> int:
            """Stop the run that calls it."""
            hf.shell.cancel("s", mode="after_effect")
            return 1

        agent = Agent(
            ScriptedModel([write_code("stop()"), say("never")]),
            capabilities=[capability(stop, side_effect="read")],
        )
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "cancelled"
        (await replay_async(run)).check()


async def test_result_of_a_call_has_its_keys_in_one_order_for_ever(world: World):
    """The order of a record's keys is all that a replay knows; so code never sees another one."""
    async with opened() as hf:
        agent = Agent(
            ScriptedModel([write_code("list(await look('a')), list(given)"), say("done")]),
            capabilities=world.capabilities(),
        )
        await hf.shell.run("given", inputs={"given": {"b": 1, "a": 2}}, session="s")
        run = await agent.run("Go.", session="s", runtime=hf)
        assert "error" not in run.messages[-2].text
        (await replay_async(run)).check()


async def test_what_is_no_run_of_an_agent_is_not_found():
    async with opened() as hf:
        code = await hf.shell.run("1")
        with pytest.raises(NotFound):
            await hf.agents.replay(str(code.run_id))
        with pytest.raises(CallerError, match="none of them is named"):
            await replay_async(hf)
        with pytest.raises(CallerError, match="asynchronous"):
            replay(hf, run="run_x")


def test_replay_of_an_agent_that_opens_its_own_journal(tmp_path: Path, world: World):
    url = f"sqlite:///{tmp_path}/journal.db"
    agent = Agent(
        ScriptedModel([write_code("await look('a')"), say("done")]),
        capabilities=world.capabilities(),
        url=url,
        config={},
    )
    run = agent.run_sync("Go.")
    assert replay(run).check().calls == 1
    assert replay(url, run=run.id).check().calls == 1


def test_recording_is_named_by_its_run(tmp_path: Path):
    with pytest.raises(CallerError, match="no recording"):
        replay(tmp_path / "none.jsonl")
    with pytest.raises(NotFound):
        Recording("run_1", "s", (), {})


async def test_run_that_stood_for_want_of_budget_and_went_on(world: World):
    lines = [write_code("await look('a')"), say("done")]

    def agent(tokens: int) -> Agent[str]:
        return Agent(
            ScriptedModel(lines),
            capabilities=world.capabilities(),
            settings={"max_tokens": 100},
            budget={"tokens": tokens},
        )

    async with opened() as hf:
        run = await agent(700).run("Go.", session="s", runtime=hf)
        assert run.error.code == "BUDGET_EXCEEDED"
        (await replay_async(run)).check()
        run = await agent(100_000).resume(run, runtime=hf)
        assert run.status == "completed"
        (await replay_async(run)).check()
