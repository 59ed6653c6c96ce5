"""How pages ask: by the handlers of REST, so that the same rights hold and the same goes on record; and what forms say."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel
from starlette.requests import Request

from holdfast.errors import CallerError
from holdfast.server.callers import Caller, Scope
from holdfast.server.idempotency import key_of
from holdfast.server.params import NoParams
from holdfast.server.rest.endpoint import Call

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 500


async def ask(
    request: Request,
    scope: Scope,
    *,
    query: BaseModel | None = None,
    body: BaseModel | None = None,
    key: str | None = None,
    **path: str,
) -> Call:
    """What a handler of REST takes, for whoever asked for this page; raises `FORBIDDEN`, on record, without the scope.

    With `key`, what is asked for twice is done once.
    """
    caller: Caller = request.state.caller
    said = None if body is None else body.model_dump(mode="json")
    known = key_of(key or None, caller.id, [request.method, request.url.path, said])
    call = Call(request, caller, path, query or NoParams(), body, known)
    await call.need(scope)
    if not hasattr(request.state, "seq"):
        # Before anything is read: what happens from here on reaches the page as news.
        request.state.seq = await call.hf.journal.last_seq()
    return call


async def form(request: Request) -> dict[str, str]:
    """What a form says. A field that is there twice counts as its last; an empty one is not there."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise CallerError(
            "INVALID_ARGUMENT",
            "This takes what a form of the console sends.",
            hint="Programs use `/v1`: see `/openapi.json`.",
        )
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise CallerError("INVALID_ARGUMENT", "The form can't be read.") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def picked(request: Request, *names: str) -> dict[str, Any]:
    """Those of the query that say something."""
    said = {name: request.query_params.get(name, "").strip() for name in names}
    return {name: value for name, value in said.items() if value}
