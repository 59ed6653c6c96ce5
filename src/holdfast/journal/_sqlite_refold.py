"""Folds every record into fresh projections, inside whatever transaction is open."""

from __future__ import annotations

from holdfast.journal import _sqlite_read as look
from holdfast.journal._sqlite_db import Db
from holdfast.journal.projections import Rebuilt


def refold(db: Db) -> int:
    """Replace every projection row by what the records say; how many there are."""
    rows = Rebuilt()
    count, after = 0, 0
    while page := look.page(db, None, after, 1000):
        for stored in page:
            rows.add(stored)
        count += len(page)
        after = page[-1].seq
    db.run("delete from rows")
    db.run_many(
        "insert into rows values (?,?,?,?)",
        [(*at, tag, look.row_value(tag, value)) for at, (tag, value) in rows.cells.items()],
    )
    return count
