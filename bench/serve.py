"""The server: trivial runs over HTTP against a bare handler of the same framework, and events to many clients.

Both are served by one process of their own, on two ports, and asked in turns by a client that does no more than write
requests and find the end of answers. Both answer a POST of the same body with JSON. The bare handler parses and answers;
holdfast checks a token, runs the code in a jailed process and has the run on disk.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import anyio
from anyio.abc import ByteReceiveStream, SocketStream

from bench._report import Report, ratio

CONNECTIONS = (1, 16, 128)
SESSIONS = 32
"""Sessions that the connections share: so many stay warm whatever else is."""
ROUNDS = 5
REQUESTS = 400
"""Of one round, over all connections."""
WATCHERS = 200
EVENTS = 500
BATCH = 10


class Place(NamedTuple):
    """Where the servers are."""

    port: int
    bare: int
    token: str


class Round(NamedTuple):
    """What one round of requests gave."""

    per_second: float
    p50: float
    p99: float


async def measure(report: Report) -> None:
    """Every figure of this module."""
    with tempfile.TemporaryDirectory() as folder:
        async with _server(folder) as (place, child):
            for connections in CONNECTIONS:
                await _compare(report, place, connections)
            await _watch(report, place, child)


# -- requests -----------------------------------------------------------------------------------------


async def _compare(report: Report, place: Place, connections: int) -> None:
    body = json.dumps({"code": "1 + 1"}).encode()
    ours: list[Round] = []
    bare: list[Round] = []
    await _round(place.port, place.token, connections, body)  # sessions get their workers
    for _ in range(ROUNDS):
        bare.append(await _round(place.bare, place.token, connections, body))
        ours.append(await _round(place.port, place.token, connections, body))
    name = f"POST run, {connections} connection{'s' if connections > 1 else ''}"
    speed, base = median(one.per_second for one in ours), median(one.per_second for one in bare)
    report.note(
        f"{name}, requests a second",
        ratio([one.per_second for one in ours], [one.per_second for one in bare]),
        "x",
        f"{speed:.0f}/s, a bare handler {base:.0f}/s",
    )
    late, floor = median(one.p99 for one in ours), median(one.p99 for one in bare)
    report.note(
        f"{name}, p99",
        ratio([one.p99 for one in ours], [one.p99 for one in bare]),
        "x",
        f"{late * 1000:.1f} ms (p50 {median(one.p50 for one in ours) * 1000:.1f}), bare {floor * 1000:.1f} ms",
    )


async def _round(port: int, token: str, connections: int, body: bytes) -> Round:
    took: list[float] = []
    each = max(1, REQUESTS // connections)

    async def one(number: int) -> None:
        request = _request(token, f"/v1/sessions/s{number % SESSIONS}/run", body)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            for _ in range(each):
                began = perf_counter()
                await stream.send(request)
                await _answer(stream)
                took.append(perf_counter() - began)

    began = perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(connections):
            tasks.start_soon(one, number)
    spent = perf_counter() - began
    return Round(len(took) / spent, median(took), quantiles(took, n=100)[98])


def _request(token: str, path: str, body: bytes | None = None) -> bytes:
    head = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {token}",
    ]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + (body or b"")


async def _answer(stream: SocketStream) -> None:
    """Read one answer to its end; it must be a good one."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += await stream.receive()
    head, _, body = found.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"refused: {found[:500]!r}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
    while len(body) < length:
        body += await stream.receive()


# -- events -------------------------------------------------------------------------------------------


async def _watch(report: Report, place: Place, child: Child) -> None:
    ready, counts = 0, [0] * WATCHERS
    started, done = anyio.Event(), anyio.Event()
    took: list[float] = []

    async def one(number: int) -> None:
        nonlocal ready
        async with await anyio.connect_tcp("127.0.0.1", place.port) as stream:
            await stream.send(_request(place.token, "/v1/events?kind=bench.tick"))
            found = await stream.receive()
            ready += 1
            if ready == WATCHERS:
                started.set()
            counts[number] += found.count(b"data: ")
            while counts[number] < EVENTS:
                counts[number] += (await stream.receive()).count(b"data: ")
            if min(counts) >= EVENTS:
                done.set()

    async with anyio.create_task_group() as tasks:
        for number in range(WATCHERS):
            tasks.start_soon(one, number)
        await started.wait()
        began = perf_counter()
        await child.tell("write")
        await done.wait()
        took.append(perf_counter() - began)
    [spent] = took
    what = f"{WATCHERS} clients, {EVENTS} records, {BATCH} a commit"
    report.note("events sent a second, all clients", WATCHERS * EVENTS / spent, "/s", what)
    report.note("events, from the first commit to the last client", spent, "s", what)
    memory = json.loads(await child.tell("memory"))
    report.note("memory of the server afterwards", memory / (1 << 20), "MB")


# -- the servers --------------------------------------------------------------------------------------


class Child:
    """The process of the servers: a line in, a line out."""

    def __init__(self, process: Any, out: ByteReceiveStream) -> None:
        self._process = process
        self._out = out
        self._rest = b""

    async def tell(self, line: str) -> str:
        """Say something, and hear what comes of it."""
        await self._process.stdin.send(line.encode() + b"\n")
        return await self.line()

    async def line(self) -> str:
        """The next line."""
        while b"\n" not in self._rest:
            self._rest += await self._out.receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


@asynccontextmanager
async def _server(folder: str) -> AsyncGenerator[tuple[Place, Child]]:
    command = [sys.executable, "-m", "bench.serve", folder]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = Child(process, process.stdout)
        try:
            yield Place(**json.loads(await child.line())), child
        finally:
            with anyio.CancelScope(shield=True):
                await process.stdin.aclose()
                await process.wait()


async def _main(folder: str) -> None:
    import holdfast
    from holdfast.server.limits import UNLIMITED
    from holdfast.server.serving import Listen, Started, serve

    async with (
        holdfast.open(f"sqlite:///{folder}/journal.db", {}) as hf,
        anyio.create_task_group() as tasks,
    ):
        bare = await tasks.start(_serve_bare)

        async def ready(started: Started) -> None:
            token = (await started.tokens.create(["run", "read"])).text
            port = int(started.url.rpartition(":")[2])
            print(json.dumps({"port": port, "bare": bare, "token": token}), flush=True)
            await _obey(hf)
            started.stop()

        await serve(hf, Listen(port=0), ready=ready, limits=UNLIMITED, console=False, signals=False)
        tasks.cancel_scope.cancel()


# `Any`: an open runtime; imported where it is used, so that measuring does not need the server.
async def _obey(hf: Any) -> None:
    from holdfast.contracts import Draft
    from holdfast.server.metrics import resident

    while line := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
        if line == "write":
            for first in range(0, EVENTS, BATCH):
                drafts = [Draft(kind="bench.tick", payload={"n": first + n}) for n in range(BATCH)]
                await hf.journal.append("s", drafts, durable=False)
            print("written", flush=True)
        else:
            print(resident(), flush=True)


async def _serve_bare(*, task_status: anyio.abc.TaskStatus[int]) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def run(request: Request) -> Response:
        asked = await request.json()
        return JSONResponse({"status": "ok", "result": 2, "code": asked["code"]})

    app = Starlette(routes=[Route("/v1/sessions/{id}/run", run, methods=["POST"])])
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    task_status.started(server.servers[0].sockets[0].getsockname()[1])
    try:
        await server.main_loop()
    finally:
        with anyio.CancelScope(shield=True):
            await server.shutdown()


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1])
