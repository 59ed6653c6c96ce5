"""What went wrong, as a page: for people. Programs get the same as JSON, also when they ask for a page."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.server.console.page import environment, html, origin
from holdfast.server.errors import error_response

_NOT_PAGES = ("/v1/", "/rpc", "/mcp", "/static/", "/openapi.json", "/healthz", "/metrics")
"""Starts of paths that programs use."""


def wants_page(conn: HTTPConnection) -> bool:
    """Whether a person looks at the answer."""
    if conn.scope["path"].startswith(_NOT_PAGES):
        return False
    return "text/html" in conn.headers.get("accept", "") or _by_script(conn)


def tell(conn: HTTPConnection, error: HoldfastError, status: int) -> Response | None:
    """The page that tells it. A script of a page gets a notice to put into a corner instead."""
    if not wants_page(conn):
        return None
    plain = error_response(error).headers
    # Not `WWW-Authenticate`: nobody types a token into a browser.
    headers = {"Retry-After": plain["retry-after"]} if "retry-after" in plain else {}
    if _by_script(conn):
        name = "_toast.html"
        headers |= {"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"}
    else:
        name = "sign_in.html" if error.code == "UNAUTHENTICATED" else "error.html"
    caller = conn.scope.get("state", {}).get("caller")
    text = (
        environment()
        .get_template(name)
        .render(
            error=error,
            status=status,
            caller=caller,
            htmx=_by_script(conn),
            path=conn.scope["path"],
            used=conn.scope["path"] == "/enter",
            origin=origin(conn),
            waiting=0,
            seq=None,
        )
    )
    return html(text, status, headers)


def _by_script(conn: HTTPConnection) -> bool:
    return conn.headers.get("hx-request") == "true"
