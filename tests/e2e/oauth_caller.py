"""Callers of a tool server, as a process of their own: in each session, code calls a tool ten times."""

import sys

import anyio

import holdfast

CONFIG = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
SESSIONS = 20
CALLS = 10

CODE = """
found = []
for k in range({calls}):
    found.append((await docs_look(n={first} + k))['n'])
result = found
"""


def wanted(number: int) -> list[int]:
    """What the code of that session calls the tool with, and gets."""
    return [number * CALLS + k for k in range(CALLS)]


async def run(hf: holdfast.Runtime, number: int) -> None:
    code = CODE.format(calls=CALLS, first=number * CALLS)
    found = await hf.shell.run(code, session=f"s{number}", limits={"wall_ms": 100_000})
    if found.status != "ok":
        print(found.error, await hf.surfaces.list(), file=sys.stderr)


async def main(url: str) -> None:
    async with holdfast.open(url, CONFIG) as hf, anyio.create_task_group() as tasks:
        for number in range(SESSIONS):
            tasks.start_soon(run, hf, number)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
