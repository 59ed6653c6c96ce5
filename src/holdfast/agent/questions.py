"""A question to a model, as the gate sees it: an effect like any other, with an intent, a budget and a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from holdfast.agent.pictures import Pictures
from holdfast.agent.prices import Prices, estimated, priced
from holdfast.agent.shown import Shown
from holdfast.contracts import Capability, CapabilityLimits, Json, Reserved, SideEffect
from holdfast.contracts._base import made, sure
from holdfast.contracts._dump import dumped
from holdfast.contracts.message import Part, TextPart, ThinkingPart, ToolCallPart
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest, ModelUsage
from holdfast.errors import HoldfastError, ModelFailure, OperatorError
from holdfast.gate.executor import Context, Finding
from holdfast.gate.redact import Redactor
from holdfast.models.base import Model
from holdfast.models.tokens import message_tokens, request_tokens

TIMEOUT_MS = 600_000
"""How long a call may take when nobody says how long."""

GRACE_MS = 1_000
"""So much longer than it was told to a model may take: it knows best how to say that it is late."""

MAX_ANSWER_BYTES = 32 << 20

UNUSED = ModelUsage()
"""What a question used that was not answered."""

_WORKED = frozenset(("MODEL_STREAM_CUT", "MODEL_TIMEOUT"))
"""Failures of a provider that had begun with its answer, for all anybody knows."""

_HOLDS = (dict, list)  # written out, `dict | list` is made anew for every value

Sink = Callable[[ModelDelta], None]
"""Told each piece of an answer as it comes."""


def capability_of(model: Model, timeout_ms: int | None) -> Capability:
    """A model as a capability: what policy and limits look at."""
    return Capability(
        name="ask_model",
        description=f"Ask {model.id}.",
        side_effect=SideEffect.NETWORK,
        idempotent=True,
        limits=CapabilityLimits(
            timeout_ms=timeout_ms + GRACE_MS
            if timeout_ms is not None
            else model.profile.timeout_ms or TIMEOUT_MS,
            max_response_bytes=MAX_ANSWER_BYTES,
            concurrency=1_000_000,
        ),
    )


class Question:
    """One question, ready to be asked once."""

    reconciles = False

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        capability: Capability,
        sink: Sink | None = None,
        *,
        prices: Prices | None = None,
        reserved: Reserved | None = None,
        redactor: Redactor | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        """`prices` are what the agent declares; `reserved` is what was set aside for this question.

        `pictures` has those of the conversation; `None` where there are none.

        What `sink` is told is free of the secrets that `redactor` knows.
        """
        self.capability = capability
        self.answer: ModelAnswer | None = None
        """What the model said, once it has."""
        self.told: Json = None
        """The same, as it is recorded."""
        self.failure: ModelFailure | None = None
        """Why it did not."""
        self.broke_off: ModelAnswer | None = None
        """What came before it failed."""
        self.usage = UNUSED
        """What it used, however it ended."""
        self.effect_id = ""
        """What it is called on record."""
        self.lowered = False
        """Whether a budget made the answer shorter than it might have been."""
        self.request = request
        """What is asked."""
        self.reserved = reserved
        """What was set aside for it."""
        self._model = model
        self._pictures = pictures
        self._sink = sink
        if sink is not None and redactor is not None and redactor.names:
            self._sink = Shown(sink, redactor)
        self._prices: Prices = prices or {}
        self._seen: list[ModelDelta] = []

    def bind(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as they are."""
        return dict(kwargs)

    def check(self, arguments: Mapping[str, Json]) -> None:
        """They are holdfast's own."""

    def check_result(self, value: Json) -> None:
        """Models answer in their own way; what a call needs is checked when it is made."""

    async def execute(self, arguments: Mapping[str, Json], context: Context) -> Json:
        """Ask."""
        context.cost_micros = 0  # until it is known to have cost something
        context.usage = UNUSED
        try:
            answer = _in_order(_told_apart(await self._ask()))
        except ModelFailure as why:
            self.failure = why
            partial = why.partial if isinstance(why.partial, ModelAnswer) else self.partial()
            if partial is not None or why.code in _WORKED:
                self._broke_off(context, partial)
            raise
        except BaseException as why:
            self._broke_off(context, self.partial())
            if isinstance(why, Exception) and not isinstance(why, HoldfastError):
                raise _unlike(self._model, why) from why
            raise
        if self._prices:
            cost = priced(self._prices, self._model, answer.usage)
            answer = answer.model_copy(update={"usage": cost})
        self.answer = answer
        context.usage = self.usage = answer.usage
        context.cost_micros = answer.usage.cost_micros or 0
        context.external_id = answer.response_id
        self.told = dumped(answer)
        return self.told

    async def reconcile(self, arguments: Mapping[str, Json], context: Context) -> Finding:
        """A question is asked again."""
        return Finding("unknown")

    async def _ask(self) -> ModelAnswer:
        request = self.request
        if self._pictures is not None and self._model.profile.pictures:
            request = replace(request, pictures=await self._pictures.of(request.messages))
        if self._sink is None:
            return await self._model.request(request)
        found: ModelAnswer | None = None
        stream: Any = self._model.stream(request)
        try:
            async for piece in stream:
                if isinstance(piece, ModelAnswer):
                    found = piece
                else:
                    self._seen.append(piece)
                    self._sink(piece)
        finally:
            if isinstance(self._sink, Shown):
                self._sink.close()
            await stream.aclose()
        if found is None:
            raise ModelFailure(
                "MODEL_STREAM_CUT", f"`{self._model.id}` ended its answer without an end."
            )
        return found

    def partial(self) -> ModelAnswer | None:
        """What came so far, calls left out: nobody makes half a call."""
        parts: dict[int, Part] = {}
        for piece in self._seen:
            known = parts.get(piece.index)
            if piece.kind == "text":
                before = known.text if isinstance(known, TextPart) else ""
                parts[piece.index] = TextPart(text=before + piece.text)
            elif piece.kind == "thinking":
                before = known.text if isinstance(known, ThinkingPart) else ""
                parts[piece.index] = ThinkingPart(text=before + piece.text)
        if not parts:
            return None
        found = tuple(parts[index] for index in sorted(parts))
        return ModelAnswer(parts=found, finish="error")

    def _broke_off(self, context: Context, partial: ModelAnswer | None) -> None:
        usage = self._used(partial)
        context.usage = self.usage = usage
        context.cost_micros = usage.cost_micros or 0
        if partial is not None:
            self.broke_off = partial.model_copy(update={"usage": usage})
            context.partial = dumped(self.broke_off)

    def _used(self, partial: ModelAnswer | None) -> ModelUsage:
        """What a question used whose answer broke off: as the provider said, and a guess where it did not.

        A provider is paid for what it read and wrote, whether or not it could say so.
        """
        told = UNUSED if partial is None else partial.usage
        seen = 0 if partial is None else message_tokens(partial.message)
        if told.input_tokens and told.output_tokens >= seen:
            return priced(self._prices, self._model, told)
        read = told.input_tokens or request_tokens(self.request)
        wrote = max(told.output_tokens, seen)
        kept = self.reserved
        if kept is not None:  # a guess takes no more than was set aside
            read, wrote = min(read, kept.tokens), min(wrote, max(0, kept.tokens - read))
        cost = estimated(self._prices, self._model, read, wrote)
        if kept is not None and cost is not None:
            cost = min(cost, kept.cost_micros)
        return ModelUsage(input_tokens=read, output_tokens=wrote, cost_micros=cost, estimated=True)


