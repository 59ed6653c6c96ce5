"""Effects in doubt: the call went out, and what became of it is not on record. Only a person can say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import EffectView, Json, parse
from holdfast.errors import CallerError, HoldfastError
from holdfast.gate.past import stored_json
from holdfast.server.console.asking import ask, form
from holdfast.server.console.origin import Origin, origin_of
from holdfast.server.console.page import alone, is_htmx, render
from holdfast.server.console.people import who
from holdfast.server.console.steps import parts_of
from holdfast.server.errors import status_of
from holdfast.server.rest import bodies as b
from holdfast.server.rest.endpoint import Call
from holdfast.server.rest.runs import resolve_effect

_MOST = 50
_MENDED = frozenset({"EFFECT_NOT_IN_DOUBT", "INVALID_ARGUMENT", "SESSION_BUSY"})


@dataclass(frozen=True, slots=True)
class Doubt:
    """An effect of which nobody knows whether it happened, or did once."""

    view: EffectView
    origin: Origin
    arguments: Json
    """What it was called with; `None` where that is not to be shown, or erased."""
    side_effect: str
    """What it may touch."""
    open: bool
    """Whether it is in doubt still."""
    may: bool
    """Whether whoever looks may answer, and it is open."""
    resolved: str | None = None
    """What was said of it."""
    by: str | None = None
    """Who said so."""
    at: int | None = None
    """When."""


def routes() -> list[BaseRoute]:
    """One effect, and the three answers."""
    return [
        Route("/doubts/{effect_id}", _show, methods=["GET"]),
        Route("/doubts/{effect_id}", _resolve, methods=["POST"]),
    ]


async def doubts_of(call: Call) -> list[Doubt]:
    """Those in doubt now, of the sessions that the caller sees."""
    rows = await call.hf.journal.rows("effects", tag="open", limit=10_000)
    mine = [
        row.value
        for row in rows
        if row.value["status"] == "unknown" and call.caller.sees(str(row.value["session_id"]))
    ]
    return [await _doubt(call, row) for row in mine[:_MOST]]


async def _show(request: Request) -> Response:
    call = await ask(request, "read", effect_id=request.path_params["effect_id"])
    return await _answer(request, await _found(call))


async def _resolve(request: Request) -> Response:
    """An answer; then the run goes on, if it was all that it stood for."""
    said = await form(request)
    key = request.path_params["effect_id"]
    call = await ask(request, "approve", effect_id=key)
    try:
        given = {"answer": said.get("answer"), "value": _value(said.get("value", ""))}
        call = await ask(request, "approve", body=parse(b.ResolveEffect, given), effect_id=key)
        view: EffectView = await resolve_effect(call)
    except CallerError as why:
        if why.code not in _MENDED:
            raise
        return await _answer(request, await _found(call), problem=why, status=status_of(why))
    if said.get("resume") and view.run_id is not None:
        await call.work.go_on(view.run_id)
    if not is_htmx(request):
        return RedirectResponse(f"/doubts/{key}", 303)
    return await _answer(request, await _found(call))


def _value(text: str) -> Json:
    """What the call gave, as it was typed: JSON, or else words. What sets out as JSON and is none is a slip."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as why:
        if text.lstrip()[0] not in '[{"':
            return text
        raise CallerError(
            "INVALID_ARGUMENT",
            f"What it gave looks like JSON, and is none: {str(why)[:200]}.",
            hint="Mend it, or put words between quotes.",
        ) from None


async def _answer(
    request: Request, doubt: Doubt, *, problem: CallerError | None = None, status: int = 200
) -> Response:
    name = "_doubt_one.html" if is_htmx(request) else "doubt.html"
    return await render(
        request, name, status=status, doubt=doubt, problem=problem, alone=alone(request)
    )


async def _found(call: Call) -> Doubt:
    key = call.path["effect_id"]
    return await _doubt(call, await call.own("effects", key))


async def _doubt(call: Call, row: dict[str, Any]) -> Doubt:
    view = EffectView.model_validate(row)
    arguments: Json = None
    side_effect, resolved, by, at = "", None, None, None
    records = [] if view.run_id is None else await call.hf.runs.records(view.run_id)
    for record in records:
        if record.effect_id != view.id:
            continue
        said: dict[str, Any] = dict(record.payload)
        if record.kind == "effect_intent":
            side_effect = str(said.get("side_effect", ""))
            arguments = await _arguments(call, [one.digest for one in parts_of(record)])
        elif record.kind == "effect_released":
            resolved, by, at = "retry", record.actor, record.time
        elif record.kind == "effect_result" and said.get("resolved"):
            resolved, by, at = str(said["resolved"]), record.actor, record.time
    still = view.status == "unknown"
    return Doubt(
        view,
        await origin_of(call.hf, view.run_id, view.name),
        arguments,
        side_effect,
        still,
        still and call.caller.may("approve"),
        None if still else resolved,
        None if by is None else who(call.caller, by),
        at,
    )


async def _arguments(call: Call, digests: list[str | None]) -> Json:
    """What a call was made with, as it is stored."""
    if not digests or digests[0] is None:
        return None
    try:
        return await stored_json(call.hf.journal, digests[0])
    except (HoldfastError, ValueError):
        return None
