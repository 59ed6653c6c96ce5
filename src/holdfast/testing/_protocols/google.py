"""Google's generated content."""

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
from holdfast.testing._protocols._base import Body, Protocol, data

_FINISH = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class Google(Protocol):
    """`POST …/models/NAME:generateContent`, and `…:streamGenerateContent`."""

    path = "enerateContent"
    key_headers = ("x-goog-api-key",)
    statuses: ClassVar[Mapping[str, tuple[int, str]]] = {
        "MODEL_RATE_LIMITED": (429, "RESOURCE_EXHAUSTED"),
        "MODEL_OVERLOADED": (503, "UNAVAILABLE"),
        "MODEL_TIMEOUT": (504, "DEADLINE_EXCEEDED"),
        # Google has no code for it: only the words tell.
        "MODEL_CONTEXT_EXCEEDED": (400, "INVALID_ARGUMENT"),
        "MODEL_AUTH": (403, "PERMISSION_DENIED"),
        "MODEL_UNKNOWN": (404, "NOT_FOUND"),
        "MODEL_INVALID_REQUEST": (400, "INVALID_ARGUMENT"),
    }

    too_long = (
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."
    )

    def __init__(self, path: str, body: Body) -> None:
        super().__init__(path, body)
        self._path = path
        self.name = path.rpartition("/models/")[2].partition(":")[0]

    @property
    def streaming(self) -> bool:
        """The path says so."""
        return "streamGenerateContent" in self._path

    def messages(self) -> Iterator[Message]:
        """The conversation; results of calls are parts of the user's turn."""
        for content in self.body["contents"]:
            if content["role"] == "model":
                parts = [part for one in content["parts"] for part in _parts(one)]
                yield AssistantMessage(parts=tuple(parts))
                continue
            for one in content["parts"]:
                result = one.get("functionResponse")
                if result is None:
                    if "text" in one:  # else it is a picture
                        yield UserMessage(text=one["text"])
                    continue
                shown: Body = result["response"]
                text = str(next(iter(shown.values()), ""))
                yield ToolMessage(call_id=result["id"], name=result["name"], text=text)

    def instructions(self) -> str:
        """The system's instruction."""
        parts = self.body.get("systemInstruction", {}).get("parts", ())
        return "".join(part["text"] for part in parts)

    def tools(self) -> Iterator[ToolSpec]:
        """The functions."""
        for tool in self.body.get("tools", ()):
            for one in tool.get("functionDeclarations", ()):
                schema: Body = one.get("parameters_json_schema") or one.get("parameters") or {}
                yield ToolSpec(one["name"], one.get("description", ""), schema)

    def whole(self, answer: ModelAnswer) -> Body:
        """One candidate."""
        parts = [_given(part) for part in answer.parts]
        return self._candidate(parts, _FINISH.get(answer.finish, "STOP"), answer.usage)

    def begin(self) -> Iterator[str]:
        """Nothing: every event is a response."""
        yield from ()

    def piece(self, delta: ModelDelta) -> Iterator[str]:
        """Words; calls come whole, at the end."""
        if delta.kind == "text":
            yield data(self._candidate([{"text": delta.text}]))
        elif delta.kind == "thinking":
            yield data(self._candidate([{"text": delta.text, "thought": True}]))

    def end(self, answer: ModelAnswer) -> Iterator[str]:
        """The calls, why it stopped, and what it used."""
        calls = [_given(part) for part in answer.parts if part.kind == "tool_call"]
        finish = _FINISH.get(answer.finish, "STOP")
        yield data(self._candidate(calls or [{"text": ""}], finish, answer.usage))

    def refusal(self, status: int, code: str, message: str) -> Body:
        """The error object."""
        return {"error": {"code": status, "message": message, "status": code}}

    def _candidate(
        self, parts: list[Body], finish: str | None = None, usage: ModelUsage | None = None
    ) -> Body:
        candidate: Body = {"content": {"role": "model", "parts": parts}, "index": 0}
        found: Body = {"candidates": [candidate], "modelVersion": self.name, "responseId": "r1"}
        if finish is not None:
            candidate["finishReason"] = finish
        if usage is not None:
            found["usageMetadata"] = {
                "promptTokenCount": usage.input_tokens,
                "candidatesTokenCount": usage.output_tokens,
                "totalTokenCount": usage.tokens,
                "cachedContentTokenCount": usage.cache_read_tokens,
            }
        return found


def _parts(one: Body) -> Iterator[Part]:
    sealed = one.get("thoughtSignature")
    if sealed is not None:
        yield ThinkingPart(text="", signature=sealed, provider="google")
    if "functionCall" in one:
        call = one["functionCall"]
        yield ToolCallPart(id=call["id"], name=call["name"], arguments=call.get("args") or {})
    elif one.get("thought"):
        yield ThinkingPart(text=one["text"], provider="google")
    else:
        yield TextPart(text=one["text"])


def _given(part: Part) -> Body:
    if part.kind == "tool_call":
        call = {"id": part.id, "name": part.name, "args": part.arguments}
        # Any bytes do for a seal.
        return {"functionCall": call, "thoughtSignature": "c2VhbA=="}
    if part.kind == "thinking":
        return {"text": part.text, "thought": True}
    return {"text": part.text}
