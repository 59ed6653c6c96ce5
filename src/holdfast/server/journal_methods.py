"""The methods of JSON-RPC about the journal: reading it, following it, verifying it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any
from urllib.parse import urlencode

import anyio

from holdfast.contracts import Event, Gap, Record, new_id
from holdfast.errors import HoldfastError, NotFound
from holdfast.journal import Journal
from holdfast.journal.belonging import session_of
from holdfast.server import params as p
from holdfast.server import views
from holdfast.server.rights import Rights
from holdfast.server.rpc import Call
from holdfast.server.tail import start_of

MAX_SCANNED = 50_000
"""Records that one `journal.read` looks at; `next` goes on from there."""


class JournalMethods:
    """What one caller can ask of the journal. `events`: where records can be had as they come, if not from here."""

    def __init__(self, journal: Journal, rights: Rights, events: str | None) -> None:
        self._journal = journal
        self._rights = rights
        self._events = events

    async def read(self, asked: p.ReadJournal, _: Call) -> dict[str, Any]:
        """A part of it."""
        found: list[Record] = []
        scanned, last = 0, asked.after
        source = self._source(asked)
        async for record in source:
            scanned += record.seq > asked.after
            if _wanted(record, asked) and await self._rights.sees(record):
                if len(found) == asked.limit:
                    break
                found.append(self._rights.shown(record))
            last = record.seq
            if scanned == MAX_SCANNED:
                break
        else:
            last = None
        await source.aclose()
        return {"items": found, "next": last}

    def _source(self, asked: p.ReadJournal) -> AsyncGenerator[Record]:
        journal = self._journal
        return (
            journal.read_all(after=asked.after)
            if asked.session_id is None
            else journal.read(asked.session_id)
        )

    async def subscribe(self, asked: p.Subscribe, call: Call) -> dict[str, Any]:
        """Records as they come: by this connection, or where they can be had."""
        after = await start_of(self._journal, asked.after)
        if self._events is not None:
            only = {"session": asked.session_id, "kind": asked.kind}
            query = {"after": after, **{k: v for k, v in only.items() if v is not None}}
            return {
                "subscription": None,
                "after": after,
                "url": f"{self._events}?{urlencode(query)}",
            }
        name = new_id("sub")
        scope = call.subscriptions[name] = anyio.CancelScope()
        call.afterwards.append(partial(self._stream, name, after, asked, call, scope))
        return {"subscription": name, "after": after}

    async def _stream(
        self, name: str, after: int, asked: p.Subscribe, call: Call, scope: anyio.CancelScope
    ) -> None:
        """Every record after `after`, at the pace at which the client takes them."""
        with scope:
            try:
                async for record in self._journal.subscribe(after=after):
                    if isinstance(record, Gap):
                        continue  # asked for none, so there is none
                    wanted = asked.kind in (None, record.kind)
                    if (
                        wanted
                        and await self._is_of(record, asked)
                        and await self._rights.sees(record)
                    ):
                        told = {"subscription": name, "event": Event.of(record)}
                        await call.notify("journal.event", told)
            except HoldfastError as why:
                ended = {"subscription": name, "error": why.to_json()}
                await call.notify("journal.ended", ended)

    async def _is_of(self, record: Record, asked: p.Subscribe) -> bool:
        """Whether a record is about the session that is watched, as `/v1/events` has it."""
        if asked.session_id is None:
            return True
        return await session_of(self._journal, record) == asked.session_id

    async def unsubscribe(self, asked: p.Unsubscribe, call: Call) -> dict[str, Any]:
        """No more of them."""
        scope = call.subscriptions.pop(asked.subscription, None)
        if scope is None:
            raise NotFound("NOT_FOUND", f"There is no subscription `{asked.subscription[:80]}`.")
        scope.cancel()
        return {"subscription": asked.subscription}

    async def verify(self, _: p.NoParams, __: Call) -> dict[str, Any]:
        """Whether it is as it was written."""
        return views.report(await self._journal.verify())


def _wanted(record: Record, asked: p.ReadJournal) -> bool:
    return (
        record.seq > asked.after
        and asked.run_id in (None, record.run_id)
        and asked.kind in (None, record.kind)
    )
