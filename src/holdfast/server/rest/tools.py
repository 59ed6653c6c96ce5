"""What sessions may call, and where it comes from."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from holdfast.contracts import check_session_id
from holdfast.contracts.surface import SurfaceView
from holdfast.gate.executor import Toolbox
from holdfast.server import views
from holdfast.server.rest import bodies as b
from holdfast.server.rest import examples as eg
from holdfast.server.rest.endpoint import Answer, Call, Endpoint
from holdfast.server.rest.listing import Listed
from holdfast.shell.services import setup_of


class FindTools(b.OfSession):
    """Which capabilities."""

    query: str | None = Field(default=None, max_length=1000)
    """Words that it should be about; the best comes first."""
    limit: int = Field(default=100, ge=1, le=1000)
    """At most so many, when there is a `query`."""


async def _toolbox(call: Call) -> Toolbox:
    services, row = call.hf.shell.services, None
    session: str | None = call.query.session_id
    if session is not None:
        await call.mine(check_session_id(session))
        await call.hf.shell.show(session)
        row = await call.hf.journal.row("sessions", session)
    return await services.toolbox(setup_of(services, row))


async def list_tools(call: Call) -> Any:
    """What a session may call."""
    asked: FindTools = call.query
    toolbox = await _toolbox(call)
    if asked.query is None:
        return views.tool_lines(toolbox, toolbox.all())
    return views.tool_lines(toolbox, toolbox.search(asked.query, limit=asked.limit))


async def show_tool(call: Call) -> Any:
    """Everything about one capability: schemas, limits, who is asked."""
    return views.tool(await _toolbox(call), call.path["name"])


async def list_surfaces(call: Call) -> Any:
    """Servers, modules and documents of tools, and how they are."""
    return {"items": await call.hf.surfaces.list(), "next": None}


async def show_surface(call: Call) -> Any:
    """One of them."""
    return await call.hf.surfaces.view(call.path["name"])


async def add_surface(call: Call) -> Any:
    """Want a surface from the next boundary of each session on; one of this name is replaced."""
    asked: b.AddSurface = call.body
    await call.hf.surfaces.add(asked.name, asked.spec)
    view = await call.hf.surfaces.view(asked.name)
    return Answer(view, 201, {"Location": f"/v1/surfaces/{asked.name}"})


async def remove_surface(call: Call) -> Any:
    """Want it no more: calls that are under way on it end first."""
    name = call.path["name"]
    view = await call.hf.surfaces.view(name)
    await call.hf.surfaces.remove(name)
    return view


TOOLS = (
    Endpoint(
        "GET", "/v1/tools", list_tools, "read", "List or find capabilities", Listed[b.ToolLine],
        query=FindTools, errors=(404,), gives=eg.listed(eg.TOOL),
    ),
    Endpoint(
        "GET", "/v1/tools/{name}", show_tool, "read", "Show a capability", dict[str, Any],
        query=b.OfSession, errors=(404,), gives=eg.TOOL_DETAILS,
    ),
    Endpoint(
        "GET", "/v1/surfaces", list_surfaces, "read", "List tool surfaces", Listed[SurfaceView],
        gives=eg.listed(eg.SURFACE),
    ),
    Endpoint(
        "GET", "/v1/surfaces/{name}", show_surface, "read", "Show a tool surface", SurfaceView,
        errors=(404,), gives=eg.SURFACE,
    ),
    Endpoint(
        "POST",
        "/v1/surfaces",
        add_surface,
        "admin",
        "Add or replace a tool surface",
        SurfaceView,
        body=b.AddSurface,
        status=201,
        keyed=True,
        example={"name": "files", "spec": {"kind": "stdio", "command": "mcp-files"}},
        gives=eg.STAGED,
    ),
    Endpoint(
        "DELETE", "/v1/surfaces/{name}", remove_surface, "admin", "Remove a tool surface",
        SurfaceView, errors=(404,), gives=eg.SURFACE,
    ),
)  # fmt: skip
