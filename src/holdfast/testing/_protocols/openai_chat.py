"""OpenAI's chat completions, which most other servers speak too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelUsage, ToolSpec
from holdfast.testing._protocols._base import Body, Protocol, data, parsed, said, written

OPENAI_STATUSES = {
    "MODEL_RATE_LIMITED": (429, "rate_limit_exceeded"),
    "MODEL_OVERLOADED": (500, "server_error"),
    "MODEL_TIMEOUT": (504, "timeout"),
    "MODEL_CONTEXT_EXCEEDED": (400, "context_length_exceeded"),
    "MODEL_CONTENT_FILTERED": (400, "content_policy_violation"),
    "MODEL_AUTH": (401, "invalid_api_key"),
    "MODEL_UNKNOWN": (404, "model_not_found"),
    "MODEL_INVALID_REQUEST": (400, "invalid_value"),
}
"""OpenAI's own words for what went wrong."""

_FINISH = {"stop": "stop", "tool_calls": "tool_calls", "length": "length"}


class OpenAIChat(Protocol):
    """`POST …/chat/completions`."""

    path = "/chat/completions"
    key_headers = ("authorization",)
    statuses = OPENAI_STATUSES

    def messages(self) -> Iterator[Message]:
        """The conversation; the name of a tool is looked up by its call."""
        names: dict[str, str] = {}
        for one in self.body["messages"]:
            match one["role"]:
                case "user":
                    yield UserMessage(text=said(one["content"]))
                case "assistant":
                    parts = list(_parts(one))
                    names |= {part.id: part.name for part in parts if part.kind == "tool_call"}
                    yield AssistantMessage(parts=tuple(parts))
                case "tool":
                    id = one["tool_call_id"]
                    yield ToolMessage(call_id=id, name=names.get(id, ""), text=said(one["content"]))
                case _:
                    continue

    def instructions(self) -> str:
        """The system messages."""
        roles = ("system", "developer")
        found = [said(one["content"]) for one in self.body["messages"] if one["role"] in roles]
        return "\n\n".join(found)

    def tools(self) -> Iterator[ToolSpec]:
        """The functions."""
        for tool in self.body.get("tools", ()):
            about = tool["function"]
            yield ToolSpec(about["name"], about.get("description", ""), about["parameters"])

    def whole(self, answer: ModelAnswer) -> Body:
        """One choice."""
        message: Body = {"role": "assistant", "content": answer.message.text or None}
        calls = [
            {
                "id": part.id,
                "type": "function",
                "function": {
                    "name": part.name,
                    "arguments": written(part.arguments, part.malformed),
                },
            }
            for part in answer.message.calls
        ]
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _FINISH.get(answer.finish, "stop"),
        }
        return {
            **self._envelope("chat.completion"),
            "choices": [choice],
            "usage": _usage(answer.usage),
        }

    def begin(self) -> Iterator[str]:
        """The role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: ModelDelta) -> Iterator[str]:
        """Words, or a piece of a call."""
        if delta.kind == "text":
            yield self._chunk({"content": delta.text})
        elif delta.kind == "tool_call":
            call: Body = {"index": delta.index, "function": {"arguments": delta.text}}
            if delta.call_id is not None:
                call |= {"id": delta.call_id, "type": "function"}
                call["function"]["name"] = delta.name
            yield self._chunk({"tool_calls": [call]})

    def end(self, answer: ModelAnswer) -> Iterator[str]:
        """Why it stopped, what it used, and the mark of the end."""
        yield self._chunk({}, _FINISH.get(answer.finish, "stop"))
        yield data({**self._envelope(), "choices": [], "usage": _usage(answer.usage)})
        yield "data: [DONE]\n\n"

    def refusal(self, status: int, code: str, message: str) -> Body:
        """The error object."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def _envelope(self, kind: str = "chat.completion.chunk") -> Body:
        return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": self.name}

    def _chunk(self, delta: Body, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return data({**self._envelope(), "choices": [choice]})


def _parts(message: Body) -> Iterator[Part]:
    if message.get("content"):
        yield TextPart(text=said(message["content"]))
    for call in message.get("tool_calls") or ():
        about: dict[str, Any] = call["function"]
        yield ToolCallPart(id=call["id"], name=about["name"], arguments=parsed(about["arguments"]))


def _usage(usage: ModelUsage) -> Body:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }
