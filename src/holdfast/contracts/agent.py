"""An agent as it is recorded, what happens in its runs, and what their callers get."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked, Count, Told, listed, optional, unless
from holdfast.contracts.content import Digest
from holdfast.contracts.ids import Id, SessionId
from holdfast.contracts.model import ModelPrice, ModelSettings
from holdfast.contracts.policy import Budget
from holdfast.contracts.run import ErrorObject
from holdfast.contracts.view import Usage

Mode = Literal["code", "tools"]
"""How an agent acts: by writing code, or by calling each tool itself."""

Lane = Literal["queue", "steer"]
"""What becomes of a message that comes while a run is under way: the next run, or part of this one."""


class Retrying(Asked):
    """How often and how patiently a model is asked again."""

    max_retries: int = Field(default=3, ge=0, le=100)
    """Attempts after the first."""
    initial_delay_ms: int = Field(default=500, ge=0)
    """Before the first of them."""
    multiplier: float = Field(default=2.0, ge=1)
    """Each further delay is this much longer."""
    max_delay_ms: int = Field(default=30_000, ge=0)
    """No computed delay is longer; what the provider asks for may be."""


class Compacting(Asked):
    """When a conversation is shortened, and what stays of it."""

    at_tokens: int | None = Field(default=None, ge=1)
    """From how many tokens on; default: four fifths of what the model takes, or 100 000."""
    keep_turns: int = Field(default=4, ge=1)
    """Turns at the end that stay as they are."""
    min_turns_between: int = Field(default=3, ge=0)
    """Turns from one time to the next."""
    max_summary_tokens: int = Field(default=4096, ge=64)
    """How long the summary may be."""


class AgentSpec(Asked):
    """An agent, as far as it can be written down: any process can go on with its runs."""

    name: str = Field(default="agent", min_length=1, max_length=128)
    """What people call it."""
    model: str
    """`provider:name`."""
    fallbacks: tuple[str, ...] = ()
    """Models to go on with, in order, once the one before can't be had."""
    brings: tuple[str, ...] = ()
    """Capabilities of its own, by name: a process that goes on with its runs needs them."""
    instructions: str = ""
    """What it is told before everything else."""
    mode: Mode = "code"
    """How it acts."""
    output: dict[str, JsonValue] | None = None
    """The shape of what it must give, with its JSON Schema; `None`: words."""
    output_retries: int = Field(default=2, ge=0, le=20)
    """How often it may repair an output that does not fit."""
    settings: ModelSettings = ModelSettings()
    """How models are asked."""
    retry: Retrying = Retrying()
    """When a model call fails."""
    compact: Compacting | None = Compacting()
    """When the conversation gets long; `None`: never."""
    budget: Budget | None = None
    """What each of its runs may use."""
    prices: dict[str, ModelPrice] = unless({})
    """What models cost, by their ids, where no list knows it or is wrong: a limit on money needs it."""
    timeout_ms: int | None = Field(default=None, ge=1)
    """How long a run may take, waiting for people not counted."""
    max_turns: int = Field(default=100, ge=1)
    """Model calls a run may make."""
    view_bytes: int = Field(default=8192, ge=256)
    """How much of a result a model is shown; the rest stays where code can get at it."""


class RunPrompted(Told):
    """A message became part of the conversation."""

    content: Digest
    """The message, as JSON."""
    input_id: Id | None = optional()
    """The waiting message it was, if it was one."""
    purpose: str | None = optional()
    """Why holdfast says it: `extraction`, `repair`, `hook`; absent when a person does."""


class NoticeGiven(Told):
    """holdfast told the model something at a boundary: other tools from here on, a server that is gone."""

    turn: Count
    """The question that it goes before."""
    text: str
    """The notice."""


class InputQueued(Told):
    """Somebody said something while a run was under way."""

    id: Id
    """Its name."""
    session_id: SessionId
    """To whom."""
    lane: Lane
    """For the next run, or for this one."""
    content: Digest
    """The message, as JSON."""


class Waiting(Told):
    """A message that waits for a run to take it."""

    id: Id
    """Its name."""
    session_id: SessionId
    """To whom."""
    lane: Lane
    """For the run that is under way, else for the next one; or for the next one in any case."""
    text: str
    """The words."""
    queued_at: int
    """Unix milliseconds."""


class InputDropped(Told):
    """A waiting message was taken back, or nobody will read it."""

    id: Id
    """Which."""
    reason: str
    """Why, as a token."""


