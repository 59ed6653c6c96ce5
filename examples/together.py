"""Calls that are awaited together are under way together; one that fails does not spoil the others."""

import anyio

import holdfast
from holdfast import capability

CODE = """
import asyncio

async def careful(city):
    try:
        return await temperature(city)
    except LookupError as why:
        return str(why)

cities = ['oslo', 'rome', 'atlantis']
found = await asyncio.gather(*[careful(city) for city in cities])
result = dict(zip(cities, found))
"""

KNOWN = {"oslo": 4, "rome": 19}


@capability(side_effect="read", timeout_ms=2000)
async def temperature(city: str) -> int:
    """How warm it is in a city."""
    await anyio.sleep(0.05)
    if city not in KNOWN:
        raise LookupError(f"there is no {city}")
    return KNOWN[city]


async def main() -> None:
    """Ask for three cities at once."""
    async with holdfast.open("memory:", {}, capabilities=[temperature]) as hf:
        run = await hf.shell.run(CODE)
        print(run.result)
        for call in run.external_calls:
            print(f"{call.name}: {call.status.value} after {call.duration_ms} ms")


anyio.run(main)
