"""A part of a source, as a parser gives it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.contracts import Json
from holdfast.contracts.resource import Unit


@dataclass(slots=True)
class Part:
    """What a parser made of a piece of a source."""

    unit: Unit
    start: int
    """Where it begins, in units."""
    count: int = 0
    """How many units came."""
    next: int | None = None
    """Where the rest begins, in units; `None` at the end."""
    short: bool = False
    """Whether less came than was asked for."""
    took: int = 0
    """Bytes of the source."""
    text: str | None = None
    columns: list[str] | None = None
    rows: list[Json] | None = None
    notes: tuple[str, ...] = ()
    mark: tuple[int, int] | None = None
    """Line or row, and the byte it begins at: where whoever reads on need not count again."""
