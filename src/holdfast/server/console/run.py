"""The page of one run: the code and where it stands, the timeline, every step, replay; and what can be done about it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import ApprovalView, EffectView
from holdfast.errors import CallerError
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.page import render
from holdfast.server.console.story import Page, page_of
from holdfast.server.rest import bodies as b
from holdfast.server.rest.endpoint import Call
from holdfast.server.rest.runs import cancel_run, own_run, resume_run

RESUME_MS = 300
"""How long a person waits to be told that a run can't go on; one that does, goes on without them."""
_MOST_ASKED = 20


def routes() -> list[BaseRoute]:
    """`/runs/ID`, and what its buttons do."""
    return [
        Route("/runs/{run_id}", show, methods=["GET"], name="console_run"),
        Route("/runs/{run_id}/cancel", cancel, methods=["POST"], name="console_cancel_run"),
        Route("/runs/{run_id}/resume", resume, methods=["POST"], name="console_resume_run"),
    ]


async def show(request: Request) -> Response:
    """The page, or the part of it that changes while the run goes on."""
    call = await ask(request, "read", run_id=request.path_params["run_id"])
    run_id = await own_run(call)
    row = await call.hf.journal.row("runs", run_id)
    if row is None:
        return await _not_yet(request, call, run_id)
    said = picked(request, "at", "after", "part")
    page = await page_of(
        call.hf, run_id, row, at=_seq(said.get("at")), after=_seq(said.get("after"))
    )
    template = "run_live.html" if said.get("part") == "live" else "run.html"
    return await render(
        request,
        template,
        page=page,
        run=page.run,
        asked=await _asked(call, page),
        doubts=await _doubts(call, page),
        can_resume=await _can_resume(call, page),
    )


async def cancel(request: Request) -> Response:
    """Stop the run."""
    said = await form(request)
    mode: Any = "after_effect" if said.get("mode") == "after_effect" else "now"
    body = b.CancelRun(mode=mode, reason=said.get("reason") or None)
    call = await ask(request, "run", body=body, run_id=request.path_params["run_id"])
    await cancel_run(call)
    return _back(call)


async def resume(request: Request) -> Response:
    """Go on with the run, here."""
    await form(request)
    call = await ask(
        request,
        "run",
        query=b.Waiting(wait_ms=RESUME_MS),
        body=b.ResumeRun(),
        run_id=request.path_params["run_id"],
    )
    await resume_run(call)
    return _back(call)


def _back(call: Call) -> Response:
    return RedirectResponse(f"/runs/{quote(call.path['run_id'], safe='')}", 303)


async def _not_yet(request: Request, call: Call, run_id: str) -> Response:
    """A run that was taken on and is not on record yet."""
    job = call.work.find(run_id)
    if job is not None and job.error is not None:
        raise job.error
    session = "" if job is None else job.session_id
    return await render(request, "run_new.html", run_id=run_id, session_id=session)


async def _asked(call: Call, page: Page) -> list[ApprovalView]:
    """What it waits for."""
    found: list[ApprovalView] = []
    for key in page.run.pending_approvals[:_MOST_ASKED]:
        one = await call.hf.approvals.show(key)
        if one.status == "pending":
            found.append(one)
    return found


async def _doubts(call: Call, page: Page) -> list[EffectView]:
    """Its effects of which nobody knows what became of them."""
    found: list[EffectView] = []
    for key in page.run.in_doubt[:_MOST_ASKED]:
        row = await call.hf.journal.row("effects", key)
        if row is not None and row["status"] == "unknown":
            found.append(EffectView.model_validate(row))
    return found


async def _can_resume(call: Call, page: Page) -> bool:
    """Whether going on is worth a button: it stands, and nobody here is at it."""
    if page.over or not call.caller.may("run"):
        return False
    return call.work.find(page.parent or page.run.id) is None


def _seq(said: str | None) -> int | None:
    if said is None:
        return None
    if not said.isdigit() or len(said) > 18:
        raise CallerError(
            "INVALID_ARGUMENT",
            "`at` and `after` are numbers of records.",
            hint="Leave them out to see the run as it is now.",
        )
    return int(said)
