"""Folds every record into fresh projections, inside whatever transaction is open."""

from __future__ import annotations

from holdfast.journal import _sqlite_read as look
from holdfast.journal._sqlite_db import Db
from holdfast.journal._sqlite_rows import rewrite_rows
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
    rewrite_rows(db, rows.cells)
    return count
