"""The console: pages for people, at `/`. Drawn by the server from the readings that REST gives, and only those.

`page` draws, `static` serves what pages need, `acting` takes what forms send. One module for each page has its routes.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import BaseRoute

from holdfast.errors import HoldfastError

PAGES = (
    "static",
    "sign_in",
    "live",
    "inbox",
    "doubts",
    "sessions",
    "runs",
    "run",
    "charts",
    "surfaces",
    "journal",
)
"""Modules that have routes: each exports `routes() -> list[BaseRoute]`."""


def routes() -> list[BaseRoute]:
    """All pages."""
    found: list[BaseRoute] = []
    for name in PAGES:
        if find_spec(f"{__name__}.{name}") is not None:
            part: Any = import_module(f"{__name__}.{name}")
            found.extend(part.routes())
    return found


def tell(conn: HTTPConnection, error: HoldfastError, status: int) -> Response | None:
    """An error as a page, for who looks at pages; else `None`."""
    from holdfast.server.console import errors

    return errors.tell(conn, error, status)
