"""Older formats are upgraded whole or not at all; newer ones are left alone."""

# ruff: noqa: ASYNC221, ASYNC240 - a test keeps nobody waiting

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from holdfast.errors import JournalError
from holdfast.journal import _sqlite_schema as schema
from holdfast.journal._sqlite_db import Db
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import SqliteReader
from holdfast.testing._conformance._base import Everything, everything
from holdfast.testing._drafts import STORY, note

NOW = len(schema.UPGRADES)

# With a statement that returns rows in the middle: those after it must run as well.
STEP = """
create table extra (x);
insert into extra select count(*) from records;
select * from records;
alter table streams add column note text;
insert into extra values (7);
"""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    journal = SqliteJournal.open(path)
    await journal.append("s", STORY)
    await journal.close()
    return path


def ask(path: Path, sql: str) -> Sequence[tuple[object, ...]]:
    db = apsw.Connection(str(path))
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


async def contents(path: Path) -> Everything:
    journal = SqliteJournal.open(path)
    try:
        return await everything(journal)
    finally:
        await journal.close()


async def test_an_older_file_is_upgraded_and_keeps_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = await contents(path)
    monkeypatch.setattr(schema, "UPGRADES", [*schema.UPGRADES, STEP])
    journal = SqliteJournal.open(path)
    assert journal.found == (False, len(STORY), 1, False, NOW)
    assert await everything(journal) == before
    await journal.append("s", [note()])
    assert (await journal.verify()).ok
    await journal.close()
    assert ask(path, "pragma user_version") == [(NOW + 1,)]
    assert ask(path, "select x from extra") == [(len(STORY),), (7,)]
    journal = SqliteJournal.open(path)
    assert journal.found.upgraded_from is None
    await journal.close()


async def test_several_steps_are_taken_at_once(path: Path, monkeypatch: pytest.MonkeyPatch):
    steps = [*schema.UPGRADES, STEP, "create table more (x)", "drop table more"]
    monkeypatch.setattr(schema, "UPGRADES", steps)
    journal = SqliteJournal.open(path)
    assert journal.found.upgraded_from == NOW
    await journal.close()
    assert ask(path, "pragma user_version") == [(NOW + 3,)]


async def test_another_process_may_be_faster(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "UPGRADES", [*schema.UPGRADES, STEP])
    looked = schema.format_of
    others: list[SqliteJournal] = []

    def format_of(db: Db, path: Path) -> int:
        version = looked(db, path)
        if not others:
            monkeypatch.setattr(schema, "format_of", looked)
            others.append(SqliteJournal.open(path))
        return version

    monkeypatch.setattr(schema, "format_of", format_of)
    journal = SqliteJournal.open(path)
    assert (others[0].found.upgraded_from, journal.found.upgraded_from) == (NOW, None)
    await others[0].close()
    await journal.close()
    assert ask(path, "select count(*) from extra") == [(2,)]


@pytest.mark.parametrize("broken", ["this is no sql", "insert into nowhere values (1)"])
async def test_an_upgrade_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
):
    before, tables = await contents(path), ask(path, "select * from sqlite_schema")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "UPGRADES", [*schema.UPGRADES, STEP, broken])
        with pytest.raises(JournalError, match=r"^JOURNAL_IO"):
            SqliteJournal.open(path)
    assert ask(path, "pragma user_version") == [(NOW,)]
    assert ask(path, "select * from sqlite_schema") == tables
    assert await contents(path) == before


async def test_a_new_file_that_could_not_be_made_can_be_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "journal.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "UPGRADES", [f"{schema.UPGRADES[0]}; this is no sql"])
        with pytest.raises(JournalError, match=r"^JOURNAL_IO"):
            SqliteJournal.open(path)
    journal = SqliteJournal.open(path)
    assert journal.found == (True, 0, 0, False, None)
    await journal.append("s", STORY)
    await journal.close()


async def test_a_newer_file_is_refused_and_left_alone(path: Path):
    ask(path, f"pragma user_version={NOW + 1}")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"^JOURNAL_TOO_NEW: .* format {NOW + 1};"):
        SqliteJournal.open(path)
    assert path.read_bytes() == before
    assert list(path.parent.glob("journal*")) == [path]
    reader = SqliteReader(path)
    assert (await reader.verify()).records == len(STORY)
    await reader.close()


async def test_the_log_of_a_newer_file_is_left_alone(path: Path):
    program = (
        "import apsw, os, sys; db = apsw.Connection(sys.argv[1]);"
        f"db.execute('pragma user_version={NOW + 1}; create table newer (x)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    log = path.with_name("journal.db-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[1]
    with pytest.raises(JournalError, match=r"^JOURNAL_TOO_NEW"):
        SqliteJournal.open(path)
    assert (path.read_bytes(), log.read_bytes()) == before


async def test_a_file_that_lost_its_log_mode_gets_it_back(path: Path):
    """A backup is one file, in the mode that needs no second one; as a journal it must be fast again."""
    assert ask(path, "pragma journal_mode=delete") == [("delete",)]
    journal = SqliteJournal.open(path)
    await journal.append("s", [note()])
    assert path.with_name("journal.db-wal").exists()
    await journal.close()
    assert ask(path, "pragma journal_mode") == [("wal",)]
