"""What a session may use: set aside before a call, settled after it. Arithmetic only; the journal keeps the facts.

What is set aside is in the intent, what was really used is in the result, and the journal keeps the sums of both in
the session's account, so they are the same in every process. An intent whose result is not known keeps what was set
aside for it: it may have been used. An answer that cost more than was set aside is kept, and the next call is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from holdfast.contracts import Json
from holdfast.contracts.effect import Reserved
from holdfast.contracts.policy import Budget
from holdfast.errors import PersonError

NOTHING = Reserved(calls=0)
"""No call, no money, no time."""

_UNITS = {"calls": "calls", "cost_micros": "millionths of a US dollar", "wall_ms": "ms of calls"}


def _plus(one: Reserved, other: Reserved, sign: int = 1) -> Reserved:
    # Never below zero: giving back what was not set aside must not make room.
    sums = {name: getattr(one, name) + sign * getattr(other, name) for name in _UNITS}
    return Reserved(**{name: max(0, value) for name, value in sums.items()})


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a session used so far, and what is set aside for calls under way."""

    used: Reserved = NOTHING
    """By calls that ended."""
    reserved: Reserved = NOTHING
    """Set aside for calls under way, and for those of which nobody knows whether they happened."""

    @classmethod
    def of(cls, row: Mapping[str, Json] | None) -> Self:
        """The ledger of a session's account in the journal; `None`: nothing was used yet."""
        if row is None:
            return cls()
        return cls(
            Reserved.model_validate({name: row[name] for name in _UNITS}),
            Reserved.model_validate({name: row[f"held_{name}"] for name in _UNITS}),
        )

    @property
    def total(self) -> Reserved:
        """Used and set aside."""
        return _plus(self.used, self.reserved)

    def left(self, budget: Budget | None) -> dict[str, int]:
        """What can still be set aside, of each thing that is limited; never below zero."""
        total = self.total
        return {name: max(0, limit - getattr(total, name)) for name, limit in _limits(budget)}

    def reserve(self, budget: Budget | None, estimate: Reserved) -> Self:
        """The ledger with `estimate` set aside; raises `BUDGET_EXCEEDED` when that is more than is left."""
        total = self.total
        for name, limit in _limits(budget):
            if getattr(total, name) + getattr(estimate, name) > limit:
                raise _exceeded(name, limit, getattr(total, name), getattr(estimate, name))
        return type(self)(self.used, _plus(self.reserved, estimate))

    def settle(self, reservation: Reserved, actual: Reserved | None = None) -> Self:
        """The ledger with what was set aside replaced by what was used; default: all of it."""
        spent = reservation if actual is None else actual
        return type(self)(_plus(self.used, spent), _plus(self.reserved, reservation, -1))

    def release(self, reservation: Reserved) -> Self:
        """The ledger with what was set aside given back: it did not happen."""
        return type(self)(self.used, _plus(self.reserved, reservation, -1))


def _limits(budget: Budget | None) -> list[tuple[str, int]]:
    found = [(name, getattr(budget, name, None)) for name in _UNITS]
    return [(name, limit) for name, limit in found if limit is not None]


def _exceeded(name: str, limit: int, total: int, wanted: int) -> PersonError:
    unit, left = _UNITS[name], max(0, limit - total)
    return PersonError(
        "BUDGET_EXCEEDED",
        f"Of the session's {limit} {unit}, {left} are left, and the call needs {wanted}.",
        hint=f"Whoever opened the session can raise `budget.{name}`.",
    )
