"""Runs of other processes: watched while they go on, and taken up with their events when a process has died."""

from pathlib import Path

from tests.agent.watching import collected, finished, kept, kinds, line_of, process, tell, until

import holdfast
from holdfast import Agent
from holdfast.contracts import agent_event as e
from holdfast.models.script import say
from holdfast.models.scripted import Scripted

_RUNS = """
import sys, anyio, holdfast
from holdfast import Agent, capability
from holdfast.models.script import call, say, write_code
from holdfast.models.scripted import Scripted
async def author(request):
    turns = sum(one.role == "assistant" for one in request.messages)
    if turns == 6:
        return say("Done.")
    if turns == 3:
        await anyio.to_thread.run_sync(sys.stdin.readline)
    return write_code(f"x = {turns}\\\\nx")
async def main():
    async with holdfast.open(sys.argv[1]) as hf:
        async with Agent(Scripted(author)).stream("Go.", session="s", runtime=hf) as events:
            print(events.run_id, flush=True)
            async for event in events:
                pass
anyio.run(main)
"""


async def test_a_run_of_another_process_is_watched_while_it_goes_on(tmp_path: Path) -> None:
    """Going away and coming back after every event; nothing is lost, and nothing comes twice."""
    url = f"sqlite:///{tmp_path}/journal.db"
    child = process(_RUNS, url)
    run_id = await line_of(child)
    async with holdfast.open(url) as hf:
        await until(lambda: hf.journal.row("runs", run_id))
        told: list[e.AgentEvent] = []
        live = False
        while not told or told[-1].kind != "run_ended":
            watching = hf.agents.events(run_id, after=told[-1].seq if told else None)
            told.append(await anext(watching))
            await watching.aclose()
            if not live and told[-1].kind == "tool_result" and len(told) > 8:
                live = True
                tell(child)
        await finished(child)
        assert told == await collected(hf.agents.events(run_id))
        assert [one.kind for one in told].count("code") == 6


async def test_the_events_of_a_run_go_on_when_its_process_has_died(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    child = process(_RUNS, url)
    run_id = await line_of(child)
    async with holdfast.open(url) as hf:
        await until(lambda: hf.journal.row("runs", run_id))
        told: list[e.AgentEvent] = []
        async for event in hf.agents.events(run_id):
            told.append(event)
            if kinds(told).count("turn_started") == 4:  # it waits in the middle of this question
                break
        child.kill()
        child.communicate()
        agent = Agent(Scripted(lambda _: say("Done elsewhere.")))
        async with agent.stream(run=run_id, after=told[-1].seq, runtime=hf) as events:
            rest = kept(await collected(events))
            run = await events.run()
        assert run.output == "Done elsewhere."
        assert [one.reason for one in rest if isinstance(one, e.RunResumed)] == ["recovered"]
        asked = [one for one in [*told, *rest] if isinstance(one, e.TurnStarted)]
        assert [(one.turn, one.attempt) for one in asked[-2:]] == [(4, 1), (4, 2)]
        assert told + rest == await collected(hf.agents.events(run_id))
