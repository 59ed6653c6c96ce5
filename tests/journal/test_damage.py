"""Torn, cut, overwritten and foreign files: always a typed answer, and nothing that was whole is lost."""

# ruff: noqa: ASYNC221, ASYNC240 - a test keeps nobody waiting

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast.contracts import Body, Record
from holdfast.errors import HoldfastError, JournalError, NotFound
from holdfast.journal import Bad
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import SqliteReader
from holdfast.testing._drafts import STORY, note

PROJECTIONS = ("sessions", "runs", "effects", "approvals", "usage")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed journal, and the files of one whose process was killed: 12 commits, all in the log."""
    folder = tmp_path_factory.mktemp("files")
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True)
    return folder


MAKE = """
import asyncio, os, shutil, sys
from holdfast.contracts import Body
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._drafts import STORY, note

async def main(folder):
    journal = SqliteJournal.open(f"{folder}/closed.db")
    await journal.append("s", STORY)
    await journal.append("t", [note(n, bodies=[Body.of(os.urandom(3000))]) for n in range(30)])
    await journal.close()
    shutil.copy(f"{folder}/closed.db", f"{folder}/killed.db")
    journal = SqliteJournal.open(f"{folder}/killed.db")
    sizes = []
    for n in range(12):
        await journal.append("u", [note([n, part]) for part in range(3)])
        sizes.append(os.path.getsize(f"{folder}/killed.db-wal"))
    print(sizes)
    os._exit(0)

asyncio.run(main(sys.argv[1]))
"""
FLIPS = int(os.environ.get("HOLDFAST_FLIPS", "60"))
RECORDS = len(STORY) + 30
COMMITS = 12


class Look:
    """What can be had from a damaged file. Whatever else than our own errors comes out is a bug."""

    def __init__(self) -> None:
        self.refusal: HoldfastError | None = None
        self.records: list[Record] = []
        self.bad: Bad | None = None
        self.ok = False

    async def at(self, path: Path) -> "Look":
        try:
            journal = SqliteJournal.open(path)
        except JournalError as refusal:
            self.refusal = refusal
            return self
        try:
            await self._everything(journal)
        except JournalError as refusal:
            self.refusal = refusal
        except NotFound:
            assert not self.ok  # a body whose place in the index is lost: the proof has said so
        finally:
            await journal.close()
        return self

    async def _everything(self, journal: SqliteJournal) -> None:
        report = await journal.verify()
        self.ok, self.bad = report.ok, report.bad
        self.records = [record async for record in journal.read_all()]
        for projection in PROJECTIONS:
            await journal.rows(projection)
        for holding in await journal.holdings():
            await journal.content(holding.digest)
        await journal.append("v", [note("after")])
        await journal.rebuild()


def stored_at(path: Path, seq: int) -> bytes:
    """The bytes of a record as they are stored."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return db.execute("select body from records where seq=?", (seq,)).get
    finally:
        db.close()


async def whole(path: Path) -> list[Record]:
    journal = SqliteJournal.open(path)
    try:
        return [record async for record in journal.read_all()]
    finally:
        await journal.close()


def copy(files: Path, name: str, to: Path) -> Path:
    """A copy of a journal's files to damage."""
    to.mkdir(exist_ok=True)
    for old in files.glob(f"{name}*"):
        if not old.name.endswith("-shm"):
            shutil.copy(old, to / old.name)
    return to / name


def refused_with(code: str) -> pytest.RaisesExc[JournalError]:
    return pytest.raises(JournalError, match=f"^{code}: ", check=lambda why: why.code == code)


