"""What a session can read by URI: its mounts, its hosts, its own content, its tool servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.capabilities.connection import Connection
from holdfast.capabilities.foreign import Foreign
from holdfast.contracts import Setup, SideEffect
from holdfast.contracts.resource import ResourceEntry
from holdfast.errors import NotFound
from holdfast.journal import Journal
from holdfast.resources import Resources, resource_tools
from holdfast.resources.resolvers.content import ContentResolver
from holdfast.resources.resolvers.data import DataResolver
from holdfast.resources.resolvers.files import FileResolver
from holdfast.resources.resolvers.mcp import McpResolver, split
from holdfast.resources.resolvers.web import WebResolver
from holdfast.runtime._resource_sources import AllowedHosts, MountedFolders


class Connected(Protocol):
    """The tool servers that are connected now; `Surfaces` is this."""

    def connection(self, name: str) -> Connection:
        """The connection of one; raises when there is none."""
        ...

    def seen_by(self, setup: Setup) -> Sequence[str]:
        """Those that a session sees."""
        ...

    def readable(self, setup: Setup) -> Sequence[str]:
        """Those of them that have something to read, as far as they have said so by now."""
        ...

    def speaks(self, setup: Setup) -> bool:
        """Whether one of them may give bodies by reference."""
        ...

    def touches(self, name: str) -> SideEffect:
        """What reading from one touches."""
        ...

    async def boundary(self, setup: Setup) -> None:
        """Connect what a session sees that is opened like this."""
        ...


def make_resources(
    setup: Setup,
    journal: Journal | None,
    *,
    connected: Connected | None = None,
    under_way: bool = False,
) -> Resources:
    """What a session that was opened with `setup` can read.

    `under_way`: for code that runs, whose boundary has connected what there is; else it is connected when it is read.
    """
    found = Resources()
    router = found.router
    router.register("data", DataResolver())
    if setup.mounts:
        router.register("file", FileResolver(MountedFolders(setup.mounts)))
    if setup.allow_hosts:
        web = WebResolver(AllowedHosts(setup.allow_hosts))
        router.register("https", web, side_effect=SideEffect.NETWORK)
        router.register("http", web, side_effect=SideEffect.NETWORK)
    if journal is not None:
        router.register("content", ContentResolver(journal))
    if connected is not None:
        servers = Servers(connected, setup, under_way=under_way)
        router.register(
            "mcp", McpResolver(servers), effect_of=servers.effect, effects=servers.effects()
        )
    return found


def resource_capabilities(resources: Resources, *, keeps: bool = False) -> list[Foreign]:
    """These resources as capabilities; with `keeps`, for a session whose journal has what is kept (`content:`)."""
    return [Foreign(one, act) for one, act in resource_tools(resources, keeps=keeps)]


def session_resources(
    setup: Setup, journal: Journal | None, connected: Connected | None = None
) -> list[Foreign]:
    """What a session is given to read with; nothing, where it has nothing to read.

    Every session can be read its own content. That alone is no reason for tools: only with a folder, a host, or a
    tool server, which gives pictures and other bodies by reference, there is something that is not at hand already.
    """
    reads = () if connected is None else connected.readable(setup)
    speaks = connected is not None and connected.speaks(setup)
    if not (setup.mounts or setup.allow_hosts or reads or speaks):
        return []
    found = make_resources(setup, journal, connected=connected if reads else None, under_way=True)
    return resource_capabilities(found, keeps=True)


class Servers:
    """The tool servers that a session sees."""

    def __init__(self, connected: Connected, setup: Setup, *, under_way: bool) -> None:
        self._connected = connected
        self._setup = setup
        self._under_way = under_way

    async def read(self, surface: str, uri: str) -> Sequence[tuple[bytes, str]]:
        """A server's resource."""
        return await (await self._connection(surface)).read(uri)

    async def resources(self, surface: str) -> list[ResourceEntry]:
        """What a server has."""
        connection = await self._connection(surface)
        return [
            ResourceEntry(
                uri=one.uri,
                kind="resource",
                name=one.name,
                size=one.size,
                mime=one.mime,
                description=one.description,
            )
            for one in await connection.resources()
        ]

    async def surfaces(self) -> list[str]:
        """The servers there are for this session, and have something to read."""
        await self._connect()
        return [*self._connected.readable(self._setup)]

    def effect(self, uri: str) -> SideEffect:
        """What reading a server's resource touches: that of one at an address, the network."""
        return self._connected.touches(split(uri)[0])

    def effects(self) -> set[SideEffect]:
        """What reading may touch."""
        names = self._connected.readable(self._setup)
        return {self._connected.touches(one) for one in names} or {SideEffect.READ}

    async def _connect(self) -> None:
        """Connect what there is by now; a run sees nothing else before its next boundary."""
        if not self._under_way:
            await self._connected.boundary(self._setup)

    async def _connection(self, surface: str) -> Connection:
        await self._connect()
        if surface not in self._connected.seen_by(self._setup):
            raise NotFound(
                "NOT_FOUND",
                f"The session has no tool server `{surface[:80]}`.",
                hint="List the resources, or `holdfast mcp list`, to see which there are.",
            )
        return self._connected.connection(surface)