class ModelRetry(Told):
    """A model call failed and is made again."""

    effect_id: Id
    """The call that failed."""
    kind: str
    """How, as a token."""
    attempt: int
    """Counts from 1."""
    max_retries: int
    """The last one allowed."""
    delay_ms: Count
    """How long it waits first."""
    hint_ms: Count | None = optional()
    """What the provider asked for."""
    floor: bool = unless(False)
    """Whether the least wait after a rate limit made it longer."""
    capped: bool = unless(False)
    """Whether the end of the run made it shorter."""


class ModelSwitched(Told):
    """The run goes on with another model, and stays with it."""

    before: str
    """Which was asked."""
    after: str
    """Which is asked from here on."""
    reason: str
    """Why: the error's code."""


class ToolAnswered(Told):
    """A call of the model was answered by holdfast itself: it asked about tools, or could not be made at all."""

    call_id: str
    """The call."""
    name: str
    """The tool."""
    content: Digest
    """What the model is shown."""
    is_error: bool = unless(False)
    """Whether it went wrong."""


class OutputChecked(Told):
    """An answer was held against the shape it must have."""

    attempt: int
    """Counts from 1."""
    valid: bool
    """Whether it fits."""
    repaired: bool = unless(False)
    """Whether holdfast had to mend its JSON first."""
    errors: tuple[str, ...] = listed()
    """What does not fit, one sentence each."""
    value: Digest | None = optional()
    """The output, as canonical JSON, when it fits."""
    stop: str | None = optional()
    """Why it is not tried again."""


class ContextCompacted(Told):
    """The conversation up to a point is told in short from here on. The originals stay."""

    summary: Digest
    """The message that stands for it."""
    upto: int
    """Messages it stands for, counted from the first."""
    before: Digest
    """The conversation as it was."""
    after: Digest
    """As it is now."""
    tokens_before: Count = 0
    """About how long it was."""
    tokens_after: Count = 0
    """About how long it is."""


class ContextRestored(Told):
    """A compaction was undone."""

    before: Digest
    """The conversation as it was."""
    after: Digest
    """As it is now."""


class ContextOutlined(Told):
    """What the conversation is made of was written down, for whoever goes on with it: no words, only digests of them."""

    outline: Digest
    """What was written down since the last time."""
    upto: Count
    """The position of the last record it is made from."""


class TextPinned(Told):
    """Words that no compaction may take out of a session's conversation."""

    id: Id
    """Its name."""
    session_id: SessionId
    """Whose conversation."""
    content: Digest
    """The words."""


class TextUnpinned(Told):
    """They may go now."""

    id: Id
    """Which."""


class BudgetWarned(Told):
    """Most of a budget is used."""

    of: str
    """Whose: `session`, `run`, or an account."""
    unit: str
    """`calls`, `tokens`, `cost_micros`, `wall_ms`."""
    used: Count
    """Used and set aside."""
    limit: Count
    """All there is."""


class AccountOpened(Told):
    """Runs that name this account use it up together."""

    account: Id
    """Its name."""
    budget: Budget
    """All there is."""


class AgentResult(Told):
    """What a run of an agent gave."""

    run_id: str
    """Its name."""
    session_id: str
    """Its session."""
    status: str
    """`completed failed cancelled waiting_for_approval needs_attention interrupted`."""
    text: str = ""
    """The last thing the model said in words."""
    output: JsonValue = None
    """The structured output, when one was wanted and it fits; else the text."""
    output_error: str | None = optional()
    """Why there is no structured output, when one was wanted."""
    partial: str | None = optional()
    """The last answer that did not fit."""
    cause: str | None = optional()
    """Why it ended, where that was not of its own accord: `BudgetExhausted`, `LlmFailure`, …"""
    error: ErrorObject | None = optional()
    """Why it did not complete."""
    usage: Usage = Usage()
    """What it used."""
    turns: int = 0
    """Model calls it made."""
    approvals: tuple[str, ...] = listed()
    """The questions it waits for."""
    in_doubt: tuple[str, ...] = listed()
    """Effects of which nobody knows whether they happened."""


AGENT_PAYLOADS: dict[str, type[Told]] = {
    "run_prompted": RunPrompted,
    "notice_given": NoticeGiven,
    "input_queued": InputQueued,
    "input_dropped": InputDropped,
    "model_retry": ModelRetry,
    "model_switched": ModelSwitched,
    "tool_answered": ToolAnswered,
    "output_checked": OutputChecked,
    "context_compacted": ContextCompacted,
    "context_restored": ContextRestored,
    "context_outlined": ContextOutlined,
    "text_pinned": TextPinned,
    "text_unpinned": TextUnpinned,
    "budget_warned": BudgetWarned,
    "account_opened": AccountOpened,
}
"""Kind → payload model, of what agents add."""
