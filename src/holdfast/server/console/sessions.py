"""Sessions: which there are, and one of them with its runs, its limits, and what was granted in it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import RunView, SessionView
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.origin import about
from holdfast.server.console.page import is_htmx, render
from holdfast.server.console.runs import below_their_agents
from holdfast.server.rest import bodies as b
from holdfast.server.rest.endpoint import Call
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
_LOOKED = 1000
"""Runs among which the last of each session is looked for: the newest."""


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
    last = await _last_runs(call, {one.id for one in found["items"]})
    told = await about(call.hf, [one.id for one in last.values()])
    return await render(
        request, name, items=found["items"], next=found["next"], last=last, about=told
    )


async def _last_runs(call: Call, sessions: set[str]) -> dict[str, RunView]:
    """The last run of each of these sessions that somebody asked for; of those whose last is long ago, none."""
    found: dict[str, RunView] = {}
    for row in await call.hf.journal.rows("runs", limit=_LOOKED, newest=True):
        session = str(row.value["session_id"])
        if session in sessions and session not in found and "parent" not in row.value:
            found[session] = RunView.model_validate(row.value)
    return found


async def _show(request: Request) -> Response:
    key = request.path_params["session_id"]
    call = await ask(request, "read", session_id=key)
    view: SessionView = await show_session(call)
    query = ListRuns(session_id=key, limit=SHOWN, newest=True, **picked(request, "after"))
    runs = await list_runs(await ask(request, "read", query=query))
    told = await about(call.hf, [one.id for one in runs["items"]])
    return await render(
        request,
        "session.html",
        session=view,
        items=below_their_agents(runs["items"], told),
        about=told,
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
