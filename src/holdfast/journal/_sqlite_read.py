"""Every question put to the SQLite file."""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.errors import JournalError
from holdfast.journal._sqlite_db import Columns, Db
from holdfast.journal._stage import Cell
from holdfast.journal.chain import Stored, damaged, decode
from holdfast.journal.content import Packed, unpack
from holdfast.journal.log import Head, Holding, Row

_RECORDS = (
    "select records.seq, coalesce(name, ''), records.pos, body, records.hash"
    " from records left join streams on streams.id = records.stream"
)
_HEAD = "select name, pos, seq, hash, epoch, owner, until from streams"

_DIGEST = re.compile("[0-9a-f]{64}")

TAIL = 50
"""Records whose bytes are checked when the file is opened: a torn write shows at the end."""


def page(db: Db, stream: str | None, after: int, limit: int) -> list[Stored]:
    """Stored records in order, after a position (or seq)."""
    if stream is None:
        rows = db.all(
            f"{_RECORDS} where records.seq > ? order by records.seq limit ?", (after, limit)
        )
    else:
        rows = db.all(
            "select records.seq, name, records.pos, body, records.hash from streams"
            " join records on records.stream = streams.id and records.pos > ?"
            " where name = ? order by records.pos limit ?",
            (after, stream, limit),
        )
    return [_stored(row) for row in rows]


def _stored(row: Columns) -> Stored:
    seq, stream, pos, body, hash_ = row
    return Stored(seq, stream, pos, _bytes(body), _bytes(hash_).hex())


def _bytes(value: object) -> bytes:
    """A damaged file can hold anything anywhere: what is no blob must fail the proof, not the reader."""
    return value if isinstance(value, bytes) else b""


def last_seq(db: Db) -> int:
    """The newest record's seq."""
    return db.value("select coalesce(max(seq), 0) from records")


def find_head(db: Db, stream: str) -> Head | None:
    """The head of a stream."""
    row = db.one(f"{_HEAD} where name = ?", (stream,))
    return None if row is None else _head(row)


def heads(db: Db) -> list[Head]:
    """The heads of all streams."""
    return [_head(row) for row in db.all(_HEAD)]


def _head(row: Columns) -> Head:
    name, pos, seq, hash_, epoch, owner, until = row
    return Head(name, pos, seq, _bytes(hash_).hex(), epoch, owner, until)


def find_row(db: Db, projection: str, key: str) -> Cell | None:
    """One row of a projection."""
    row = db.one("select tag, value from rows where projection = ? and key = ?", (projection, key))
    return None if row is None else (row[0], _value(row[1]))


def rows(db: Db, projection: str, tag: str | None, after: str, limit: int) -> list[Row]:
    """Rows of a projection in key order."""
    where = "" if tag is None else " and tag = ?"
    found = db.all(
        f"select key, tag, value from rows where projection = ? and key > ?{where}"
        " order by key limit ?",
        (projection, after, *([] if tag is None else [tag]), limit),
    )
    return [_row(row) for row in found]


def _row(row: Columns) -> Row:
    return Row(row[0], row[1], _value(row[2]))


def _value(text: object) -> dict[str, Any]:
    try:
        return {**json.loads(str(text))}
    except (ValueError, TypeError, RecursionError):
        raise JournalError(
            "JOURNAL_DAMAGED",
            "A projection's row is not what was written; the records may still be whole.",
            hint="Run `holdfast journal verify`; if the records hold, rebuild the projections.",
        ) from None


def find_body(db: Db, digest: str) -> Packed | None:
    """A body as it is stored."""
    if not _DIGEST.fullmatch(digest):
        return None
    row = db.one("select size, codec, body from content where digest = ?", (bytes.fromhex(digest),))
    return None if row is None else Packed(*row)


def find_small(db: Db, digest: str, most: int) -> Packed | None:
    """A body of at most so many bytes, as it is stored; `None` when it is longer, or not there."""
    if not _DIGEST.fullmatch(digest):
        return None
    row = db.one(
        "select size, codec, body from content where digest = ? and size <= ?",
        (bytes.fromhex(digest), most),
    )
    return None if row is None else Packed(*row)


def holdings(db: Db) -> list[Holding]:
    """Every reference to a body that is still there."""
    found = db.all(
        "select holdings.digest, holdings.seq, stream, run_id, retention from holdings"
        " join content on content.digest = holdings.digest and codec is not null"
    )
    return [_holding(row) for row in found]


def _holding(row: Columns) -> Holding:
    return Holding(_bytes(row[0]).hex(), *row[1:])


def check_tail(db: Db) -> tuple[int, int]:
    """Check that the newest records are whole; the numbers of records and streams."""
    with db.snapshot():
        last = last_seq(db)
        for stored in page(db, None, max(0, last - TAIL), TAIL):
            decode(stored)
        lost = db.one("select seq, name, pos from streams where seq > ?", (last,))
        if lost is not None:
            seq, stream, pos = lost
            why = f"it is missing; the file ends at record {last}"
            raise damaged(Stored(seq, stream, pos, b"", ""), why)
        return last, db.value("select count(*) from streams")


def check_bodies(db: Db) -> tuple[str | None, int]:
    """The first body that is not what its digest says, or is missing, and how many were erased."""
    erased = 0
    for digest, size, codec, body in db.each("select digest, size, codec, body from content"):
        if codec is None:
            erased += 1
            continue
        name = _bytes(digest).hex()
        try:
            unpack(name, Packed(size, codec, body), None)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is named
            return name, erased
    missing = db.one("select digest from holdings where digest not in (select digest from content)")
    return (None if missing is None else _bytes(missing[0]).hex()), erased
