"""What every protocol has to say, and what they have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from holdfast.contracts.message import Message
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest, ToolSpec
from holdfast.errors import ModelFailure

Body = dict[str, Any]
"""JSON as a provider sends or gets it."""


class Refusal(NamedTuple):
    """How a provider says no."""

    status: int
    """The HTTP status."""
    body: Body
    """What it says."""


class Protocol(ABC):
    """One provider's protocol, for one request."""

    path: ClassVar[str]
    """What the path of a request has in it."""
    key_headers: ClassVar[tuple[str, ...]]
    """Where the key may be."""
    statuses: ClassVar[Mapping[str, tuple[int, str]]]
    """For each failure: the status, and the provider's own word for it; one that is missing is an answer withheld."""
    too_long: ClassVar[str] = "This model's maximum context length is exceeded."
    """What it says to a prompt that is too long: some clients have only that to go by."""

    def __init__(self, path: str, body: Body) -> None:
        self.body = body
        self.answer: ModelAnswer | None = None
        """What is being streamed, where a piece of it needs to know the rest."""
        self.name = str(body.get("model", "scripted"))

    @property
    def streaming(self) -> bool:
        """Whether the answer is wanted in pieces."""
        return bool(self.body.get("stream"))

    @abstractmethod
    def messages(self) -> Iterator[Message]:
        """The conversation, in neutral words."""

    @abstractmethod
    def instructions(self) -> str:
        """What was said before the conversation."""

    @abstractmethod
    def tools(self) -> Iterator[ToolSpec]:
        """What the model may call."""

    @abstractmethod
    def whole(self, answer: ModelAnswer) -> Body:
        """An answer at once."""

    @abstractmethod
    def begin(self) -> Iterator[str]:
        """What a stream begins with."""

    @abstractmethod
    def piece(self, delta: ModelDelta) -> Iterator[str]:
        """One more piece."""

    @abstractmethod
    def end(self, answer: ModelAnswer) -> Iterator[str]:
        """What a stream ends with."""

    @abstractmethod
    def refusal(self, status: int, code: str, message: str) -> Body:
        """How a failure is worded."""

    def question(self) -> ModelRequest:
        """The request, in neutral words."""
        return ModelRequest(tuple(self.messages()), self.instructions(), tuple(self.tools()))

    def refuse(self, failure: ModelFailure) -> Refusal:
        """A failure, as the provider would send it."""
        status, code = self.statuses.get(failure.code, (400, "invalid_request_error"))
        told = self.too_long if failure.code == "MODEL_CONTEXT_EXCEEDED" else failure.message
        return Refusal(status, self.refusal(status, code, told))


def said(content: object) -> str:
    """The words in a content that is a text, or a list of blocks."""
    if isinstance(content, str):
        return content
    found = ""
    if isinstance(content, list):
        for block in content:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(block, dict):
                one: Body = block  # pyright: ignore[reportUnknownVariableType]
                found += str(one.get("text", ""))
    return found


def parsed(arguments: object) -> dict[str, Any]:
    """The arguments of a call that came back."""
    return json.loads(arguments) if isinstance(arguments, str) and arguments else {}


def written(answer_arguments: Mapping[str, Any], malformed: str | None) -> str:
    """The arguments of a call as a model writes them."""
    return json.dumps(answer_arguments) if malformed is None else malformed


def data(value: Body, event: str | None = None) -> str:
    """One server-sent event."""
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(value)}\n\n"
