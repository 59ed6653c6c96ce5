"""Clients that want to know when a resource changes: told by the journal, each of what it may see."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from holdfast.contracts import Gap, Record
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.server.callers import Caller
from holdfast.server.mcp.client import Context
from holdfast.server.mcp.resources import JOURNAL, RUNS, SESSIONS, changed_by

MAX_WATCHED = 1000
"""Resources that one connection can subscribe to."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who watches a resource."""

    session: ServerSession
    caller: Caller


class Watching:
    """Who watches what. One for a service."""

    def __init__(self, journal: Journal, background: TaskGroup) -> None:
        self._journal = journal
        self._background = background
        self._watchers: dict[str, dict[str, Watcher]] = {}
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._under_way = False

    async def add(self, connection: str, uri: str, watcher: Watcher) -> None:
        """Tell a connection of each change."""
        held = self._watchers.setdefault(uri, {})
        if sum(connection in one for one in self._watchers.values()) < MAX_WATCHED:
            held[connection] = watcher
        await self._start()

    def remove(self, connection: str, uri: str) -> None:
        """No more."""
        held = self._watchers.get(uri, {})
        held.pop(connection, None)
        if not held:
            self._watchers.pop(uri, None)

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, caller: Caller
    ) -> SubscriptionsListenResult:
        """The same in the newer protocol: a stream of its own, of what the caller may see."""
        wanted = params.notifications
        uris = [uri for uri in wanted.resource_subscriptions or () if await self._sees(caller, uri)]
        own = wanted.model_copy(update={"resource_subscriptions": uris})
        await self._start()
        return await self._listen(ctx, params.model_copy(update={"notifications": own}))

    async def _sees(self, caller: Caller, uri: str) -> bool:
        if caller.prefix is None:
            return True
        if uri.startswith(SESSIONS):
            return caller.sees(uri.removeprefix(SESSIONS))
        if uri.startswith(RUNS):
            row = await self._journal.row("runs", uri.removeprefix(RUNS))
            return row is not None and caller.sees(str(row["session_id"]))
        return uri != JOURNAL  # that others do something is not theirs to know

    async def _start(self) -> None:
        if not self._under_way:
            self._under_way = True
            self._background.start_soon(self._watch, await self._journal.last_seq())

    async def _watch(self, after: int) -> None:
        try:
            async for record in self._journal.subscribe(after=after):
                if not isinstance(record, Gap):  # asked for none, so there is none
                    await self._tell(record)
        except HoldfastError:
            self._under_way = (
                False  # the journal is in trouble; who subscribes next starts it again
            )

    async def _tell(self, record: Record) -> None:
        for uri in changed_by(record):
            await self._bus.publish(ResourceUpdated(uri=uri))
            for connection, one in [*self._watchers.get(uri, {}).items()]:
                if not one.caller.sees(record.stream):
                    continue
                try:
                    await one.session.send_resource_updated(uri)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    self.remove(connection, uri)
