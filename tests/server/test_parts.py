"""Events, JSON-RPC, health and figures as parts of the real server: with tokens, over a real socket."""

import json
from pathlib import Path
from typing import Any

import httpx
import websockets
from tests.server.http_client import listening
from tests.server.sse import Heard, until

import holdfast


async def test_all_parts_answer_who_has_a_token(tmp_path: Path):
    async with (
        holdfast.open(f"sqlite:///{tmp_path}/journal.db", {}) as hf,
        listening(hf, console=False) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        token = (await server.tokens.create(["read", "run"])).text
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("/v1/events", "/metrics"):
            assert (await http.get(path)).status_code == 401
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert "checks" in (await http.get("/healthz", headers=headers)).json()
        asked: dict[str, Any] = {"code": "1 + 1", "session_id": "s"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": asked}
        assert (await http.post("/rpc", json=message)).status_code == 401
        answer = await http.post("/rpc", json=message, headers=headers)
        assert answer.json()["result"]["result"] == 2
        heard = Heard()
        query = {"after": "0", "session": "s"}
        async with http.stream("GET", "/v1/events", params=query, headers=headers) as stream:

            async def parts():
                async for chunk in stream.aiter_bytes():
                    heard.feed(chunk)
                    yield heard

            await until(parts(), lambda heard: "run_completed" in heard.kinds)
        figures = (await http.get("/metrics", headers=headers)).text
        assert 'holdfast_http_requests_total{method="POST",route="/rpc",status="200"} 1' in figures
        assert 'holdfast_runs_ended_total{kind="code",status="completed"} 1' in figures
        url = server.url.replace("http", "ws", 1) + "/rpc"
        async with websockets.connect(url, additional_headers=headers) as socket:
            await socket.send(json.dumps({**message, "id": 2}))
            assert json.loads(await socket.recv())["result"]["result"] == 2


async def test_the_server_stops_while_clients_watch(tmp_path: Path):
    heard = Heard()
    async with (
        holdfast.open(f"sqlite:///{tmp_path}/journal.db", {}) as hf,
        listening(hf, console=False) as server,
    ):
        token = (await server.tokens.create(["read"])).text
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(base_url=server.url, headers=headers) as http,
            http.stream("GET", "/v1/events") as stream,
        ):
            chunks = stream.aiter_bytes()
            heard.feed(await anext(chunks))
            server.stop()
            async for chunk in chunks:
                heard.feed(chunk)
    assert heard.comments == ["the server stops, come back"]
