"""A run of an agent can be stopped at every point, from anywhere; what was seen and done stays, and it can go on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.watching import (
    ALLOWED,
    Paced,
    conversation,
    finished,
    line_of,
    process,
    record_kinds,
    tell,
    until,
)

import holdfast
from holdfast import Agent, capability
from holdfast.agent.compact import PROMPT
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.model import ModelRequest
from holdfast.models.script import Line, call, cut, fail, say, together, write_code
from holdfast.models.scripted import Scripted


class World:
    """What the capabilities of a test touch."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.on = anyio.Event()

    def capabilities(self) -> list[Any]:
        """A slow act that must not be done twice, a slow read, and a quick act."""

        @capability(side_effect="external_system")
        async def send(to: str) -> str:
            """Send a letter, once the world lets it."""
            self.begun.append(to)
            await self.on.wait()
            self.done.append(to)
            return f"sent to {to}"

        @capability
        async def look(at: str) -> str:
            """Look at something, once the world lets it."""
            self.begun.append(at)
            await self.on.wait()
            return f"a {at}"

        return [send, look]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"


async def stopped(
    hf: holdfast.Runtime,
    agent: Agent[Any],
    when: Callable[[], Any],
    mode: Any = "now",
    then: Callable[[], Awaitable[None] | None] = lambda: None,
    **more: Any,
) -> AgentResult:
    """Run an agent, cancel it at a moment, and see what its caller gets."""
    gave: list[AgentResult] = []

    async def go() -> None:
        gave.append((await agent.run("Go.", session="s", runtime=hf)).result)

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        await until(when)
        run = next(one for one in await hf.runs.list(status="active") if one.kind == "agent")
        await hf.runs.cancel(run.id, mode=mode, **more)
        again = then()
        if again is not None:
            await again
    found = gave[0]
    assert (await hf.runs.show(found.run_id)).status == found.status
    assert await hf.runs.result_any(found.run_id) == found
    return found


async def goes_on(hf: holdfast.Runtime) -> None:
    """The session takes another run, which sees what was said before."""
    before = await conversation(hf, "s")
    run = await Agent(Scripted(lambda _: say("Here I am."))).run("And?", session="s", runtime=hf)
    assert run.status == "completed"
    assert await conversation(hf, "s") == [*before, ("user", "And?"), ("assistant", "Here I am.")]
    assert not await hf.runs.list(status="active")


async def test_in_the_middle_of_an_answer_what_was_seen_stays(url: str) -> None:
    model = Paced([say("One two three four five six.")], pause_at={1: 2})
    async with holdfast.open(url) as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            await hf.runs.cancel(events.run_id, reason="enough")
            run = await events.run()
        assert run.status == "cancelled"
        assert run.text == "One two three four five "[:24]
        assert run.error.code == "CANCELLED"
        assert "enough" in run.error.message
        assert run.usage.output_tokens > 0
        assert (await hf.runs.show(run.id)).usage == run.usage
        assert (await conversation(hf, "s"))[-1] == ("assistant", run.text)
        effects = await hf.runs.effects(run.id)
        assert [one.status for one in effects] == ["cancelled"]
        await goes_on(hf)


async def test_an_act_under_way_is_in_doubt_and_a_read_is_cancelled(url: str) -> None:
    world = World()
    script = [together(call("send", to="amy"), call("look", at="cat")), say("Done.")]
    agent = Agent(Scripted(script), capabilities=world.capabilities(), code_mode=False)
    async with holdfast.open(url, ALLOWED) as hf:
        result = await stopped(hf, agent, lambda: len(world.begun) == 2)
        assert result.status == "cancelled"
        assert len(result.in_doubt) == 1
        found = {one.name: one.status for one in await hf.runs.effects(result.run_id)}
        assert (found["send"], found["look"]) == ("unknown", "cancelled")
        assert world.done == []
        await goes_on(hf)


async def test_code_under_way_is_cancelled_with_its_run(url: str) -> None:
    world = World()
    script = [write_code("x = 1"), write_code("await send('amy')"), say("Done.")]
    agent = Agent(Scripted(script), capabilities=world.capabilities())
    async with holdfast.open(url, ALLOWED) as hf:
        result = await stopped(hf, agent, lambda: world.begun)
        assert result.status == "cancelled"
        assert len(result.in_doubt) == 1
        runs = {one.id: (one.kind, one.status) for one in await hf.runs.list()}
        assert sorted(runs.values()) == [
            ("agent", "cancelled"),
            ("code", "cancelled"),
            ("code", "completed"),
        ]
        await goes_on(hf)
        assert (await hf.shell.run("x", session="s")).result == 1


