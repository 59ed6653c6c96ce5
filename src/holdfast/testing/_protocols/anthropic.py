"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

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
from holdfast.testing._protocols._base import Body, Protocol, data, said

_FINISH = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class Anthropic(Protocol):
    """`POST …/v1/messages`."""

    path = "/v1/messages"
    key_headers = ("authorization", "x-api-key")
    statuses: ClassVar[Mapping[str, tuple[int, str]]] = {
        "MODEL_RATE_LIMITED": (429, "rate_limit_error"),
        "MODEL_OVERLOADED": (529, "overloaded_error"),
        "MODEL_TIMEOUT": (504, "timeout_error"),
        # Anthropic has no code for it: only the words tell.
        "MODEL_CONTEXT_EXCEEDED": (400, "invalid_request_error"),
        "MODEL_AUTH": (401, "authentication_error"),
        "MODEL_UNKNOWN": (404, "not_found_error"),
        "MODEL_INVALID_REQUEST": (400, "invalid_request_error"),
    }

    too_long = "prompt is too long: 210000 tokens > 200000 maximum"

    def __init__(self, path: str, body: Body) -> None:
        super().__init__(path, body)
        self._open: int | None = None

    def messages(self) -> Iterator[Message]:
        """The conversation; results of calls are blocks of the user's turn."""
        names: dict[str, str] = {}
        for one in self.body["messages"]:
            blocks = one["content"]
            if isinstance(blocks, str):
                blocks = [{"type": "text", "text": blocks}]
            if one["role"] == "assistant":
                parts = [_part(block) for block in blocks]
                names |= {part.id: part.name for part in parts if part.kind == "tool_call"}
                yield AssistantMessage(parts=tuple(parts))
                continue
            for block in blocks:
                if block["type"] == "tool_result":
                    id = block["tool_use_id"]
                    yield ToolMessage(
                        call_id=id,
                        name=names.get(id, ""),
                        text=said(block["content"]),
                        is_error=bool(block.get("is_error")),
                    )
                elif block["type"] == "text":
                    yield UserMessage(text=block["text"])

    def instructions(self) -> str:
        """The field `system`."""
        return said(self.body.get("system", ""))

    def tools(self) -> Iterator[ToolSpec]:
        """The tools."""
        for tool in self.body.get("tools", ()):
            yield ToolSpec(tool["name"], tool.get("description", ""), tool["input_schema"])

    def whole(self, answer: ModelAnswer) -> Body:
        """The message with all of its blocks."""
        return {
            **self._message(),
            "content": [_block(part) for part in answer.parts],
            "stop_reason": _FINISH.get(answer.finish, "end_turn"),
            "usage": _usage(answer.usage),
        }

    def begin(self) -> Iterator[str]:
        """That there is a message."""
        yield _event("message_start", message=self._message())

    def piece(self, delta: ModelDelta) -> Iterator[str]:
        """More of a block; a new one closes the one before."""
        if self._open != delta.index:
            yield from self._close()
            self._open = delta.index
            yield _event("content_block_start", index=delta.index, content_block=_opened(delta))
        more: Body = {
            "text": {"type": "text_delta", "text": delta.text},
            "thinking": {"type": "thinking_delta", "thinking": delta.text},
            "tool_call": {"type": "input_json_delta", "partial_json": delta.text},
        }
        yield _event("content_block_delta", index=delta.index, delta=more[delta.kind])

    def end(self, answer: ModelAnswer) -> Iterator[str]:
        """Why it stopped and what it used."""
        yield from self._close()
        why = {"stop_reason": _FINISH.get(answer.finish, "end_turn"), "stop_sequence": None}
        yield _event("message_delta", delta=why, usage=_usage(answer.usage))
        yield _event("message_stop")

    def refusal(self, status: int, code: str, message: str) -> Body:
        """The error object."""
        return {"type": "error", "error": {"type": code, "message": message}}

    def _close(self) -> Iterator[str]:
        if self._open is None:
            return
        part = self.answer.parts[self._open] if self.answer is not None else None
        if part is not None and part.kind == "thinking" and part.signature:
            sealed = {"type": "signature_delta", "signature": part.signature}
            yield _event("content_block_delta", index=self._open, delta=sealed)
        yield _event("content_block_stop", index=self._open)

    def _message(self) -> Body:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(ModelUsage()),
        }


def _event(kind: str, **more: object) -> str:
    return data({"type": kind, **more}, kind)


def _part(block: Body) -> Part:
    match block["type"]:
        case "tool_use":
            return ToolCallPart(id=block["id"], name=block["name"], arguments=block["input"])
        case "thinking":
            words, sealed = block["thinking"], block.get("signature")
            return ThinkingPart(text=words, signature=sealed, provider="anthropic")
        case _:
            return TextPart(text=str(block.get("text", "")))


def _block(part: Part) -> Body:
    if part.kind == "text":
        return {"type": "text", "text": part.text, "citations": None}
    if part.kind == "thinking":
        return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
    # A whole answer is JSON, so what is no JSON object can come in a stream only.
    given = part.arguments if part.malformed is None else {"written": part.malformed}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def _opened(delta: ModelDelta) -> Body:
    if delta.kind == "text":
        return {"type": "text", "text": "", "citations": None}
    if delta.kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": delta.call_id, "name": delta.name, "input": {}}


def _usage(usage: ModelUsage) -> Body:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - cached,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }
