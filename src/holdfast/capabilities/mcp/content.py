"""What a tool, a resource or a prompt gave, as JSON for code: bodies by reference, and inline where they are small."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from holdfast.capabilities.mcp.failures import tool_error
from holdfast.capabilities.mcp.services import Keep
from holdfast.capabilities.words import clean
from holdfast.contracts import Json

SMALL = 16 * 1024
"""Bytes of a body that code gets along with its digest."""

MAX_ERROR = 2000
"""Characters of what a tool says went wrong."""

_ANY = "application/octet-stream"
_PLAIN = frozenset({"content", "isError", "resultType", "structuredContent"})
_TEXT = frozenset({"type", "text"})


class Plain(NamedTuple):
    """What code gets of a result that is text, or something structured with the same as text."""

    value: Json


def plain(result: Mapping[str, Any]) -> Plain | None:
    """What a tool gave, as most of them do; `None` for all that has to be looked at more closely.

    Whatever is plain is right in every version of the protocol, but for its kind, which is not looked at.
    """
    content = result.get("content")
    if (
        not content
        or not isinstance(content, list)
        or result.get("isError", False) is not False
        or not result.keys() <= _PLAIN
    ):
        return None
    texts: list[str] = []
    for one in cast("list[object]", content):
        block = cast("dict[str, object]", one) if isinstance(one, dict) else {}
        text = block.get("text")
        if block.keys() != _TEXT or block["type"] != "text" or not isinstance(text, str):
            return None
        texts.append(text)
    if "structuredContent" not in result:
        return Plain("\n".join(texts))
    found = result["structuredContent"]
    return Plain(found) if isinstance(found, dict) else None


async def value_of(tool: str, result: CallToolResult, keep: Keep | None) -> Json:
    """What code gets; raises `TOOL_ERROR` for what the tool says went wrong."""
    if result.is_error:
        said = "\n".join(one.text for one in result.content if isinstance(one, TextContent))
        raise tool_error(tool, clean(said, MAX_ERROR))
    if result.structured_content is not None or "structured_content" in result.model_fields_set:
        return result.structured_content
    if not result.content:
        return None
    if all(isinstance(one, TextContent) for one in result.content):
        return "\n".join(one.text for one in result.content if isinstance(one, TextContent))
    return [await part(one, keep) for one in result.content]


async def part(block: ContentBlock, keep: Keep | None) -> Json:
    """One part of a result."""
    match block:
        case TextContent(text=text):
            return {"type": "text", "text": text}
        case ImageContent(data=data, mime_type=mime):
            return {"type": "image", **await _body(data, mime, keep)}
        case AudioContent(data=data, mime_type=mime):
            return {"type": "audio", **await _body(data, mime, keep)}
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return _resource(resource) | {"text": resource.text}
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return _resource(resource) | await _body(resource.blob, resource.mime_type, keep)
        case ResourceLink():
            return _linked(block)
        case _:
            return {"type": "unknown"}


def _resource(resource: TextResourceContents | BlobResourceContents) -> dict[str, Json]:
    found: dict[str, Json] = {"type": "resource", "uri": resource.uri}
    return found if resource.mime_type is None else found | {"mime": resource.mime_type}


def _linked(link: ResourceLink) -> Json:
    found: dict[str, Json] = {"type": "resource_link", "uri": link.uri, "name": link.name}
    more = {"description": link.description, "mime": link.mime_type, "size": link.size}
    return found | {key: value for key, value in more.items() if value is not None}


async def _body(data: str, mime: str | None, keep: Keep | None) -> dict[str, Json]:
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return {"mime": mime or _ANY, "invalid": "it is not base64"}
    found: dict[str, Json] = {"mime": mime or _ANY, "bytes": len(body)}
    if keep is not None:
        found["digest"] = await keep(body, mime or _ANY)
    if keep is None or len(body) <= SMALL:
        found["data"] = data
    return found


def bodies(result: ReadResourceResult) -> Sequence[tuple[bytes, str]]:
    """The parts of a resource; raises `ValueError` for one that is not what it says."""
    found: list[tuple[bytes, str]] = []
    for one in result.contents:
        if isinstance(one, TextResourceContents):
            found.append((one.text.encode(errors="replace"), one.mime_type or "text/plain"))
        else:
            found.append((base64.b64decode(one.blob, validate=True), one.mime_type or _ANY))
    return found
