"""What the tests of sessions share: a world that counts, other processes, and ways to look at the record."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio

import holdfast
from holdfast import Context, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.journal import Journal

TOOLS = str(Path(__file__).with_name("tools.py"))
"""The reference of capabilities that any process can load."""

ALLOW: dict[str, Any] = {
    "policy": {"rules": [{"id": "all", "then": "allow"}]},
    # A busy machine is not what is tested here.
    "shell": {"limits": {"cpu_ms": 30_000, "wall_ms": 60_000}},
}
"""A configuration in which nobody is asked, unless a capability itself wants it."""

BY_REFERENCE: dict[str, Any] = {**ALLOW, "session": {"capabilities": [TOOLS]}}
"""The same, and every session is opened with `TOOLS`."""

T = TypeVar("T")


@dataclass
class World:
    """The outside of one process: what was done to it, in order."""

    done: list[str] = field(default_factory=list[str])
    gates: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])

    def gate(self, name: str) -> anyio.Event:
        """An event that a call waits for."""
        return self.gates.setdefault(name, anyio.Event())

    def tools(self) -> list[Declared[..., Any]]:
        """Capabilities of every kind."""

        def tick(name: str) -> int:
            """Count."""
            self.done.append(f"tick {name}")
            return len(self.done)

        def pay(to: str, cents: int) -> str:
            """Pay somebody, which somebody has to approve."""
            self.done.append(f"pay {to} {cents}")
            return f"paid {to}"

        async def ship(to: str) -> str:
            """Ship something, which somebody has to approve; awaited."""
            self.done.append(f"ship {to}")
            return f"shipped to {to}"

        async def look(at: str) -> str:
            """Look at something; awaited."""
            self.done.append(f"look {at}")
            return f"{at} is fine"

        async def wait(name: str) -> str:
            """Wait until somebody opens a gate; awaited."""
            self.done.append(f"wait {name}")
            await self.gate(name).wait()
            self.done.append(f"waited {name}")
            return name

        async def send(to: str) -> str:
            """Send something that nobody may send twice, once somebody opens a gate; awaited."""
            self.done.append(f"send {to}")
            await self.gate(to).wait()
            self.done.append(f"sent {to}")
            return f"sent to {to}"

        async def fail(why: str) -> str:
            """Fail; awaited."""
            self.done.append(f"fail {why}")
            raise ValueError(why)

        def key(context: Context) -> str:
            """The name of this call."""
            return context.idempotency_key

        asks: Any = {"side_effect": "external_system", "approval": "manual"}
        patient: Any = {"timeout_ms": 60_000}
        return [
            capability(tick, side_effect="read"),
            capability(pay, **asks),
            capability(ship, **asks),
            capability(look, side_effect="read"),
            capability(wait, side_effect="read", **patient),
            capability(send, side_effect="write", **patient),
            capability(fail, side_effect="read"),
            capability(key, side_effect="read"),
        ]


@asynccontextmanager
async def opened(
    url: str | Journal, world: World, config: Mapping[str, Any] | None = None
) -> AsyncGenerator[holdfast.Runtime]:
    """A runtime with the capabilities of a world."""
    async with holdfast.open(url, config or ALLOW, capabilities=world.tools()) as hf:
        yield hf


# -- the record ---------------------------------------------------------------------------------------


async def kinds(hf: holdfast.Runtime, stream: str) -> list[str]:
    """The kinds of a stream's records, in order."""
    await hf.journal.flush()
    return [record.kind async for record in hf.journal.read(stream)]


async def delivered(hf: holdfast.Runtime, run: RunResult | str) -> list[int]:
    """The numbers of a run's calls, in the order of their results on record."""
    run_id = run if isinstance(run, str) else str(run.run_id)
    await hf.journal.flush()
    records = await hf.runs.records(run_id)
    numbers = {
        str(one.effect_id): one.payload.get("ordinal")
        for one in records
        if one.kind == "effect_intent"
    }
    found = [numbers.get(str(one.effect_id)) for one in records if one.kind == "effect_result"]
    return [one for one in found if isinstance(one, int)]


def codes(run: RunResult) -> tuple[str, str | None]:
    """Status and error code."""
    return run.status.value, run.error.code if run.error else None


# -- answering ----------------------------------------------------------------------------------------


async def parked(hf: holdfast.Runtime, code: str, session: str = "s", **more: Any) -> RunResult:
    """A run that waits for a person."""
    run = await hf.shell.run(code, session=session, **more)
    assert run.status == "waiting_for_approval", run.error
    return run


async def pending(hf: holdfast.Runtime) -> dict[str, str]:
    """What waits: the first argument of the call → the id of the question."""
    found: dict[str, str] = {}
    for one in await hf.approvals.list():
        assert isinstance(one.arguments, dict)
        found[str(next(iter(one.arguments.values())))] = one.id
    return found


async def approve(hf: holdfast.Runtime, run: RunResult, decision: str = "approved") -> RunResult:
    """Answer what a run waits for first, and go on with it."""
    await hf.approvals.decide(str(run.approval_id), decision)
    return await hf.runs.resume(str(run.run_id))


async def until(look: Callable[[], Awaitable[T]], fine: Callable[[T], bool]) -> T:
    """What `look` sees once it is `fine`."""
    with anyio.fail_after(60):
        while True:
            found = await look()
            if fine(found):
                return found
            await anyio.sleep(0.005)


async def until_done(world: World, what: str) -> None:
    """Return once that was done to the world."""

    async def look() -> list[str]:
        return world.done

    await until(look, lambda done: what in done)


# -- another process ----------------------------------------------------------------------------------


def done_in(tmp_path: Path) -> list[str]:
    """What was done, in order, to the world that processes share."""
    path = tmp_path / "done"
    return path.read_text().splitlines() if path.exists() else []


def start(url: str, text: str, config: Mapping[str, Any] | None = None) -> subprocess.Popen[str]:
    """A process that opens the journal and runs `text` with `hf` at hand; `tell(x)` hands something back."""
    body = "\n".join(f"        {line}" for line in text.strip().splitlines())
    source = (
        "import anyio, json, os, signal, sys, holdfast\n"
        "def tell(found): print(json.dumps(found), flush=True)\n"
        "async def main():\n"
        f"    async with holdfast.open({url!r}, {dict(config or BY_REFERENCE)!r}) as hf:\n{body}\n"
        "anyio.run(main)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=os.environ
    )


async def elsewhere(url: str, text: str, config: Mapping[str, Any] | None = None) -> Any:
    """What another process tells when it has run `text`."""
    with start(url, text, config) as process:
        try:
            told, _ = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=60))
        finally:
            process.kill()
    assert process.returncode == 0
    return json.loads(told) if told else None