async def test_code_that_computes_for_ever_is_stopped() -> None:
    agent = Agent(Scripted([write_code("while True:\n    pass"), say("Done.")]))
    async with holdfast.open("memory:") as hf:

        async def computes() -> bool:
            return any(one.kind == "code" for one in await hf.runs.list(status="active"))

        result = await stopped(hf, agent, computes)
        assert result.status == "cancelled"
        await goes_on(hf)


async def test_after_effect_lets_what_is_under_way_end_and_begins_nothing(url: str) -> None:
    world = World()
    code = "await send('amy')\nawait send('bob')"
    agent = Agent(Scripted([write_code(code), say("Done.")]), capabilities=world.capabilities())
    async with holdfast.open(url, ALLOWED) as hf:
        result = await stopped(
            hf, agent, lambda: world.begun, "after_effect", lambda: world.on.set()
        )
        assert result.status == "cancelled"
        assert world.done == ["amy"]
        assert world.begun == ["amy"]
        assert result.in_doubt == ()
        await goes_on(hf)


async def test_after_effect_lets_direct_calls_end_and_asks_no_more() -> None:
    world = World()
    script = [together(call("send", to="amy"), call("send", to="bob")), say("Done.")]
    model = Scripted(script, keep_requests=True)
    agent = Agent(model, capabilities=world.capabilities(), code_mode=False)
    async with holdfast.open("memory:", ALLOWED) as hf:
        result = await stopped(
            hf, agent, lambda: len(world.begun) == 2, "after_effect", lambda: world.on.set()
        )
        assert result.status == "cancelled"
        assert sorted(world.done) == ["amy", "bob"]
        assert len(model.requests) == 1
        said = await conversation(hf, "s")
        assert [text for role, text in said if role == "tool"] == ["sent to amy", "sent to bob"]
        await goes_on(hf)


async def test_after_effect_keeps_the_answer_under_way_and_makes_none_of_its_calls() -> None:
    world = World()
    model = Paced([together("I will write.", call("send", to="amy"))], pause_at={1: 1})
    agent = Agent(model, capabilities=world.capabilities(), code_mode=False)
    async with holdfast.open("memory:", ALLOWED) as hf:
        result = await stopped(
            hf, agent, lambda: model.paused.is_set(), "after_effect", lambda: model.on.set()
        )
        assert (result.status, result.text) == ("cancelled", "I will write.")
        assert world.begun == []
        await goes_on(hf)


async def test_after_effect_during_an_answer_without_calls_is_cancelled_with_that_answer() -> None:
    model = Paced([say("All that I have to say.")], pause_at={1: 1})
    async with holdfast.open("memory:") as hf:
        result = await stopped(
            hf, Agent(model), lambda: model.paused.is_set(), "after_effect", lambda: model.on.set()
        )
        assert (result.status, result.text) == ("cancelled", "All that I have to say.")
        await goes_on(hf)


async def test_now_after_after_effect_stops_at_once() -> None:
    world = World()
    agent = Agent(
        Scripted([call("send", to="amy"), say("Done.")]),
        capabilities=world.capabilities(),
        code_mode=False,
    )
    async with holdfast.open("memory:", ALLOWED) as hf:

        async def again() -> None:
            run = next(one for one in await hf.runs.list(status="active"))
            await hf.runs.cancel(run.id, mode="now")

        result = await stopped(hf, agent, lambda: world.begun, "after_effect", again)
        assert result.status == "cancelled"
        assert len(result.in_doubt) == 1
        await goes_on(hf)


@pytest.mark.parametrize("mode", ["now", "after_effect"])
async def test_while_it_waits_to_ask_again_it_does_not_wait_any_longer(mode: str) -> None:
    agent = Agent(
        Scripted([cut("Half of"), fail("MODEL_OVERLOADED"), say("Done.")]),
        retry={"initial_delay_ms": 3_600_000, "max_delay_ms": 3_600_000},
    )
    async with holdfast.open("memory:") as hf:

        async def waits() -> bool:
            return "model_retry" in await record_kinds(hf, "s")

        result = await stopped(hf, agent, waits, mode)
        assert result.status == "cancelled"
        await goes_on(hf)


