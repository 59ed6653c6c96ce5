"""The SDK's client side, made to bear what servers do: a tool that is described wrongly costs that tool only.

What a server answers is without secrets from here on. It knows some, for it was given them, and may say them anywhere;
whoever cuts its words later could leave half of one, which nobody would find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION, RequestId
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

_ANY_VERSION = "2025-11-25"


class ProbeClosed(Exception):
    """The server hung up when it was asked which protocol it speaks; older ones have to be greeted as of old."""


class Wire(JSONRPCDispatcher[TransportContext]):
    """Requests and answers; says when the other side is gone."""

    def __init__(self, read: Any, write: Any, redact: Callable[[str], str]) -> None:
        super().__init__(read, write)
        self._redact = redact
        self.ended = anyio.Event()
        """Set when nothing can come any more."""
        self.pages: dict[str | None, list[object]] = {}
        """The tools that were listed last, by cursor, exactly as the server describes them."""

    async def run(self, *args: Any, **kwargs: Any) -> None:
        """Receive until the other side is gone."""
        try:
            await super().run(*args, **kwargs)
        finally:
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
        try:
            raw = await super().send_raw_request(
                method, params, opts, _related_request_id=_related_request_id
            )
        except MCPError as why:
            raise MCPError(why.code, self._redact(why.message), self._without(why.data)) from None
        found = self._without(raw)
        tools: object = found.get("tools")
        if method == "tools/list" and isinstance(tools, list):
            listed = cast("list[object]", tools)
            self.pages[(params or {}).get("cursor")] = listed
            found["tools"] = [
                slim
                for tool, said in zip(listed, raw["tools"], strict=True)
                if (slim := _slim(tool)) is not None and slim["name"] == said["name"]
            ]
        return found

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
