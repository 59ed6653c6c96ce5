"""Records by session, run and kind."""

from __future__ import annotations

from holdfast.cli._state import journal_to_read
from holdfast.contracts import Record
from holdfast.errors import NotFound
from holdfast.journal import Journal, Row
from holdfast.shell.refusals import not_found

ENDING = 12
"""Characters of a run's id that are enough to name it."""


async def find(
    session_id: str | None, run: str | None, after: int, limit: int, kind: str | None
) -> list[Record]:
    """At most `limit` records after seq `after`, oldest first, of the journal in force."""
    found: list[Record] = []
    async with journal_to_read() as journal:
        stream = session_id
        if run is not None:
            row = await find_run(journal, run)
            run, stream = row.key, session_id or str(row.value["session_id"])
        if stream is None:
            source = journal.read_all(after=after)
        elif (await journal.head(stream)).pos == 0:
            raise not_found(stream)
        else:
            source = journal.read(stream)
        async for record in source:
            wanted = run in (None, record.run_id) and kind in (None, record.kind)
            if wanted and record.seq > after:
                found.append(record)
                if len(found) == limit:
                    break
        await source.aclose()
    return found


async def find_run(journal: Journal, asked: str) -> Row:
    """A run, by its id or by the end of it, which is what tables show."""
    known = await journal.row("runs", asked)
    if known is not None:
        return Row(asked, None, known)
    ending, after = asked.removeprefix("…"), ""
    while page := await journal.rows("runs", after=after):
        for row in page:
            if row.key == ending or (len(ending) >= ENDING and row.key.endswith(ending)):
                return row
        after = page[-1].key
    raise NotFound(
        "NOT_FOUND",
        f"There is no run `{asked[:80]}`.",
        hint="`holdfast runs list` names those there are.",
    )