async def test_no_question_follows_a_summary_that_was_under_way() -> None:
    asked, summing, go_on = list[str](), anyio.Event(), anyio.Event()

    async def says(request: ModelRequest) -> Line:
        asked.append(request.messages[-1].role)
        if request.messages[-1].text != PROMPT:
            return write_code("'x' * 800")
        summing.set()
        await go_on.wait()
        return say("They counted.")

    how = {"at_tokens": 300, "keep_turns": 1, "min_turns_between": 1}
    agent = Agent(Scripted(says), compact=how)
    async with holdfast.open("memory:") as hf:
        result = await stopped(hf, agent, summing.is_set, "after_effect", go_on.set, wait_ms=1)
        assert result.status == "cancelled"
        assert asked == ["user", "tool", "user"]
        assert (await conversation(hf, "s"))[-1][0] == "tool"
        await goes_on(hf)


@pytest.mark.parametrize("code_mode", [True, False])
async def test_a_run_that_stands_is_cancelled_and_nobody_need_answer(
    url: str, code_mode: bool
) -> None:
    world = World()
    wants = write_code("await send('amy')") if code_mode else call("send", to="amy")
    agent = Agent(
        Scripted([wants, say("Done.")]), capabilities=world.capabilities(), code_mode=code_mode
    )
    async with holdfast.open(url) as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        view = await hf.runs.cancel(run.id, reason="not today")
        assert view.status == "cancelled"
        assert view.error is not None
        assert view.error.message == "The run was cancelled: not today."
        assert (
            view.error.hint == "What was said and done so far stays; ask again to go on from there."
        )
        assert view.usage.external_calls == int(code_mode)  # a question to a model is no call
        assert (await hf.approvals.show(run.approvals[0])).status == "cancelled"
        assert (await run.resume()).status == "cancelled"
        assert world.begun == []
        await goes_on(hf)


async def test_a_result_that_is_committed_wins_over_a_cancel_that_comes_later() -> None:
    async with holdfast.open("memory:") as hf:
        run = await Agent(Scripted([say("Done.")])).run("Go.", session="s", runtime=hf)
        assert (await hf.runs.cancel(run.id)).status == "completed"
        assert (await hf.runs.result_any(run.id)) == run.result


@pytest.mark.parametrize("moment", ["answer", "call", "code"])
async def test_a_caller_that_is_cancelled_cancels_its_run(url: str, moment: str) -> None:
    world = World()
    model = Paced([say("One two three four.")], pause_at={1: 1})
    agents: dict[str, Agent[str]] = {
        "answer": Agent(model),
        "call": Agent(
            Scripted([call("send", to="amy")]), capabilities=world.capabilities(), code_mode=False
        ),
        "code": Agent(
            Scripted([write_code("await send('amy')")]), capabilities=world.capabilities()
        ),
    }
    async with holdfast.open(url, ALLOWED) as hf:
        # A task of the event loop, cancelled as its users do: past every shield.
        task = asyncio.ensure_future(agents[moment].run("Go.", session="s", runtime=hf))
        await until(lambda: world.begun or model.paused.is_set())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        runs = await hf.runs.list()
        assert {one.status for one in runs} == {"cancelled"}
        await goes_on(hf)


async def test_a_caller_that_is_cancelled_at_any_moment_leaves_a_session_that_goes_on(
    url: str,
) -> None:
    """Cancelled after so many steps of the event loop, whatever the run is doing then."""
    agent = Agent(Scripted([write_code("x = 1"), say("Done.")]))
    async with holdfast.open(url) as hf:
        for steps in range(0, 60, 3):
            session = f"s{steps}"
            task = asyncio.ensure_future(agent.run("Go.", session=session, runtime=hf))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            runs = await hf.runs.list(session=session)
            assert {one.status for one in runs} <= {"cancelled", "completed"}
            answer = Agent(Scripted(lambda _: say("Here.")))
            run = await answer.run("And?", session=session, runtime=hf)
            assert run.status == "completed"
            await conversation(hf, session)


async def test_a_program_of_an_agent_can_be_stopped_alone() -> None:
    world = World()
    agent = Agent(
        Scripted([write_code("await look('cat')"), say("Then not.")]),
        capabilities=world.capabilities(),
    )
    async with holdfast.open("memory:", ALLOWED) as hf:
        gave: list[AgentResult] = []

        async def go() -> None:
            gave.append((await agent.run("Go.", session="s", runtime=hf)).result)

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await until(lambda: world.begun)
            code = next(one for one in await hf.runs.list(status="active") if one.kind == "code")
            await hf.runs.cancel(code.id)
        assert (gave[0].status, gave[0].text) == ("completed", "Then not.")
        said = await conversation(hf, "s")
        assert any(role == "tool" and "CANCELLED" in text for role, text in said)


