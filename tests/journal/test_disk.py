"""Full, failing, read-only and locked: a typed answer, nothing written, and everything acknowledged still there."""

# ruff: noqa: ASYNC221, ASYNC240 - a test keeps nobody waiting

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from holdfast.contracts import Body, Draft
from holdfast.errors import JournalError
from holdfast.journal import _sqlite_db, _sqlite_schema, _writer
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing.disk import Disk, Op


def note(n: int, size: int = 300) -> Draft:
    return Draft(kind="test.note", payload={"n": n}, bodies=(Body.of(os.urandom(size)),))


async def numbers(journal: SqliteJournal) -> list[Any]:
    return [record.payload["n"] async for record in journal.read("s")]


class Script:
    """A short life of a journal: open, append, erase, close. Notes what was acknowledged and what refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acked: list[int] = []
        self.refusals: list[str] = []

    async def run(self) -> None:
        try:
            journal = SqliteJournal.open(self.path)
        except JournalError as refusal:
            self.refusals.append(refusal.code)
            return
        for n in range(4):
            try:
                await journal.append("s", [note(n), note(n, 3000 * n)], durable=n != 2)
                self.acked += [n, n]
            except JournalError as refusal:
                self.refusals.append(refusal.code)
                seen = await numbers(journal)
                assert seen == self.acked  # nothing of it is there
        try:
            await journal.close()
        except JournalError as refusal:
            self.refusals.append(refusal.code)

    async def check(self) -> None:
        """Afterwards, on a good disk again."""
        journal = SqliteJournal.open(self.path)
        assert (await journal.verify()).ok
        found = await numbers(journal)
        assert found[::2] == found[1::2]  # batches are whole
        assert [n for n in found if n in self.acked] == self.acked
        await journal.append("s", [note(9)])
        await journal.close()


# apsw reports what our disk raises while SQLite itself cleans up, where nobody can catch it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestFailingDisk:
    """Each operation on the files fails in turn: once, or from there on."""

    @pytest.fixture(autouse=True)
    def quickly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Whether the loop or the thread commits, and when what is upkeep happens, must not vary.
        monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9)
        monkeypatch.setattr(_writer, "SYNC_AFTER", 1000)
        monkeypatch.setattr(_sqlite_schema, "PATIENCE_MS", 0)

    async def count(self, tmp_path: Path) -> int:
        with Disk() as disk:
            await Script(tmp_path / "good.db").run()
        return len(disk.ops)

    @pytest.mark.parametrize(
        ("failure", "code"),
        [(apsw.FullError, "JOURNAL_FULL"), (apsw.IOError, "JOURNAL_IO")],
        ids=["full", "broken"],
    )
    @pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
    async def test_at_every_operation(
        self, tmp_path: Path, failure: type[Exception], code: str, for_good: bool
    ):
        total = await self.count(tmp_path)
        assert total > 80
        refused = 0
        for failing in range(0, total, 2 if for_good else 1):
            asked = 0

            def before(op: Op, failing: int = failing) -> None:
                nonlocal asked
                asked += 1
                if asked > failing and (for_good or asked == failing + 1):
                    raise failure("as told")

            script = Script(tmp_path / f"{failing}.db")
            with Disk(before):
                await script.run()
            assert set(script.refusals) <= {code}
            refused += bool(script.refusals)
            await script.check()
        assert refused > total / 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (apsw.FullError, "JOURNAL_FULL"),
        (apsw.ReadOnlyError, "JOURNAL_READ_ONLY"),
        (apsw.BusyError, "JOURNAL_BUSY"),
        (apsw.LockedError, "JOURNAL_BUSY"),
        (apsw.CorruptError, "JOURNAL_DAMAGED"),
        (apsw.NotADBError, "JOURNAL_DAMAGED"),
        (apsw.CantOpenError, "JOURNAL_IO"),
        (apsw.IOError, "JOURNAL_IO"),
        (apsw.SQLError, "JOURNAL_IO"),
    ],
)
def test_what_sqlite_says_is_told_to_whoever_can_act(error: type[apsw.Error], code: str):
    told = _sqlite_db.explain(Path("/some/journal.db"), error("as SQLite says"))
    assert (told.code, told.hint is None) == (code, False)
    assert "/some/journal.db" in told.message


class TestFullDisk:
    async def test_no_more_pages(self, tmp_path: Path):
        journal = SqliteJournal.open(tmp_path / "journal.db")
        await journal.append("s", [note(0)])
        db = journal._store._db
        db.run(f"pragma max_page_count={db.value('pragma page_count') + 2}")
        with pytest.raises(JournalError, match=r"^JOURNAL_FULL"):
            await journal.append("s", [note(1, 40_000)])
        assert await numbers(journal) == [0]
        assert (await journal.head("s")).pos == 1
        await journal.append("s", [note(2, 10)])  # what fits, fits
        db.run("pragma max_page_count=1000000")
        await journal.append("s", [note(3, 40_000)])
        assert await numbers(journal) == [0, 2, 3]
        assert (await journal.verify()).ok
        await journal.close()

    async def test_those_committed_together_fail_together(self, tmp_path: Path):
        journal = SqliteJournal.open(tmp_path / "journal.db")
        await journal.append("s", [note(0)])
        db = journal._store._db
        db.run(f"pragma max_page_count={db.value('pragma page_count') + 2}")
        codes: list[str] = []

        async def write(n: int) -> None:
            try:
                await journal.append("s", [note(n, 4000)])
                codes.append("ok")
            except JournalError as refusal:
                codes.append(refusal.code)

        async with anyio.create_task_group() as group:
            for n in range(1, 9):
                group.start_soon(write, n)
        assert len(codes) == 8
        assert set(codes) <= {"ok", "JOURNAL_FULL"}
        assert "JOURNAL_FULL" in codes
        assert len(await numbers(journal)) == 1 + codes.count("ok")
        await journal.close()

    def test_no_more_bytes(self, tmp_path: Path):
        """The limit on the size of a file stands in for the end of a disk: it needs no rights to set."""
        said = fill(tmp_path, limit=300_000)
        assert said["refusal"] in ("JOURNAL_IO", "JOURNAL_FULL")
        assert said["acked"] > 3

    def test_no_more_room(self, tmp_path: Path):
        """A file system of one megabyte, in a mount namespace of its own; see above where that is forbidden."""
        said = fill(tmp_path, mount=True)
        assert said["refusal"] in ("JOURNAL_FULL", "JOURNAL_IO")
        assert said["acked"] > 3


FILL = """
import asyncio, json, os, resource, sys
from pathlib import Path
from holdfast.contracts import Body, Draft
from holdfast.errors import JournalError
from holdfast.journal.sqlite import SqliteJournal

