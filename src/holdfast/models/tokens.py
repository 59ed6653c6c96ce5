"""How many tokens something has, before a provider has counted them: an estimate, cheap enough for every turn.

The default takes four bytes for a token. Whoever needs it closer gives a real tokenizer: anything that takes a text
and returns a number is a `TokenCounter`.
"""

from __future__ import annotations

import json
from typing import Protocol

from holdfast.contracts.message import Message, Picture
from holdfast.contracts.model import ModelRequest

BYTES_PER_TOKEN = 4
"""What the default counter takes for one token."""


PIXELS_PER_TOKEN, PICTURE_TOKENS = 750, 1600
"""What is taken for one token of a picture, and for the largest."""


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    def __call__(self, text: str, /) -> int:
        """The number of tokens, or a guess at it; 0 only for an empty text."""
        ...


def by_bytes(text: str, /) -> int:
    """A quarter of the UTF-8 bytes, and at least 1 if there are any."""
    if not text:
        return 0
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return max(1, length // BYTES_PER_TOKEN)


def message_tokens(message: Message, count: TokenCounter = by_bytes) -> int:
    """What one message costs in every prompt that holds it."""
    if message.role == "tool":
        return count(message.text) + sum(picture_tokens(one) for one in message.pictures)
    if message.role == "user":
        return count(message.text)
    total = 0
    for part in message.parts:
        if part.kind == "tool_call":
            written = json.dumps(part.arguments) if part.malformed is None else part.malformed
            total += count(part.name) + count(written)
        else:
            total += count(part.text)
    return total


def picture_tokens(picture: Picture) -> int:
    """About what a picture costs with a model that sees: providers scale down what is larger."""
    if picture.width is None or picture.height is None:
        return PICTURE_TOKENS
    return min(PICTURE_TOKENS, picture.width * picture.height // PIXELS_PER_TOKEN + 1)


def request_tokens(request: ModelRequest, count: TokenCounter = by_bytes) -> int:
    """What a whole question costs: instructions, tools, the shape of the answer, and the conversation."""
    total = count(request.instructions)
    for tool in request.tools:
        total += count(tool.name) + count(tool.description) + count(json.dumps(tool.schema))
    if request.output is not None:
        total += count(json.dumps(request.output.schema))
    return total + sum(message_tokens(message, count) for message in request.messages)
