"""A provider's answer, whole or in pieces, in neutral words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai import messages as theirs
from pydantic_core import from_json, to_json

from holdfast.contracts.message import Part, TextPart, ThinkingPart, ToolCallPart
from holdfast.contracts.model import (
    FinishReason,
    ModelAnswer,
    ModelDelta,
    ModelUsage,
)
from holdfast.models.price import Listing, cost_micros

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "error": "error",
}

_SIGNATURE = "thought_signature"
"""Where Gemini keeps the seal of a call; ours is a thought without words before it, which goes back as it came."""


class Calls:
    """Gives each call of one answer a name that no call of the conversation has.

    Providers number the calls of one answer; some begin anew with each answer, and a few leave it out.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._given: dict[int, str] = {}

    def name(self, place: int, wanted: str) -> str:
        """The name of the call at a place of the answer; the same each time it is asked."""
        if place not in self._given:
            name, number = wanted or "call", 2
            while name in self._taken:
                name = f"{wanted or 'call'}_{number}"
                number += 1
            self._taken.add(name)
            self._given[place] = name
        return self._given[place]


def answer(response: theirs.ModelResponse, calls: Calls, listing: Listing) -> ModelAnswer:
    """The whole answer, with what it used and what that costs."""
    parts = tuple(_parts(response, calls))
    called = any(part.kind == "tool_call" for part in parts)
    finish = _FINISH.get(response.finish_reason or "", "stop")
    if called and finish == "stop":
        finish = "tool_calls"
    names = [name for name in (response.model_name, *listing.names) if name]
    return ModelAnswer(
        parts=parts,
        finish=finish,
        usage=_usage(response, listing._replace(names=names)),
        model=response.model_name,
        response_id=response.provider_response_id,
    )


def _parts(response: theirs.ModelResponse, calls: Calls) -> Iterator[Part]:
    for place, part in enumerate(response.parts):
        if isinstance(part, theirs.TextPart):
            yield TextPart(text=part.content)
        elif isinstance(part, theirs.ThinkingPart):
            yield ThinkingPart(
                text=part.content,
                signature=part.signature,
                provider=part.provider_name or response.provider_name,
                id=part.id,
            )
        elif isinstance(part, theirs.ToolCallPart):
            sealed = signature(part)
            if sealed is not None:
                provider = part.provider_name or response.provider_name
                yield ThinkingPart(text="", signature=sealed, provider=provider)
            yield _call(part, calls.name(place, part.tool_call_id))


def signature(part: theirs.ToolCallPart) -> str | None:
    """The seal that came with a call."""
    details = part.provider_details or {}
    found = details.get(_SIGNATURE)
    return found if isinstance(found, str) else None


def _call(part: theirs.ToolCallPart, id: str) -> ToolCallPart:
    written = part.args
    if written is None or written == "":
        return ToolCallPart(id=id, name=part.tool_name)
    try:
        found: object = (
            from_json(written, allow_inf_nan=False) if isinstance(written, str) else written
        )
        if isinstance(found, dict):
            arguments = cast("dict[str, JsonValue]", found)
            return ToolCallPart(id=id, name=part.tool_name, arguments=arguments)
    except (ValueError, ValidationError):
        pass
    kept = written if isinstance(written, str) else repr(written)
    return ToolCallPart(id=id, name=part.tool_name, malformed=kept)


def _usage(response: theirs.ModelResponse, listing: Listing) -> ModelUsage:
    used = response.usage
    found = ModelUsage(
        input_tokens=max(0, used.input_tokens),
        output_tokens=max(0, used.output_tokens),
        cache_read_tokens=max(0, used.cache_read_tokens),
        cache_write_tokens=max(0, used.cache_write_tokens),
    )
    if not found.tokens:
        return found
    return found.model_copy(update={"cost_micros": cost_micros(listing, found)})


class Deltas:
    """Turns the events of a stream into deltas whose `index` is the part's place in the answer."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._next = 0
        self._index: dict[int, int] = {}

    def of(self, event: object) -> Iterable[ModelDelta]:
        """The deltas that an event means: mostly one."""
        if isinstance(event, theirs.PartStartEvent):
            return self._started(event)
        if isinstance(event, theirs.PartDeltaEvent) and event.index in self._index:
            return self._more(event)
        return ()

    def _started(self, event: theirs.PartStartEvent) -> Iterable[ModelDelta]:
        part = event.part
        if isinstance(part, theirs.ToolCallPart):
            if event.index not in self._index and signature(part) is not None:
                self._next += 1
            name = self._calls.name(event.index, part.tool_call_id)
            return (
                ModelDelta(
                    "tool_call", _written(part.args), self._place(event), name, part.tool_name
                ),
            )
        if isinstance(part, theirs.TextPart):
            return _said("text", part.content, self._place(event))
        if isinstance(part, theirs.ThinkingPart):
            return _said("thinking", part.content, self._place(event))
        return ()

    def _more(self, event: theirs.PartDeltaEvent) -> Iterable[ModelDelta]:
        delta, index = event.delta, self._index[event.index]
        if isinstance(delta, theirs.TextPartDelta):
            return _said("text", delta.content_delta, index)
        if isinstance(delta, theirs.ThinkingPartDelta):
            return _said("thinking", delta.content_delta or "", index)
        if isinstance(delta, theirs.ToolCallPartDelta) and delta.args_delta:
            return (ModelDelta("tool_call", _written(delta.args_delta), index),)
        return ()

    def _place(self, event: theirs.PartStartEvent) -> int:
        if event.index not in self._index:
            self._index[event.index] = self._next
            self._next += 1
        return self._index[event.index]


def _said(kind: Any, text: str, index: int) -> Iterable[ModelDelta]:
    return (ModelDelta(kind, text, index),) if text else ()


def _written(arguments: str | Mapping[str, Any] | None) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else to_json(arguments).decode()
