"""`mcp:`: what tool servers have to read, as `mcp://SURFACE/` and the server's own URI after that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from holdfast.contracts.resource import ListRequest, ResourceEntry, ResourceList, ResourceRequest
from holdfast.errors import CallerError, ModelError
from holdfast.resources.source import Held, Source

MAX_RESOURCE_BYTES = 32 << 20
"""A server gives a resource as a whole; a greater one is refused."""
MAX_URI_CHARS = 8192
"""Of a URI, the server's own included."""

_SURFACE = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Servers(Protocol):
    """The tool servers that a session sees. Each method says so with `NOT_FOUND` when it does not see one."""

    async def read(self, surface: str, uri: str) -> Sequence[tuple[bytes, str]]:
        """A server's resource: its parts, each with its mime type."""
        ...

    async def resources(self, surface: str) -> Sequence[ResourceEntry]:
        """What a server has, with the server's own URIs."""
        ...

    async def surfaces(self) -> Sequence[str]:
        """The names of the servers that have something to read."""
        ...


class McpResolver:
    """Opens `mcp:` URIs."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def open(self, request: ResourceRequest) -> Source:
        """What the server gives; several parts of text are put together."""
        surface, uri = split(request.uri)
        if not uri:
            raise _bad(request.uri)
        parts = await self._servers.read(surface, uri)
        size = sum(len(data) for data, _ in parts)
        if size > MAX_RESOURCE_BYTES:
            raise ModelError(
                "RESPONSE_TOO_LARGE",
                f"The server gave {size} bytes; at most {MAX_RESOURCE_BYTES} are taken.",
                hint="Ask the server for less, with one of its tools.",
            )
        if len(parts) == 1:
            return Held(*parts[0])
        if not all(mime.startswith("text/") for _, mime in parts):
            raise ModelError(
                "TOOL_ERROR",
                f"The server gave {len(parts)} parts that are not all text.",
                hint="Read what is below it by itself: see `list_resources`.",
            )
        return Held(b"\n".join(data for data, _ in parts), "text/plain")

    async def list(self, request: ListRequest) -> ResourceList:
        """What a server has; without one, the servers."""
        if not request.prefix.partition(":")[2].strip("/"):
            names = sorted(await self._servers.surfaces())
            return _page(
                [ResourceEntry(uri=f"mcp://{one}/", kind="root", name=one) for one in names],
                request,
            )
        surface, below = split(request.prefix)
        found = await self._servers.resources(surface)
        items = [
            one.model_copy(update={"uri": f"mcp://{surface}/{one.uri}"})
            for one in found
            if one.uri.startswith(below)
        ]
        return _page(sorted(items, key=lambda one: one.uri), request)


def split(uri: str) -> tuple[str, str]:
    """The surface and the server's own URI, as it is: nothing in it is decoded."""
    rest = uri.partition(":")[2]
    surface, _, own = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _SURFACE.fullmatch(surface) or len(uri) > MAX_URI_CHARS:
        raise _bad(uri)
    if not own.isprintable():
        raise _bad(uri)
    return surface, own


def _page(items: Sequence[ResourceEntry], request: ListRequest) -> ResourceList:
    rest = [one for one in items if request.after is None or one.uri > request.after]
    more = len(rest) > request.limit
    shown = tuple(rest[: request.limit])
    return ResourceList(items=shown, next=shown[-1].uri if more else None)


def _bad(uri: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"`{uri[:200].encode('unicode_escape').decode()}` names no resource of a tool server.",
        hint="Write `mcp://NAME/` and then the server's own URI.",
    )
