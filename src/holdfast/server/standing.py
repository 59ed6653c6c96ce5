"""Whether somebody who was let in still may be here. A WebSocket and a stream of events outlive the check at the door.

Each message that comes in by a WebSocket is held against the token it was opened with, and so is, not more than a second old,
each one that goes out, and each part of a streamed answer. A beat goes out every quarter of a minute, so that a silent connection is found,
too. What was asked before is finished, and nobody hears of it.
"""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.tokens import Tokens

FAREWELL = b": this token counts no more\n\n"
"""The end of a stream of events."""
STALE_MS = 1000
"""How old the answer may be, where something goes out."""
BEAT = 15.0
"""Seconds of silence after which a WebSocket is looked at."""
_POLICY_VIOLATION = 1008


class Standing:
    """One connection, as long as its token counts."""

    def __init__(
        self, tokens: Tokens, token_id: str, receive: Receive, send: Send, *, beat: float = BEAT
    ) -> None:
        self._tokens = tokens
        self._token_id = token_id
        self._receive = receive
        self._send = send
        self._beat = beat
        self._gone = False
        self._stream = False
        self._stop = anyio.CancelScope()
        self._hearing: anyio.CancelScope | None = None

    async def serve(self, app: ASGIApp, scope: Scope) -> None:
        """Let the app answer, until that is over or the token counts no more."""
        if scope["type"] != "websocket":
            with self._stop:
                await app(scope, self._receive, self._answer)
            return
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._watch)
            await app(scope, self._hear, self._say)
            beside.cancel_scope.cancel()

    # -- an answer in parts ---------------------------------------------------------------------------

    async def _answer(self, message: Message) -> None:
        """Pass a part of an answer on. One that is given at once was asked for while the token counted."""
        if self._gone:
            return
        if message["type"] == "http.response.start":
            kinds = (value for name, value in message["headers"] if name.lower() == b"content-type")
            self._stream = any(one.startswith(b"text/event-stream") for one in kinds)
        elif self._stream and not await self._tokens.counts(self._token_id, stale_ms=STALE_MS):
            self._gone = True
            await self._send({"type": "http.response.body", "body": FAREWELL, "more_body": False})
            self._stop.cancel()
            await checkpoint()
            return
        await self._send(message)

    # -- a WebSocket ----------------------------------------------------------------------------------

    async def _hear(self) -> Message:
        """The next message; the end, for the app, once the token counts no more."""
        with anyio.CancelScope() as self._hearing:
            message = await self._receive()
            if message["type"] != "websocket.receive" or await self._counts(0):
                return message
        return {"type": "websocket.disconnect", "code": _POLICY_VIOLATION}

    async def _say(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            await self._counts(STALE_MS)
        if not self._gone:
            await self._send(message)

    async def _watch(self) -> None:
        while not self._gone:
            await anyio.sleep(self._beat)
            await self._counts(STALE_MS)

    async def _counts(self, stale_ms: int) -> bool:
        """Whether it still does; if not, the connection is closed."""
        if not self._gone and not await self._tokens.counts(self._token_id, stale_ms=stale_ms):
            self._gone = True
            close = {"type": "websocket.close", "code": _POLICY_VIOLATION}
            try:
                await self._send({**close, "reason": "UNAUTHENTICATED"})
            except (OSError, RuntimeError):
                pass  # it is closed
            if self._hearing is not None:
                self._hearing.cancel()
        return not self._gone
