"""A run that outlives its process: it is started here, approved there, and goes on in a third process."""

import sys

import anyio
from anyio import run_process

import holdfast
from holdfast import capability

HERE = __file__
JOURNAL = "sqlite:///elsewhere.db"

CODE = """
print('before the call')
receipt = pay('ann', 1200)
print('after the call')
result = receipt
"""


@capability(side_effect="external_system", approval="manual")
def pay(to: str, cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents} to {to}"


async def begin() -> None:
    """Run the code up to the call, and exit."""
    async with holdfast.open(JOURNAL, {}) as hf:
        # By reference, so that any process can open the session again.
        run = await hf.shell.run(CODE, session="till", setup={"capabilities": [f"{HERE}:pay"]})
        print(f"{run.status.value}: {run.stdout!r}")


async def answer() -> None:
    """Approve whatever waits."""
    async with holdfast.open(JOURNAL, {}) as hf:
        for asked in await hf.approvals.list():
            await hf.approvals.decide(asked.id, "approved", actor="max")
            print(f"approved {asked.tool} {asked.arguments}")


async def finish() -> None:
    """Go on with every run that stands."""
    async with holdfast.open(JOURNAL, {}) as hf:
        for run in await hf.runs.list(status="active"):
            done = await hf.runs.resume(run.id)
            print(f"{done.status.value}: {done.result} {done.stdout!r}")


STEPS = {"begin": begin, "answer": answer, "finish": finish}


async def main() -> None:
    """Each step in a process of its own."""
    for name in STEPS:
        step = await run_process([sys.executable, HERE, name])
        print(f"{name}: {step.stdout.decode().strip()}")


if __name__ == "__main__":
    anyio.run(STEPS[sys.argv[1]] if len(sys.argv) > 1 else main)
