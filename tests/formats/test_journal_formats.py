"""Journals that an earlier holdfast wrote open, verify and project as they did then, for ever."""

import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import HoldfastError
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import SqliteReader
from holdfast.testing import FakeClock
from holdfast.testing._drafts import answered, completed, result

FILES = sorted(Path(__file__).parent.glob("format-*.db"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def frozen(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(request.param, tmp_path / request.param.name))


@pytest.fixture
def then(frozen: Path) -> dict[str, Any]:
    return json.loads((Path(__file__).parent / f"{frozen.stem}.json").read_text())


def grown(now: Any, then: Any) -> bool:
    """Whether everything that was there is there; a newer version may say more."""
    if isinstance(then, dict):
        return all(key in now and grown(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(grown, now, then))
    return now == then


def test_there_is_one_for_every_format():
    assert [path.stem for path in FILES] == ["format-1", "format-2", "format-3", "format-4"]
    assert all(path.stat().st_size < 100_000 for path in FILES)


async def test_the_newest_has_the_tables_that_a_new_file_gets(tmp_path: Path):
    """Whoever changes a table has to write an upgrade."""
    await SqliteJournal.open(tmp_path / "new.db").close()
    assert tables(tmp_path / "new.db") == tables(Path(shutil.copy(FILES[-1], tmp_path)))


def tables(path: Path) -> list[Any]:
    db = apsw.Connection(str(path))
    try:
        return db.execute("select type, name, sql from sqlite_schema order by name").fetchall()
    finally:
        db.close()


async def test_it_opens_and_verifies(frozen: Path, then: dict[str, Any]):
    journal = SqliteJournal.open(frozen)
    assert not journal.found.created
    assert journal.found.records == len(then["records"])
    report = await journal.verify()
    assert report.ok
    assert (report.root, report.erased) == (then["root"], then["erased"])
    await journal.close()


async def test_its_records_say_what_they_said(frozen: Path, then: dict[str, Any]):
    journal = SqliteJournal.open(frozen)
    records = [record async for record in journal.read_all()]
    assert all(record.known for record in records)
    assert grown([record.model_dump(mode="json") for record in records], then["records"])
    assert grown([list(head) for head in sorted(await journal.heads())], then["heads"])
    await journal.close()


async def test_its_projections_are_what_they_were(frozen: Path, then: dict[str, Any]):
    journal = SqliteJournal.open(frozen)
    for _ in range(2):
        rows = {name: [list(row) for row in await journal.rows(name)] for name in then["rows"]}
        assert grown(rows, then["rows"])
        await journal.rebuild()
    await journal.close()


async def test_its_bodies_are_what_they_were(frozen: Path, then: dict[str, Any]):
    journal = SqliteJournal.open(frozen)
    for name, text in then["bodies"].items():
        assert (await journal.content(name)).decode() == text
    with pytest.raises(Exception, match="CONTENT_ERASED"):
        await journal.content(then["gone"])
    await journal.close()


async def test_it_can_be_written_on(frozen: Path, then: dict[str, Any]):
    last = then["records"][-1]
    clock = FakeClock(last["time"] + 10_000_000)
    journal = SqliteJournal.open(frozen, clock=clock)
    before = await journal.head("open")
    lease = await journal.claim("open", "successor", ttl_ms=1000)
    assert lease.epoch == before.epoch + 1
    await journal.append(
        "open",
        [answered("open_approval"), result("open_effect", "open_run"), completed("open_run")],
        expected_pos=before.pos,
        epoch=lease.epoch,
    )
    report = await journal.verify()
    assert (report.ok, report.records) == (True, len(then["records"]) + 3)
    await journal.close()


async def test_it_can_be_read_where_it_lies(frozen: Path, then: dict[str, Any]):
    reader = SqliteReader(frozen)
    assert (await reader.verify()).root == then["root"]
    assert await reader.contents([*then["bodies"], then["gone"]]) == {
        name: text.encode() for name, text in then["bodies"].items()
    }
    await reader.close()


async def test_its_projections_can_be_read_where_it_lies(frozen: Path, then: dict[str, Any]):
    reader = SqliteReader(frozen)
    for name, rows in then["rows"].items():
        assert [row.key for row in await reader.rows(name)] == [row[0] for row in rows]
        for key, tag, _ in rows:
            assert await reader.row(name, key) is not None
            if tag is not None:
                assert key in [row.key for row in await reader.rows(name, tag=tag)]
    await reader.close()


async def test_what_keeps_a_body_keeps_it_after_an_upgrade(frozen: Path, then: dict[str, Any]):
    reader = SqliteReader(frozen)
    before = sorted(await reader.holdings())
    await reader.close()
    assert {held.digest for held in before} == set(then["bodies"])
    journal = SqliteJournal.open(frozen)
    assert sorted(await journal.holdings()) == before
    persistent = next(held.digest for held in before if held.retention == "persistent")
    with pytest.raises(HoldfastError, match="CONTENT_NOT_ALLOWED"):
        await journal.erase(persistent, reason="test")
    await journal.close()
