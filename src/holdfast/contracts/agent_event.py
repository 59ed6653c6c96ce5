"""What happens in a run of an agent, as its watchers see it: one event for each record that says something to them.

`seq` is the journal's, so a watcher that went away comes back with the last one it had and gets the rest: nothing
twice, nothing left out, in any process, also when the run is long over. The pieces of an answer that is being given
(`DELTAS`) are on no record: they carry the seq they follow, and are gone once they were missed; the `answer` that
comes after them holds all of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from holdfast.contracts._base import Told, listed, optional, unless
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.message import AssistantMessage, Part, ToolCallPart
from holdfast.contracts.model import FinishReason, ModelUsage
from holdfast.contracts.run import ErrorObject


class _Event(Told):
    """What every event has."""

    seq: int
    """The journal's number of the record it is made from; come back with `after` it."""
    time: int
    """Unix milliseconds."""
    run_id: str
    """The run: the agent's, or that of the code it wrote."""


# -- the run --------------------------------------------------------------------------------------------


class RunStarted(_Event):
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


class Said(_Event):
    """Something was said to the agent while it worked, and is part of the conversation now."""

    kind: Literal["said"] = "said"
    """Which event it is."""
    text: str
    """The words; empty when they were erased."""
    input_id: str | None = optional()
    """The waiting message it was, if it was one."""
    purpose: str | None = optional()
    """Why holdfast says it: `extraction`, `repair`, `hook`; absent when a person does."""


class RunParked(_Event):
    """It waits for somebody, and can be resumed in any process."""

    kind: Literal["parked"] = "parked"
    """Which event it is."""
    result: AgentResult
    """How it stands, with what it waits for."""


class RunResumed(_Event):
    """It goes on."""

    kind: Literal["resumed"] = "resumed"
    """Which event it is."""
    reason: str
    """`answered`: what it waited for has come; `recovered`: its process had died."""


class RunEnded(_Event):
    """It is over. Always the last one."""

    kind: Literal["run_ended"] = "run_ended"
    """Which event it is."""
    result: AgentResult
    """What it gave."""


# -- the model ------------------------------------------------------------------------------------------


class TurnStarted(_Event):
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


class Answer(_Event):
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


class AnswerFailed(_Event):
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


class ModelRetried(_Event):
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


class ModelSwitched(_Event):
    """It goes on with another model, and stays with it."""

    kind: Literal["model_switched"] = "model_switched"
    """Which event it is."""
    before: str
    """Which was asked."""
    after: str
    """Which is asked from here on."""
    reason: str
    """Why: the error's code."""


# -- what it does ---------------------------------------------------------------------------------------


class Code(_Event):
    """The agent's code begins to run. `run_id` is the code's own run; its effects have the same."""

    kind: Literal["code"] = "code"
    """Which event it is."""
    call_id: str
    """The model's call that it answers."""
    code: str
    """The program; empty when it was erased."""


class EffectStarted(_Event):
    """Something is about to happen outside, wanted by the model itself or by its code."""

    kind: Literal["effect_started"] = "effect_started"
    """Which event it is."""
    effect_id: str
    """Its name."""
    name: str
    """The capability."""
    arguments: JsonValue = None
    """What it is called with; null when that was erased."""
    side_effect: str
    """What it may touch."""
    attempt: int = unless(1)
    """Greater when it is done again under the same name."""
    call_id: str | None = optional()
    """The model's call that it is; absent inside code."""


class EffectEnded(_Event):
    """It happened, failed, was not let through; or nobody knows.

    Of a call of the model itself, `tool_result` says this, unless hooks look at the result first.
    """

    kind: Literal["effect_ended"] = "effect_ended"
    """Which event it is."""
    effect_id: str
    """Its name."""
    name: str
    """The capability."""
    status: str
    """`completed failed timed_out cancelled denied_before_execution unknown`."""
    value: JsonValue = None
    """What it gave; null when that was erased."""
    error: ErrorObject | None = optional()
    """Why it did not complete."""
    duration_ms: int | None = optional()
    """How long it took."""
    call_id: str | None = optional()
    """The model's call that it is; absent inside code."""


class ToolResult(_Event):
    """A call of the model has its result. Each call gets one, unless the run ends before.

    Another one for the same call takes its place: hooks have changed what a person had said of an effect in doubt.
    """

    kind: Literal["tool_result"] = "tool_result"
    """Which event it is."""
    call_id: str
    """The call."""
    name: str
    """The tool; `run_code` for code."""
    text: str
    """What the model is shown; empty when it was erased."""
    is_error: bool = unless(False)
    """Whether it went wrong."""
    effect_id: str | None = optional()
    """The effect it was, of a call of a capability."""
    status: str | None = optional()
    """How that, or the code, ended."""


