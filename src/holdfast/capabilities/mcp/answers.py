"""Calls that wait for their answers.

The SDK has its own way to wait for one, through three streams and five turns of the loop. Whoever hears what a server
says hands the answers of calls over here instead, and each wakes its caller at once. Everything else that a server
says, and everything else that it is asked, is the SDK's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from mcp.shared.dispatcher import ProgressFnT, as_request_id, coerce_request_id
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    RequestId,
)

_log = logging.getLogger(__name__)

Outcome: TypeAlias = dict[str, Any] | ErrorData

_PROGRESS = "notifications/progress"
_CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")


class Waiting:
    """One call that waits."""

    __slots__ = ("on_progress", "outcome")

    def __init__(self, on_progress: ProgressFnT | None) -> None:
        self.on_progress = on_progress
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """The answer, once it is there."""

    def end(self, outcome: Outcome) -> None:
        """Wake whoever waits; what comes second is too late."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Answers:
    """The calls of one connection that wait."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Waiting] = {}

    def expect(self, request_id: RequestId, on_progress: ProgressFnT | None) -> Waiting:
        """From here on an answer to it is awaited; whoever waits for it says when no longer.

        What is told by `on_progress` must not be waited for: nothing is heard meanwhile.
        """
        waiting = self._waiting[request_id] = Waiting(on_progress)
        return waiting

    def forget(self, request_id: RequestId) -> None:
        """Nobody waits for it any more: an answer would be too late."""
        self._waiting.pop(request_id, None)

    def give(self, request_id: object, result: object) -> bool:
        """Hand over a result at once; false for what is none, or for no call that waits."""
        if type(request_id) is not int or not isinstance(result, dict):
            return False
        waiting = self._waiting.get(request_id)
        if waiting is None:
            return False
        waiting.end(cast("dict[str, Any]", result))
        return True

    async def take(self, message: JSONRPCMessage) -> bool:
        """Hand over an answer, or how far a call is; false for what is neither, or for no call that waits.

        To be called in the order in which a server speaks: after its answer, nobody hears how far a call is.
        """
        if isinstance(message, JSONRPCResponse):
            outcome: Outcome = message.result
        elif isinstance(message, JSONRPCError):
            outcome = message.error
        elif isinstance(message, JSONRPCNotification):
            return message.method == _PROGRESS and await self._progress(message.params or {})
        else:
            return False
        waiting = self._of(message.id)
        if waiting is None:
            return False
        waiting.end(outcome)
        return True

    async def _progress(self, told: Mapping[str, Any]) -> bool:
        waiting, progress = self._of(told.get("progressToken")), _number(told.get("progress"))
        if waiting is None or waiting.on_progress is None or progress is None:
            return False
        message = told.get("message")
        try:
            await waiting.on_progress(
                progress, _number(told.get("total")), message if isinstance(message, str) else None
            )
        except Exception:  # noqa: BLE001 - whoever is told must not harm the connection
            _log.exception("A step of a call could not be told.")
        return True

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
