"""The rows of projections in the SQLite file: what is under way in one table, what is over in another.

Rows under way come and go with every call, so their table is small and its pages are the same few. Rows of what is over
are written once, squeezed, and hardly ever looked at. A row is in one of the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import JournalError
from holdfast.journal._exact import exact_json
from holdfast.journal._sqlite_db import Columns, Db
from holdfast.journal._sqlite_tables import MANY_TAGS, RESTING, TAGGED
from holdfast.journal._squeeze import squeezed, unsqueezed
from holdfast.journal._stage import Cell, Key
from holdfast.journal.log import Row

_ONE = "select tag, value from {table} where projection = ?1 and key = ?2"
_EITHER = f"{_ONE.format(table='live')} union all {_ONE.format(table='rows')}"
_HERE = "select count(*) from sqlite_schema where name = 'live'"

LIVE, OVER = "live", "rows"
"""The two tables."""

# Every column is given, so this does what `on conflict do update` does, in four fifths of the time.
_LIVE = "replace into live values (?,?,?,?)"
_OVER = "replace into rows values (?,?,?,?)"
_NOT_LIVE = "delete from live where projection = ? and key = ?"
_NOT_OVER = "delete from rows where projection = ? and key = ?"


def find_row(db: Db, projection: str, key: str) -> Cell | None:
    """One row of a projection."""
    sql = _EITHER if _is_split(db) else _ONE.format(table="rows")
    row = db.one(sql, (projection, key))
    return None if row is None else (row[0], _value(row[1]))


def rows(
    db: Db, projection: str, tag: str | None, after: str, limit: int, *, newest: bool = False
) -> list[Row]:
    """Rows of a projection in key order; with `newest`, from the last key down."""
    beyond, order = ("<", " desc") if newest and after else (">", " desc" if newest else "")
    where = f"projection = ?1 and key {beyond} ?2"
    if tag is not None:
        where += " and tag = ?4"
    parts = [
        f"select key, tag, value from {table} where {where}{and_}"
        for table, and_ in _tables(db, projection, tag)
    ]
    values = (projection, after, limit) if tag is None else (projection, after, limit, tag)
    found = db.all(f"{' union all '.join(parts)} order by key{order} limit ?3", values)
    return [Row(key, tag, _value(value)) for key, tag, value in found]


def _tables(db: Db, projection: str, tag: str | None) -> list[tuple[str, str]]:
    """Where rows with this tag are, and what else has to be said there."""
    if not _is_split(db):
        return [("rows", "")]
    if tag is None:
        return [("live", ""), ("rows", "")]
    if tag in RESTING:
        return [("rows", "")]
    if projection in TAGGED:
        # Said outright: knowing nothing of how few rows have this tag, SQLite would rather read them all.
        return [("live indexed by live_by_tag", f" and {MANY_TAGS}")]
    return [("live", "")]


def _is_split(db: Db) -> bool:
    """Whether the file has both tables. One of an earlier format that is only read has all rows in one."""
    if not db.split:
        db.split = bool(db.value(_HERE))
    return db.split


def write_rows(
    db: Db, cells: Mapping[Key, Cell], may_be_in: Callable[[Key], Sequence[str]]
) -> None:
    """Replace rows. `may_be_in`: the tables in which a row can be already, as far as is known."""
    live: list[Columns] = []
    over: list[Columns] = []
    not_live: list[Key] = []
    not_over: list[Key] = []
    for at, (tag, value) in cells.items():
        data = exact_json(value)  # folded from records, in which all numbers are finite
        if tag in RESTING:
            over.append((*at, tag, squeezed(data)))
            if LIVE in may_be_in(at):
                not_live.append(at)
        else:
            live.append((*at, tag, data.decode()))
            if OVER in may_be_in(at):
                not_over.append(at)
    if not_live:
        db.run_many(_NOT_LIVE, not_live)
    if not_over:
        db.run_many(_NOT_OVER, not_over)
    if live:
        db.run_many(_LIVE, live)
    if over:
        db.run_many(_OVER, over)


def rewrite_rows(db: Db, cells: Mapping[Key, Cell]) -> None:
    """Have these rows, and no others."""
    db.run("delete from live; delete from rows")
    write_rows(db, cells, lambda _: ())


def _value(found: object) -> dict[str, Any]:
    try:
        text = unsqueezed(found) or b"" if isinstance(found, bytes) else str(found)
        return {**json.loads(text)}
    except (ValueError, TypeError, RecursionError):
        raise JournalError(
            "JOURNAL_DAMAGED",
            "A projection's row is not what was written; the records may still be whole.",
            hint="Run `holdfast journal verify`; if the records hold, rebuild the projections.",
        ) from None
