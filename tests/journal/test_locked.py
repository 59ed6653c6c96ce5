"""A journal that another process has locked."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import from_thread, lowlevel, to_thread

from holdfast.contracts import Body, Draft
from holdfast.errors import JournalError
from holdfast.journal import _sqlite_db, _sqlite_schema, _sqlite_store, _writer
from holdfast.journal.sqlite import SqliteJournal


def note(n: int) -> Draft:
    return Draft(kind="test.note", payload={"n": n}, bodies=(Body.of(os.urandom(300)),))


async def numbers(journal: SqliteJournal) -> list[Any]:
    return [record.payload["n"] async for record in journal.read("s")]


LOCK = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
db.execute(f"begin {sys.argv[2]}")
print("locked", flush=True)
sys.stdin.readline()
db.execute("rollback")
print("unlocked", flush=True)
"""


class Locker:
    """Another process that holds the write lock."""

    def __init__(self, path: Path, kind: str = "exclusive") -> None:
        command = [sys.executable, "-c", LOCK, str(path), kind]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"

    def unlock(self) -> None:
        out, _ = self._process.communicate(b"\n")
        assert out == b"unlocked\n"


@pytest.fixture(params=["loop", "thread"])
def committer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9 if request.param == "loop" else 0)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_sqlite_db, _sqlite_store, _sqlite_schema):
        monkeypatch.setattr(module, "PATIENCE_MS", 50)


@pytest.mark.usefixtures("committer")
class TestLocked:
    async def test_longer_than_our_patience(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        impatient(monkeypatch)
        journal = SqliteJournal.open(tmp_path / "journal.db")
        await journal.append("s", [note(0)])
        locker = Locker(journal.path)
        codes: list[str] = []

        async def write(n: int) -> None:
            try:
                await journal.append("s", [note(n)])
            except JournalError as refusal:
                codes.append(refusal.code)

        async with anyio.create_task_group() as group:
            for n in range(1, 4):
                group.start_soon(write, n)
        assert codes == ["JOURNAL_BUSY"] * 3
        with pytest.raises(JournalError, match=r"^JOURNAL_BUSY"):
            await journal.claim("t", "me", ttl_ms=1000)
        assert await numbers(journal) == [0]  # reading goes on
        locker.unlock()
        await journal.append("s", [note(4)])
        assert await numbers(journal) == [0, 4]
        await journal.close()

    async def test_shorter_than_our_patience(self, tmp_path: Path):
        journal = SqliteJournal.open(tmp_path / "journal.db")
        await journal.append("s", [note(0)])
        locker = Locker(journal.path)
        done = False

        async def write() -> None:
            nonlocal done
            await journal.append("s", [note(1)])
            done = True

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            for _ in range(20):  # the event loop is free meanwhile
                await anyio.sleep(0.001)
            assert not done
            locker.unlock()
        assert await numbers(journal) == [0, 1]
        await journal.close()

    async def test_upgrading(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        impatient(monkeypatch)
        path = tmp_path / "journal.db"
        await SqliteJournal.open(path).close()
        before = len(_sqlite_schema.UPGRADES)
        steps = [*_sqlite_schema.UPGRADES, "create table extra (x)"]
        monkeypatch.setattr(_sqlite_schema, "UPGRADES", steps)
        locker = Locker(path)
        with pytest.raises(JournalError, match=r"^JOURNAL_BUSY"):
            SqliteJournal.open(path)
        locker.unlock()
        journal = SqliteJournal.open(path)
        assert journal.found.upgraded_from == before
        await journal.close()

    async def test_opening_a_new_file_waits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = tmp_path / "journal.db"
        path.touch()
        locker = Locker(path, "immediate")
        waited = anyio.Event()
        token = lowlevel.current_token()

        def sleep(seconds: float) -> None:
            from_thread.run_sync(waited.set, token=token)

        monkeypatch.setattr(_sqlite_schema.time, "sleep", sleep)
        opened: list[SqliteJournal] = []

        async def open_it() -> None:
            opened.append(await to_thread.run_sync(SqliteJournal.open, path))

        async with anyio.create_task_group() as group:
            group.start_soon(open_it)
            await waited.wait()
            await to_thread.run_sync(locker.unlock)
        assert opened[0].found.created
        await opened[0].close()

    async def test_opening_a_new_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        impatient(monkeypatch)
        path = tmp_path / "journal.db"
        path.touch()
        locker = Locker(path)
        with pytest.raises(JournalError, match=r"^JOURNAL_BUSY"):
            SqliteJournal.open(path)
        locker.unlock()
        journal = SqliteJournal.open(path)
        assert journal.found.created
        await journal.close()
