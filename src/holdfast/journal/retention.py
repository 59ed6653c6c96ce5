"""Lets bodies go when nothing wants them kept any longer. The chain keeps their digests."""

from __future__ import annotations

from holdfast.journal.log import Holding, Journal
from holdfast.journal.projections import outlived


async def sweep(journal: Journal) -> list[str]:
    """Erase every body whose holders have all outlived it; the digests erased."""
    held: dict[str, list[Holding]] = {}
    for holding in await journal.holdings():
        held.setdefault(holding.digest, []).append(holding)
    erased: list[str] = []
    for digest, holders in held.items():
        outlived_by_all = all([await _outlived(journal, holding) for holding in holders])
        # Somebody may take the body while we look: then it stays, and the next sweep looks again.
        newest = max(holding.seq for holding in holders)
        if outlived_by_all and await journal.erase(digest, reason="retention", upto=newest):
            erased.append(digest)
    return erased


async def _outlived(journal: Journal, holding: Holding) -> bool:
    session = await journal.row("sessions", holding.stream)
    run = await journal.row("runs", holding.run_id) if holding.run_id else None
    gone = session is not None and (
        session["status"] == "destroyed" or holding.seq < int(str(session["created_seq"]))
    )
    return outlived(holding.retention, run=run, session_gone=gone)
