"""Sessions: which there are, and one of them with its runs, its limits, and what was granted in it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import SessionView
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.origin import about
from holdfast.server.console.page import is_htmx, render
from holdfast.server.rest import bodies as b
from holdfast.server.rest.listing import Paged
from holdfast.server.rest.runs import ListRuns, list_runs
from holdfast.server.rest.sessions import (
    cancel_session,
    delete_session,
    list_sessions,
    show_session,
)

SHOWN = 50
"""Sessions on a page."""


def routes() -> list[BaseRoute]:
    """The list, one of them, stop what runs there, end it."""
    return [
        Route("/sessions", _list, methods=["GET"]),
        Route("/sessions/{session_id}", _show, methods=["GET"]),
        Route("/sessions/{session_id}/stop", _stop, methods=["POST"]),
        Route("/sessions/{session_id}/end", _end, methods=["POST"]),
    ]


async def _list(request: Request) -> Response:
    query = Paged(limit=SHOWN, **picked(request, "after"))
    call = await ask(request, "read", query=query)
    found = await list_sessions(call)
    name = "_session_rows.html" if is_htmx(request) else "sessions.html"
    return await render(request, name, items=found["items"], next=found["next"])


async def _show(request: Request) -> Response:
    key = request.path_params["session_id"]
    call = await ask(request, "read", session_id=key)
    view: SessionView = await show_session(call)
    query = ListRuns(session_id=key, limit=SHOWN, newest=True, **picked(request, "after"))
    runs = await list_runs(await ask(request, "read", query=query))
    return await render(
        request,
        "session.html",
        session=view,
        items=runs["items"],
        about=await about(call.hf, [one.id for one in runs["items"]]),
        next=runs["next"],
        asked=query,
        grants=await call.hf.approvals.grants(key),
        usage=await call.hf.journal.row("usage", key) or {},
    )


async def _stop(request: Request) -> Response:
    """Stop what runs there."""
    await form(request)
    key = request.path_params["session_id"]
    await cancel_session(await ask(request, "run", body=b.CancelSession(), session_id=key))
    return RedirectResponse(f"/sessions/{key}", 303)


async def _end(request: Request) -> Response:
    """End it, and erase what it held."""
    await form(request)
    key = request.path_params["session_id"]
    await delete_session(await ask(request, "run", query=b.InSession(), session_id=key))
    return RedirectResponse(f"/sessions/{key}", 303)
