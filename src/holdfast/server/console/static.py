"""What pages need besides themselves: style, script, pictures. From the package; known by what is in them.

A page names each with a part of its digest, so a browser may keep it for good, and gets another when it changes.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import digest
from holdfast.errors import NotFound

PATH = "/static/console/"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOR_GOOD = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file of the package."""

    data: bytes
    tag: str
    """Part of its digest."""


@lru_cache(1)
def assets() -> dict[str, Asset]:
    """All of them, by their path below `static/`."""
    found: dict[str, Asset] = {}
    folder = files(__package__ or "") / "static"
    for start, place in (("", folder), ("vendor/", folder / "vendor")):
        for one in place.iterdir():
            if one.is_file() and one.name.rpartition(".")[2] in _TYPES:
                data = one.read_bytes()
                found[start + one.name] = Asset(data, digest(data).rpartition(":")[2][:12])
    return found


def asset(name: str) -> str:
    """The address of one, as pages name it."""
    return f"{PATH}{name}?v={assets()[name].tag}"


def routes() -> list[BaseRoute]:
    """`GET /static/console/…`, for anybody: there is nothing in it that is not in the package."""
    return [Route(f"{PATH}{{name:path}}", _serve, methods=["GET"])]


async def _serve(request: Request) -> Response:
    name = request.path_params["name"]
    found = assets().get(name)
    if found is None:
        raise NotFound("NOT_FOUND", "There is no such file.")
    named = request.query_params.get("v") == found.tag
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": _FOR_GOOD if named else "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
