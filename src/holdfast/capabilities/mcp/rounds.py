"""A call that a server interrupts to ask something (protocol 2026-07-28): it ends, and is made again with the answers.

Nothing is held meanwhile, here or there: what the server wants back is in the state of the question, so another
process can go on. People are asked one question at a time; models and folders only once all of them have answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponses,
    ListRootsRequest,
)
from pydantic import TypeAdapter, ValidationError

from holdfast.capabilities.mcp.asking import Asking, question_of, result_of
from holdfast.capabilities.mcp.content import Plain
from holdfast.capabilities.mcp.failures import tool_error
from holdfast.capabilities.mcp.session import Given
from holdfast.contracts import Json
from holdfast.contracts.canonical import canonical_json
from holdfast.errors import ModelError
from holdfast.gate.executor import Answer, Context, NeedsAnswer

MAX_ROUNDS = 20
"""So often a server may answer a call with questions."""

MAX_STATE_BYTES = 256 * 1024
"""What a server may want back: it is kept with the question."""

MAX_WAIT_S = 0.25
"""Between two calls when a server only wants to be called again."""

Send: TypeAlias = Callable[[InputResponses | None, str | None], Awaitable[Given]]
"""Makes the call, with answers and what the server wanted back."""

_REQUEST: TypeAdapter[InputRequest] = TypeAdapter(InputRequest)
_KEY = "input-"


class _Standing(NamedTuple):
    """Where a call stands that waits for answers; as JSON, the state of its last question."""

    request_state: str | None
    key: str
    """What the server calls the question that was put."""
    form: dict[str, Any] | None
    """Its form."""
    left: dict[str, Any]
    """Questions that were not put yet, by the server's keys."""
    given: dict[str, Any]
    """Answers, by the server's keys."""
    others: dict[str, Any]
    """What it wants besides: of a model, or the folders."""
    plain: bool
    """Whether it is just called again, and knows by itself what a person did."""


class Rounds:
    """One call, from where its last question left it to its result or its next question."""

    def __init__(self, tool: str, context: Context, asking: Asking, send: Send) -> None:
        self._tool = tool
        self._context = context
        self._asking = asking
        self._send = send
        self._put = 0
        """Questions that were put so far."""

    async def go(self) -> Plain | CallToolResult:
        """The result; raises `NeedsAnswer`."""
        answer = self._last()
        responses: InputResponses | None = None
        state: str | None = None
        if answer is not None:
            responses, state = await self._resumed(answer)
        wait = 0.0
        for _ in range(MAX_ROUNDS):
            result = await self._sent(responses, state)
            if not isinstance(result, InputRequiredResult):
                return result
            state, requests = result.request_state, result.input_requests
            if requests:
                responses = await self._asked(requests, state)
            else:
                responses, wait = None, min(MAX_WAIT_S, wait * 2 or 0.05)
                await anyio.sleep(wait)
        raise tool_error(self._tool, "it does not stop asking.")

    def _last(self) -> Answer | None:
        """The answer to the last question that was put."""
        found = None
        while (answer := self._context.answers.get(f"{_KEY}{self._put + 1}")) is not None:
            found = answer
            self._put += 1
        return found

    async def _sent(self, responses: InputResponses | None, state: str | None) -> Given:
        try:
            return await self._send(responses, state)
        except MCPError as why:
            if why.code != URL_ELICITATION_REQUIRED:
                raise
            raise self._elsewhere(why) from None

    def _elsewhere(self, why: MCPError) -> Exception:
        """A person has to go somewhere first; then the call is simply made again."""
        found: dict[str, Any] = {}
        data: object = why.data
        listed = (
            cast("Mapping[str, Any]", data).get("elicitations")
            if isinstance(data, Mapping)
            else None
        )
        for one in cast("list[object]", listed) if isinstance(listed, list) else []:
            try:
                params = ElicitRequestURLParams.model_validate(one)
            except ValidationError:
                continue
            request = ElicitRequest(params=params)
            found[params.elicitation_id or params.url] = _dumped(request)
        if not found:
            return tool_error(self._tool, why.message)
        return self._next(_Standing(None, "", None, found, {}, {}, plain=True))

    async def _asked(self, requests: dict[str, InputRequest], state: str | None) -> InputResponses:
        """Have the questions of one round answered; raises `NeedsAnswer` if a person has to."""
        people = {k: _dumped(one) for k, one in requests.items() if isinstance(one, ElicitRequest)}
        others = {k: _dumped(one) for k, one in requests.items() if k not in people}
        if people:
            raise self._next(_Standing(state, "", None, people, {}, others, plain=False))
        return await self._answered(others)

    def _next(self, standing: _Standing) -> Exception:
        """The next question that was not put yet."""
        left = dict(standing.left)
        key = next(iter(left))
        request = cast("ElicitRequest", _REQUEST.validate_python(left.pop(key)))
        form = getattr(request.params, "requested_schema", None)
        state = cast("Json", standing._replace(key=key, form=form, left=left)._asdict())
        if len(canonical_json(state)) > MAX_STATE_BYTES:
            return tool_error(self._tool, "what it wants kept with its question is too long.")
        self._put += 1
        if self._put > MAX_ROUNDS:
            return tool_error(self._tool, "it does not stop asking.")
        try:
            question = question_of(request.params, key=f"{_KEY}{self._put}", state=state)
        except ValueError as why:
            return tool_error(self._tool, f"it asks what can't be asked: {why}")
        return NeedsAnswer(question)

    async def _resumed(self, answer: Answer) -> tuple[InputResponses | None, str | None]:
        """Go on with an answer: ask the next question, or have all the answers."""
        try:
            standing = _Standing(**cast("dict[str, Any]", answer.state))
        except TypeError:
            raise tool_error(self._tool, "its question was not kept.") from None
        if standing.plain:
            if answer.action != "accept":
                raise tool_error(self._tool, f"a person was asked, and said {answer.action}.")
            if standing.left:
                raise self._next(standing)
            return None, None
        given = standing.given | {standing.key: _dumped(result_of(answer, standing.form))}
        standing = standing._replace(given=given)
        if standing.left:
            raise self._next(standing)
        responses: InputResponses = {k: ElicitResult.model_validate(v) for k, v in given.items()}
        return responses | await self._answered(standing.others), standing.request_state

    async def _answered(self, requests: Mapping[str, Any]) -> InputResponses:
        """What needs no person."""
        found: InputResponses = {}
        for key, dumped in requests.items():
            match _REQUEST.validate_python(dumped):
                case CreateMessageRequest(params=params):
                    response = await self._asking.sampled(params, self._context)
                case ListRootsRequest():
                    response = self._asking.rooted()
                case _:
                    response = ErrorData(code=0, message="it asks what nobody knows")
            if isinstance(response, ErrorData):
                raise self._unanswered(response)
            found[key] = response
        return found

    def _unanswered(self, response: ErrorData) -> ModelError:
        return tool_error(self._tool, f"what it asked for was refused: {response.message}")


def _dumped(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