class TestForeign:
    @pytest.mark.parametrize(
        "data", [b"xy", b"no database at all\n" * 100, bytes(5000), b"SQLite format 3\x00"]
    )
    async def test_a_file_that_is_no_database_is_refused_and_left_alone(
        self, tmp_path: Path, data: bytes
    ):
        path = tmp_path / "journal.db"
        path.write_bytes(data)
        with refused_with("JOURNAL_DAMAGED"):
            SqliteJournal.open(path)
        assert path.read_bytes() == data
        assert list(tmp_path.glob("journal*")) == [path]

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    @pytest.mark.parametrize("version", [0, 1, 99])
    async def test_the_database_of_another_application_is_left_alone(
        self, tmp_path: Path, mode: str, version: int
    ):
        path = tmp_path / "journal.db"
        db = apsw.Connection(str(path))
        db.execute(f"pragma journal_mode={mode}").fetchall()
        db.execute(f"create table mine (x); pragma user_version={version}")
        db.close()
        before = path.read_bytes()
        with refused_with("JOURNAL_DAMAGED"):
            SqliteJournal.open(path)
        assert path.read_bytes() == before
        assert list(tmp_path.glob("journal*")) == [path]

    async def test_a_log_that_another_application_left_is_left_alone(self, tmp_path: Path):
        path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
        program = (
            "import apsw, os, sys; db = apsw.Connection(sys.argv[1]);"
            "db.execute('pragma journal_mode=wal').fetchall();"
            "db.execute('create table mine (x)'); os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        before = path.read_bytes(), log.read_bytes()
        assert before[1]
        with refused_with("JOURNAL_DAMAGED"):
            SqliteJournal.open(path)
        assert (path.read_bytes(), log.read_bytes()) == before

    async def test_a_folder_is_refused(self, tmp_path: Path):
        with refused_with("JOURNAL_IO"):
            SqliteJournal.open(tmp_path)

    async def test_a_name_that_is_too_long_is_refused(self, tmp_path: Path):
        with refused_with("JOURNAL_IO"):
            SqliteJournal.open(tmp_path / ("x" * 300))

    async def test_a_file_in_the_way_of_the_folder_is_refused(self, tmp_path: Path):
        (tmp_path / "file").write_text("x")
        with refused_with("JOURNAL_IO"):
            SqliteJournal.open(tmp_path / "file" / "journal.db")


class TestCut:
    async def test_a_file_cut_at_any_length_is_refused(self, files: Path, tmp_path: Path):
        size = (files / "closed.db").stat().st_size
        for length in (2, 99, 100, 511, *range(512, size, 512), size - 1):
            path = copy(files, "closed.db", tmp_path)
            with path.open("r+b") as file:
                file.truncate(length)
            with refused_with("JOURNAL_DAMAGED"):
                SqliteJournal.open(path)

    async def test_an_empty_file_is_as_good_as_none(self, tmp_path: Path):
        """A process that dies right after making the file leaves the same: it can't be refused."""
        path = tmp_path / "journal.db"
        for nothing in (b"", b"x"):  # SQLite takes a single byte for nothing
            path.write_bytes(nothing)
            journal = SqliteJournal.open(path)
            assert journal.found == (True, 0, 0, False, None)
            await journal.close()

    async def test_a_file_cut_to_nothing_beside_a_log_is_refused_and_the_log_kept(
        self, files: Path, tmp_path: Path
    ):
        path = copy(files, "killed.db", tmp_path)
        log = path.with_name("killed.db-wal")
        path.write_bytes(b"")
        before = log.read_bytes()
        with refused_with("JOURNAL_DAMAGED"):
            SqliteJournal.open(path)
        assert log.read_bytes() == before

    async def test_a_file_cut_beside_a_log_never_passes_for_whole(
        self, files: Path, tmp_path: Path
    ):
        original = await whole(copy(files, "killed.db", tmp_path / "original"))
        size = (files / "killed.db").stat().st_size
        for length in random.Random(4).sample(range(512, size, 512), FLIPS // 2):
            path = copy(files, "killed.db", tmp_path)
            with path.open("r+b") as file:
                file.truncate(length)
            look = await Look().at(path)
            if look.refusal is None and look.ok:
                assert look.records == original  # all that was cut off was in the log as well
            else:
                assert look.refusal is None or look.refusal.code == "JOURNAL_DAMAGED"

    async def test_everything_before_the_last_whole_commit_survives_a_cut_log(
        self, files: Path, tmp_path: Path
    ):
        original = await whole(copy(files, "killed.db", tmp_path / "original"))
        log = (files / "killed.db-wal").read_bytes()
        ends = commits_in(log)
        assert len(ends) == COMMITS
        cuts = {0, 1, 31, 32, *random.Random(3).sample(range(len(log)), 20)}
        cuts |= {end + by for end in ends[::2] for by in (-1, 0, 1)}
        for length in sorted(cut for cut in cuts if cut <= len(log)):
            path = copy(files, "killed.db", tmp_path)
            path.with_name("killed.db-wal").write_bytes(log[:length])
            look = await Look().at(path)
            survivors = sum(end <= length for end in ends)
            assert look.refusal is None
            assert look.ok
            assert look.records == original[: RECORDS + 3 * survivors]

    async def test_everything_before_a_flipped_byte_of_the_log_survives(
        self, files: Path, tmp_path: Path
    ):
        original = await whole(copy(files, "killed.db", tmp_path / "original"))
        log = (files / "killed.db-wal").read_bytes()
        ends = commits_in(log)
        for at in random.Random(1).sample(range(32, len(log)), FLIPS // 2):
            path = copy(files, "killed.db", tmp_path)
            damaged = bytearray(log)
            damaged[at] ^= 0x10
            path.with_name("killed.db-wal").write_bytes(damaged)
            look = await Look().at(path)
            survivors = sum(end <= at for end in ends)
            assert look.refusal is None
            assert look.ok
            assert look.records == original[: RECORDS + 3 * survivors]

    @pytest.mark.parametrize("garbage", [b"x", b"garbage" * 5000, bytes(40_000)])
    async def test_a_log_of_garbage_is_passed_over(
        self, files: Path, tmp_path: Path, garbage: bytes
    ):
        path = copy(files, "closed.db", tmp_path)
        path.with_name("closed.db-wal").write_bytes(garbage)
        look = await Look().at(path)
        assert look.refusal is None
        assert look.ok
        assert len(look.records) == RECORDS

    async def test_opening_says_that_it_took_over_a_log(self, files: Path, tmp_path: Path):
        path = copy(files, "killed.db", tmp_path)
        journal = SqliteJournal.open(path)
        assert journal.found[:4] == (False, RECORDS + 3 * COMMITS, 3, True)
        await journal.close()
        journal = SqliteJournal.open(path)
        assert journal.found[:4] == (False, RECORDS + 3 * COMMITS, 3, False)
        await journal.close()


def commits_in(log: bytes) -> list[int]:
    """Where the commits of a write-ahead log end."""
    page = int.from_bytes(log[8:12])
    frames = range(32, len(log), 24 + page)
    return [at + 24 + page for at in frames if int.from_bytes(log[at + 4 : at + 8])]


class TestOverwritten:
    @pytest.fixture
    def pages(self, files: Path) -> int:
        size = (files / "closed.db").stat().st_size
        assert size % 4096 == 0
        return size // 4096

    @pytest.mark.parametrize("filling", ["zeros", "noise", "other page"])
    async def test_a_lost_page_never_passes_for_whole(
        self, files: Path, tmp_path: Path, pages: int, filling: str
    ):
        original = await whole(copy(files, "closed.db", tmp_path / "original"))
        data = (files / "closed.db").read_bytes()
        for number in range(pages):
            path = copy(files, "closed.db", tmp_path)
            other = (number + 1) % pages * 4096
            page = {
                "zeros": bytes(4096),
                "noise": random.Random(number).randbytes(4096),
                "other page": data[other : other + 4096],
            }[filling]
            with path.open("r+b") as file:
                file.seek(number * 4096)
                file.write(page)
            look = await Look().at(path)
            await self.judge(look, original)

    async def test_a_flipped_byte_anywhere_never_passes_for_whole(
        self, files: Path, tmp_path: Path
    ):
        original = await whole(copy(files, "closed.db", tmp_path / "original"))
        data = (files / "closed.db").read_bytes()
        for at in random.Random(2).sample(range(len(data)), FLIPS * 2):
            path = copy(files, "closed.db", tmp_path)
            damaged = bytearray(data)
            damaged[at] ^= 1 << (at % 8)
            path.write_bytes(damaged)
            look = await Look().at(path)
            await self.judge(look, original)

    async def judge(self, look: Look, original: list[Record]) -> None:
        """Either it is refused, or reported, or every record is what it was."""
        if look.refusal is None and look.ok:
            assert look.records == original
        elif look.refusal is not None:
            assert look.refusal.code in ("JOURNAL_DAMAGED", "JOURNAL_IO", "JOURNAL_TOO_NEW")

    async def test_a_flipped_byte_of_a_record_in_the_file_names_it(
        self, files: Path, tmp_path: Path
    ):
        original = await whole(copy(files, "closed.db", tmp_path / "original"))
        data = (files / "closed.db").read_bytes()
        for record in original[:: len(original) // 5]:
            mark = stored_at(files / "closed.db", record.seq)
            for by in range(0, len(mark), 25):
                path = copy(files, "closed.db", tmp_path)
                damaged = bytearray(data)
                at = data.find(mark)
                assert at >= 0
                while at >= 0:  # SQLite leaves copies behind where it moves things around
                    damaged[at + by] ^= 0x04
                    at = data.find(mark, at + 1)
                path.write_bytes(damaged)
                with pytest.raises(JournalError, match=f"^JOURNAL_DAMAGED: Record {record.seq} "):
                    SqliteJournal.open(path)
                reader = SqliteReader(path)
                report = await reader.verify()
                assert report.bad is not None
                assert (report.bad.seq, report.bad.stream) == (record.seq, record.stream)
                await reader.close()

    async def test_an_older_damaged_record_does_not_keep_the_journal_from_opening(
        self, files: Path, tmp_path: Path
    ):
        path = copy(files, "closed.db", tmp_path)
        journal = SqliteJournal.open(path)
        await journal.append("w", [note(n) for n in range(60)])
        await journal.close()
        data = path.read_bytes()
        mark = stored_at(path, 5)
        path.write_bytes(data.replace(mark, mark[:-1] + b"x"))
        journal = SqliteJournal.open(path)
        report = await journal.verify()
        assert report.bad is not None
        assert report.bad.seq == 5
        with refused_with("JOURNAL_DAMAGED"):
            _ = [record async for record in journal.read_all()]
        await journal.append("w", [note("still")])
        await journal.close()


async def test_a_body_never_passes_for_another(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal.open(path)
    data = random.Random(3).randbytes(900)  # stored as it is
    body = Body.of(data)
    await journal.append("s", [note(bodies=[body])])
    await journal.close()
    path.write_bytes(path.read_bytes().replace(data, data[:-1] + b"y"))
    journal = SqliteJournal.open(path)
    with refused_with("JOURNAL_DAMAGED"):
        await journal.content(body.ref)
    assert (await journal.verify()).bad_content == body.ref.digest
    await journal.close()
