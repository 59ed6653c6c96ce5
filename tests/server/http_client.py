"""A server over a runtime, and clients of it: in this process, or over a real socket."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette

from holdfast.runtime import Runtime
from holdfast.server.app import make_app
from holdfast.server.limits import Limits
from holdfast.server.serving import Listen, Started, serve
from holdfast.server.tokens import Tokens

BASE = "http://127.0.0.1:7433"


@dataclass
class Site:
    """An app, and who talks to it."""

    app: Starlette
    tokens: Tokens
    clients: list[httpx.AsyncClient]

    async def client(
        self, *scopes: str, prefix: str | None = None, address: str = "127.0.0.1"
    ) -> httpx.AsyncClient:
        """A program with a token of these scopes; without any, one that has no token."""
        headers: dict[str, str] = {}
        if scopes:
            made = await self.tokens.create(scopes, prefix=prefix)
            headers["Authorization"] = f"Bearer {made.text}"
        transport = httpx.ASGITransport(
            self.app, raise_app_exceptions=False, client=(address, 4000)
        )
        found = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)
        self.clients.append(found)
        return found


@asynccontextmanager
async def site(
    hf: Runtime, *, limits: Limits | None = None, agents: Any = None, **more: Any
) -> AsyncGenerator[Site]:
    """The app of a runtime, called in this process."""
    async with anyio.create_task_group() as background:
        tokens = Tokens(hf.journal)
        app = make_app(
            hf, background=background, tokens=tokens, limits=limits, agents=agents, **more
        )
        found = Site(app, tokens, [])
        try:
            yield found
        finally:
            for one in found.clients:
                await one.aclose()
            background.cancel_scope.cancel()


@asynccontextmanager
async def listening(
    hf: Runtime, *, listen: Listen | None = None, **options: Any
) -> AsyncGenerator[Started]:
    """The same behind a real socket on this machine."""
    started: list[Started] = []
    there = anyio.Event()

    async def ready(one: Started) -> None:
        started.append(one)
        there.set()

    async def go() -> None:
        await serve(hf, listen or Listen(port=0), ready=ready, signals=False, **options)

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        await there.wait()
        try:
            yield started[0]
        finally:
            started[0].stop()


def ids(items: Iterable[dict[str, Any]]) -> list[str]:
    """The ids of a list."""
    return [one["id"] for one in items]
