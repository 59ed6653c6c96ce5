"""What the programs share: their arguments, the script of the model, the clock of a turn, a JSON line for a figure.

A session of N turns is N answers of the model that call one tool each, and one answer in words. The tool gives back
a small object. Standard library only: it is imported in the environments of the peers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

USER, DONE = "go", "done"
"""What the user says first, and what the model says last."""

PAYLOAD = "x" * 200
"""Text in each result of a long conversation."""


@dataclass
class Asked:
    """What a program is asked to measure."""

    bench: str
    variant: str
    turns: int
    """Turns of one session."""
    reps: int
    """Sessions one after the other; the first one warms up and is not counted."""
    warm: int
    """Sessions before anything is measured, so that the database's log need not grow any more."""
    sessions: int
    """Sessions at the same time."""
    latency: float
    """Seconds the model takes in a crowd."""
    folder: Path
    """Where files go."""


Bench = Callable[[Asked], None]


def main(**benches: Bench) -> None:
    """Run the bench that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", choices=sorted(benches))
    parser.add_argument("--variant", default="")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--reps", type=int, default=6)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.01)
    parser.add_argument("--folder", type=Path, required=True)
    asked = Asked(**vars(parser.parse_args()))
    asked.folder.mkdir(parents=True, exist_ok=True)
    benches[asked.bench](asked)


def emit(**figures: float) -> None:
    """Print figures, one JSON line each."""
    for metric, value in figures.items():
        print(json.dumps({"metric": metric, "value": value}), flush=True)


class Tool:
    """The tool, and how often it ran."""

    def __init__(self, payload: str = "") -> None:
        self.calls = 0
        self._more = {"text": payload} if payload else {}

    def __call__(self, n: int) -> dict[str, Any]:
        self.calls += 1
        return {"ok": True, "n": n, **self._more}

    def ran(self, times: int) -> None:
        """Fail unless it ran that often, and start counting again."""
        assert self.calls == times, (self.calls, times)
        self.calls = 0


# --- one session after the other ---


def repeat(asked: Asked, session: Callable[[int], Any], tool: Tool) -> None:
    """Run sessions one after the other; print microseconds a turn."""
    took: list[float] = []
    for at in range(asked.warm + asked.reps):
        started = perf_counter()
        said = session(at)
        took.append(perf_counter() - started)
        assert said == DONE, said
        tool.ran(asked.turns)
    _per_turn(asked, took)


async def arepeat(asked: Asked, session: Callable[[int], Awaitable[Any]], tool: Tool) -> None:
    """The same for sessions that are awaited."""
    took: list[float] = []
    for at in range(asked.warm + asked.reps):
        started = perf_counter()
        said = await session(at)
        took.append(perf_counter() - started)
        assert said == DONE, said
        tool.ran(asked.turns)
    _per_turn(asked, took)


def _per_turn(asked: Asked, took: list[float]) -> None:
    counted = took[asked.warm :]
    counted = counted[1:] or counted
    emit(us_per_turn=median(counted) / asked.turns * 1e6)


# --- files ---


def size(path: Path) -> int:
    """Bytes of a database with nothing left in its log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    return path.stat().st_size


def disk(asked: Asked, path: Path, empty: int) -> None:
    """Print the bytes that one turn left behind."""
    sessions = asked.warm + asked.reps
    emit(disk_bytes_per_turn=(size(path) - empty) / sessions / asked.turns)


def fresh(asked: Asked, name: str) -> Path:
    """A path where no database is."""
    path = asked.folder / f"{name}-{os.getpid()}.db"
    assert not path.exists()
    return path


# --- how a long session grows ---

NEAR, SHORT, WINDOW = 10, 20, 50
"""The early turn, the length of a session that has it, and how many late turns count."""


def late(stamps: Sequence[float]) -> float:
    """Microseconds of a turn at the end of a session, from the times of its model calls."""
    return _between(stamps[-WINDOW:])


def early(sessions: Sequence[Sequence[float]]) -> float:
    """Microseconds of a session's tenth turn: its neighbours, of several short sessions."""
    return median(_between(stamps[NEAR - 5 : NEAR + 6]) for stamps in sessions)


def _between(stamps: Sequence[float]) -> float:
    return median(b - a for a, b in pairwise(stamps)) * 1e6


def growth(asked: Asked, grow: Callable[[str, int], Sequence[float]]) -> None:
    """Run one long session between short ones; print what a turn costs early and late in it.

    The log of a new database grows, which makes the first turns dear; `warm` sessions take that out.
    """
    for at in range(max(1, asked.warm)):
        grow(f"warm-{at}", WINDOW)
    before = [grow(f"before-{at}", SHORT) for at in range(5)]
    long = grow("long", asked.turns)
    after = [grow(f"after-{at}", SHORT) for at in range(5)]
    emit(early_us=early([*before, *after]), late_us=late(long))


async def agrowth(asked: Asked, grow: Callable[[str, int], Awaitable[Sequence[float]]]) -> None:
    """The same for sessions that are awaited."""
    for at in range(max(1, asked.warm)):
        await grow(f"warm-{at}", WINDOW)
    before = [await grow(f"before-{at}", SHORT) for at in range(5)]
    long = await grow("long", asked.turns)
    after = [await grow(f"after-{at}", SHORT) for at in range(5)]
    emit(early_us=early([*before, *after]), late_us=late(long))


# --- many sessions at once ---


class Crowd:
    """The model's side of many sessions: it takes its time, and notes when each turn began."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.latencies: list[float] = []
        """Seconds of each turn."""
        self.sessions: list[float] = []
        """Seconds of each session, with the time before its first turn."""

    def clock(self) -> Clock:
        """The clock of one session."""
        return Clock(self)

    async def measure(self, session: Callable[[int], Awaitable[Any]], tool: Tool) -> None:
        """One session to warm up, then all of them at once; print turns a second and the latency of a turn."""
        asked = self.asked
        assert await asyncio.create_task(self._timed(session, -1)) == DONE
        tool.ran(asked.turns)
        self.latencies.clear()
        self.sessions.clear()
        before = _peak()
        started, cpu = perf_counter(), process_time()
        tasks = [asyncio.create_task(self._timed(session, at)) for at in range(asked.sessions)]
        said = await asyncio.gather(*tasks)
        wall = perf_counter() - started
        assert all(words == DONE for words in said)
        tool.ran(asked.sessions * asked.turns)
        ordered, whole = sorted(self.latencies), sorted(self.sessions)
        emit(
            turns_per_s=asked.sessions * asked.turns / wall,
            cpu_s=process_time() - cpu,
            p50_ms=ordered[len(ordered) // 2] * 1e3,
            p99_ms=ordered[int(len(ordered) * 0.99)] * 1e3,
            session_p99_ms=whole[int(len(whole) * 0.99)] * 1e3,
            kb_per_session=(_peak() - before) / asked.sessions,
        )

    async def _timed(self, session: Callable[[int], Awaitable[Any]], at: int) -> Any:
        started = perf_counter()
        said = await session(at)
        self.sessions.append(perf_counter() - started)
        return said


class Clock:
    """One session of a crowd: a turn is the time from one model call to the next, the model's own time included."""

    __slots__ = ("_crowd", "_last", "at")

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._last: float | None = None
        self.at = 0

    async def tick(self) -> int:
        """Take as long as a model takes; say how many calls came before."""
        now = perf_counter()
        if self._last is not None:
            self._crowd.latencies.append(now - self._last)
        self._last = now
        at = self.at
        self.at += 1
        await asyncio.sleep(self._crowd.asked.latency)
        return at


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
