"""A model that says what it was told to say: for tests, demos and benchmarks; no key, no network, no luck.

Where in a list of lines a conversation stands is read off the question (how many answers it had before), so one
`Scripted` serves any number of conversations at once, and a run that is resumed in another process goes on where it
was. A line that fails belongs to the answer after it: it is used up by one attempt.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import anyio

from holdfast.contracts._base import made, sure
from holdfast.contracts.message import AssistantMessage, Part, ToolCallPart
from holdfast.contracts.model import (
    ModelAnswer,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelUsage,
)
from holdfast.errors import CODES, ModelFailure
from holdfast.models.script import Line, Step, as_line
from holdfast.models.tokens import message_tokens, request_tokens

Author = Callable[[ModelRequest], Step | Awaitable[Step]]
"""Decides on each answer itself."""

PIECE = 12
"""Characters of one delta."""


class _Place(NamedTuple):
    """One answer of a script, and the failures that come before it."""

    failures: tuple[Line, ...]
    answer: Line | None
    """`None`: the script ends with failures."""
    ready: ModelAnswer | None = None
    """The answer as it is given, but for its usage where that is counted."""


class _Said(NamedTuple):
    """What came of a question."""

    answer: ModelAnswer
    """The whole answer, or what there is before it breaks off."""
    line: Line


_WHOLE = Line()
"""Of an answer that is given as it is."""


class Scripted:
    """A `Model` that answers by a list of lines, or by a function of the question.

    In a list each line is one answer; a conversation with *n* answers so far gets the next one. A function, plain or
    async, is given the `ModelRequest` and returns any step. See `holdfast.models.script` for lines that read well.
    """

    def __init__(
        self,
        script: Sequence[Step] | Author,
        *,
        id: str = "scripted:script",
        profile: ModelProfile | None = None,
        latency_ms: float = 0,
        usage: ModelUsage | None = None,
        keep_requests: bool = False,
    ) -> None:
        """`latency_ms` is waited before every answer; `usage` is what each used, instead of being counted.

        With `keep_requests`, what was asked is in `requests`.
        """
        self.id = id
        self.profile = profile or ModelProfile(structured=True)
        self.latency_ms = latency_ms
        self.requests: list[ModelRequest] = []
        """What was asked, in order, each with the conversation as it then was; only with `keep_requests`."""
        self._usage = usage
        self._keep = keep_requests
        self._author: Author | None = None
        self._places: list[_Place] = []
        # Of each place, how many failures were used up; only for callers that do not count attempts themselves.
        self._failed: dict[int, int] = {}
        if callable(script):
            self._author = script
        else:
            self._places = list(self._compile(script))

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """The next answer, whole."""
        answer, line = await self._next(request)
        if line.latency_ms or self.latency_ms:
            await self._wait(line, request)
        if line.failure is not None:
            raise _failure(line, answer)
        return answer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelAnswer, None]:
        """The next answer, in pieces of a few characters, then whole."""
        answer, line = await self._next(request)
        if line.latency_ms or self.latency_ms:
            await self._wait(line, request)
        for delta in deltas(answer):
            yield delta
        if line.failure is not None:
            raise _failure(line, answer)
        yield answer

    def estimate(self, input_tokens: int, output_tokens: int) -> int | None:
        """What an answer costs at most: what its line or `usage` says; else the price of the model it is named after."""
        given = [self._usage, *(one.answer.usage for one in self._places if one.answer is not None)]
        told = [one.cost_micros for one in given if one is not None and one.cost_micros is not None]
        if told:
            return max(told)
        from holdfast.models.catalog import estimate

        try:
            return estimate(self.id, input_tokens, output_tokens) or 0
        except ModelFailure:
            return 0

    def _compile(self, script: Sequence[Step]) -> Iterator[_Place]:
        failures: list[Line] = []
        place = 0
        for step in script:
            line = as_line(step)
            if line.failure is not None:
                failures.append(line)
                continue
            usage = line.usage or self._usage or _said(line)
            yield _Place(tuple(failures), line, _answer(line, place, usage))
            failures.clear()
            place += 1
        if failures:
            yield _Place(tuple(failures), None)

    async def _next(self, request: ModelRequest) -> _Said:
        if self._keep:
            self.requests.append(_copy(request))
        if self._author is not None:
            return await self._authored(self._author, request)
        at = _answered(request)
        if at >= len(self._places):
            raise self._over(at)
        place = self._places[at]
        line = place.answer
        if place.failures:
            tries = self._tries(at, request)
            if tries < len(place.failures):
                line = place.failures[tries]
        if line is None:
            raise self._over(at)
        ready = place.ready if line is place.answer else None
        return self._finished(line, request, at, ready)

    async def _authored(self, author: Author, request: ModelRequest) -> _Said:
        step = author(request)
        if type(step) is not ModelAnswer and inspect.isawaitable(step):
            step = await step
        if isinstance(step, ModelAnswer) and all(call.id for call in _calls(step.parts)):
            return _Said(step, _WHOLE)
        return self._finished(as_line(step), request, _answered(request))

    def _finished(
        self, line: Line, request: ModelRequest, at: int, ready: ModelAnswer | None = None
    ) -> _Said:
        given = line.usage or self._usage
        answer = ready or _answer(line, at, given or _said(line))
        if given is None:
            answer = made(ModelAnswer, {**answer.__dict__, "usage": _counted(request, answer)})
        return _Said(answer, line)

    def _tries(self, at: int, request: ModelRequest) -> int:
        """How many attempts at this answer failed before."""
        if request.attempt is not None:
            return request.attempt - 1
        before = self._failed.get(at, 0)
        self._failed[at] = before + 1
        return before

    async def _wait(self, line: Line, request: ModelRequest) -> None:
        latency_ms, timeout_ms = self.latency_ms + line.latency_ms, request.settings.timeout_ms
        if timeout_ms is None or latency_ms <= timeout_ms:
            await anyio.sleep(latency_ms / 1_000)
            return
        await anyio.sleep(timeout_ms / 1_000)
        raise ModelFailure("MODEL_TIMEOUT", f"`{self.id}` did not answer within {timeout_ms} ms.")

    def _over(self, at: int) -> ModelFailure:
        answers = sum(place.answer is not None for place in self._places)
        return ModelFailure(
            "MODEL_INVALID_REQUEST",
            f"The script of `{self.id}` has {answers} answers, and this is question {at + 1}.",
            hint="Add a line to the script, or let the conversation end sooner.",
        )


def deltas(answer: ModelAnswer, size: int = PIECE) -> Iterator[ModelDelta]:
    """An answer in pieces of `size` characters: put together, they are its parts."""
    for index, part in enumerate(answer.parts):
        if part.kind != "tool_call":
            for start in range(0, len(part.text), size):
                yield ModelDelta(part.kind, part.text[start : start + size], index)
            continue
        written = json.dumps(part.arguments) if part.malformed is None else part.malformed
        yield ModelDelta("tool_call", written[:size], index, part.id, part.name)
        for start in range(size, len(written), size):
            yield ModelDelta("tool_call", written[start : start + size], index)


def _answered(request: ModelRequest) -> int:
    if request.answered is not None:
        return request.answered
    return sum([type(message) is AssistantMessage for message in request.messages])


def _calls(parts: tuple[Part, ...]) -> list[ToolCallPart]:
    return [part for part in parts if part.kind == "tool_call"]


def _answer(line: Line, at: int, usage: ModelUsage) -> ModelAnswer:
    parts = tuple(_named(line.parts, at))
    finish = line.finish or ("tool_calls" if _calls(parts) else "stop")
    return made(
        ModelAnswer,
        {
            "parts": parts,
            "finish": "error" if line.failure is not None else finish,
            "usage": usage,
            "model": line.model,
            "response_id": line.response_id,
        },
    )


def _named(parts: tuple[Part, ...], at: int) -> Iterator[Part]:
    """The parts, each call with an id: the same for the same place of the same script."""
    for number, part in enumerate(parts, 1):
        if part.kind == "tool_call" and not part.id:
            yield sure(
                ToolCallPart,
                id=f"call_{at + 1}_{number}",
                name=part.name,
                arguments=part.arguments,
                malformed=part.malformed,
            )
        else:
            yield part


def _said(line: Line) -> ModelUsage:
    """What a line takes to say."""
    return sure(ModelUsage, output_tokens=message_tokens(sure(AssistantMessage, parts=line.parts)))


def _counted(request: ModelRequest, answer: ModelAnswer) -> ModelUsage:
    out = answer.usage.output_tokens
    return sure(ModelUsage, input_tokens=request_tokens(request), output_tokens=out)


def _failure(line: Line, answer: ModelAnswer) -> ModelFailure:
    code = line.failure or ""
    return ModelFailure(
        code,
        line.message or f"By script: {CODES[code].when}.",
        retry_after_ms=line.retry_after_ms,
        partial=answer if answer.parts else None,
    )


def _copy(request: ModelRequest) -> ModelRequest:
    return ModelRequest(
        tuple(request.messages),
        request.instructions,
        tuple(request.tools),
        request.output,
        request.settings,
        request.answered,
        request.attempt,
        dict(request.pictures),
    )
