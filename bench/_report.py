"""Collects ratios and prints them beside what they must stay below or above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import median

MAX_WHY = 200
"""Characters of an error that are shown."""


@dataclass(frozen=True)
class Line:
    """One figure."""

    what: str
    value: float
    unit: str
    target: str
    holds: bool | None
    detail: str


@dataclass
class Report:
    """Every figure of a run."""

    lines: list[Line] = field(default_factory=list)

    def at_most(self, what: str, value: float, limit: float, unit: str, detail: str = "") -> None:
        """A figure that must not exceed its limit."""
        target = f"<= {limit:g} {unit}".strip()
        self._add(Line(what, value, unit, target, value <= limit, detail))

    def at_least(self, what: str, value: float, limit: float, unit: str, detail: str = "") -> None:
        """A figure that must reach its limit."""
        target = f">= {limit:g} {unit}".strip()
        self._add(Line(what, value, unit, target, value >= limit, detail))

    def note(self, what: str, value: float, unit: str, detail: str = "") -> None:
        """A figure without a limit."""
        self._add(Line(what, value, unit, "", None, detail))

    def absent(self, what: str, why: str) -> None:
        """Something that should have been measured and was not: a miss, because nobody knows."""
        why = why if len(why) <= MAX_WHY else why[: MAX_WHY - 1] + "…"
        self.lines.append(Line(what, nan, "", "", False, why))
        print(f"MISS {what:<52} {'not run':>12}  {'':<14} {why}", flush=True)

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        mark = {True: "ok  ", False: "MISS", None: "    "}[line.holds]
        value = f"{line.value:.2f} {line.unit}".strip()
        print(f"{mark} {line.what:<52} {value:>12}  {line.target:<14} {line.detail}", flush=True)

    @property
    def missed(self) -> int:
        """How many figures missed their limit."""
        return sum(line.holds is False for line in self.lines)


def ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    """The median of the rounds' own ratios: a noisy moment spoils one round, not the figure."""
    return median(one / base for one, base in zip(ours, floor, strict=True))


def micros(seconds: Sequence[float]) -> str:
    """The median, for the detail column only: it says more about the machine than about holdfast."""
    return f"{median(seconds) * 1e6:.0f} us"