async def main(path, limit):
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    journal = SqliteJournal.open(path)
    acked = 0
    try:
        while True:
            body = Body.of(os.urandom(20_000))
            await journal.append("s", [Draft(kind="a.b", payload={"n": acked}, bodies=(body,))])
            acked += 1
    except JournalError as why:
        refusal = why.code
    assert [r.payload["n"] async for r in journal.read("s")] == list(range(acked))
    assert (await journal.verify()).ok
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        Path(path).with_name("ballast").unlink()
    await journal.append("s", [Draft(kind="a.b", payload={"n": acked})])
    await journal.close()
    journal = SqliteJournal.open(path)
    assert [r.payload["n"] async for r in journal.read("s")] == list(range(acked + 1))
    assert (await journal.verify()).ok
    await journal.close()
    print(json.dumps({"acked": acked, "refusal": refusal}))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def fill(folder: Path, *, limit: int = 0, mount: bool = False) -> dict[str, Any]:
    """Append until nothing more fits, then make room and go on; what happened."""
    command = [sys.executable, "-c", FILL, str(folder / "journal.db")]
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if mount and subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        mount, limit = False, 300_000
    if mount:
        script = (
            'mount -t tmpfs -o size=1m none "$1" && head -c 200000 /dev/zero > "$1/ballast"'
            ' && shift && exec "$@"'
        )
        command = [*namespace, "sh", "-c", script, "-", str(folder), *command]
    done = subprocess.run([*command, str(limit)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


class TestReadOnly:
    """Rights do not bind root, so the attempt is made as nobody."""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        # Not `tmp_path`: nobody may not look into it.
        folder = Path(tempfile.mkdtemp(prefix="holdfast-read-only-"))
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)
        shutil.rmtree(folder)

    async def attempt(self, path: Path, folder_mode: int, file_mode: int | None) -> dict[str, Any]:
        if file_mode is not None:
            journal = SqliteJournal.open(path)
            await journal.append("s", [note(0)])
            await journal.close()
            path.chmod(file_mode)
        if os.geteuid() == 0:
            for name in (path.parent, path):
                if name.exists():
                    os.chown(name, 65534, 65534)
        path.parent.chmod(folder_mode)
        before = path.read_bytes() if file_mode is not None else None
        command = [sys.executable, "-c", AS_NOBODY, str(path)]
        done = subprocess.run(command, capture_output=True, check=False, cwd="/")
        assert done.returncode == 0, done.stderr.decode()
        if before is not None:
            assert path.read_bytes() == before
            log = path.with_name(f"{path.name}-wal")
            assert not log.exists() or log.stat().st_size == 0
        return json.loads(done.stdout)

    async def test_file(self, folder: Path):
        said = await self.attempt(folder / "journal.db", 0o755, 0o444)
        assert said == {"write": "JOURNAL_READ_ONLY", "read": 1}

    async def test_folder(self, folder: Path):
        said = await self.attempt(folder / "journal.db", 0o555, 0o644)
        assert said["write"] in ("JOURNAL_READ_ONLY", "JOURNAL_IO")
        assert said["read"] == 1

    async def test_file_and_folder(self, folder: Path):
        said = await self.attempt(folder / "journal.db", 0o555, 0o444)
        assert said["write"] in ("JOURNAL_READ_ONLY", "JOURNAL_IO")
        assert said["read"] == 1

    async def test_no_file_yet(self, folder: Path):
        said = await self.attempt(folder / "journal.db", 0o555, None)
        assert said == {"write": "JOURNAL_IO", "read": "NOT_FOUND"}

    async def test_no_folder_yet(self, folder: Path):
        folder.chmod(0o555)
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
        command = [sys.executable, "-c", AS_NOBODY, str(folder / "new" / "journal.db")]
        done = subprocess.run(command, capture_output=True, check=True, cwd="/")
        assert json.loads(done.stdout) == {"write": "JOURNAL_IO", "read": "NOT_FOUND"}


AS_NOBODY = """
import asyncio, json, os, sys, tempfile
from holdfast.contracts import Draft
from holdfast.errors import HoldfastError
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import SqliteReader

async def write(path):
    journal = SqliteJournal.open(path)
    try:
        await journal.append("s", [Draft(kind="a.b")])
    finally:
        await journal.close()
    return "ok"

async def read(path):
    reader = SqliteReader(path)
    try:
        assert (await reader.verify()).ok
        return len([record async for record in reader.read("s")])
    finally:
        await reader.close()

def outcome(attempt):
    try:
        return asyncio.run(attempt)
    except HoldfastError as why:
        return why.code

# Once before, with all rights: nobody may not be able to read what has yet to be imported.
with tempfile.TemporaryDirectory() as folder:
    assert outcome(write(f"{folder}/x.db")) == "ok"
    assert outcome(read(f"{folder}/x.db")) == 1
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps({"write": outcome(write(sys.argv[1])), "read": outcome(read(sys.argv[1]))}))
"""
