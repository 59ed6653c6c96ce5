"""Resources as capabilities: what code and models call.

A capability says what it touches, and policy goes by that. So resources on the network have functions of their own:
reading a mounted file passes where fetching a page asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from holdfast.contracts import (
    Capability,
    CapabilityLimits,
    Json,
    Privacy,
    Retention,
    SideEffect,
    parse,
)
from holdfast.contracts.resource import (
    MAX_ENTRIES,
    MAX_MATCHES,
    MAX_PATTERN_CHARS,
    GrepRequest,
    ListRequest,
    ResourceRequest,
)
from holdfast.gate.executor import Context
from holdfast.resources.resources import Keep, Resources
from holdfast.resources.router import MAX_BYTES

Act: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Json]]
"""Fulfils a capability."""


TIMEOUT_MS = 60_000
"""Time for one call: a gigabyte can be searched in it."""

# As JSON, a byte of text can take six, and there is more to a result than its text.
_ROOM = 8
_NAMES = {
    SideEffect.READ: ("read_resource", "grep_resource", "list_resources"),
    SideEffect.NETWORK: ("read_web_resource", "grep_web_resource", None),
}


def resource_tools(resources: Resources, *, keeps: bool = False) -> list[tuple[Capability, Act]]:
    """The capabilities over these resources, each with what fulfils it; none for what has no route.

    With `keeps`, pictures and what is asked for by reference are kept beside the result of the call; else they are
    only described.
    """
    found: list[tuple[Capability, Act]] = []
    for effect, (read, grep, list_) in _NAMES.items():
        schemes = [f"{one.scheme}:" for one in resources.router.routes if one.has(effect)]
        if not schemes:
            continue
        tools = _Tools(resources, effect, keeps=keeps)
        found.append(
            (_capability(read, effect, _READ.format(_any(schemes)), _READ_INPUT), tools.read)
        )
        found.append(
            (_capability(grep, effect, _GREP.format(_any(schemes)), _GREP_INPUT), tools.grep)
        )
        if list_ is not None:
            found.append((_capability(list_, effect, _LIST, _LIST_INPUT), tools.list))
    return found


class _Tools:
    """The functions, for resources of one side effect."""

    def __init__(self, resources: Resources, effect: SideEffect, *, keeps: bool) -> None:
        self._resources = resources
        self._effect = effect
        self._keeps = keeps

    async def read(self, arguments: dict[str, Any], context: Context) -> Json:
        request = parse(
            ResourceRequest,
            {"max_bytes": MAX_BYTES, **arguments, "session_id": context.session_id},
        )
        if request.length is None:
            request = request.model_copy(update={"max_bytes": _DEFAULT_BYTES})
        view = await self._resources.read(request, among=self._effect, keep=self._keep(context))
        found = view.model_dump(mode="json", exclude_none=True)
        # These two mean something when they are `None`, and code looks at them.
        return {**found, "next": view.next, "byte_len": view.byte_len}

    async def grep(self, arguments: dict[str, Any], context: Context) -> Json:
        request = parse(GrepRequest, {**arguments, "session_id": context.session_id})
        view = await self._resources.grep(request, among=self._effect)
        return view.model_dump(mode="json")

    async def list(self, arguments: dict[str, Any], context: Context) -> Json:
        request = parse(ListRequest, {**arguments, "session_id": context.session_id})
        view = await self._resources.list(
            request, among=None if not request.prefix else self._effect
        )
        found = view.model_dump(mode="json", exclude_none=True)
        return {**found, "next": view.next}

    def _keep(self, context: Context) -> Keep | None:
        if not self._keeps:
            return None

        async def keep(data: bytes, mime: str, privacy: Privacy, retention: Retention) -> str:
            return await context.keep(data, mime, privacy=privacy)

        return keep


def _capability(
    name: str, effect: SideEffect, description: str, arguments: dict[str, Json]
) -> Capability:
    return Capability(
        name=name,
        description=description,
        input_schema=arguments,
        output_schema=_OUTPUTS[name.split("_")[0]],
        side_effect=effect,
        idempotent=True,
        limits=CapabilityLimits(
            timeout_ms=TIMEOUT_MS, max_response_bytes=MAX_BYTES * _ROOM, concurrency=8
        ),
    )


def _any(schemes: Sequence[str]) -> str:
    return ", ".join(f"`{one}`" for one in schemes)


# -- what code is told ------------------------------------------------------------------------------------

_DEFAULT_BYTES = 32 * 1024

_READ = (
    "Read a part of something large, by its URI ({}). Gives `text` (or `rows`), and `next`: pass it as `start`"
    " to read on; None at the end. Text is read by bytes or lines, CSV and JSON lines by rows, PDF by pages;"
    " of other things comes a description, of pictures their size and a reference."
)
_GREP = (
    "Find the lines of a text that match a regular expression, by its URI ({}), however long it is. Gives"
    " `matches`, each with `line`, `at` (its byte) and `text`, and `next`: pass it as `start` to search on."
)
_LIST = (
    "List what there is to read below a folder or a server, by its URI; without one, where to begin."
    " Gives `items`, and `next`: pass it as `after` to go on."
)

_URI: dict[str, Json] = {
    "type": "string",
    "minLength": 1,
    "description": "Which, as in `file:///workspace/big.log`.",
}
_COUNT: dict[str, Json] = {"type": "integer", "minimum": 0}


def _input(required: list[str], **properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict[str, Json](properties),
        "required": list[Json](required),
        "additionalProperties": False,
    }


_READ_INPUT = _input(
    ["uri"],
    uri=_URI,
    start={**_COUNT, "default": 0, "description": "The byte, line, row or page to begin at."},
    length={
        "type": "integer",
        "minimum": 1,
        "description": "How many of these; at most 262144 bytes come at once.",
    },
    unit={"enum": ["bytes", "lines"], "default": "bytes", "description": "What counts in a text."},
    format={
        "enum": ["auto", "text", "jsonl", "csv", "pdf", "image", "reference"],
        "default": "auto",
        "description": "How to read it. `reference`: store the bytes, and give the digest only.",
    },
    select={
        "type": "array",
        "items": {"type": "string"},
        "description": "Of each row only these columns, or fields as `user.name`.",
    },
)
_GREP_INPUT = _input(
    ["uri", "pattern"],
    uri=_URI,
    pattern={
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_PATTERN_CHARS,
        "description": "A regular expression, without look-around and back-references.",
    },
    start={**_COUNT, "default": 0, "description": "The byte to begin at."},
    max_matches={"type": "integer", "minimum": 1, "maximum": MAX_MATCHES, "default": 50},
    ignore_case={"type": "boolean", "default": False},
)
_LIST_INPUT = _input(
    [],
    prefix={"type": "string", "default": "", "description": "As in `file:///workspace`."},
    after={"type": "string", "description": "`next` of the list before."},
    limit={"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES, "default": 200},
)

_TEXT: dict[str, Json] = {"type": "string"}
_MAYBE_COUNT: dict[str, Json] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
_MAYBE_TEXT: dict[str, Json] = {"anyOf": [_TEXT, {"type": "null"}]}
_TEXTS: dict[str, Json] = {"type": "array", "items": _TEXT}
_INTEGER: dict[str, Json] = {"type": "integer"}
_BOOLEAN: dict[str, Json] = {"type": "boolean"}


def _output(required: list[str], **properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict[str, Json](properties),
        "required": list[Json](required),
    }


_OUTPUTS: dict[str, dict[str, Json]] = {
    "read": _output(
        ["uri", "mime", "format", "unit", "start", "count", "next", "truncated", "byte_len"],
        uri=_TEXT,
        mime=_TEXT,
        format=_TEXT,
        unit=_TEXT,
        start=_INTEGER,
        count=_INTEGER,
        next=_MAYBE_COUNT,
        truncated=_BOOLEAN,
        byte_len=_MAYBE_COUNT,
        returned_bytes=_INTEGER,
        text=_TEXT,
        columns=_TEXTS,
        rows={"type": "array", "items": {}},
        image=_output(["width", "height"], width=_INTEGER, height=_INTEGER),
        content=_TEXT,
        summary=_TEXT,
        version=_TEXT,
        privacy=_TEXT,
        retention=_TEXT,
        notes=_TEXTS,
    ),
    "grep": _output(
        ["uri", "mime", "matches", "next", "truncated"],
        uri=_TEXT,
        mime=_TEXT,
        matches={
            "type": "array",
            "items": _output(
                ["line", "at", "text", "cut"],
                line=_MAYBE_COUNT,
                at=_INTEGER,
                text=_TEXT,
                cut=_BOOLEAN,
            ),
        },
        next=_MAYBE_COUNT,
        truncated=_BOOLEAN,
        scanned_bytes=_INTEGER,
        notes=_TEXTS,
    ),
    "list": _output(
        ["items", "next"],
        items={
            "type": "array",
            "items": _output(
                ["uri", "kind", "name"],
                uri=_TEXT,
                kind=_TEXT,
                name=_TEXT,
                size=_INTEGER,
                mime=_TEXT,
                description=_TEXT,
            ),
        },
        next=_MAYBE_TEXT,
    ),
}
