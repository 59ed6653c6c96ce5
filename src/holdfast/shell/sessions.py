"""Sessions as the journal has them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.contracts import Json, SessionView, check_session_id
from holdfast.journal import Journal
from holdfast.shell.refusals import not_found


class Sessions:
    """All sessions, to look at: `hf.sessions` of an open runtime. What is done to one is `Shell`'s."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def list(self, *, after: str = "", limit: int = 100) -> list[SessionView]:
        """Open sessions, by id."""
        rows = await self._journal.rows("sessions", tag="open", after=after, limit=limit)
        return [await self._view(row.value) for row in rows]

    async def show(self, session: str) -> SessionView:
        """One session, also a destroyed one."""
        row = await self._journal.row("sessions", check_session_id(session))
        if row is None:
            raise not_found(session)
        return await self._view(row)

    async def _view(self, row: Mapping[str, Json]) -> SessionView:
        head = await self._journal.head(str(row["id"]))
        return SessionView.model_validate({**row, "last_seq": head.seq})
