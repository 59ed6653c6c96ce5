"""What comes of a question to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.contracts.model import ModelAnswer
from holdfast.errors import HoldfastError
from holdfast.machines.outcome import Cause
from holdfast.machines.retry import FailureKind, RetryPlan


class Answered(NamedTuple):
    """The model said something."""

    answer: ModelAnswer
    cut: bool = False
    """Whether a budget had no room for all of it."""


class TooLong(NamedTuple):
    """The model can't take the conversation in."""

    why: HoldfastError


class Spent(NamedTuple):
    """A budget has no room for the question."""

    why: HoldfastError


class Refusal(NamedTuple):
    """It can't be had."""

    why: HoldfastError
    cause: Cause


class Exhausted(NamedTuple):
    """The run's time is up."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed, and may be tried again."""

    kind: FailureKind
    plan: RetryPlan
    tries: int
    """Of the model that is asked now."""


Asked = Answered | Retry | TooLong | Spent | Refusal | Exhausted
"""An answer, or why there is none."""
