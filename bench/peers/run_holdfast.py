"""holdfast: direct tools, one call a turn; the tool acts on another system and a rule allows it, so nobody is asked.

loop      `effect`: that tool; `read`: one that changes nothing. The journal is in memory.
durable   the journal is an SQLite file, as it always is.
growth    `memory` and `sqlite`: what a turn costs early and late in a session.
disk      the bytes of one long session, from one closed file to the next.
resume    `grow` makes a long session, `load` goes on with it in a new process.
crowd     sessions at once in one process, in one file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

import holdfast
from bench.peers import frame
from bench.peers.frame import DONE, PAYLOAD, USER, Asked, Clock, Crowd, Tool
from holdfast.contracts.message import TextPart, ToolCallPart
from holdfast.contracts.model import ModelAnswer, ModelRequest, ModelUsage
from holdfast.testing import ScriptedModel

CONFIG: dict[str, Any] = {
    "policy": {"rules": [{"id": "bench", "tool": "tool", "then": "allow"}]},
}
USAGE = ModelUsage(input_tokens=1, output_tokens=1)


def said(at: int, turns: int) -> ModelAnswer:
    """Call the tool until it has been called often enough."""
    if at < turns:
        call = ToolCallPart(id=f"c{at}", name="tool", arguments={"n": at})
        return ModelAnswer(parts=(call,), finish="tool_calls", usage=USAGE)
    return ModelAnswer(parts=(TextPart(text=DONE),), usage=USAGE)


class Script:
    """One session after the other: how far the model is, and when it was asked."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.stamps: list[float] = []

    def __call__(self, _: ModelRequest) -> ModelAnswer:
        self.stamps.append(perf_counter())
        return said(len(self.stamps) - 1, self.turns)

    def again(self, turns: int) -> None:
        """Start from the beginning."""
        self.turns = turns
        self.stamps = []


def capability(counted: Tool, *, effect: bool = True) -> Any:
    """The tool."""

    async def tool(n: int) -> dict[str, Any]:
        """Do a thing."""
        return counted(n)

    kind = "external_system" if effect else "read"
    return holdfast.capability(side_effect=kind)(tool)


def agent(model: Callable[[ModelRequest], Any], tool: Any) -> Any:
    """An agent with the tool, called directly."""
    scripted = ScriptedModel(model)
    return holdfast.Agent(scripted, capabilities=[tool], code_mode=False, max_turns=100_000)


async def say(whose: Any, hf: Any, session: str, text: str = USER) -> Any:
    """One run; what the model said last."""
    run = await whose.run(text, session=session, runtime=hf)
    assert run.status == "completed", (run.status, getattr(run, "error", None))
    return run.output


def url(path: Path) -> str:
    """Where the journal is."""
    return f"sqlite:///{path}"


def loop(asked: Asked) -> None:
    """The journal is in memory."""
    counted = Tool()
    tool = capability(counted, effect=asked.variant != "read")
    anyio.run(_repeated, asked, "memory:", counted, tool)


def durable(asked: Asked) -> None:
    """The journal is on disk."""
    counted, path = Tool(), frame.fresh(asked, "holdfast")
    anyio.run(_opened, path)
    empty = frame.size(path)
    anyio.run(_repeated, asked, url(path), counted, capability(counted))
    frame.disk(asked, path, empty)


async def _opened(path: Path) -> None:
    async with holdfast.open(url(path), config=CONFIG):
        pass


async def _repeated(asked: Asked, where: str, counted: Tool, tool: Any) -> None:
    script = Script(asked.turns)
    whose = agent(script, tool)
    async with holdfast.open(where, config=CONFIG) as hf:

        async def session(at: int) -> Any:
            script.again(asked.turns)
            return await say(whose, hf, f"s{at}")

        await frame.arepeat(asked, session, counted)


def _sessions(hf: Any, counted: Tool) -> Callable[[str, int], Awaitable[list[float]]]:
    """Runs one session and gives back when the model was called."""
    script = Script(0)
    whose = agent(script, capability(counted))

    async def grow(name: str, turns: int) -> list[float]:
        script.again(turns)
        assert await say(whose, hf, name) == DONE
        counted.ran(turns)
        return script.stamps

    return grow


def growth(asked: Asked) -> None:
    """What a turn costs early and late."""
    where = "memory:" if asked.variant == "memory" else url(frame.fresh(asked, "holdfast"))
    anyio.run(_growth, asked, where)


async def _growth(asked: Asked, where: str) -> None:
    async with holdfast.open(where, config=CONFIG) as hf:
        await frame.agrowth(asked, _sessions(hf, Tool()))


def disk(asked: Asked) -> None:
    """What one session leaves behind, each turn."""
    path = frame.fresh(asked, "holdfast")
    anyio.run(_grown, path, "first", 2)
    before = frame.size(path)
    anyio.run(_grown, path, "s", asked.turns)
    frame.emit(disk_bytes_per_turn=(frame.size(path) - before) / asked.turns)


async def _grown(path: Path, name: str, turns: int, payload: str = "") -> None:
    async with holdfast.open(url(path), config=CONFIG) as hf:
        await _sessions(hf, Tool(payload))(name, turns)


def resume(asked: Asked) -> None:
    """Go on with a long session: from opening the file to the model, and then once more."""
    path = asked.folder / f"holdfast-{asked.turns}.db"
    if asked.variant == "grow":
        anyio.run(_grown, path, "s", asked.turns, PAYLOAD)
    else:
        anyio.run(_grown, frame.fresh(asked, "other"), "s", 2)
        anyio.run(_resumed, path, asked.turns)


async def _resumed(path: Path, turns: int) -> None:
    seen: list[int] = []
    stamps: list[float] = []

    def model(request: ModelRequest) -> ModelAnswer:
        stamps.append(perf_counter())
        seen.append(len(request.messages))
        return said(0, 0)

    whose = agent(model, capability(Tool()))
    started = perf_counter()
    async with holdfast.open(url(path), config=CONFIG) as hf:
        called = perf_counter()
        await say(whose, hf, "s")
        again = perf_counter()
        await say(whose, hf, "s")
    assert seen[0] > 2 * turns, seen
    first, second = stamps
    frame.emit(
        open_to_model_ms=(first - started) * 1e3,
        call_to_model_ms=(first - called) * 1e3,
        again_to_model_ms=(second - again) * 1e3,
    )


def crowd(asked: Asked) -> None:
    """Many sessions at once."""
    where = "memory:" if asked.variant == "memory" else url(frame.fresh(asked, "holdfast"))
    anyio.run(_crowd, asked, where)


async def _crowd(asked: Asked, where: str) -> None:
    counted, people = Tool(), Crowd(asked)
    clocks: dict[str, Clock] = {}

    async def model(request: ModelRequest) -> ModelAnswer:
        # The first message names the session: a run may be driven by a task that is not the caller's.
        clock = clocks[request.messages[0].text]
        return said(await clock.tick(), asked.turns)

    whose = agent(model, capability(counted))
    async with holdfast.open(where, config=CONFIG) as hf:

        async def session(at: int) -> Any:
            name = f"{USER} {at}"
            clocks[name] = people.clock()
            return await say(whose, hf, f"s{at}", name)

        await people.measure(session, counted)


if __name__ == "__main__":
    frame.main(loop=loop, durable=durable, growth=growth, disk=disk, resume=resume, crowd=crowd)
