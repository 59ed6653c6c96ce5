"""One agent after another on a session, other models, other processes, other capabilities: nothing is lost."""

from typing import Any

import pytest
from tests.agent.loop_support import (
    ASKS_NOT,
    consistent,
    opened,
    records,
    results,
    said,
    scripted,
    tools,
    written,
)
from tests.gate.support import until

from holdfast import Agent, HoldfastError, capability
from holdfast.agent.history import history_of
from holdfast.contracts.message import ToolCallPart
from holdfast.contracts.model import ModelAnswer
from holdfast.testing import call, cut, fail, say, together, write_code


@capability(side_effect="none")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at} " + "x" * 600


def sending(done: list[str], side_effect: Any = "external_system") -> Any:
    async def send(to: str) -> str:
        """Send something."""
        done.append(to)
        return f"sent to {to}"

    return capability(send, side_effect=side_effect)


async def test_agents_with_other_specs_follow_each_other_on_a_session() -> None:
    """Each sees what was said before, as it was shown to whoever it was said to."""
    async with opened() as (hf, _):
        wide = tools(scripted(call("look", at="a"), say("one")), look, instructions="A.")
        await wide.run("first", session="s", runtime=hf)
        narrow = tools(
            scripted("x", "x", call("look", at="b"), say("two")), look, view_bytes=300, name="other"
        )
        await narrow.run("second", session="s", runtime=hf)
        code = Agent(scripted(*["x"] * 4, write_code("40 + 2"), say("three")), instructions="B.")
        run = await code.run("third", session="s", runtime=hf)
        assert run.output == "three"
        first, second, third = await results(hf, "s")
        assert len(first.text) > 600 > len(second.text)
        assert third.text == "result: 42"
        assert len(run.messages) == 12
        await consistent(hf, "s")


@pytest.mark.parametrize("shape", [None, int], ids=["words", "typed"])
@pytest.mark.parametrize(
    ("line", "status"),
    [(say(""), "completed"), (fail("MODEL_AUTH"), "failed"), (write_code("1"), "failed")],
    ids=["nothing said", "no answer", "only code"],
)
async def test_what_a_run_gave_is_not_what_the_one_before_said(
    line: Any, status: str, shape: Any
) -> None:
    async with opened() as (hf, _):
        before = await Agent(scripted("The first answer.")).run("one", session="s", runtime=hf)
        assert before.output == "The first answer."
        more: dict[str, Any] = {} if shape is None else {"output": shape}
        agent: Agent[Any] = Agent(written(lambda _: line), max_turns=2, **more)
        run = await agent.run("two", session="s", runtime=hf)
        assert (run.status, run.text, run.output or "") == (status, "", "")
        assert (await hf.agents.resume(run.id)).text == ""
        # And the same in a process that reads it from the record.
        live = await hf.agents.messages("s")
        assert live == (await history_of(hf.journal, "s")).transcript


@pytest.mark.parametrize("queued", [False, True], ids=["prompt", "queue"])
async def test_a_run_that_stands_gives_none_of_the_answers_before_it(
    queued: bool, tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path}/j.db"
    agent = tools(written(lambda asked: _sends(asked.messages[-1].role)), sending([]))
    async with opened(url, {}) as (hf, _):
        first = await tools(scripted(cut("The first"), cut("answer."))).run(
            "one", session="s", runtime=hf
        )
        assert (first.status, first.text) == ("failed", "answer.")
        if queued:
            await hf.agents.say("s", "two", lane="queue")
        run = await agent.run(None if queued else "two", session="s", runtime=hf)
        assert (run.status, run.text) == ("waiting_for_approval", "")
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
    async with opened(url, {}) as (hf, _):
        run = await agent.resume(run.id, runtime=hf)
        assert (run.status, run.output) == ("completed", "")
        await consistent(hf, "s")


def _sends(role: str) -> Any:
    return call("send", to="ann") if role == "user" else say("")


