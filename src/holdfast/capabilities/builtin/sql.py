"""SQL for code: querying, and changing where granted, the databases a session was given.

Two capabilities, so that a rule of policy can tell them apart by their side effect: `query_db` reads (`read`) any of
the databases, `execute_db` changes (`database`) those that are writable. `execute_db` is there only if one is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from holdfast.capabilities.builtin._answer import MAX_ROWS, Answer, Deadline, Params
from holdfast.capabilities.declare import Declared, capability
from holdfast.contracts.policy import Database
from holdfast.errors import CallerError, HoldfastError, ModelError, OperatorError

TIMEOUT_MS = 10_000
"""Time for one statement."""

_SLACK_MS = 2000
_DEFAULT = "main"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")

Rows = Annotated[int, Field(ge=1, le=MAX_ROWS)]


def sql(databases: Sequence[Database], *, timeout_ms: int = TIMEOUT_MS) -> list[Declared[..., Any]]:
    """`query_db` for these databases, and `execute_db` for those that are writable.

    URLs are `sqlite:///relative.db`, `sqlite:////absolute.db` and `postgresql://…`; `$NAME` in one is taken from the
    environment when the database is opened.
    """
    by_name: dict[str, Database] = {}
    for one in databases:
        if one.name in by_name:
            raise CallerError("INVALID_ARGUMENT", f"Two databases have the name `{one.name}`.")
        if not one.url.startswith((_SQLITE, *_POSTGRES, "$")):
            raise _not_a_url(one.name)
        by_name[one.name] = one
    writable = {name: one for name, one in by_name.items() if one.writable}
    found: list[Declared[..., Any]] = []
    if by_name:
        found.append(
            capability(
                _query_db(by_name, timeout_ms),
                side_effect="read",
                idempotent=True,
                timeout_ms=timeout_ms + _SLACK_MS,
            )
        )
    if writable:
        found.append(
            capability(
                _execute_db(writable, timeout_ms),
                side_effect="database",
                timeout_ms=timeout_ms + _SLACK_MS,
            )
        )
    return found


def _query_db(databases: dict[str, Database], timeout_ms: int) -> Callable[..., Answer]:
    def query_db(
        sql: str,
        params: Params | None = None,
        database: str = _first(databases),
        max_rows: Rows = 1000,
    ) -> Answer:
        """Run one SQL query that only reads. Gives `columns`, `rows` (lists of values) and `truncated`.

        Blobs come as base64; exact decimals, dates and times as text.

        Args:
            sql: One statement. Never put values into its text: write a placeholder and pass them in `params`.
            params: Values for the placeholders: `?` or `:name` for SQLite, `$1`, `$2` for PostgreSQL.
            database: Which database.
            max_rows: How many rows to return at most, from 1 to 10000.
        """
        return _run(databases, database, sql, params, max_rows, timeout_ms, writable=False)

    return query_db


def _execute_db(databases: dict[str, Database], timeout_ms: int) -> Callable[..., Answer]:
    def execute_db(
        sql: str,
        params: Params | None = None,
        database: str = _first(databases),
        max_rows: Rows = 1000,
    ) -> Answer:
        """Run one SQL statement that may change the database. `changed` says how many rows it changed.

        All of it is done or nothing. Rows that it returns come as those of `query_db` do.

        Args:
            sql: One statement. Never put values into its text: write a placeholder and pass them in `params`.
            params: Values for the placeholders: `?` or `:name` for SQLite, `$1`, `$2` for PostgreSQL.
            database: Which database.
            max_rows: How many rows to return at most, from 1 to 10000.
        """
        return _run(databases, database, sql, params, max_rows, timeout_ms, writable=True)

    return execute_db


def _first(databases: dict[str, Database]) -> str:
    return _DEFAULT if _DEFAULT in databases else next(iter(databases))


def _run(
    databases: dict[str, Database],
    name: str,
    sql: str,
    params: Params | None,
    most: int,
    timeout_ms: int,
    *,
    writable: bool,
) -> Answer:
    database = databases.get(name)
    if database is None:
        raise ModelError(
            "PERMISSION_DENIED",
            f"No database `{name[:80]}` is granted for this.",
            hint=f"Granted: {', '.join(databases)}.",
        )
    if not 1 <= most <= MAX_ROWS:
        raise ValueError(f"`max_rows` must be from 1 to {MAX_ROWS}")
    url = _opened(database)
    given: Params = [] if params is None else params
    deadline = Deadline(timeout_ms)
    try:
        # On use: each driver takes its time to import, and most sessions need neither.
        if url.startswith(_SQLITE):
            from holdfast.capabilities.builtin import _sqlite_query as sqlite

            path = Path(url.removeprefix(_SQLITE))
            return sqlite.run(path, sql, given, writable=writable, most=most, deadline=deadline)
        from holdfast.capabilities.builtin import _postgres_query as postgres

        return postgres.run(url, sql, given, writable=writable, most=most, deadline=deadline)
    except OperatorError as why:
        raise _named(why, name) from None
    except UnicodeEncodeError:
        raise ValueError("The statement or a parameter is not Unicode text.") from None


def _opened(database: Database) -> str:
    """Its URL, with what the environment has to say."""
    whole = _VARIABLE.fullmatch(database.url) is not None
    quoted = not whole and database.url.startswith(_POSTGRES)

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        text = os.environ.get(name)
        if text is None:
            raise OperatorError(
                "IO_ERROR",
                f"Database `{database.name}` can't be opened: `${name}` is not set.",
                hint="Set it in the environment of the process that runs the session.",
            )
        # A password may have any character; in a URL some of them mean something.
        return quote(text, safe="") if quoted else text

    url = _VARIABLE.sub(value, database.url)
    if not url.startswith((_SQLITE, *_POSTGRES)):
        raise _not_a_url(database.name)
    return url


def _named(why: HoldfastError, name: str) -> OperatorError:
    return OperatorError(why.code, f"Database `{name}`: {why.message}", hint=why.hint)


def _not_a_url(name: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"The URL of database `{name}` is not one that can be opened.",
        hint="Write `sqlite:///file.db`, `sqlite:////folder/file.db` or `postgresql://user@host/name`.",
    )
