"""Every question put to the SQLite file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter

from holdfast.contracts.canonical import json_string
from holdfast.errors import JournalError
from holdfast.journal._slim import whole
from holdfast.journal._sqlite_db import Columns, Db
from holdfast.journal._sqlite_tables import RETENTIONS
from holdfast.journal.chain import ZERO, Stored, damaged, decode
from holdfast.journal.content import Packed, unpack
from holdfast.journal.log import Head, Holding

_RECORDS = (
    "select records.seq, coalesce(name, ''), records.pos, body, records.hash, records.stream"
    " from records left join streams on streams.id = records.stream"
)
_HEAD = "select name, pos, seq, hash, epoch, owner, until from streams"

_BODIES = "select digest, size, codec, body from content where codec is not null"
_HELD = (
    "select digest, stream, run, retention, seq, codec from content union all"
    " select digest, holdings.stream, holdings.run, holdings.retention, holdings.seq, codec"
    " from holdings join content on content.id = holdings.content"
)

_HOLDINGS = (
    f"select digest, held.seq, streams.name, names.name, retention from ({_HELD}) as held"
    " join streams on streams.id = held.stream left join names on names.id = held.run"
    " where codec is not null"
)

_DIGEST = re.compile("[0-9a-f]{64}")

MANY = 500
"""Bodies asked for in one question."""

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
            "select records.seq, name, records.pos, body, records.hash, streams.id from streams"
            " join records on records.stream = streams.id and records.pos > ?"
            " where name = ? order by records.pos limit ?",
            (after, stream, limit),
        )
    return _Unfolding(db).all(rows)


class _Unfolding:
    """Makes stored rows into records: each needs the hash of the one before it in its stream."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._last: dict[int, tuple[int, str]] = {}
        self._names: dict[int, str] = {}

    def all(self, rows: list[Columns]) -> list[Stored]:
        found: list[Stored] = []
        last, names = self._last, self._names
        for seq, stream, pos, body, hash_, number in rows:
            name = names.get(number)
            if name is None:
                name = names[number] = json_string(str(stream))
            before = last.get(number)
            prev = before[1] if before and before[0] + 1 == pos else self._before(number, pos)
            own = _bytes(hash_).hex()
            last[number] = (pos or 0, own)
            text = whole(_bytes(body), seq, name, pos, prev)
            found.append(Stored(seq, stream, pos, text, own))
        return found

    def _before(self, stream: int, pos: int) -> str:
        sql = "select hash from records where stream = ? and pos = ? - 1 and pos > 0"
        row = self._db.one(sql, (stream, pos))
        return ZERO if row is None else _bytes(row[0]).hex()


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


def find_bodies(db: Db, digests: Iterable[str]) -> dict[str, bytes]:
    """The bodies that are there, of those asked for."""
    found: dict[str, bytes] = {}
    for some in _portions(digests):
        rows = db.all(f"{_BODIES} and {_among(some)}", some)
        for digest, size, codec, body in rows:
            name = _bytes(digest).hex()
            found[name] = unpack(name, Packed(size, codec, body), None)
    return found


def _portions(digests: Iterable[str]) -> Iterator[list[bytes]]:
    names = [bytes.fromhex(name) for name in dict.fromkeys(digests) if _DIGEST.fullmatch(name)]
    for start in range(0, len(names), MANY):
        yield names[start : start + MANY]


def _among(names: list[bytes]) -> str:
    return f"digest in ({','.join('?' * len(names))})"


def holdings(db: Db) -> list[Holding]:
    """Every reference to a body that is still there."""
    if not _numbered(db):
        found = db.all(
            "select holdings.digest, max(holdings.seq), stream, run_id, retention from holdings"
            " join content on content.digest = holdings.digest and codec is not null"
            " group by holdings.digest, stream, run_id, retention"
        )
        return [Holding(_bytes(row[0]).hex(), *row[1:]) for row in found]
    return [_holding(row) for row in db.all(_HOLDINGS)]


def holdings_of(db: Db, digests: Iterable[str], most: int | None) -> list[Holding]:
    """Every reference to each of these bodies that is still there, or the first so many."""
    names = {name: None for name in digests if _DIGEST.fullmatch(name)}
    limit = -1 if most is None else most
    if not _numbered(db):
        return [
            one
            for name, holders in groupby(holdings(db), attrgetter("digest"))
            if name in names
            for one in islice(holders, most)
        ]
    with db.snapshot():
        return [
            _holding(row)
            for name in names
            for row in db.all(f"{_HOLDINGS} and digest=? limit ?", (bytes.fromhex(name), limit))
        ]


def _numbered(db: Db) -> bool:
    """Whether bodies are held by number; files of formats 1 and 2, which only a reader leaves so, name them."""
    return db.value("pragma user_version") >= 3


def _holding(row: Columns) -> Holding:
    digest, seq, stream, run_id, retention = row
    return Holding(_bytes(digest).hex(), seq, stream, run_id, _retention(retention))


def _retention(number: object) -> str:
    if isinstance(number, int) and 0 <= number < len(RETENTIONS):
        return RETENTIONS[number]
    raise JournalError(
        "JOURNAL_DAMAGED",
        "What keeps a body is not what was written.",
        hint="Run `holdfast journal verify`, then restore the journal from a backup.",
    )


def held(db: Db, digest: str) -> list[tuple[int, str]]:
    """For each reason to keep a body, the newest record that gives it, and the retention class."""
    found = db.all(
        f"select seq, retention from ({_HELD}) where digest = ?", (bytes.fromhex(digest),)
    )
    return [(seq, _retention(retention)) for seq, retention in found]


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
    return None, erased


def find_missing(db: Db, digests: Iterable[str]) -> str | None:
    """The first of these digests that no body has, or ever had."""
    for some in _portions(digests):
        found = db.all(f"select digest from content where {_among(some)}", some)
        if len(found) < len(some):
            there = {row[0] for row in found}
            return next(name.hex() for name in some if name not in there)
    return None
