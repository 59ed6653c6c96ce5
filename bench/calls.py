"""A capability call from code, against the engine's own suspension plus the journal writes the call needs.

The floor has no code of ours: the bare engine in the same jail stops at each call, raw SQLite writes the rows that such
a call leaves behind (two records, two bodies, one projection row and the stream's head), and the engine is answered. A
read's rows ride with others in one commit that nobody waits for. A call that changes something waits for one commit on
disk before it acts; one that must not be repeated waits for a second before the code goes on.

The two are measured in one program, the writes where they belong: while a disk is waited for, the worker's processor
goes to sleep and memory gets cold, and the next stop takes longer than it does in a loop of nothing but stops. What the
two take one by one is shown beside it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import apsw
from pydantic_monty import AsyncMonty, AsyncMontySession, ResourceLimits

import holdfast
from bench._report import Report, micros, ratio
from holdfast import Runtime, SessionLimits, capability
from holdfast.shell.languages.python import PythonBoxes

LIMITS: ResourceLimits = {"max_memory": 64 << 20, "max_suspensions": 10**9}
ROUNDS = 9
CALLS = 100
GROUP = 16
"""Reads that ride in one commit."""
PARKED = 1000
RESUMED = 1000

_ids = count(1)

CONFIG: dict[str, Any] = {
    "policy": {"rules": [{"id": "bench", "tool": "w*", "then": "allow"}]},
    "shell": {"limits": {"max_external_calls": 100_000, "cpu_ms": 60_000, "wall_ms": 600_000}},
}


@capability(side_effect="read")
async def look(i: int) -> int:
    """Look something up."""
    return i


@capability(side_effect="write", idempotent=True)
async def write_keyed(i: int) -> int:
    """Write something that may be written again."""
    return i


@capability(side_effect="write")
async def write_once(i: int) -> int:
    """Write something that must not be written twice."""
    return i


@capability(side_effect="external_system", approval="manual")
def send(i: int) -> int:
    """Wait for a person."""
    return i


def program(name: str, calls: int) -> str:
    """Code that calls one thing again and again."""
    return f"n = 0\nfor i in range({calls}):\n    n += await {name}(i)\nn"


class Raw(NamedTuple):
    """Two connections to one file: one waits for the disk, one does not."""

    db: apsw.Connection
    quick: apsw.Connection


@contextmanager
def raw(folder: Path) -> Iterator[Raw]:
    """The floor's file: the journal's own tables and indexes."""
    db = apsw.Connection(str(folder / "raw.db"))
    db.execute("pragma journal_mode=wal; pragma synchronous=full")
    db.execute(
        "create table records (seq integer primary key, stream integer not null,"
        " pos integer not null, body blob not null, hash blob not null) strict;"
        "create unique index records_by_stream on records (stream, pos);"
        "create table live (projection text not null, key text not null, tag text,"
        " value text not null, primary key (projection, key)) strict, without rowid;"
        "create table rows (projection text not null, key text not null, tag text not null,"
        " value blob not null, primary key (projection, key)) strict, without rowid;"
        "create table content (digest blob primary key, size integer, codec text, body blob)"
        " strict, without rowid;"
        "create table streams (id integer primary key, pos integer not null, seq integer not null,"
        " hash blob not null) strict;"
        "insert into streams values (1, 0, 0, zeroblob(32))"
    )
    quick = apsw.Connection(str(folder / "raw.db"))
    quick.execute("pragma synchronous=normal")
    yield Raw(db, quick)
    quick.close()
    db.close()


BODY, HASH = b"x" * 420, b"h" * 32
ROW, OVER = "r" * 330, b"r" * 120
"""The row of a call under way, and, squeezed, of one that is over."""

_LIVE = "replace into live values ('effects',?,'open',?)"
_NOT_LIVE = "delete from live where projection='effects' and key=?"
_OVER = "replace into rows values ('effects',?,'closed',?)"


def _record(db: apsw.Connection) -> None:
    at = next(_ids)
    db.execute("insert into records values (?,1,?,?,?)", (at, at, BODY, HASH))
    digest = at.to_bytes(32, "big")
    db.execute("insert into content values (?,?,?,?)", (digest, 12, "raw", b'{"i":12345}'))


def _begun(db: apsw.Connection, key: int) -> None:
    _record(db)
    db.execute(_LIVE, (f"effect_{key:012d}", ROW))


def _ended(db: apsw.Connection, key: int) -> None:
    _record(db)
    db.execute(_NOT_LIVE, (f"effect_{key:012d}",))
    db.execute(_OVER, (f"effect_{key:012d}", OVER))


def _at_once(db: apsw.Connection, key: int) -> None:
    """A call whose records are written together was never under way in there."""
    _record(db)
    _record(db)
    db.execute(_OVER, (f"effect_{key:012d}", OVER))


def _head(db: apsw.Connection) -> None:
    db.execute("update streams set pos=pos+1, seq=seq+1, hash=? where id=1", (HASH,))


class Floor:
    """What the journal has to write for calls of one kind, by raw SQLite."""

    def __init__(self, db: Raw, name: str) -> None:
        self._db = db
        self._reads = name in ("look", "echo")
        self._twice = name in ("write_once", "send")
        self._waiting: list[int] = []

    def before(self, key: int) -> None:
        """A call is to be made: that is on disk first, if it changes something."""
        if not self._reads:
            _written(self._db.db, _begun, key)

    def after(self, key: int) -> None:
        """It was made."""
        if not self._reads:
            _written(self._db.db if self._twice else self._db.quick, _ended, key)
            return
        self._waiting.append(key)
        if len(self._waiting) == GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the reads that wait for company, without a sync."""
        quick = self._db.quick
        if self._waiting:
            quick.execute("begin immediate")
            for key in self._waiting:
                _at_once(quick, key)
            _head(quick)
            quick.execute("commit")
            self._waiting.clear()

    def alone(self) -> float:
        """Seconds a call, with nothing in between."""
        started = perf_counter()
        for key in range(CALLS):
            self.before(key)
            self.after(key)
        self.flush()
        return (perf_counter() - started) / CALLS


