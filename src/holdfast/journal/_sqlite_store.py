"""The write side of the SQLite journal: one connection, and a copy in memory of what it last wrote.

Inside a write transaction SQLite tells whether another connection has committed since (its data version has
changed); if so the copy is dropped. That keeps the append of a lone process at one insert, one update and one sync.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from holdfast.contracts import Body
from holdfast.errors import HoldfastError
from holdfast.journal import _sqlite_read as look
from holdfast.journal._request import Request
from holdfast.journal._slim import slim
from holdfast.journal._sqlite_db import PATIENCE_MS, Busy, Db, busy, explained
from holdfast.journal._sqlite_refold import refold
from holdfast.journal._sqlite_rows import LIVE, OVER, find_row, write_rows
from holdfast.journal._sqlite_tables import RESTING, RETENTIONS
from holdfast.journal._stage import Append, Cell, Key, Stage, refuse_persistent, taken_since
from holdfast.journal._writer import Committed
from holdfast.journal.content import pack
from holdfast.journal.log import SUPERSEDED, Head, Holding
from holdfast.journal.projections import SCOPED

CACHED = 10_000
"""Heads and rows of what is under way, and digests and names, kept in memory before the copy starts anew."""

CHECKPOINT_PAGES = 1000
"""Pages of write-ahead log at which it is copied back, beside the writers."""

WAL_TOO_LONG = 50_000
"""Pages of write-ahead log at which the writers must wait until it is copied back."""

SCRUB_EVERY = 1.0
"""Seconds between two times that the log is emptied because something was erased: it may hold that still."""

SCRUB_PATIENCE_MS = 1000
"""How long to wait for readers then, when the journal is closed."""


_HEAD = "update streams set pos=?, seq=?, hash=?, epoch=?, owner=?, until=? where id=?"
_NEW_HEAD = (
    "insert into streams (pos, seq, hash, epoch, owner, until, name) values (?,?,?,?,?,?,?)"
    " on conflict (name) do update set pos=excluded.pos, seq=excluded.seq, hash=excluded.hash,"
    " epoch=excluded.epoch, owner=excluded.owner, until=excluded.until returning id"
)

_BODY = (
    "insert or ignore into content (digest, size, stream, run, retention, seq, codec, body)"
    " values (?,?,?,?,?,?,?,?)"
)
_BODY_AGAIN = "update content set codec=?, body=? where digest=? and codec is null"
_HOLD = "update content set seq=? where digest=? and stream=? and run=? and retention=?"
_HOLD_TOO = (
    "insert into holdings select id,?,?,?,? from content where digest=?"
    " on conflict do update set seq=excluded.seq"
)
_SCOPED = f"seq<=? and retention in ({', '.join(str(RETENTIONS.index(one)) for one in SCOPED)})"
_NOBODY = "stream=0, run=0, retention=0, seq=0"
"""A body keeps its row, and nobody's name in it: there is no stream 0."""
_HOLDERS = "delete from holdings where content=(select id from content where digest=?)"
_ERASE = (f"update content set codec=null, body=null, {_NOBODY} where digest=?", _HOLDERS)
_LET_GO = (
    f"update content set {_NOBODY} where digest=? and stream=? and {_SCOPED}",
    f"{_HOLDERS} and stream=? and {_SCOPED}",
)

_RETENTION = {name: at for at, name in enumerate(RETENTIONS)}

_OTHERS = (0, 0, 0)
"""What keeps a body is not whoever asks; who that is does not matter. There is no stream 0."""


