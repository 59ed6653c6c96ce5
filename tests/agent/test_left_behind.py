"""What a process that died leaves behind of a run, in the middle of a question: the next one settles it."""

from typing import Any

from tests.agent.loop_support import ASKS_NOT

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError
from holdfast.journal import MemoryJournal
from holdfast.journal.pen import LEASE_MS
from holdfast.models.script import Step, call, say
from holdfast.testing import Died, FakeClock, FaultyJournal, ScriptedModel

RUN, HOUR = "run_dies", 3_600_000


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
