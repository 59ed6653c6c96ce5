"""One request over the network: to the very address that was checked, with size and encoding bounded.

Names are looked up here and nowhere else: the connection is made to an address that passed, while the
certificate and the `Host` header stay those of the name. A second lookup, which might answer differently,
does not happen. httpcore does no redirects, no cookies and no proxies, so there is nothing to switch off.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from socket import SOCK_STREAM
from typing import cast

import anyio
import httpcore

from holdfast._version import __version__
from holdfast.capabilities.builtin._hosts import Hosts, Target, address_of
from holdfast.errors import ModelError

MAX_ADDRESSES = 4
"""How many addresses of a name are tried."""
_GZIP_OR_ZLIB = 47  # zlib's code for: look at the header

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name. The one place to put another resolver, for a test or a network of its own."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the system knows them."""
    found = await anyio.getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    content_type: str
    location: str | None
    """Where a redirect leads."""
    body: bytes


class Broken(Exception):
    """There is no answer, or no whole one."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent
        """Whether the other side may have got the request."""


class Wire:
    """Fetches checked targets."""

    def __init__(self, hosts: Hosts, look_up: Resolve, *, max_bytes: int, timeout: float) -> None:
        self._backend = _Pinned(hosts, look_up, timeout)
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._ssl: ssl.SSLContext | None = None

    async def get(self, target: Target) -> Answer:
        """Fetch, once, without following; raises `ConnectionError` for what goes wrong on the way."""
        try:
            return await self.send("GET", target)
        except Broken as why:
            raise ConnectionError(f"{why}: {target}") from None

    async def send(
        self,
        method: str,
        target: Target,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Make one request, without following; raises `Broken` for what goes wrong on the way."""
        if self._ssl is None and target.scheme == "https":
            self._ssl = httpcore.default_ssl_context()
        url = httpcore.URL(
            scheme=target.scheme, host=target.host, port=target.port, target=target.path
        )
        sent = _asked(target, headers or {}, body)
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self._ssl, network_backend=self._backend, max_connections=1
        )
        try:
            async with (
                pool,
                pool.stream(method, url, headers=sent, content=body) as response,
            ):
                return await self._read(response)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as why:
            unsent = isinstance(why, httpcore.ConnectError | httpcore.ConnectTimeout)
            raise Broken(_explained(why), sent=not unsent) from None

    async def begin(self, target: Target, headers: Mapping[str, str]) -> Flow:
        """Ask with GET, and give the answer while it still comes; whoever gets it closes it. Raises `Broken`."""
        if self._ssl is None and target.scheme == "https":
            self._ssl = httpcore.default_ssl_context()
        url = httpcore.URL(
            scheme=target.scheme, host=target.host, port=target.port, target=target.path
        )
        sent = {
            "Host": target.authority,
            "User-Agent": f"holdfast/{__version__}",
            "Accept": "*/*",
            # A range of bytes is one of the very bytes, not of packed ones.
            "Accept-Encoding": "identity",
            **headers,
            "Connection": "close",
        }
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self._ssl, network_backend=self._backend, max_connections=1
        )
        try:
            request = httpcore.Request("GET", url, headers=list(sent.items()))
            return Flow(pool, await pool.handle_async_request(request), self._max_bytes)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as why:
            raise Broken(_explained(why), sent=True) from None
        except ValueError:
            await pool.aclose()  # an encoding that was not asked for
            raise

    async def _read(self, response: httpcore.Response) -> Answer:
        headers = _headers(response)
        location = headers.get(b"location")
        if response.status in (301, 302, 303, 307, 308) and location is not None:
            return Answer(response.status, "", location, b"")
        unpack = _unpacker(headers.get(b"content-encoding", ""))
        body = bytearray()
        async for chunk in response.aiter_stream():
            for part in unpack(chunk, self._max_bytes):
                body += part
                if len(body) > self._max_bytes:
                    raise ModelError(
                        "RESPONSE_TOO_LARGE",
                        f"The answer has more than {self._max_bytes} bytes.",
                        hint="Ask for less: a page, a range, a filter.",
                    )
        return Answer(response.status, headers.get(b"content-type", ""), None, bytes(body))


