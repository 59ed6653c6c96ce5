"""A real MCP server that lets in whoever brings a token of a real authorization server; both in threads of their own.

Tests look into it: who knocked with which token, and what was called.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.leases.server import Guard, running

ABOUT = "/.well-known/oauth-protected-resource"


class Docs:
    """What tests see of the server."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.url = ""
        self.knocks: list[tuple[int, str]] = []
        """Status and token of every request."""
        self.done: list[int] = []
        """What the tool was called with."""
        self.pace = 0.0
        """Seconds that one call takes."""

    @property
    def newest_came(self) -> bool:
        """Whether the last who came had the newest token, and will not renew it right now."""
        newest = self.guard.tokens[-1]
        fresh = newest.until - time.time() > self.guard.lifetime / 2
        return fresh and self.knocks[-1] == (200, newest.access)

    def mcp(self) -> MCPServer:
        found = MCPServer("docs", version="1")

        @found.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def look(n: int) -> dict[str, int]:
            """Look a number up."""
            self.done.append(n)
            await anyio.sleep(self.pace)
            return {"n": n}

        @found.tool()
        async def send(n: int) -> dict[str, int]:
            """Send a number away."""
            self.done.append(n)
            return {"sent": n}

        return found

    def app(self, inner: ASGIApp) -> ASGIApp:
        """The server, behind its door."""

        async def door(scope: Scope, receive: Receive, send: Send) -> None:
            answer = self._at_the_door(Request(scope)) if scope["type"] == "http" else None
            await (answer or inner)(scope, receive, send)

        return door

    def _at_the_door(self, request: Request) -> Response | None:
        origin = self.url.removesuffix("/mcp")
        if request.url.path.startswith(ABOUT):
            told = {"resource": self.url, "authorization_servers": [self.guard.url]}
            return JSONResponse(told)
        if request.url.path != "/mcp":
            return Response(status_code=404)
        value = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = [one for one in self.guard.tokens if one.access == value and not one.revoked]
        if known and known[0].until > time.time():
            self.knocks.append((200, value))
            return None
        self.knocks.append((401, value))
        challenge = f'Bearer resource_metadata="{origin}{ABOUT}/mcp"'
        return Response(status_code=401, headers={"WWW-Authenticate": challenge})


@contextmanager
def threaded(app: ASGIApp, told: Callable[[str], None]) -> Iterator[None]:
    """Serve while this is open; `told` hears the address before anybody can knock."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    told(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(app, log_level="critical", lifespan="on", ws="none")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def docs_server(*, lifetime: int = 3600) -> Iterator[Docs]:
    """Both of them, running."""
    with running(Guard()) as guard:
        guard.lifetime = lifetime
        docs = Docs(guard)

        def told(url: str) -> None:
            docs.url = f"{url}/mcp"

        with threaded(docs.app(docs.mcp().streamable_http_app()), told):
            yield docs