async def test_a_session_that_a_run_of_code_stands_in_is_not_taken() -> None:
    done: list[str] = []
    async with opened(config={}, capabilities=[sending(done)]) as (hf, _):
        run = await hf.shell.run("await send('ann')", session="s")
        assert run.status == "waiting_for_approval"
        with pytest.raises(HoldfastError) as refused:
            await Agent(scripted("x")).run("go", session="s", runtime=hf)
        assert refused.value.code == "RUN_OPEN"
        # And nothing came of it.
        assert await records(hf, "s", "effect_result") == []
        rows = await hf.journal.rows("runs")
        assert [row.value["kind"] for row in rows] == ["code"]


async def test_a_session_that_a_run_stands_in_is_not_taken_by_another_run() -> None:
    async with opened(config={}) as (hf, _):
        agent = tools(scripted(call("send", to="ann"), "done"), sending([]))
        run = await agent.run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        with pytest.raises(HoldfastError) as refused:
            await agent.run("something else", session="s", runtime=hf)
        assert refused.value.code == "RUN_OPEN"
        with pytest.raises(HoldfastError) as refused:
            await hf.shell.run("1", session="s")
        assert refused.value.code == "RUN_OPEN"
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        assert (await run.resume()).output == "done"


async def test_an_answer_that_a_call_has_not_seen_yet_is_waited_for() -> None:
    """The last thing that is to be done ends just after somebody answered: the run goes on, and does not park."""
    done: list[str] = []
    async with opened(config={}) as (hf, _):

        @capability(side_effect="read")
        async def work() -> str:
            """Work, until somebody is asked; and then answer."""
            asked = await until(hf.approvals.list, lambda found: len(found) == 1)
            await hf.approvals.decide(asked[0].id, "approved", actor="me")
            return "worked"

        both = together(call("send", to="ann"), call("work"))
        agent = tools(scripted(both, "done"), sending(done), work)
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output, done) == ("completed", "done", ["ann"])
        assert await records(hf, "s", "run_parked") == []


