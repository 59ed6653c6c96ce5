"""The inbox: what waits for a person, first of all pages. What will happen, on whose behalf, and the answers there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import ApprovalView, parse
from holdfast.errors import CallerError
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.doubts import Doubt, doubts_of
from holdfast.server.console.fields import Field, content_of, fields_of
from holdfast.server.console.origin import Origin, origin_of
from holdfast.server.console.page import alone, is_htmx, render
from holdfast.server.console.people import how, who
from holdfast.server.console.plans import Plan, plan_of, plans_of
from holdfast.server.errors import status_of
from holdfast.server.rest import bodies as b
from holdfast.server.rest.approvals import ListApprovals, decide, list_approvals, show_approval
from holdfast.server.rest.endpoint import Call
from holdfast.server.rights import PLAN

SHOWN = 50
"""Items that a page shows at once."""
REASONS = (
    ("", "no reason code"),
    ("denied.wrong_arguments", "wrong arguments"),
    ("denied.not_needed", "not needed"),
    ("denied.not_allowed", "not allowed"),
    ("denied.not_now", "not now"),
)
"""Why not, as a token for the record; the words beside it are for people, and for the code that asked."""

_MENDED = frozenset({"APPROVAL_CLOSED", "DECISION_REFUSED", "INVALID_ARGUMENT"})
"""Refusals that are told at the item itself."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that waits, or did."""

    view: ApprovalView
    origin: Origin
    fields: list[Field]
    about: str
    """What the call does, in the words of its capability; or what is asked."""
    because: str
    """Why it is asked about, as the rule says; may be empty."""
    may: bool
    """Whether whoever looks may answer, and it waits."""
    for_session: bool
    """Whether that can be for the whole session."""
    link: str | None
    """Where to go first; only to an address that a browser opens as a page."""
    host: str
    """Whose that is."""
    who: str
    """Who decided."""
    how: str
    """How they were known."""


def routes() -> list[BaseRoute]:
    """The inbox, one item, the answers."""
    return [
        Route("/", _inbox, methods=["GET"]),
        Route("/inbox/items", _items, methods=["GET"]),
        Route("/inbox/decided", _decided, methods=["GET"]),
        Route("/inbox/{approval_id}", _show, methods=["GET"]),
        Route("/inbox/{approval_id}", _decide, methods=["POST"]),
    ]


async def _inbox(request: Request) -> Response:
    return await render(request, "inbox.html", **await _waiting(request))


async def _items(request: Request) -> Response:
    """What waits, alone: for a page that is open."""
    return await render(request, "_items.html", **await _waiting(request))


async def _waiting(request: Request) -> dict[str, Any]:
    query = ListApprovals(
        status="pending", limit=SHOWN, after=request.query_params.get("after", "")
    )
    call = await ask(request, "read", query=query)
    found = await list_approvals(call)
    items = [await _item(call, one) for one in found["items"]]
    plans: list[Plan] = [] if query.after else await plans_of(call)
    doubts: list[Doubt] = [] if query.after else await doubts_of(call)
    return {
        "items": items,
        "plans": plans,
        "doubts": doubts,
        "next": found["next"],
        "after": query.after,
        "reasons": REASONS,
        "problem": None,
        "waits": len(items) + len(plans) + len(doubts),
    }


async def _decided(request: Request) -> Response:
    """What was decided, the newest first."""
    query = ListApprovals(status="decided", limit=SHOWN, newest=True, **picked(request, "after"))
    call = await ask(request, "read", query=query)
    found = await list_approvals(call)
    items = [await _item(call, one, whole=False) for one in found["items"]]
    return await render(request, "decided.html", items=items, next=found["next"])


async def _show(request: Request) -> Response:
    key = request.path_params["approval_id"]
    call = await ask(request, "read", approval_id=key)
    if key.startswith(PLAN):
        return await _answer(request, plan=await plan_of(call, key))
    view = await show_approval(call)
    return await _answer(request, item=await _item(call, view))


async def _decide(request: Request) -> Response:
    """An answer. One that does not count is told where it was given, with who was first."""
    said = await form(request)
    key = request.path_params["approval_id"]
    given = {name: said[name] for name in ("reason", "reason_code") if said.get(name, "").strip()}
    call = await ask(request, "approve", body=None, approval_id=key)
    try:
        asked = {"decision": said.get("decision"), **given, "content": await _content(call, said)}
        call = await ask(request, "approve", body=parse(b.Decide, asked), approval_id=key)
        await decide(call)
    except CallerError as why:
        if why.code not in _MENDED:
            raise
        return await _told_why(request, call, why, said)
    if not is_htmx(request):
        return RedirectResponse(f"/inbox/{key}", 303)
    return await _shown(request, call, said)


async def _content(call: Call, said: Mapping[str, str]) -> Any:
    """What was filled in, if there is a form and it is the caller's to see; deciding tells all else."""
    row: dict[str, Any] | None = await call.hf.journal.row("approvals", call.path["approval_id"])
    if row is None or said.get("decision") != "approved" or not call.caller.sees(row["session_id"]):
        return None
    return content_of(row.get("form"), said)


async def _told_why(
    request: Request, call: Call, why: CallerError, said: Mapping[str, str]
) -> Response:
    return await _shown(request, call, said, problem=why, status=status_of(why))


async def _shown(
    request: Request,
    call: Call,
    said: Mapping[str, str],
    *,
    problem: CallerError | None = None,
    status: int = 200,
) -> Response:
    """The item as it is now; with what was typed, when that has to be mended."""
    key = call.path["approval_id"]
    if key.startswith(PLAN):
        plan = await plan_of(call, key)
        return await _answer(request, plan=plan, problem=problem, status=status)
    view = await show_approval(call)
    item = await _item(call, view, said=said if problem is not None else None)
    return await _answer(request, item=item, problem=problem, status=status)


async def _answer(
    request: Request,
    *,
    item: Item | None = None,
    plan: Plan | None = None,
    problem: CallerError | None = None,
    status: int = 200,
) -> Response:
    """One item: alone for a page that is open, else as a page."""
    name = "_one.html" if is_htmx(request) else "item.html"
    return await render(
        request, name, status=status, item=item, plan=plan, problem=problem, reasons=REASONS,
        alone=alone(request),
    )  # fmt: skip


async def _item(
    call: Call, view: ApprovalView, *, said: Mapping[str, str] | None = None, whole: bool = True
) -> Item:
    pending = view.status == "pending"
    decision = view.decision
    link, host = _link(view.url)
    return Item(
        view,
        await origin_of(call.hf, view.run_id, view.tool) if whole else Origin(view.run_id),
        fields_of(view.form, said) if pending else [],
        *_words(view),
        pending and call.caller.may("approve"),
        "approved_for_session" in view.allowed and view.risk != "critical",
        link,
        host,
        "" if decision is None else who(call.caller, decision.actor),
        "" if decision is None else how(decision.via),
    )


def _words(view: ApprovalView) -> tuple[str, str]:
    """What the call does and why it is asked about, of the one line that has both: `tool: words (side effect; reason)`."""
    line, mark, reason = view.summary.removesuffix(")").rpartition(f" ({view.side_effect}; ")
    if view.asks != "consent" or not mark or not view.summary.endswith(")"):
        return view.summary, ""
    return line.removeprefix(f"{view.tool}: "), reason


def _link(url: str | None) -> tuple[str | None, str]:
    """An address of the other side, and its host; none that would run as a script or open a file."""
    if url is None:
        return None, ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None, ""
    return (url, parts.netloc) if parts.scheme in ("http", "https") else (None, "")
