"""Attacks on `fetch_text` and `fetch_json`: to hosts not granted, to addresses inside, on time and memory."""

import gzip
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream
from hypothesis import given
from hypothesis import strategies as st
from tests.capabilities.support import Box
from tests.capabilities.web import TLS, reply, serving

from holdfast.capabilities.builtin import http
from holdfast.capabilities.builtin._hosts import is_public
from holdfast.errors import HoldfastError, ModelError

PUBLIC = "93.184.216.34"
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


def answering(*answers: Sequence[str]) -> tuple[Resolve, list[str]]:
    """A resolver that says something else each time, and the names it was asked for."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


async def denied(box: Box, url: str) -> str:
    for tool in ("fetch_text", "fetch_json"):
        with pytest.raises(ModelError) as caught:
            await box(tool, url)
        assert caught.value.code == "PERMISSION_DENIED"
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "https://example.com.evil.com/",
        "https://evilexample.com/",
        "https://api.example.com.",
        "https://api.example.com:8443/",
        "https://api.example.com:0/",
        "http://api.example.com/",
        "http://api.example.com:443/",
        "https://sub.api.example.com/",
        "https://tree.org/",
        "https://evil.com#api.example.com",
        "https://evil.com?api.example.com",
        "https://evil.com/api.example.com",
        "https://api.example.com@evil.com/",
        "https://user:pw@api.example.com/",
        "https://user@api.example.com/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://localhost/",
        "http://169.254.169.254/latest/meta-data",
        "https://аpi.example.com/",  # a Cyrillic letter
        "https://api%2eexample%2ecom/",
        "https://api.example.com%00.evil.com/",
    ],
)
async def test_only_listed_hosts_are_reached(url: str, dialled: list[str]):
    resolve, asked = answering([PUBLIC])
    box = Box(http(["api.example.com", "*.tree.org"], resolve=resolve))
    await denied(box, url)
    assert (asked, dialled) == ([], [])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com",
        "//api.example.com/",
        "file:///etc/passwd",
        "ftp://api.example.com/",
        "gopher://api.example.com/",
        "data:text/plain,x",
        "https:///x",
        "https://api.example.com:port/",
        "https://api.example.com:99999/",
        "https://[::1/",
        "https://api.example.com\\@evil.com/",
        "https://api.example.com/a b",
        "https://api.example.com/\r\nHost: evil.com",
        "https://api.example.com/\x00",
        "https://api.example.com/\t",
        "https://api.exa\u200bmple.com/",
        "https://℀.example.com/",
        "https://api.example.com/" + "x" * 9000,
    ],
)
async def test_what_is_no_web_address_is_told(url: str, dialled: list[str]):
    resolve, asked = answering([PUBLIC])
    box = Box(http(["api.example.com"], resolve=resolve))
    with pytest.raises((ValueError, ModelError)):
        await box("fetch_text", url)
    assert (asked, dialled) == ([], [])


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("api.example.com", "HTTPS://API.Example.COM:443/x"),
        ("*.example.com", "https://a.b.example.com/"),
        ("api.example.com:8443", "https://api.example.com:8443/"),
        ("http://api.example.com", "http://api.example.com/"),
        ("https://api.example.com", "https://api.example.com/"),
    ],
)
async def test_listed_hosts_are_dialled_at_the_checked_address(
    entry: str, url: str, dialled: list[str]
):
    resolve, asked = answering([PUBLIC])
    with pytest.raises(ConnectionError, match="Could not connect"):
        await Box(http([entry], resolve=resolve))("fetch_text", url)
    assert (len(asked), dialled) == (1, [PUBLIC])


INSIDE = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:93.184.216.34",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "2606:4700::1%eth0",
    "nonsense",
    "",
]


@pytest.mark.parametrize("address", INSIDE)
async def test_a_name_that_leads_inside_is_refused(address: str, dialled: list[str]):
    resolve, _ = answering([address])
    said = await denied(Box(http(["api.example.com"], resolve=resolve)), "https://api.example.com/")
    assert dialled == []
    assert not address or address not in said


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1"])
def test_the_internet_is_public(address: str):
    assert is_public(ip_address(address))


@given(st.ip_addresses())
def test_what_is_private_to_python_is_not_public(address: Any):
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert not is_public(address)


async def test_only_the_public_addresses_of_a_name_are_dialled(dialled: list[str]):
    resolve, _ = answering(["127.0.0.1", PUBLIC, "10.0.0.1", "8.8.8.8"])
    with pytest.raises(ConnectionError):
        await Box(http(["api.example.com"], resolve=resolve))(
            "fetch_text", "https://api.example.com"
        )
    assert dialled == [PUBLIC, "8.8.8.8"]


async def test_localhost_does_not_lead_outside(dialled: list[str]):
    resolve, _ = answering([PUBLIC, "10.0.0.1"])
    await denied(Box(http(["localhost:80"], resolve=resolve)), "http://localhost:80/")
    assert dialled == []


async def test_a_second_lookup_never_happens(dialled: list[str], monkeypatch: pytest.MonkeyPatch):
    """Rebinding: public for the check, loopback for the connection. There is one lookup, and it is used."""

    def no_lookup(*_args: object, **_more: object) -> Any:
        raise AssertionError("looked up behind our back")

    resolve, asked = answering([PUBLIC], ["127.0.0.1"])
    async with serving(lambda _: reply("inside")) as server:
        monkeypatch.setattr(socket, "getaddrinfo", no_lookup)
        monkeypatch.setattr(socket, "gethostbyname", no_lookup)
        box = Box(http([f"http://api.example.com:{server.port}"], resolve=resolve))
        url = server.url(host="api.example.com")
        with pytest.raises(ConnectionError):
            await box("fetch_text", url)
        assert (asked, dialled) == (["api.example.com"], [PUBLIC])
        # The next call looks again, and what it finds is checked again.
        with pytest.raises(ModelError):
            await box("fetch_text", url)
        assert server.connections == 0


async def test_the_name_stays_in_the_certificate_and_the_header(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    connect = anyio.connect_tcp

    # Stands for the Internet: what is dialled at the public address is answered on loopback.
    async def dial(remote_host: str, remote_port: int, **more: Any) -> Any:
        assert remote_host == PUBLIC
        return await connect("127.0.0.1", remote_port, **more)

    resolve, _ = answering([PUBLIC])
    async with serving(lambda _: reply("x"), tls=True) as server:
        monkeypatch.setattr(anyio, "connect_tcp", dial)
        box = Box(
            http(
                [f"api.example.com:{server.port}", f"b.example.com:{server.port}"], resolve=resolve
            )
        )
        url = server.url(host="api.example.com", scheme="https")
        assert (await box("fetch_text", url))["url"] == url
        assert server.names == ["api.example.com"]
        assert f"Host: api.example.com:{server.port}\r\n" in server.requests[0]
        with pytest.raises(ConnectionError, match="certificate"):
            await box("fetch_text", server.url(host="b.example.com", scheme="https"))


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:{port}/inside",
        "http://[::1]:{port}/inside",
        "http://[::ffff:127.0.0.1]:{port}/inside",
        "http://2130706433:{port}/inside",
        "//127.0.0.1:{port}/inside",
        "https://localhost:{other}/inside",
        "http://localhost:{other}/inside",
        "http://evil.com/",
        "http://user:pw@localhost:{port}/inside",
        "https://10.0.0.1/",
        "http://api.example.com/",
    ],
)
async def test_a_redirect_is_checked_like_a_first_url(location: str, dialled: list[str]):
    def answers(path: str) -> bytes:
        if path == "/inside":
            return reply("inside")
        return reply(
            "", "302 Found", f"Location: {location.format(port=port[0], other=port[0] ^ 1)}"
        )

    port = [0]
    async with serving(answers) as server:
        port[0] = server.port
        box = Box(http([f"localhost:{server.port}", "api.example.com"]))
        await denied(box, server.url("/start"))
        assert all("GET /start" in one for one in server.requests)


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://localhost/", "http://[", "javascript:x", "http://a b/"],
)
async def test_a_redirect_to_something_else_is_told(location: str):
    async with serving(lambda _: reply("", "302 Found", f"Location: {location}")) as server:
        with pytest.raises(ValueError, match="URL"):
            await Box(http([f"localhost:{server.port}"]))("fetch_text", server.url())


async def test_a_redirect_to_a_name_that_leads_inside_is_refused():
    def answers(path: str) -> bytes:
        if path == "/inside":
            return reply("inside")
        return reply("", "302 Found", f"Location: http://rebind.example.com:{port[0]}/inside")

    async def resolve(host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    port = [0]
    async with serving(answers) as server:
        port[0] = server.port
        hosts = [f"localhost:{server.port}", f"http://rebind.example.com:{server.port}"]
        await denied(Box(http(hosts, resolve=resolve)), server.url("/start"))
        assert all("GET /start" in one for one in server.requests)


async def test_redirects_do_not_loop():
    async with serving(lambda _: reply("", "302 Found", "Location: /")) as server:
        with pytest.raises(ConnectionError):
            await Box(http([f"localhost:{server.port}"]))("fetch_text", server.url())


@pytest.mark.parametrize("layers", [1, 2])
async def test_a_gzip_bomb_does_not_go_off(layers: int):
    bomb = gzip.compress(b"\0" * 50_000_000)
    encoding = ", ".join(["gzip"] * layers)
    async with serving(lambda _: reply(bomb, "200 OK", f"Content-Encoding: {encoding}")) as server:
        box = Box(http([f"localhost:{server.port}"]))
        tracemalloc.start()
        try:
            with pytest.raises((HoldfastError, ValueError)) as caught:
                await box("fetch_text", server.url())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # All of it comes in one piece, so stopping after the first would be too late.
        assert peak < 20_000_000
        if layers == 1:
            assert isinstance(caught.value, ModelError)
            assert caught.value.code == "RESPONSE_TOO_LARGE"


async def endless_body(stream: ByteStream) -> None:
    await stream.receive()
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await stream.send(b"x" * 65536)


async def lying_about_length(stream: ByteStream) -> None:
    await stream.receive()
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    while True:
        await stream.send(b"x" * 65536)


async def endless_chunks(stream: ByteStream) -> None:
    await stream.receive()
    await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")


@pytest.mark.parametrize("speaks", [endless_body, lying_about_length, endless_chunks])
async def test_a_body_without_end_is_cut(speaks: Callable[[ByteStream], Awaitable[None]]):
    async with serving(speaks) as server:
        with pytest.raises(ModelError) as caught:
            await Box(http([f"localhost:{server.port}"]))("fetch_text", server.url())
        assert caught.value.code == "RESPONSE_TOO_LARGE"


async def endless_headers(stream: ByteStream) -> None:
    await stream.receive()
    await stream.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send(b"X-More: " + b"x" * 1000 + b"\r\n")


async def endless_interim(stream: ByteStream) -> None:
    await stream.receive()
    while True:
        await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await anyio.lowlevel.checkpoint()


async def silence(stream: ByteStream) -> None:
    await anyio.sleep_forever()


async def drip(stream: ByteStream) -> None:
    await stream.receive()
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.01)


async def drip_headers(stream: ByteStream) -> None:
    while True:
        await stream.send(b"H")
        await anyio.sleep(0.01)


@pytest.mark.parametrize("speaks", [silence, drip, drip_headers, endless_headers, endless_interim])
async def test_a_slow_or_talkative_server_does_not_hold_us(
    speaks: Callable[[ByteStream], Awaitable[None]],
):
    async with serving(speaks) as server:
        box = Box(http([f"localhost:{server.port}"], timeout_ms=300))
        with pytest.raises((ModelError, ConnectionError)) as caught:
            await box("fetch_text", server.url())
        if isinstance(caught.value, ModelError):
            assert caught.value.code == "TIMEOUT_TOOL"


async def test_a_slow_resolver_does_not_hold_us():
    async def never(_host: str, _port: int) -> Sequence[str]:
        await anyio.sleep_forever()
        return []

    box = Box(http(["api.example.com"], timeout_ms=100, resolve=never))
    with pytest.raises(ModelError) as caught:
        await box("fetch_text", "https://api.example.com/")
    assert caught.value.code == "TIMEOUT_TOOL"


async def test_cancelling_lets_go_of_the_connection():
    closed = anyio.Event()

    async def wait(stream: ByteStream) -> None:
        await stream.receive()
        try:
            await stream.receive()
        finally:
            closed.set()

    async with serving(wait) as server:
        with anyio.move_on_after(0.2) as scope:
            await Box(http([f"localhost:{server.port}"]))("fetch_text", server.url())
        assert scope.cancelled_caught
        with anyio.fail_after(10):
            await closed.wait()


@pytest.mark.parametrize(
    "speaks",
    [
        b"\xff\xfe garbage",
        b"HTTP/9.9 xyz\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_a_server_that_speaks_something_else_is_told(speaks: bytes):
    async with serving(lambda _: speaks) as server:
        with pytest.raises(ConnectionError):
            await Box(http([f"localhost:{server.port}"]))("fetch_text", server.url())


async def test_a_listed_address_is_reached_and_no_other():
    async with serving(lambda _: reply("here")) as server:
        box = Box(http([f"127.0.0.1:{server.port}"]))
        assert (await box("fetch_text", server.url(host="127.0.0.1")))["text"] == "here"
        for host in ("localhost", "127.0.0.2", "127.1", "[::1]", "[::ffff:127.0.0.1]"):
            await denied(box, server.url(host=host))
