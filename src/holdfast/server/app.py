"""The server: one Starlette app over an open runtime. `make_app` is the list of all it consists of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import HoldfastError
from holdfast.server import errors, events, health, metrics, rpc_http
from holdfast.server.agents import served
from holdfast.server.auth import cookie_header
from holdfast.server.door import Door
from holdfast.server.idempotency import Keys
from holdfast.server.limits import Limits
from holdfast.server.mcp import mount
from holdfast.server.metrics import Counting
from holdfast.server.openapi import document
from holdfast.server.refusals import Refusals
from holdfast.server.rest import ENDPOINTS, routes
from holdfast.server.rpc import encoded
from holdfast.server.tokens import BROWSER_MS, Tokens
from holdfast.server.work import Work

if TYPE_CHECKING:
    from holdfast.runtime import Runtime
    from holdfast.runtime.agent import Agent

PARTS = {"events": events, "rpc_http": rpc_http, "health": health, "metrics": metrics}
"""Modules that have routes of their own: each exports `routes() -> list[BaseRoute]`."""

_ENTERED = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>holdfast</title>
<meta http-equiv="refresh" content="0;url=/"><p>You are signed in. <a href="/">Go on</a>.</p></html>"""


def make_app(
    hf: Runtime,
    *,
    background: TaskGroup,
    tokens: Tokens | None = None,
    agents: Mapping[str, Agent[Any]] | None = None,
    limits: Limits | None = None,
    names: Iterable[str] = (),
    tls: bool = False,
    console: bool = True,
    expose: bool = False,
) -> Starlette:
    """The app. `background` is where runs live that outlast their request; `names` are those of this server.

    `expose`: over MCP, each capability is a tool of its own, too.

    Handlers find at `request.app.state`: `hf`, `tokens`, `work` (runs under way, and agents), `keys`, `refusals`,
    `limits`, `background`; and at `request.state.caller` who asks.
    """
    tokens = tokens or Tokens(hf.journal)
    limits = limits or Limits()
    refusals = Refusals(hf.journal)
    door = Middleware(
        Door,
        tokens=tokens,
        refusals=refusals,
        limits=limits,
        names=frozenset(name.lower() for name in names),
        tls=tls,
    )
    app = Starlette(
        routes=[
            *routes(),
            *_own_routes(),
            *(one for part in PARTS.values() for one in part.routes()),
        ],
        middleware=[Middleware(Counting), door],
        exception_handlers={
            HoldfastError: errors.tell_holdfast,
            HTTPException: errors.tell_http,
            Exception: errors.tell_bug,
        },
    )
    app.router.redirect_slashes = False  # nobody is sent elsewhere by what they ask for
    state = app.state
    state.hf = hf
    state.tokens = tokens
    state.limits = limits
    state.refusals = refusals
    state.background = background
    state.work = Work(hf, background, served(agents or {}))
    state.keys = Keys(hf.journal)
    state.tls = tls
    state.expose = expose
    app.router.routes.append(Route("/mcp", mount(state)))  # a mount answers below it only
    if console and find_spec("holdfast.server.console") is not None:
        pages: Any = import_module("holdfast.server.console")
        app.router.routes.extend(pages.routes())
        state.tell = pages.tell
    return app


def _own_routes() -> list[BaseRoute]:
    return [
        Route("/openapi.json", _openapi, methods=["GET"]),
        Route("/enter", _enter, methods=["GET"]),
    ]


async def _openapi(_: Request) -> Response:
    """What this server can be asked, as OpenAPI 3.1."""
    return Response(_document(), media_type="application/json")


@lru_cache(1)
def _document() -> bytes:
    return encoded(document(ENDPOINTS, parts=PARTS))


async def _enter(request: Request) -> Response:
    """A browser that comes by a link: it gets a cookie, and goes to the first page.

    By a page and not by a redirect: after one that another site began, the browser would not send the cookie. Whoever
    just looks what is there (HEAD: mail programs, previews) uses nothing up.
    """
    if request.method == "HEAD":
        return Response(media_type="text/html")
    made = await request.app.state.tokens.enter(request.query_params.get("code", ""))
    secure: bool = request.app.state.tls or request.url.scheme == "https"
    cookie = cookie_header(made.text, secure=secure, seconds=BROWSER_MS // 1000)
    return Response(_ENTERED, media_type="text/html", headers={"Set-Cookie": cookie})
