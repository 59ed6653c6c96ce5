"""Who was let in goes when their token does: open WebSockets, streams of events, and connections of MCP."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
import websockets
from tests.server.http_client import listening
from tests.server.sse import Heard, client

import holdfast
from holdfast import capability
from holdfast.contracts.token import TOKENS
from holdfast.errors import JournalError
from holdfast.journal import Journal, MemoryJournal
from holdfast.runtime import Runtime
from holdfast.server import standing
from holdfast.server.serving import Started
from holdfast.server.tokens import Made, Tokens

FAREWELL = "this token counts no more"


class Hold:
    began: anyio.Event
    go: anyio.Event


@capability(side_effect="read")
async def hold() -> str:
    """Take a while."""
    Hold.began.set()
    await Hold.go.wait()
    return "held"


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", config={}, capabilities=[hold]) as found:
        yield found


@pytest.fixture
async def server(hf: Runtime) -> AsyncIterator[Started]:
    async with listening(hf) as found:
        yield found


def bearer(made: Made) -> dict[str, str]:
    return {"Authorization": f"Bearer {made.text}"}


def asked(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def socket_at(server: Started, headers: dict[str, str]) -> websockets.connect:
    url = f"{server.url.replace('http', 'ws')}/rpc"
    return websockets.connect(url, additional_headers=headers)


async def closed(socket: websockets.ClientConnection) -> int | None:
    """The code that a socket is closed with; whatever comes before is passed over."""
    with anyio.fail_after(20):
        try:
            while True:
                await socket.recv()
        except websockets.ConnectionClosed as why:
            return None if why.rcvd is None else why.rcvd.code


async def codes(hf: Runtime) -> list[str]:
    """The sessions in which anything ran."""
    return [one.id for one in await hf.shell.list()]


# -- WebSockets ---------------------------------------------------------------------------------------


async def test_a_socket_does_nothing_more_once_its_token_is_revoked(hf: Runtime, server: Started):
    made = await server.tokens.create(["read", "run"])
    async with socket_at(server, bearer(made)) as socket:
        await socket.send(asked("session.run", session_id="before", code="1"))
        assert json.loads(await socket.recv())["result"]["status"] == "ok"
        await server.tokens.revoke(made.view.id)
        await socket.send(asked("session.run", session_id="after", code="1"))
        assert await closed(socket) == 1008
    assert await codes(hf) == ["before"]


async def test_another_process_may_have_revoked_it(hf: Runtime, server: Started):
    made = await server.tokens.create(["read", "run"])
    async with socket_at(server, bearer(made)) as socket:
        await socket.send(asked("session.list"))
        await socket.recv()
        await Tokens(hf.journal).revoke(made.view.id)
        await socket.send(asked("session.create", session_id="after"))
        assert await closed(socket) == 1008
    assert await codes(hf) == []


async def test_a_socket_whose_token_expires_is_closed(hf: Runtime, server: Started):
    made = await server.tokens.create(["read", "run"], expires_in_ms=1500)
    async with socket_at(server, bearer(made)) as socket:
        code: int | None = 1000
        with anyio.fail_after(20):
            try:
                while True:
                    await socket.send(asked("session.list"))
                    await socket.recv()
                    await anyio.sleep(0.05)
            except websockets.ConnectionClosed as why:
                code = None if why.rcvd is None else why.rcvd.code
    assert code == 1008


async def test_a_silent_socket_is_found(
    hf: Runtime, server: Started, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(standing.Standing.__init__, "__kwdefaults__", {"beat": 0.05})
    made = await server.tokens.create(["read"])
    async with socket_at(server, bearer(made)) as socket:
        await socket.send(asked("session.list"))
        await socket.recv()
        await server.tokens.revoke(made.view.id)
        assert await closed(socket) == 1008


async def test_a_socket_hears_of_nothing_more(
    hf: Runtime, server: Started, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(standing, "STALE_MS", 0)
    made = await server.tokens.create(["read"])
    heard: list[Any] = []
    async with socket_at(server, bearer(made)) as socket:
        await socket.send(asked("journal.subscribe", kind="session_created"))
        heard.append(json.loads(await socket.recv()))
        await hf.shell.create("before")
        heard.append(json.loads(await socket.recv()))
        await server.tokens.revoke(made.view.id)
        await hf.shell.create("after")
        with pytest.raises(websockets.ConnectionClosed), anyio.fail_after(20):
            await socket.recv()
    assert heard[1]["params"]["event"]["kind"] == "session_created"


async def test_a_run_that_a_socket_began_is_finished_though_nobody_hears_of_it(
    hf: Runtime, server: Started
):
    began, go = Hold.began, Hold.go = anyio.Event(), anyio.Event()
    made = await server.tokens.create(["read", "run"])
    async with socket_at(server, bearer(made)) as socket:
        await socket.send(asked("session.run", session_id="s", code="await hold()"))
        with anyio.fail_after(20):
            await began.wait()
        await server.tokens.revoke(made.view.id)
        await socket.send(asked("session.list"))
        assert await closed(socket) == 1008
    go.set()
    with anyio.fail_after(20):
        while (await hf.runs.list(session="s"))[0].status == "running":  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert (await hf.runs.list(session="s"))[0].status == "completed"


async def test_a_socket_that_its_client_closes_leaves_no_trace_in_the_log(
    server: Started, caplog: pytest.LogCaptureFixture
):
    made = await server.tokens.create(["read"])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            async with socket_at(server, bearer(made)) as socket:
                await socket.send(asked("session.list"))
                await socket.recv()
            socket_gone = socket_at(server, bearer(made))
            gone = await socket_gone
            await gone.send(asked("session.list"))
            gone.transport.abort()
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/healthz")).status_code == 200
        await anyio.sleep(0.1)
    assert [one.getMessage() for one in caplog.records] == []


# -- streams of events --------------------------------------------------------------------------------


async def test_a_stream_of_events_ends_with_its_token(
    hf: Runtime, server: Started, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(standing, "STALE_MS", 0)
    made, heard = await server.tokens.create(["read"]), Heard()
    url = f"{server.url}/v1/events?kind=session_created"
    async with client() as http, http.stream("GET", url, headers=bearer(made)) as answer:
        parts = answer.aiter_bytes()
        heard.feed(await anext(parts))
        await hf.shell.create("before")
        with anyio.fail_after(20):
            while not heard.data:
                heard.feed(await anext(parts))
            await server.tokens.revoke(made.view.id)
            await hf.shell.create("after")
            async for part in parts:
                heard.feed(part)
    assert len(heard.data) == 1
    assert heard.comments == [FAREWELL]


async def test_what_a_browser_watches_ends_when_it_is_signed_out(
    hf: Runtime, server: Started, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(standing, "STALE_MS", 0)
    heard = Heard()
    async with client() as http:
        entered = await http.get(f"{server.url}/enter?code={await server.tokens.link()}")
        assert entered.status_code == 200
        [mine] = [one for one in await server.tokens.list() if one.kind == "browser"]
        async with http.stream("GET", f"{server.url}/v1/events") as answer:
            assert answer.status_code == 200
            parts = answer.aiter_bytes()
            heard.feed(await anext(parts))
            await server.tokens.revoke(mine.id)
            with anyio.fail_after(20):
                async for part in parts:
                    heard.feed(part)
    assert heard.comments == [FAREWELL]
    assert heard.data == []


async def test_a_stream_of_mcp_ends_with_its_token(
    hf: Runtime, server: Started, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(standing, "STALE_MS", 0)
    made = await server.tokens.create(["read", "run"])
    first = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    headers = {**bearer(made), "Accept": "application/json, text/event-stream"}
    said = b""
    async with client() as http:
        http.base_url = server.url
        begun = await http.post(
            "/mcp", headers=headers, json=json.loads(asked("initialize", **first))
        )
        headers["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
        headers["MCP-Protocol-Version"] = "2025-11-25"
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post("/mcp", headers=headers, json=ready)
        await hf.shell.create("s")
        wanted = json.loads(asked("resources/subscribe", uri="holdfast://sessions/s"))
        async with http.stream("GET", "/mcp", headers=headers) as answer:
            assert answer.status_code == 200
            parts = answer.aiter_bytes()
            subscribed = await http.post("/mcp", headers=headers, json=wanted)
            assert "error" not in subscribed.text, subscribed.text
            await hf.shell.run("x = 1", session="s")
            with anyio.fail_after(20):
                while b"resources/updated" not in said:
                    said += await anext(parts)
                await server.tokens.revoke(made.view.id)
                said = b""
                await hf.shell.run("x = 2", session="s")
                async for part in parts:
                    said += part
        assert said.decode().strip() == f": {FAREWELL}"
        assert (await http.post("/mcp", headers=headers, json=wanted)).status_code == 401


# -- how old the answer may be ------------------------------------------------------------------------


class Broken(MemoryJournal):
    """One that can't be read any more."""

    broken = False

    async def row(self, projection: str, key: str) -> Any:
        if self.broken:
            raise JournalError("JOURNAL_IO", "It can't be read.")
        return await super().row(projection, key)


async def test_that_a_token_counts_is_remembered_as_long_as_was_asked_for_and_not_beyond_its_end():
    now = [1_700_000_000_000]
    journal: Journal = MemoryJournal(clock=lambda: now[0])
    tokens, others = Tokens(journal, now=lambda: now[0]), Tokens(journal, now=lambda: now[0])
    made = await tokens.create(["read"], expires_in_ms=1000)
    assert await tokens.counts(made.view.id)
    await others.revoke(made.view.id)
    assert await tokens.counts(made.view.id, stale_ms=3_600_000)
    assert not await tokens.counts(made.view.id)
    expires = await tokens.create(["read"], expires_in_ms=1000)
    assert await tokens.counts(expires.view.id)
    now[0] += 1000
    assert not await tokens.counts(expires.view.id, stale_ms=3_600_000)
    assert not await tokens.counts("tok_none")


async def test_whoever_can_not_be_looked_up_goes():
    journal = Broken()
    tokens = Tokens(journal)
    made = await tokens.create(["read"])
    assert await tokens.counts(made.view.id)
    journal.broken = True
    assert not await tokens.counts(made.view.id)
    assert [one.kind async for one in journal.read(TOKENS)] == ["token_created"]
