"""Calls that wait for their answers.

The SDK has its own way to wait for one, through three streams and five turns of the loop. Whoever hears what a server
says hands the answers of calls over here instead, and each wakes its caller at once. Everything else that a server
says, and everything else that it is asked, is the SDK's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import anyio
from mcp.shared.dispatcher import ProgressFnT, as_request_id, coerce_request_id
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    RequestId,
)

Outcome: TypeAlias = dict[str, Any] | ErrorData

_CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")


class Waiting:
    """One call that waits."""

    __slots__ = ("_come", "_outcome", "on_progress")

    def __init__(self, on_progress: ProgressFnT | None) -> None:
        self.on_progress = on_progress
        self._come = anyio.Event()
        self._outcome: Outcome = _CLOSED

    def end(self, outcome: Outcome) -> None:
        """Wake whoever waits; what comes second is too late."""
        if not self._come.is_set():
            self._outcome = outcome
            self._come.set()

    async def outcome(self) -> Outcome:
        """The answer, once it is there."""
        await self._come.wait()
        return self._outcome


class Answers:
    """The calls of one connection that wait."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Waiting] = {}

    def expect(self, request_id: RequestId, on_progress: ProgressFnT | None) -> Waiting:
        """From here on an answer to it is awaited; whoever waits for it says when no longer."""
        waiting = self._waiting[request_id] = Waiting(on_progress)
        return waiting

    def forget(self, request_id: RequestId) -> None:
        """Nobody waits for it any more: an answer would be too late."""
        self._waiting.pop(request_id, None)

    def take(self, message: JSONRPCMessage) -> bool:
        """Hand over an answer; false for what is none, or none that a call waits for."""
        if isinstance(message, JSONRPCResponse):
            outcome: Outcome = message.result
        elif isinstance(message, JSONRPCError):
            outcome = message.error
        else:
            return False
        waiting = self._of(message.id)
        if waiting is None:
            return False
        waiting.end(outcome)
        return True

    async def progress(self, params: Mapping[str, Any] | None) -> None:
        """Tell a caller how far its call is."""
        told = params or {}
        waiting, progress = self._of(told.get("progressToken")), _number(told.get("progress"))
        if waiting is None or waiting.on_progress is None or progress is None:
            return
        message = told.get("message")
        await waiting.on_progress(
            progress, _number(told.get("total")), message if isinstance(message, str) else None
        )

    def close(self) -> None:
        """No answer can come any more."""
        for waiting in self._waiting.values():
            waiting.end(_CLOSED)

    def _of(self, said: object) -> Waiting | None:
        # Servers may write a number as a string: what they mean is the same.
        request_id = as_request_id(said)
        return None if request_id is None else self._waiting.get(coerce_request_id(request_id))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
