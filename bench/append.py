"""Durable appends, alone and in groups, against raw SQLite doing the same inserts and commits."""

from __future__ import annotations

import asyncio
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import anyio
import apsw

from bench._report import Report, micros, ratio
from holdfast.contracts import Draft, EffectIntent, EffectKind, canonical_json
from holdfast.journal import Journal
from holdfast.journal.sqlite import SqliteJournal

ROUNDS = 9
ALONE = 300
WRITERS = 32
EACH = 60

_names = count()

INSERT = "insert into records values (?,?,?,?,?)"
PROJECT = "replace into live values (?,?,?,?)"


HEAD = "update streams set pos=?, seq=?, hash=?, epoch=?, owner=?, until=? where id=?"

Values = tuple[int, int, int, bytes, bytes, str | None]


class Sample(NamedTuple):
    """What the journal stores for one record, for the floor to store as well."""

    body: bytes
    hash: bytes
    row: str | None
    """The projection row's JSON, when the record has one."""


def plain() -> Draft:
    """A record that no projection looks at."""
    return Draft(kind="bench.note", payload={"text": "x" * 300})


def intent() -> Draft:
    """A record that also puts a row into a projection."""
    said = EffectIntent(
        effect_id=f"effect_{next(_names):012d}",
        kind=EffectKind.TOOL_EXECUTION,
        name="send_invoice",
        redacted_summary="Send an invoice to a customer. " * 6,
    )
    return Draft.of(said)


@contextmanager
def raw(folder: Path) -> Iterator[apsw.Connection]:
    """The floor: the journal's own tables and indexes, and no code of ours."""
    db = apsw.Connection(str(folder / f"raw-{next(_names)}.db"))
    db.execute("pragma journal_mode=wal; pragma synchronous=full")
    db.execute(
        "create table records (seq integer primary key, stream integer not null,"
        " pos integer not null, body blob not null, hash blob not null) strict;"
        "create unique index records_by_stream on records (stream, pos);"
        "create table live (projection text not null, key text not null, tag text,"
        " value text not null, primary key (projection, key)) strict, without rowid;"
        "create table streams (id integer primary key, name text not null unique,"
        " pos integer not null, seq integer not null, hash blob not null,"
        " epoch integer not null, owner text, until integer not null) strict"
    )
    names = [(k, f"stream-{k}") for k in range(WRITERS)]
    db.executemany("insert into streams values (?,?,0,0,zeroblob(32),0,null,0)", names)
    yield db
    db.close()


async def stored(make: Callable[[], Draft]) -> list[Sample]:
    """What the journal would store."""
    async with opened() as journal:
        await journal.append("bench", [make() for _ in range(64)])
        page = await journal.page("bench", 0, 64)
        rows = [canonical_json(row.value).decode() for row in await journal.rows("effects")]
    return [
        Sample(one.body, bytes.fromhex(one.hash), rows[at] if rows else None)
        for at, one in enumerate(page)
    ]


class opened:
    """A journal in a folder of its own."""

    async def __aenter__(self) -> SqliteJournal:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self._journal = SqliteJournal.open(Path(self._folder.name) / "journal.db")
        return self._journal

    async def __aexit__(self, *_: object) -> None:
        await self._journal.close()
        self._folder.cleanup()


def raw_alone(db: apsw.Connection, samples: list[Sample], n: int) -> float:
    """Median seconds of one record's inserts and their commit."""
    took: list[float] = []
    for at in [next(_names) for _ in range(n)]:
        body, hash_, row = samples[at % len(samples)]
        started = perf_counter()
        db.execute("begin immediate")
        db.execute(HEAD, (at, at, hash_, 0, None, 0, 1))
        db.execute(INSERT, (at, 1, at, body, hash_))
        if row is not None:
            db.execute(PROJECT, ("effects", f"effect_{at:012d}", "open", row))
        db.execute("commit")
        took.append(perf_counter() - started)
    return median(took)


async def ours_alone(journal: Journal, make: Callable[[], Draft], n: int) -> float:
    """Median seconds of one durable append."""
    took: list[float] = []
    for draft in [make() for _ in range(n)]:
        started = perf_counter()
        await journal.append("bench", [draft])
        took.append(perf_counter() - started)
    return median(took)


