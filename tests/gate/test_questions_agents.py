"""An agent whose tool has a question parks, and goes on with the answer in another process."""

from pathlib import Path

import pytest
from tests.gate.questions_support import FORM, UNJAILED, Bookings

import holdfast
from holdfast import Agent
from holdfast.contracts.approval import Asks
from holdfast.testing import ScriptedModel, call, replay_async, say, together, write_code

CODE = "found = book('bed')\nresult = found"


def agent_of(world: Bookings, *, code: bool) -> Agent[str]:
    wants = write_code(CODE) if code else call("book", what="bed")
    model = ScriptedModel([together(say("Let me see."), wants), say("Done.")])
    return Agent(model, capabilities=[world.book()], code_mode=code)


@pytest.mark.parametrize("code", [True, False], ids=["code", "tools"])
async def test_agent_parks_and_goes_on_with_the_answer(tmp_path: Path, code: bool) -> None:
    world, url = Bookings(), f"sqlite:///{tmp_path}/journal.db"
    agent = agent_of(world, code=code)
    async with holdfast.open(url, UNJAILED) as hf:
        run = await agent.run("Book a bed.", session="s", runtime=hf)
        assert (run.status, world.done) == ("waiting_for_approval", [])
        (view,) = await hf.approvals.list()
        assert (view.asks, view.form, run.approvals) == (Asks.INPUT, FORM, (view.id,))
        again = await run.resume()
        assert (again.status, len(world.calls)) == ("waiting_for_approval", 1)
    async with holdfast.open(url, UNJAILED) as hf:
        await hf.approvals.decide(view.id, "approved", content={"size": 3})
        run = await agent.resume(run.id, runtime=hf)
        assert (run.status, run.output, world.done) == ("completed", "Done.", ["bed"])
        assert [attempt for attempt, _ in world.calls] == [1, 2]
        found = (await replay_async(run)).check()
        assert found.same
        assert (await hf.journal.verify()).ok


@pytest.mark.parametrize("code", [True, False], ids=["code", "tools"])
async def test_agent_that_is_cancelled_asks_nobody_any_more(code: bool) -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED) as hf:
        run = await agent_of(world, code=code).run("Book a bed.", session="s", runtime=hf)
        shown = await hf.runs.cancel(run.id)
        assert (shown.status, shown.in_doubt) == ("cancelled", ())
        (view,) = await hf.approvals.list(status="all")
        assert (view.status, world.done) == ("cancelled", [])
        assert {one.status for one in await hf.runs.effects(run.id)} <= {
            "cancelled",
            "completed",
        }
