"""What a model is asked, what it answers, and what that used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked, Count, Told, listed, optional, unless
from holdfast.contracts.message import AssistantMessage, Message, Part

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]
"""Why a model stopped."""


class ModelUsage(Told):
    """What one model call used."""

    input_tokens: Count = 0
    """Tokens in, cached ones among them."""
    output_tokens: Count = 0
    """Tokens out, thinking among them."""
    cache_read_tokens: Count = unless(0)
    """Of those in: read from the provider's cache."""
    cache_write_tokens: Count = unless(0)
    """Of those in: written to it."""
    cost_micros: Count | None = optional()
    """Millionths of a US dollar; absent when nobody knows the price."""
    estimated: bool = unless(False)
    """Whether nobody counted: the answer broke off before the provider said what it used."""

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.input_tokens + self.output_tokens


class ModelPrice(Asked):
    """What a model costs, where no list knows it or somebody knows better."""

    input_micros: Count
    """For a million tokens in, in millionths of a US dollar."""
    output_micros: Count
    """For a million tokens out."""

    def cost(self, input_tokens: int, output_tokens: int) -> int:
        """What so many tokens cost, rounded up."""
        total = input_tokens * self.input_micros + output_tokens * self.output_micros
        return -(-total // 1_000_000)


class ModelAnswer(Told):
    """What a model said."""

    parts: tuple[Part, ...] = listed()
    """In order."""
    finish: FinishReason = "stop"
    """Why it stopped."""
    usage: ModelUsage = ModelUsage()
    """What it used."""
    model: str | None = optional()
    """The model that answered, as its provider names it."""
    response_id: str | None = optional()
    """The provider's name for the answer."""

    @property
    def message(self) -> AssistantMessage:
        """As part of the conversation."""
        return AssistantMessage(parts=self.parts)


class ModelSettings(Asked):
    """How to ask. What a provider does not know, it does not get."""

    temperature: float | None = optional()
    """How much chance; 0 for none."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens an answer may have; also what is set aside from a budget before the call."""
    timeout_ms: int | None = Field(default=None, ge=1)
    """How long one call may take."""
    seed: int | None = optional()
    """For providers that can repeat themselves."""
    parallel_tool_calls: bool | None = optional()
    """Whether one answer may hold several calls."""
    thinking: Literal["off", "low", "medium", "high"] | None = optional()
    """How much it may think first, where it can."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the provider's request body."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told about it."""

    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON Schema of the arguments."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The shape an answer must have."""

    name: str
    schema: dict[str, JsonValue]
    """JSON Schema."""
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question. `messages` is the conversation itself, not a copy: read it, and keep nothing of it."""

    messages: Sequence[Message]
    instructions: str = ""
    """What the model is told before everything else; the same bytes from call to call, for the provider's cache."""
    tools: Sequence[ToolSpec] = ()
    output: OutputSpec | None = None
    """Answer with JSON of this shape and nothing else."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    answered: int | None = None
    """How many answers the conversation had before, where `messages` may not hold them all; `None`: count them."""
    attempt: int | None = None
    """Which attempt at this answer it is, from 1; `None`: nobody counts."""
    pictures: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The pictures of the messages that are sent along, by digest; the others are left to their text."""


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of an answer that is being given."""

    kind: Literal["text", "thinking", "tool_call"]
    text: str
    """More words, or more of a call's arguments as JSON."""
    index: int = 0
    """Which part of the answer it belongs to."""
    call_id: str | None = None
    """The call, with the first piece of one."""
    name: str | None = None
    """Its tool, with the first piece of one."""


class ModelProfile(Told):
    """What is known about a model before it is asked."""

    context_tokens: Count | None = optional()
    """How many tokens fit into one request."""
    max_output_tokens: Count | None = optional()
    """How many an answer can have."""
    tools: bool = True
    """Whether it can call tools."""
    structured: bool = False
    """Whether it can be held to a JSON Schema by its provider."""
    pictures: bool = False
    """Whether it sees pictures."""
    timeout_ms: int | None = optional()
    """How long one call takes at most, unless somebody says otherwise."""
