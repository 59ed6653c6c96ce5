"""The door: what every request passes before anything of ours sees it. In this order:

is the name ours, is the address too eager, who is it, are they too eager, is the request small and quick enough. What leaves
gets the headers that keep browsers from being used against us. Who stays longer than a request is looked at again, see
`standing`.
"""

from __future__ import annotations

import re

import anyio
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import CallerError, HoldfastError
from holdfast.server.auth import SAFE, caller_of, check_host
from holdfast.server.callers import Caller
from holdfast.server.errors import TooMany, told
from holdfast.server.limits import Buckets, Limits
from holdfast.server.refusals import Refusals
from holdfast.server.standing import Standing
from holdfast.server.tokens import Tokens, refused

OPEN = frozenset({"/healthz", "/openapi.json", "/enter"})
"""Paths that answer anybody. `request.state.caller` may be `None` there, and nowhere else."""
OPEN_UNDER = ("/static/",)
"""The same for all below these."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Unless an answer has its own."""
_HSTS = "max-age=31536000"
_RESTORE = re.compile(r"/v1/sessions/[^/]+/restore")
"""Requests that bring a snapshot, besides those of `/rpc`."""
_OF_STRANGERS = 4096
"""Bytes of a request whose caller nobody knows."""


class Door:
    """Middleware around the whole app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        refusals: Refusals,
        limits: Limits,
        names: frozenset[str] = frozenset(),
        tls: bool = False,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._refusals = refusals
        self._limits = limits
        self._names = names
        self._headers = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
        if tls:
            self._headers.append((b"strict-transport-security", _HSTS.encode()))
        self._by_token = Buckets(limits.token)
        self._by_address = Buckets(limits.address)
        self._failures = Buckets(limits.failures)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        conn = HTTPConnection(scope)
        dressed = self._dressed(send)
        try:
            caller = await self._let_in(conn)
            scope.setdefault("state", {})["caller"] = caller
            body = await self._body(scope, receive, caller)
        except HoldfastError as why:
            if scope["type"] == "websocket":
                await dressed({"type": "websocket.close", "code": 1008, "reason": why.code})
                return
            await told(conn, why)(scope, receive, dressed)
            return
        if caller is None or caller.token is None:
            await self._app(scope, body, dressed)
            return
        await Standing(self._tokens, caller.token, body, dressed).serve(self._app, scope)

    # -- who ------------------------------------------------------------------------------------------

    async def _let_in(self, conn: HTTPConnection) -> Caller | None:
        check_host(conn.headers, self._names)
        address = conn.client.host if conn.client is not None else "local"
        _take(self._by_address, address)
        path: str = conn.scope["path"]
        anybody = path in OPEN or path.startswith(OPEN_UNDER)
        try:
            caller = await caller_of(conn, self._tokens, self._names)
            if caller is None and not anybody:
                raise refused()
        except CallerError as why:
            if anybody:
                return None
            if conn.headers.get("authorization") or conn.cookies:
                _take(self._failures, address)
                await self._note(why.code, f"address:{address}"[:100], conn)
            raise
        if caller is not None:
            _take(self._by_token, caller.id)
        return caller

    async def _note(self, code: str, via: str, conn: HTTPConnection) -> None:
        method = conn.scope.get("method", "GET")
        await self._refusals.note(
            code, actor="anybody", via=via, method=method, path=conn.scope["path"]
        )

    # -- what -----------------------------------------------------------------------------------------

    def _most(self, path: str, caller: Caller | None) -> int:
        """Bytes that a request may have. Of a stranger next to nothing is kept, whatever it is about."""
        if caller is None:
            return _OF_STRANGERS
        brings = path == "/rpc" or _RESTORE.fullmatch(path) is not None
        return self._limits.max_snapshot if brings and caller.may("run") else self._limits.max_body

    async def _body(self, scope: Scope, receive: Receive, caller: Caller | None) -> Receive:
        """Read the request to its end, as far as it is small and quick enough; the app gets it from here."""
        if scope["type"] != "http" or scope["method"] in SAFE:
            return receive
        limits = self._limits
        most = self._most(scope["path"], caller)
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        with anyio.move_on_after(limits.body_seconds) as scope_:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    break  # gone; whatever the app does about it
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                if size > most:
                    raise _too_large(most)
                if not message.get("more_body", False):
                    break
        if scope_.cancelled_caught:
            raise CallerError(
                "REQUEST_TIMEOUT",
                f"The request did not come in within {limits.body_seconds:g} s.",
                hint="Send it faster, or in parts.",
            )
        return _Replayed(b"".join(parts), receive).receive

    def _dressed(self, send: Send) -> Send:
        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in self._headers if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return dressed


class _Replayed:
    """A request's body, once more; after it, what the client does next."""

    def __init__(self, body: bytes, rest: Receive) -> None:
        self._body: bytes | None = body
        self._rest = rest

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._rest()


def _take(buckets: Buckets, key: str) -> None:
    seconds = buckets.take(key)
    if seconds > 0:
        raise TooMany(seconds)


def _too_large(most: int) -> CallerError:
    return CallerError(
        "REQUEST_TOO_LARGE",
        f"The request has more than {most} bytes.",
        hint="Hand big things in as resources, or in parts.",
    )
