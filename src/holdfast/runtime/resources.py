"""What a session can read by URI: its mounts, its hosts, its own content, its tool servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.capabilities.connection import Connection
from holdfast.capabilities.foreign import Foreign
from holdfast.contracts import Body, ContentRef, Draft, Retention, Setup, SideEffect
from holdfast.contracts.resource import ResourceEntry
from holdfast.errors import NotFound
from holdfast.gate.executor import Context
from holdfast.journal import Journal
from holdfast.resources import Resources, resource_tools
from holdfast.resources.resolvers.content import ContentResolver, Scan
from holdfast.resources.resolvers.data import DataResolver
from holdfast.resources.resolvers.files import FileResolver
from holdfast.resources.resolvers.mcp import McpResolver
from holdfast.resources.resolvers.web import WebResolver
from holdfast.runtime._resource_sources import AllowedHosts, MountedFolders

KEPT = "holdfast:resources"
"""The stream of what sessions had stored by reference; nobody leases it."""
KEPT_KIND = "resource.kept"


class Connected(Protocol):
    """The tool servers that are connected now; `Surfaces` is this."""

    def connection(self, name: str) -> Connection:
        """The connection of one; raises when there is none."""
        ...

    def seen_by(self, setup: Setup) -> Sequence[str]:
        """Those that a session sees."""
        ...


def make_resources(
    setup: Setup, journal: Journal | None, *, connected: Connected | None = None
) -> Resources:
    """What a session that was opened with `setup` can read."""
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
        router.register("content", ContentResolver(journal, Kept(journal)))
    if connected is not None:
        router.register("mcp", McpResolver(Servers(connected, setup)))
    return found


def resource_capabilities(
    resources: Resources, journal: Journal | None = None, clean: Callable[[bytes], bytes] = bytes
) -> list[Foreign]:
    """These resources as capabilities; `clean` takes secrets out of what is stored."""
    store = None if journal is None else Kept(journal, clean)
    return [Foreign(one, act) for one, act in resource_tools(resources, store=store)]


class Kept:
    """Bodies that were stored on behalf of calls, each until its run has ended; and who may refer to them."""

    def __init__(self, journal: Journal, clean: Callable[[bytes], bytes] = bytes) -> None:
        self._journal = journal
        self._clean = clean
        self._scan = Scan(journal)

    async def keep(self, body: Body, context: Context) -> str:
        """Store a body, cleaned; the digest of what was stored."""
        ref = body.ref
        # In a stream of its own, which no session's end reaches; a run's end does.
        kept = Body.of(
            self._clean(body.data),
            role=ref.role,
            mime=ref.mime,
            privacy=ref.privacy,
            retention=Retention.RUN_SCOPED,
        )
        said = {"session_id": context.session_id, "effect_id": context.effect_id}
        draft = Draft(kind=KEPT_KIND, payload=dict(said), run_id=context.run_id, bodies=(kept,))
        await self._journal.append(KEPT, [draft], durable=False)
        return kept.ref.digest

    async def find(self, digest: str, session_id: str) -> ContentRef | None:
        """How a session's records refer to a body."""
        found = await self._scan.find(digest, session_id)
        if found is not None:
            return found
        async for record in self._journal.read(KEPT):
            if record.payload.get("session_id") == session_id:
                for ref in record.content:
                    if ref.digest == digest:
                        return ref
        return None


class Servers:
    """The tool servers that a session sees."""

    def __init__(self, connected: Connected, setup: Setup) -> None:
        self._connected = connected
        self._setup = setup

    async def read(
        self, surface: str, uri: str, session_id: str | None
    ) -> Sequence[tuple[bytes, str]]:
        """A server's resource."""
        return await self._connection(surface).read(uri)

    async def resources(self, surface: str, session_id: str | None) -> list[ResourceEntry]:
        """What a server has."""
        return [
            ResourceEntry(
                uri=one.uri,
                kind="resource",
                name=one.name,
                size=one.size,
                mime=one.mime,
                description=one.description,
            )
            for one in await self._connection(surface).resources()
        ]

    async def surfaces(self, session_id: str | None) -> list[str]:
        """The servers there are for this session."""
        return [*self._connected.seen_by(self._setup)]

    def _connection(self, surface: str) -> Connection:
        if surface not in self._connected.seen_by(self._setup):
            raise NotFound("NOT_FOUND", f"The session has no tool server `{surface}`.")
        return self._connected.connection(surface)
