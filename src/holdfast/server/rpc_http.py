"""`/rpc`: JSON-RPC 2.0 over HTTP. A POST is one message or one batch; a WebSocket is a connection like the daemon's.

A POST is answered with status 200 whatever the answer says, and with 204 when there is none (notifications). It has no
way back for events: `journal.subscribe` answers with the address of a stream of them. What was asked is finished also
when the client is gone: the journal has it. When the server stops, whoever waits for a run is told which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast.errors import CallerError
from holdfast.server import events
from holdfast.server.callers import Caller
from holdfast.server.connections import Connections
from holdfast.server.methods import Methods
from holdfast.server.rpc import Connection, Method

PATH = "/rpc"
NORMAL, POLICY_VIOLATION, RESTART = 1000, 1008, 1012
"""How a WebSocket is closed."""


def sockets_of(app: Starlette) -> Connections:
    """The open WebSockets of an app, made on first use."""
    found: Connections | None = getattr(app.state, "sockets", None)
    if found is None:
        found = app.state.sockets = Connections()
    return found


def routes() -> list[BaseRoute]:
    """`POST /rpc`, and the WebSocket of the same name."""
    return [Route(PATH, post, methods=["POST"]), WebSocketRoute(PATH, socket)]


async def post(request: Request) -> Response:
    """Answer one message or batch."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Not for tidiness: a page of another site can make a browser send anything but this without asking first.
        raise CallerError(
            "INVALID_ARGUMENT",
            "The content type is not `application/json`.",
            hint="Send `Content-Type: application/json`.",
        )
    table = _table(request, request.state.caller, stream=events.PATH)
    found = await Connection(table, _nowhere).answer(await request.body())
    if found is None:
        return Response(status_code=204)
    return Response(found, media_type="application/json")


async def socket(websocket: WebSocket) -> None:
    """A connection: requests are answered as they are done, events come in between."""
    caller: Caller | None = getattr(websocket.state, "caller", None)
    if caller is None:
        await websocket.close(POLICY_VIOLATION)
        return
    await websocket.accept()

    async def send(data: bytes) -> None:
        try:
            await websocket.send_text(data.decode().rstrip("\n"))
        except (WebSocketDisconnect, RuntimeError):
            pass  # the client is gone; what it asked for is done all the same, and on record

    async def receive() -> bytes | None:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return text.encode() if text is not None else message["bytes"]

    connection = Connection(_table(websocket, caller), send)
    await sockets_of(websocket.app).serve(connection, receive)
    if websocket.application_state is not WebSocketState.DISCONNECTED:
        await _closed(websocket, RESTART if connection.left else NORMAL)


async def _closed(websocket: WebSocket, code: int) -> None:
    try:
        await websocket.close(code)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client closed it


def _table(
    conn: HTTPConnection, caller: Caller, *, stream: str | None = None
) -> Mapping[str, Method]:
    """The methods, as this caller may use them."""
    app: Starlette = conn.app
    # `Any`: parts of the server that a small one (in a test) need not have.
    work: Any = getattr(app.state, "work", None)
    refusals: Any = getattr(app.state, "refusals", None)
    note = None
    if refusals is not None:
        method = conn.scope.get("method", "GET")
        note = partial(
            refusals.note, actor=caller.id, via=caller.via, method=method, path=conn.scope["path"]
        )
    return Methods(
        app.state.hf,
        app.state.background,
        caller=caller,
        events=stream,
        note=note,
        work=work,
    ).table


async def _nowhere(_: bytes) -> NoReturn:
    raise AssertionError("there is nobody to send this to")
