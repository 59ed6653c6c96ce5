"""What a session may use: set aside before a call, settled after it. Arithmetic only; the journal keeps the facts.

What is set aside is in the intent, what was really used is in the result, and the journal keeps the sums of both in
the session's account, so they are the same in every process. An intent whose result is not known keeps what was set
aside for it: it may have been used. An answer that cost more than was set aside is kept, and the next call is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from holdfast.contracts import Json
from holdfast.contracts.effect import Reserved
from holdfast.contracts.policy import Budget
from holdfast.errors import PersonError

NOTHING = Reserved(calls=0)
"""No call, no money, no time."""

_UNITS = {
    "calls": "calls",
    "cost_micros": "millionths of a US dollar",
    "wall_ms": "ms of calls",
    "tokens": "tokens",
}

ACCOUNT = "account:"
"""How the names of accounts begin that several sessions share."""

WARN_AT = 0.8
"""The share of a budget from which on its owner is warned, once."""


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
            Reserved.model_validate({name: row.get(name, 0) for name in _UNITS}),
            Reserved.model_validate({name: row.get(f"held_{name}", 0) for name in _UNITS}),
        )

    @property
    def total(self) -> Reserved:
        """Used and set aside."""
        return _plus(self.used, self.reserved)

    def left(self, budget: Budget | None) -> dict[str, int]:
        """What can still be set aside, of each thing that is limited; never below zero."""
        total = self.total
        return {name: max(0, limit - getattr(total, name)) for name, limit in _limits(budget)}

    def reserve(
        self, budget: Budget | None, estimate: Reserved, *, of: str = "the session"
    ) -> Self:
        """The ledger with `estimate` set aside; raises `BUDGET_EXCEEDED` when that is more than is left."""
        total = self.total
        for name, limit in _limits(budget):
            if getattr(total, name) + getattr(estimate, name) > limit:
                raise _exceeded(of, name, limit, getattr(total, name), getattr(estimate, name))
        return type(self)(self.used, _plus(self.reserved, estimate))

    def settle(self, reservation: Reserved, actual: Reserved | None = None) -> Self:
        """The ledger with what was set aside replaced by what was used; default: all of it."""
        spent = reservation if actual is None else actual
        return type(self)(_plus(self.used, spent), _plus(self.reserved, reservation, -1))

    def release(self, reservation: Reserved) -> Self:
        """The ledger with what was set aside given back: it did not happen."""
        return type(self)(self.used, _plus(self.reserved, reservation, -1))


@dataclass(slots=True)
class Purse:
    """A budget that is used up: a session's, a run's, or one that several runs share."""

    budget: Budget
    ledger: Ledger = field(default_factory=Ledger)
    of: str = "the session"
    """Whose, in words."""
    account: str | None = None
    """Its name in the journal; the session's own needs none."""
    warned: set[str] = field(default_factory=set[str])
    """Units of which most is used, and whose owner knows."""

    def __post_init__(self) -> None:
        self.warnings()  # of what was used before, its owner knows

    @property
    def shared(self) -> bool:
        """Whether runs of other sessions and processes use it up, too. Then only the journal knows what is left."""
        return self.account is not None and self.account.startswith(ACCOUNT)

    @property
    def name(self) -> str:
        """Whose, as a token: `session`, `run`, or the account."""
        if self.account is None:
            return "session"
        return self.account if self.shared else "run"

    def limits(self, unit: str) -> bool:
        """Whether there is a limit."""
        return getattr(self.budget, unit) is not None

    def refresh(self, row: Mapping[str, Json] | None) -> None:
        """Take over what the journal has of it by now."""
        if row is not None:
            self.ledger = Ledger.of(row)
            self.budget = Budget.model_validate(row["limits"])

    def left(self, unit: str) -> int | None:
        """What can still be set aside; `None`: there is no limit."""
        return self.ledger.left(self.budget).get(unit)

    def warnings(self) -> list[tuple[str, int, int]]:
        """Units of which most is used by now, with what is used and all there is; each once."""
        total, found = self.ledger.total, list[tuple[str, int, int]]()
        for unit, limit in _limits(self.budget):
            used = getattr(total, unit)
            if unit not in self.warned and used >= WARN_AT * limit:
                self.warned.add(unit)
                found.append((unit, used, limit))
        return found


def reserve_all(purses: Sequence[Purse], wanted: Reserved) -> None:
    """Set `wanted` aside from every purse, or from none; raises `BUDGET_EXCEEDED`.

    Whether one that others use, too, has room is decided when the intent is recorded: see `refused_by`.
    """
    after = [
        purse.ledger.reserve(None if purse.shared else purse.budget, wanted, of=purse.of)
        for purse in purses
    ]
    for purse, ledger in zip(purses, after, strict=True):
        purse.ledger = ledger


def settle_all(purses: Sequence[Purse], reserved: Reserved, spent: Reserved) -> None:
    """Replace what was set aside by what was used."""
    for purse in purses:
        purse.ledger = purse.ledger.settle(reserved, spent)


def release_all(purses: Sequence[Purse], reserved: Reserved) -> None:
    """Give back what was set aside: it did not happen."""
    for purse in purses:
        purse.ledger = purse.ledger.release(reserved)


def refused_by(row: Mapping[str, Json] | None) -> PersonError | None:
    """Why an effect may not happen, as the journal found when its intent was recorded; `None`: it may."""
    said = None if row is None else row.get("refused")
    if not isinstance(said, dict):
        return None
    of = f"account `{str(said['account']).removeprefix(ACCOUNT)}`"
    limit, total, wanted = (int(str(said[name])) for name in ("limit", "total", "wanted"))
    return _exceeded(of, str(said["unit"]), limit, total, wanted)


def _limits(budget: Budget | None) -> list[tuple[str, int]]:
    found = [(name, getattr(budget, name, None)) for name in _UNITS]
    return [(name, limit) for name, limit in found if limit is not None]


def _exceeded(of: str, name: str, limit: int, total: int, wanted: int) -> PersonError:
    unit, left = _UNITS[name], max(0, limit - total)
    return PersonError(
        "BUDGET_EXCEEDED",
        f"Of {of}'s {limit} {unit}, {left} are left, and the call needs {wanted}.",
        hint=f"Whoever opened {of} can raise `budget.{name}`.",
    )
