"""Capabilities for tests, by file. What they do is in a real SQLite file, so that doing twice would show."""

import os
import time
from pathlib import Path

import apsw

from holdfast import capability


@capability(side_effect="read")
def count(what: str) -> int:
    """Count how often this was called."""
    return note(f"count {what}")


@capability(side_effect="write")
def pay(to: str, cents: int) -> str:
    """Pay somebody. Nobody could tell afterwards whether it was paid twice."""
    note(f"pay {to} {cents}")
    return f"paid {to} {cents}"


@capability(side_effect="write", timeout_ms=100_000)
def ship(item: str) -> str:
    """Send something out; while the file `stall` is there, the answer does not come."""
    note(f"ship {item}")
    while Path(os.environ["WORLD_DB"]).with_name("stall").exists():
        time.sleep(0.02)
    return f"shipped {item}"


@capability(side_effect="read")
async def look(what: str) -> str:
    """Look something up."""
    note(f"look {what}")
    return what.upper()


def note(what: str) -> int:
    db = apsw.Connection(os.environ["WORLD_DB"])
    try:
        db.set_busy_timeout(10_000)
        db.execute("create table if not exists done (what text)")
        db.execute("insert into done values (?)", (what,))
        return int(db.execute("select count(*) from done").get)
    finally:
        db.close()
