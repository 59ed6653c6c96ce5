"""What an open page asks for again when something happened. What happened comes by `/v1/events`, and says no more than that."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.console.asking import ask
from holdfast.server.console.page import render


def routes() -> list[BaseRoute]:
    """`GET /inbox/count`."""
    return [Route("/inbox/count", _count, methods=["GET"])]


async def _count(request: Request) -> Response:
    """How many things wait."""
    await ask(request, "read")
    return await render(request, "_count.html")
