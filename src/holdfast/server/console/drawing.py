"""A timeline as a picture: where each bar, line and word goes. Pure geometry; the template only writes it down.

Time runs from left to right, as long as something is done. Where nothing is done and somebody is waited for, hours would push
milliseconds out of sight: such a stretch gets a fixed width, is hatched, and says how long it took.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.server.console.steps import LANES, Lane, Step, Timeline
from holdfast.server.console.words import duration

WIDTH = 600.0
GUTTER = 56.0
"""For the names of the lanes."""
RIGHT = 10.0
TOP = 26.0
"""For the times."""
BAR = 13.0
ROW = 16.0
PAD = 7.0
"""Above and below the rows of a lane."""
LEAST = 3.0
"""No bar is narrower: what took no time happened all the same."""
GAP = 1.0
MOST_ROWS = 6
MOST_BARS = 400
"""In all; with more, those of a stretch are drawn as one."""
FEW = 40
"""Steps of a lane that are drawn one by one all the same."""
BIN = 8.0
QUIET = 64.0
"""The width of a stretch in which nothing was done."""
_LETTER = 6.1
_WORSE = ("failed", "in_doubt", "denied", "timed_out", "waiting", "cancelled", "open", "running")
_WAITS: frozenset[Lane] = frozenset({"wait", "approval"})
_STEPS = (1, 2, 5)


class Band(NamedTuple):
    """A lane."""

    lane: Lane
    y: float
    height: float


class Tick(NamedTuple):
    """A time, and a hairline down from it."""

    x: float
    label: str


class Quiet(NamedTuple):
    """A stretch in which nothing was done."""

    x: float
    width: float
    label: str


class Bar(NamedTuple):
    """A step, or so many of one stretch."""

    x: float
    y: float
    width: float
    height: float
    row: int
    lane: Lane
    status: str
    seq: int
    last: int
    key: str
    label: str
    """For who points at it."""
    text: str
    """What is written in it: what fits."""
    many: int = 1
    """How many steps it stands for."""

    @property
    def hatched(self) -> bool:
        """Whether it is time in which a person is waited for."""
        return self.lane in _WAITS and self.many == 1 and self.width > LEAST


class Drawing(NamedTuple):
    """All of it."""

    width: float
    height: float
    bands: tuple[Band, ...]
    ticks: tuple[Tick, ...]
    quiet: tuple[Quiet, ...]
    bars: tuple[Bar, ...]
    xs: tuple[float, ...]
    """Where each record of the timeline is, in order."""


class Scale:
    """From time to place: straight pieces between knots."""

    def __init__(self, knots: Sequence[tuple[int, float]]) -> None:
        self._times = [time for time, _ in knots]
        self._places = [place for _, place in knots]

    def x(self, time: int) -> float:
        """Where a moment is."""
        at = bisect_right(self._times, time)
        if at == 0:
            return self._places[0]
        if at == len(self._times):
            return self._places[-1]
        left, right = self._times[at - 1], self._times[at]
        part = (time - left) / (right - left)
        return self._places[at - 1] + part * (self._places[at] - self._places[at - 1])


class _Stretch(NamedTuple):
    start: int
    end: int
    busy: bool


def draw(view: Timeline) -> Drawing:
    """The picture of a run."""
    stretches = _stretches(view)
    scale, quiet, ticks = _laid_out(stretches, view.start)
    many = len(view.steps) > MOST_BARS
    bars: list[Bar] = []
    bands: list[Band] = []
    y = TOP
    for lane in LANES:
        steps = [one for one in view.steps if one.lane == lane]
        if not steps:
            continue
        rows = None if many and len(steps) > FEW else _packed(steps, scale, view.end)
        if rows is None:
            found = _gathered(steps, scale, view.end, lane, y + PAD)
            height = 2 * PAD + 2 * ROW
        else:
            found = [_bar(step, x, width, y + PAD + row * ROW, row) for step, x, width, row in rows]
            height = 2 * PAD + ROW * (1 + max(row for *_, row in rows))
        bars += found
        bands.append(Band(lane, y, height))
        y += height
    xs = tuple(round(scale.x(time), 1) for time in view.times)
    return Drawing(WIDTH, y + 2, tuple(bands), tuple(ticks), tuple(quiet), tuple(bars), xs)


# -- time -----------------------------------------------------------------------------------------


def _stretches(view: Timeline) -> list[_Stretch]:
    """The run's time in pieces: something is done, or nothing is for long."""
    spans = sorted(
        (one.start, max(one.start, view.end if one.end is None else one.end))
        for one in view.steps
        if one.lane not in _WAITS and (one.end is not None or one.status == "running" or one.over)
    )
    start, end = view.start, max(view.end, view.start)
    busy: list[tuple[int, int]] = []
    for left, right in spans:
        left, right = max(left, start), min(max(right, start), end)
        if busy and left <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], right))
        else:
            busy.append((left, right))
    done = sum(right - left for left, right in busy)
    longest = max(1000, done // 4)
    found: list[_Stretch] = []
    at = start
    for left, right in [*busy, (end, end)]:
        if left - at > longest:
            found.append(_Stretch(at, left, busy=False))
            at = left
        if right > at:
            if found and found[-1].busy:
                found[-1] = found[-1]._replace(end=right)
            else:
                found.append(_Stretch(at, right, busy=True))
            at = right
    return found or [_Stretch(start, start + 1, busy=True)]


def _laid_out(stretches: list[_Stretch], start: int) -> tuple[Scale, list[Quiet], list[Tick]]:
    room = WIDTH - GUTTER - RIGHT
    idle = sum(not one.busy for one in stretches)
    each = min(QUIET, 0.4 * room / idle) if idle else 0.0
    work = sum(one.end - one.start for one in stretches if one.busy)
    left = room - each * idle if work else room
    if not work:
        each = room / idle
    knots: list[tuple[int, float]] = [(stretches[0].start, GUTTER)]
    quiet: list[Quiet] = []
    ticks: list[Tick] = []
    x = GUTTER
    for one in stretches:
        took = one.end - one.start
        width = left * took / work if one.busy else each
        if one.busy:
            ticks += _ticks(one, start, x, width)
        else:
            label = duration(took)
            shown = label if len(label) * _LETTER < width else ""
            quiet.append(Quiet(round(x, 2), round(width, 2), shown))
        x += width
        knots.append((one.end, min(x, WIDTH - RIGHT)))
    return Scale(knots), quiet, _apart(ticks, quiet)


def _ticks(stretch: _Stretch, start: int, x: float, width: float) -> Iterable[Tick]:
    took = stretch.end - stretch.start
    step = _nice(took * 76 / width) if width > 0 else took
    first = stretch.start - start
    at = -(-first // step) * step
    while at <= stretch.end - start:
        place = x + width * (at - first) / took
        yield Tick(round(place, 2), elapsed(at, step))
        at += step


def _nice(least: float) -> int:
    """The next time that people count in, in milliseconds."""
    for unit, top in ((1, 1000), (1000, 60_000), (60_000, 3_600_000)):
        size = unit
        while size < top:
            for factor in (*_STEPS, *((15, 30) if unit > 1 and size == unit else ())):
                if size * factor >= least and size * factor <= top:
                    return size * factor
            size *= 10
    hours = 3_600_000
    while hours < least:
        hours *= 2
    return hours


def elapsed(ms: int, step: int = 1) -> str:
    """Time since the start, short: `120 ms`, `1.2 s`, `2:05`, `3:02:05`."""
    if ms == 0:
        return "0"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        places = 0 if step % 1000 == 0 else 1 if step % 100 == 0 else 2 if step % 10 == 0 else 3
        return f"{ms / 1000:.{places}f} s"
    seconds, rest = divmod(ms, 1000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    tail = f".{rest:03d}".rstrip("0").rstrip(".") if step < 1000 else ""
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}{tail}"
    return f"{minutes}:{seconds:02d}{tail}"


def _apart(ticks: list[Tick], quiet: list[Quiet]) -> list[Tick]:
    """Those whose words do not run into each other, nor into how long a wait was, nor out of the picture."""
    taken = [(one.x + one.width / 2, len(one.label) * _LETTER / 2) for one in quiet if one.label]
    found: list[Tick] = []
    right = GUTTER - 20
    for tick in ticks:
        half = len(tick.label) * _LETTER / 2
        if any(abs(tick.x - middle) < half + other + _LETTER for middle, other in taken):
            continue
        if tick.x - half > right and tick.x + half < WIDTH:
            found.append(tick)
            right = tick.x + half + 12
    return found


# -- bars -----------------------------------------------------------------------------------------


def _place(step: Step, scale: Scale, end: int) -> tuple[float, float]:
    left = scale.x(step.start)
    right = scale.x(max(step.start, end if step.end is None else step.end))
    width = max(LEAST, right - left)
    left = min(left, WIDTH - RIGHT - width)
    return round(left, 2), round(width, 2)


def _packed(
    steps: Sequence[Step], scale: Scale, end: int
) -> list[tuple[Step, float, float, int]] | None:
    """Each in the first row that has room for it; `None` when that takes too many rows."""
    placed = sorted(((step, *_place(step, scale, end)) for step in steps), key=lambda one: one[1])
    rights: list[float] = []
    found: list[tuple[Step, float, float, int]] = []
    for step, x, width in placed:
        row = next((n for n, right in enumerate(rights) if right + GAP <= x), len(rights))
        if row == len(rights):
            if row == MOST_ROWS:
                return None
            rights.append(0.0)
        rights[row] = x + width
        found.append((step, x, width, row))
    return found


def _bar(step: Step, x: float, width: float, y: float, row: int) -> Bar:
    fits = int((width - 8) / _LETTER)
    name = step.name.replace("_", " ") if step.lane == "wait" else step.name
    text = _short(name, fits)
    took = "" if step.end is None or step.moment else f", {duration(step.end - step.start)}"
    label = f"{name}: {step.status.replace('_', ' ')}{took}"
    return Bar(
        x,
        y,
        width,
        BAR,
        row,
        step.lane,
        step.status,
        step.seq,
        step.last_seq,
        step.key,
        label,
        text,
    )


def _short(name: str, most: int) -> str:
    """As much of a name as fits: all, what comes after the provider's, or its first letters."""
    for one in (name, name.rpartition(":")[2]):
        if len(one) <= most:
            return one
    last = name.rpartition(":")[2]
    return f"{last[: most - 1]}…" if most >= 5 else ""


def _gathered(steps: Sequence[Step], scale: Scale, end: int, lane: Lane, y: float) -> list[Bar]:
    """One bar for each stretch: the more steps it has, the higher."""
    bins: dict[int, list[Step]] = {}
    for step in steps:
        x, width = _place(step, scale, end)
        first = int((x - GUTTER) // BIN)
        for number in range(first, int((x + width - GUTTER - 0.01) // BIN) + 1):
            bins.setdefault(number, []).append(step)
    most = max(len(found) for found in bins.values())
    room = 2 * ROW - GAP
    bars: list[Bar] = []
    for number, found in sorted(bins.items()):
        x = GUTTER + number * BIN
        width = min(BIN - GAP, WIDTH - RIGHT - x)
        x, width = (x, width) if width >= LEAST else (WIDTH - RIGHT - LEAST, LEAST)
        height = max(4.0, room * len(found) / most)
        statuses = {one.status for one in found}
        status = next((word for word in _WORSE if word in statuses), found[0].status)
        names = sorted({one.name for one in found})
        label = f"{len(found)} steps: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        if len(found) == 1:
            label = f"{found[0].name}: {status.replace('_', ' ')}"
        bars.append(
            Bar(
                round(x, 2), round(y + room - height, 2), round(width, 2), round(height, 2), 0, lane,
                status, min(one.seq for one in found), max(one.last_seq for one in found),
                found[0].key, label, "", len(found),
            )
        )  # fmt: skip
    return bars
