"""`GET /v1/events`: the journal as server-sent events, from any point, to many clients at once.

`id:` is the journal's seq. A client that was cut comes back with the last one it had (`Last-Event-ID`, or `?after=`)
and gets the rest: nothing twice, nothing left out. Each record is held against the rights of whoever asked before it
is sent. Where nothing is sent for long, the id goes on alone, so that who filters a lot need not look at it all again.

Nothing is queued for a client: it is a number and the chunk on its way. One that does not take a chunk in time is cut,
and may come back. The pieces of an agent's answers are on no record, so they carry no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from holdfast.contracts import parse
from holdfast.contracts._base import Asked
from holdfast.contracts.agent_event import DELTAS
from holdfast.errors import CallerError, HoldfastError
from holdfast.runtime import Runtime
from holdfast.server.callers import Caller
from holdfast.server.rpc import encoded
from holdfast.server.tail import Frame, Tail, TailClosed, start_of

PATH = "/v1/events"
CHUNK = 64 << 10
"""Bytes that are sent at once; more than one record may be longer."""
FAREWELL = b": the server stops, come back\n\n"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that collects before it passes on makes nothing live
}


class Wanted(Asked):
    """What a client asks for, in the query."""

    after: int | None = Field(default=None, ge=0)
    """Start after this seq; without, with what comes from now on. `Last-Event-ID` goes before it."""
    session: str | None = None
    """Only of this session."""
    run: str | None = None
    """Only of this run."""
    kind: str | None = None
    """Only these kinds, or first words of kinds, with commas between them: `approval,run_completed`."""
    payload: bool = False
    """Whether what the records say is sent, too, where their privacy class allows it."""
    live: bool = False
    """Whether the pieces of an agent's answers are sent as they come; needs `run`."""


@dataclass(slots=True)
class Hub:
    """What all clients of one server share. `hub_of(app)` is the app's."""

    hf: Runtime
    tail: Tail
    beat: float = 15.0
    """Seconds of silence after which a client is told that the connection lives."""
    patience: float = 30.0
    """Seconds that a client may take for a chunk before it is cut."""
    retry_ms: int = 1000
    """How long a client should wait before it comes back."""
    max_clients: int = 1000
    """More are sent away."""
    clients: int = 0
    """How many there are."""
    cut: int = 0
    """How many were cut because they did not read."""

    @classmethod
    def of(cls, hf: Runtime) -> Hub:
        """A hub for the journal of a runtime."""
        return cls(hf, Tail(hf.journal))

    def close(self) -> None:
        """Send every client away, to come back when the server does."""
        self.tail.close()


def hub_of(app: Starlette) -> Hub:
    """The hub of an app, made on first use. `app.state.hf` is the open runtime."""
    found: Hub | None = getattr(app.state, "events", None)
    if found is None:
        found = app.state.events = Hub.of(app.state.hf)
    return found


def routes() -> list[BaseRoute]:
    """`GET /v1/events`."""
    return [Route(PATH, events, methods=["GET"])]


async def events(request: Request) -> Response:
    """Records as they come, as server-sent events."""
    caller: Caller = request.state.caller
    caller.need("read")
    hub, wanted = hub_of(request.app), _wanted(request)
    if wanted.session is not None:
        caller.need_session(wanted.session)
    if wanted.live:
        await _check_live(hub.hf, caller, wanted.run)
    if hub.clients >= hub.max_clients:
        raise CallerError(
            "TOO_MANY_REQUESTS", f"{hub.clients} clients watch already.", hint="Come back later."
        )
    after = await start_of(hub.hf.journal, wanted.after)
    return EventStream(hub, caller, wanted, after)


def _wanted(request: Request) -> Wanted:
    given: dict[str, Any] = dict(request.query_params)
    if (known := request.headers.get("last-event-id", "").strip()) != "":
        given["after"] = known
    return parse(Wanted, given)


async def _check_live(hf: Runtime, caller: Caller, run_id: str | None) -> None:
    if run_id is None:
        raise CallerError("INVALID_ARGUMENT", "`live` needs a `run`.", hint="Add `&run=RUN`.")
    if caller.prefix is not None:  # told alike: there is none, and it is another's
        row = await hf.journal.row("runs", run_id)
        caller.need_session(None if row is None else str(row["session_id"]))
    await hf.runs.show(run_id)


