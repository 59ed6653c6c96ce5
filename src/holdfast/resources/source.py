"""The seam of resources: a resolver opens what a URI names, a source gives bytes of it.

A source is opened, read and closed by one task. It never has to hold the whole: what reads it asks for a piece
at a time, so that a file larger than memory is read like any other.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.contracts import Privacy, Retention
from holdfast.contracts.resource import ListRequest, ResourceList, ResourceRequest


class Source(Protocol):
    """Something open that has bytes."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole; `None` when nobody knows."""
        ...

    @property
    def mime(self) -> str | None:
        """What it is said to be; the bytes have the last word."""
        ...

    @property
    def version(self) -> str | None:
        """Changes when the bytes do; `None` when nobody knows."""
        ...

    async def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on: fewer if that is easier, none only at the end."""
        ...

    async def aclose(self) -> None:
        """Let go."""
        ...


class Resolver(Protocol):
    """Opens the resources of a scheme. What is not allowed is refused here, with `PERMISSION_DENIED`."""

    async def open(self, request: ResourceRequest) -> Source:
        """What `request.uri` names, on behalf of `request.session_id`. Whoever asked closes it."""
        ...


@runtime_checkable
class Lister(Protocol):
    """A resolver that can also say what there is. None has to."""

    async def list(self, request: ListRequest) -> ResourceList:
        """What is below `request.prefix`; for a bare scheme, where it all begins."""
        ...


class Held:
    """A source whose bytes are in memory already, for resolvers of small things."""

    def __init__(
        self,
        data: bytes,
        mime: str | None = None,
        *,
        version: str | None = None,
        privacy: Privacy = Privacy.CONTENT_REFS_ONLY,
        retention: Retention = Retention.SESSION_SCOPED,
    ) -> None:
        self.data = data
        self.mime = mime
        self.version = version
        self.privacy = privacy
        """Who may see it; what comes of it inherits this."""
        self.retention = retention
        """How long it is kept; what comes of it inherits this."""

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        return len(self.data)

    async def read(self, start: int, length: int) -> bytes:
        """A piece."""
        return self.data[start : start + length]

    async def aclose(self) -> None:
        """Nothing to let go of."""
