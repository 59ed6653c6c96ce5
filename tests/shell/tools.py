"""Capabilities by reference, as any process can load them. What they do is written into the folder `$WORLD`."""

import os
from pathlib import Path

import anyio

from holdfast import capability


def world() -> Path:
    """The outside: a folder."""
    return Path(os.environ["WORLD"])


def done() -> list[str]:
    """What was done, in order."""
    path = world() / "done"
    return path.read_text().splitlines() if path.exists() else []


def note(what: str) -> int:
    """Do something, for ever; how much was done by now."""
    with (world() / "done").open("a") as file:
        file.write(f"{what}\n")
    return len(done())


async def until_told(word: str) -> None:
    """Wait until somebody puts a file of that name into the world."""
    while True:
        if (world() / word).exists():
            return
        await anyio.sleep(0.005)


@capability(side_effect="read")
def tick(name: str) -> int:
    """Count: how much was done by now, with this."""
    return note(f"tick {name}")


@capability(side_effect="external_system", approval="manual")
def pay(to: str, cents: int) -> str:
    """Pay somebody, which somebody has to approve."""
    return f"paid {to} as number {note(f'pay {to} {cents}')}"


@capability(side_effect="external_system", approval="manual")
async def ship(to: str) -> str:
    """Ship something, which somebody has to approve; awaited."""
    note(f"ship {to}")
    return f"shipped to {to}"


@capability(side_effect="read")
async def look(at: str) -> str:
    """Look at something; awaited."""
    note(f"look {at}")
    return f"{at} is fine"


@capability(side_effect="read", timeout_ms=60_000)
async def wait(name: str) -> str:
    """Wait until a file of that name is there; awaited."""
    note(f"wait {name}")
    await until_told(name)
    return name


@capability(side_effect="write", timeout_ms=60_000)
async def send(to: str, after: str = "") -> str:
    """Send something that nobody may send twice; with `after`, only once that file is there."""
    note(f"send {to}")
    if after:
        await until_told(after)
    note(f"sent {to}")
    return f"sent to {to}"
