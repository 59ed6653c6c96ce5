"""A server at an address. One request that fails fails alone.

The SDK's transport ends with the first exception that comes out of its HTTP client. So none does: what goes wrong is
noted where the call is under way, and the transport is told that the server refused. The caller gets what was noted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR

from holdfast.capabilities.mcp.services import Services
from holdfast.capabilities.mcp.underway import CURRENT

MAX_BODY = 16 * 1024 * 1024
"""Bytes of one answer."""

CONNECT_SECONDS = 10.0
"""How long it may take until somebody answers at the address."""

READ_SECONDS = 300.0
"""How long nothing at all may be heard; a call's own deadline is its caller's business."""

GOODBYE_SECONDS = 1.0
"""How long it may take to end a session there."""

_SESSION = "mcp-session-id"
_FAILED = 503

Streams: TypeAlias = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
Note: TypeAlias = Callable[[Exception | int], None]
"""Told what went wrong with a request: an exception, or the status that the server answered with."""


class TooLong(httpx2.TransportError):
    """An answer that is too long."""


class Unmet(httpx2.TransportError):
    """A call that would be the first on its connection: whoever answers there may offer something else by now."""


class Guarded(httpx2.AsyncClient):
    """A client whose requests never raise: they are answered with a failure, and why is noted."""

    def __init__(self, note: Note, **options: Any) -> None:
        super().__init__(**options)
        self._note = note

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send the request; a failure is an answer, too."""
        if _is_call(request):
            request.extensions = {**request.extensions, "trace": _on_known_ground}
        try:
            # To say goodbye is a courtesy: nobody waits for the answer.
            with anyio.fail_after(GOODBYE_SECONDS if request.method == "DELETE" else None):
                response = await super().send(request, **options)
            if response.headers.get("content-type", "").startswith("application/json"):
                # Read here, where it may fail; whoever reads it next gets what was read.
                await _bounded(response)
        except Exception as why:  # noqa: BLE001 - also what the signing of requests raises
            self._note(why)
            return _refusal(request)
        if response.status_code >= 400:
            gone = response.status_code == 404 and _SESSION in request.headers
            self._note(410 if gone else response.status_code)
        return response


def _is_call(request: httpx2.Request) -> bool:
    """Whether it calls a tool that was not looked at just now, and no session ties it to whoever listed it."""
    called = request.method == "POST" and b'"tools/call"' in request.content
    call = CURRENT.get()
    looked = call is not None and call.looked
    return called and not looked and _SESSION not in request.headers


async def _on_known_ground(event: str, _: Mapping[str, Any]) -> None:
    # Before the first byte: nothing was done yet.
    if event == "connection.connect_tcp.started":
        raise Unmet("the connection is new, and what is offered there was not looked at")


async def _bounded(response: httpx2.Response) -> None:
    if response.is_closed or hasattr(response, "_content"):
        return
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY:
            await response.aclose()
            raise TooLong(f"the answer has more than {MAX_BODY} bytes")
    response._content = bytes(body)  # pyright: ignore[reportPrivateUsage] - what `aread` would keep


def _refusal(request: httpx2.Request) -> httpx2.Response:
    error = {"code": INTERNAL_ERROR, "message": "the request failed"}
    return httpx2.Response(
        _FAILED, request=request, json={"jsonrpc": "2.0", "id": None, "error": error}
    )


@asynccontextmanager
async def http(
    url: str, headers: Mapping[str, str], services: Services, note: Note, timeout_ms: int
) -> AsyncGenerator[Streams]:
    """Talk with the server at `url`."""
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=max(READ_SECONDS, timeout_ms / 1000))
    async with (
        Guarded(note, headers=dict(headers), auth=services.auth, timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BODY) as streams,
    ):
        yield streams
