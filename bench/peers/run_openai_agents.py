"""openai-agents: its runner with an asynchronous tool and tracing off; its `SQLiteSession` where a conversation is kept.

`SQLiteSession` stores the conversation and is no write-ahead journal: a tool's effect may be lost. One `Agent` object for
each session of a crowd, because a shared one looks at all its other runs on each turn.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
from time import perf_counter
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from bench.peers import frame
from bench.peers.frame import DONE, PAYLOAD, USER, Asked, Clock, Crowd, Tool


class Scripted(Model):
    """Calls the tool until it has been called often enough."""

    def __init__(self, turns: int, clock: Clock | None = None) -> None:
        self._turns, self._clock = turns, clock
        self.stamps: list[float] = []

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """The next answer."""
        self.stamps.append(perf_counter())
        at = await self._clock.tick() if self._clock else len(self.stamps) - 1
        return ModelResponse(output=[self._said(at)], usage=Usage(), response_id=None)

    def _said(self, at: int) -> Any:
        if at < self._turns:
            return ResponseFunctionToolCall(
                id=f"fc{at}",
                call_id=f"c{at}",
                type="function_call",
                name="tool",
                arguments=json.dumps({"n": at}),
                status="completed",
            )
        words = ResponseOutputText(type="output_text", text=DONE, annotations=[])
        return ResponseOutputMessage(
            id="m1", type="message", role="assistant", status="completed", content=[words]
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError


def agent(counted: Tool) -> Agent:
    """An agent with the tool."""

    async def tool(n: int) -> dict:
        """Do a thing."""
        return counted(n)

    return Agent(name="a", tools=[function_tool(tool)])


async def say(whose: Agent, model: Scripted, turns: int, stored: Any = None) -> str:
    """One run."""
    how = RunConfig(model=model, tracing_disabled=True)
    done = await Runner.run(whose, USER, max_turns=turns + 5, run_config=how, session=stored)
    return done.final_output


def loop(asked: Asked) -> None:
    """Nothing is stored."""
    counted = Tool()
    whose = agent(counted)

    async def session(_: int) -> str:
        return await say(whose, Scripted(asked.turns), asked.turns)

    asyncio.run(frame.arepeat(asked, session, counted))


def durable(asked: Asked) -> None:
    """The conversation is kept in SQLite."""
    counted, path = Tool(), frame.fresh(asked, "openai-agents")
    whose = agent(counted)
    SQLiteSession("empty", str(path)).close()
    empty = frame.size(path)

    async def session(at: int) -> str:
        stored = SQLiteSession(f"s{at}", str(path))
        return await say(whose, Scripted(asked.turns), asked.turns, stored)

    asyncio.run(frame.arepeat(asked, session, counted))
    frame.disk(asked, path, empty)


def _items(turns: int) -> list[Any]:
    items: list[Any] = []
    for at in range(turns):
        arguments, output = (
            json.dumps({"n": at}),
            json.dumps({"ok": True, "n": at, "text": PAYLOAD}),
        )
        call = {"type": "function_call", "call_id": f"c{at}", "id": f"fc{at}", "name": "tool"}
        items.append({**call, "arguments": arguments, "status": "completed"})
        items.append({"type": "function_call_output", "call_id": f"c{at}", "output": output})
    return items


def resume(asked: Asked) -> None:
    """Go on with a long conversation: from opening the file to the model, and then once more."""
    asyncio.run(_resume(asked))


async def _resume(asked: Asked) -> None:
    path = str(asked.folder / f"openai-agents-{asked.turns}.db")
    if asked.variant == "grow":
        await SQLiteSession("s", path).add_items(_items(asked.turns))
        return
    other = SQLiteSession("s", str(frame.fresh(asked, "other")))
    await say(agent(Tool()), Scripted(2), 2, other)
    model, whose = Scripted(0), agent(Tool())
    started = perf_counter()
    stored = SQLiteSession("s", path)
    called = perf_counter()
    await say(whose, model, 1, stored)
    again = perf_counter()
    await say(whose, model, 1, stored)
    first, second = model.stamps
    frame.emit(
        open_to_model_ms=(first - started) * 1e3,
        call_to_model_ms=(first - called) * 1e3,
        again_to_model_ms=(second - again) * 1e3,
    )


def crowd(asked: Asked) -> None:
    """Many runs at once; nothing is stored."""
    counted, people = Tool(), Crowd(asked)

    async def session(_: int) -> str:
        return await say(agent(counted), Scripted(asked.turns, people.clock()), asked.turns)

    asyncio.run(people.measure(session, counted))


if __name__ == "__main__":
    frame.main(loop=loop, durable=durable, resume=resume, crowd=crowd)
