"""Who asks: a program with a token, or a browser with a cookie. And from where: what other sites make a browser do is refused.

A page of another site can make a browser send requests here. It can't read the token of a program, so bearer tokens
need no more care. A cookie is sent by the browser itself: so it is `SameSite=Strict`, and a request that changes
something must come from a page of ours (`Origin`). And a name that an attacker points at this machine (DNS rebinding)
is no name of ours (`Host`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from starlette.requests import HTTPConnection

from holdfast.contracts.token import TokenView
from holdfast.errors import CallerError
from holdfast.server.callers import Caller
from holdfast.server.tokens import BROWSER, Tokens, refused

COOKIE = "holdfast"
SECURE_COOKIE = "__Host-holdfast"
"""The cookie of a browser that came by a link; with TLS, one that no other name or plain page can set."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_BEARER = "bearer "
_WAYS = {"/rpc": "rpc", "/mcp": "mcp"}
"""How somebody comes in, by the path; else `http`."""


async def caller_of(
    conn: HTTPConnection, tokens: Tokens, names: Collection[str] = ()
) -> Caller | None:
    """Whoever asks; `None` without a word about that. Raises `UNAUTHENTICATED` or `FORBIDDEN`.

    `names` are those of this server that were given to it.
    """
    said = conn.headers.get("authorization")
    if said is not None:
        if said[: len(_BEARER)].lower() != _BEARER:
            raise refused()
        view = await tokens.check(said[len(_BEARER) :].strip())
        if view.kind != "api":
            raise refused()  # what is in a cookie is good for nothing else
        return _program(view, conn.scope["path"])
    cookie = conn.cookies.get(SECURE_COOKIE) or conn.cookies.get(COOKIE)
    if cookie is None:
        return None
    view = await tokens.check(cookie)
    if view.kind != "browser":
        raise refused()
    scheme = "https" if conn.scope["scheme"] in ("https", "wss") else "http"
    check_origin(conn.scope.get("method", "GET"), conn.headers, scheme, names)
    return Caller(
        f"browser:{view.id}",
        frozenset(view.scopes),
        view.prefix,
        via=f"console:{view.id}",
        token=view.id,
        name=None if view.name == BROWSER else view.name,
    )


def _program(view: TokenView, path: str) -> Caller:
    way = next((name for start, name in _WAYS.items() if path.startswith(start)), "http")
    return Caller(
        f"token:{view.id}",
        frozenset(view.scopes),
        view.prefix,
        via=f"{way}:token:{view.id}",
        token=view.id,
    )


def check_origin(
    method: str, headers: Mapping[str, str], scheme: str, names: Collection[str] = ()
) -> None:
    """Refuse what a page of another site makes a signed-in browser do: `FORBIDDEN`.

    Such a page has another scheme, name or port. Only where we have a name, something in front may speak TLS for us.
    """
    if method in SAFE and headers.get("upgrade", "").lower() != "websocket":
        return
    origin = headers.get("origin")
    if origin is not None:
        host = headers.get("host", "-").lower()
        schemes = (scheme, "https") if _name_in(host) in names else (scheme,)
        same = origin.lower() in [f"{one}://{host}" for one in schemes]
    else:
        same = headers.get("sec-fetch-site") == "same-origin"
    if not same:
        raise CallerError(
            "FORBIDDEN",
            "A signed-in browser may ask for this only from a page of this server.",
            hint="Programs send a token instead of the cookie; behind a proxy, `serve --public-url` says its address.",
        )


def check_host(headers: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse a request to a name that is not ours: `FORBIDDEN`. An address can't be made to point elsewhere."""
    name = _name_in(headers.get("host", ""))
    if name in ("localhost", *names) or _is_address(name):
        return
    raise CallerError(
        "FORBIDDEN",
        f"`{name[:80]}` is no name of this server.",
        hint="`holdfast serve --name NAME` makes it one.",
    )


def _name_in(host: str) -> str:
    """The name, without a port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookie_header(text: str, *, secure: bool, seconds: int) -> str:
    """What makes a browser keep a token, out of reach of pages and of other sites."""
    name = SECURE_COOKIE if secure else COOKIE
    parts = [f"{name}={text}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={seconds}"]
    return "; ".join([*parts, "Secure"] if secure else parts)
