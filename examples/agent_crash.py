"""An agent whose process is killed in the middle: another process goes on with its run, and nothing is done twice."""

import os
import signal
import sys
from pathlib import Path

import anyio
from anyio import run_process

import holdfast
from holdfast import Agent, capability
from holdfast.testing import ScriptedModel, call, say

HERE = __file__
JOURNAL = "sqlite:///agent_crash.db"
LEDGER = Path("agent_crash.txt")
RULES = {"policy": {"rules": [{"id": "ship", "tool": "ship", "then": "allow"}]}}


@capability(side_effect="external_system", idempotent=True)
def ship(parcel: int) -> str:
    """Ship a parcel; shipping it again under the same key changes nothing."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"{parcel}\n")
    if parcel == 2 and "die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)  # the machine dies before anybody hears of it
    return f"parcel {parcel} is on its way"


model = ScriptedModel(
    [call("ship", parcel=1), call("ship", parcel=2), call("ship", parcel=3), say("All shipped.")]
)
agent = Agent(model, capabilities=[ship], code_mode=False)


async def begin() -> None:
    """Run until the process dies."""
    async with holdfast.open(JOURNAL, RULES) as hf:
        await agent.run("Ship three parcels.", session="warehouse", runtime=hf)


async def finish() -> None:
    """Go on with every run that stands."""
    async with holdfast.open(JOURNAL, RULES) as hf:
        for open_run in await hf.runs.list(status="active"):
            run = await agent.resume(open_run.id, runtime=hf)
            print(run.status, run.output)
            print("asked the model", run.result.turns, "times")


async def main() -> None:
    """Each step in a process of its own."""
    for old in (
        Path("agent_crash.db"),
        Path("agent_crash.db-wal"),
        Path("agent_crash.db-shm"),
        LEDGER,
    ):
        old.unlink(missing_ok=True)
    dead = await run_process([sys.executable, HERE, "begin", "die"], check=False)
    print("the first process was killed:", dead.returncode == -signal.SIGKILL)
    print((await run_process([sys.executable, HERE, "finish"])).stdout.decode().strip())


STEPS = {"begin": begin, "finish": finish}
anyio.run(STEPS[sys.argv[1]] if len(sys.argv) > 1 else main)
if len(sys.argv) == 1:
    # The second was under way when the machine died: it is shipped again under the same key.
    parcels = LEDGER.read_text().split()
    print("one and three once each:", parcels.count("1") == parcels.count("3") == 1)
