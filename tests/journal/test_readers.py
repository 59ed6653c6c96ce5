"""Connections to read with: as many as are wanted at once, and few of them are kept."""

from contextlib import ExitStack
from pathlib import Path

from holdfast.journal.sqlite import READERS, SqliteJournal


async def test_few_readers_are_kept(tmp_path: Path):
    journal = SqliteJournal.open(tmp_path / "journal.db")
    with ExitStack() as readers:
        taken = [readers.enter_context(journal._reader()) for _ in range(READERS + 6)]
        assert len({id(one) for one in taken}) == READERS + 6
    assert len(journal._readers) == READERS
    await journal.close()