class ApprovalRequested(_Event):
    """A person is asked."""

    kind: Literal["approval_requested"] = "approval_requested"
    """Which event it is."""
    approval_id: str
    """Its name in the inbox."""
    effect_id: str
    """The effect it would release."""
    tool: str
    """The capability."""
    arguments: JsonValue = None
    """What it would be called with; null when that was erased."""
    side_effect: str
    """What the call may touch."""
    risk: str
    """How much harm a mistake would do."""
    summary: str
    """One line for the person."""
    allowed: tuple[str, ...] = listed()
    """The answers that count; empty: all of them."""
    deadline: int | None = optional()
    """Unix milliseconds after which it counts as denied."""


class ApprovalDecided(_Event):
    """The run has taken note of the answer, or that there will be none."""

    kind: Literal["approval_decided"] = "approval_decided"
    """Which event it is."""
    approval_id: str
    """The request."""
    status: str
    """`approved approved_for_session denied timed_out cancelled dispatcher_unavailable`."""
    actor: str | None = optional()
    """Who answered."""
    reason: str | None = optional()
    """Why, in words, else as a token."""


# -- the rest -------------------------------------------------------------------------------------------


class BudgetWarning(_Event):
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


class Compacted(_Event):
    """The conversation so far is told in short from here on."""

    kind: Literal["compacted"] = "compacted"
    """Which event it is."""
    tokens_before: int = 0
    """About how long it was."""
    tokens_after: int = 0
    """About how long it is."""


class OutputChecked(_Event):
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


# -- on no record ---------------------------------------------------------------------------------------


class _Piece(_Event):
    """What every event has that is on no record; its `seq` is that of the record it follows."""

    turn: int
    """The question."""
    attempt: int
    """Which attempt at it."""


class TextDelta(_Piece):
    """More words."""

    kind: Literal["text_delta"] = "text_delta"
    """Which event it is."""
    text: str
    """The words."""
    index: int = unless(0)
    """Which part of the answer they belong to."""


class ThinkingDelta(_Piece):
    """More of what the model says to itself."""

    kind: Literal["thinking_delta"] = "thinking_delta"
    """Which event it is."""
    text: str
    """The words."""
    index: int = unless(0)
    """Which part of the answer they belong to."""


class ToolCallDelta(_Piece):
    """More of a call."""

    kind: Literal["tool_call_delta"] = "tool_call_delta"
    """Which event it is."""
    text: str
    """More of its arguments, as JSON."""
    index: int = unless(0)
    """Which part of the answer it belongs to."""
    call_id: str | None = optional()
    """The call, with the first piece of one."""
    name: str | None = optional()
    """Its tool, with the first piece of one."""


class OutputPartial(_Piece):
    """As much of the structured output as there is. It may turn out not to fit."""

    kind: Literal["output_partial"] = "output_partial"
    """Which event it is."""
    value: JsonValue = None
    """The value so far; what was given out once stays as it is, and more is added."""
    complete: bool = unless(False)
    """Whether nothing is missing."""


class DeltasMissed(_Piece):
    """You were too slow for the pieces of this answer, and some are gone; `answer` will hold all of it."""

    kind: Literal["deltas_missed"] = "deltas_missed"
    """Which event it is."""
    count: int
    """How many are gone."""


class ToolProgress(_Event):
    """How far a call is, as its server says. Of several that came at once, the last one is told."""

    kind: Literal["tool_progress"] = "tool_progress"
    """Which event it is."""
    effect_id: str
    """The call; of one that only reads, `effect_started` may come later, together with its end."""
    progress: float
    """Grows; what it counts is the server's business."""
    total: float | None = optional()
    """How far it goes, if that is known."""
    message: str | None = optional()
    """The server's words."""


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | ToolCallDelta | OutputPartial | DeltasMissed | ToolProgress
)
"""On no record."""

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

DELTAS: tuple[type[Delta], ...] = (
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    OutputPartial,
    DeltasMissed,
    ToolProgress,
)
"""Those on no record."""

AGENT_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(
    Annotated[AgentEvent, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)
"""Reads an event that came over a wire: `AGENT_EVENT.validate_json(data)`."""
