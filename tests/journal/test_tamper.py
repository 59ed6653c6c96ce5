"""Whoever changes a stored record is found out, and the record is named."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.contracts import Body, Draft, digest
from holdfast.errors import JournalError
from holdfast.journal import Bad
from holdfast.journal._slim import slim
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._drafts import asked, created, note, started

SMALL, LARGE = b"a small body", b"a large body " * 500


class Meddler:
    """Writes to the file past the journal."""

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        # The index would refuse some of what we are going to do; a meddler would drop it, too.
        self.db.execute("drop index records_by_stream")

    def sql(self, sql: str, *values: Any) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    @contextmanager
    def for_a_while(self) -> Iterator[None]:
        """Afterwards everything is as it was."""
        tables = ("records", "streams", "content", "holdings")
        kept = {table: self.sql(f"select * from {table}") for table in tables}
        yield
        with self.db:
            for table, rows in kept.items():
                self.db.execute(f"delete from {table}")
                for row in rows:
                    marks = ",".join("?" * len(row))
                    self.db.execute(f"insert into {table} values ({marks})", row)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "journal.db")
    yield journal
    await journal.close()


@pytest.fixture
def meddler(journal: SqliteJournal) -> Iterator[Meddler]:
    meddler = Meddler(journal.path)
    yield meddler
    meddler.db.close()


async def fill(journal: SqliteJournal) -> None:
    """Three streams, of which the second ends last; every shape of record."""
    await journal.append("first", [note("ünï“ \n\x00\U0001f600"), note({"a": [1, 2.5, None] * 50})])
    await journal.append("second", [created(), started("r1", bodies=[Body.of(SMALL)])])
    await journal.append("third", [Draft(kind="a.b", actor="me", turn_id="t", cause=1)])
    await journal.append("first", [note(bodies=[Body.of(LARGE, role="x")])])
    await journal.append("second", [asked("a1", "e1", "r1"), note()])


class Change:
    """One column of one record changed for a while, by SQL."""

    def __init__(self, meddler: Meddler, seq: int, column: str) -> None:
        self.meddler, self.seq, self.column = meddler, seq, column
        self.value = meddler.sql(f"select {column} from records where seq=?", seq)[0][0]

    def to(self, value: object) -> None:
        sql = f"update records set {self.column}=? where seq=?"
        self.meddler.sql(sql, value, self.seq)

    def back(self) -> None:
        self.to(self.value)


async def bad_of(journal: SqliteJournal) -> Bad:
    report = await journal.verify()
    assert not report.ok
    assert report.bad is not None
    return report.bad


async def test_flipping_any_byte_of_any_record_names_it(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    flips = 0
    for stored in await journal.page(None, 0, 100):
        for column in ("body", "hash"):
            change = Change(meddler, stored.seq, column)
            for bit in range(0, len(change.value) * 8, 3):  # of every byte at least two
                flipped = bytearray(change.value)
                flipped[bit // 8] ^= 1 << (bit % 8)
                change.to(bytes(flipped))
                bad = await bad_of(journal)
                assert (bad.seq, bad.stream, bad.pos) == (stored.seq, stored.stream, stored.pos)
                assert bad.why == "its bytes do not match its hash"
                flips += 1
            change.back()
    assert flips > 2000
    assert (await journal.verify()).ok


async def test_cutting_or_growing_a_record_names_it(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    for stored in await journal.page(None, 0, 100):
        for column in ("body", "hash"):
            change = Change(meddler, stored.seq, column)
            for value in (b"", change.value[:-1], change.value + b" ", change.value * 2):
                change.to(value)
                assert (await bad_of(journal)).seq == stored.seq
            change.back()
    assert (await journal.verify()).ok


async def test_moving_a_record_to_another_stream_or_position_names_it(
    journal: SqliteJournal, meddler: Meddler
):
    await fill(journal)
    for stored in await journal.page(None, 0, 100):
        for column in ("stream", "pos"):
            change = Change(meddler, stored.seq, column)
            for bit in range(40):
                change.to(change.value ^ (1 << bit))
                bad = await bad_of(journal)
                assert bad.seq == stored.seq
                assert bad.why == "its bytes do not match its hash"  # they tell where it belongs
            change.back()
    assert (await journal.verify()).ok


async def test_renumbering_a_record_is_found_where_it_is_missing(
    journal: SqliteJournal, meddler: Meddler
):
    # A record that has another number is not where it was. The next one, which now follows nothing, shows it; where
    # there is no next one, the record itself does, at its new place; or the head of its stream.
    await fill(journal)
    last = await journal.last_seq()
    for seq in range(1, last + 1):
        for moved in (0, -seq, *(seq ^ (1 << bit) for bit in range(4, 40))):
            meddler.sql("update records set seq=? where seq=?", moved, seq)
            bad = await bad_of(journal)
            if seq < last:
                assert bad.seq == seq + 1
                assert bad.why == f"record {seq} is missing before it"
            elif moved > seq:
                assert bad.seq == moved
            else:
                assert bad.stream == "second"
                assert "head" in bad.why
            meddler.sql("update records set seq=? where seq=?", seq, moved)
    assert (await journal.verify()).ok


async def test_deleting_a_record_is_found_at_the_next_one(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    last = await journal.last_seq()
    for seq in range(1, last + 1):
        with meddler.for_a_while():
            meddler.sql("delete from records where seq=?", seq)
            bad = await bad_of(journal)
            if seq < last:
                assert (bad.seq, bad.why) == (seq + 1, f"record {seq} is missing before it")
            else:
                assert (bad.seq, bad.stream, bad.pos) == (seq - 1, "second", 3)
                assert bad.why == "the stream's head is at position 4, its last record at 3"
    assert (await journal.verify()).ok


async def test_deleting_the_tail_is_found_at_the_heads(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    last = await journal.last_seq()
    for seq in range(2, last + 1):
        with meddler.for_a_while():
            meddler.sql("delete from records where seq>=?", seq)
            bad = await bad_of(journal)
            assert bad.seq == seq - 1
            assert "head is at position" in bad.why
    with meddler.for_a_while():
        meddler.sql("delete from records")
        assert (await bad_of(journal)).seq == 0


async def test_deleting_a_whole_stream_is_found_where_it_is_missing(
    journal: SqliteJournal, meddler: Meddler
):
    await fill(journal)
    # The first record after one that is gone; "second" ends last, so its head, too, must be gone to hide it.
    for stream, found_at in (("first", 3), ("second", 5), ("third", 6)):
        (number,) = meddler.sql("select id from streams where name=?", stream)[0]
        for with_head in (False, True):
            with meddler.for_a_while():
                meddler.sql("delete from records where stream=?", number)
                if with_head:
                    meddler.sql("delete from streams where id=?", number)
                bad = await bad_of(journal)
                assert bad.seq == found_at
                assert bad.why.endswith("is missing before it")


async def test_a_tail_deleted_with_its_head_is_found_by_a_root_noted_elsewhere(
    journal: SqliteJournal, meddler: Meddler
):
    """Nothing inside the file can prove that it once went on; that is what the root is for."""
    await fill(journal)
    root = (await journal.verify()).root
    before = (await journal.page("second", 0, 10))[1]
    with meddler.for_a_while():
        meddler.sql("delete from records where seq>6")
        sql = "update streams set pos=2, seq=4, hash=? where name='second'"
        meddler.sql(sql, bytes.fromhex(before.hash))
        report = await journal.verify()
        assert report.ok
        assert report.root != root
    assert (await journal.verify()).root == root


async def test_swapping_two_records_names_the_first(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    last = await journal.last_seq()
    for one in range(1, last + 1):
        for two in range(one + 1, last + 1):
            with meddler.for_a_while():
                for old, new in ((one, -1), (two, one), (-1, two)):
                    meddler.sql("update records set seq=? where seq=?", new, old)
                assert (await bad_of(journal)).seq == one
            with meddler.for_a_while():  # or only what they say
                kept = meddler.sql(
                    "select seq, body, hash from records where seq in (?,?)", one, two
                )
                for (seq, _, _), (_, body, hash_) in zip(kept, reversed(kept), strict=True):
                    meddler.sql("update records set body=?, hash=? where seq=?", body, hash_, seq)
                assert (await bad_of(journal)).seq == one
    assert (await journal.verify()).ok


async def forge(journal: SqliteJournal, meddler: Meddler, seq: int) -> bytes:
    """Change what a record says and give it the hash that goes with it."""
    (stored,) = await journal.page(None, seq - 1, 1)
    forged = stored.body.replace(b'"actor":"holdfast"', b'"actor":"somebody"')
    hash_ = bytes.fromhex(digest(forged))
    place = re.fullmatch(
        rb'(.*"pos":)\d+,"prev":"\w{64}"(.*"seq":)\d+,"stream":"\w*","time":(.*)', forged
    )
    assert place is not None
    kept = slim(b"\0".join(place.groups()))
    meddler.sql("update records set body=?, hash=? where seq=?", kept, hash_, seq)
    return hash_


async def test_a_forged_record_is_found_by_its_follower(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    with meddler.for_a_while():
        await forge(journal, meddler, 1)
        bad = await bad_of(journal)
        assert (bad.seq, bad.stream, bad.pos) == (2, "first", 2)
        assert (
            bad.why == "its bytes do not match its hash"
        )  # which is taken over the one before it, too
    with meddler.for_a_while():
        await forge(journal, meddler, 8)
        bad = await bad_of(journal)
        assert (bad.stream, bad.pos) == ("second", 4)
        assert bad.why == "the stream's head names another record"


async def test_a_forged_end_is_found_by_a_root_noted_elsewhere(
    journal: SqliteJournal, meddler: Meddler
):
    await fill(journal)
    root = (await journal.verify()).root
    with meddler.for_a_while():
        forged = await forge(journal, meddler, 8)
        meddler.sql("update streams set hash=? where name='second'", forged)
        report = await journal.verify()
        assert report.ok
        assert report.root != root


@pytest.mark.parametrize(
    "sql",
    [
        "update streams set name='other' where name='first'",
        "update streams set hash=zeroblob(32) where name='first'",
        "update streams set hash=x'' where name='first'",
        "update streams set pos=2 where name='first'",
        "update streams set pos=4 where name='first'",
        "delete from streams where name='first'",
    ],
)
async def test_changing_a_head_is_found(journal: SqliteJournal, meddler: Meddler, sql: str):
    await fill(journal)
    meddler.sql(sql)
    await bad_of(journal)


@pytest.mark.parametrize("body", [SMALL, LARGE])
@pytest.mark.parametrize(
    "change",
    [
        "body=zeroblob(length(body))",
        "body=x''",
        "body=cast(substr(body, 1, length(body) - 1) as blob)",
        "body=cast(body || x'00' as blob)",
        "size=size+1",
        "codec=1-codec",
        "codec=7",
    ],
)
async def test_changing_a_body_is_found(
    journal: SqliteJournal, meddler: Meddler, body: bytes, change: str
):
    await fill(journal)
    meddler.sql(f"update content set {change} where digest=?", bytes.fromhex(digest(body)))
    report = await journal.verify()
    assert (report.ok, report.bad, report.bad_content) == (False, None, digest(body))
    with pytest.raises(Exception, match="JOURNAL_DAMAGED"):
        await journal.content(digest(body))


async def test_flipping_any_byte_of_a_body_is_found(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    for name in (digest(SMALL), digest(LARGE)):
        ((stored,),) = meddler.sql("select body from content where digest=?", bytes.fromhex(name))
        for at in range(len(stored)):
            flipped = bytearray(stored)
            flipped[at] ^= 1 << (at % 8)
            sql = "update content set body=? where digest=?"
            meddler.sql(sql, bytes(flipped), bytes.fromhex(name))
            assert (await journal.verify()).bad_content == name
        meddler.sql("update content set body=? where digest=?", stored, bytes.fromhex(name))
    assert (await journal.verify()).ok


async def test_renaming_or_removing_a_body_is_found(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    for change in ("update content set digest=zeroblob(32)", "delete from content"):
        with meddler.for_a_while():
            meddler.sql(f"{change} where digest=?", bytes.fromhex(digest(SMALL)))
            report = await journal.verify()
            assert not report.ok
            assert report.bad_content in (digest(SMALL), "00" * 32)


async def test_erasing_a_body_is_no_damage(journal: SqliteJournal):
    await fill(journal)
    for body, erased in ((SMALL, 1), (LARGE, 2)):
        assert await journal.erase(digest(body), reason="test")
        report = await journal.verify()
        assert (report.ok, report.erased) == (True, erased)


async def test_a_tail_that_is_missing_is_found_on_opening(journal: SqliteJournal, meddler: Meddler):
    await fill(journal)
    meddler.sql("delete from records where seq=8")
    with pytest.raises(JournalError, match=r"^JOURNAL_DAMAGED: Record 8 .* ends at record 7"):
        SqliteJournal.open(journal.path)
