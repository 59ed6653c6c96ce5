"""Lets bodies go when nothing wants them kept any longer. The chain keeps their digests."""

from __future__ import annotations

from holdfast.contracts import Json
from holdfast.journal.log import Holding, Journal
from holdfast.journal.projections import outlived

Row = dict[str, Json] | None


async def sweep(journal: Journal, *, stream: str | None = None) -> list[str]:
    """Erase every body whose holders have all outlived it; the digests erased.

    With `stream`, only those that its records refer to: when a session ends, no others can have become free by that,
    and the journal may hold a million.
    """
    among = None if stream is None else await _named_in(journal, stream)
    held: dict[str, list[Holding]] = {}
    for holding in await journal.holdings(among):
        held.setdefault(holding.digest, []).append(holding)
    look = _Look(journal)
    erased: list[str] = []
    for digest, holders in held.items():
        if not await look.outlived_all(holders):
            continue
        # Somebody may take the body while we look: then it stays, and the next sweep looks again.
        newest = max(holding.seq for holding in holders)
        if await journal.erase(digest, reason="retention", upto=newest):
            erased.append(digest)
    return erased


async def _named_in(journal: Journal, stream: str) -> set[str]:
    return {ref.digest async for record in journal.read(stream) for ref in record.content}


class _Look:
    """Looks each session and run up once, however many bodies they hold."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[tuple[str, str], Row] = {}

    async def outlived_all(self, holders: list[Holding]) -> bool:
        """Whether none of these wants its body kept."""
        for holding in holders:
            if not await self._outlived(holding):
                return False
        return True

    async def _outlived(self, holding: Holding) -> bool:
        session = await self._row("sessions", holding.stream)
        run = await self._row("runs", holding.run_id) if holding.run_id else None
        gone = session is not None and (
            session["status"] == "destroyed" or holding.seq < int(str(session["created_seq"]))
        )
        return outlived(holding.retention, run=run, session_gone=gone)

    async def _row(self, projection: str, key: str) -> Row:
        at = (projection, key)
        if at not in self._rows:
            self._rows[at] = await self._journal.row(projection, key)
        return self._rows[at]
