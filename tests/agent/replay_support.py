"""A run with everything in it, to be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

import holdfast
from holdfast import Agent, capability
from holdfast.runtime import Runtime
from holdfast.runtime.agent import Run
from holdfast.testing import ScriptedModel, cut, fail, say, together, write_code

QUICK = {"initial_delay_ms": 0, "max_delay_ms": 0}

FIRST = """
import asyncio
found = await asyncio.gather(look('b'), look('a'))
for one in found:
    print(list(one))
[one['rank'] for one in found]
"""
SECOND = """
sent = [send(to='ann', rank=found[0]['rank'])]
try:
    send(to='bob', rank=2)
except PermissionError as why:
    sent.append('not to bob')
sent
"""


class Report(BaseModel):
    """What the run is to give."""

    sent: list[str]
    refused: int


class World:
    """What its capabilities touch: a folder, in which everything that is done leaves a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    @property
    def deeds(self) -> list[str]:
        """What was done."""
        return sorted(path.name for path in self.folder.iterdir())

    def do(self, what: str) -> None:
        (self.folder / f"{len(self.deeds)}-{what}").write_text(what)

    def capabilities(self) -> list[Any]:
        async def look(name: str) -> dict[str, Any]:
            """Look somebody up."""
            self.do(f"look-{name}")
            return {"rank": len(self.deeds), "name": name, "also": {"z": 1, "y": 2}}

        def send(to: str, rank: int) -> str:
            """Send somebody their rank."""
            self.do(f"send-{to}")
            return f"sent to {to}"

        return [
            capability(look, side_effect="read"),
            capability(send, side_effect="external_system", approval="manual"),
        ]


class CountingModel(ScriptedModel):
    """One that leaves a trace when it is asked."""

    asked = 0

    async def request(self, request: Any) -> Any:
        self.asked += 1
        return await super().request(request)


def script() -> list[Any]:
    """Two programs, a rate limit, an answer that breaks off, and an output that does not fit at first."""
    return [
        write_code(FIRST),
        fail("MODEL_RATE_LIMITED", retry_after_ms=1),
        together(say("Now I send."), write_code(SECOND)),
        cut("All is"),
        say("All is done."),
        say('{"sent": ["ann"]}'),
        say('{"sent": ["ann"], "refused": 1}'),
    ]


def agent_of(world: World, model: Any = None, **more: Any) -> Agent[Report]:
    """The agent of that run."""
    return Agent(
        model or ScriptedModel(script()),
        output=Report,
        instructions="Send everybody their rank.",
        capabilities=world.capabilities(),
        retry=QUICK,
        **more,
    )


async def whole_run(hf: Runtime, agent: Agent[Any], session: str = "work") -> Run[Any]:
    """Run it: the first thing it asks for is approved, the second denied."""
    run = await agent.run("Send them.", session=session, runtime=hf)
    for answer in ("approved", "denied"):
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], answer, actor="ann")
        run = await run.resume()
    assert run.status == "completed"
    return run


def opened(url: str = "memory:", **more: Any) -> Any:
    """A runtime without the machine's settings."""
    return holdfast.open(url, {}, **more)
