"""One attempt to make a call that was let through."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from holdfast.contracts import EffectIntent
from holdfast.gate.crossing import Crossing
from holdfast.gate.executor import Context
from holdfast.gate.inquiry import Inquiry
from holdfast.gate.passing import Passing
from holdfast.gate.questions import Questions
from holdfast.gate.recovery import repeatable


@dataclass(slots=True)
class Act:
    """One attempt to make a call."""

    crossing: Crossing
    passing: Passing
    intent: EffectIntent
    """What was to happen."""
    started: float
    """When the code asked."""
    inquiry: Inquiry
    """What it asks people."""
    context: Context
    """What the capability may know in this attempt."""
    careful: bool
    """Whether it must not be done twice."""
    begun: float = 0.0
    """When the capability was asked."""

    @classmethod
    def of(
        cls,
        questions: Questions,
        crossing: Crossing,
        passing: Passing,
        intent: EffectIntent,
        *,
        attempt: int = 1,
        started: float | None = None,
    ) -> Act:
        """One that is about to begin."""
        began = monotonic() if started is None else started
        inquiry = Inquiry(questions, crossing, passing)
        context, careful = inquiry.context(attempt), not repeatable(intent)
        return cls(crossing, passing, intent, began, inquiry, context, careful)

    async def recall(self) -> None:
        """Let it know what was asked and answered in earlier processes."""
        past = self.crossing.past
        if past is not None and (past.questions or past.besides):
            await self.inquiry.recall()
            self.context = self.inquiry.context(self.context.attempt)

    @property
    def took(self) -> float:
        """Seconds the capability has taken; while it asked people, it took none."""
        return monotonic() - self.begun - self.inquiry.waited
