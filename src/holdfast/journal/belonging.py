"""Whose a record is: who may read it, and with which session its content goes."""

from __future__ import annotations

from holdfast.contracts import Record
from holdfast.journal.log import Journal

SHARED = "holdfast:"
"""Starts the streams that are no session's. No session's name can start so."""

_DRY = "holdfast:dry:"
_NAMED_BY = {
    "approval": ("approvals", "id"),
    "plan": ("plans", "id"),
    "input": ("inputs", "id"),
    "text": ("pins", "id"),
    "run": ("runs", "run"),
}
"""The first word of a kind in a shared stream → the projection that knows the session, and what names the row."""


async def session_of(journal: Journal, record: Record) -> str | None:
    """The session that a record is about: an answer to an approval is about the one that asked. `None`: no session."""
    if not record.stream.startswith(SHARED):
        return record.stream
    said = record.payload.get("session_id")
    if isinstance(said, str):
        return said
    if record.stream.startswith(_DRY):
        return await _session_in(journal, "plans", record.stream.removeprefix(_DRY))
    projection, named = _NAMED_BY.get(record.kind.partition("_")[0], ("runs", ""))
    key = record.payload.get(named) or record.run_id
    return await _session_in(journal, projection, key) if isinstance(key, str) else None


async def _session_in(journal: Journal, projection: str, key: str) -> str | None:
    row = await journal.row(projection, key)
    found = None if row is None else row.get("session_id")
    return found if isinstance(found, str) else None
