"""Lets bodies go when nothing wants them kept any longer. The chain keeps their digests."""

from __future__ import annotations

from holdfast.contracts import Json
from holdfast.journal.belonging import SHARED, session_of
from holdfast.journal.log import Holding, Journal
from holdfast.journal.projections import outlived

FIRST = 8
"""Holders of a body that are looked at first: one that wants it kept is most often among them."""

Row = dict[str, Json] | None


async def sweep(journal: Journal, *, stream: str | None = None) -> list[str]:
    """Erase every body whose holders have all outlived it; the digests erased.

    With `stream`, whose session is over, only those that its records refer to: no others can have become free by
    that, and the journal may hold a million. What others still hold is from then on held by them alone, so that a body
    that every session shares does not become slower to look at with each of them that ends.
    """
    look = _Look(journal)
    if stream is None:
        return await _erased(journal, look, _by_body(await journal.holdings()))
    names, last = await _named_in(journal, stream)
    free: dict[str, list[Holding]] = {}
    kept: list[str] = []
    for name, some in _by_body(await journal.holdings(names, most=FIRST)).items():
        holders = some if len(some) < FIRST else await _all_of(journal, look, name, some)
        if not await look.outlived_all(holders):
            kept.append(name)
        elif holders:  # else another sweep has erased it meanwhile
            free[name] = holders
    if kept:
        await journal.let_go(stream, kept, upto=await look.over(stream, last))
    return await _erased(journal, look, free)


async def _named_in(journal: Journal, stream: str) -> tuple[dict[str, None], int]:
    """The bodies that a stream's records refer to, and the seq of its last record."""
    names: dict[str, None] = {}
    last = 0
    async for record in journal.read(stream):
        names.update((ref.digest, None) for ref in record.content)
        last = record.seq
    return names, last


async def _all_of(journal: Journal, look: _Look, name: str, some: list[Holding]) -> list[Holding]:
    """Every holder of a body, unless one of `some` wants it kept."""
    return await journal.holdings([name]) if await look.outlived_all(some) else some


async def _erased(journal: Journal, look: _Look, held: dict[str, list[Holding]]) -> list[str]:
    erased: list[str] = []
    for digest, holders in held.items():
        if not await look.outlived_all(holders):
            continue
        # Somebody may take the body while we look: then it stays, and the next sweep looks again.
        newest = max(holding.seq for holding in holders)
        if await journal.erase(digest, reason="retention", upto=newest):
            erased.append(digest)
    return erased


def _by_body(holdings: list[Holding]) -> dict[str, list[Holding]]:
    held: dict[str, list[Holding]] = {}
    for holding in holdings:
        held.setdefault(holding.digest, []).append(holding)
    return held


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

    async def over(self, stream: str, last: int) -> int:
        """Of a stream's records up to seq `last`, up to which they are of a session that is over."""
        session = await self._row("sessions", stream)
        if session is None:
            return 0
        if session["status"] == "destroyed":
            return last
        return min(last, int(str(session["created_seq"])) - 1)

    async def _outlived(self, holding: Holding) -> bool:
        run = await self._row("runs", holding.run_id) if holding.run_id else None
        gone = await self._gone(holding)
        return outlived(holding.retention, run=run, session_gone=gone)

    async def _gone(self, holding: Holding) -> bool:
        """Whether the session is over that a holder is of: plans, prompts and the like are in streams that all share."""
        if not holding.stream.startswith(SHARED):
            return await self.over(holding.stream, holding.seq) == holding.seq
        record = await anext(self._journal.read_all(after=holding.seq - 1, limit=1))
        name = await session_of(self._journal, record)
        session = await self._row("sessions", name) if name is not None else None
        # A dry run may come before its session: only what was there when one ended goes with it.
        return session is not None and holding.seq <= int(str(session.get("destroyed_seq", 0)))

    async def _row(self, projection: str, key: str) -> Row:
        at = (projection, key)
        if at not in self._rows:
            self._rows[at] = await self._journal.row(projection, key)
        return self._rows[at]
