"""What a capability gave, as an MCP client takes it: the reverse of `capabilities/mcp/content.py`, in the same shapes.

A value that is a part (`{"type": "image", "mime": …, "data": …}`), or a list of parts, becomes those parts. Anything else
becomes text, and an object is there as an object, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from holdfast.contracts import Json
from holdfast.errors import HoldfastError, ModelError

_ANY = "application/octet-stream"
_TEXT = "text/plain"
_JSON = "application/json"


# `Any`: JSON, and models that are written as JSON.
def told(value: Any, *, failed: bool = False) -> CallToolResult:
    """An object as a result: for programs as it is, for models as text."""
    return CallToolResult(
        content=[TextContent(text=text_of(value))], structured_content=value, is_error=failed
    )


def refused(error: HoldfastError) -> CallToolResult:
    """The result that tells why not: the `ErrorObject`."""
    return told(error.to_json(), failed=True)


def text_of(value: Any) -> str:
    """A value as text that a model reads."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def result_of(value: Json, *, structured: bool) -> CallToolResult:
    """What a capability gave. `structured`: its schema promises an object."""
    parts = parts_of(value)
    if parts is None:
        parts = [] if value is None else [TextContent(text=text_of(value))]
    return CallToolResult(
        content=[*parts],
        structured_content=value if structured and isinstance(value, dict) else None,
    )


def parts_of(value: Json) -> list[ContentBlock] | None:
    """The parts that a value is; `None` when it is something else."""
    items = value if isinstance(value, list) else [value]
    found = [_part(one) for one in items]
    return [one for one in found if one is not None] if items and all(found) else None


def _part(value: Json) -> ContentBlock | None:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextContent(text=text)
        case {"type": "image", "data": str(data)}:
            return ImageContent(data=data, mime_type=_mime(value, _ANY))
        case {"type": "audio", "data": str(data)}:
            return AudioContent(data=data, mime_type=_mime(value, _ANY))
        case {"type": "resource", "uri": str(uri)}:
            contents = resource_of(uri, value)
            return None if contents is None else EmbeddedResource(resource=contents)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return ResourceLink(uri=uri, name=name)
        case _:
            return None


def _mime(value: dict[str, Json], default: str) -> str:
    said = value.get("mime")
    return said if isinstance(said, str) else default


def resource_of(
    uri: str, value: dict[str, Json]
) -> TextResourceContents | BlobResourceContents | None:
    """The contents of a resource that a part has in it."""
    match value:
        case {"text": str(text)}:
            return TextResourceContents(uri=uri, mime_type=_mime(value, _TEXT), text=text)
        case {"data": str(data)}:
            return BlobResourceContents(uri=uri, mime_type=_mime(value, _ANY), blob=data)
        case _:
            return None


def contents_of(uri: str, value: Json) -> TextResourceContents | BlobResourceContents:
    """What reading a resource gave: text, a part with text or data, or any other JSON."""
    if isinstance(value, str):
        return TextResourceContents(uri=uri, mime_type=_TEXT, text=value)
    if isinstance(value, dict) and "type" in value:
        found = resource_of(uri, value)
        if found is not None:
            return found
    return TextResourceContents(uri=uri, mime_type=_JSON, text=text_of(value))


def messages_of(name: str, value: Json) -> list[PromptMessage]:
    """What a prompt gave: text, parts, or messages with a role; raises `TOOL_ERROR` for anything else."""
    items = cast("Sequence[Json]", value) if isinstance(value, list) else [value]
    found: list[PromptMessage] = []
    for one in items:
        role, said = "user", one
        if isinstance(one, dict) and one.get("role") in ("user", "assistant"):
            role, said = str(one["role"]), one.get("content")
        part = TextContent(text=said) if isinstance(said, str) else _part(said)
        if part is None:
            raise ModelError(
                "TOOL_ERROR",
                f"The prompt `{name}` gave what is no message.",
                hint="It gives text, parts such as an image, or a list of messages with a role.",
            )
        found.append(
            PromptMessage(role="assistant" if role == "assistant" else "user", content=part)
        )
    return found
