"""A provider on this machine: a real HTTP server that speaks OpenAI, Anthropic and Google, in front of any model.

```python
from holdfast.models import model
from holdfast.testing import ProviderServer, fail, say

with ProviderServer([fail("MODEL_RATE_LIMITED", retry_after_ms=1_000), say("Hello.")]) as server:
    m = model(f"openai:gpt-5.2@{server.url}/v1")
```

The real client libraries talk to it; it answers by script, streaming or not, and can refuse, break off, babble, or take
its time. It runs in a thread of its own, so tests may block, and other processes may ask it.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import anyio.abc
from anyio.abc import ByteStream, TaskStatus
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from holdfast.contracts.model import ModelAnswer
from holdfast.errors import ModelFailure
from holdfast.models.base import Model
from holdfast.models.script import Step
from holdfast.models.scripted import Author, Scripted, deltas
from holdfast.testing._protocols import PROTOCOLS, Protocol

_LARGEST = 1 << 26
_FILTERED = "MODEL_CONTENT_FILTERED"
_JSON = "application/json"
_EVENTS = "text/event-stream"
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply that no script can say: given as it is, then the connection ends."""

    status: int = 200
    """The HTTP status."""
    body: bytes = b""
    """What is sent."""
    content_type: str = _JSON
    """What it claims to be."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further headers."""
    promised: int | None = None
    """The length that is announced; more than the body breaks off in the middle."""


