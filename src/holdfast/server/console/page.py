"""Drawing a page. Everything that agents, tools, servers and people wrote is escaped: the templates have no way around it.

The policy that goes with each page lets a browser run and load only files of this server: no script or style is in a
page itself, so text that got into one as markup after all would still do nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from holdfast.server.callers import Caller
from holdfast.server.console import words
from holdfast.server.console.static import asset

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page may do."""

NAV = (
    ("inbox", "/", "Inbox", "i"),
    ("runs", "/runs", "Runs", "r"),
    ("sessions", "/sessions", "Sessions", "s"),
    ("charts", "/charts", "Charts", "c"),
    ("tools", "/tools", "Tools", "t"),
    ("journal", "/journal", "Journal", "j"),
)
"""Name, address, label, and the key after `g`."""

WAITS_ON = "approval,plan,run_parked,effect_result,effect_released"
"""The records that can change what waits for a person."""
_WAITS = (
    ("approvals", "pending", "pending"),
    ("plans", "pending", "pending"),
    ("effects", "open", "unknown"),
)
"""Projection, tag, and status of all that waits for a person."""
_MOST_COUNTED = 99


@lru_cache(1)
def environment() -> Environment:
    """The templates. A name that nobody gave is an error, not an empty place."""
    found = Environment(
        loader=PackageLoader("holdfast.server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tables = cast("Any", found)  # jinja2 does not say what they hold
    tables.filters.update(words.FILTERS)
    tables.globals.update(asset=asset, nav=NAV, now=words.now_ms, waits_on=WAITS_ON)
    return found


def _seen(value: object) -> object:
    """Any text, wherever a template puts it, with what can't be seen in it spelled out; it is escaped after this."""
    return words.visible(value) if type(value) is str else value


async def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **context: Any,
) -> Response:
    """A page, or a part of one, for whoever asks. Templates know `caller` (and `me`), `htmx`, `path` and `waiting` besides `context`."""
    caller: Caller | None = getattr(request.state, "caller", None)
    known = {
        "caller": caller,
        "me": caller,  # in a `call` block of jinja2, `caller` is something else
        "htmx": is_htmx(request),
        "path": request.url.path,
        "seq": getattr(request.state, "seq", None),
        "waiting": 0 if caller is None else await waiting(request, caller),
    }
    text = environment().get_template(template).render(known | context)
    return html(text, status, headers)


def html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A page with the policy that goes with all of them."""
    own = {
        "Content-Security-Policy": CSP,
        # With `no-referrer` a browser says of a plain form that it comes from `null`, and that is refused.
        "Referrer-Policy": "same-origin",
        "Vary": "HX-Request",
        **(headers or {}),
    }
    return Response(text, status, own, media_type="text/html")


def origin(conn: HTTPConnection) -> str:
    """Where this browser finds the server: what a link for it has to begin with."""
    secure = conn.app.state.tls or conn.url.scheme == "https"
    return f"{'https' if secure else 'http'}://{conn.url.netloc}"


def is_htmx(request: Request) -> bool:
    """Whether a script of the page asks, for a part; not a browser, for a page."""
    return request.headers.get("hx-request") == "true"


def alone(request: Request) -> bool:
    """Whether a part is for the page that shows this one thing and no other."""
    return "alone" in request.query_params


async def waiting(request: Request, caller: Caller) -> int:
    """How many things wait for a person, of those that the caller sees; not counted further than anybody reads."""
    if not caller.may("read"):
        return 0
    journal = request.app.state.hf.journal
    found = 0
    for projection, tag, status in _WAITS:
        rows = await journal.rows(projection, tag=tag, limit=1000)
        found += sum(
            row.value["status"] == status and caller.sees(row.value.get("session_id"))
            for row in rows
        )
    return min(found, _MOST_COUNTED + 1)
