"""The journal file for reading only: also one that can't be written, is of a newer format, or is damaged.

An auditor must be able to look at any of these, so nothing is refused that can be read: no upgrade, no check of
the newest records, no lock. What is wrong with the file shows when it is verified.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.errors import JournalError, NotFound
from holdfast.journal import _sqlite_read as look
from holdfast.journal import _sqlite_schema as schema
from holdfast.journal._sqlite_db import Busy, Db, busy, explained
from holdfast.journal._stage import Stage
from holdfast.journal._wake import Wakeups
from holdfast.journal.log import Found
from holdfast.journal.sqlite import SqliteJournal

T = TypeVar("T")

FORMAT = len(schema.UPGRADES)
"""The newest format this version knows, and the one it writes."""


class SqliteReader(SqliteJournal):
    """A journal file that is only looked at: every attempt to write is refused with `JOURNAL_READ_ONLY`."""

    format: int
    """The format the file is in."""

    # The parent's constructor starts a writer, and this journal has none.
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._wakeups = Wakeups()
        self._readers = []
        self._readers_lock = threading.Lock()
        self._closed = False
        if not self.path.is_file():
            raise NotFound(
                "NOT_FOUND",
                f"There is no journal `{self.path}`.",
                hint="The first `holdfast run` makes it; $HOLDFAST_HOME or `--url` may point elsewhere.",
            )
        left_over = _has_log(self.path)
        self._keeper, self._immutable = _keep(self.path)
        try:
            with explained(self.path):
                self.format = schema.format_found(self._keeper, self.path)
                if self.format == 0:
                    raise _empty(self.path)
            records, streams = self._count()
        except BaseException:
            self._keeper.close()
            raise
        self.found = Found(False, records, streams, left_over, None)

    def check(self) -> int:
        """Look at the file's length and its newest records, and say at how many; raises `JOURNAL_DAMAGED`."""
        schema.check_size(self.path, self._keeper)
        with explained(self.path):
            records, _ = look.check_tail(self._keeper)
        return min(records, look.TAIL)

    def _count(self) -> tuple[int, int]:
        """The numbers of records and streams; 0 of both in a file that is too damaged to tell."""
        try:
            with explained(self.path):
                streams = self._keeper.value("select count(*) from streams")
                return look.last_seq(self._keeper), streams
        except JournalError:
            return 0, 0

    def append_now(self, *_: object, **__: object) -> None:
        raise self._refusal()

    def post(self, *_: object, **__: object) -> None:
        raise self._refusal()

    async def flush(self) -> None:
        raise self._refusal()

    async def _catch_up(self) -> None:
        pass  # nothing was ever posted

    async def _write(
        self, work: Callable[[Stage], T], *, durable: bool = True, stream: str | None = None
    ) -> T:
        raise self._refusal()

    def _refusal(self) -> JournalError:
        return JournalError(
            "JOURNAL_READ_ONLY",
            f"The journal `{self.path}` was opened to be read; nothing was written.",
            hint="Open it with `holdfast.open()`.",
        )

    def _connect(self) -> Db:
        return Db(self.path, read_only=True, immutable=self._immutable)

    def _shut(self) -> None:
        for db in self._readers:
            db.close()
        self._keeper.close()


def check_writable(path: Path, *, patience_ms: int = 1000) -> None:
    """Take the write lock and give it back, changing nothing; raises what stands in the way."""
    db = Db(path)
    try:
        db.set_patience(patience_ms)
        with explained(path):
            db.begin()
            db.rollback()
    except Busy:
        raise busy(path) from None
    finally:
        db.close()


def _keep(path: Path) -> tuple[Db, bool]:
    """A connection that stays open, and whether the file had to be taken for immutable.

    SQLite keeps two files beside one in write-ahead mode, and only a connection that may write removes them
    again. Where they can't be made at all, the file alone is the whole journal, unless a log is left beside it.
    """
    try:
        db = Db(path)  # reads the file's header already
        with explained(path):
            db.run("pragma query_only=1")
        return db, False
    except JournalError as why:
        if why.code not in ("JOURNAL_IO", "JOURNAL_READ_ONLY") or _has_log(path):
            raise
    return Db(path, read_only=True, immutable=True), True


def _has_log(path: Path) -> bool:
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _empty(path: Path) -> JournalError:
    return JournalError(
        "JOURNAL_DAMAGED",
        f"`{path}` holds no journal: it is empty.",
        hint="Restore it from a backup, or remove it; the next `holdfast run` makes a new one.",
    )
