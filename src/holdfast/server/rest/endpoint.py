"""One operation of the REST interface: what is asked, who may, what is answered. Routes and OpenAPI are made from it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.contracts import parse
from holdfast.errors import CallerError, NotFound
from holdfast.server.callers import Caller, Scope
from holdfast.server.errors import json_response
from holdfast.server.idempotency import Key, Keys, key_of
from holdfast.server.params import NoParams
from holdfast.server.work import Work

if TYPE_CHECKING:
    from holdfast.runtime import Runtime


_THINGS = {
    "runs": ("run", "`GET /v1/runs` lists those there are."),
    "approvals": ("approval", "`GET /v1/approvals` lists what waits."),
    "plans": ("plan", "A dry run makes one."),
    "effects": ("effect", "`GET /v1/runs/RUN` lists those of a run."),
}
"""Projections whose rows requests name → what one is called, and where to look for it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with another status than usual, or with headers."""

    value: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as its handler sees it."""

    request: Request
    caller: Caller
    path: dict[str, str]
    query: Any
    """As the endpoint's model says."""
    body: Any
    """As the endpoint's model says."""
    key: Key | None = None
    """What the request is known by, if its caller gave it a key."""

    @property
    def hf(self) -> Runtime:
        """The open runtime."""
        return self.request.app.state.hf

    @property
    def work(self) -> Work:
        """Runs under way."""
        return self.request.app.state.work

    @property
    def keys(self) -> Keys:
        """What keys stand for."""
        return self.request.app.state.keys

    # `Any`: models and JSON.
    async def once(self, make: Callable[[], Awaitable[Any]]) -> Response:
        """The answer that `make` gives: the one of before, if the request has the same key."""

        async def made() -> Response:
            return json_response(await make())

        return await self.keys.once(self.key, made)

    async def need(self, scope: Scope) -> None:
        """Raise `FORBIDDEN` unless the caller has this scope, and put that on record."""
        try:
            self.caller.need(scope)
        except CallerError as why:
            await self.refuse(why.code)
            raise

    async def own(self, projection: str, key: str) -> dict[str, Any]:
        """What is on record about a thing of the caller's. Raises the same for another's as for what there is not."""
        row = await self.hf.journal.row(projection, key)
        session = None if row is None else row.get("session_id")
        if row is None or not self.caller.sees(session if isinstance(session, str) else None):
            raise await self.none(projection, key)
        return row

    async def none(self, projection: str, key: str) -> NotFound:
        """The refusal of a thing that is not there, or not the caller's. That a tenant asked goes on record."""
        if self.caller.prefix is not None:
            await self.refuse("NOT_FOUND")
        what, hint = _THINGS[projection]
        return NotFound("NOT_FOUND", f"There is no {what} `{key[:80]}`.", hint=hint)

    async def mine(self, session_id: str | None, what: str = "session, run or record") -> None:
        """Raise `NOT_FOUND` for what is of another's session, and put that on record."""
        if self.caller.sees(session_id):
            return
        await self.refuse("NOT_FOUND")
        raise NotFound("NOT_FOUND", f"There is no such {what}.")

    async def refuse(self, code: str) -> None:
        """Put a refusal on record."""
        await self.request.app.state.refusals.note(
            code,
            actor=self.caller.id,
            via=self.caller.via,
            method=self.request.method,
            path=self.request.url.path,
        )

    async def admin_only(self, what: str) -> NoReturn:
        """Refuse what only `admin` may: `FORBIDDEN`."""
        await self.refuse("FORBIDDEN")
        raise CallerError(
            "FORBIDDEN",
            f"{what} needs the scope `admin`.",
            hint="Leave it out, or ask the operator.",
        )


Handle = Callable[[Call], Awaitable[Any]]
"""`Any`: models and JSON, an `Answer`, or a `Response` as it is."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation."""

    method: str
    path: str
    handle: Handle
    scope: Scope
    """What the caller needs."""
    summary: str
    answer: Any
    """The type of the answer."""
    about: str = ""
    """More than the summary says."""
    query: type[BaseModel] = NoParams
    body: type[BaseModel] | None = None
    status: int = 200
    later: bool = False
    """Whether the answer may be 202: it is not done yet."""
    keyed: bool = False
    """Whether an `Idempotency-Key` is seen to here. What starts a run (`later` alone) sees to it itself."""
    errors: tuple[int, ...] = ()
    """Beside those that are always possible."""
    example: Any = None
    """A body."""
    gives: Any = None
    """An answer."""
    tag: str = ""

    def route(self) -> Route:
        """Its route."""

        async def handle(request: Request) -> Response:
            return await self._handled(request)

        return Route(self.path, handle, methods=[self.method], name=self.name)

    @property
    def name(self) -> str:
        """What the operation is called."""
        return self.handle.__name__.removeprefix("_")

    async def _handled(self, request: Request) -> Response:
        caller: Caller = request.state.caller
        body = await request.body()
        await Call(request, caller, {}, None, None).need(self.scope)
        said: Any = _loaded(body) if self.body is not None else None
        key = key_of(
            request.headers.get("idempotency-key") if self.keyed or self.later else None,
            caller.id,
            [self.method, request.url.path, sorted(request.query_params.multi_items()), said],
        )
        call = Call(
            request,
            caller,
            dict(request.path_params),
            parse(self.query, _query(request)),
            None if self.body is None else parse(self.body, said),
            key,
        )
        return await call.work.answer(partial(self._answered, call))

    async def _answered(self, call: Call) -> Response:
        if self.later and not self.keyed:
            return await self._made(call)
        return await call.keys.once(call.key, lambda: self._made(call))

    async def _made(self, call: Call) -> Response:
        found = await self.handle(call)
        if isinstance(found, Response):
            return found
        if not isinstance(found, Answer):
            found = Answer(found, self.status)
        return json_response(found.value, found.status, found.headers)


def _query(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise CallerError("INVALID_ARGUMENT", f"`{name[:80]}` is given twice.")
        found[name] = value
    return found


def _loaded(body: bytes) -> Any:
    """A body in JSON; none at all is an empty one."""
    if not body.strip():
        return {}
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"The body is not JSON: {str(why)[:200]}.",
            hint="Send a JSON object, in UTF-8.",
        ) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
