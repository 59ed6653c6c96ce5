"""One statement of code's on a PostgreSQL server.

A statement that only reads is declared as a cursor, in a read-only transaction that is rolled back: the server's
own grammar then refuses everything but a query. Neither helps against a role that may read the server's files
or run its programs, which a superuser may from within a query; such roles are refused. What the server can't
bound, the size of an answer, is watched here as it arrives.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import RawCursor, RawServerCursor, errors

from holdfast.capabilities.builtin._answer import Answer, Deadline, Params, collect
from holdfast.errors import ModelError, OperatorError

MAX_HELD_BYTES = 64 * 1024 * 1024
"""By how much the process may grow while it takes an answer from a server."""
_PAGE = resource.getpagesize()
_BATCH = 100  # rows asked for at a time

_PREPARE = b"""
select pg_catalog.set_config('statement_timeout', $1, false),
       pg_catalog.set_config('default_transaction_read_only', $2, false),
       (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = session_user)
       or pg_catalog.pg_has_role(session_user, 'pg_execute_server_program', 'member')
       or pg_catalog.pg_has_role(session_user, 'pg_read_server_files', 'member')
       or pg_catalog.pg_has_role(session_user, 'pg_write_server_files', 'member')
"""


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that looks up while it waits: at the clock, and at how much has come in."""

    deadline: Deadline | None = None
    before: int = 0

    # `Any`: the generators of psycopg give whatever they are for.
    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: Any) -> Generator[Any, Any, Any]:
        try:
            state = next(gen)
            while True:
                ready = yield state
                self._check()
                state = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _check(self) -> None:
        if self.deadline is not None and self.deadline.passed:
            raise self.deadline.error()
        # libpq takes all there is before it gives anything back, and does not say how much it has.
        if _held() - self.before > MAX_HELD_BYTES:
            raise ModelError(
                "RESPONSE_TOO_LARGE",
                "The database's answer is too large to be held, and was stopped.",
                hint="Select less: fewer rows or columns, or `substr` of the long ones.",
            )


def _held() -> int:
    """Bytes of memory the process has; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb") as counts:
            return int(counts.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def run(
    url: str,
    sql: str,
    params: Params,
    *,
    writable: bool,
    most: int,
    deadline: Deadline,
) -> Answer:
    """Run one statement, all of it or nothing."""
    if isinstance(params, dict):
        raise ValueError("PostgreSQL takes a list of parameters: `$1`, `$2` and so on.")
    with _connected(url, deadline) as db, _explained(deadline):
        db.read_only = not writable
        _prepare(db, deadline, writable=writable)
        act = _execute if writable else _query
        return act(db, sql.encode(), params, most)


def _query(db: _Connection, sql: bytes, params: Sequence[Any], most: int) -> Answer:
    with RawServerCursor(db, "holdfast") as cursor:
        cursor.execute(sql, params)
        return collect(_columns(cursor.description), _batches(cursor), most=most)


def _batches(cursor: RawServerCursor[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    while batch := cursor.fetchmany(_BATCH):
        yield from batch


def _execute(db: _Connection, sql: bytes, params: Sequence[Any], most: int) -> Answer:
    with RawCursor(db) as cursor:
        # Only one statement can be prepared; without this, several would be run.
        cursor.execute(sql, params, prepare=True)
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall() if cursor.description else ()
        counted = cursor.rowcount if not (cursor.statusmessage or "").startswith("SELECT") else 0
        answer = collect(_columns(cursor.description), rows, most=most, changed=max(0, counted))
    db.commit()
    return answer


def _columns(description: Sequence[Any] | None) -> list[str]:
    return [column.name for column in description or ()]


def _prepare(db: _Connection, deadline: Deadline, *, writable: bool) -> None:
    settings = [str(max(1, deadline.left_ms)), "off" if writable else "on"]
    with RawCursor(db) as cursor:
        found = cursor.execute(_PREPARE, settings).fetchone()
    if found is None or found[2]:
        raise OperatorError(
            "PERMISSION_DENIED",
            "The database's role may reach the server's files and programs, so code may not use it.",
            hint="Give the session a role of its own, with `GRANT` for what it needs, and no superuser.",
        )


@contextmanager
def _connected(url: str, deadline: Deadline) -> Generator[_Connection]:
    seconds = max(2, math.ceil(deadline.left_ms / 1000))
    try:
        db = _Connection.connect(
            url,
            connect_timeout=seconds,
            tcp_user_timeout=deadline.timeout_ms,
            client_encoding="utf8",
            application_name="holdfast",
        )
    except psycopg.Error as why:
        # The driver's words may have the URL in them, and with it the password.
        refused = (why.sqlstate or "").startswith("28") or "authentication failed" in str(why)
        raise OperatorError(
            "IO_ERROR",
            "The database refused the login." if refused else "The database can't be reached.",
            hint="Check its URL in the session's setup, and that the server runs.",
        ) from None
    db.deadline, db.before = deadline, _held()
    try:
        yield db
    finally:
        _close(db)


def _close(db: _Connection) -> None:
    """Let go, and see to it that the server stops too."""
    db.deadline = None
    if not db.closed and db.info.transaction_status is psycopg.pq.TransactionStatus.ACTIVE:
        try:
            db.cancel_safe(timeout=2)
        except psycopg.Error:
            pass  # it has its own timeout
    db.close()


@contextmanager
def _explained(deadline: Deadline) -> Generator[None]:
    try:
        yield
    except errors.QueryCanceled:
        raise deadline.error() from None
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as why:
        raise ModelError(
            "PERMISSION_DENIED",
            f"The database does not allow this statement: {why.diag.message_primary}.",
            hint="`query_db` only reads.",
        ) from None
    except psycopg.Error as why:
        said = why.diag.message_primary
        if said is None and isinstance(why, psycopg.OperationalError):
            raise ConnectionError("The connection to the database was lost.") from None
        if said is not None and "multiple commands" in said:
            raise ValueError("Only one SQL statement at a time.") from None
        raise ValueError(f"PostgreSQL: {said or why}") from None
