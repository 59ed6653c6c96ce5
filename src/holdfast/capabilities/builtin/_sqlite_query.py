# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""One statement of code's on a SQLite file.

SQL from a stranger can do more than read: attach other files, load code, fill memory and disk, run for ever.
Four things stand against that: the file is opened read-only unless writing was granted; an authorizer lets
pass only what is on a list; limits of the connection bound every value; a handler called every few hundred
steps stops what takes too long or writes too much. (apsw's annotations name a type that Python 3.11 lacks, hence the line above.)
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from holdfast.capabilities.builtin._answer import Answer, Deadline, Params, collect
from holdfast.errors import ModelError, OperatorError

MAX_SQL_BYTES = 64 * 1024
"""Length of a statement."""
MAX_VALUE_BYTES = 1024 * 1024
"""Length of any text, blob or row, also in between."""
MAX_COLUMNS = 256
"""Columns of a table or a result."""
MAX_WRITTEN_BYTES = 256 * 1024 * 1024
"""What one statement writes to disk, sorting included."""

_STEPS = 500  # of SQLite's virtual machine, between two looks at the clock
_LOOKS = 16  # at the clock, between two looks at what was written

_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    apsw.SQLITE_LIMIT_SQL_LENGTH: MAX_SQL_BYTES,
    apsw.SQLITE_LIMIT_COLUMN: MAX_COLUMNS,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 32,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE))
_WRITES = frozenset(
    (
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_DROP_TRIGGER,
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_ANALYZE,
        apsw.SQLITE_REINDEX,
    )
)
# They tell about tables; all others may change the file or the connection.
_PRAGMAS = frozenset(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list".split()
)
_FUNCTIONS_REFUSED = frozenset(("load_extension", "fts3_tokenizer", "readfile", "writefile"))


def run(
    path: Path,
    sql: str,
    params: Params,
    *,
    writable: bool,
    most: int,
    deadline: Deadline,
) -> Answer:
    """Run one statement, all of it or nothing."""
    db = _open(path, writable=writable, deadline=deadline)
    try:
        with _explained(deadline):
            return _run(db, sql, params, writable=writable, most=most)
    finally:
        db.close()


def _run(db: apsw.Connection, sql: str, params: Params, *, writable: bool, most: int) -> Answer:
    # Ours, before the authorizer listens.
    db.execute("begin immediate" if writable else "begin")
    db.authorizer = _Authorizer(writable)
    columns = _check_single(db, sql)
    before = db.total_changes()
    cursor = db.cursor()
    cursor.execute(sql, _bound(params))
    answer = collect(columns, cursor, most=most)
    if writable:
        # What is cut off the answer is still done.
        for _ in cursor:
            pass
        answer["changed"] = db.total_changes() - before
    cursor.close(force=True)
    db.authorizer = None
    db.execute("commit" if writable else "rollback")
    return answer


def _open(path: Path, *, writable: bool, deadline: Deadline) -> apsw.Connection:
    name = f"file:{quote(str(path))}?mode={'rw' if writable else 'ro'}"
    flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    try:
        db = apsw.Connection(name, flags=flags | apsw.SQLITE_OPEN_URI)
    except apsw.Error:
        raise OperatorError(
            "IO_ERROR",
            "The database can't be opened.",
            hint="Check in the session's setup that its file exists and may be read.",
        ) from None
    # The schema of the file is a stranger's too: nothing in it may reach beyond the file.
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
    db.set_busy_timeout(deadline.left_ms)
    # Sorting on disk: what is written can be counted, memory could not.
    db.execute("pragma temp_store=file; pragma mmap_size=0; pragma foreign_keys=on")
    db.execute(f"pragma query_only={'off' if writable else 'on'}")
    for limit, value in _LIMITS.items():
        db.limit(limit, value)
    db.set_progress_handler(_Watch(deadline), _STEPS)
    return db


class _Authorizer:
    """Lets pass what is on the list; SQLite asks while it reads a statement, before it runs."""

    def __init__(self, writable: bool) -> None:
        self._actions = _READS | _WRITES if writable else _READS
        self._writable = writable

    def __call__(
        self, action: int, first: str | None, second: str | None, _db: str | None, _by: str | None
    ) -> int:
        if action == apsw.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in _FUNCTIONS_REFUSED
        elif action == apsw.SQLITE_PRAGMA:
            allowed = (first or "").lower() in _PRAGMAS
        else:
            allowed = action in self._actions
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


class _Watch:
    """Says when to stop: time is up, nobody waits any more, or the disk is filling."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._looks = 0
        self._written = _written()

    def __call__(self) -> bool:
        self._looks += 1
        if self._looks % _LOOKS == 0 and _written() - self._written > MAX_WRITTEN_BYTES:
            return True
        return self._deadline.passed


def _written() -> int:
    """Bytes this thread has written since it began; 0 where the kernel does not count."""
    try:
        with open("/proc/thread-self/io", "rb") as counts:
            return int(counts.read().split(b"wchar: ")[1].split()[0])
    except (OSError, IndexError):
        return 0


def _check_single(db: apsw.Connection, sql: str) -> list[str]:
    """The columns of the one statement there is; refuses none and several, before any of it runs."""
    first = _first(db, sql)
    if first is None:
        raise ValueError("There is no SQL statement.")
    text, columns = first
    if _first(db, sql[len(text) :]) is not None:
        raise ValueError("Only one SQL statement at a time.")
    return columns


def _first(db: apsw.Connection, sql: str) -> tuple[str, list[str]] | None:
    """Text and columns of the first statement; None when there are only comments. Nothing is run."""
    found: list[tuple[str, list[str]]] = []

    def trace(cursor: apsw.Cursor, text: str, _values: object) -> bool:
        if cursor.has_vdbe:
            found.append((text, [column[0] for column in cursor.get_description()]))
            return False
        return True

    cursor = db.cursor()
    cursor.exec_trace = trace
    try:
        # What apsw's own `query_info` binds: nothing, and no complaint about it.
        nothing = apsw._null_bindings  # pyright: ignore[reportAttributeAccessIssue]
        cursor.execute(sql, nothing, can_cache=False)
    except apsw.ExecTraceAbort:
        pass
    finally:
        cursor.close(force=True)
    return found[0] if found else None


# `Any`: apsw takes a sequence or a mapping, and checks what is in it.
def _bound(params: Params) -> Any:
    if isinstance(params, dict):
        return params
    if any(isinstance(one, list) for one in params):
        raise ValueError("SQLite has no lists: bind each value with a `?` of its own.")
    return params


@contextmanager
def _explained(deadline: Deadline) -> Generator[None]:
    try:
        yield
    except apsw.InterruptError:
        if deadline.passed:
            raise deadline.error() from None
        raise ModelError(
            "TOOL_ERROR",
            f"The statement wrote more than {MAX_WRITTEN_BYTES} bytes and was stopped.",
            hint="Select or sort less.",
        ) from None
    except (apsw.AuthError, apsw.ReadOnlyError) as why:
        raise _refused(why) from None
    except (apsw.BusyError, apsw.LockedError):
        raise deadline.error() from None
    except (apsw.BindingsError, KeyError) as why:
        raise ValueError(f"The parameters do not fit the statement: {why}") from None
    except (apsw.Error, OverflowError, TypeError) as why:
        if "not authorized" in str(why):
            raise _refused(why) from None
        raise ValueError(f"SQLite: {why}") from None


def _refused(why: Exception) -> ModelError:
    return ModelError(
        "PERMISSION_DENIED",
        f"The database does not allow this statement: {why}.",
        hint="`query_db` only reads; no statement may reach beyond its database.",
    )
