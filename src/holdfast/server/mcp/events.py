"""What streams said lately, so that a client whose stream was cut gets what it missed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCMessage

MAX_EVENTS = 256
"""Messages kept of one connection; the oldest go first. Results are on record anyway."""


class Connections(StreamableHTTPSessionManager):
    """The SDK's connections, each with events of its own.

    It would let them share: streams are named by numbers that clients choose, so that one client would get to hear
    what another one was told.
    """

    if not TYPE_CHECKING:  # to the SDK it is a variable

        @property
        def event_store(self) -> EventStore:
            """A new one for each connection: this is asked once for each."""
            return Events()

        @event_store.setter
        def event_store(self, _: Any) -> None:
            """Set by the SDK."""


class Events(EventStore):
    """Kept in memory: a connection does not outlive the process, a run does."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self._most = most
        self._last = 0
        self._kept: OrderedDict[int, tuple[str, JSONRPCMessage | None]] = OrderedDict()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message; its name."""
        self._last += 1
        self._kept[self._last] = (stream_id, message)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return str(self._last)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Tell again what the same stream said after that; `None` when that is not known any more."""
        if not (last_event_id.isascii() and last_event_id.isdigit()):
            return None
        after = int(last_event_id)
        known = self._kept.get(after)
        if known is None:
            return None
        stream = known[0]
        for name, (of, message) in [*self._kept.items()]:
            if name > after and of == stream and message is not None:
                await send_callback(EventMessage(message, str(name)))
        return stream
