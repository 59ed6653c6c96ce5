"""The SQLite file: its tables, how it is opened, how it is upgraded, what its errors mean.

`PRAGMA user_version` is the format. `UPGRADES[n]` takes a file from format n to n + 1 inside one transaction;
a file of a newer format is never written, only read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.contracts import new_id
from holdfast.errors import JournalError
from holdfast.journal._sqlite_db import (
    PATIENCE_MS,
    Busy,
    Db,
    busy,
    cannot_open,
    explained,
    sync_folder,
)
from holdfast.journal._sqlite_refold import refold
from holdfast.journal._sqlite_tables import UPGRADES

APPLICATION_ID = 0x686C6466  # "hldf"

_FORMAT = (
    "select user_version, application_id, (select count(*) from sqlite_schema)"
    " from pragma_user_version, pragma_application_id"
)


def create(path: Path) -> bool:
    """Make the file, for its owner's eyes only, unless it is there; True when it was made."""
    try:
        _make_folder(path.parent)
    except OSError as why:
        raise cannot_open(path, why) from None
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    except OSError as why:
        raise cannot_open(path, why) from None
    return True


def _make_folder(folder: Path) -> None:
    """Make the folder and those above it. SQLite syncs the folder of its files, but not what leads there."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def log_size(path: Path) -> int:
    """Bytes of write-ahead log beside the file; another process may remove it at any time."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def upgrade(db: Db, path: Path) -> int | None:
    """Bring the file to the newest format; the format it had, or `None` when nothing was to be done."""
    version = format_of(db, path)
    _use_log(db, path)
    if version == len(UPGRADES):
        return None
    with explained(path):
        try:
            db.begin()
            version = format_of(db, path)
            if version == len(UPGRADES):
                db.rollback()  # another process was faster
                return None
            for number in range(version, len(UPGRADES)):
                db.all(UPGRADES[number])
                db.run(f"pragma user_version={number + 1}")
            if version > 0:
                refold(db)
            if version == 0:
                db.run(f"pragma application_id={APPLICATION_ID}")
                db.run("insert into meta values ('journal_id', ?)", (new_id("journal"),))
            db.run("commit")
        except Busy:
            raise busy(path) from None
        except BaseException:
            db.rollback()
            raise
    return version


def _use_log(db: Db, path: Path) -> None:
    """Switch to write-ahead mode, in which the file then stays; a new file and a backup are not in it."""
    until = time.monotonic() + PATIENCE_MS / 1000
    while True:
        try:
            with explained(path):
                if db.value("pragma journal_mode") != "wal":
                    db.run("pragma journal_mode=wal")
                return
        except JournalError as why:
            # SQLite itself does not wait for this lock, and all who open a new file at once want it.
            if why.code != "JOURNAL_BUSY" or time.monotonic() > until:
                raise
            time.sleep(0.005)


def format_of(db: Db, path: Path) -> int:
    """The file's format; refuses a file that is no journal or of a newer format."""
    version = format_found(db, path)
    if version > len(UPGRADES):
        raise JournalError(
            "JOURNAL_TOO_NEW",
            f"`{path}` has format {version}; this holdfast knows formats up to {len(UPGRADES)}.",
            hint="Upgrade holdfast. `journal show`, `verify` and `export` can still read the file.",
        )
    return version


def format_found(db: Db, path: Path) -> int:
    """The file's format, whatever it is; refuses a file that is no journal."""
    with explained(path):
        # In one statement: another process may be making the file right now.
        version, owner, tables = db.all(_FORMAT)[0]
    if owner != APPLICATION_ID and (version or tables):
        raise JournalError(
            "JOURNAL_DAMAGED",
            f"`{path}` is a SQLite database, but no holdfast journal; nothing was changed in it.",
            hint="Point $HOLDFAST_HOME or the url elsewhere.",
        )
    return version


def check_size(path: Path, db: Db) -> None:
    """Refuse a file that is shorter than it says it is."""
    with explained(path):
        expected = int(db.value("pragma page_count")) * int(db.value("pragma page_size"))
    # Pages that only the write-ahead log holds are not missing from the file. The log first: once it is
    # empty, all of it is in the file.
    if not log_size(path) and path.stat().st_size < expected:
        raise JournalError(
            "JOURNAL_DAMAGED",
            f"`{path}` has {path.stat().st_size} bytes where it should have {expected}: it was cut off.",
            hint="Restore the file from a backup; what is left can be read with `journal export`.",
        )


def emptied(path: Path) -> JournalError:
    """The error of a file that is empty while its log is not. SQLite would throw the log away."""
    return JournalError(
        "JOURNAL_DAMAGED",
        f"`{path}` is empty, but there is a write-ahead log beside it: the file was cut off.",
        hint="Restore the file from a backup.",
    )
