"""`/mcp`: MCP over streamable HTTP, behind the same door as everything else. The SDK is imported with the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import CallerError, OperatorError
from holdfast.server.callers import Caller
from holdfast.server.errors import error_response

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

IDLE_SECONDS = 30 * 60
"""A connection of which nothing is heard so long is ended; its session stays."""
MAX_CONNECTIONS = 1000
"""Connections at a time."""
RETRY_MS = 500
"""When a client whose stream was cut comes back."""


def mount(state: Any) -> ASGIApp:
    """The app for `/mcp`. `state` is `app.state`: it has `hf`, `work`, `background`, `refusals`, and `expose`: whether each capability is a tool."""
    return Mounted(state)


class Mounted:
    """Answers at `/mcp`."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._manager: StreamableHTTPSessionManager | None = None
        self._starting = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            caller = Request(scope).state.caller
            if not isinstance(caller, Caller):
                raise CallerError("UNAUTHENTICATED", "This needs a token.")
            manager = await self._started()
        except (CallerError, OperatorError) as why:
            await error_response(why)(scope, receive, send)
            return
        from holdfast.server.mcp.principal import user_of

        # So that the SDK gives a connection to nobody but whose it is.
        await manager.handle_request({**scope, "user": user_of(caller)}, receive, send)

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            found = self._manager
            if found is None:
                found = self._manager = await self._state.background.start(self._serve)
        return found

    async def _serve(self, *, task_status: TaskStatus[StreamableHTTPSessionManager]) -> None:
        """Connections live here: in one task, which ends with the server's other work."""
        from holdfast.server.mcp.events import Connections
        from holdfast.server.mcp.service import Service

        state = self._state
        expose = bool(getattr(state, "expose", False))
        note = state.refusals.note
        async with Service.open(state.hf, state.work, expose=expose, note=note) as service:
            manager = Connections(
                service.server,
                retry_interval=RETRY_MS,
                session_idle_timeout=IDLE_SECONDS,
                max_sessions=MAX_CONNECTIONS,
            )
            async with manager.run():
                task_status.started(manager)
                await anyio.sleep_forever()