def _written(db: apsw.Connection, write: Callable[[apsw.Connection, int], None], key: int) -> None:
    db.execute("begin immediate")
    write(db, key)
    _head(db)
    db.execute("commit")


async def suspension(session: AsyncMontySession, journal: Floor | None = None) -> float:
    """Seconds for one call of the bare engine: it stops, is told to expect the answer, awaits, and gets it."""
    took: list[float] = []
    for calls in (0, CALLS):
        started = perf_counter()
        made = 0
        stop: Any = await session.feed_start(program("look", calls))
        while not hasattr(stop, "output"):
            if not hasattr(stop, "pending_call_ids"):
                stop = await stop.resume({"future": ...})
                continue
            made += 1
            if journal is not None:
                journal.before(made)
                journal.after(made)
            stop = await stop.resume({stop.pending_call_ids[0]: {"return_value": 1}})
        if journal is not None:
            journal.flush()
        took.append(perf_counter() - started)
        assert made == calls
    return (took[1] - took[0]) / CALLS


async def calls(hf: Runtime, name: str) -> float:
    """Seconds for one call through holdfast, until its records are on disk."""
    took: list[float] = []
    for n in (0, CALLS):
        started = perf_counter()
        done = await hf.shell.run(program(name, n), session="bench")
        await hf.journal.flush()
        took.append(perf_counter() - started)
        assert done.error is None, done.error
    return (took[1] - took[0]) / CALLS


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Runtime, Path]]:
    """A runtime with the bench's capabilities, on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        tools = [look, write_keyed, write_once, send]
        url = f"sqlite:///{folder}/journal.db"
        async with holdfast.open(url, config=CONFIG, capabilities=tools) as hf:
            yield hf, Path(folder)


async def measure(report: Report) -> None:
    """Every figure of this module."""
    async with (
        opened() as (hf, folder),
        PythonBoxes() as boxes,
        AsyncMonty(binary_path=boxes.binary) as pool,
        pool.checkout(limits=LIMITS) as session,
    ):
        with raw(folder) as db:
            for name, what in (
                ("look", "a read"),
                ("write_keyed", "a write that may be repeated"),
                ("write_once", "a write that may not"),
            ):
                await _compare(report, hf, session, db, name, what)
    await parked(report)
    await resumed(report)


async def _compare(
    report: Report,
    hf: Runtime,
    session: AsyncMontySession,
    db: Raw,
    name: str,
    what: str,
) -> None:
    engine: list[float] = []
    apart: list[float] = []
    floors: list[float] = []
    ours: list[float] = []
    journal = Floor(db, name)
    await calls(hf, name)
    await suspension(session, journal)
    for _ in range(ROUNDS):
        engine.append(await suspension(session))
        apart.append(engine[-1] + journal.alone())
        floors.append(await suspension(session, journal))
        ours.append(await calls(hf, name))
    detail = f"engine with SQLite {micros(floors)}, holdfast {micros(ours)}"
    report.at_most(f"capability call, {what}", ratio(ours, floors), 1.5, "x", detail)
    detail = f"engine {micros(engine)}, and SQLite {micros(apart)}"
    report.note("  the same, the two measured apart", ratio(ours, apart), "x", detail)


def children() -> int:
    """Processes of ours that are alive, beyond the pool's first and the checker's."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return max(0, len(found) - 2)


async def parked(report: Report) -> None:
    """Sessions that wait for a person: what they hold, and what they take on disk."""
    async with opened() as (hf, folder):
        for at in range(PARKED):
            done = await hf.shell.run("x = [1, 2, 3]\nsend(1)", session=f"s{at}")
            assert done.status == "waiting_for_approval", done.error
        workers = children()
        await hf.journal.flush()
        size = sum(path.stat().st_size for path in folder.glob("journal.db*"))
    detail = f"{PARKED} sessions, {workers} worker processes"
    report.at_most("parked session, on disk", size / PARKED / 1024, 50, "KiB", detail)
    report.at_most("worker processes held by parked sessions", workers, 0, "", "")


async def resumed(report: Report) -> None:
    """A run with many calls behind it: from its first record to its next call, by running the code again."""
    took: list[float] = []
    for n in (RESUMED // 2, RESUMED):
        async with opened() as (hf, _):
            code = program("look", n) + "\nsend(n)"
            done = await hf.shell.run(
                code,
                session="s",
                limits=SessionLimits(max_external_calls=100_000, cpu_ms=60_000, wall_ms=600_000),
            )
            assert done.approval_id is not None, done.error
            rows = [r async for r in hf.journal.read("s", after=0) if r.kind == "run_parked"]
            await hf.journal.erase(str(rows[-1].payload["state"]), reason="bench")
            await hf.approvals.decide(done.approval_id, "approved", actor="bench")
            started = perf_counter()
            again = await hf.runs.resume(str(done.run_id))
            took.append(perf_counter() - started)
            assert again.status == "ok", again.error
    half, whole = took
    report.at_most(
        f"resume after {RESUMED} calls, by replay", whole, 1.0, "s", f"{RESUMED // 2}: {half:.2f} s"
    )
    report.at_most("the same against half as many calls", whole / half, 2.5, "x", "")
    report.note("one replayed call", median([whole / RESUMED]) * 1e6, "us", "")
