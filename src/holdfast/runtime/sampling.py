"""What a tool server wants a model asked (`sampling/createMessage`): through the gate, on behalf of the call under way.

It is asked on the budgets of the run that made the call, under the name `sampling:` and the surface's, which policy asks
about unless a rule says otherwise. The model is the agent's, where an agent has the session, and else that of the
settings: a server may have wishes about it, and the choice is not the server's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from holdfast.agent.connections import meet
from holdfast.agent.prices import Prices, check_prices, estimated
from holdfast.agent.questions import Question, capability_of
from holdfast.agent.work import Work
from holdfast.contracts import Json, Reserved
from holdfast.contracts.message import AssistantMessage, Message, TextPart, UserMessage
from holdfast.contracts.model import ModelAnswer, ModelRequest, ModelSettings
from holdfast.errors import CODES, ModelError, OperatorError
from holdfast.gate.crossing import Outcome
from holdfast.gate.executor import Context
from holdfast.gate.gate import Gate
from holdfast.models.base import Model
from holdfast.models.tokens import request_tokens
from holdfast.runtime.settings import AgentSettings

MAX_TOKENS = 8192
"""Tokens of one answer, whatever a server wants."""

Sample = Callable[[Mapping[str, Json], Context], Awaitable[Mapping[str, Json]]]
"""As connections to servers have it."""

_STOPS = {"stop": "endTurn", "length": "maxTokens"}


class Thinks(Protocol):
    """Who knows which agents are at work, and finds models."""

    def working(self, session_id: str) -> Work | None:
        """The agent's run that has a session here."""
        ...

    def model(self, id_: str) -> Model:
        """A model by its id."""
        ...


class Sampling:
    """Asks models for the tool servers of a runtime."""

    def __init__(self, said: AgentSettings, gate: Gate, thinks: Callable[[], Thinks]) -> None:
        """`said` is whom to ask where no agent is at work."""
        self._said = said
        self._gate = gate
        self._thinks = thinks

    def of(self, surface: str) -> Sample:
        """How one surface has a model asked."""

        async def sample(asked: Mapping[str, Json], context: Context) -> Mapping[str, Json]:
            return await self._sample(surface, asked, context)

        return sample

    async def _sample(
        self, surface: str, asked: Mapping[str, Json], context: Context
    ) -> Mapping[str, Json]:
        work = self._thinks().working(context.session_id)
        model, prices = self._model(surface, work)
        await meet(model)
        request, stops = request_of(surface, asked, model)
        check_prices(prices, [model], self._gate.purses_of(context.call))
        most = request.settings.max_tokens or MAX_TOKENS
        sent = request_tokens(request)
        reserved = Reserved(
            calls=0,
            tokens=sent + most,
            cost_micros=estimated(prices, model, sent, most) or 0,
        )
        question = Question(
            model, request, capability_of(model, None), prices=prices, reserved=reserved
        )
        name = f"sampling:{surface}"
        end = await self._gate.beside(
            context.call, question, _told(model, request), name=name, reserve=reserved
        )
        if work is not None and work.run_id == context.run_id:
            used = question.usage
            work.use(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost_micros=used.cost_micros or 0,
            )
        return _result(model, end, stops)

    def _model(self, surface: str, work: Work | None) -> tuple[Model, Prices]:
        if work is not None:
            return work.model, work.spec.prices
        if self._said.model is None:
            raise OperatorError(
                "MODEL_UNKNOWN",
                f"The tool server `{surface}` wants a model asked, and there is none to ask.",
                hint="Name one as `model` in `[agent]`, or take `sampling` away from the surface.",
            )
        return self._thinks().model(self._said.model), self._said.prices


def request_of(
    surface: str, asked: Mapping[str, Any], model: Model
) -> tuple[ModelRequest, tuple[str, ...]]:
    """A server's request as one to a model, and the words that end the answer; raises `TOOL_ERROR` for what can't be."""
    if asked.get("tools"):
        raise _cant(surface, "with tools of its own")
    messages = [_message(surface, one) for one in asked.get("messages") or ()]
    if not messages or not isinstance(messages[-1], UserMessage):
        raise _cant(surface, "about a conversation that does not end with a question")
    wanted = asked.get("maxTokens")
    most = min(MAX_TOKENS, model.profile.max_output_tokens or MAX_TOKENS)
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        most = max(1, min(most, wanted))
    heat = asked.get("temperature")
    settings = ModelSettings(
        max_tokens=most, temperature=heat if isinstance(heat, int | float) else None
    )
    system = asked.get("systemPrompt")
    stops = asked.get("stopSequences") or ()
    request = ModelRequest(
        messages=messages,
        instructions=system if isinstance(system, str) else "",
        settings=settings,
    )
    return request, tuple(str(one) for one in stops if one)


def _message(surface: str, said: Mapping[str, Any]) -> Message:
    content: Any = said.get("content")
    blocks = cast(
        "Sequence[Mapping[str, Any]]", content if isinstance(content, list) else [content]
    )
    words: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind != "text":
            raise _cant(surface, f"about something that is no text, but {str(kind)[:40]}")
        words.append(str(block.get("text", "")))
    text = "\n".join(words)
    if said.get("role") == "assistant":
        return AssistantMessage(parts=(TextPart(text=text),))
    return UserMessage(text=text)


def _told(model: Model, request: ModelRequest) -> dict[str, Json]:
    """The question as people are shown it, and as it is recorded."""
    found: dict[str, Json] = {
        "model": model.id,
        "messages": [{"role": one.role, "text": one.text} for one in request.messages],
        "max_tokens": request.settings.max_tokens,
    }
    if request.instructions:
        found["instructions"] = request.instructions
    if request.settings.temperature is not None:
        found["temperature"] = request.settings.temperature
    return found


def _result(model: Model, end: Outcome, stops: Sequence[str]) -> Mapping[str, Json]:
    if end.error is not None:
        code = end.error.code if end.error.code in CODES else "TOOL_ERROR"
        raise ModelError(code, end.error.message, hint=end.error.hint)
    answer = ModelAnswer.model_validate(end.value)
    text, reason = answer.message.text, _STOPS.get(answer.finish, answer.finish)
    ends = [at for one in stops if (at := text.find(one)) >= 0]
    if ends:
        text, reason = text[: min(ends)], "stopSequence"
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": answer.model or model.id,
        "stopReason": reason,
    }


def _cant(surface: str, what: str) -> ModelError:
    return ModelError(
        "TOOL_ERROR",
        f"The tool server `{surface}` wants a model asked {what}, which can't be done here.",
        hint="Go on without it.",
    )
