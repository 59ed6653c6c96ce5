"""Copying the log back, and copying the journal."""

# ruff: noqa: ASYNC240 - a test keeps nobody waiting
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import apsw
import pytest
from anyio import lowlevel

from holdfast.contracts import Body, digest
from holdfast.errors import HoldfastError
from holdfast.journal import MemoryJournal, _sqlite_db, _sqlite_store
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._drafts import STORY, created, destroyed, note


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "journal.db")
    yield journal
    await journal.close()


class TestUpkeep:
    async def test_the_log_is_copied_back_now_and_then(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_sqlite_store, "CHECKPOINT_PAGES", 20)
        log = journal.path.with_name("journal.db-wal")
        for n in range(300):
            await journal.append("s", [note(n)])
        assert log.stat().st_size < 300 * 4096
        assert (await journal.verify()).records == 300

    async def test_a_reader_that_does_not_let_go_holds_writers_up_only_now_and_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_sqlite_store, "CHECKPOINT_PAGES", 5)
        monkeypatch.setattr(_sqlite_store, "WAL_TOO_LONG", 40)
        monkeypatch.setattr(_sqlite_store, "PATIENCE_MS", 10)
        monkeypatch.setattr(_sqlite_db, "PATIENCE_MS", 10)
        forced: list[bool] = []
        checkpoint = _sqlite_db.Db.checkpoint

        def noting(db: _sqlite_db.Db, *, truncate: bool) -> bool:
            done = checkpoint(db, truncate=truncate)
            if truncate:
                forced.append(done)
            return done

        monkeypatch.setattr(_sqlite_db.Db, "checkpoint", noting)
        journal = SqliteJournal.open(tmp_path / "journal.db")
        await journal.append("s", [note()])
        reader = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("begin")
        reader.execute("select count(*) from records").fetchall()
        for n in range(100):
            await journal.append("s", [note(n)])
        assert 0 < len(forced) < 20
        assert not any(forced)
        reader.close()
        for n in range(100):
            await journal.append("s", [note(n)])
        await journal.close()
        again = SqliteJournal.open(journal.path)
        assert (await again.verify()).records == 201
        await again.close()

    async def test_a_copy_in_memory_that_grew_large_starts_anew(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_sqlite_store, "CACHED", 3)
        for n in range(10):
            await journal.append(f"s{n}", [created(), note(n)])
        for n in range(10):
            await journal.append(f"s{n}", [destroyed()], expected_pos=2)
        assert (await journal.verify()).records == 30
        assert len(await journal.rows("sessions", tag="destroyed")) == 10


class TestBackup:
    async def test_a_backup_is_the_journal(self, journal: SqliteJournal, tmp_path: Path):
        await journal.append("s", STORY)
        await journal.append("s", [note(bodies=[Body.of(b"x" * 5000)])])
        await journal.backup(str(tmp_path / "backup.db"))
        await journal.append("s", [note("later")])
        copy = SqliteJournal.open(tmp_path / "backup.db")
        assert copy.found == (False, len(STORY) + 1, 1, False, None)
        assert (await copy.verify()).ok
        assert await copy.content(digest(b"x" * 5000)) == b"x" * 5000
        assert await copy.page(None, 0, 100) == (await journal.page(None, 0, 100))[:-1]
        await copy.append("s", [note("its own")])
        await copy.close()
        assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600

    async def test_a_backup_is_one_file_that_needs_no_other(
        self, journal: SqliteJournal, tmp_path: Path
    ):
        await journal.append("s", STORY)
        await journal.backup(str(tmp_path / "backup.db"))
        assert [path.name for path in tmp_path.glob("*backup*")] == ["backup.db"]

    async def test_a_backup_never_overwrites(self, journal: SqliteJournal, tmp_path: Path):
        (tmp_path / "precious").write_text("precious")
        for name in ("precious", "nowhere/backup.db"):
            with pytest.raises(HoldfastError, match="INVALID_ARGUMENT"):
                await journal.backup(str(tmp_path / name))
        assert (tmp_path / "precious").read_text() == "precious"
        assert list(tmp_path.glob("*.partial")) == []

    async def test_a_journal_in_memory_has_none(self, tmp_path: Path):
        with pytest.raises(HoldfastError, match="INVALID_ARGUMENT"):
            await MemoryJournal().backup(str(tmp_path / "backup.db"))


class TestWaiting:
    async def test_waiting_for_others_leaves_nothing_behind(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("holdfast.journal.sqlite.POLL", 0)
        other = SqliteJournal.open(journal.path)
        for n in range(20):
            async with anyio.create_task_group() as group:
                group.start_soon(journal.wait, n)
                for _ in range(5):
                    await lowlevel.checkpoint()
                await other.append("s", [note(n)])
        gc.collect()
        assert len(journal._wakeups._signals) <= 1
        await other.close()
