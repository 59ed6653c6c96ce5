"""What is on the disk when an append returns, seen from below SQLite."""

# ruff: noqa: ASYNC221 - a test keeps nobody waiting

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import from_thread, lowlevel

from holdfast.contracts import Body, Draft, digest
from holdfast.journal import _writer
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing.disk import Disk

NOTE = Draft(kind="test.note", payload={"text": "x" * 300})


class Syncs:
    """Counts the syncs that holdfast itself asks for, beside SQLite's own."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.count = 0
        self.failure: OSError | None = None
        self.came = anyio.Event()
        self.token = lowlevel.current_token()
        self._real = os.fdatasync

    def __call__(self, handle: int) -> None:
        if self.failure is not None:
            raise self.failure
        self._real(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        self.disk.files[path].pending.clear()
        self.count += 1
        from_thread.run_sync(self.came.set, token=self.token)


@pytest.fixture
def disk() -> Iterator[Disk]:
    with Disk() as disk:
        yield disk


@pytest.fixture
async def syncs(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    syncs = Syncs(disk)
    monkeypatch.setattr(os, "fdatasync", syncs)
    return syncs


@pytest.fixture(params=["loop", "thread"])
def committer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the event loop commits by itself, as on a fast disk, or the thread does, as on a slow one."""
    monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9 if request.param == "loop" else 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def wal(path: Path) -> Path:
    return Path(f"{path}-wal")


@pytest.mark.usefixtures("committer")
class TestDurable:
    async def test_append_is_synced_when_it_returns(self, disk: Disk, path: Path):
        journal = SqliteJournal.open(path)
        for _ in range(5):
            before = len(disk.ops)
            await journal.append("s", [NOTE, NOTE])
            made = [op.kind for op in disk.ops[before:] if op.path == wal(path)]
            assert "write" in made
            assert made[-1] == "sync"
            assert disk.unsynced(wal(path)) == []
            assert disk.unsynced(path) == []
        await journal.close()

    async def test_every_append_of_a_group_is_synced(self, disk: Disk, path: Path):
        journal = SqliteJournal.open(path)

        async def write(durable: bool) -> None:
            await journal.append("s", [NOTE], durable=durable)
            if durable:
                assert disk.unsynced(wal(path)) == []

        async with anyio.create_task_group() as group:
            for n in range(30):
                group.start_soon(write, n % 3 > 0)
        await journal.close()

    async def test_erasing_and_rebuilding_are_synced(self, disk: Disk, path: Path):
        journal = SqliteJournal.open(path)
        await journal.append("s", [Draft(kind="a.b", bodies=(Body.of(b"x"),))], durable=False)
        await journal.erase(digest(b"x"), reason="test")
        # The log is emptied after an erasure, perhaps just now: what it held is in the file by then.
        assert [op for op in disk.unsynced(wal(path)) if op.kind != "truncate"] == []
        await journal.claim("s", "me", ttl_ms=1000)
        await journal.append("t", [NOTE], durable=False)
        await journal.append("t", [NOTE])
        assert disk.unsynced(wal(path)) == []
        await journal.close()


