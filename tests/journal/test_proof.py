"""The proof itself, which needs no store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.contracts import digest
from holdfast.errors import JournalError
from holdfast.journal import Bad, ChainCheck, Report, Stored
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._drafts import STORY, note


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "journal.db")
    yield journal
    await journal.close()


async def test_a_forged_gap_in_a_stream_is_found(journal: SqliteJournal):
    await journal.append("s", [note(1), note(2)])
    first, second = await journal.page("s", 0, 2)
    body = second.body.replace(b'"pos":2', b'"pos":3')
    check = ChainCheck()
    assert not check.add(first)
    assert check.add(second._replace(pos=3, body=body, hash=digest(body)))
    assert check.report.bad == Bad(2, "s", 3, "position 2 of its stream is missing before it")


@pytest.mark.parametrize(("code", "raised"), [("JOURNAL_BUSY", True), ("JOURNAL_IO", False)])
async def test_what_stands_in_the_way_is_told_from_damage(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, code: str, raised: bool
):
    await journal.append("s", [note(n) for n in range(8)])
    pages = journal.page

    async def page(stream: str | None, after: int, limit: int) -> list[Stored]:
        if after + limit > 5:
            raise JournalError(code, "No.")
        return await pages(stream, after, limit)

    monkeypatch.setattr(journal, "page", page)
    if raised:
        with pytest.raises(JournalError, match=code):
            await journal.verify()
    else:
        assert (await journal.verify()).bad == Bad(6, "", 0, "it can't be read: No.")


async def test_the_proof_needs_no_journal(journal: SqliteJournal):
    """An export is checked the same way, offline."""
    await journal.append("s", STORY)
    page = await journal.page(None, 0, 1000)
    check = ChainCheck()
    assert not any(check.add(stored) for stored in page)
    check.finish()
    assert check.report == Report(len(page), 1, None, (await journal.verify()).root)
    short = ChainCheck()
    for stored in page[:-1]:
        short.add(stored)
    short.finish({"s": (page[-1].pos, page[-1].hash)})
    assert short.report.bad is not None