async def raw_group(db: apsw.Connection, samples: list[Sample]) -> float:
    """Rows a second: tasks hand rows to a thread that commits all it finds and wakes them."""
    inbox: queue.SimpleQueue[tuple[Values, asyncio.Future[None]] | None] = queue.SimpleQueue()
    loop = asyncio.get_running_loop()

    def settle(waiting: list[asyncio.Future[None]]) -> None:
        for future in waiting:
            future.set_result(None)

    def write() -> None:
        while (item := inbox.get()) is not None:
            group = [item]
            while not inbox.empty():
                more = inbox.get()
                if more is None:
                    return
                group.append(more)
            db.execute("begin immediate")
            db.executemany(HEAD, [(v[2], v[0], v[4], 0, None, 0, v[1]) for v, _ in group])
            db.executemany(INSERT, [values[:5] for values, _ in group])
            if group[0][0][5] is not None:
                keyed = [("effects", f"e{v[0]:012d}", "open", v[5]) for v, _ in group]
                db.executemany(PROJECT, keyed)
            db.execute("commit")
            loop.call_soon_threadsafe(settle, [future for _, future in group])

    async def writer(k: int) -> None:
        for i in range(EACH):
            future: asyncio.Future[None] = loop.create_future()
            body, hash_, row = samples[i % len(samples)]
            at = next(_names)
            inbox.put(((at, k, at, body, hash_, row), future))
            await future

    thread = threading.Thread(target=write)
    thread.start()
    started = perf_counter()
    async with anyio.create_task_group() as tasks:
        for k in range(WRITERS):
            tasks.start_soon(writer, k)
    took = perf_counter() - started
    inbox.put(None)
    thread.join()
    return WRITERS * EACH / took


async def ours_group(journal: Journal, make: Callable[[], Draft]) -> float:
    """Records a second of as many tasks, each appending to a stream of its own."""
    drafts = [[make() for _ in range(EACH)] for _ in range(WRITERS)]

    async def writer(k: int) -> None:
        for draft in drafts[k]:
            await journal.append(f"stream-{k}", [draft])

    started = perf_counter()
    async with anyio.create_task_group() as tasks:
        for k in range(WRITERS):
            tasks.start_soon(writer, k)
    return WRITERS * EACH / (perf_counter() - started)


async def measure(report: Report) -> None:
    """Every figure of this module."""
    for name, make in (("plain record", plain), ("effect intent and its projection", intent)):
        rows = await stored(make)
        async with opened() as journal:
            with raw(journal.path.parent) as db:
                await compare(report, name, make, journal, db, rows, limited=make is plain)
    await disk(report)


async def compare(
    report: Report,
    name: str,
    make: Callable[[], Draft],
    journal: Journal,
    db: apsw.Connection,
    rows: list[Sample],
    *,
    limited: bool,
) -> None:
    """Alone and in groups, floor and holdfast in turns. Both files are warm: their logs do not grow."""
    raw_alone(db, rows, 4 * ALONE)
    await ours_alone(journal, make, 4 * ALONE)
    floor: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        floor.append(raw_alone(db, rows, ALONE))
        ours.append(await ours_alone(journal, make, ALONE))
    detail = f"raw {micros(floor)}, holdfast {micros(ours)}"
    if limited:
        report.at_most(f"append, {name}", ratio(ours, floor), 1.5, "x", detail)
    else:
        report.note(f"append, {name}", ratio(ours, floor), "x", detail)
    floor, ours = [], []
    for _ in range(ROUNDS):
        floor.append(await raw_group(db, rows))
        ours.append(await ours_group(journal, make))
    detail = f"raw {median(floor):.0f}/s, holdfast {median(ours):.0f}/s"
    if limited:
        report.at_least(f"32 writers, {name}", ratio(ours, floor), 0.6, "x", detail)
    else:
        report.note(f"32 writers, {name}", ratio(ours, floor), "x", detail)


def file_size(path: Path) -> int:
    """Bytes of a file."""
    return path.stat().st_size


async def disk(report: Report) -> None:
    """Bytes in the file for each record."""
    n = 5000
    for name, make in (("plain record", plain), ("effect intent", intent)):
        async with opened() as journal:
            for _ in range(n // 100):
                await journal.append("bench", [make() for _ in range(100)])
            body = len((await journal.page("bench", 0, 1))[0].body)
            await journal.close()  # copies the write-ahead log back
            size = file_size(journal.path) / n
        report.note(f"disk, {name}", size / body, "x", f"{size:.0f} B stored, {body} B of JSON")
