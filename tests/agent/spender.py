"""A process that spends: run by the tests with `python -m tests.agent.spender MODE`, and killed while it does.

`$WORLD` is a file with a line for every call that was really made; `$KILL` is at which of them the process dies. Mode
`crowd` is one of several at once, whose sessions begin with `$NAME`.
"""

import os
import signal
import sys
from pathlib import Path

import anyio
from tests.agent.loop_support import ASKS_NOT, tools

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.model import ModelUsage
from holdfast.models.scripted import Scripted
from holdfast.testing import call, say, together, write_code

FAN, ROOM, SESSIONS = 50, 10, 20

GATHER = f"""
import asyncio
async def one(n):
    try:
        return await spend(n)
    except Exception:
        return -1
result = await asyncio.gather(*[one(n) for n in range({FAN})])
"""


@capability(side_effect="write", idempotent=True)
async def spend(n: int) -> int:
    """Spend something; recognised when it comes again."""
    if _told(n) == int(os.environ.get("KILL", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    await anyio.sleep(0.002)
    return n


def _told(n: int) -> int:
    """Write it down; the lines there are."""
    path = Path(os.environ["WORLD"])
    with path.open("a") as world:
        world.write(f"{n}\n")
    return len(path.read_text().split())


def agent(mode: str) -> Agent[str]:
    """One that wants more than it may."""
    usage = ModelUsage(input_tokens=10, output_tokens=10)
    if mode == "code":
        script = Scripted([write_code(GATHER), say("done")], usage=usage)
        setup = {"budget": {"calls": ROOM}, "limits": {"max_external_calls": 100}}
        return Agent(script, capabilities=[spend], setup=setup)
    many = [call("spend", n=n) for n in range(FAN if mode == "direct" else 1)]
    script = Scripted([together(*many), say("done")], usage=usage)
    return tools(script, spend, budget={"calls": ROOM} if mode == "direct" else None)


async def start(hf: holdfast.Runtime, mode: str) -> None:
    """Spend, in one session or in many at once."""
    if mode in ("direct", "code"):
        await agent(mode).run("go", session="s", runtime=hf)
        return
    if mode == "account":
        await hf.agents.open_account("team", {"calls": ROOM})
    one, name = agent(mode), os.environ.get("NAME", "s")
    async with anyio.create_task_group() as group:
        for n in range(SESSIONS):

            async def run(n: int = n) -> None:
                await one.run("go", session=f"{name}{n}", account="team", runtime=hf)

            group.start_soon(run)


async def main(mode: str, url: str) -> None:
    """Start, or go on with what is there."""
    async with holdfast.open(url, ASKS_NOT) as hf:
        rows = [row for row in await hf.journal.rows("runs") if row.value["kind"] == "agent"]
        if mode == "crowd" or not rows:
            await start(hf, mode)
            return
        for row in rows:
            await agent(mode).resume(row.key, runtime=hf)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
