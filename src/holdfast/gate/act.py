"""One attempt to make a call that was let through."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from holdfast.contracts import Draft, EffectIntent
from holdfast.gate.crossing import Crossing
from holdfast.gate.executor import Context
from holdfast.gate.inquiry import Inquiry, Pause
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
    context: Context = field(init=False)
    """What the capability may know in this attempt."""
    inquiry: Inquiry = field(init=False)
    """What it asks people."""
    begun: float = 0.0
    """When the capability was asked."""
    together: bool = False
    """Whether the intent is recorded together with the result, because nothing had to be on disk before a read."""

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
        act = cls(crossing, passing, intent, monotonic() if started is None else started)
        act.inquiry = Inquiry(questions, crossing, passing, act.first, Pause(crossing.mood))
        act.context = act.inquiry.context(attempt)
        return act

    async def recall(self) -> None:
        """Let it know what was asked and answered in earlier processes."""
        past = self.crossing.past
        if past is not None and (past.questions or past.besides):
            await self.inquiry.recall()
            self.context = self.inquiry.context(self.context.attempt)

    def first(self) -> list[Draft]:
        """What has to be on record before anything else about it is, unless it is; from here on, it is."""
        if not self.together:
            return []
        self.together = False
        return self.before()

    def before(self) -> list[Draft]:
        """What has to be on record before the result."""
        run_id, body = self.crossing.desk.run_id, self.passing.body
        return [*self.passing.drafts, Draft.of(self.intent, run_id=run_id, bodies=(body,))]

    @property
    def took(self) -> float:
        """Seconds the capability has taken; while it asked people, it took none."""
        return monotonic() - self.begun - self.inquiry.pause.waited

    @property
    def careful(self) -> bool:
        """Whether it must not be done twice."""
        return not repeatable(self.intent)
