"""What happens in a run of an agent, as its watchers see it: one event for each record that says something to them.

`seq` is the journal's, so a watcher that went away comes back with the last one it had and gets the rest: nothing
twice, nothing left out, in any process, also when the run is long over. The pieces of an answer that is being given
(`DELTAS`) are on no record: they carry the seq they follow, and are gone once they were missed; the `answer` that
comes after them holds all of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from holdfast.contracts._agent_event import Event
from holdfast.contracts._base import listed, optional, unless
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.agent_action import (
    ApprovalDecided,
    ApprovalRequested,
    Code,
    EffectEnded,
    EffectStarted,
    ToolResult,
)
from holdfast.contracts.agent_delta import (
    DELTAS,
    Delta,
    DeltasMissed,
    OutputPartial,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolProgress,
)
from holdfast.contracts.message import AssistantMessage, Part, ToolCallPart
from holdfast.contracts.model import FinishReason, ModelUsage
from holdfast.contracts.run import ErrorObject

__all__ = [
    "AGENT_EVENT",
    "DELTAS",
    "AgentEvent",
    "Answer",
    "AnswerFailed",
    "ApprovalDecided",
    "ApprovalRequested",
    "BudgetWarning",
    "Code",
    "Compacted",
    "Delta",
    "DeltasMissed",
    "EffectEnded",
    "EffectStarted",
    "ModelRetried",
    "ModelSwitched",
    "OutputChecked",
    "OutputPartial",
    "RunEnded",
    "RunParked",
    "RunResumed",
    "RunStarted",
    "Said",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolProgress",
    "ToolResult",
    "TurnStarted",
]


# -- the run --------------------------------------------------------------------------------------------


class RunStarted(Event):
    """Somebody asked something, and the agent begins."""

    kind: Literal["run_started"] = "run_started"
    """Which event it is."""
    session_id: str
    """The conversation it is part of."""
    agent: str
    """What people call the agent."""
    model: str
    """The one it asks first."""
    prompt: str
    """What was asked; empty when it was erased."""


class Said(Event):
    """Something was said to the agent while it worked, and is part of the conversation now."""

    kind: Literal["said"] = "said"
    """Which event it is."""
    text: str
    """The words; empty when they were erased."""
    input_id: str | None = optional()
    """The waiting message it was, if it was one."""
    purpose: str | None = optional()
    """Why holdfast says it: `extraction`, `repair`, `hook`; absent when a person does."""


class RunParked(Event):
    """It waits for somebody, and can be resumed in any process."""

    kind: Literal["parked"] = "parked"
    """Which event it is."""
    result: AgentResult
    """How it stands, with what it waits for."""


class RunResumed(Event):
    """It goes on."""

    kind: Literal["resumed"] = "resumed"
    """Which event it is."""
    reason: str
    """`answered`: what it waited for has come; `recovered`: its process had died."""


class RunEnded(Event):
    """It is over. Always the last one."""

    kind: Literal["run_ended"] = "run_ended"
    """Which event it is."""
    result: AgentResult
    """What it gave."""


# -- the model ------------------------------------------------------------------------------------------


class TurnStarted(Event):
    """The model is asked. What came of an earlier attempt at the same turn is void."""

    kind: Literal["turn_started"] = "turn_started"
    """Which event it is."""
    turn: int
    """Counts the questions of a run, from 1."""
    attempt: int
    """Counts how often this one was asked, from 1."""
    model: str
    """Which is asked."""
    effect_id: str
    """The effect of asking."""


class Answer(Event):
    """The model answered."""

    kind: Literal["answer"] = "answer"
    """Which event it is."""
    turn: int
    """The question."""
    parts: tuple[Part, ...] = listed()
    """What it said, thought, and wants done, in order; none when it was erased."""
    finish: FinishReason = "stop"
    """Why it stopped."""
    usage: ModelUsage = ModelUsage()
    """What that used."""

    @property
    def text(self) -> str:
        """Its words, joined."""
        return AssistantMessage(parts=self.parts).text

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """What it wants done, in order."""
        return AssistantMessage(parts=self.parts).calls


class AnswerFailed(Event):
    """There is no answer, or it broke off. A retry, another model or the end of the run follows."""

    kind: Literal["answer_failed"] = "answer_failed"
    """Which event it is."""
    turn: int
    """The question."""
    status: str
    """`failed`, `timed_out`, `cancelled`, `denied_before_execution`."""
    error: ErrorObject | None = optional()
    """Why."""
    text: str = unless("")
    """What it had said in words by then."""
    usage: ModelUsage | None = optional()
    """What that used, as far as that is known."""


class ModelRetried(Event):
    """The model will be asked again."""

    kind: Literal["retry"] = "retry"
    """Which event it is."""
    reason: str
    """How the call failed, as a token."""
    attempt: int
    """Which retry it is, from 1."""
    max_retries: int
    """The last one allowed."""
    delay_ms: int
    """How long it waits first."""


class ModelSwitched(Event):
    """It goes on with another model, and stays with it."""

    kind: Literal["model_switched"] = "model_switched"
    """Which event it is."""
    before: str
    """Which was asked."""
    after: str
    """Which is asked from here on."""
    reason: str
    """Why: the error's code."""


# -- the rest -------------------------------------------------------------------------------------------


class BudgetWarning(Event):
    """Most of a budget is used."""

    kind: Literal["budget_warning"] = "budget_warning"
    """Which event it is."""
    of: str
    """Whose: `session`, the run, or an account."""
    unit: str
    """`calls`, `tokens`, `cost_micros`, `wall_ms`."""
    used: int
    """Used and set aside."""
    limit: int
    """All there is."""


class Compacted(Event):
    """The conversation so far is told in short from here on."""

    kind: Literal["compacted"] = "compacted"
    """Which event it is."""
    tokens_before: int = 0
    """About how long it was."""
    tokens_after: int = 0
    """About how long it is."""


class OutputChecked(Event):
    """An answer was held against the shape it must have."""

    kind: Literal["output"] = "output"
    """Which event it is."""
    attempt: int
    """Counts from 1."""
    valid: bool
    """Whether it fits: then it is the run's output."""
    value: JsonValue = None
    """The output, when it fits; null when it was erased."""
    errors: tuple[str, ...] = listed()
    """What does not fit, one sentence each."""


AgentEvent: TypeAlias = (
    RunStarted
    | Said
    | RunParked
    | RunResumed
    | RunEnded
    | TurnStarted
    | Answer
    | AnswerFailed
    | ModelRetried
    | ModelSwitched
    | Code
    | EffectStarted
    | EffectEnded
    | ToolResult
    | ApprovalRequested
    | ApprovalDecided
    | BudgetWarning
    | Compacted
    | OutputChecked
    | Delta
)
"""What a watcher of a run gets."""

AGENT_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(
    Annotated[AgentEvent, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)
"""Reads an event that came over a wire: `AGENT_EVENT.validate_json(data)`."""