async def test_it_goes_on_with_another_model() -> None:
    async with opened(config={}) as (hf, _):
        run = await tools(scripted(call("send", to="ann")), sending([])).run(
            "go", session="s", runtime=hf
        )
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        other = scripted("x", say("done"), id="scripted:other")
        run = await tools(other, sending([]), instructions="New.").resume(run.id, runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        assert other.requests[0].instructions == "New."
        assert [one["name"] for one in await said(hf, "s", "effect_intent")][
            -1
        ] == "model:scripted:other"
        await consistent(hf, "s")


@pytest.mark.parametrize("mode", ["code", "tools"])
async def test_a_process_without_its_capabilities_does_not_go_on(mode: str, tmp_path: Any) -> None:
    """A clear error, and the run still stands there for a process that has them."""
    url = f"sqlite:///{tmp_path}/j.db"
    done: list[str] = []
    line = write_code("await send('ann')") if mode == "code" else call("send", to="ann")

    def agent(*capabilities: Any) -> Agent[str]:
        model = scripted(line, say("done"))
        return Agent(model, capabilities=capabilities, code_mode=mode == "code")

    async with opened(url, {}) as (hf, _):
        run = await agent(sending(done)).run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
    async with opened(url, {}) as (hf, _):
        before = len(await records(hf, "s"))
        for attempt in (hf.agents.resume(run.id), agent(look).resume(run.id, runtime=hf)):
            with pytest.raises(HoldfastError) as refused:
                await attempt
            assert refused.value.code == "SNAPSHOT_CAPABILITY_MISMATCH"
            assert "send" in refused.value.message
        changed = [one.kind for one in (await records(hf, "s"))[before:]]
        assert set(changed) <= {"session_opened"}
    async with opened(url, {}) as (hf, _):
        run = await agent(sending(done)).resume(run.id, runtime=hf)
        assert (run.status, run.output, done) == ("completed", "done", ["ann"])
        await consistent(hf, "s")


@pytest.mark.parametrize("mode", ["code", "tools"])
async def test_what_was_approved_is_not_done_with_another_capability(mode: str) -> None:
    """A deploy between the question and the answer: the approval was for what was shown."""
    done: list[str] = []
    line = write_code("await send('ann')") if mode == "code" else call("send", to="ann")

    def agent(side_effect: str) -> Agent[str]:
        model = scripted(line, say("Then not."))
        return Agent(model, capabilities=[sending(done, side_effect)], code_mode=mode == "code")

    async with opened(config={}) as (hf, _):
        run = await agent("write").run("go", session="s", runtime=hf)
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        run = await agent("external_system").resume(run, runtime=hf)
        assert (run.status, run.output, done) == ("completed", "Then not.", [])
        (found,) = await results(hf, "s")
        assert found.is_error
        assert "changed" in found.text
        await consistent(hf, "s")


async def test_an_agent_is_resumed_as_it_is_on_record(tmp_path: Any) -> None:
    """Without its definition: model, instructions and shape are in the journal."""
    url = f"sqlite:///{tmp_path}/j.db"
    script = tmp_path / "answers.json"
    script.write_text(
        '[{"parts": [{"kind": "tool_call", "id": "c1", "name": "send",'
        ' "arguments": {"to": "ann"}}]}, {"parts": [{"kind": "text", "text": "[7]"}]}]'
    )
    done: list[str] = []
    send = sending(done)
    async with opened(url, {}, capabilities=[send]) as (hf, _):
        run: Any = await Agent(f"scripted:{script}", output=list[int], code_mode=False).run(
            "go", session="s", runtime=hf
        )
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
    async with opened(url, {}, capabilities=[send]) as (hf, _):
        found = await hf.agents.resume(run.id)
        assert (found.status, found.output, done) == ("completed", [7], ["ann"])


async def test_a_prompt_is_refused_that_says_nothing() -> None:
    async with opened() as (hf, _):
        with pytest.raises(HoldfastError, match="prompt is empty"):
            await Agent(scripted("x")).run("  ", session="s", runtime=hf)


async def test_calls_that_wait_and_calls_that_do_not_side_by_side() -> None:
    done: list[str] = []
    async with opened(config={}) as (hf, _):
        both = together(call("look", at="a"), call("send", to="ann"), call("look", at="b"))
        agent = tools(scripted(both, say("ok")), look, sending(done))
        run = await agent.run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        run = await run.resume()
        assert (run.output, done) == ("ok", ["ann"])
        assert [one.name for one in await results(hf, "s")] == ["look", "send", "look"]
        await consistent(hf, "s")


async def test_a_session_remembers_what_was_said_in_another_process(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/j.db"
    for n in range(3):
        model = scripted(*["x"] * n, say(f"answer {n}"))
        async with opened(url, ASKS_NOT) as (hf, _):
            run = await Agent(model).run(f"question {n}", session="s", runtime=hf)
            assert run.output == f"answer {n}"
            assert len(run.messages) == 2 * (n + 1)
            await consistent(hf, "s")


async def test_calls_of_one_answer_that_share_a_name_are_told_apart() -> None:
    """A model that names its calls badly is still sent one result for each of them."""
    done = list[str]()
    names = ["c", "c", "c_2"]
    parts = (
        ToolCallPart(id=id_, name="send", arguments={"to": str(n)}) for n, id_ in enumerate(names)
    )
    model = scripted(ModelAnswer(parts=tuple(parts), finish="tool_calls"), say("done"))
    async with opened() as (hf, _):
        run = await tools(model, sending(done)).run("go", session="s", runtime=hf)
        assert run.output == "done"
        shown = await results(hf, "s")
        assert [one.text for one in shown] == ["sent to 0", "sent to 1", "sent to 2"]
        assert [one.call_id for one in shown] == ["c", "c_3", "c_2"]
        await consistent(hf, "s")
    assert sorted(done) == ["0", "1", "2"]
