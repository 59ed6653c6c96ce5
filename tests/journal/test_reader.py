"""The journal file for reading only."""

from pathlib import Path

import anyio
import apsw
import pytest

from holdfast.contracts import Draft
from holdfast.errors import JournalError, NotFound
from holdfast.journal import sqlite_reader
from holdfast.journal._sqlite_db import Db
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import FORMAT, SqliteReader, check_writable

NOTE = Draft(kind="test.note", payload={"text": "x" * 100})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    anyio.run(write, path)
    return path


async def write(path: Path) -> None:
    journal = SqliteJournal.open(path)
    for _ in range(100):
        await journal.append("s", [NOTE])
    await journal.close()


async def test_reads_and_refuses_to_write(file: Path):
    reader = SqliteReader(file)
    assert (reader.format, reader.found.records, reader.found.streams) == (FORMAT, 100, 1)
    assert reader.check() == 50
    assert (await reader.verify()).ok
    assert len([record async for record in reader.read("s")]) == 100
    with pytest.raises(JournalError, match="JOURNAL_READ_ONLY"):
        await reader.append("s", [NOTE])
    with pytest.raises(JournalError, match="JOURNAL_READ_ONLY"):
        reader.post("s", lambda: [NOTE], failed=print)
    with pytest.raises(JournalError, match="JOURNAL_READ_ONLY"):
        await reader.flush()
    await reader.close()
    assert [path.name for path in file.parent.iterdir()] == ["journal.db"]


async def test_follows_a_writer(file: Path):
    reader = SqliteReader(file)
    journal = SqliteJournal.open(file)
    await journal.append("s", [NOTE])
    assert await reader.last_seq() == 101
    await journal.close()
    await reader.close()


def test_makes_no_file(tmp_path: Path):
    with pytest.raises(NotFound):
        SqliteReader(tmp_path / "journal.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_journal(tmp_path: Path):
    (tmp_path / "journal.db").touch()
    with pytest.raises(JournalError, match="it is empty"):
        SqliteReader(tmp_path / "journal.db")


@pytest.fixture
def read_only_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite can't make the files it wants beside a journal."""

    def connect(path: Path, *, read_only: bool = False, immutable: bool = False) -> Db:
        if immutable:
            return Db(path, read_only=read_only, immutable=True)
        raise JournalError("JOURNAL_IO", "unable to open database file")

    monkeypatch.setattr(sqlite_reader, "Db", connect)


async def test_a_file_on_a_read_only_disk_is_read_as_it_is(file: Path, read_only_disk: None):
    reader = SqliteReader(file)
    assert (await reader.verify()).records == 100
    await reader.close()


def test_a_log_that_can_not_be_read_is_not_left_out(file: Path, read_only_disk: None):
    file.with_name("journal.db-wal").write_bytes(b"what the last process wrote")
    with pytest.raises(JournalError) as refusal:
        SqliteReader(file)
    assert refusal.value.code == "JOURNAL_IO"


async def test_an_unreadable_page_is_named_by_its_first_record(file: Path):
    leaves = "select pageno from dbstat where name = 'records' and pagetype = 'leaf' order by path"
    db = apsw.Connection(str(file))
    pages = [page for (page,) in db.execute(leaves)]
    db.close()
    with file.open("r+b") as data:
        data.seek((pages[len(pages) // 2] - 1) * 4096)
        data.write(bytes(4096))
    reader = SqliteReader(file)
    report = await reader.verify()
    assert report.bad is not None
    assert report.bad.seq == report.records + 1
    assert 1 < report.bad.seq < 100
    assert "can't be read" in report.bad.why
    await reader.close()


async def test_a_file_too_damaged_to_count_can_still_be_looked_at(file: Path):
    db = apsw.Connection(str(file))
    (root,) = next(iter(db.execute("select rootpage from sqlite_schema where name = 'records'")))
    db.close()
    with file.open("r+b") as data:
        data.seek((root - 1) * 4096)
        data.write(bytes(4096))
    reader = SqliteReader(file)
    assert (reader.found.records, reader.found.streams) == (0, 0)
    report = await reader.verify()
    assert report.bad is not None
    assert report.bad.seq == 1
    with pytest.raises(JournalError):
        reader.check()
    await reader.close()


def test_check_writable(file: Path):
    check_writable(file)
    db = apsw.Connection(str(file))
    db.execute("begin immediate")
    with pytest.raises(JournalError) as refusal:
        check_writable(file, patience_ms=10)
    assert refusal.value.code == "JOURNAL_BUSY"
    db.close()
