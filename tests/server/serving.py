"""A real server on loopback for the tests of one route: uvicorn, a runtime, and whoever the test says asks."""

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.runtime import Runtime
from holdfast.server import events
from holdfast.server.callers import LOCAL, SCOPES, Caller
from holdfast.server.errors import tell_holdfast


class Everybody:
    """Stands in for the check of credentials: `X-Caller: NAME` is one of `callers`."""

    def __init__(self, app: ASGIApp, callers: dict[str, Caller]) -> None:
        self.app = app
        self.callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            name = dict(scope["headers"]).get(b"x-caller", b"local").decode()
            caller = self.callers.get(name)
            if caller is not None:
                scope.setdefault("state", {})["caller"] = caller
        await self.app(scope, receive, send)


CALLERS = {
    "local": LOCAL,
    "reader": Caller("token:r", frozenset({"read"}), via="http:token:r"),
    "runner": Caller("token:x", frozenset({"run"}), via="http:token:x"),
    "approver": Caller("token:a", frozenset({"approve"}), via="http:token:a"),
    "tenant": Caller("token:t", frozenset(SCOPES) - {"admin"}, "ten-", "http:token:t"),
}


def make_app(hf: Runtime, routes: list[BaseRoute], *more: Middleware) -> Starlette:
    app = Starlette(
        routes=routes,
        middleware=[*more, Middleware(Everybody, callers=CALLERS)],
        exception_handlers={HoldfastError: tell_holdfast},
    )
    app.state.hf = hf
    return app


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[int]:
    """The port at which the app is served. At the end clients are sent away, as `holdfast serve` does."""
    config = uvicorn.Config(
        app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=5
    )
    server = Server(config)
    async with anyio.create_task_group() as tasks:
        app.state.background = tasks
        tasks.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110 - it sets no event
            await anyio.sleep(0.005)
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            events.hub_of(app).close()
            server.should_exit = True
