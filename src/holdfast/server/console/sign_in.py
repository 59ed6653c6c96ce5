"""Signing out. Signing in is a link that is good once: `/enter`, which the server itself has."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import CallerError
from holdfast.server.auth import COOKIE, SECURE_COOKIE
from holdfast.server.callers import Caller
from holdfast.server.console.page import environment, html, origin

_BROWSER = "browser:"


def routes() -> list[BaseRoute]:
    """`POST /sign-out`."""
    return [Route("/sign-out", _sign_out, methods=["POST"])]


async def _sign_out(request: Request) -> Response:
    """End what this browser has: here, and wherever a copy of its cookie might be."""
    caller: Caller = request.state.caller
    if not caller.id.startswith(_BROWSER):
        raise CallerError(
            "INVALID_ARGUMENT",
            "Only a browser that came by a link can sign out.",
            hint="`holdfast token revoke` ends a token.",
        )
    await request.app.state.tokens.revoke(caller.id.removeprefix(_BROWSER), actor=caller.id)
    text = (
        environment()
        .get_template("signed_out.html")
        .render(
            caller=None,
            htmx=False,
            path="/sign-out",
            waiting=0,
            seq=None,
            origin=origin(request),
        )
    )
    answer = html(text)
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        answer.delete_cookie(name, secure=secure, httponly=True, samesite="strict")
    return answer
