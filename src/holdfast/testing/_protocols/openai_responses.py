"""OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelUsage, ToolSpec
from holdfast.testing._protocols._base import Body, Protocol, data, parsed, said, written
from holdfast.testing._protocols.openai_chat import OPENAI_STATUSES


class OpenAIResponses(Protocol):
    """`POST …/responses`."""

    path = "/responses"
    key_headers = ("authorization",)
    statuses = OPENAI_STATUSES

    def __init__(self, path: str, body: Body) -> None:
        super().__init__(path, body)
        self._open: dict[int, Body] = {}
        self._number = 0
        self._whole = 0

    def messages(self) -> Iterator[Message]:
        """The items of the input; those of the assistant that follow each other are one message."""
        names: dict[str, str] = {}
        parts: list[Part] = []
        for item in self.body["input"]:
            part = _part(item)
            if part is not None:
                parts.append(part)
                if part.kind == "tool_call":
                    names[part.id] = part.name
                continue
            if parts:
                yield AssistantMessage(parts=tuple(parts))
                parts = []
            if item.get("type") == "function_call_output":
                id = item["call_id"]
                yield ToolMessage(call_id=id, name=names.get(id, ""), text=said(item["output"]))
            elif item.get("role") == "user":
                yield UserMessage(text=said(item["content"]))
        if parts:
            yield AssistantMessage(parts=tuple(parts))

    def instructions(self) -> str:
        """The field of that name, or the system's items."""
        found = [
            said(item["content"])
            for item in self.body["input"]
            if item.get("role") in ("system", "developer")
        ]
        return str(self.body.get("instructions") or "\n\n".join(found))

    def tools(self) -> Iterator[ToolSpec]:
        """The functions."""
        for tool in self.body.get("tools", ()):
            yield ToolSpec(tool["name"], tool.get("description", ""), tool["parameters"])

    def whole(self, answer: ModelAnswer) -> Body:
        """The response with all of its items."""
        items = [_item(place, part) for place, part in enumerate(answer.parts)]
        cut = {"reason": "max_output_tokens"} if answer.finish == "length" else None
        return {
            **self._response("incomplete" if cut else "completed"),
            "output": items,
            "incomplete_details": cut,
            "usage": _usage(answer.usage),
        }

    def begin(self) -> Iterator[str]:
        """That there is a response."""
        yield self._event("response.created", response=self._response("in_progress"))

    def piece(self, delta: ModelDelta) -> Iterator[str]:
        """More of an item, which is opened with its first piece, once the one before is whole."""
        if delta.index not in self._open:
            yield from self._done(delta.index)
            item = _opened(delta, self.answer)
            self._open[delta.index] = item
            yield self._event("response.output_item.added", output_index=delta.index, item=item)
        where = {"output_index": delta.index, "item_id": self._open[delta.index]["id"]}
        if delta.kind == "text":
            more: Body = {"content_index": 0, "delta": delta.text, "logprobs": []}
            yield self._event("response.output_text.delta", **where, **more)
        elif delta.kind == "thinking":
            part = {"type": "summary_text", "text": ""}
            if not self._open[delta.index]["summary"]:
                self._open[delta.index]["summary"] = [part]
                added = {"summary_index": 0, "part": part}
                yield self._event("response.reasoning_summary_part.added", **where, **added)
            piece: Body = {"summary_index": 0, "delta": delta.text}
            yield self._event("response.reasoning_summary_text.delta", **where, **piece)
        else:
            yield self._event("response.function_call_arguments.delta", **where, delta=delta.text)

    def end(self, answer: ModelAnswer) -> Iterator[str]:
        """Every item whole, then the response whole."""
        yield from self._done(len(answer.parts))
        kind = "incomplete" if answer.finish == "length" else "completed"
        yield self._event(f"response.{kind}", response=self.whole(answer))

    def refusal(self, status: int, code: str, message: str) -> Body:
        """The error object."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def _done(self, upto: int) -> Iterator[str]:
        """Every item before a place, whole."""
        parts = self.answer.parts if self.answer is not None else ()
        for place, part in [*enumerate(parts)][self._whole : upto]:
            item = _item(place, part)
            yield self._event("response.output_item.done", output_index=place, item=item)
        self._whole = upto

    def _response(self, status: str) -> Body:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "model": self.name,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": None,
        }

    def _event(self, kind: str, **more: object) -> str:
        self._number += 1
        return data({"type": kind, "sequence_number": self._number, **more}, kind)


def _part(item: Body) -> Part | None:
    if item.get("type") == "function_call":
        arguments = parsed(item["arguments"])
        return ToolCallPart(id=item["call_id"], name=item["name"], arguments=arguments)
    if item.get("type") == "reasoning":
        words = said(item.get("summary", []))
        sealed = item.get("encrypted_content")
        return ThinkingPart(text=words, id=item.get("id"), signature=sealed, provider="openai")
    if item.get("role") == "assistant":
        return TextPart(text=said(item["content"]))
    return None


def _opened(delta: ModelDelta, answer: ModelAnswer | None) -> Body:
    if delta.kind == "text":
        return {
            "id": f"msg_{delta.index}",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
    if delta.kind == "thinking":
        part = answer.parts[delta.index] if answer is not None else None
        known = part.id if part is not None and part.kind == "thinking" else None
        return {"id": known or f"rs_{delta.index}", "type": "reasoning", "summary": []}
    return {
        "id": f"fc_{delta.index}",
        "type": "function_call",
        "status": "in_progress",
        "call_id": delta.call_id,
        "name": delta.name,
        "arguments": "",
    }


def _item(place: int, part: Part) -> Body:
    if part.kind == "text":
        words: Body = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
        return {
            "id": f"msg_{place}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [words],
        }
    if part.kind == "thinking":
        return {
            "id": part.id or f"rs_{place}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": part.text}],
            "encrypted_content": part.signature,
        }
    return {
        "id": f"fc_{place}",
        "type": "function_call",
        "status": "completed",
        "call_id": part.id,
        "name": part.name,
        "arguments": written(part.arguments, part.malformed),
    }


def _usage(usage: ModelUsage) -> Body:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.tokens,
    }
