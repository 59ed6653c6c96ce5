"""Cost and latency: of the last runs, of each model, of each tool. Drawn here, as SVG, with the same in a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import check_session_id
from holdfast.journal.belonging import session_of
from holdfast.journal.chain import decode
from holdfast.server.console.asking import ask, picked
from holdfast.server.console.drawing import elapsed
from holdfast.server.console.figures import Figures, RunFigure, Stat
from holdfast.server.console.page import render
from holdfast.server.console.words import duration, money
from holdfast.server.rest.endpoint import Call

LOOKED = 20_000
"""Records that are counted: the newest."""
RUNS = 60
"""Runs that are drawn."""
ROWS = 14
"""Models, and tools, that are drawn."""
WIDTH, HEIGHT = 480.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 6.0, 10.0, 6.0
_PAGE = 500
_FEW = 24
_KINDS = frozenset({"run", "effect"})


class Column(NamedTuple):
    """A run."""

    x: float
    y: float
    width: float
    height: float
    run: RunFigure
    label: str


class Grid(NamedTuple):
    """A line, and what it stands for."""

    at: float
    label: str


class Columns(NamedTuple):
    """A figure of each of the last runs."""

    columns: tuple[Column, ...]
    grid: tuple[Grid, ...]
    base: float


class Row(NamedTuple):
    """How long the calls of one model or tool take: half of them, nearly all, and the longest; in percent of the scale."""

    low: float
    high: float
    most: float
    stat: Stat
    label: str


class Rows(NamedTuple):
    """All of them, on one scale."""

    rows: tuple[Row, ...]
    grid: tuple[Grid, ...]
    more: int
    """How many are left out."""


def routes() -> list[BaseRoute]:
    """`/charts`."""
    return [Route("/charts", show, methods=["GET"], name="console_charts")]


async def show(request: Request) -> Response:
    """The charts of all that the caller sees, or of one session."""
    call = await ask(request, "read")
    session = picked(request, "session_id").get("session_id")
    if session is not None:
        await call.mine(check_session_id(session))
    figures, more = await _read(call, session)
    runs = [*figures.runs.values()][-RUNS:]
    return await render(
        request,
        "charts.html",
        figures=figures,
        more=more,
        session_id=session or "",
        runs=runs,
        costs=columns(runs, [one.cost_micros for one in runs], money),
        times=columns(runs, [one.took_ms or 0 for one in runs], duration),
        models=rows([*figures.models.values()]),
        tools=rows([*figures.tools.values()]),
    )


async def _read(call: Call, session: str | None) -> tuple[Figures, bool]:
    """What the newest records say, and whether there are older ones."""
    journal = call.hf.journal
    top = await journal.last_seq() if session is None else (await journal.head(session)).pos
    after = begin = max(0, top - LOOKED)
    figures = Figures()
    while True:
        page = await journal.page(session, after, _PAGE)
        for stored in page:
            record = decode(stored)
            if record.kind.partition("_")[0] not in _KINDS:
                continue
            if call.caller.sees(await session_of(journal, record)):
                figures.add(record)
        if len(page) < _PAGE:
            return figures, begin > 0
        after = page[-1].pos if session is not None else page[-1].seq


# -- geometry -------------------------------------------------------------------------------------


def columns(runs: Sequence[RunFigure], values: Sequence[int], say: Callable[[int], str]) -> Columns:
    """A column for each run, the newest at the right; a few do not become broad."""
    top = nice(max(values, default=0))
    room, base = HEIGHT - TOP - BOTTOM, HEIGHT - BOTTOM
    slots = max(len(runs), _FEW)
    each = (WIDTH - LEFT - RIGHT) / slots
    found: list[Column] = []
    pairs = zip(runs, values, strict=True)
    for place, (run, value) in enumerate(pairs, start=slots - len(runs)):
        height = max(2.0 if value else 1.0, room * value / top) if top else 1.0
        found.append(
            Column(
                round(LEFT + place * each, 2), round(base - height, 2),
                round(max(1.0, each - 2), 2), round(height, 2), run, say(value),
            )
        )  # fmt: skip
    grid = [Grid(round(base - room * part, 2), say(round(top * part))) for part in (0.5, 1.0)]
    return Columns(tuple(found), tuple(grid) if top else (), base)


def rows(stats: Sequence[Stat]) -> Rows:
    """A row for each, the one that takes most time first."""
    ordered = sorted(stats, key=lambda one: (-one.total_ms, -one.calls, one.name))
    shown = ordered[:ROWS]
    most = max((max(one.durations, default=0) for one in shown), default=0)
    ends = max(1, len(str(max(most, 10) - 1)))  # decades: 10, 100, 1000 … milliseconds

    def x(
        ms: int,
    ) -> float:  # one more, so that nothing has a place of its own: left of a millisecond
        return round(100 * log10(ms + 1) / log10(10**ends + 1), 2)

    found = [
        Row(
            x(one.quantile(0.5)), x(one.quantile(0.95)), x(max(one.durations, default=0)), one,
            f"half within {duration(one.quantile(0.5))}, 95 of 100 within {duration(one.quantile(0.95))}",
        )
        for one in shown
    ]  # fmt: skip
    marks = [0, *(10**power for power in range(ends + 1))]
    # On a long scale a millisecond is so near to nothing that only its line has room.
    grid = [Grid(x(ms), "" if ms == 1 and ends > 3 else elapsed(ms, ms)) for ms in marks]
    return Rows(tuple(found), tuple(grid), len(ordered) - len(shown))


def nice(most: int) -> int:
    """A round number that is not less: 1, 2, 2.5 or 5 times a power of ten."""
    if most <= 0:
        return 0
    power = 10 ** (len(str(most)) - 1)
    for factor in (10, 20, 25, 50, 100):
        if power * factor // 10 >= most and (power * factor) % 10 == 0:
            return power * factor // 10
    return most
