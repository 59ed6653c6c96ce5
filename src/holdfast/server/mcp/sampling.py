"""The model of whoever is connected, for agents that are served over MCP: `Agent(ClientModel())`.

Each question goes to the client whose call the agent's run answers (`sampling/createMessage`), and is an effect like any
other. Without a client that can be asked, it can't be had. A client whose model takes no tools is asked for words alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest, ModelUsage
from holdfast.errors import ModelFailure
from holdfast.models.tokens import by_bytes, message_tokens

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageResult,
        CreateMessageResultWithTools,
        SamplingMessage,
        SamplingMessageContentBlock,
    )

    from holdfast.server.mcp.client import Context

ID = "mcp:client"
MAX_TOKENS = 4096
"""Tokens of an answer, unless the agent says otherwise."""

asking: ContextVar[Context | None] = ContextVar("asking", default=None)
"""The request on whose behalf something is done; set before a run begins, which takes it along."""


class ClientModel:
    """Asks the model of the connected client."""

    id = ID
    profile = ModelProfile(tools=True)

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import (
            CreateMessageRequest,
            CreateMessageResult,
            CreateMessageResultWithTools,
        )
        from pydantic import ValidationError

        ctx = asking.get()
        can = None if ctx is None else ctx.session.client_capabilities
        if ctx is None or can is None or can.sampling is None:
            raise ModelFailure(
                "MODEL_AUTH",
                "There is no client whose model could be asked.",
                hint="Call the agent from an MCP client that offers sampling, or give it another model.",
            )
        tools = bool(request.tools) and can.sampling.tools is not None
        kind: Any = CreateMessageResultWithTools if tools else CreateMessageResult
        asked = CreateMessageRequest(params=_params(request, tools=tools))
        from mcp.shared.message import ServerMessageMetadata

        try:
            found = await ctx.session.send_request(
                asked, kind, metadata=ServerMessageMetadata(related_request_id=ctx.request_id)
            )
        except (MCPError, ValidationError) as why:
            raise ModelFailure(
                "MODEL_INVALID_REQUEST", f"The client did not answer: {str(why)[:200]}."
            ) from None
        return _answer(request, found)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """The answer as one piece: clients give no others."""
        answer = await self.request(request)
        for index, part in enumerate(answer.parts):
            if isinstance(part, TextPart):
                yield ModelDelta("text", part.text, index)
        yield answer


def _params(request: ModelRequest, *, tools: bool) -> Any:
    from mcp_types import CreateMessageRequestParams, Tool

    offered = [
        Tool(name=one.name, description=one.description, input_schema=one.schema)
        for one in request.tools
    ]
    return CreateMessageRequestParams(
        messages=_messages(request.messages),
        system_prompt=request.instructions or None,
        temperature=request.settings.temperature,
        max_tokens=request.settings.max_tokens or MAX_TOKENS,
        tools=offered if tools else None,
    )


def _messages(said: Sequence[Message]) -> list[SamplingMessage]:
    """The conversation; what came of calls is one message of the user's."""
    from mcp_types import SamplingMessage

    found: list[SamplingMessage] = []
    for one in said:
        role = "assistant" if isinstance(one, AssistantMessage) else "user"
        blocks = _blocks(one)
        last = found[-1] if found else None
        if last is not None and isinstance(one, ToolMessage) and last.role == "user":
            found[-1] = SamplingMessage(role="user", content=[*last.content_as_list, *blocks])
        elif blocks:
            content = blocks[0] if len(blocks) == 1 else blocks
            found.append(SamplingMessage(role=role, content=content))
    return found


def _blocks(one: Message) -> list[SamplingMessageContentBlock]:
    from mcp_types import TextContent, ToolResultContent, ToolUseContent

    if isinstance(one, UserMessage):
        return [TextContent(text=one.text)]
    if isinstance(one, ToolMessage):
        shown = [TextContent(text=one.text)]
        return [ToolResultContent(tool_use_id=one.call_id, content=[*shown], is_error=one.is_error)]
    found: list[SamplingMessageContentBlock] = []
    for part in one.parts:
        if isinstance(part, TextPart) and part.text:
            found.append(TextContent(text=part.text))
        elif isinstance(part, ToolCallPart):
            found.append(ToolUseContent(name=part.name, id=part.id, input=part.arguments))
    return found


def _answer(
    request: ModelRequest, found: CreateMessageResult | CreateMessageResultWithTools
) -> ModelAnswer:
    from mcp_types import TextContent, ToolUseContent

    content = found.content if isinstance(found.content, list) else [found.content]
    parts: list[Part] = []
    for one in content:
        if isinstance(one, TextContent):
            parts.append(TextPart(text=one.text))
        elif isinstance(one, ToolUseContent):
            parts.append(ToolCallPart(id=one.id, name=one.name, arguments=one.input))
    calls = any(isinstance(one, ToolCallPart) for one in parts)
    finish = "tool_calls" if calls else "length" if found.stop_reason == "maxTokens" else "stop"
    words = "".join(one.text for one in parts if isinstance(one, TextPart))
    usage = ModelUsage(
        input_tokens=sum(message_tokens(one) for one in request.messages),
        output_tokens=by_bytes(words),
        estimated=True,
    )
    return ModelAnswer(parts=tuple(parts), finish=finish, usage=usage, model=found.model[:200])
