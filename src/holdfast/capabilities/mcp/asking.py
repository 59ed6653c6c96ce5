"""What a server asks of us: of a person (elicitation), of a model (sampling), and which folders there are (roots).

Until protocol 2025-11-25 it asks in the middle of a call, which is held meanwhile. After it, the call ends with the
questions, and is made again with the answers: see `rounds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
)
from mcp_types import Root as McpRoot
from pydantic import ValidationError

from holdfast.capabilities._schema import Schema
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.services import Services
from holdfast.capabilities.mcp.underway import Calls
from holdfast.capabilities.words import clean, clean_schema
from holdfast.contracts import Json
from holdfast.contracts.approval import Asks
from holdfast.contracts.canonical import canonical_json
from holdfast.errors import HoldfastError
from holdfast.gate.executor import Answer, Context, Question

MAX_FORM_BYTES = 64 * 1024
"""Canonical bytes of a form."""

MAX_URL = 2000
"""Characters of an address."""

# The last word of the specification on what a client says that was asked to have a model asked, and will not.
_REJECTED = -1


class Asking:
    """Answers a server's questions on behalf of the calls under way."""

    def __init__(self, services: Services, calls: Calls, log: ErrorLog) -> None:
        self._services = services
        self._calls = calls
        self._log = log

    async def elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Ask a person, in the middle of a call."""
        call = self._calls.meant()
        if call is None:
            self._log.note("it asked a person something, and it can't be told for which call")
            return ElicitResult(action="decline")
        # The same in another attempt: what was answered before need not be asked again.
        call.asked += 1
        # Before it is cut: half of a secret would not be found.
        params = params.model_copy(update={"message": self._services.redact(params.message)})
        try:
            question = question_of(params, key=f"during-{call.asked}")
        except ValueError as why:
            return ErrorData(code=INVALID_PARAMS, message=str(why))
        try:
            return result_of(await call.context.ask(question), question.form)
        except HoldfastError as why:
            self._log.note(f"a person was not asked: {why.message}")
            return ErrorData(code=_REJECTED, message="Nobody can be asked.")

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Have a model asked, on behalf of a call."""
        call = self._calls.meant()
        if call is None:
            self._log.note("it wants a model asked, and it can't be told for which call")
            return ErrorData(code=_REJECTED, message="It can't be told for which call.")
        return await self.sampled(params, call.context)

    async def sampled(
        self, params: CreateMessageRequestParams, context: Context
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Have a model asked on behalf of this call."""
        if self._services.sample is None:
            return ErrorData(code=INVALID_REQUEST, message="Sampling is not supported.")
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            found = dict(await self._services.sample(asked, context))
        except HoldfastError as why:
            # The server is told that, not why: policies and budgets are none of its business.
            self._log.note(f"a model was not asked: {why.message}")
            return ErrorData(code=_REJECTED, message="The model was not asked.")
        kind: Any = CreateMessageResult
        if params.tools is not None and isinstance(found.get("content"), list):
            kind = CreateMessageResultWithTools
        return kind.model_validate(found)

    async def roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        """Say which folders there are."""
        return self.rooted()

    def rooted(self) -> ListRootsResult | ErrorData:
        """The same, at once."""
        if self._services.roots is None:
            return ErrorData(code=INVALID_REQUEST, message="Roots are not supported.")
        found = [
            McpRoot.model_validate({"uri": one.uri, "name": one.name})
            for one in self._services.roots()
        ]
        return ListRootsResult(roots=found)


def question_of(params: ElicitRequestParams, *, key: str, state: Json = None) -> Question:
    """A question as a person gets it; raises `ValueError` for one that can't be put."""
    message = clean(params.message)
    if isinstance(params, ElicitRequestURLParams):
        if not params.url.startswith(("https://", "http://")) or len(params.url) > MAX_URL:
            raise ValueError("The address is none that a person can go to.")
        return Question(Asks.INPUT, message, url=params.url, key=key, state=state)
    form: Any = params.requested_schema
    try:
        if len(canonical_json(form)) > MAX_FORM_BYTES:
            raise ValueError(f"The form has more than {MAX_FORM_BYTES} bytes.")
        form = clean_schema(form)
        Schema(form, "The form")
    except HoldfastError as why:
        raise ValueError(why.message) from None
    return Question(Asks.INPUT, message, form=form, key=key, state=state)


def result_of(answer: Answer, form: Mapping[str, Any] | None = None) -> ElicitResult:
    """What a server is told that a person said; what was left out of a form is what the form has there."""
    if answer.action != "accept" or not isinstance(answer.content, dict):
        return ElicitResult(action=answer.action)
    content: Any = _defaults(form) | answer.content
    try:
        return ElicitResult(action="accept", content=content)
    except ValidationError:
        # Forms are flat: an answer that is not fits none.
        return ElicitResult(action="cancel")


def _defaults(form: Mapping[str, Any] | None) -> dict[str, Any]:
    properties: object = (form or {}).get("properties")
    if not isinstance(properties, dict):
        return {}
    fields = cast("dict[str, Any]", properties)
    return {
        name: cast("dict[str, Any]", field)["default"]
        for name, field in fields.items()
        if isinstance(field, dict) and "default" in field
    }
