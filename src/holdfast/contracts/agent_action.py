"""Events about what an agent does: its code, its effects, their results, and whom it has to ask."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from holdfast.contracts._agent_event import Event
from holdfast.contracts._base import listed, optional, unless
from holdfast.contracts.run import ErrorObject


class Code(Event):
    """The agent's code begins to run. `run_id` is the code's own run; its effects have the same."""

    kind: Literal["code"] = "code"
    """Which event it is."""
    call_id: str
    """The model's call that it answers."""
    code: str
    """The program; empty when it was erased."""


class EffectStarted(Event):
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


class EffectEnded(Event):
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


class ToolResult(Event):
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


class ApprovalRequested(Event):
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


class ApprovalDecided(Event):
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