@pytest.mark.usefixtures("committer")
class TestNotDurable:
    async def test_it_returns_without_a_sync(self, disk: Disk, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE])
        before = len(disk.ops)
        await journal.append("s", [NOTE], durable=False)
        assert [op.kind for op in disk.ops[before:] if op.kind == "sync"] == []
        assert disk.unsynced(wal(path))
        await journal.close()

    async def test_it_is_synced_a_moment_later(self, disk: Disk, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        for n in range(1, 4):
            syncs.came = anyio.Event()
            await journal.append("s", [NOTE], durable=False)
            await syncs.came.wait()
            assert disk.unsynced(wal(path)) == []
            assert syncs.count == n
        await journal.close()

    async def test_more_of_them_do_not_put_the_sync_off(self, disk: Disk, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        appended = 0
        while not syncs.came.is_set():
            await journal.append("s", [NOTE], durable=False)
            appended += 1
        assert (syncs.count, appended > 1) == (1, True)
        await journal.close()

    async def test_it_is_synced_by_the_next_durable_append(
        self, disk: Disk, path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_writer, "SYNC_AFTER", 1000)
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE], durable=False)
        await journal.append("t", [NOTE])
        assert disk.unsynced(wal(path)) == []
        assert syncs.count == 0
        await journal.close()

    async def test_it_is_synced_by_close(
        self, disk: Disk, path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_writer, "SYNC_AFTER", 1000)
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE], durable=False)
        await journal.close()
        assert disk.unsynced(path) == []
        assert not wal(path).exists()

    async def test_it_is_synced_by_flush(
        self, disk: Disk, path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_writer, "SYNC_AFTER", 1000)
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE], durable=False)
        assert disk.unsynced(wal(path))
        await journal.flush()
        assert disk.unsynced(wal(path)) == []
        await journal.flush()  # nothing to do
        assert syncs.count == 1
        await journal.close()

    async def test_what_was_posted_is_synced_by_flush(self, disk: Disk, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        failures: list[BaseException] = []
        for _ in range(20):
            journal.post("s", lambda: [NOTE], failed=failures.append)
        await journal.flush()
        assert disk.unsynced(wal(path)) == []
        assert (await journal.head("s")).pos == 20
        assert failures == []
        await journal.close()

    async def test_what_was_posted_is_synced_a_moment_later(
        self, disk: Disk, path: Path, syncs: Syncs
    ):
        journal = SqliteJournal.open(path)
        journal.post("s", lambda: [NOTE], failed=print)
        await syncs.came.wait()
        assert disk.unsynced(wal(path)) == []
        await journal.close()

    async def test_what_was_posted_is_synced_by_the_next_durable_append(
        self, disk: Disk, path: Path
    ):
        journal = SqliteJournal.open(path)
        for _ in range(5):
            journal.post("s", lambda: [NOTE], failed=print)
        assert (await journal.append("s", [NOTE])).pos == 6
        assert disk.unsynced(wal(path)) == []
        await journal.close()

    async def test_flush_says_what_could_not_be_synced(self, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        syncs.failure = OSError(5, "Input/output error")
        await journal.append("s", [NOTE], durable=False)
        with pytest.raises(Exception, match=r"JOURNAL_IO.*Input/output error"):
            await journal.flush()
        syncs.failure = None
        await journal.flush()
        await journal.close()

    async def test_a_durable_append_that_is_refused_syncs_nothing_and_puts_nothing_off(
        self, disk: Disk, path: Path, syncs: Syncs
    ):
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE], durable=False)
        with pytest.raises(Exception, match="STALE_POSITION"):
            await journal.append("s", [NOTE], expected_pos=7)
        assert disk.unsynced(wal(path))
        await syncs.came.wait()
        assert disk.unsynced(wal(path)) == []
        await journal.close()

    async def test_a_disk_that_refuses_to_sync_is_asked_again(
        self, disk: Disk, path: Path, syncs: Syncs
    ):
        journal = SqliteJournal.open(path)
        syncs.failure = OSError(5, "Input/output error")
        await journal.append("s", [NOTE], durable=False)
        await journal.append("s", [NOTE])
        await journal.append("s", [NOTE], durable=False)
        syncs.failure = None
        await syncs.came.wait()
        assert disk.unsynced(wal(path)) == []
        await journal.append("s", [NOTE])
        assert (await journal.head("s")).pos == 4
        await journal.close()

    async def test_close_says_what_could_not_be_synced(self, path: Path, syncs: Syncs):
        journal = SqliteJournal.open(path)
        await journal.append("s", [NOTE], durable=False)
        syncs.failure = OSError(5, "Input/output error")
        with pytest.raises(Exception, match=r"JOURNAL_IO.*Input/output error"):
            await journal.close()
        with pytest.raises(Exception, match="JOURNAL_CLOSED"):
            await journal.append("s", [NOTE])
        journal = SqliteJournal.open(path)
        assert journal.found.records == 1
        await journal.close()


APPEND_AND_DIE = """
import asyncio, os, signal, sys
from holdfast.contracts import Draft
from holdfast.journal.sqlite import SqliteJournal

async def main():
    journal = SqliteJournal.open(sys.argv[1])
    for n in range(5):
        await journal.append("s", [Draft(kind="a.b", payload={"n": n})], durable=False)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_an_unsynced_append_survives_kill_9(path: Path):
    died = subprocess.run([sys.executable, "-c", APPEND_AND_DIE, str(path)], check=False)
    assert died.returncode == -signal.SIGKILL
    journal = SqliteJournal.open(path)
    assert (journal.found.records, journal.found.recovered) == (5, True)
    assert [record.payload["n"] async for record in journal.read("s")] == [0, 1, 2, 3, 4]
    assert (await journal.verify()).ok
    await journal.close()


def test_new_folders_are_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    real: Callable[[int], None] = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = SqliteJournal.open(tmp_path / "a" / "b" / "journal.db")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert journal.path.stat().st_mode & 0o777 == 0o600
    anyio.run(journal.close)
