"""The audit: records, oldest first."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pydantic import Field

from holdfast.contracts import Record, check_session_id
from holdfast.contracts._base import Asked, Told
from holdfast.journal.belonging import session_of
from holdfast.server.rest import bodies as b
from holdfast.server.rest import examples as eg
from holdfast.server.rest.endpoint import Call, Endpoint
from holdfast.server.sight import readable, without_secrets

MOST = 1000
SCANNED = 20_000
"""Records that are looked at for one answer."""


class Records(Told):
    """A part of the journal."""

    items: tuple[b.JournalRecord, ...]
    """In order."""
    next: int | None
    """Give it as `after` for the next part; null at the end. A part may be empty, and not the last."""


class ReadJournal(Asked):
    """Which records."""

    after: int = Field(default=0, ge=0, lt=1 << 63)
    """Only those with a greater seq."""
    limit: int = Field(default=100, ge=1, le=MOST)
    """At most so many."""
    session_id: str | None = None
    """Only what its own stream holds, which is found at once. Answers to it and its plans are in shared streams: read all, or `/v1/events?session=`."""
    run_id: str | None = None
    """Only of this run."""
    kind: str | None = None
    """Only of this kind."""


async def read_journal(call: Call) -> Any:
    """Records, oldest first; of other sessions than the caller's, none."""
    asked: ReadJournal = call.query
    if asked.session_id is not None:
        await call.mine(check_session_id(asked.session_id))
    found: list[b.JournalRecord] = []
    source = _source(call)
    looked, last, more = 0, asked.after, False
    async for record in source:
        if record.seq <= asked.after:
            continue  # a session is read from its start
        if len(found) == asked.limit or looked == SCANNED:
            more = True
            break
        looked, last = looked + 1, record.seq
        if is_wanted(record, asked) and call.caller.sees(await session_of(call.hf.journal, record)):
            found.append(told(record))
    await source.aclose()
    return {"items": found, "next": last if more else None}


def _source(call: Call) -> AsyncGenerator[Record]:
    asked: ReadJournal = call.query
    journal = call.hf.journal
    if asked.session_id is None:
        return journal.read_all(after=asked.after)
    return journal.read(asked.session_id)


def is_wanted(record: Record, asked: ReadJournal) -> bool:
    """Whether a record is one of those that are asked for."""
    return asked.run_id in (None, record.run_id) and asked.kind in (None, record.kind)


def told(record: Record) -> b.JournalRecord:
    """A record as callers see it; of some, only that it is there."""
    fields: dict[str, Any] = record.model_dump(mode="json")
    fields["payload"] = without_secrets(record) if readable(record) else None
    return b.JournalRecord.model_validate(fields)


JOURNAL = (
    Endpoint(
        "GET",
        "/v1/journal",
        read_journal,
        "read",
        "Read the journal",
        Records,
        query=ReadJournal,
        errors=(404,),
        gives=eg.listed(eg.RECORD),
    ),
)
