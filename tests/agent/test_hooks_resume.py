"""A process that dies at every write of a run full of hooks: whoever goes on asks no hook that has answered on record."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from tests.agent.hooks_support import at, texts

import holdfast
from holdfast import Agent, capability
from holdfast.agent.history import history_of
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.message import check_messages
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError
from holdfast.gate.hooks import Hook, HookInput
from holdfast.journal import MemoryJournal
from holdfast.journal.pen import LEASE_MS
from holdfast.models.script import Step, call, say
from holdfast.models.scripted import Scripted
from holdfast.testing import Died, FakeClock, FaultyJournal

RUN = "run_hooked"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Story:
    """One run, the hooks in its way, and the processes that take it on."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.sent: list[str] = []
        self.asked: list[HookInput] = []
        self.bad = 0
        self.agent: Agent[Any] = Agent(
            Scripted(self.says),
            capabilities=[self.tool()],
            code_mode=False,
            output=SCHEMA,
            retry={"initial_delay_ms": 0},
        )

    def tool(self) -> Any:
        @capability(side_effect="write", idempotent=True)
        def send(to: str) -> str:
            """Send."""
            self.sent.append(to)
            return f"sent to {to}"

        return send

    def says(self, request: ModelRequest) -> Step:
        """The model: what it says follows from what it is sent."""
        said = " ".join(texts(request))
        if "sent to" not in said:
            # The first answer to the first question is no good; which one that is, only the record knows.
            self.bad += 1
            return call("send", to="eve" if self.bad == 1 else "ann")
        if request.output is not None:
            return say('{"n": 2}' if "There are two" in said else '{"n": 1}')
        return say("really done" if "Look again." in said else "done")

    def hooks(self) -> list[Hook]:
        def seen(question: HookInput) -> Any:
            return (question.result or {}) if isinstance(question.result, dict) else {}

        return [
            at("run_starting", lambda q: q.inject("Start note."), "inject_context", asked=self.asked),
            at(
                "before_context_assembly",
                lambda q: q.inject(f"Turn note {q.subject.rpartition(':')[2]}."),
                "inject_context",
                asked=self.asked,
            ),
            at(
                "before_provider_projection",
                lambda q: q.project([*(q.messages or ())], "the same"),
                "modify_projection",
                asked=self.asked,
            ),
            at(
                "after_model_call",
                lambda q: q.retry("not to Eve") if "eve" in str(seen(q).get("parts")) else None,
                "request_retry",
                asked=self.asked,
            ),
            at(
                "before_tool_call",
                lambda q: q.modify({"to": "bob"}, "to Bob"),
                "modify_tool_request",
                asked=self.asked,
            ),
            at(
                "before_run_complete",
                lambda q: q.retry("Look again.") if q.result == "done" else None,
                "request_retry",
                asked=self.asked,
            ),
            at(
                "after_structured_output_validation",
                lambda q: q.retry("There are two.") if seen(q).get("n") == 1 else None,
                "request_retry",
                asked=self.asked,
            ),
        ]  # fmt: skip

    async def process(self, journal: Any) -> AgentResult:
        """What one process does."""
        config = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
        async with holdfast.open(journal, config, hooks=self.hooks()) as hf:
            definition = self.agent.definition()
            if await self.journal.row("runs", RUN) is not None:
                return await hf.agents.resume(RUN, definition)
            return await hf.agents.run(definition, "go", session="s", run_id=RUN)

    async def accepted(self) -> Counter[tuple[str, str, str]]:
        """The answers on record, by subject, point and hook."""
        found: Counter[tuple[str, str, str]] = Counter()
        async for record in self.journal.read("s"):
            said = record.payload
            if record.kind == "hook" and said.get("response") is not None:
                found[str(said["subject"]), str(said["point"]), str(said["hook_id"])] += 1
        return found


async def test_a_run_full_of_hooks() -> None:
    story = Story()
    result = await story.process(story.journal)
    assert (result.status, result.output, result.text) == ("completed", {"n": 2}, "really done")
    assert story.sent == ["bob"]
    points = Counter(point for _, point, _ in await story.accepted())
    assert points == {
        "run_starting": 1,
        "before_context_assembly": 3,
        "before_provider_projection": 5,
        "after_model_call": 1,
        "before_tool_call": 1,
        "before_run_complete": 1,
        "after_structured_output_validation": 1,
    }