_ELSEWHERE = """
import sys, anyio, holdfast
async def main():
    async with holdfast.open(sys.argv[1]) as hf:
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        run = [one for one in await hf.runs.list(status="active") if one.kind == "agent"][0]
        print((await hf.runs.cancel(run.id, mode=sys.argv[2], reason="from elsewhere")).status)
anyio.run(main)
"""


@pytest.mark.parametrize("mode", ["now", "after_effect"])
async def test_from_another_process(tmp_path: Path, mode: str) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    world = World()
    agent = Agent(
        Scripted([write_code("await send('amy')\nawait send('bob')"), say("Done.")]),
        capabilities=world.capabilities(),
    )
    child = process(_ELSEWHERE, url, mode)
    await line_of(child)
    async with holdfast.open(url, ALLOWED) as hf:
        gave: list[AgentResult] = []

        async def go() -> None:
            gave.append((await agent.run("Go.", session="s", runtime=hf)).result)

        async def heard() -> bool:
            holder: Any = (await hf.shell.live("s")).holder
            return holder is None or holder.loop.cancel_wanted

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await until(lambda: world.begun)
            tell(child)
            await until(heard)
            world.on.set()
            assert await finished(child) == "cancelled"
        assert gave[0].status == "cancelled"
        assert gave[0].error is not None
        assert "from elsewhere" in gave[0].error.message
        assert world.done == (["amy"] if mode == "after_effect" else [])
        await goes_on(hf)


async def test_a_run_that_stands_from_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    agent = Agent(
        Scripted([write_code("await send('amy')"), say("Done.")]),
        capabilities=World().capabilities(),
    )
    async with holdfast.open(url) as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        child = process(_ELSEWHERE, url, "now")
        await line_of(child)
        tell(child)
        assert await finished(child) == "cancelled"
        assert (await hf.approvals.show(run.approvals[0])).status == "cancelled"
        assert (await run.resume()).status == "cancelled"
        await goes_on(hf)


async def test_a_wish_that_nobody_heard_is_kept_when_the_run_is_resumed(tmp_path: Path) -> None:
    """The process that had the run died before it heard of the wish; so did whoever had it."""
    from holdfast.contracts import Draft
    from holdfast.contracts.payload import RunCancelRequested
    from holdfast.shell.control import CONTROL

    url = f"sqlite:///{tmp_path}/journal.db"
    child = process(_DIES, url)
    await anyio.to_thread.run_sync(child.communicate)
    async with holdfast.open(url) as hf:
        run = next(one for one in await hf.runs.list(status="active"))
        said = RunCancelRequested(run=run.id, mode="now")
        await hf.journal.append(CONTROL, [Draft.of(said)])
        gave = await Agent(Scripted([say("Done.")])).resume(run.id, runtime=hf)
        assert gave.status == "cancelled"
        await goes_on(hf)


_DIES = """
import os, sys, anyio, holdfast
from holdfast import Agent
from holdfast.models.scripted import Scripted
async def author(request):
    os._exit(9)
async def main():
    async with holdfast.open(sys.argv[1]) as hf:
        await Agent(Scripted(author)).run("Go.", session="s", runtime=hf)
anyio.run(main)
"""


async def test_every_one_of_many_runs_can_be_found_to_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However few sessions are kept at hand, those in use are."""
    monkeypatch.setattr("holdfast.shell.warm.MAX_WARM", 3)
    model = Paced([say("One two three.")], pause_at={})
    release = anyio.Event()

    async def author(_: Any) -> Any:
        await release.wait()
        return say("Never.")

    agent = Agent(Scripted(author))
    statuses: list[str] = []

    async def go(hf: holdfast.Runtime, number: int) -> None:
        statuses.append((await agent.run("Go.", session=f"s{number}", runtime=hf)).status)

    async with holdfast.open("memory:", {"shell": {"jail": "off"}}) as hf:
        await Agent(model).run("Go.", session="before", runtime=hf)

        async def all_ask() -> bool:
            return len(await hf.runs.list(status="active")) == 20

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(go, hf, number)
            await until(all_ask)
            assert [number for number in range(20) if not hf.shell.cancel(f"s{number}")] == []
    assert statuses == ["cancelled"] * 20