def _unlike(model: Model, why: Exception) -> OperatorError:
    """The failure of a model that raises what no model should: nobody can tell what it means."""
    return OperatorError(
        "TOOL_ERROR",
        f"`{model.id}` raised {type(why).__name__}: {str(why)[:500] or 'no message'}",
        hint="A model raises `holdfast.errors.ModelFailure` and nothing else;"
        " `holdfast.testing.ModelConformance` shows where one does not.",
    )


def _told_apart(answer: ModelAnswer) -> ModelAnswer:
    """The answer with a name of its own for each of its calls: results, and what is on record, go by it."""
    if len(answer.parts) < 2:
        return answer
    names = [part.id for part in answer.parts if part.kind == "tool_call"]
    if len(names) < 2 or len(set(names)) == len(names):
        return answer
    taken = set[str]()
    parts: list[Part] = []
    for part in answer.parts:
        if part.kind == "tool_call":
            name, number = part.id, 2
            while name in taken or (name != part.id and name in names):
                name, number = f"{part.id}_{number}", number + 1
            taken.add(name)
            part = part.model_copy(update={"id": name})
        parts.append(part)
    return answer.model_copy(update={"parts": tuple(parts)})


def _in_order(answer: ModelAnswer) -> ModelAnswer:
    """The answer with the arguments of its calls in the order in which they are recorded.

    Whoever reads it from the record asks on with the same bytes, and a provider's cache of them still holds.
    """
    for part in answer.parts:
        if part.kind == "tool_call" and not _is_in_order(part.arguments):
            break
    else:
        return answer
    parts = tuple(
        sure(
            ToolCallPart,
            id=part.id,
            name=part.name,
            arguments=_sorted(part.arguments),
            malformed=part.malformed,
        )
        if part.kind == "tool_call"
        else part
        for part in answer.parts
    )
    return made(ModelAnswer, {**answer.__dict__, "parts": parts})


def _is_in_order(value: Any) -> bool:
    """Whether sorting it would change nothing; most arguments are one or two plain values."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if len(found) > 1 and [*found] != sorted(found):
            return False
        value = found.values()
    elif not isinstance(value, list):
        return True
    for one in cast("Iterable[Any]", value):
        if isinstance(one, _HOLDS) and not _is_in_order(one):
            return False
    return True


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {key: _sorted(found[key]) for key in sorted(found)}
    if isinstance(value, list):
        return [_sorted(one) for one in cast("list[Any]", value)]
    return value