class Store:
    """The write connection and the copy of what it wrote. Only used under the writer's lock."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self._path = path
        self._clock = clock
        self._db = Db(path)
        self._keeper = Db(path)
        self._patient = True
        self._full = True
        self._version: int | None = None
        self._last_seq = 0
        self._streams: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._cells: dict[Key, Cell] = {}
        self._absent: set[Key] = set()
        """Rows that this transaction has looked for, and that were not there."""
        self._bodies: dict[str, tuple[int, int, int]] = {}
        """By digest, what keeps a body that is there and is noted with it."""
        self._names: dict[str, int] = {}
        self._wal_pages = 0
        self._too_long = WAL_TOO_LONG
        self._wrote = False
        self._erased = self._told = False
        self._scrubbed = 0.0
        self._db.on_commit(self._note_wal)

    # -- what a stage looks up ------------------------------------------------------------------------

    def find_head(self, stream: str) -> Head | None:
        head = self._heads.get(stream)
        if head is None:
            head = look.find_head(self._db, stream)
            if head is not None:
                self._heads[stream] = head
        return head

    def find_row(self, at: Key) -> Cell | None:
        cell = self._cells.get(at)
        if cell is None:
            cell = find_row(self._db, *at)
            if cell is not None:
                self._cells[at] = cell
            else:
                self._absent.add(at)
        return cell

    def has_body(self, digest: str) -> bool:
        return look.find_body(self._db, digest) is not None

    # -- one group ------------------------------------------------------------------------------------

    def commit(self, group: Sequence[Request[Stage]], wait: bool) -> Committed:
        """Run every request of the group in one transaction."""
        self._set_patience(wait)
        self._set_sync(group[0].durable or any(request.durable for request in group))
        try:
            with explained(self._path):
                self._begin(wait)
                stage = Stage(self, self._last_seq, self._clock())
                for request in group:
                    try:
                        request.outcome = request.work(stage)
                    except HoldfastError as refusal:
                        # It has left no trace in the stage. Anything else fails the whole group.
                        request.failure = refusal
                self._write(stage)
                self._wrote = False
                started = time.perf_counter()
                self._db.commit()
                took = time.perf_counter() - started
        except BaseException:
            self._abandon()
            raise
        self._keep(stage)
        self._version = self._db.version()
        # Once for an erasure: after that, the writer knows when to look, and commits need not wake it.
        told, self._told = self._told, False
        untidy = told or self._wal_pages >= CHECKPOINT_PAGES
        return Committed(took, untidy, self._wrote)

    def _begin(self, wait: bool) -> None:
        try:
            self._db.begin()
        except Busy:
            if wait:
                raise busy(self._path) from None
            raise
        if self._db.version() != self._version or len(self._cells) + len(self._heads) > CACHED:
            self._forget()
            self._last_seq = look.last_seq(self._db)
        elif len(self._bodies) + len(self._names) > CACHED:
            self._bodies.clear()
            self._names.clear()

    def _write(self, stage: Stage) -> None:
        db = self._db
        self._write_heads(stage.heads.values())
        if stage.records:
            ids, now = self._streams, stage.now
            db.run_many(
                "insert into records values (?,?,?,?,?)",
                [
                    (seq, ids[stream], pos, slim(entry.cut(now)), bytes.fromhex(hash_))
                    for (seq, stream, pos, _, hash_), entry in zip(
                        stage.records, stage.entries, strict=True
                    )
                ],
            )
        if stage.rows:
            write_rows(db, stage.rows, self._may_be_in)
        for held in stage.holdings:
            self._hold(held, stage.bodies.get(held.digest))

    def _may_be_in(self, at: Key) -> Sequence[str]:
        """The tables in which a row can be."""
        cell = self._cells.get(at)
        if cell is not None:
            return (OVER,) if cell[0] in RESTING else (LIVE,)
        return () if at in self._absent else (LIVE, OVER)

    def _hold(self, held: Holding, body: Body | None) -> None:
        """Store the body, unless it is there, and what keeps it."""
        db = self._db
        digest, seq, stream, run_id, retention = held
        name = bytes.fromhex(digest)
        by = (self._streams[stream], self._number(run_id), _RETENTION[retention])
        first = self._bodies.get(digest)
        if body is not None and first is None:
            packed = pack(body.data)
            if db.do(_BODY, (name, packed.size, *by, seq, packed.codec, packed.data)):
                self._bodies[digest] = by
                return
            db.do(_BODY_AGAIN, (packed.codec, packed.data, name))
        if first is None or first == by:
            kept = db.do(_HOLD, (seq, name, *by))
            if (
                body is not None or first is not None
            ):  # else it may have been erased, and come back some day
                self._bodies[digest] = by if kept else _OTHERS
            if kept:
                return
        db.do(_HOLD_TOO, (*by, seq, name))

    def _number(self, name: str | None) -> int:
        """The number that stands for a run's id in the file; 0 for none."""
        if name is None:
            return 0
        number = self._names.get(name)
        if number is None:
            self._db.run("insert or ignore into names (name) values (?)", (name,))
            number = self._names[name] = self._db.value(
                "select id from names where name=?", (name,)
            )
        return number

    def _write_heads(self, heads: Iterable[Head]) -> None:
        known: list[tuple[object, ...]] = []
        for stream, pos, seq, hash_, epoch, owner, until in heads:
            values = (pos, seq, bytes.fromhex(hash_), epoch, owner, until)
            number = self._streams.get(stream)
            if number is None:
                self._streams[stream] = self._db.value(_NEW_HEAD, (*values, stream))
            else:
                known.append((*values, number))
        if known:
            self._db.run_many(_HEAD, known)

    def _flush(self, stage: Stage) -> None:
        """Write what the requests before this one have staged: it is going to look at the tables."""
        self._write(stage)
        self._cells.update(stage.rows)
        stage.records, stage.entries, stage.rows, stage.bodies, stage.holdings = [], [], {}, {}, []

    def _keep(self, stage: Stage) -> None:
        self._last_seq = stage.seq
        self._absent.clear()
        self._heads.update(stage.heads)
        for at, cell in stage.rows.items():
            if cell[0] in RESTING:  # nothing more is said about it, as a rule
                self._cells.pop(at, None)
            else:
                self._cells[at] = cell

    def _abandon(self) -> None:
        """After a failure nothing in memory can be trusted."""
        self._db.rollback()
        self._version = None

    def _forget(self) -> None:
        self._streams.clear()
        self._heads.clear()
        self._cells.clear()
        self._absent.clear()
        self._bodies.clear()
        self._names.clear()

    def _set_patience(self, wait: bool) -> None:
        if wait != self._patient:
            self._patient = wait
            self._db.set_patience(PATIENCE_MS if wait else 0)

    def _set_sync(self, full: bool) -> None:
        if full != self._full:
            self._full = full
            self._db.run(f"pragma synchronous={'full' if full else 'normal'}")

    # -- rarer work, also in the group's transaction ---------------------------------------------------

    def erase(self, stage: Stage, digest: str, request: Append, upto: int | None) -> bool:
        """Erase one body and stage the record of it."""
        self._flush(stage)
        held = look.held(self._db, digest)
        packed = look.find_body(self._db, digest)
        if packed is None or packed.codec is None or taken_since(upto, (row[0] for row in held)):
            return False
        refuse_persistent(digest, (row[1] for row in held))
        stage.append(request)
        self._bodies.pop(digest, None)
        for forget in _ERASE:
            self._db.run(forget, (bytes.fromhex(digest),))
        if request.entries[0].payload["reason"] != SUPERSEDED:
            self._erased = self._told = True
        return True

    def let_go(self, stage: Stage, *, stream: str, digests: Collection[str], upto: int) -> None:
        """Forget what a session held that is over."""
        self._flush(stage)
        number = self._db.one("select id from streams where name=?", (stream,))
        if number is not None:
            for forget in _LET_GO:
                self._db.run_many(forget, [(bytes.fromhex(one), *number, upto) for one in digests])

    def rebuild(self, stage: Stage) -> int:
        """Replace every projection row by what the records say."""
        self._flush(stage)
        count = refold(self._db)
        self._cells.clear()
        self._absent.clear()
        return count

    # -- upkeep ---------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Bring commits that were written without a sync to the disk."""
        # It is there as long as we are connected: only the last to leave removes it.
        handle = os.open(f"{self._path}-wal", os.O_RDWR)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def tidy(self) -> float | None:
        """Copy the write-ahead log back into the file once it is long, or holds what was erased.

        In how many seconds there is more to do, if there is.
        """
        if self._erased:
            wait = self._scrubbed + SCRUB_EVERY - time.monotonic()
            if wait > 0:
                return wait
            self._scrubbed = time.monotonic()
            self._erased = not self._scrub(0)
            return SCRUB_EVERY if self._erased else None
        if self._wal_pages >= self._too_long:
            # Readers or writers kept the quiet way from finishing for long: make them wait for once. If a
            # reader does not let go, not at every commit from here on.
            done = self._db.checkpoint(truncate=True)
            self._too_long = WAL_TOO_LONG if done else self._wal_pages + WAL_TOO_LONG
        else:
            self._keeper.checkpoint(truncate=False)
        self._wal_pages = 0
        return None

    def _scrub(self, patience_ms: int) -> bool:
        """Empty the log; False when a reader is in the way, whom nobody should wait for long."""
        self._db.set_patience(patience_ms)
        self._patient = False
        done = self._db.checkpoint(truncate=True)
        self._db.set_patience(0)
        if done:
            self._wal_pages = 0
        return done

    def close(self) -> None:
        """Copy the log back and let go; a file at rest is one file."""
        self._keeper.close()
        self._scrub(SCRUB_PATIENCE_MS if self._erased else 0)
        self._db.close()

    def _note_wal(self, pages: int) -> None:
        self._wal_pages = pages
        self._wrote = True
