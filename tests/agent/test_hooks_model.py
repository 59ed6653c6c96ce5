"""Hooks at the points of a question to a model: its context, its messages, the call, its answer."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.hooks_support import at, check, decisions, model, once, ran, texts

import holdfast
from holdfast import Agent, Risk
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.hook import HookQueue
from holdfast.contracts.model import ModelRequest
from holdfast.gate.hooks import HookInput
from holdfast.journal import MemoryJournal
from holdfast.journal.pen import LEASE_MS
from holdfast.models.script import Step, call, fail, say, write_code
from holdfast.models.scripted import Scripted
from holdfast.testing import Died, FakeClock, FaultyJournal

SHORT: dict[str, Any] = {"at_tokens": 1_000_000, "keep_turns": 1}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


# -- context ----------------------------------------------------------------------------------------------


async def test_before_context_assembly_injects_before_every_question() -> None:
    asked = list[HookInput]()
    one = at(
        "before_context_assembly",
        lambda q: q.inject(f"note {len(asked)}"),
        "inject_context",
        asked=asked,
    )
    asks = model(write_code("1 + 1"), say("done"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert run.status == "completed"
        assert texts(asks.requests[0]) == ["go", "note 1"]
        assert texts(asks.requests[1])[-1] == "note 2"
        assert [q.subject for q in asked] == [f"{run.id}:1", f"{run.id}:2"]
        assert [(m or {})["text"] for m in asked[0].messages or ()] == ["go"]


async def test_a_question_that_is_asked_again_has_its_context_once() -> None:
    asked = list[HookInput]()
    one = at("before_context_assembly", lambda q: q.inject("note"), "inject_context", asked=asked)
    calls = at("before_model_call", asked=asked, blocking=True)
    asks = model(fail("MODEL_OVERLOADED"), say("done"))
    async with holdfast.open("memory:", {}, hooks=[one, calls]) as hf:
        run = await ran(hf, Agent(asks, retry={"initial_delay_ms": 0}))
        assert run.status == "completed"
        assert [texts(one) for one in asks.requests] == [["go", "note"]] * 2
    # Each call to the provider is guarded; the context is put together once.
    assert [q.point.value for q in asked].count("before_context_assembly") == 1
    effects = [q.effect_id for q in asked if q.point.value == "before_model_call"]
    assert len(effects) == len(set(effects)) == 2


async def test_after_context_assembly_wants_it_shorter() -> None:
    def says(request: ModelRequest) -> Step:
        if "Summarise" in texts(request)[-1]:
            return say("SUMMARY")
        return (
            write_code("1")
            if sum(one.role == "assistant" for one in request.messages) < 3
            and "SUMMARY" not in texts(request)[0]
            else say("done")
        )

    wish = once(lambda q: q.request("request_compaction", "long"))
    one = at(
        "after_context_assembly",
        lambda q: wish(q) if "5 messages" in q.summary else None,
        "request_compaction",
    )
    asks = Scripted(says, keep_requests=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, compact=SHORT))
        kinds = [r.kind async for r in hf.journal.read("s")]
        assert kinds.count("context_compacted") == 1
        assert "SUMMARY" in texts(asks.requests[3])[0]
        assert run.status == "completed"


async def test_after_context_assembly_stops_the_run() -> None:
    asks = model(say("never"))
    one = at("after_context_assembly", lambda q: q.stop_run("no", "Too much."), "stop_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
    assert asks.requests == []


# -- what is sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before_provider_projection", "before_model_call"])
async def test_modify_projection_is_what_is_sent_and_on_record(point: str) -> None:
    masked = [{"role": "user", "text": "My number is [masked]."}]
    one = at(point, lambda q: q.project(masked, "masked"), "modify_projection")
    asks = model(say("fine"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks), "My number is 7.")
        assert texts(asks.requests[0]) == ["My number is [masked]."]
        # The conversation itself is as it was said.
        assert getattr(run.messages[0], "text", "") == "My number is 7."
        (intent,) = [
            r.payload
            async for r in hf.journal.read("s")
            if r.kind == "effect_intent" and r.payload["kind"] == "provider_request"
        ]
        arguments: Any = await content(hf, intent["content_refs"])
        (hooked,) = [r.payload async for r in hf.journal.read("s") if r.kind == "hook"]
        response: Any = await content(hf, [hooked["response"]])
        assert arguments["messages"] == digest_json(response["payload"]["messages"])


async def content(hf: holdfast.Runtime, refs: Any) -> Any:
    return json.loads(await hf.journal.content(str(refs[0])))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "nobody", "text": "x"}],
        [{"role": "tool", "call_id": "c", "name": "t", "text": "a result without a call"}],
    ],
)
async def test_messages_that_no_provider_takes_are_refused(messages: list[dict[str, Any]]) -> None:
    one = at("before_model_call", lambda q: q.project(messages, "broken"), "modify_projection")
    asks = model(say("never"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert await decisions(hf, run) == [("before_model_call", "rejected")]
    assert asks.requests == []


@pytest.mark.parametrize("point", ["before_provider_projection", "before_model_call"])
async def test_stop_run_before_a_question(point: str) -> None:
    asks = model(say("never"))
    one = at(point, lambda q: q.stop_run("no", "Not with this model."), "stop_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert "Not with this model." in run.error.message
    assert asks.requests == []


async def test_before_model_call_sees_which_model_is_asked_and_how() -> None:
    asked = list[HookInput]()
    one = at("before_model_call", asked=asked, blocking=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        await ran(hf, Agent(model(say("fine")), instructions="Be brief."))
    (question,) = asked
    assert (question.tool, question.side_effect) == ("model:scripted:script", "network")
    arguments: Any = question.arguments
    assert "Be brief." in arguments["instructions"]
    assert "run_code" in arguments["tools"]


# -- asking a person --------------------------------------------------------------------------------------


async def test_request_approval_asks_a_person_before_the_model(url: str) -> None:
    """The run stands; whoever takes it up after the decision asks the model, and no hook again."""
    asked = list[HookInput]()
    one = at(
        "before_model_call", once(lambda q: q.ask("Sure?", risk=Risk.HIGH)), "request_approval",
        asked=asked,
    )  # fmt: skip
    asks = model(say("done"))
    agent = Agent(asks, timeout_ms=600_000)
    async with holdfast.open(url, {}, hooks=[one]) as hf:
        run = await ran(hf, agent)
        assert (run.status, asks.requests) == ("waiting_for_approval", [])
        (view,) = await hf.approvals.list()
        assert (view.tool, view.risk) == ("ask_model", "high")
        assert (await run.resume()).status == "waiting_for_approval"
    async with holdfast.open(url, {}, hooks=[one]) as hf:
        await hf.approvals.decide(run.approvals[0], "approved", actor="ann")
        run = await agent.resume(run.id, runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        await check(hf, run)
        kinds = [r.kind async for r in hf.journal.read("s")]
        assert kinds.count("approval_requested") == kinds.count("approval_settled") == 1
    assert (len(asked), len(asks.requests)) == (1, 1)


async def test_a_person_says_no_to_a_question() -> None:
    one = at("before_model_call", lambda q: q.ask("Sure?"), "request_approval")
    asks = model(say("never"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        await hf.approvals.decide(run.approvals[0], "denied", actor="ann")
        run = await run.resume()
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert run.error.code == "PERMISSION_DENIED"
        await check(hf, run)
    assert asks.requests == []


async def test_approval_holds_for_the_question_it_was_given_for() -> None:
    """Whoever changes the agent meanwhile has to ask again."""
    one = at("before_model_call", lambda q: q.ask("Sure?"), "request_approval")
    asks = model(say("done"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, instructions="Be nice."))
        (first,) = run.approvals
        await hf.approvals.decide(first, "approved", actor="ann")
        other = Agent(asks, instructions="Be rude.")
        run = await other.resume(run.id, runtime=hf)
        assert (run.status, asks.requests) == ("waiting_for_approval", [])
        assert run.approvals != (first,)
        await hf.approvals.decide(run.approvals[0], "approved", actor="ann")
        run = await other.resume(run.id, runtime=hf)
        assert (run.status, run.output) == ("completed", "done")
        await check(hf, run)


async def test_policy_can_want_a_person_asked_without_any_hook() -> None:
    asks = model(say("done"))
    config = {"policy": {"rules": [{"id": "models", "tool": "model:*", "then": "ask"}]}}
    async with holdfast.open("memory:", config) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, asks.requests) == ("waiting_for_approval", [])
        await hf.approvals.decide(run.approvals[0], "approved", actor="ann")
        run = await run.resume()
        assert (run.status, run.output) == ("completed", "done")
        await check(hf, run)


async def test_approved_for_session_is_asked_once() -> None:
    one = at("before_model_call", lambda q: q.ask("Sure?"), "request_approval")
    asks = model(write_code("1"), write_code("2"), say("done"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, timeout_ms=600_000))
        times = 0
        while run.status == "waiting_for_approval":
            times += 1
            await hf.approvals.decide(run.approvals[0], "approved_for_session", actor="ann")
            run = await run.resume()
        assert (run.status, times) == ("completed", 1)


# -- pieces -----------------------------------------------------------------------------------------------


async def test_on_model_delta_hears_every_piece_and_its_end() -> None:
    asked = list[HookInput]()
    one = at("on_model_delta", asked=asked, queue=HookQueue(capacity=64))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("one two three four five six"))))
        assert run.status == "completed"
    pieces: list[Any] = [q.result for q in asked if q.result]
    assert "".join(piece["text"] for piece in pieces) == "one two three four five six"
    assert asked[-1].summary == "model answer over"
    assert {q.effect_id for q in asked} == {asked[0].subject}


async def test_on_model_delta_never_holds_up_the_answer() -> None:
    """A listener that never comes back misses pieces; the run does not wait for it."""
    heard = list[str]()

    async def stuck(question: HookInput) -> None:
        heard.append(question.summary)
        await anyio.sleep_forever()

    one = holdfast.hook(
        "on_model_delta",
        id="stuck",
        timeout_ms=60_000,
        queue=HookQueue(capacity=2, terminal_reserve=1),
        overflow="fail_hook_invocation",
    )(stuck)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("word " * 100))))
        assert run.status == "completed"
        assert ("on_model_delta", "failed") in await decisions(hf, run)
    assert len(heard) == 1


# -- the answer -------------------------------------------------------------------------------------------


async def test_request_retry_drops_the_answer_and_asks_again() -> None:
    said = iter(["rude", "polite"])
    asks = Scripted(lambda _: say(next(said)), keep_requests=True)
    one = at("after_model_call", once(lambda q: q.retry("rude")), "request_retry")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.output) == ("completed", "polite")
        assert [texts(one) for one in asks.requests] == [["go"], ["go"]]
        assert "rude" not in str(run.messages)
        # What it cost is counted, and what was said is on record.
        assert run.usage.output_tokens > 1
        retries = [r.payload async for r in hf.journal.read("s") if r.kind == "model_retry"]
        assert [(one["kind"], one["delay_ms"]) for one in retries] == [("hook", 0)]


async def test_request_retry_of_an_answer_with_calls_makes_none_of_them() -> None:
    done = list[str]()

    @holdfast.capability(side_effect="read")
    def look(at: str) -> str:
        """Look."""
        done.append(at)
        return at

    lines = iter(["bad", "good"])

    def says(request: ModelRequest) -> Any:
        where = next(lines, None)
        return say("done") if where is None else call("look", at=where)

    one = at("after_model_call", once(lambda q: q.retry("not there")), "request_retry")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(Scripted(says), capabilities=[look], code_mode=False))
        assert run.status == "completed"
    assert done == ["good"]


async def test_a_model_is_asked_again_only_as_often_as_it_may_be() -> None:
    one = at("after_model_call", lambda q: q.retry("again"), "request_retry", failure="fail_run")
    asks = Scripted(lambda _: say("x"), keep_requests=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, retry={"max_retries": 2}))
        assert (run.status, run.result.cause) == ("failed", "HookFailure")
        outcomes = [outcome for _, outcome in await decisions(hf, run)]
        assert outcomes == ["accepted", "accepted", "rejected"]
    assert len(asks.requests) == 3


async def test_after_model_call_sees_the_answer_and_stops_the_run() -> None:
    asked = list[HookInput]()
    one = at("after_model_call", lambda q: q.stop_run("no", "Enough."), "stop_run", asked=asked)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("hello"))))
        assert (run.status, run.result.cause, run.text) == ("failed", "HookDenied", "hello")
    result: Any = asked[0].result
    assert result["parts"] == [{"kind": "text", "text": "hello"}]
    assert len(asked[0].refs) == 1


# -- what was said about other messages does not count ---------------------------------------------------


async def test_a_conversation_that_had_to_be_shortened_is_projected_anew() -> None:
    """The model took no more: what a hook made of the long conversation is not sent again."""
    asked = list[HookInput]()
    one = at(
        "before_provider_projection",
        lambda q: q.project([*(q.messages or ())], "as it is"),
        "modify_projection",
        asked=asked,
    )

    def says(request: ModelRequest) -> Step:
        if "Summarise" in texts(request)[-1]:
            return say("SUMMARY")
        answers = sum(one.role == "assistant" for one in request.messages)
        if answers >= 3:
            return fail("MODEL_CONTEXT_EXCEEDED")
        return say("done") if "SUMMARY" in texts(request)[0] else write_code("1")

    asks = Scripted(says, keep_requests=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks, compact=SHORT))
        assert (run.status, run.output) == ("completed", "done")
    assert "SUMMARY" in texts(asks.requests[-1])[0]
    subjects = [q.subject for q in asked]
    assert len(subjects) == len(set(subjects))


class DiesAtTheQuestion(FaultyJournal):
    """The process dies before the first question to a model is on record."""

    async def append(self, stream: str, records: Any, **terms: Any) -> Any:
        if any(one.payload.get("kind") == "provider_request" for one in records):
            self._dead, self._fail_at = True, 0
        if self._dead:
            raise Died("at the question")
        return await self.inner.append(stream, records, **terms)


async def test_what_somebody_said_meanwhile_is_sent_although_a_hook_had_answered() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    asked = list[HookInput]()
    one = at(
        "before_model_call",
        lambda q: q.project([*(q.messages or ())], "as it is"),
        "modify_projection",
        asked=asked,
    )
    starting = at("run_starting", lambda q: q.inject("note"), "inject_context")
    asks = model(write_code("1"), say("done"))
    definition = Agent(asks).definition()
    with suppress(BaseException):
        async with holdfast.open(
            DiesAtTheQuestion(journal, fail_at=0), {}, hooks=[starting, one]
        ) as hf:
            await hf.agents.run(definition, "go", session="s", run_id="run_1")
    assert (len(asked), asks.requests) == (1, [])
    clock.advance(LEASE_MS + 1)
    other = at("before_context_assembly", lambda q: q.inject("Mind the gap."), "inject_context")
    async with holdfast.open(journal, {}, hooks=[starting, one, other]) as hf:
        result = await hf.agents.resume("run_1", definition)
        assert result.status == "completed"
    assert texts(asks.requests[0]) == ["go", "note", "Mind the gap."]
