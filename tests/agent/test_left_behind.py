"""What a process that died leaves behind of a run, in the middle of a question: the next one settles it."""

from typing import Any

import pytest
from tests.agent.loop_support import ASKS_NOT, records, said, sums_up

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError
from holdfast.journal import MemoryJournal
from holdfast.journal.pen import LEASE_MS
from holdfast.models.script import Step, call, say, write_code
from holdfast.testing import Died, FakeClock, FaultyJournal, ScriptedModel

RUN, HOUR = "run_dies", 3_600_000
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Dying(FaultyJournal):
    """Takes nothing any more once its process is dead."""

    gone = False

    async def append(self, stream: str, records: Any, **terms: Any) -> Any:
        if self.gone or any(one.kind == "run_completed" for one in records):
            self.die()
        return await self.inner.append(stream, records, **terms)

    def die(self) -> None:
        """The process ends here."""
        self.gone = True
        raise Died("in the middle")


def died(why: BaseException) -> bool:
    """Whether that is all that happened."""
    if isinstance(why, BaseExceptionGroup):
        return all(died(one) for one in why.exceptions)
    return isinstance(why, Died | HoldfastError)


class World:
    """One run, and the processes that take it on."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.first = Dying(self.journal, fail_at=0)
        self.sent: list[str] = []

    @property
    def send(self) -> Any:
        @capability(side_effect="write", idempotent=True, approval="manual")
        def send(to: str) -> str:
            """Send."""
            self.sent.append(to)
            return to

        return send

    async def dies(self, agent: Agent[Any], account: str | None = None) -> None:
        """The first process, which does not see the end of it; the next one comes an hour later."""
        try:
            async with holdfast.open(self.first, ASKS_NOT) as hf:
                if account is not None:
                    await hf.agents.open_account(account, {"tokens": 50_000})
                await hf.agents.run(
                    agent.definition(), "go", session="s", run_id=RUN, account=account
                )
        except BaseException as why:
            if not died(why):
                raise
        self.clock.advance(LEASE_MS + HOUR)


async def test_time_without_a_process_is_none_of_the_runs_time() -> None:
    world = World()

    def says(request: ModelRequest) -> Step:
        if not world.first.gone:
            world.first.die()
        return say("Sent.") if len(request.messages) > 1 else call("send", to="ann")

    agent = Agent(
        ScriptedModel(says), capabilities=[world.send], code_mode=False, timeout_ms=600_000
    )
    await world.dies(agent)
    async with holdfast.open(world.journal, {}) as hf:
        run = await agent.resume(RUN, runtime=hf)
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], "approved", actor="ann")
        run = await run.resume()
        assert (run.status, run.output, run.error) == ("completed", "Sent.", None)
    assert world.sent == ["ann"]


async def test_calls_in_place_of_the_output_are_not_made_after_a_crash_either() -> None:
    world = World()
    script = [say("Done."), call("send", to="ann"), say("Sent."), say('{"n": 1}')]
    agent: Agent[Any] = Agent(
        ScriptedModel(script), capabilities=[world.send], code_mode=False, output=SCHEMA
    )
    await world.dies(agent, account="team")  # what others share is settled at once, before the end
    async with holdfast.open(world.journal, ASKS_NOT) as hf:
        run = await agent.resume(RUN, runtime=hf)
        assert (run.status, run.output, run.text) == ("completed", None, "Done.")
        assert "tool calls instead of JSON: send" in str(run.result.output_error)
    assert world.sent == []


@pytest.mark.parametrize("bad", [0, 1])
async def test_an_agent_without_output_goes_on_with_a_run_that_was_asked_for_it(bad: int) -> None:
    world = World()

    def says(request: ModelRequest) -> Step:
        if request.output is not None and request.attempt == 1:
            candidates = sum(one.role == "assistant" for one in request.messages) - 1
            if candidates == bad:
                world.first.die()
            return say('{"n": "one"}')
        return say("Done.")

    await world.dies(Agent(ScriptedModel(says), output=SCHEMA))
    async with holdfast.open(world.journal, ASKS_NOT) as hf:
        run = await Agent(ScriptedModel(says)).resume(RUN, runtime=hf)
        assert (run.status, run.output, run.error) == ("completed", "Done.", None)
        assert run.result.output_error is None


async def held(hf: holdfast.Runtime, account: str) -> int:
    """Tokens that are set aside."""
    row = await hf.journal.row("budgets", f"account:{account}") or {}
    return int(str(row["held_tokens"]))


@pytest.mark.parametrize("compact", [True, False])
async def test_a_summary_that_was_being_written_keeps_nothing_set_aside(compact: bool) -> None:
    world = World()

    def says(request: ModelRequest) -> Step:
        if sums_up(request):
            if not world.first.gone:
                world.first.die()
            return say("They counted.")
        return say("Done.") if world.first.gone else write_code("'x' * 800")

    how = {"at_tokens": 300, "keep_turns": 1, "min_turns_between": 1}
    await world.dies(Agent(ScriptedModel(says), compact=how), account="team")
    async with holdfast.open(world.journal, ASKS_NOT) as hf:
        assert await held(hf, "team") > 0
        agent = Agent(ScriptedModel(says), compact=how if compact else None)
        run = await agent.resume(RUN, runtime=hf)
        assert (run.status, run.output) == ("completed", "Done.")
        assert run.messages[0].text.startswith("[Context compacted]") is compact
        assert await held(hf, "team") == 0
        ended = {one.effect_id for one in await records(hf, "s", "effect_result")}
        assert {one.effect_id for one in await records(hf, "s", "effect_intent")} == ended


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_a_question_that_nobody_asks_again_keeps_nothing_set_aside(how: str) -> None:
    world = World()

    def says(request: ModelRequest) -> Step:
        world.clock.advance(10)
        if len(request.messages) > 1:
            world.first.die()
        return write_code("6 * 7")

    await world.dies(Agent(ScriptedModel(says)), account="team")
    async with holdfast.open(world.journal, ASKS_NOT) as hf:
        aside = await held(hf, "team")
        before = int(str((await hf.journal.row("budgets", "account:team") or {})["tokens"]))
        if how == "cancelled":
            await hf.runs.cancel(RUN)
        else:
            run = await Agent(ScriptedModel(says), timeout_ms=1).resume(RUN, runtime=hf)
            assert (run.status, run.error.code) == ("failed", "TIMEOUT_WALL")
        assert await held(hf, "team") == 0
        row = await hf.journal.row("budgets", "account:team") or {}
        assert row["tokens"] == before + aside  # it may have been answered
        ended = await said(hf, "s", "effect_result")
        assert [one["terminal_status"] for one in ended] == ["completed", "cancelled"]


async def test_a_question_that_may_not_be_asked_any_more_ends_its_run() -> None:
    world = World()

    def says(request: ModelRequest) -> Step:
        world.first.die()
        return say("Never said.")

    agent = Agent(ScriptedModel(says))
    await world.dies(agent, account="team")
    denies = {"policy": {"rules": [{"id": "none", "tool": "model:*", "then": "deny"}]}}
    async with holdfast.open(world.journal, denies) as hf:
        run = await agent.resume(RUN, runtime=hf)
        assert (run.status, run.error.code) == ("failed", "PERMISSION_DENIED")
        assert await held(hf, "team") == 0
