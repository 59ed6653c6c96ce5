"""Tools: what sessions may call, with their schemas; and the servers, modules and documents they come from, and how those are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import parse
from holdfast.contracts.surface import SurfaceView
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.page import render
from holdfast.server.rest import bodies as b
from holdfast.server.rest.tools import (
    FindTools,
    list_surfaces,
    list_tools,
    remove_surface,
    show_surface,
    show_tool,
)

MOST = 500
"""Tools that a page lists."""


def routes() -> list[BaseRoute]:
    """`/tools`, one of them, and what can be done about a surface."""
    return [
        Route("/tools", show, methods=["GET"], name="console_tools"),
        Route("/tools/surfaces/{name}/reload", reload, methods=["POST"]),
        Route("/tools/surfaces/{name}/remove", remove, methods=["POST"]),
        Route("/tools/{name}", show_one, methods=["GET"], name="console_tool"),
    ]


async def show(request: Request) -> Response:
    """All surfaces and tools; with `query`, the tools that fit best first."""
    asked = parse(FindTools, picked(request, "query", "session_id"))
    call = await ask(request, "read", query=asked)
    surfaces: Sequence[SurfaceView] = (await list_surfaces(call))["items"]
    found: list[dict[str, Any]] = (await list_tools(call))["items"]
    of = {tool: one.name for one in surfaces for tool in one.tools}
    return await render(
        request, "surfaces.html", surfaces=surfaces, tools=found[:MOST], total=len(found), of=of,
        asked=asked, problem=call.hf.surfaces.problem,
    )  # fmt: skip


async def show_one(request: Request) -> Response:
    """Everything about one tool."""
    asked = parse(b.OfSession, picked(request, "session_id"))
    call = await ask(request, "read", query=asked, name=request.path_params["name"])
    return await render(
        request, "surfaces_tool.html", tool=await show_tool(call), session_id=asked.session_id
    )


async def reload(request: Request) -> Response:
    """Connect a surface anew at the next boundary of each session."""
    await form(request)
    call = await ask(request, "admin", name=request.path_params["name"])
    view = await show_surface(call)
    await call.hf.surfaces.reload(view.name)
    return _back(view.name)


async def remove(request: Request) -> Response:
    """Want a surface no more."""
    await form(request)
    call = await ask(request, "admin", name=request.path_params["name"])
    view = await remove_surface(call)
    return _back(view.name)


def _back(name: str) -> Response:
    return RedirectResponse(f"/tools#surface-{quote(name, safe='')}", 303)
