"""pydantic-ai: its function model and an asynchronous tool; with DBOS where it is durable.

The model tells its own usage, so that no time goes into estimating tokens. `durable` needs the environment
`pydantic_ai_dbos`: model requests are DBOS steps by its capability, and the tool is a step too, so that every call is on
record.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from bench.peers import frame
from bench.peers.frame import DONE, USER, Asked, Clock, Crowd, Tool

UNLIMITED = UsageLimits(request_limit=None)


def said(at: int, turns: int) -> ModelResponse:
    """Call the tool until it has been called often enough."""
    call = ToolCallPart("tool", {"n": at}, tool_call_id=f"c{at}")
    part = call if at < turns else TextPart(DONE)
    return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=1, output_tokens=1))


def scripted(turns: int) -> FunctionModel:
    """A model that goes by the length of the conversation."""

    async def model(messages: Any, _: Any) -> ModelResponse:
        return said((len(messages) - 1) // 2, turns)

    return FunctionModel(model, model_name="scripted")


def function(counted: Tool) -> Callable[[int], Awaitable[dict]]:
    """The tool."""

    async def tool(n: int) -> dict:
        """Do a thing."""
        return counted(n)

    return tool


def loop(asked: Asked) -> None:
    """Nothing is stored."""
    counted = Tool()
    agent = Agent(scripted(asked.turns), tools=[function(counted)])

    async def session(_: int) -> str:
        return (await agent.run(USER, usage_limits=UNLIMITED)).output

    asyncio.run(frame.arepeat(asked, session, counted))


def durable(asked: Asked) -> None:
    """Every request and every call of the tool is a DBOS step, in SQLite."""
    warnings.simplefilter("ignore")
    from dbos import DBOS, DBOSConfig
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    counted, path = Tool(), frame.fresh(asked, "pydantic-ai")
    url = f"sqlite:///{path}"
    DBOS(
        config=DBOSConfig(
            name="bench", system_database_url=url, log_level="ERROR", enable_otlp=False
        )
    )
    step = DBOS.step()(function(counted))
    how: Any = {"capabilities": [DBOSDurability()]}
    agent = Agent(scripted(asked.turns), name="bench", tools=[step], **how)

    @DBOS.workflow()
    async def session(_: int) -> str:
        return (await agent.run(USER, usage_limits=UNLIMITED)).output

    DBOS.launch()
    empty = path.stat().st_size
    asyncio.run(frame.arepeat(asked, session, counted))
    DBOS.destroy()
    frame.disk(asked, path, empty)


def crowd(asked: Asked) -> None:
    """Many runs at once; nothing is stored."""
    counted, people = Tool(), Crowd(asked)
    clock: ContextVar[Clock] = ContextVar("clock")

    async def model(_: Any, __: Any) -> ModelResponse:
        return said(await clock.get().tick(), asked.turns)

    agent = Agent(FunctionModel(model), tools=[function(counted)])

    async def session(_: int) -> str:
        clock.set(people.clock())
        return (await agent.run(USER, usage_limits=UNLIMITED)).output

    asyncio.run(people.measure(session, counted))


if __name__ == "__main__":
    frame.main(loop=loop, durable=durable, crowd=crowd)
