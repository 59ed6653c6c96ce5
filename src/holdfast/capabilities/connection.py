"""Where tools come from that come and go: the seam between a supervised surface and whatever is behind it.

A source opens a connection; opening, using and closing it belong to one task, its owner, which the supervisor
(`runtime/surfaces.py`) starts. Everybody else only calls `Connection.call`, from any task, and is answered or
refused; a call that fails fails alone. Nothing here knows what is staged, visible or removed: that is the
supervisor's business, and the machine's (`machines/surface.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from holdfast.contracts import Capability, Json
from holdfast.gate.executor import Context


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool that a connection offers."""

    tool: str
    """What its server calls it."""
    capability: Capability
    """What code calls, and with what: its name is valid, and no other's of this surface."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What a connection offers, as of one moment."""

    tools: tuple[Offer, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tools that can't be offered, by what their server calls them, and why."""


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """Something that a connection has to read."""

    uri: str
    name: str
    description: str = ""
    mime: str | None = None
    size: int | None = None
    template: bool = False
    """Whether `uri` has parts to fill in."""


class Connection(Protocol):
    """An open connection."""

    offers: Offers
    """What it offers now."""
    changed: anyio.Event
    """Set when its server says that it offers something else now; `offers` is still as it was."""
    lost: anyio.Event
    """Set when the other side is gone. Calls that were under way fail."""
    server: str | None
    """What the other side calls itself, and its version."""
    protocol: str | None
    """The version of the protocol that it speaks."""
    instructions: str | None
    """What it wants a model to know."""

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call one of its tools. Raises `ToolError` for what the tool says went wrong, `NeedsAnswer`, or whatever."""
        ...

    async def resources(self) -> Sequence[ResourceLine]:
        """What there is to read."""
        ...

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        """A resource: its parts, each with its mime type."""
        ...

    async def check(self) -> None:
        """Return if it is alive; raise if not."""
        ...


class Source(Protocol):
    """What a surface is connected to."""

    def open(self) -> AbstractAsyncContextManager[Connection]:
        """A new connection; leaving it ends whatever was started for it, processes and tasks, whatever state it is in."""
        ...
