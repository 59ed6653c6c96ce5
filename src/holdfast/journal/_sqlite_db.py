# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A SQLite connection as the journal uses it, and what SQLite's errors mean to whoever must act.

The only module that knows which SQLite binding we use. `apsw` carries its own, current SQLite: the standard
library's is as old as the host's, and releases before 3.51.3 can damage a write-ahead log that two processes
write at once. (apsw's annotations name a type that Python 3.11 lacks, hence the line above.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from holdfast.errors import CallerError, JournalError

PATIENCE_MS = 5000
"""How long a writer waits for other processes."""

# `Any`: a column is whatever the schema says it is.
Columns = tuple[Any, ...]


class Busy(Exception):
    """Another process is writing, and the caller did not want to wait."""


class Db:
    """One connection. Every method turns SQLite's errors into ours."""

    def __init__(self, path: Path, *, read_only: bool = False, immutable: bool = False) -> None:
        """Connect; `immutable` reads a file that nobody can write, beside which nothing can be created."""
        self.path = path
        self.split = False
        """Whether the file is known to keep apart the rows of what is under way and of what is over."""
        name = str(path)
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        if immutable:
            name = f"file:{quote(name)}?immutable=1"
            flags |= apsw.SQLITE_OPEN_URI
        with explained(path):
            self._db = apsw.Connection(name, flags=flags)
            self._db.set_busy_timeout(PATIENCE_MS)
            # For statements that give no rows: making a cursor costs as much as running a short one.
            self._cursor = self._db.cursor()
            # There may be many readers, and what they read the system has in memory anyway.
            kib = 1024 if read_only else 8192
            self.run(f"pragma synchronous=full; pragma temp_store=memory; pragma cache_size=-{kib}")
            if not read_only:
                # What is erased must not stay in the file. Not only while erasing: when SQLite moves what is beside
                # it from page to page, it would leave copies that no later erasing finds.
                self._db.execute("pragma secure_delete=on").fetchall()

    def run(self, sql: str, values: Sequence[object] = ()) -> None:
        """Run statements for what they do."""
        self._db.execute(sql, values)

    def do(self, sql: str, values: Sequence[object]) -> int:
        """Run one statement that gives no rows; how many it has changed."""
        self._cursor.execute(sql, values)
        return self._db.changes()

    def run_many(self, sql: str, values: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of values."""
        self._cursor.executemany(sql, values)

    def version(self) -> int:
        """A number that every commit changes, ours as well as others'; it is current once writing has begun."""
        return self._db.data_version()

    def one(self, sql: str, values: Sequence[object] = ()) -> Columns | None:
        """The first row, if there is one."""
        return self._db.execute(sql, values).fetchone()

    def all(self, sql: str, values: Sequence[object] = ()) -> list[Columns]:
        """Every row."""
        return self._db.execute(sql, values).fetchall()

    def each(self, sql: str, values: Sequence[object] = ()) -> Iterator[Columns]:
        """Every row, one at a time."""
        return iter(self._db.execute(sql, values))

    def value(self, sql: str, values: Sequence[object] = ()) -> Any:
        """The first column of the first row."""
        return self._db.execute(sql, values).get

    def begin(self) -> None:
        """Start writing; raises `Busy` when another process does."""
        try:
            self._cursor.execute("begin immediate")
        except apsw.BusyError:
            raise Busy from None

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Several questions to one state of the journal, whatever others write meanwhile."""
        self._db.execute("begin")
        try:
            yield
        finally:
            self.rollback()

    def commit(self) -> None:
        """Make what was begun permanent."""
        self._cursor.execute("commit")

    def rollback(self) -> None:
        """Undo what was begun, if SQLite has not done so itself."""
        if self._db.in_transaction:
            self._db.execute("rollback")

    def leave_log(self) -> None:
        """Leave the write-ahead log as it is when this connection closes."""
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def set_patience(self, milliseconds: int) -> None:
        """How long to wait for other processes from now on."""
        self._db.set_busy_timeout(milliseconds)

    def on_commit(self, note: Callable[[int], None]) -> None:
        """Tell `note` after each commit how many pages the write-ahead log has."""

        def hook(_db: apsw.Connection, _name: str, pages: int) -> int:
            note(pages)
            return apsw.SQLITE_OK

        self._db.set_wal_hook(hook)

    def checkpoint(self, *, truncate: bool) -> bool:
        """Copy the write-ahead log back into the file; False when somebody is in the way."""
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            self._db.wal_checkpoint(mode=mode)
        except apsw.Error:
            return False  # busy, or no room: the log stays longer, and nothing is lost
        return True

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy into a new file."""
        # Under another name until it is whole: what has the name of a backup is one.
        partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
        _create(partial)
        try:
            target = apsw.Connection(str(partial))
            try:
                with target.backup("main", self._db, "main") as copy:
                    # In one step: restarting at every foreign commit would never end on a busy journal.
                    copy.step()
                target.execute("pragma journal_mode=delete")
            finally:
                target.close()
            _publish(partial, path)
        finally:
            partial.unlink()

    def close(self) -> None:
        """Let go. Where the log can't be copied back it stays, and the next to open the file takes it over."""
        try:
            self._db.close()
        except apsw.Error:
            pass


class explained:
    """Turns SQLite's errors into ours. A class, since it stands around every commit: a generator costs more."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, why: BaseException | None, __: object) -> None:
        match why:
            case apsw.Error():
                raise explain(self._path, why) from None
            case UnicodeDecodeError() | json.JSONDecodeError():
                raise damaged_file(self._path, why) from None
            case UnicodeEncodeError() | OverflowError():
                raise CallerError(
                    "INVALID_ARGUMENT", "No journal holds a name or number like that."
                ) from None
            case _:
                pass


def explain(path: Path, why: apsw.Error) -> JournalError:
    """Who must act on this error, and how."""
    match why:
        case apsw.FullError():
            return JournalError(
                "JOURNAL_FULL",
                f"There is no room left for the journal `{path}`; nothing was written.",
                hint="Free disk space, then do it again: what was acknowledged is safe.",
            )
        case apsw.ReadOnlyError():
            return JournalError(
                "JOURNAL_READ_ONLY",
                f"The journal `{path}` can't be written; nothing was written.",
                hint="Check the permissions of the file and its folder, and how its disk is mounted.",
            )
        case apsw.BusyError() | apsw.LockedError():
            return busy(path)
        case apsw.CorruptError() | apsw.NotADBError():
            return damaged_file(path, why)
        case apsw.CantOpenError():
            return cannot_open(path, why)
        case _:
            return JournalError(
                "JOURNAL_IO",
                f"Reading or writing the journal `{path}` failed: {why}.",
                hint="Look for disk errors in the system's log; what was acknowledged is safe.",
            )


def damaged_file(path: Path, why: Exception) -> JournalError:
    """The error of a file that does not hold what was written to it."""
    return JournalError(
        "JOURNAL_DAMAGED",
        f"The journal `{path}` is damaged: {why}.",
        hint="`holdfast journal verify` tells how far it holds; restore it from a backup.",
    )


def busy(path: Path) -> JournalError:
    """The error of a lock that did not go away."""
    return JournalError(
        "JOURNAL_BUSY",
        f"The journal `{path}` stayed locked by another process; nothing was written.",
        hint="Find who holds it (`fuser` tells), or try again later.",
    )


def cannot_open(path: Path, why: Exception) -> JournalError:
    """The error of a file that can't be opened at all."""
    return JournalError(
        "JOURNAL_IO",
        f"The journal `{path}` can't be opened: {why}.",
        hint="Check that its folder exists and may be written.",
    )


def _create(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as why:
        raise CallerError(
            "INVALID_ARGUMENT", f"`{path}` can't be written: {why.strerror}."
        ) from None


def _publish(partial: Path, path: Path) -> None:
    """Give a finished copy its name, which must be free, and bring that to the disk."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{path}` exists; a backup never overwrites a file.",
            hint="Choose another name.",
        ) from None
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
