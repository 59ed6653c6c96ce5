"""What is said to a session: it steers the run under way, or waits for the next one; it is never lost, nor read twice."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.agent.watching import (
    ALLOWED,
    Paced,
    collected,
    conversation,
    finished,
    line_of,
    process,
    tell,
)

import holdfast
from holdfast import Agent, Run, capability
from holdfast.contracts import agent_event as e
from holdfast.errors import CallerError, HoldfastError, NotFound
from holdfast.models.script import call, say, write_code
from holdfast.models.scripted import Scripted


@capability(side_effect="external_system")
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"


def echo(**more: Any) -> Agent[str]:
    """An agent that says how many messages of people it has seen, and the last one."""

    def author(request: Any) -> Any:
        said = [one.text for one in request.messages if one.role == "user"]
        return say(f"{len(said)}: {said[-1]}")

    return Agent(Scripted(author), **more)


async def ended(hf: holdfast.Runtime, input_id: str) -> tuple[Any, Any]:
    """What became of a message, and in which run."""
    row: Any = await hf.journal.row("inputs", input_id)
    return row["status"], row["run_id"]


async def test_steering_makes_a_run_go_on_instead_of_completing(url: str) -> None:
    model = Paced([say("I think I am done."), say("Then that, too.")], pause_at={1: 1})
    async with holdfast.open(url) as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            name = await hf.agents.say("s", "And the other thing?")
            model.on.set()
            told = await collected(events)
            run = await events.run()
        assert (run.status, run.output, run.result.turns) == ("completed", "Then that, too.", 2)
        assert await conversation(hf, "s") == [
            ("user", "Go."),
            ("assistant", "I think I am done."),
            ("user", "And the other thing?"),
            ("assistant", "Then that, too."),
        ]
        said = [one for one in told if isinstance(one, e.Said)]
        assert [(one.text, one.input_id) for one in said] == [("And the other thing?", name)]
        assert await ended(hf, name) == ("consumed", run.id)
        assert await hf.agents.waiting("s") == []


async def test_steering_enters_between_two_questions_in_the_order_it_was_said() -> None:
    model = Paced([write_code("1"), say("Done.")], pause_at={1: 0})
    async with holdfast.open("memory:") as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            for text in ("first", "second", "third"):
                await hf.agents.say("s", text)
            model.on.set()
            await events.run()
        assert [text for role, text in await conversation(hf, "s") if role != "tool"] == [
            "Go.",
            "",
            "first",
            "second",
            "third",
            "Done.",
        ]


async def test_what_is_queued_waits_for_the_next_run_which_begins_with_it(url: str) -> None:
    model = Paced([say("Done.")], pause_at={1: 1})
    async with holdfast.open(url) as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            name = await hf.agents.say("s", "Later.", lane="queue")
            model.on.set()
            run = await events.run()
        assert (run.output, run.result.turns) == ("Done.", 1)
        waits = await hf.agents.waiting("s")
        assert [(one.id, one.text, one.lane) for one in waits] == [(name, "Later.", "queue")]
        run = await echo().run("Now.", session="s", runtime=hf)
        assert run.output == "3: Now."
        assert [text for _, text in await conversation(hf, "s")] == [
            "Go.",
            "Done.",
            "Later.",
            "Now.",
            "3: Now.",
        ]
        assert await ended(hf, name) == ("consumed", run.id)


async def test_a_run_without_a_prompt_answers_what_waits(url: str) -> None:
    async with holdfast.open(url) as hf:
        await echo().run("Go.", session="s", runtime=hf)
        await hf.agents.say("s", "One.", lane="queue")
        await hf.agents.say("s", "Two.")
        run = await echo().run(session="s", runtime=hf)
        assert run.output == "3: Two."
        told = await collected(hf.agents.events(run.id))
        assert [one.text for one in told if isinstance(one, e.Said)] == ["One.", "Two."]
        with pytest.raises(CallerError) as why:
            await echo().run(session="s", runtime=hf)
        assert why.value.code == "INVALID_ARGUMENT"
        with pytest.raises(CallerError):
            await echo().run(session="new", runtime=hf)
        assert (await echo().run("Hi.", session="new", runtime=hf)).output == "1: Hi."


async def test_drain_runs_until_nothing_waits() -> None:
    async with holdfast.open("memory:") as hf:
        await echo().run("Go.", session="s", runtime=hf)
        assert await echo().drain("s", runtime=hf) == []
        await hf.agents.say("s", "One.", lane="queue")
        said = False

        async def author(request: Any) -> Any:
            nonlocal said
            if not said:
                said = True
                await hf.agents.say("s", "And one more.", lane="queue")
            return say(f"Answer to {request.messages[-1].text}")

        runs: list[Run[str]] = await Agent(Scripted(author)).drain("s", runtime=hf)
        assert [one.output for one in runs] == ["Answer to One.", "Answer to And one more."]


async def test_drain_stops_at_a_run_that_does_not_complete() -> None:
    agent = Agent(Scripted(lambda _: call("send", to="amy")), capabilities=[send], code_mode=False)
    async with holdfast.open("memory:") as hf:
        await echo().run("Go.", session="s", runtime=hf)
        await hf.agents.say("s", "One.", lane="queue")
        runs = await agent.drain("s", runtime=hf)
        assert [one.status for one in runs] == ["waiting_for_approval"]
        assert runs[0].runtime is hf


@pytest.mark.parametrize("code_mode", [True, False])
async def test_a_run_that_stands_takes_what_was_said_once_it_is_resumed(
    url: str, code_mode: bool
) -> None:
    wants = write_code("await send('amy')") if code_mode else call("send", to="amy")
    agent = Agent(Scripted([wants, say("Both.")]), capabilities=[send], code_mode=code_mode)
    async with holdfast.open(url) as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        steers = await hf.agents.say("s", "And greet her.")
        queued = await hf.agents.say("s", "Next.", lane="queue")
        assert (await run.resume()).status == "waiting_for_approval"
        assert await ended(hf, steers) == ("queued", None)
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        run = await run.resume()
        assert run.output == "Both."
        assert await ended(hf, steers) == ("consumed", run.id)
        assert await ended(hf, queued) == ("queued", None)
        assert ("user", "And greet her.") in await conversation(hf, "s")


async def test_a_message_can_be_taken_back_until_a_run_has_it(url: str) -> None:
    async with holdfast.open(url) as hf:
        await echo().run("Go.", session="s", runtime=hf)
        first = await hf.agents.say("s", "Not this.", lane="queue")
        second = await hf.agents.say("s", "This.", lane="queue")
        await hf.agents.take_back(first)
        assert await ended(hf, first) == ("abandoned", None)
        run = await echo().run(session="s", runtime=hf)
        assert run.output == "2: This."
        for name in (first, second, "inp_nobody"):
            with pytest.raises(NotFound) as why:
                await hf.agents.take_back(name)
            assert why.value.hint


async def test_a_message_that_is_taken_back_while_a_run_takes_it_is_in_one_place_only() -> None:
    """Whichever is on record first counts; the run goes on either way."""
    async with holdfast.open("memory:", {"shell": {"jail": "off"}}) as hf:
        outcomes: set[str] = set()
        for number in range(40):
            session = f"s{number}"
            model = Paced([say("One."), say("Two.")], pause_at={1: 1})
            async with Agent(model).stream("Go.", session=session, runtime=hf) as events:
                await model.paused.wait()
                name = await hf.agents.say(session, "Maybe.")
                model.on.set()
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                try:
                    await hf.agents.take_back(name)
                except NotFound:
                    pass
                run = await events.run()
            status, taker = await ended(hf, name)
            outcomes.add(str(status))
            heard = ("user", "Maybe.") in await conversation(hf, session)
            assert run.status == "completed"
            assert (status, taker) == (("consumed", run.id) if heard else ("abandoned", None))
        assert outcomes == {"consumed", "abandoned"}


async def test_what_waits_for_a_session_that_is_destroyed_is_abandoned(url: str) -> None:
    async with holdfast.open(url) as hf:
        await echo().run("Go.", session="s", runtime=hf)
        name = await hf.agents.say("s", "Too late.")
        await hf.shell.destroy("s")
        assert await ended(hf, name) == ("abandoned", None)
        with pytest.raises(NotFound):
            await hf.agents.say("s", "Anybody?")
        assert (await echo().run("Hello.", session="s", runtime=hf)).output == "1: Hello."


async def test_what_cannot_be_said_is_refused() -> None:
    async with holdfast.open("memory:", secrets={"KEY": "sk-very-secret-value"}) as hf:
        with pytest.raises(NotFound):
            await hf.agents.say("nobody", "Hello?")
        await echo().run("Go.", session="s", runtime=hf)
        for text in ("  ", "The key is sk-very-secret-value."):
            with pytest.raises(HoldfastError) as why:
                await hf.agents.say("s", text)
            assert why.value.code == "INVALID_ARGUMENT"
        assert await hf.agents.waiting("s") == []


async def test_a_run_that_is_to_stop_takes_no_more_messages() -> None:
    model = Paced([say("One two three."), say("Never.")], pause_at={1: 1})
    async with holdfast.open("memory:") as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            await hf.runs.cancel(events.run_id, mode="after_effect")
            name = await hf.agents.say("s", "Wait, one more!")
            model.on.set()
            assert (await events.run()).status == "cancelled"
        assert await ended(hf, name) == ("queued", None)
        assert (await echo().run(session="s", runtime=hf)).output == "2: Wait, one more!"


async def test_a_hundred_messages_of_the_other_lane_do_not_hide_one() -> None:
    model = Paced([say("One."), say("Two.")], pause_at={1: 1})
    async with holdfast.open("memory:") as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            for number in range(120):
                await hf.agents.say("s", f"later {number}", lane="queue")
            await hf.agents.say("s", "Now.")
            model.on.set()
            assert (await events.run()).output == "Two."
        waits = await hf.agents.waiting("s")
        assert [one.text for one in waits] == [f"later {number}" for number in range(120)]


_SAYS = """
import sys, anyio, holdfast
async def main():
    async with holdfast.open(sys.argv[1]) as hf:
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        print(await hf.agents.say("s", "From elsewhere."))
anyio.run(main)
"""


async def test_steering_from_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    model = Paced([say("Done?"), say("Done.")], pause_at={1: 1})
    child = process(_SAYS, url)
    await line_of(child)
    async with (
        holdfast.open(url, ALLOWED) as hf,
        Agent(model).stream("Go.", session="s", runtime=hf) as events,
    ):
        await model.paused.wait()
        tell(child)
        name = await finished(child)
        model.on.set()
        run = await events.run()
        assert run.output == "Done."
        assert await ended(hf, name) == ("consumed", run.id)
