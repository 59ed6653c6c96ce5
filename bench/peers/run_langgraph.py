"""langgraph: a graph by hand (`graph`), or langchain's agent (`agent`); its checkpoints in SQLite where it is durable.

loop      `graph`, `agent`: asynchronous, nothing stored.
durable   `graph-sync`, `agent-sync`: a checkpoint is stored before the next step begins;
          `graph-async`: while the next step runs, which is its default.
resume    `grow` makes a long thread, `load` goes on with it in a new process.
crowd     `graph` in memory, `graph-async` and `graph-sync` in SQLite.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from bench.peers import frame
from bench.peers.frame import DONE, PAYLOAD, USER, Asked, Clock, Crowd, Tool

os.environ.pop("LANGSMITH_TRACING", None)
warnings.simplefilter("ignore")

from langchain_core.language_models.chat_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from langchain_core.tools import tool as declared  # noqa: E402
from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: E402
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: E402
from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: E402
from langgraph.prebuilt import ToolNode  # noqa: E402
from pydantic import ConfigDict, Field  # noqa: E402


class Scripted(BaseChatModel):
    """Calls the tool until it has been called often enough."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    turns: int
    clock: ContextVar[Clock] | None = None
    stamps: list[float] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _reply(self, at: int) -> ChatResult:
        call = {"name": "tool", "args": {"n": at}, "id": f"c{at}"}
        said = (
            AIMessage(content="", tool_calls=[call]) if at < self.turns else AIMessage(content=DONE)
        )
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        self.stamps.append(perf_counter())
        return self._reply((len(messages) - 1) // 2)

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        if self.clock is not None:
            return self._reply(await self.clock.get().tick())
        return self._reply((len(messages) - 1) // 2)


def graph(kind: str, model: Scripted, tool: Any, saver: Any, *, sync: bool = False) -> Any:
    """The agent: by hand, or langchain's."""
    if kind == "agent":
        from langchain.agents import create_agent

        return create_agent(model, [tool], checkpointer=saver)

    async def ask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def ask_now(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("llm", ask_now if sync else ask)
    built.add_node("tools", ToolNode([tool]))
    built.add_edge(START, "llm")
    built.add_conditional_edges(
        "llm", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    built.add_edge("tools", "llm")
    return built.compile(checkpointer=saver)


def tools(counted: Tool) -> tuple[Any, Any]:
    """The tool, asynchronous and not."""

    @declared("tool")
    async def awaited(n: int) -> dict:
        """Do a thing."""
        return counted(n)

    @declared("tool")
    def called(n: int) -> dict:
        """Do a thing."""
        return counted(n)

    return awaited, called


def config(thread: str, turns: int) -> dict[str, Any]:
    """Which thread, and no limit that matters."""
    return {"recursion_limit": 4 * turns + 20, "configurable": {"thread_id": thread}}


def asking() -> dict[str, Any]:
    """What the user says."""
    return {"messages": [HumanMessage(USER)]}


def loop(asked: Asked) -> None:
    """Nothing is stored."""
    counted = Tool()
    built = graph(asked.variant, Scripted(turns=asked.turns), tools(counted)[0], None)

    async def session(at: int) -> str:
        said = await built.ainvoke(asking(), config(f"s{at}", asked.turns))
        return said["messages"][-1].content

    asyncio.run(frame.arepeat(asked, session, counted))


def durable(asked: Asked) -> None:
    """A checkpoint for every step, with the saver that is not asynchronous: it is the faster one."""
    counted, path = Tool(), frame.fresh(asked, "langgraph")
    kind, durability = asked.variant.split("-")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        empty = frame.size(path)
        model = Scripted(turns=asked.turns)
        built = graph(kind, model, tools(counted)[1], saver, sync=True)

        def session(at: int) -> str:
            whose = config(f"s{at}", asked.turns)
            said = built.invoke(asking(), whose, durability=durability)
            return said["messages"][-1].content

        frame.repeat(asked, session, counted)
    frame.disk(asked, path, empty)


def _threads(saver: Any, counted: Tool) -> Callable[[str, int], list[float]]:
    """Runs one thread and gives back when the model was called."""

    def grow(name: str, turns: int) -> list[float]:
        model = Scripted(turns=turns, stamps=[])
        built = graph("graph", model, tools(counted)[1], saver, sync=True)
        built.invoke(asking(), config(name, turns), durability="sync")
        counted.ran(turns)
        return model.stamps

    return grow


def growth(asked: Asked) -> None:
    """What a turn costs early and late."""
    path = frame.fresh(asked, "langgraph")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        frame.growth(asked, _threads(saver, Tool()))


def resume(asked: Asked) -> None:
    """Go on with a long thread: from opening the file to the model, and then once more."""
    path = asked.folder / f"langgraph-{asked.turns}.db"
    if asked.variant == "grow":
        with SqliteSaver.from_conn_string(str(path)) as saver:
            _threads(saver, Tool(PAYLOAD))("s", asked.turns)
        return
    with SqliteSaver.from_conn_string(str(frame.fresh(asked, "other"))) as saver:
        _threads(saver, Tool())("s", 2)
    model = Scripted(turns=0, stamps=[])
    started = perf_counter()
    with SqliteSaver.from_conn_string(str(path)) as saver:
        built = graph("graph", model, tools(Tool())[1], saver, sync=True)
        called = perf_counter()
        said = built.invoke(asking(), config("s", 50), durability="sync")
        assert len(said["messages"]) > 2 * asked.turns, len(said["messages"])
        again = perf_counter()
        built.invoke(asking(), config("s", 50), durability="sync")
    first, second = model.stamps
    frame.emit(
        open_to_model_ms=(first - started) * 1e3,
        call_to_model_ms=(first - called) * 1e3,
        again_to_model_ms=(second - again) * 1e3,
    )


def crowd(asked: Asked) -> None:
    """Many threads at once."""
    asyncio.run(_crowd(asked))


async def _crowd(asked: Asked) -> None:
    kind, _, durability = asked.variant.partition("-")
    if not durability:
        return await _crowded(asked, kind, None, {})
    async with AsyncSqliteSaver.from_conn_string(str(frame.fresh(asked, "langgraph"))) as saver:
        await saver.setup()
        await _crowded(asked, kind, saver, {"durability": durability})


async def _crowded(asked: Asked, kind: str, saver: Any, how: dict[str, Any]) -> None:
    counted, people = Tool(), Crowd(asked)
    clock: ContextVar[Clock] = ContextVar("clock")
    built = graph(kind, Scripted(turns=asked.turns, clock=clock), tools(counted)[0], saver)

    async def session(at: int) -> str:
        clock.set(people.clock())
        said = await built.ainvoke(asking(), config(f"s{at}", asked.turns), **how)
        return said["messages"][-1].content

    await people.measure(session, counted)


if __name__ == "__main__":
    frame.main(loop=loop, durable=durable, growth=growth, resume=resume, crowd=crowd)
