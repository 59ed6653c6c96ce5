"""Sessions as the journal has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.contracts import Json, SessionView, check_session_id
from holdfast.journal import Journal
from holdfast.journal._clock import now_ms
from holdfast.shell.refusals import not_found


def expired(row: Mapping[str, Any], now: int) -> bool:
    """Whether a session that is on record as open was not used for longer than it was opened for."""
    setup: dict[str, Any] = row.get("setup") or {}
    ttl = setup.get("ttl_ms")
    if ttl is None or row.get("open_run") or row.get("open_agent"):
        return (
            False  # somebody is asked, or has to say what happened: that does not go away by itself
        )
    return bool(row["last_used_at"] + ttl < now)


class Sessions:
    """All sessions, to look at: `hf.sessions` of an open runtime. What is done to one is `Shell`'s."""

    def __init__(self, journal: Journal, now: Callable[[], int] = now_ms) -> None:
        self._journal = journal
        self._now = now

    async def list(self, *, after: str = "", limit: int = 100) -> list[SessionView]:
        """Open sessions, by id."""
        found: list[SessionView] = []
        while len(found) < limit:
            room = limit - len(found)
            rows = await self._journal.rows("sessions", tag="open", after=after, limit=room)
            now = self._now()
            found += [await self._view(row.value) for row in rows if not expired(row.value, now)]
            if len(rows) < room:
                break
            after = rows[-1].key
        return found

    async def show(self, session: str) -> SessionView:
        """One session, also a destroyed one."""
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None:
            raise not_found(session)
        view = await self._view(row)
        if row["status"] == "open" and expired(row, self._now()):
            return view.model_copy(update={"status": "destroyed"})  # as whoever opens it will find
        return view

    async def _view(self, row: Mapping[str, Json]) -> SessionView:
        head = await self._journal.head(str(row["id"]))
        return SessionView.model_validate({**row, "last_seq": head.seq})
