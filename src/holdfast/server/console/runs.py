"""Runs: which there are, and a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import RunResult, RunView, check_session_id, new_id, parse
from holdfast.errors import CallerError
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.origin import About, about
from holdfast.server.console.page import is_htmx, render
from holdfast.server.errors import status_of
from holdfast.server.rest import bodies as b
from holdfast.server.rest.endpoint import Answer
from holdfast.server.rest.runs import ListRuns, list_runs, run_agent
from holdfast.server.rest.sessions import run_code

SHOWN = 50
"""Runs on a page."""
WAIT_MS = 700
"""How long a new run is waited for before its page is shown: what is refused at once can be mended in the form."""
STATUSES = (
    ("", "any"),
    ("active", "not over"),
    ("running", "running"),
    ("waiting_for_approval", "waiting for approval"),
    ("needs_attention", "needs attention"),
    ("interrupted", "interrupted"),
    ("completed", "completed"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
)


def routes() -> list[BaseRoute]:
    """The list, the form for a new one, and what it sends."""
    return [
        Route("/runs", _list, methods=["GET"]),
        Route("/runs", _start, methods=["POST"]),
        Route("/runs/new", _new, methods=["GET"]),
    ]


async def _list(request: Request) -> Response:
    """The newest first."""
    asked = picked(request, "status", "session_id", "after")
    query = parse(ListRuns, {**asked, "limit": SHOWN, "newest": True})
    call = await ask(request, "read", query=query)
    found = await list_runs(call)
    told = await about(call.hf, [one.id for one in found["items"]])
    name = "_runs_list.html" if is_htmx(request) else "runs.html"
    return await render(
        request,
        name,
        items=below_their_agents(found["items"], told),
        about=told,
        next=found["next"],
        asked=query,
        statuses=STATUSES,
    )


def below_their_agents(runs: Sequence[RunView], told: Mapping[str, About]) -> list[RunView]:
    """Runs as they come, but the programs that an agent wrote follow its run, in the order in which it wrote them."""
    here = {one.id for one in runs}
    under: dict[str, list[RunView]] = {}
    for one in reversed(runs):  # the oldest first
        above = told[one.id].parent if one.id in told else None
        if above in here:
            under.setdefault(str(above), []).append(one)
    written = {one.id for found in under.values() for one in found}
    tops = [one for one in runs if one.id not in written]
    return [each for one in tops for each in (one, *under.get(one.id, ()))]


async def _new(request: Request) -> Response:
    await ask(request, "run")
    return await _filled(request, {"session_id": request.query_params.get("session_id", "")})


async def _filled(
    request: Request, said: dict[str, str], problem: CallerError | None = None
) -> Response:
    """The form, as it was filled in."""
    return await render(
        request,
        "new_run.html",
        status=200 if problem is None else status_of(problem),
        said={"kind": "code", "session_id": "", "code": "", "agent": "", "prompt": "", **said},
        agents=sorted(request.app.state.work.agents),
        key=new_id("form"),
        problem=problem,
    )


async def _start(request: Request) -> Response:
    """Begin it; the page of the run shows the rest. A form that is sent twice is one run."""
    said = await form(request)
    await ask(request, "run")
    try:
        found = await (
            _agent(request, said) if said.get("kind") == "agent" else _code(request, said)
        )
    except CallerError as why:
        if why.code == "FORBIDDEN" or is_htmx(request):
            raise
        return await _filled(request, said, why)
    told: Any = found.value if isinstance(found, Answer) else found
    run_id: str | None = told.run_id if isinstance(told, RunResult) else told["run_id"]
    return RedirectResponse(f"/runs/{run_id}", 303)


async def _code(request: Request, said: dict[str, str]) -> Any:
    prefix: str = request.state.caller.prefix or ""
    # Of the form's own key, so that a form that is sent twice names one session.
    own = said.get("key", "").partition("_")[2] or new_id("")
    session = said.get("session_id", "").strip() or f"{prefix}ses_{own}"[:64]
    check_session_id(session)
    code = said.get("code", "")
    if not code.strip():
        raise CallerError("INVALID_ARGUMENT", "There is no code.", hint="Write some.")
    body = b.RunCode(code=code)
    call = await ask(
        request,
        "run",
        query=b.Waiting(wait_ms=WAIT_MS),
        body=body,
        key=said.get("key"),
        session_id=session,
    )
    await call.mine(session, "session")  # in words that fit the form
    return await run_code(call)


async def _agent(request: Request, said: dict[str, str]) -> Any:
    given = {
        name: said[name].strip() for name in ("prompt", "session_id") if said.get(name, "").strip()
    }
    body = parse(b.RunAgent, given)
    call = await ask(
        request,
        "run",
        query=b.Waiting(wait_ms=WAIT_MS),
        body=body,
        key=said.get("key"),
        name=said.get("agent", ""),
    )
    if body.session_id is not None:
        await call.mine(check_session_id(body.session_id), "session")
    return await run_agent(call)
