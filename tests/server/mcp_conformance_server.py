"""The server that the conformance suite talks to: the whole app, in which somebody is signed in already.

    python tests/server/mcp_conformance_server.py

The suite sends no token, so one is added to what it sends. Everything else is as `holdfast serve` has it. Prints one line
of JSON with its address, and runs until its standard input ends.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn

import holdfast
from holdfast import Agent
from holdfast.server.app import make_app
from holdfast.server.limits import UNLIMITED
from holdfast.server.mcp.sampling import ClientModel

MODULE = Path(__file__).with_name("mcp_conformance_module.py")


class SignedIn:
    """Adds a token to every request."""

    def __init__(self, app, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


async def main() -> None:
    config = {"session": {"capabilities": [str(MODULE)]}, "shell": {"jail": "off"}}
    async with (
        holdfast.open("memory:", config) as hf,
        anyio.create_task_group() as background,
    ):
        agents = {"test_sampling": Agent(ClientModel(), code_mode=False)}
        more: Any = {"agents": agents, "limits": UNLIMITED, "console": False}
        app = make_app(hf, background=background, expose=True, **more)
        token = await app.state.tokens.create(["admin"])
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            server = uvicorn.Server(
                uvicorn.Config(SignedIn(app, token.text), lifespan="off", log_level="warning")
            )
            background.start_soon(server.serve, [bound])
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.01)
            url = f"http://localhost:{bound.getsockname()[1]}/mcp"
            print(json.dumps({"url": url}), flush=True)
            await anyio.wait_readable(0)
            os.read(0, 1)
        server.should_exit = True
        background.cancel_scope.cancel()


if __name__ == "__main__":
    sys.path.insert(0, str(MODULE.parents[2]))
    anyio.run(main)
