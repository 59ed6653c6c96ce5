"""A web server on loopback that says whatever a test wants, byte by byte."""

import inspect
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

TLS = Path(__file__).parent / "tls"


def reply(
    body: bytes | str = b"", status: str = "200 OK", *headers: str, length: bool = True
) -> bytes:
    """One whole answer."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", *headers, *([f"Content-Length: {len(data)}"] if length else [])]
    return "\r\n".join([*lines, "", ""]).encode() + data


@dataclass
class Server:
    """What came in, and what goes out."""

    port: int = 0
    requests: list[str] = field(default_factory=list[str])
    connections: int = 0
    names: list[str | None] = field(default_factory=list[str | None])
    """The names asked for when encryption began."""

    def url(self, path: str = "/", host: str = "localhost", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


Answers = Callable[[str], bytes]
Speaks = Callable[[ByteStream], Awaitable[None]]


@asynccontextmanager
async def serving(answers: Answers | Speaks, *, tls: bool = False) -> AsyncIterator[Server]:
    """A server that answers each path with bytes, or speaks for itself."""
    server = Server()

    async def handle(stream: ByteStream) -> None:
        server.connections += 1
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            server.requests.append(head.decode())
            try:
                answer = answers(head.decode().split()[1])  # type: ignore[arg-type]
                if isinstance(answer, bytes):
                    await stream.send(answer)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the other side has heard enough

    async def speak(stream: ByteStream) -> None:
        server.connections += 1
        async with stream:
            try:
                await answers(stream)  # type: ignore[misc, arg-type]
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                pass  # the other side has heard enough

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", reuse_port=False)
    server.port = listener.extra(SocketAttribute.local_port)
    serving_on = TLSListener(listener, _context(server), False) if tls else listener
    async with serving_on, anyio.create_task_group() as tasks:
        tasks.start_soon(serving_on.serve, speak if _is_async(answers) else handle)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function)


def _context(server: Server) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")

    def asked(_socket: object, name: str | None, _context: object) -> None:
        server.names.append(name)

    context.sni_callback = asked
    return context