class Flow:
    """An answer while it still comes."""

    def __init__(
        self, pool: httpcore.AsyncConnectionPool, response: httpcore.Response, max_bytes: int
    ) -> None:
        self.status = response.status
        self.headers = {name.decode("latin-1"): one for name, one in _headers(response).items()}
        """By name, in lower case."""
        self._pool = pool
        self._response = response
        self._max_bytes = max_bytes
        self._unpack = _unpacker(self.headers.get("content-encoding", ""))
        self._chunks = self._pieces()

    async def next(self) -> bytes:
        """Some more of the body, unpacked, never more than the wire's limit; nothing at the end. Raises `Broken`."""
        try:
            async for piece in self._chunks:
                if piece:
                    return piece
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as why:
            raise Broken(_explained(why), sent=True) from None
        return b""

    async def aclose(self) -> None:
        """Hang up, whether or not all of it came."""
        await self._chunks.aclose()
        await self._response.aclose()
        await self._pool.aclose()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        async for chunk in self._response.aiter_stream():
            for piece in self._unpack(chunk, self._max_bytes):
                yield piece


def _headers(response: httpcore.Response) -> dict[bytes, str]:
    # Of a header sent twice, the first.
    return {name.lower(): value.decode("latin-1") for name, value in reversed(response.headers)}


class _Pinned(httpcore.AsyncNetworkBackend):
    """Looks a name up, drops the addresses that are not allowed, and connects to one that is."""

    def __init__(self, hosts: Hosts, look_up: Resolve, timeout: float) -> None:
        self._hosts = hosts
        self._look_up = look_up
        self._timeout = timeout
        # It says what it is only where anyio is installed.
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        # One address that swallows packets must not use up the time of the others.
        share = self._timeout / (len(addresses) + 1)
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(addresses[-1], port, timeout)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore has it
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("no sockets but TCP")

    async def _addresses(self, host: str, port: int) -> list[str]:
        if address_of(host) is not None:
            return self._hosts.usable(host, [host])
        try:
            found = await self._look_up(host, port)
        except OSError:
            raise httpcore.ConnectError("no such host") from None
        return self._hosts.usable(host, found)[:MAX_ADDRESSES]


def _asked(target: Target, given: Mapping[str, str], body: bytes | None) -> list[tuple[str, str]]:
    """All headers of a request: ours can be replaced, those of the connection can't."""
    ours = {"User-Agent": f"holdfast/{__version__}", "Accept": "*/*"}
    fixed = {"Host": target.authority, "Accept-Encoding": "gzip", "Connection": "close"}
    if body is not None:
        fixed["Content-Length"] = str(len(body))
    names = {one.lower() for one in given}
    taken = {"content-length", "transfer-encoding", *(one.lower() for one in fixed)}
    return [
        *fixed.items(),
        *((name, value) for name, value in ours.items() if name.lower() not in names),
        *((name, value) for name, value in given.items() if name.lower() not in taken),
    ]


def _unpacker(encoding: str) -> Callable[[bytes, int], Iterable[bytes]]:
    match encoding.strip().lower():
        case "" | "identity":
            return lambda chunk, _limit: (chunk,)
        case "gzip" | "x-gzip" | "deflate":
            return _Unzip()
        case other:
            raise ValueError(f"The answer is encoded as `{other[:80]}`, which was not asked for.")


class _Unzip:
    """Unpacks as it comes, never more than a limit at a time."""

    def __init__(self) -> None:
        self._zip = zlib.decompressobj(_GZIP_OR_ZLIB)

    def __call__(self, chunk: bytes, limit: int) -> Iterable[bytes]:
        try:
            while chunk:
                if self._zip.eof:
                    self._zip = zlib.decompressobj(_GZIP_OR_ZLIB)  # gzip files can be chained
                yield self._zip.decompress(chunk, limit + 1)
                chunk = self._zip.unconsumed_tail or self._zip.unused_data
        except zlib.error:
            raise ValueError("The answer says it is compressed, and is not.") from None


def _explained(why: Exception) -> str:
    """What went wrong, in words that give away nothing about the network inside."""
    if isinstance(why, httpcore.ProtocolError):
        return "The server broke off or did not speak HTTP"
    chain: BaseException | None = why
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return "The server's certificate or encryption is not acceptable"
        chain = chain.__cause__ or chain.__context__
    return "No such host" if "no such host" in str(why) else "Could not connect"
