"""Figures, and the text in which Prometheus reads them (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_SERIES = 1000
"""Series of one figure: whatever more there is counts as `other`."""

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Seconds; the upper ends of a histogram's classes."""

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge"]


class Counts:
    """Numbers that only grow, one for each set of labels."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count."""
        if labels not in self.values and len(self.values) >= MAX_SERIES:
            labels = ("other",) * len(self.names)
        self.values[labels] = self.values.get(labels, 0) + by


class Histogram:
    """How long things took, one for each set of labels."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.classes: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def add(self, *labels: str, seconds: float) -> None:
        """One thing took so long."""
        if labels not in self.classes and len(self.classes) >= MAX_SERIES:
            labels = ("other",) * len(self.names)
        found = self.classes.setdefault(labels, [0] * (len(BUCKETS) + 1))
        found[next((at for at, end in enumerate(BUCKETS) if seconds <= end), len(BUCKETS))] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + seconds


class Text:
    """The text, as it grows."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def figure(
        self,
        name: str,
        kind: Kind,
        says: str,
        values: Mapping[Labels, float] | float,
        names: Sequence[str] = (),
    ) -> None:
        """One figure with all its series."""
        self._head(name, kind, says)
        found = values if isinstance(values, Mapping) else {(): values}
        for labels, value in sorted(found.items()):
            self._line(name, zip(names, labels, strict=True), value)

    def counts(self, name: str, says: str, counts: Counts) -> None:
        """A figure that only grows."""
        self.figure(name, "counter", says, counts.values, counts.names)

    def histogram(self, name: str, says: str, histogram: Histogram) -> None:
        """How long things took."""
        self._head(name, "histogram", says)
        for labels, classes in sorted(histogram.classes.items()):
            own, total = [*zip(histogram.names, labels, strict=True)], 0
            for end, count in zip((*map(_number, BUCKETS), "+Inf"), classes, strict=True):
                total += count
                self._line(f"{name}_bucket", [*own, ("le", end)], total)
            self._line(f"{name}_sum", own, histogram.sums[labels])
            self._line(f"{name}_count", own, total)

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, kind: str, says: str) -> None:
        self._lines += [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]

    def _line(self, name: str, labels: Iterable[tuple[str, str]], value: float) -> None:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        self._lines.append(
            f"{name}{{{told}}} {_number(value)}" if told else f"{name} {_number(value)}"
        )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
