"""`agent.stream` and `hf.agents.events`: what happens in a run, once each, in order, whoever watches, whenever."""

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel
from tests.agent.watching import ALLOWED, Paced, collected, kept, kinds, until

import holdfast
from holdfast import Agent, capability
from holdfast.contracts import agent_event as e
from holdfast.errors import CallerError, HoldfastError, NotFound
from holdfast.models.script import call, cut, fail, say, together, write_code
from holdfast.models.scripted import Scripted


@capability(side_effect="external_system")
async def send(to: str) -> dict[str, str]:
    """Send a letter."""
    return {"sent": to}


@capability
async def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


class Bill(BaseModel):
    payer: str
    cents: list[int]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"


async def test_a_stream_tells_a_run_from_its_prompt_to_its_result(url: str) -> None:
    script = [write_code("r = await send('amy')\nr"), say("Sent.", thinking="Easy.")]
    agent = Agent(Scripted(script), capabilities=[send], name="clerk")
    async with (
        holdfast.open(url, ALLOWED) as hf,
        agent.stream("Write to Amy.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
        run = await events.run()
    assert kinds(kept(told)) == [
        "run_started",
        "turn_started",
        "answer",
        "code",
        "effect_started",
        "effect_ended",
        "tool_result",
        "turn_started",
        "answer",
        "run_ended",
    ]
    by_kind: dict[str, Any] = {one.kind: one for one in told}
    assert by_kind["run_started"].prompt == "Write to Amy."
    assert (by_kind["run_started"].agent, by_kind["run_started"].session_id) == ("clerk", "s")
    assert by_kind["code"].code == "r = await send('amy')\nr"
    assert by_kind["effect_started"].arguments == {"to": "amy"}
    assert by_kind["effect_ended"].value == {"sent": "amy"}
    assert by_kind["tool_result"].text == 'result: {"sent": "amy"}'
    assert by_kind["answer"].text == "Sent."
    assert by_kind["run_ended"].result == run.result
    assert run.status == "completed"


async def test_pieces_come_between_the_question_and_the_answer_and_add_up_to_it() -> None:
    script = [write_code("x = 1\nx"), say("All of this is said in pieces.", thinking="So I think.")]
    agent = Agent(Scripted(script))
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
    asked: e.TurnStarted | None = None
    text: dict[str, str] = {}
    for event in told:
        if isinstance(event, e.TurnStarted):
            asked, text = event, {}
        elif isinstance(event, e.TextDelta | e.ThinkingDelta | e.ToolCallDelta):
            assert asked is not None
            assert (event.seq, event.turn, event.attempt) == (asked.seq, asked.turn, asked.attempt)
            text[event.kind] = text.get(event.kind, "") + event.text
        elif isinstance(event, e.Answer):
            asked = None
            thought = [part.text for part in event.parts if part.kind == "thinking"]
            assert text.get("text_delta", "") == event.text
            assert text.get("thinking_delta", "") == "".join(thought)
            assert bool(event.calls) == ("tool_call_delta" in text)
    assert asked is None


async def test_direct_calls_have_one_result_each_as_the_model_is_shown_it() -> None:
    script = [
        together(call("look", at="cat"), call("send", to="bob"), call("nosuch")),
        say("Done."),
    ]
    agent = Agent(Scripted(script), capabilities=[look, send], code_mode=False)
    async with (
        holdfast.open("memory:", ALLOWED) as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
        run = await events.run()
    results = {one.call_id: one for one in told if isinstance(one, e.ToolResult)}
    shown = {one.call_id: one for one in run.messages if one.role == "tool"}
    assert len(results) == 3
    assert {key: (one.text, one.is_error) for key, one in results.items()} == {
        key: (one.text, one.is_error) for key, one in shown.items()
    }
    started = [one for one in told if isinstance(one, e.EffectStarted)]
    assert {one.effect_id for one in started} <= {one.effect_id for one in results.values()}


async def test_whoever_comes_back_with_any_seq_gets_exactly_the_rest(url: str) -> None:
    script = [
        fail("MODEL_OVERLOADED"),
        write_code("await send('amy')"),
        together(call("look", at="cat"), write_code("1 + 1")),
        say("Done."),
    ]
    agent = Agent(Scripted(script), capabilities=[send, look], retry={"initial_delay_ms": 1})
    async with holdfast.open(url) as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        await agent.run("Again, and this is another run.", session="other", runtime=hf)
        await hf.approvals.decide(run.approvals[0], "approved", actor="me")
        run = await run.resume()
        assert run.status == "completed"
        told = await collected(hf.agents.events(run.id))
        seqs = [one.seq for one in told]
        assert seqs == sorted(set(seqs))
        for place, event in enumerate(told):
            assert await collected(hf.agents.events(run.id, after=event.seq)) == told[place + 1 :]
        assert {"retry", "approval_requested", "approval_decided", "parked", "resumed"} <= set(
            kinds(told)
        )
        assert await collected(hf.agents.events(run.id, until="now")) == told


async def test_what_is_told_live_is_what_is_told_afterwards(url: str) -> None:
    script = [write_code("a = await look('cat')\na"), write_code("1 / 0"), say("Done.")]
    agent = Agent(Scripted(script), capabilities=[look])
    async with holdfast.open(url) as hf:
        async with agent.stream("Go.", session="s", runtime=hf) as events:
            live = kept(await collected(events))
        assert await collected(hf.agents.events(events.run_id)) == live


async def test_a_parked_run_ends_its_stream_and_is_taken_up_where_it_was_left(url: str) -> None:
    agent = Agent(
        Scripted([call("send", to="amy"), say("Sent.")]), capabilities=[send], code_mode=False
    )
    async with holdfast.open(url) as hf:
        async with agent.stream("Go.", session="s", runtime=hf) as events:
            first = kept(await collected(events))
            run = await events.run()
        assert isinstance(first[-1], e.RunParked)
        assert first[-1].result == run.result
        asked = next(one for one in first if isinstance(one, e.ApprovalRequested))
        assert (asked.tool, asked.arguments, asked.approval_id) == (
            "send",
            {"to": "amy"},
            run.approvals[0],
        )
        assert await collected(hf.agents.events(run.id, until="parked")) == first
        await hf.approvals.decide(asked.approval_id, "approved", actor="me")
        async with agent.stream(run=run, after=first[-1].seq, runtime=hf) as events:
            rest = kept(await collected(events))
            run = await events.run()
        assert run.output == "Sent."
        assert kinds(rest)[0] == "resumed"
        assert first + rest == await collected(hf.agents.events(run.id))


async def test_a_stream_of_a_run_that_is_over_tells_the_rest_and_gives_its_result() -> None:
    agent = Agent(Scripted([say("Done.")]))
    async with holdfast.open("memory:") as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        told = await collected(hf.agents.events(run.id))
        async with agent.stream(run=run.id, after=told[0].seq, runtime=hf) as events:
            assert await collected(events) == told[1:]
            assert (await events.run()).output == "Done."


async def test_structured_output_is_told_as_it_grows() -> None:
    value = {"payer": "Amy Adams of Arkansas", "cents": [1200, 3400, 5600]}
    agent = Agent(Scripted([say(Bill.model_validate(value).model_dump_json())]), output=Bill)
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("The bill?", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
        run = await events.run()
    partial = [one for one in told if isinstance(one, e.OutputPartial)]
    assert len(partial) > 2
    assert partial[-1].value == value
    assert partial[-1].complete
    for before, after in itertools.pairwise(partial):
        assert isinstance(before.value, dict)
        assert isinstance(after.value, dict)
        assert str(after.value.get("payer", "")).startswith(str(before.value.get("payer", "")))
        assert len(after.value.get("cents", [])) >= len(before.value.get("cents", []))  # type: ignore[arg-type]
    checked = next(one for one in told if isinstance(one, e.OutputChecked))
    assert (checked.valid, checked.value) == (True, value)
    assert run.output == Bill.model_validate(value)


async def test_an_answer_that_broke_off_is_void_and_the_next_attempt_says_so() -> None:
    agent = Agent(Scripted([cut("Half of a"), say("All of it.")]), retry={"initial_delay_ms": 1})
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
    assert kinds(kept(told)) == [
        "run_started",
        "turn_started",
        "answer_failed",
        "retry",
        "turn_started",
        "answer",
        "run_ended",
    ]
    failed = next(one for one in told if isinstance(one, e.AnswerFailed))
    assert failed.text == "Half of a"
    assert [(one.turn, one.attempt) for one in told if isinstance(one, e.TurnStarted)] == [
        (1, 1),
        (1, 2),
    ]


async def test_another_model_and_a_warning_are_told() -> None:
    agent = Agent(
        Scripted([fail("MODEL_AUTH")], id="scripted:first"),
        fallbacks=[Scripted([say("Here.")], id="scripted:second")],
        budget={"tokens": 100_000},
    )
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
    switched = next(one for one in told if isinstance(one, e.ModelSwitched))
    assert (switched.before, switched.after) == ("scripted:first", "scripted:second")
    assert [one.model for one in told if isinstance(one, e.TurnStarted)] == [
        "scripted:first",
        "scripted:second",
    ]


async def test_a_watcher_that_never_looks_does_not_hold_the_run_up() -> None:
    long = "word " * 20_000
    agent = Agent(Scripted([say(long), say("Done.")]))
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        run = await events.run()  # nobody has taken a single event so far
        assert run.status == "completed"
        told = await collected(events)
    missed = [one for one in told if isinstance(one, e.DeltasMissed)]
    assert len(missed) == 1
    pieces = [one for one in told if isinstance(one, e.TextDelta)]
    whole = -(-len(long) // 12)
    assert missed[0].count + len(pieces) == whole
    assert long.endswith("".join(one.text for one in pieces))
    assert kinds(kept(told)) == ["run_started", "turn_started", "answer", "run_ended"]
    answer = next(one for one in told if isinstance(one, e.Answer))
    assert answer.text == long


async def test_leaving_a_stream_cancels_its_run_and_what_was_seen_stays() -> None:
    model = Paced([say("One two three four five six.")], pause_at={1: 1})
    async with holdfast.open("memory:") as hf:
        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            async for event in events:
                if isinstance(event, e.TextDelta):
                    break
        result = await hf.runs.result_any(events.run_id)
        assert result.status == "cancelled"
        run = await events.run()
        assert (run.status, run.result) == ("cancelled", result)
        assert run.text == "One two thre"
        assert (await hf.agents.messages("s")).messages[-1].text == "One two thre"


async def test_a_stream_that_was_cancelled_from_outside_gives_its_run() -> None:
    model = Paced([say("One two three four five six.")], pause_at={1: 1})
    async with holdfast.open("memory:") as hf:
        seen: list[Any] = []
        with anyio.CancelScope() as scope:
            async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
                seen.append(events)
                async for event in events:
                    if isinstance(event, e.TextDelta):
                        scope.cancel()
        assert (await seen[0].run()).status == "cancelled"


async def test_a_stream_that_is_left_before_its_run_begins_says_so() -> None:
    async with holdfast.open("memory:") as hf:
        async with Agent(Scripted([say("Done.")])).stream("Go.", runtime=hf) as events:
            pass
        with pytest.raises(HoldfastError) as why:
            await events.run()
        assert (why.value.code, bool(why.value.hint)) == ("CANCELLED", True)


async def test_a_parked_run_whose_stream_is_left_at_once_stands_where_it_stood() -> None:
    model = Scripted([call("send", to="ann"), say("Sent.")])
    agent = Agent(model, capabilities=[send], code_mode=False)
    async with holdfast.open("memory:") as hf:
        stood = await agent.run("Go.", session="s", runtime=hf)
        assert stood.status == "waiting_for_approval"
        async with agent.stream(run=stood, runtime=hf) as events:
            pass
        assert (await events.run()).result == stood.result


async def test_leaving_a_stream_that_is_to_finish_waits_for_its_run() -> None:
    agent = Agent(Scripted([write_code("1"), say("Done.")]))
    async with holdfast.open("memory:") as hf:
        async with agent.stream("Go.", session="s", runtime=hf, leaving="finish") as events:
            async for _ in events:
                break
        assert (await hf.runs.result_any(events.run_id)).status == "completed"


async def test_what_goes_wrong_in_the_block_is_raised_as_it_is() -> None:
    agent = Agent(Scripted([say("Done.")]))
    async with holdfast.open("memory:") as hf:
        with pytest.raises(ZeroDivisionError):
            async with agent.stream("Go.", session="s", runtime=hf):
                _ = 1 / 0


async def test_a_run_that_cannot_start_says_why_to_whoever_watches() -> None:
    agent = Agent(Scripted([say("Done.")]))
    async with holdfast.open("memory:") as hf:
        with pytest.raises(HoldfastError) as why:
            async with agent.stream("  ", session="s", runtime=hf) as events:
                await collected(events)
        assert why.value.code == "INVALID_ARGUMENT"
        async with agent.stream("  ", session="s", runtime=hf) as events:
            for _ in range(2):  # to whoever asks again, too
                with pytest.raises(CallerError):
                    await events.run()
        with pytest.raises(HoldfastError):
            async with agent.stream("  ", session="s", runtime=hf):
                await anyio.lowlevel.checkpoint()
        with pytest.raises(NotFound):
            await collected(hf.agents.events("run_nobody"))
        code = await hf.shell.run("1", session="c")
        with pytest.raises(NotFound):
            await collected(hf.agents.events(str(code.run_id)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": "a", "run": "run_x"},
        {"prompt": "a", "after": 3},
        {"run": "run_x", "session": "s"},
    ],
)
async def test_what_could_mean_two_things_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CallerError) as why:
        Agent(Scripted([say("Done.")])).stream(**wrong)
    assert why.value.code == "INVALID_ARGUMENT"
    assert why.value.hint


async def test_whoever_joins_in_the_middle_of_an_answer_is_told_that_pieces_are_gone() -> None:
    model = Paced([say("One two three four five six seven.")], pause_at={1: 2})
    first: list[e.AgentEvent] = []
    late: list[e.AgentEvent] = []
    async with holdfast.open("memory:") as hf, anyio.create_task_group() as group:

        async def watch(run_id: str) -> None:
            late.extend(await collected(hf.agents.events(run_id)))

        async with Agent(model).stream("Go.", session="s", runtime=hf) as events:
            await model.paused.wait()
            group.start_soon(watch, events.run_id)
            await until(lambda: len(hf.agents._feeds.of(events.run_id).listeners) == 2)
            model.on.set()
            first.extend(await collected(events))
    assert kept(first) == kept(late)
    assert [one.count for one in late if isinstance(one, e.DeltasMissed)] == [2]
    pieces = [one.text for one in first if isinstance(one, e.TextDelta)]
    assert [one.text for one in late if isinstance(one, e.TextDelta)] == pieces[2:]


async def test_events_survive_a_wire() -> None:
    agent = Agent(Scripted([write_code("1"), say("Done.")]))
    async with (
        holdfast.open("memory:") as hf,
        agent.stream("Go.", session="s", runtime=hf) as events,
    ):
        told = await collected(events)
    for event in told:
        assert e.AGENT_EVENT.validate_json(event.model_dump_json()) == event


async def test_a_destroyed_session_still_tells_what_happened_in_it() -> None:
    agent = Agent(Scripted([write_code("'secret'"), say("Done.")]))
    async with holdfast.open("memory:") as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        before = await collected(hf.agents.events(run.id))
        await hf.shell.destroy("s")
        after = await collected(hf.agents.events(run.id))
    assert [(one.seq, one.kind) for one in after] == [(one.seq, one.kind) for one in before]
    assert "secret" not in str([one.model_dump() for one in after])


def test_a_run_from_code_that_is_not_asynchronous(tmp_path: Path) -> None:
    agent = Agent(Scripted([say("Done.")]), url=f"sqlite:///{tmp_path}/journal.db")
    run = agent.run_sync("Go.", session="s")
    assert (run.status, run.output) == ("completed", "Done.")
    assert agent.run_sync("Again.", session="s2").status == "completed"


@pytest.mark.parametrize("worker", [False, True], ids=["main thread", "a thread"])
@pytest.mark.parametrize("callback", [False, True], ids=["task", "callback"])
@pytest.mark.parametrize("method", ["run_sync", "resume_sync"])
def test_what_would_block_an_event_loop_is_refused(
    method: str, callback: bool, worker: bool
) -> None:
    """The same words wherever the loop is; and nothing is left that nobody awaits (warnings are errors here)."""
    agent = Agent(Scripted([say("Done.")]), url="memory:")
    refused: list[HoldfastError] = []

    def attempt() -> None:
        try:
            getattr(agent, method)("run_x")
        except HoldfastError as why:
            refused.append(why)

    async def main() -> None:
        if callback:
            asyncio.get_running_loop().call_soon(attempt)
            await anyio.lowlevel.checkpoint()
        else:
            attempt()

    if worker:
        thread = threading.Thread(target=anyio.run, args=(main,))
        thread.start()
        thread.join()
    else:
        anyio.run(main)
    (why,) = refused
    assert (type(why), why.code) == (CallerError, "INVALID_ARGUMENT")
    assert f"`await agent.{method.removesuffix('_sync')}(" in str(why.hint)


async def test_many_streams_at_once_in_one_process() -> None:
    async def author(request: Any) -> Any:
        asked = next(one.text for one in request.messages if one.role == "user")
        if not any(one.role == "tool" for one in request.messages):
            return write_code(f"x = {asked} * 2\nx")
        return say(f"Twice {asked} it is.")

    agent = Agent(Scripted(author))
    gave: dict[int, str] = {}

    async def one(hf: holdfast.Runtime, number: int) -> None:
        async with agent.stream(str(number), session=f"s{number}", runtime=hf) as events:
            told = await collected(events)
            assert kinds(kept(told))[-1] == "run_ended"
            assert all(one.kind != "code" or str(number) in one.code for one in told)
            gave[number] = (await events.run()).output

    async with (
        holdfast.open("memory:", {"shell": {"jail": "off"}}) as hf,
        anyio.create_task_group() as group,
    ):
        for number in range(20):
            group.start_soon(one, hf, number)
    assert gave == {number: f"Twice {number} it is." for number in range(20)}
