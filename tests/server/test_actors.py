"""Each run says on whose behalf it is, by whichever way it was asked for."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import websockets
from tests.server.http_client import listening

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.token import TOKENS
from holdfast.runtime import Runtime
from holdfast.server.serving import Started
from holdfast.testing import ScriptedModel, say


@capability(side_effect="read")
def look() -> int:
    """Look."""
    return 1


@pytest.fixture(params=[[], [look]], ids=["calls nobody", "calls"])
async def hf(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", config={}, capabilities=request.param) as found:
        yield found


@pytest.fixture
async def server(hf: Runtime) -> AsyncIterator[Started]:
    agent = Agent(ScriptedModel([say("Done.")]), name="helper")
    async with listening(hf, agents={"helper": agent}) as found:
        yield found


async def actors(hf: Runtime) -> list[str | None]:
    """On whose behalf each run is, in order."""
    found: list[str | None] = []
    async for record in hf.journal.read_all():
        said: Any = record.payload
        start = said if record.kind == "run_started" else said.get("start")
        if record.kind.startswith("run_") and start is not None:
            found.append(start.get("actor"))
    return found


def asked(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_every_way_in_names_who_asked(hf: Runtime, server: Started):
    made = await server.tokens.create(["read", "run"])
    who, headers = f"token:{made.view.id}", {"Authorization": f"Bearer {made.text}"}
    code = {"code": "1 + 1"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as http:
        await http.post("/v1/sessions/a/run", json=code)
        assert await actors(hf) == [who]
        for _ in range(2):
            await http.post("/v1/sessions/b/run", json=code, headers={"Idempotency-Key": "k"})
        assert await actors(hf) == [who] * 2
        answer = await http.post("/v1/agents/helper/runs", json={"prompt": "Go."})
        assert answer.json()["status"] == "completed", answer.text
        assert await actors(hf) == [who] * 3
        failing = {"code": "1 / 0"}
        await http.post("/v1/sessions/a/run", json=failing)
        await http.post("/rpc", json=asked("session.run", session_id="c", **code))
        assert await actors(hf) == [who] * 5
        call = asked("tools/call", name="run_code", arguments=code)
        mcp = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        client = {"name": "raw", "version": "1"}
        first = asked(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client
        )
        begun = await http.post("/mcp", json=first, headers=mcp)
        mcp["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post("/mcp", json=ready, headers=mcp)
        answer = await http.post("/mcp", json=call, headers=mcp)
        assert await actors(hf) == [who] * 6, answer.text
    url = f"{server.url.replace('http', 'ws')}/rpc"
    async with websockets.connect(url, additional_headers=headers) as socket:
        await socket.send(json.dumps(asked("session.run", session_id="d", **code)))
        await socket.recv()
    assert await actors(hf) == [who] * 7


async def test_a_key_is_on_record_with_who_used_it(hf: Runtime, server: Started):
    made = await server.tokens.create(["run"])
    headers = {"Authorization": f"Bearer {made.text}", "Idempotency-Key": "k"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as http:
        await http.post("/v1/sessions/a/run", json={"code": "1"})
    [accepted] = [one async for one in hf.journal.read(TOKENS) if one.kind == "request_accepted"]
    assert accepted.actor == f"token:{made.view.id}"