@dataclass(frozen=True, slots=True)
class Received:
    """What a client sent."""

    path: str
    """Path and query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: dict[str, Any]
    """The JSON."""


class ProviderServer(AbstractContextManager["ProviderServer"]):
    """Answers as a provider would, by script. Enter it to start it; `url` is where it is."""

    def __init__(self, script: Sequence[Step] | Author | Model, *, key: str | None = None) -> None:
        """Whoever does not send `key` is refused; `None` lets everybody in."""
        self.model: Model = script if isinstance(script, Model) else Scripted(script)
        """What answers."""
        self.requests: list[Received] = []
        """What was received, in order."""
        self.raw: list[Raw] = []
        """What is replied to the next requests, before the script goes on."""
        self.hung_up = 0
        """How many clients went away before they had their answer."""
        self.pause_ms = 0
        """How long it waits before each event of a stream."""
        self.url = ""
        """`http://127.0.0.1:port`."""
        self._key = key
        self._running = ExitStack()
        self._open: set[ByteStream] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            serving: Future[None]
            serving, port = portal.start_task(self._serve)
            stack.callback(serving.cancel)
            self._running = stack.pop_all()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    async def _serve(self, *, task_status: TaskStatus[int]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        async with listener:
            task_status.started(listener.extra(anyio.abc.SocketAttribute.local_port))
            try:
                await listener.serve(self._begin)
            finally:
                with anyio.CancelScope(shield=True):
                    for stream in [*self._open]:
                        await anyio.aclose_forcefully(stream)

    def _begin(self, stream: ByteStream) -> Coroutine[Any, Any, None]:
        """Note a connection before its task begins: one that is cancelled before that would never close it."""
        self._open.add(stream)
        return self._client(stream)

    async def _client(self, stream: ByteStream) -> None:
        async with stream:
            try:
                buffered = BufferedByteReceiveStream(stream)
                while await self._one(stream, buffered):
                    pass
            except (anyio.EndOfStream, anyio.IncompleteRead, OSError):
                pass
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.hung_up += 1
        self._open.discard(stream)

    async def _one(self, stream: ByteStream, buffered: BufferedByteReceiveStream) -> bool:
        """Answer one request; whether the connection goes on."""
        received = await _received(buffered)
        self.requests.append(received)
        if self.raw:
            await _send_raw(stream, self.raw.pop(0))
            return False
        kind = next((one for one in PROTOCOLS if one.path in received.path), None)
        if kind is None:
            await _send(stream, 404, {"error": {"message": f"There is no {received.path}."}})
            return True
        protocol = kind(received.path, received.body)
        if not self._admits(received, kind):
            refused = protocol.refuse(ModelFailure("MODEL_AUTH", "Incorrect API key provided."))
            await _send(stream, refused.status, refused.body)
            return True
        return await self._answer(stream, protocol)

    def _admits(self, received: Received, kind: type[Protocol]) -> bool:
        sent = [received.headers.get(name, "") for name in kind.key_headers]
        return self._key is None or any(one.removeprefix("Bearer ") == self._key for one in sent)

    async def _answer(self, stream: ByteStream, protocol: Protocol) -> bool:
        answer: ModelAnswer | None = None
        failed: ModelFailure | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, stream, tasks.cancel_scope)
            answer, failed = await self._asked(protocol)
            tasks.cancel_scope.cancel()
        if failed is not None and failed.code != "MODEL_STREAM_CUT":
            await _refuse(stream, protocol, failed)
            return True
        if answer is None and failed is None:
            return False  # the client went away
        if protocol.streaming:
            await _send_events(stream, _events(protocol, answer, failed), self.pause_ms)
            if failed is None:
                await stream.send(_LAST_CHUNK)
        elif answer is not None and failed is None:
            await _send(stream, 200, protocol.whole(answer))
        else:
            await _send_raw(stream, Raw(body=b'{"id": "', promised=1_000))
        return failed is None

    async def _asked(self, protocol: Protocol) -> tuple[ModelAnswer | None, ModelFailure | None]:
        """What the model says, and how it failed."""
        try:
            return await self.model.request(protocol.question()), None
        except ModelFailure as why:
            if why.code == _FILTERED and _FILTERED not in protocol.statuses:
                return ModelAnswer(finish="content_filter"), None
            return (why.partial if isinstance(why.partial, ModelAnswer) else None), why

    async def _watch(self, stream: ByteStream, scope: anyio.CancelScope) -> None:
        """Notice that the client goes away while its answer is thought about."""
        try:
            await stream.receive(1)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.hung_up += 1
            scope.cancel()


async def _received(stream: BufferedByteReceiveStream) -> Received:
    head = await stream.receive_until(b"\r\n\r\n", _LARGEST)
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await stream.receive_exactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, json.loads(body or b"{}"))


def _head(status: int, kind: str, more: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", f"content-type: {kind}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _send(
    stream: ByteStream, status: int, body: object, more: Mapping[str, str] | None = None
) -> None:
    written = json.dumps(body).encode()
    length = {"content-length": str(len(written))}
    await stream.send(_head(status, _JSON, {**length, **(more or {})}) + written)


async def _refuse(stream: ByteStream, protocol: Protocol, failure: ModelFailure) -> None:
    refused = protocol.refuse(failure)
    more: dict[str, str] = {}
    if failure.retry_after_ms is not None:
        # Whole seconds as the standard has it, and the exact number where clients look for it first.
        more["retry-after"] = str(-(-failure.retry_after_ms // 1_000))
        more["retry-after-ms"] = str(failure.retry_after_ms)
    await _send(stream, refused.status, refused.body, more)


async def _send_raw(stream: ByteStream, raw: Raw) -> None:
    length = len(raw.body) if raw.promised is None else raw.promised
    more = {"content-length": str(length), "connection": "close", **raw.headers}
    await stream.send(_head(raw.status, raw.content_type, more) + raw.body)


async def _send_events(stream: ByteStream, events: Iterator[str], pause_ms: float) -> None:
    await stream.send(_head(200, _EVENTS, {"transfer-encoding": "chunked"}))
    for event in events:
        if pause_ms:
            await anyio.sleep(pause_ms / 1_000)
        written = event.encode()
        await stream.send(f"{len(written):x}\r\n".encode() + written + b"\r\n")


def _events(
    protocol: Protocol, answer: ModelAnswer | None, failed: ModelFailure | None
) -> Iterator[str]:
    protocol.answer = answer
    yield from protocol.begin()
    if answer is None:
        return
    for delta in deltas(answer):
        yield from protocol.piece(delta)
    if failed is None:
        yield from protocol.end(answer)