class EventStream(Response):
    """One client, as long as it stays."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, caller: Caller, wanted: Wanted, after: int) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._caller = caller
        self._wanted = wanted
        named = (one.strip() for one in (wanted.kind or "").split(","))
        self._kinds = frozenset(one for one in named if one) or None
        self._seq = after
        self._told = after
        self._writing = anyio.Lock()
        self._pieced = 0
        """The seq up to which all pieces are sent."""
        self._stirred = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, then what comes, until the client is gone, is cut, or the server stops."""
        start: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        self._hub.clients += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                if self._wanted.live:
                    tasks.start_soon(self._pieces, send, tasks.cancel_scope)
                await self._records(send, tasks.cancel_scope)
                tasks.cancel_scope.cancel()
        finally:
            self._hub.clients -= 1

    async def _records(self, send: Send, stop: anyio.CancelScope) -> None:
        # The first id makes sure that who is cut before the first record comes back to here, not to a later now.
        hello = b"retry: %d\nid: %d\n\n" % (self._hub.retry_ms, self._seq)
        await self._send(send, hello, stop)
        try:
            while True:
                frames: Sequence[Frame] = ()
                with anyio.move_on_after(self._hub.beat):
                    frames = await self._hub.tail.after(self._seq)
                await self._forward(send, frames, stop)
        except TailClosed:
            last = FAREWELL
        except HoldfastError as why:
            last = b"event: error\ndata: %s\n\n" % encoded(why.to_json())
        await self._send(send, last, stop, more=False)

    async def _forward(self, send: Send, frames: Sequence[Frame], stop: anyio.CancelScope) -> None:
        """Send what is for this client; after a silence, just how far it is."""
        chunk = bytearray()
        for frame in frames:
            if self._is_for(frame):
                if self._wanted.live and frame.kind in _ENDS:
                    if chunk:
                        await self._send(send, bytes(chunk), stop)
                        chunk.clear()
                    await self._all_pieces(frame.seq)
                chunk += frame.told(payload=self._wanted.payload)
                self._told = frame.seq
            self._seq = frame.seq
            if len(chunk) >= CHUNK:
                await self._send(send, bytes(chunk), stop)
                chunk.clear()
        if chunk:
            await self._send(send, bytes(chunk), stop)
        elif not frames or self._seq - self._told >= _FAR:
            self._told = self._seq
            await self._send(send, b": beat\nid: %d\n\n" % self._seq, stop)

    def _is_for(self, frame: Frame) -> bool:
        wanted = self._wanted
        return (
            self._caller.sees(frame.session_id)
            and wanted.session in (None, frame.session_id)
            and wanted.run in (None, frame.run_id)
            and (self._kinds is None or frame.kind in self._kinds or frame.family in self._kinds)
        )

    async def _pieces(self, send: Send, stop: anyio.CancelScope) -> None:
        """The pieces of answers, between the records. They are made anew for who comes late, never kept for it."""
        try:
            async for event in self._hub.hf.agents.events(str(self._wanted.run), after=self._seq):
                if isinstance(event, DELTAS):
                    await self._send(send, b"event: piece\ndata: %s\n\n" % encoded(event), stop)
                else:
                    self._note(event.seq)
        except HoldfastError:
            pass  # no run of an agent, or the journal is closed; the records tell
        self._note(_NO_MORE)

    def _note(self, seq: int) -> None:
        self._pieced = seq
        self._stirred.set()
        self._stirred = anyio.Event()

    async def _all_pieces(self, seq: int) -> None:
        """Return once no piece is left that belongs before this record: who sees the end of a run may leave."""
        with anyio.move_on_after(_PIECES):
            while self._pieced < seq:
                await self._stirred.wait()

    async def _send(
        self, send: Send, chunk: bytes, stop: anyio.CancelScope, *, more: bool = True
    ) -> None:
        message: Message = {"type": "http.response.body", "body": chunk, "more_body": more}
        async with self._writing:
            with anyio.move_on_after(self._hub.patience) as waiting:
                await send(message)
        if waiting.cancelled_caught:
            # It leaves without the end of the body: the server closes the connection, and the client sees that.
            self._hub.cut += 1
            stop.cancel()
            await checkpoint()


_ENDS = frozenset({"run_completed", "run_failed", "run_cancelled", "run_parked"})
_PIECES = 2.0
"""Seconds that the end of a run waits for pieces; they are worth no more."""
_NO_MORE = 1 << 63
_FAR = 10_000
"""Records that may pass a client by before it is told how far it is."""


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
