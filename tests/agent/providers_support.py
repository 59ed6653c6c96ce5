"""What the tests with providers share: whole runs through the real client libraries, and what servers received."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.agent.loop_support import ASKS_NOT, Naps

import holdfast
from holdfast import Agent, capability
from holdfast.agent.agents import Agents
from holdfast.models.catalog import model
from holdfast.runtime.agent import Run
from holdfast.runtime.embedded import Thinking
from holdfast.testing import ProviderServer
from holdfast.testing.providers import Received

IDS = {
    "openai:gpt-5.2": "/v1",
    "openai-responses:gpt-5.2": "/v1",
    "anthropic:claude-opus-4-6": "",
    "google:gemini-2.5-pro": "",
}
"""Each protocol, and where its paths begin."""


@capability(side_effect="read")
async def look(item: str) -> str:
    """What is known of an item."""
    return f"{item} is green"


def at(server: ProviderServer, id: str, key_variable: str = "") -> str:
    """The id of a model of this protocol on this server."""
    return f"{id}@{server.url}{IDS[id]}" + (f"#{key_variable}" if key_variable else "")


@asynccontextmanager
async def opened(
    url: Any = "memory:", config: Any = None, **more: Any
) -> AsyncGenerator[tuple[holdfast.Runtime, Naps]]:
    """A runtime that does not wait before it asks a model again."""
    async with holdfast.open(url, ASKS_NOT if config is None else config, **more) as hf:
        naps = Naps()
        agents = Agents(hf.shell, model=model, sleep=naps)
        try:
            yield replace(hf, _thinking=Thinking(hf.shell, agents)), naps
        finally:
            await agents.close()


async def ran(
    agent: Agent[Any], hf: holdfast.Runtime, *, streaming: bool, prompt: str = "Go."
) -> tuple[Run[Any], list[Any]]:
    """What a run in session `s` gave, and its events if it was watched."""
    if not streaming:
        return await agent.run(prompt, session="s", runtime=hf), []
    async with agent.stream(prompt, session="s", runtime=hf) as stream:
        events = [event async for event in stream]
        return await stream.run(), events


# -- what a server received -------------------------------------------------------------------------------


def fixed(received: Received) -> str:
    """What must be the same bytes from turn to turn: instructions and tools."""
    body = received.body
    system = [
        one
        for one in (*body.get("messages", ()), *_items(body))
        if one.get("role") in ("system", "developer")
    ]
    named = ("instructions", "system", "systemInstruction", "tools")
    return json.dumps([system, *(body.get(name) for name in named)])


def conversation(received: Received) -> list[str]:
    """Its messages as they were sent, but for the marks that tell a provider what to cache."""
    body = received.body
    found = body.get("messages") or body.get("contents") or [*_items(body)]
    return [json.dumps(_unmarked(one)) for one in found]


def check_requests(server: ProviderServer, *, first: int = 0, last: int | None = None) -> None:
    """At every turn the conversation was valid, and began with the very bytes of the turn before."""
    requests = server.requests[first:last]
    for received in requests:
        _check_calls(list(_turns(received)))
    for before, now in pairwise(requests):
        assert fixed(now) == fixed(before)
        asked = conversation(before)
        assert conversation(now)[: len(asked)] == asked


def _check_calls(turns: list[tuple[str, str]]) -> None:
    """Every call is answered once, in the order of the calls, before anything else is said."""
    waiting: list[str] = []
    seen: set[str] = set()
    answering = False
    for kind, id in turns:
        if kind == "call":
            assert not answering or not waiting, f"a call before {waiting} are answered"
            assert id not in seen, f"{id} is called twice"
            seen.add(id)
            waiting.append(id)
            answering = False
        elif kind == "result":
            assert waiting[:1] == [id], f"{id} is answered, and {waiting} wait"
            waiting.pop(0)
            answering = True
        elif kind == "user":
            assert not waiting, f"{waiting} have no answer"
    assert not waiting, f"{waiting} have no answer"


def _turns(received: Received) -> Iterator[tuple[str, str]]:
    body = received.body
    if "contents" in body:
        yield from _google(body)
    elif "input" in body:
        for item in _items(body):
            kinds = {"function_call": "call", "function_call_output": "result"}
            yield kinds.get(str(item.get("type"))) or str(item.get("role")), item.get("call_id", "")
    else:
        for one in body["messages"]:
            yield from _blocks(one)


def _blocks(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if message["role"] == "tool":  # OpenAI
        yield "result", message["tool_call_id"]
        return
    content = message.get("content")
    for block in content if isinstance(content, list) else [{"type": "text"}]:
        ids = {"tool_use": ("call", "id"), "tool_result": ("result", "tool_use_id")}
        kind, name = ids.get(block["type"], (message["role"], ""))
        yield kind, block.get(name, "")
    for call in message.get("tool_calls") or ():
        yield "call", call["id"]


def _google(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionCall" in part:
                yield "call", part["functionCall"]["id"]
            elif "functionResponse" in part:
                yield "result", part["functionResponse"]["id"]
            else:
                yield content["role"], ""


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["input"] if isinstance(body.get("input"), list) else []


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(one) for one in value] if isinstance(value, list) else value
