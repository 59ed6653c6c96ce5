"""A neutral question in the words of `pydantic-ai`, which has those of every provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from holdfast.contracts.message import AssistantMessage, Message, Part, ToolMessage, UserMessage
from holdfast.contracts.model import ModelRequest, ModelSettings

NOTICE = "[SYSTEM NOTICE]"
"""How a message begins that is holdfast's, not the user's."""

_TOLD_OF_ERRORS = frozenset({"anthropic", "google"})
"""Providers whose protocol says of a result that it is an error."""


_SEALING = frozenset({"anthropic"})
"""Providers that take no thought back without their seal: it would come to them as words of the user."""


def messages(request: ModelRequest, system: str) -> list[theirs.ModelMessage]:
    """The conversation; what a model thought goes back to its own provider (`system`) only."""
    found: list[theirs.ModelMessage] = []
    asked: list[theirs.ModelRequestPart] = []
    shown: list[str | theirs.BinaryContent] = []
    for message in request.messages:
        if shown and not isinstance(message, ToolMessage):
            asked.append(theirs.UserPromptPart(shown))
            shown = []
        if not isinstance(message, AssistantMessage):
            asked.append(_asked(message, system))
            if isinstance(message, ToolMessage):
                shown.extend(_shown(message, request.pictures))
            continue
        if asked:
            found.append(theirs.ModelRequest(asked))
            asked = []
        parts = list(_answered(message.parts, system))
        if parts:
            found.append(theirs.ModelResponse(parts, provider_name=system))
    if shown:
        asked.append(theirs.UserPromptPart(shown))
    if asked:
        found.append(theirs.ModelRequest(asked))
    return found


def _shown(
    message: ToolMessage, pictures: Mapping[str, bytes]
) -> Iterator[str | theirs.BinaryContent]:
    """The pictures of a result. They follow all results of an answer: not every protocol takes them inside one."""
    for one in message.pictures:
        data = pictures.get(one.digest)
        if data is not None:
            yield f"{NOTICE} A picture from the result of `{message.name}` ({message.call_id}):"
            yield theirs.BinaryContent(data, media_type=one.mime)


def _asked(message: UserMessage | ToolMessage, system: str) -> theirs.ModelRequestPart:
    if isinstance(message, UserMessage):
        marked = message.notice and not message.text.startswith(NOTICE)
        return theirs.UserPromptPart(f"{NOTICE} {message.text}" if marked else message.text)
    # Without a field for it, a failure would be wrapped, and the model be shown another text than was recorded.
    failed = message.is_error and system in _TOLD_OF_ERRORS
    return theirs.ToolReturnPart(
        message.name, message.text, message.call_id, outcome="failed" if failed else "success"
    )


def _answered(parts: Sequence[Part], system: str) -> Iterator[theirs.ModelResponsePart]:
    for part in parts:
        if part.kind == "tool_call":
            arguments = part.arguments if part.malformed is None else part.malformed
            yield theirs.ToolCallPart(part.name, cast("dict[str, Any] | str", arguments), part.id)
        elif part.kind == "thinking":
            if part.provider == system and (part.signature or system not in _SEALING):
                yield theirs.ThinkingPart(
                    part.text, id=part.id, signature=part.signature, provider_name=part.provider
                )
        elif part.text:
            # Some providers refuse an empty text.
            yield theirs.TextPart(part.text)


def parameters(request: ModelRequest, profile: Mapping[str, Any]) -> ModelRequestParameters:
    """Tools, instructions and the shape of the answer.

    A model whose provider can't hold it to a schema is not given one: then the prompt has to ask for it.
    """
    native = request.output is not None and bool(profile.get("supports_json_schema_output"))
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=cast("dict[str, Any]", tool.schema),
            )
            for tool in request.tools
        ],
        output_mode="native" if native else "text",
        output_object=_shape(request) if native else None,
        allow_text_output=True,
        instruction_parts=(
            [theirs.InstructionPart(content=request.instructions)] if request.instructions else []
        ),
    )


def _shape(request: ModelRequest) -> OutputObjectDefinition | None:
    output = request.output
    if output is None:
        return None
    schema = cast("dict[str, Any]", output.schema)
    return OutputObjectDefinition(
        json_schema=schema, name=output.name, description=output.description
    )


def settings(asked: ModelSettings, unknown: frozenset[str]) -> TheirSettings:
    """How to ask, without what the provider does not know. Attempts are never repeated down there."""
    found: dict[str, Any] = {
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "seed": asked.seed,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "timeout": None if asked.timeout_ms is None else asked.timeout_ms / 1_000,
        "thinking": False if asked.thinking == "off" else asked.thinking,
        "extra_body": asked.extra or None,
    }
    kept = {
        name: value for name, value in found.items() if value is not None and name not in unknown
    }
    # Only some providers want to be told to cache; it pays from the second turn on.
    return cast("TheirSettings", {**kept, "max_retries": 0, "cache": True})


def call_ids(conversation: Sequence[Message]) -> set[str]:
    """The calls made so far: the next ones need other names."""
    return {
        call.id
        for message in conversation
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
