"""`https:` and `http:`: the hosts on the list, and no others. What connects is handed in, and checks every address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.contracts.resource import ListRequest, ResourceEntry, ResourceList, ResourceRequest
from holdfast.errors import ModelError
from holdfast.resources.router import scheme_of
from holdfast.resources.source import Source


class Downloads(Protocol):
    """Fetches from the hosts that are allowed."""

    async def open(self, url: str) -> Source:
        """What a URL of an allowed host has; redirects are followed as long as they stay allowed."""
        ...

    def roots(self) -> Sequence[str]:
        """The hosts, as beginnings of URLs."""
        ...


class WebResolver:
    """Opens `https:` and `http:` URIs of allowed hosts."""

    def __init__(self, downloads: Downloads) -> None:
        self._downloads = downloads

    async def open(self, request: ResourceRequest) -> Source:
        """What the server has; raises `PERMISSION_DENIED` for a host that is not on the list."""
        return await self._downloads.open(request.uri)

    async def list(self, request: ListRequest) -> ResourceList:
        """The hosts; what they have, nobody can list."""
        scheme = scheme_of(request.prefix)
        if request.prefix.removeprefix(scheme).strip(":/"):
            raise ModelError(
                "TOOL_ERROR",
                f"What is below `{request.prefix[:200]}` can't be listed.",
                hint="Read a page that links to it.",
            )
        roots = [one for one in self._downloads.roots() if one.startswith(f"{scheme}:")]
        return ResourceList(
            items=tuple(ResourceEntry(uri=one, kind="root", name=one) for one in sorted(roots))
        )
