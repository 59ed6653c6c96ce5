"""An agent works through files: it reads them by writing code, and a person says whether it may write the result."""

from pathlib import Path

import anyio

import holdfast
from holdfast import Agent
from holdfast.testing import ScriptedModel, say, write_code

PROGRAM = """
import csv
rows = list(csv.DictReader(read_text('/workspace/hours.csv').splitlines()))
long = [row for row in rows if int(row['hours']) > 10]
lines = ['name,owed'] + [f"{row['name']},{int(row['hours']) * 80}" for row in long]
write_text('/workspace/bills.csv', '\\n'.join(lines) + '\\n')
result = len(long)
"""

# A model that says what it was told to say; a real one is `Agent("anthropic:claude-sonnet-4-5", …)`.
model = ScriptedModel(
    [write_code(PROGRAM), say("Two people worked more than ten hours; they are in bills.csv.")]
)


DATA = Path("data")
DATA.mkdir(exist_ok=True)
BILLS = DATA / "bills.csv"
BILLS.unlink(missing_ok=True)
(DATA / "hours.csv").write_text("name,hours\nann,12\nbob,4\neve,31\n")


async def main() -> None:
    """Ask, approve, read."""
    agent = Agent(model, instructions="You write bills.", mounts={"/workspace": f"{DATA}:rw"})
    async with holdfast.open("memory:", {}) as hf:
        run = await agent.run("Bill everyone who worked more than ten hours.", runtime=hf)
        print(run.status)
        while run.approvals:
            asked = await hf.approvals.show(run.approvals[0])
            print(f"may it {asked.tool}? {asked.arguments}")
            await hf.approvals.decide(asked.id, "approved", actor="max")
            run = await run.resume()
        print(run.status, run.output)


anyio.run(main)
print(BILLS.read_text(), end="")
