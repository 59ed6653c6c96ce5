"""The journal in one SQLite file: write-ahead log, synced commits, one writer, many readers and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from holdfast.contracts import ContentRef, Draft, Json, Privacy, check_id
from holdfast.journal import _sqlite_read as look
from holdfast.journal import _sqlite_schema as schema
from holdfast.journal._clock import now_ms
from holdfast.journal._handed import Handed
from holdfast.journal._request import Request, closed
from holdfast.journal._sqlite_db import Db, explained
from holdfast.journal._sqlite_rows import find_row, rows
from holdfast.journal._sqlite_store import Store
from holdfast.journal._sqlite_tables import RESTING
from holdfast.journal._stage import (
    Append,
    Stage,
    check_batch,
    check_claim,
    check_ttl,
    erasure,
)
from holdfast.journal._wake import Wakeups, when_idle
from holdfast.journal._writer import Committed, Writer
from holdfast.journal.chain import Report, Stored
from holdfast.journal.content import check_access, unpack
from holdfast.journal.log import (
    CONTENT_STREAM,
    READABLE,
    Appended,
    Found,
    Head,
    Holding,
    Journal,
    Lease,
    Row,
)

SMALL, FEW = 16 * 1024, 100
"""Bytes of a body, and rows, that are read on the event loop: they are, sooner than a thread has woken."""

POLL = 0.05
"""Seconds between two looks for records of other processes."""

T = TypeVar("T")

READERS = 4
"""Connections that are kept for whoever reads next."""


class SqliteJournal(Journal):
    """A journal in a file. Make one with `open`, close it with `close`."""

    def __init__(self, path: Path, found: Found, clock: Callable[[], int]) -> None:
        self.path = path
        self.found = found
        self._clock = clock
        self._wakeups = Wakeups()
        self._readers: list[Db] = []
        self._readers_lock = threading.Lock()
        self._store = Store(path, clock)
        self._closed = False
        self._writer: Writer[Stage] = Writer(
            self._commit, self._store.sync, self._store.tidy, name=f"journal {path.name}"
        )

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], int] = now_ms) -> SqliteJournal:
        """Open the file, or make it; upgrades an older format, refuses a newer or a damaged one."""
        path = Path(path).absolute()
        created = schema.create(path)
        left_over = schema.log_size(path) > 0
        if left_over and not path.stat().st_size:
            raise schema.emptied(path)
        db = Db(path)
        try:
            if left_over:
                db.leave_log()  # closing this connection must not be what writes to a refused file
            upgraded = schema.upgrade(db, path)
            schema.check_size(path, db)
            with explained(path):
                records, streams = look.check_tail(db)
        finally:
            db.close()
        created = created or upgraded == 0
        return cls(path, Found(created, records, streams, left_over, upgraded or None), clock)

    # -- writing --------------------------------------------------------------------------------------

    async def append(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended:
        work = Append(check_id(stream), check_batch(records), expected_pos, epoch)
        return await self._write(work, durable=durable, stream=stream)

    def append_now(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended | None:
        if not self._writer.may_commit_alone(stream):
            return None
        work = Append(check_id(stream), check_batch(records), expected_pos, epoch)
        return self._writer.submit_now(work, durable=durable, stream=stream)

    def post(
        self,
        stream: str,
        make: Callable[[], Sequence[Draft]],
        *,
        failed: Callable[[BaseException], None],
        expected_pos: int | None = None,
        epoch: int | None = None,
        light: bool = False,
    ) -> None:
        handed = Handed(check_id(stream), make, expected_pos, epoch)
        self._writer.post(handed, failed)
        if light:
            when_idle(handed.prepare)

    async def flush(self) -> None:
        await self._writer.flush()

    async def claim(self, stream: str, owner: str, *, ttl_ms: int) -> Lease:
        check_claim(stream, owner, ttl_ms)
        return await self._write(lambda stage: stage.claim(stream, owner, ttl_ms), durable=False)

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        check_ttl(ttl_ms)
        return await self._write(lambda stage: stage.renew(lease, ttl_ms), durable=False)

    async def renew_all(self, leases: Sequence[Lease], *, ttl_ms: int) -> list[Lease | None]:
        check_ttl(ttl_ms)
        return await self._write(lambda stage: stage.renew_all(leases, ttl_ms), durable=False)

    async def release(self, lease: Lease) -> None:
        await self._write(lambda stage: stage.release(lease), durable=False)

    async def erase(
        self,
        digest: str,
        *,
        reason: str,
        stream: str = CONTENT_STREAM,
        upto: int | None = None,
    ) -> bool:
        request = erasure(digest, stream, reason)
        return await self._write(lambda stage: self._store.erase(stage, digest, request, upto))

    async def let_go(self, stream: str, digests: Collection[str], *, upto: int) -> None:
        work = partial(self._store.let_go, stream=stream, digests=digests, upto=upto)
        await self._write(work, durable=False)

    async def rebuild(self) -> int:
        return await self._write(lambda stage: self._store.rebuild(stage))

    def _write(
        self, work: Callable[[Stage], T], *, durable: bool = True, stream: str | None = None
    ) -> Coroutine[Any, Any, T]:
        return self._writer.submit(work, durable=durable, stream=stream)

    def _commit(self, group: Sequence[Request[Stage]], wait: bool) -> Committed:
        committed = self._store.commit(group, wait)
        self._wakeups.notify()
        return committed

    # -- reading --------------------------------------------------------------------------------------

    async def head(self, stream: str) -> Head:
        await self._catch_up()
        with self._reader() as db:
            return look.find_head(db, stream) or Head(stream)

    async def last_seq(self) -> int:
        await self._catch_up()
        with self._reader() as db:
            return look.last_seq(db)

    async def page(self, stream: str | None, after: int, limit: int) -> list[Stored]:
        return await self._in_thread(lambda db: look.page(db, stream, after, limit))

    async def heads(self) -> list[Head]:
        return await self._in_thread(look.heads)

    async def content(
        self,
        ref: ContentRef | str,
        *,
        allowed: Collection[Privacy] = READABLE,
        max_bytes: int | None = None,
    ) -> bytes:
        name = check_access(ref, allowed)
        await self._catch_up()
        with self._reader() as db:
            small = look.find_small(db, name, SMALL)
        if small is not None:  # sooner read than handed to a thread
            return unpack(name, small, max_bytes)
        return await self._in_thread(lambda db: unpack(name, look.find_body(db, name), max_bytes))

    async def contents(self, digests: Collection[str]) -> dict[str, bytes]:
        return await self._in_thread(lambda db: look.find_bodies(db, digests))

    async def holdings(
        self, digests: Collection[str] | None = None, *, most: int | None = None
    ) -> list[Holding]:
        if digests is None:
            return await self._in_thread(look.holdings)
        return await self._in_thread(lambda db: look.holdings_of(db, digests, most))

    async def row(self, projection: str, key: str) -> dict[str, Json] | None:
        await self._catch_up()
        with self._reader() as db:
            cell = find_row(db, projection, key)
        return None if cell is None else cell[1]

    async def rows(
        self,
        projection: str,
        *,
        tag: str | None = None,
        after: str = "",
        limit: int = 1000,
        newest: bool = False,
    ) -> list[Row]:
        def work(db: Db) -> list[Row]:
            return rows(db, projection, tag, after, limit, newest=newest)

        # By a tag of what is over, SQLite would look through all rows for a few.
        if limit > FEW or tag in RESTING:
            return await self._in_thread(work)
        await self._catch_up()
        with self._reader() as db:
            return work(db)

    async def verify(self) -> Report:
        report = await super().verify()
        if report.ok:
            report.bad_content, report.erased = await self._in_thread(look.check_bodies)
        return report

    async def _missing(self, digests: Collection[str]) -> str | None:
        return await self._in_thread(lambda db: look.find_missing(db, digests))

    async def wait(self, after: int) -> None:
        while not self._closed:
            signal = self._wakeups.signal()
            if await self.last_seq() > after:
                return
            # Our own commits raise the signal; those of other processes are found by looking.
            with anyio.move_on_after(POLL):
                await signal.wait()
        raise closed()

    async def backup(self, path: str) -> None:
        await self._in_thread(lambda db: db.copy_to(Path(path)))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await to_thread.run_sync(self._shut)
        finally:
            self._wakeups.notify()

    def _shut(self) -> None:
        try:
            self._writer.close()
        finally:
            with self._readers_lock:
                for db in self._readers:
                    db.close()
            self._store.close()

    def _connect(self) -> Db:
        return Db(self.path, read_only=True)

    @contextmanager
    def _reader(self) -> Generator[Db]:
        if self._closed:
            raise closed()
        with self._readers_lock:
            db = self._readers.pop() if self._readers else None
        try:
            with explained(self.path):
                db = db or self._connect()
                yield db
        finally:
            if db is not None:
                self._give_back(db)

    def _give_back(self, db: Db) -> None:
        with self._readers_lock:
            if not self._closed and len(self._readers) < READERS:
                self._readers.append(db)
                return
        db.close()  # more were in use at once than usual, or the journal was closed meanwhile

    async def _catch_up(self) -> None:
        """What this process has posted it also reads."""
        await self._writer.catch_up()

    async def _in_thread(self, work: Callable[[Db], T]) -> T:
        await self._catch_up()

        def run() -> T:
            with self._reader() as db:
                return work(db)

        return await to_thread.run_sync(run)
