"""Lifecycles as tables: pure, executed, drawn and searched exhaustively. `MACHINES` is the whole list."""

from holdfast.machines.explorer import Exploration, explore, walk
from holdfast.machines.kernel import (
    GuardRejected,
    InvariantBroken,
    Machine,
    NoTransition,
    Rejected,
    Row,
    Stepped,
    guard,
    row,
)

__all__ = [
    "Exploration",
    "GuardRejected",
    "InvariantBroken",
    "Machine",
    "NoTransition",
    "Rejected",
    "Row",
    "Stepped",
    "explore",
    "guard",
    "row",
    "walk",
]
