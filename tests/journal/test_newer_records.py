"""What a newer holdfast wrote is kept and shown, never dropped, and never taken for something else."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.contracts import Event, Record, canonical_json, digest
from holdfast.errors import JournalError
from holdfast.journal import ChainCheck
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._conformance._base import everything
from holdfast.testing._drafts import STORY, note, started


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "journal.db")
    await journal.append("s", STORY)
    yield journal
    await journal.close()


async def insert(journal: SqliteJournal, **fields: Any) -> bytes:
    """Append a record that this version would not write, with a chain that is right."""
    head, seq = await journal.head("s"), await journal.last_seq() + 1
    record = {
        "actor": "holdfast",
        "kind": "run_started",
        "payload": {},
        "pos": head.pos + 1,
        "prev": head.hash,
        "privacy": "internal",
        "seq": seq,
        "stream": "s",
        "time": 5,
        "v": 1,
        **fields,
    }
    return await insert_bytes(journal, canonical_json(record))


async def insert_bytes(journal: SqliteJournal, body: bytes) -> bytes:
    head, seq = await journal.head("s"), await journal.last_seq() + 1
    hash_ = bytes.fromhex(digest(body))
    db = apsw.Connection(str(journal.path))
    with db:
        ((stream,),) = db.execute("select id from streams where name='s'").fetchall()
        row = (seq, stream, head.pos + 1, body, hash_)
        db.execute("insert into records values (?,?,?,?,?)", row)
        sql = "update streams set pos=?, seq=?, hash=? where id=?"
        db.execute(sql, (head.pos + 1, seq, hash_, stream))
    db.close()
    return body


async def last(journal: SqliteJournal) -> Record:
    return [record async for record in journal.read("s")][-1]


UNKNOWN = {
    "an unknown kind": {"kind": "quantum_leap", "payload": {"far": True}},
    "a newer format": {"v": 2},
    "a newer format of an unknown kind": {"v": 7, "kind": "quantum_leap"},
    "a newer format with more fields": {"v": 2, "zone": "eu", "tags": [1, 2]},
    "a newer format laid out otherwise": {"v": 2, "payload": ["no", "object"], "privacy": {}},
    "a format that is no number": {"v": "two"},
    "no format at all": {"v": None, "payload": 7},
}


@pytest.mark.parametrize("case", UNKNOWN)
async def test_it_is_kept_and_shown_as_unknown(journal: SqliteJournal, case: str):
    body = await insert(journal, **UNKNOWN[case])
    record = await last(journal)
    assert not record.known
    assert record.kind == json.loads(body)["kind"]
    assert (record.seq, record.stream, record.pos) == (len(STORY) + 1, "s", len(STORY) + 1)
    assert not Event.of(record).known
    if isinstance(UNKNOWN[case].get("v"), int):
        assert record.v == UNKNOWN[case]["v"]
    report = await journal.verify()
    assert (report.ok, report.records) == (True, len(STORY) + 1)


@pytest.mark.parametrize("case", UNKNOWN)
async def test_it_is_exported_byte_for_byte(journal: SqliteJournal, case: str):
    body = await insert(journal, **UNKNOWN[case])
    page = await journal.page(None, 0, 1000)
    assert page[-1].body == body
    check = ChainCheck()
    assert not any(check.add(stored) for stored in page)


@pytest.mark.parametrize("case", UNKNOWN)
async def test_the_stream_goes_on_behind_it(journal: SqliteJournal, case: str, tmp_path: Path):
    await insert(journal, **UNKNOWN[case])
    async with aclosing(journal.subscribe(after=len(STORY))) as events:
        first = await anext(events)
        assert isinstance(first, Record)
        assert not first.known
        await journal.append("s", [note("after")], expected_pos=len(STORY) + 1)
        second = await anext(events)
        assert isinstance(second, Record)
        assert (second.prev, second.known) == (first.hash, True)
    assert (await journal.verify()).ok
    await journal.close()
    again = SqliteJournal.open(journal.path)
    assert again.found.records == len(STORY) + 2
    await again.close()


async def test_it_changes_no_projection(journal: SqliteJournal):
    before = (await everything(journal)).rows
    await insert(journal, v=2, run_id="newer", payload=started("newer").payload)
    assert (await everything(journal)).rows == before


async def test_rebuilding_refuses_a_newer_format(journal: SqliteJournal):
    await insert(journal, v=2)
    before = await everything(journal)
    with pytest.raises(JournalError, match=r"^JOURNAL_TOO_NEW"):
        await journal.rebuild()
    assert await everything(journal) == before


async def test_rebuilding_passes_over_an_unknown_kind(journal: SqliteJournal):
    await insert(journal, kind="quantum_leap")
    before = await everything(journal)
    assert await journal.rebuild() == len(STORY) + 1
    assert await everything(journal) == before


@pytest.mark.parametrize(
    "payload", [{}, {"effect_id": "e9"}, {"metrics": 1}, {"effect_id": ["list"]}]
)
@pytest.mark.parametrize("kind", ["run_started", "run_completed", "effect_intent", "effect_result"])
async def test_rebuilding_refuses_what_can_not_have_been_appended(
    journal: SqliteJournal, kind: str, payload: dict[str, Any]
):
    await insert(journal, kind=kind, payload=payload, run_id="r9")
    before = await everything(journal)
    with pytest.raises(JournalError, match=rf"^JOURNAL_DAMAGED: Record {len(STORY) + 1} "):
        await journal.rebuild()
    assert await everything(journal) == before


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b"7", b"\xff\xfe{}", b"[" * 100_000])
async def test_bytes_that_are_no_record_are_damage(journal: SqliteJournal, body: bytes):
    await insert_bytes(journal, body)
    with pytest.raises(JournalError, match=rf"^JOURNAL_DAMAGED: Record {len(STORY) + 1} "):
        await last(journal)
    report = await journal.verify()
    assert report.bad is not None
    assert (report.bad.seq, report.bad.why) == (len(STORY) + 1, "its bytes are no record")
