"""A trivial run in a warm session, against the bare engine in the same jail.

The figure with a limit is the latency of a run that comes after a pause, as a run does that a model has written:
engine and holdfast take turns, two milliseconds apart. Back to back, the engine's processor never goes to sleep and
answers in a third of the time, while holdfast also writes the records of the runs before; that ratio is shown too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter

import anyio
from pydantic_monty import AsyncMonty, ResourceLimits

import holdfast
from bench._report import Report, micros, ratio
from holdfast.shell.languages.python import PythonBoxes

CODE = "result = sum(range(10))\nresult"
LIMITS: ResourceLimits = {"max_memory": 64 << 20, "max_suspensions": 10**9}
ROUNDS = 9
PAIRS = 60
PAUSE = 0.002

Run = Callable[[], Awaitable[object]]


async def timed(run: Run) -> float:
    """Seconds of one run."""
    started = perf_counter()
    await run()
    return perf_counter() - started


async def at_rest(engine: Run, ours: Run) -> tuple[float, float]:
    """Median seconds of each, one after the other, with a pause before each."""
    floor: list[float] = []
    mine: list[float] = []
    for _ in range(PAIRS):
        await anyio.sleep(PAUSE)
        floor.append(await timed(engine))
        await anyio.sleep(PAUSE)
        mine.append(await timed(ours))
    return median(floor), median(mine)


async def busy(engine: Run, ours: Run, flush: Run) -> tuple[float, float]:
    """Mean seconds of each, back to back; ours until its records are on disk."""
    started = perf_counter()
    for _ in range(PAIRS):
        await engine()
    middle = perf_counter()
    for _ in range(PAIRS):
        await ours()
    await flush()
    return (middle - started) / PAIRS, (perf_counter() - middle) / PAIRS


async def measure(report: Report) -> None:
    """Every figure of this module."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with (
            holdfast.open(f"sqlite:///{folder}/journal.db", config={}) as hf,
            PythonBoxes() as boxes,
            AsyncMonty(binary_path=boxes.binary) as pool,
            pool.checkout(limits=LIMITS) as session,
        ):

            async def engine() -> None:
                assert await session.feed_run(CODE) == 45

            async def ours() -> None:
                assert (await hf.shell.run(CODE, session="bench")).result == 45

            await busy(engine, ours, hf.journal.flush)
            rest = [await at_rest(engine, ours) for _ in range(ROUNDS)]
            full = [await busy(engine, ours, hf.journal.flush) for _ in range(ROUNDS)]
    floor, mine = zip(*rest, strict=True)
    detail = f"engine {micros(floor)}, holdfast {micros(mine)}"
    report.at_most("trivial run in a warm session", ratio(mine, floor), 1.5, "x", detail)
    floor, mine = zip(*full, strict=True)
    detail = f"engine {micros(floor)}, holdfast {micros(mine)}"
    report.note("trivial runs back to back, until on disk", ratio(mine, floor), "x", detail)
