"""The SDK's client side, made to bear what servers do: a tool that is described wrongly costs that tool only.

What a server answers is without secrets from here on. It knows some, for it was given them, and may say them anywhere;
whoever cuts its words later could leave half of one, which nobody would find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, cast

import anyio
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCRequest,
    RequestId,
)
from mcp_types.methods import validate_server_result
from opentelemetry.context import get_current
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from pydantic import ValidationError

from holdfast.capabilities.mcp.answers import Answers

_ANY_VERSION = "2025-11-25"
# Of what the SDK may want besides, these are for HTTP, or asked for here.
_PLAIN = frozenset({"headers", "on_progress"})
# Seconds that it may take to say that a call is not waited for any more.
_LAST_WORD = 5.0


class ProbeClosed(Exception):
    """The server hung up when it was asked which protocol it speaks; older ones have to be greeted as of old."""


class Wire(JSONRPCDispatcher[TransportContext]):
    """Requests and answers; says when the other side is gone.

    Where `answers` is given, whoever reads hands the answers of calls over there, and calls wait for them there.
    """

    def __init__(
        self, read: Any, write: Any, redact: Callable[[str], str], answers: Answers | None = None
    ) -> None:
        super().__init__(read, write)
        self._redact = redact
        self._answers = answers
        self._out = write
        self._numbers = count(1)
        self._runs = False
        self.ended = anyio.Event()
        """Set when nothing can come any more."""
        self.pages: dict[str | None, list[object]] = {}
        """The tools that were listed last, by cursor, exactly as the server describes them."""

    async def run(self, *args: Any, **kwargs: Any) -> None:
        """Receive until the other side is gone."""
        self._runs = True
        try:
            await super().run(*args, **kwargs)
        finally:
            self._runs = False
            if self._answers is not None:
                self._answers.close()
            self.ended.set()

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        opts = opts or {}
        if method == "tools/call" and opts.keys() <= _PLAIN and self.direct:
            return await self.call(params or {}, opts.get("on_progress"))
        if self._answers is not None:
            opts = {"request_id": next(self._numbers), **opts}
        try:
            raw = await super().send_raw_request(
                method, params, opts, _related_request_id=_related_request_id
            )
        except MCPError as why:
            raise self._blurred(why) from None
        found = self._without(raw)
        return self._listed(params, raw, found) if method == "tools/list" else found

    @property
    def direct(self) -> bool:
        """Whether `call` can be used now: calls wait for their answers here, and nobody traces them."""
        return self._answers is not None and self._runs and not _traced()

    async def call(
        self, params: Mapping[str, Any], on_progress: ProgressFnT | None
    ) -> dict[str, Any]:
        """Call a tool as the SDK does, with nothing between whoever reads and whoever waits."""
        assert self._answers is not None
        try:
            raw = await self._called(self._answers, params, on_progress)
        except MCPError as why:
            raise self._blurred(why) from None
        # Who answered, and what else is said besides: nobody looks at it.
        if isinstance(raw.get("_meta"), dict):
            del raw["_meta"]
        return self._without(raw)

    async def _called(
        self, answers: Answers, params: Mapping[str, Any], on_progress: ProgressFnT | None
    ) -> dict[str, Any]:
        number = next(self._numbers)
        call = _call(number, params, progress=on_progress is not None)
        waiting = answers.expect(number, on_progress)
        begun = False
        try:
            # A call that is cancelled already must not be made.
            await anyio.lowlevel.checkpoint_if_cancelled()
            begun = True
            await self._out.send(call)
            outcome = await waiting.outcome
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise MCPError(CONNECTION_CLOSED, "Connection closed") from None
        except anyio.get_cancelled_exc_class():
            if begun:  # it may have been sent, and what is not known there is not minded
                with anyio.move_on_after(_LAST_WORD, shield=True):
                    await self.notify(
                        "notifications/cancelled",
                        {"requestId": number, "reason": "caller cancelled"},
                    )
            raise
        finally:
            answers.forget(number)
        if isinstance(outcome, ErrorData):
            raise MCPError(outcome.code, outcome.message, outcome.data)
        return outcome

    def _listed(
        self, params: Mapping[str, Any] | None, raw: dict[str, Any], found: dict[str, Any]
    ) -> dict[str, Any]:
        """A page of tools: kept as it is, and given to the SDK as far as that can bear it."""
        tools: object = found.get("tools")
        if isinstance(tools, list):
            listed = cast("list[object]", tools)
            self.pages[(params or {}).get("cursor")] = listed
            found["tools"] = [
                slim
                for tool, said in zip(listed, raw["tools"], strict=True)
                if (slim := _slim(tool)) is not None and slim["name"] == said["name"]
            ]
        return found

    def _blurred(self, why: MCPError) -> MCPError:
        """The same error without secrets."""
        return MCPError(why.code, self._redact(why.message), self._without(why.data))

    def _without(self, value: Any) -> Any:
        """The same without secrets."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, list):
            return [self._without(one) for one in cast("list[Any]", value)]
        if isinstance(value, dict):
            told = cast("dict[str, Any]", value)
            return {self._redact(key): self._without(one) for key, one in told.items()}
        return value


def _call(number: int, params: Mapping[str, Any], *, progress: bool) -> SessionMessage:
    """The message that calls a tool."""
    meta: dict[str, Any] = dict(params.get("_meta") or {})
    if progress:
        meta["progressToken"] = number
    said = {**params, "_meta": meta}
    if not meta:
        del said["_meta"]
    return SessionMessage(
        JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/call", params=said)
    )


def _traced() -> bool:
    """Whether whoever runs us traces what happens: then the SDK makes the call, and tells what it is part of."""
    return bool(get_current()) or not isinstance(get_tracer_provider(), ProxyTracerProvider)


def _slim(tool: object) -> dict[str, Any] | None:
    """What the SDK has to know about a tool; `None` for one it would refuse the whole list for.

    The schema of results is not among it: the gate checks them, and once is enough.
    """
    if not isinstance(tool, dict):
        return None
    told = cast("dict[str, Any]", tool)
    slim = {key: told[key] for key in ("name", "inputSchema") if key in told}
    try:
        validate_server_result("tools/list", _ANY_VERSION, {"tools": [slim]})
    except ValidationError:
        return None
    return slim


async def negotiate(session: ClientSession, *, probe: bool, seconds: float) -> None:
    """Agree on a protocol: the newest one that needs no greeting, or an older one that does."""
    if probe:
        try:
            # A server that does not answer what it does not know has to be greeted, too.
            with anyio.move_on_after(seconds):
                await session.discover()
        except MCPError as why:
            if why.code == CONNECTION_CLOSED:
                raise ProbeClosed from None
        except (ValidationError, RuntimeError):
            pass  # it answers, but speaks no protocol of that kind
        if session.discover_result is not None:
            return
    try:
        await session.initialize()
    except MCPError as why:
        if why.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # It took the question after all, only later than we waited for its answer.
        await session.discover()
