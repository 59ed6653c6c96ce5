"""What is said between people, models and tools, in words that belong to no provider."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Count, Told, listed, optional, unless
from holdfast.contracts.content import Digest


class TextPart(Told):
    """Words."""

    kind: Literal["text"] = "text"
    """Which part it is."""
    text: str
    """The words."""


class ThinkingPart(Told):
    """What a model says to itself. Given back to the provider it came from, and to nobody else."""

    kind: Literal["thinking"] = "thinking"
    """Which part it is."""
    text: str
    """The words, where the provider shows them."""
    signature: str | None = optional()
    """The provider's seal, without which it does not take them back."""
    provider: str | None = optional()
    """Whose it is."""
    id: str | None = optional()
    """The provider's name for it."""


class ToolCallPart(Told):
    """The model wants something done."""

    kind: Literal["tool_call"] = "tool_call"
    """Which part it is."""
    id: str
    """Names the call; its one result has the same."""
    name: str
    """The tool."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """By name."""
    malformed: str | None = optional()
    """What the model wrote, where that is no JSON object; then `arguments` is empty."""


Part = Annotated[TextPart | ThinkingPart | ToolCallPart, Field(discriminator="kind")]
"""A piece of an assistant's message."""


class UserMessage(Told):
    """Somebody asks, or goes on."""

    role: Literal["user"] = "user"
    """Who speaks."""
    text: str
    """The words."""
    notice: bool = unless(False)
    """Whether holdfast says it, not the user."""


class AssistantMessage(Told):
    """The model answers."""

    role: Literal["assistant"] = "assistant"
    """Who speaks."""
    parts: tuple[Part, ...] = ()
    """In order."""

    @property
    def text(self) -> str:
        """Its words, joined."""
        return "".join(part.text for part in self.parts if part.kind == "text")

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """What it wants done, in order."""
        return tuple(part for part in self.parts if part.kind == "tool_call")


class Picture(Told):
    """A picture, by the digest of its bytes: the conversation is on record, and what it shows can be erased."""

    digest: Digest
    """Its bytes."""
    mime: str
    """What they are, as whoever handed them in says."""
    width: Count | None = optional()
    """Pixels, if somebody knows."""
    height: Count | None = optional()
    """Pixels, if somebody knows."""


class ToolMessage(Told):
    """What came of a call."""

    role: Literal["tool"] = "tool"
    """Who speaks."""
    call_id: str
    """The call."""
    name: str
    """The tool."""
    text: str
    """What the model is shown."""
    is_error: bool = unless(False)
    """Whether it went wrong."""
    pictures: tuple[Picture, ...] = listed()
    """What it shows beside the text, to a model that sees."""


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""One message of a conversation."""


def check_messages(messages: Any) -> str | None:
    """What is wrong with a conversation, or `None`.

    Providers refuse a call without exactly one result, a result without its call, and results that do not follow
    their calls at once. Their order among each other is that of the calls.
    """
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if not waiting or waiting[0] != message.call_id:
                return (
                    f"message {place}: a result of `{message.call_id}`, which is not the next call"
                )
            waiting.pop(0)
            continue
        if waiting:
            return f"message {place}: call `{waiting[0]}` has no result before it"
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.calls]
            for id_ in waiting:
                if id_ in seen:
                    return f"message {place}: call `{id_}` was made before"
                seen.add(id_)
    return f"call `{waiting[0]}` has no result" if waiting else None