def died(why: BaseException) -> bool:
    if isinstance(why, BaseExceptionGroup):
        return all(died(one) for one in why.exceptions)
    return isinstance(why, Died | HoldfastError)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_every_write_no_hook_is_asked_again_that_has_answered(after: bool) -> None:
    for fail_at in range(1, 200):
        story = Story()
        faulty = FaultyJournal(story.journal, fail_at=fail_at, after=after, dead=True)
        try:
            await story.process(faulty)
            died_once = faulty.appends >= fail_at
        except BaseException as why:
            if not died(why):
                raise
            died_once = True
        if not died_once:
            assert fail_at > 15
            return
        story.clock.advance(LEASE_MS + 1)
        before, story.asked = await story.accepted(), []
        result = await story.process(story.journal)
        where = f"at write {fail_at}"
        assert (result.status, result.output) == ("completed", {"n": 2}), where
        again = {(q.subject, q.point.value, q.hook_id) for q in story.asked}
        assert not again & set(before), where
        assert max((await story.accepted()).values()) == 1, where
        await _valid(story, where)
    raise AssertionError("it never got through")


async def _valid(story: Story, where: str) -> None:
    """What hooks said is said once, the answer that one did not want is not there, and the rest is in order."""
    messages = (await history_of(story.journal, "s")).transcript.messages
    assert check_messages(messages) is None, where
    said = [str(getattr(one, "text", "")) for one in messages]
    assert said.count("Start note.") == said.count("Look again.") == 1, where
    notes = [one for one in said if one.startswith("Turn note")]
    assert len(notes) == len(set(notes)), where
    assert "eve" not in str(messages), where
    assert set(story.sent) <= {"bob"}, where


class DiesAtTheEnd(FaultyJournal):
    """The process dies before the end of a run is on record."""

    gone = False

    async def append(self, stream: str, records: Any, **terms: Any) -> Any:
        self.gone = self.gone or any(one.kind == "run_failed" for one in records)
        if self.gone:
            raise Died("at the end of the run")
        return await self.inner.append(stream, records, **terms)


@pytest.mark.parametrize("wish", ["stop_run", "request_retry"])
async def test_an_answer_whose_hook_failed_is_shown_to_it_before_anything_follows(
    wish: str,
) -> None:
    """The hook failed, and the process died before that ended the run: the next one does not take it for a yes."""
    sent = list[str]()

    @capability(side_effect="external_system")
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return to

    def says(request: ModelRequest) -> Step:
        asks.append(len(request.messages))
        if len(request.messages) > 1:
            return say("done")
        return call("send", to="eve" if len(asks) == 1 else "ann")

    def guards(question: HookInput) -> Any:
        if "eve" not in str(question.result):
            return None
        return question.stop_run("no", "No.") if wish == "stop_run" else question.retry("No.")

    def fails(question: HookInput) -> Any:
        raise RuntimeError("broken")

    asks, clock = list[int](), FakeClock()
    journal = MemoryJournal(clock=clock)
    agent: Agent[Any] = Agent(Scripted(says), capabilities=[send], code_mode=False)
    config = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
    broken = at("after_model_call", fails, wish, failure="fail_run")
    with suppress(BaseException):
        async with holdfast.open(DiesAtTheEnd(journal, fail_at=0), config, hooks=[broken]) as hf:
            await hf.agents.run(agent.definition(), "go", session="s", run_id=RUN)
    kinds = [one.kind async for one in journal.read("s")]
    assert kinds[-2:] == [
        "effect_result",
        "hook",
    ]  # the answer is on record, and that nobody was heard
    clock.advance(LEASE_MS + 1)
    guard = at("after_model_call", guards, wish)
    async with holdfast.open(journal, config, hooks=[guard]) as hf:
        result = await hf.agents.resume(RUN, agent.definition())
        assert (result.status, result.cause) == (
            ("failed", "HookDenied") if wish == "stop_run" else ("completed", None)
        )
        assert sent == ([] if wish == "stop_run" else ["ann"])
        messages = (await hf.agents.messages("s")).messages
        assert check_messages(messages) is None
        assert messages == (await history_of(journal, "s")).transcript.messages
