"""`https:` and `http:`: ranges where a server has them, bounded streams where not, and allowed hosts only."""

import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream
from tests.capabilities.web import TLS, reply, serving
from tests.resources.support import Box, box_of

from holdfast.contracts import Setup, SideEffect
from holdfast.contracts.resource import GrepRequest, ListRequest, ResourceRequest
from holdfast.errors import HoldfastError, ModelError
from holdfast.resources import Resources
from holdfast.resources.resolvers.web import WebResolver
from holdfast.runtime._resource_sources import AllowedHosts

PUBLIC = "93.184.216.34"
DATA = b"".join(b"%07d\n" % n for n in range(200_000))
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass
class Shelf:
    """A server with one thing."""

    data: bytes = DATA
    ranges: bool = True
    headers: tuple[str, ...] = ('ETag: "1"', "Content-Type: text/plain")
    url: str = ""
    asked: list[str] = field(default_factory=list[str])

    async def speak(self, stream: ByteStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        found = re.search(r"Range: bytes=(\d+)-", head.decode())
        start = int(found[1]) if found else 0
        self.asked.append(found[0] if found else "")
        size = len(self.data)
        if not self.ranges or not found:
            answer = reply(self.data, "200 OK", *self.headers)
        elif start >= size:
            answer = reply(b"", "416 No", f"Content-Range: bytes */{size}")
        else:
            part = f"Content-Range: bytes {start}-{size - 1}/{size}"
            answer = reply(self.data[start:], "206 Partial", part, *self.headers)
        for at in range(0, len(answer), 65536):
            await stream.send(answer[at : at + 65536])


@asynccontextmanager
async def shelf(**more: Any) -> AsyncIterator[tuple[Shelf, Box]]:
    one = Shelf(**more)

    async def speak(stream: ByteStream) -> None:
        await one.speak(stream)

    async with serving(speak) as server:
        one.url = server.url("/thing")
        yield one, box_of(Setup(allow_hosts=(f"localhost:{server.port}",)))


def web_of(*hosts: str, resolve: Resolve | None = None, **more: Any) -> Resources:
    resources = Resources()
    web = WebResolver(AllowedHosts(hosts, resolve=resolve, **more))
    for scheme in ("https", "http"):
        resources.router.register(scheme, web, side_effect=SideEffect.NETWORK)
    return resources


@pytest.mark.parametrize("ranges", [True, False])
async def test_ranges_are_the_same_whether_or_not_the_server_has_them(ranges: bool):
    async with shelf(ranges=ranges) as (one, box):
        for start, length in ((0, 100), (1_000_000, 50), (len(DATA) - 5, 100), (16_000, 40_000)):
            view = await box("read_web_resource", one.url, start=start, length=length)
            assert view["text"].encode() == DATA[start : start + length]
            assert (view["byte_len"], view["version"]) == (len(DATA), '"1"')
            end = start + length
            assert view["next"] == (end if end < len(DATA) else None)
        assert (await box("read_web_resource", one.url, start=len(DATA)))["text"] == ""


async def test_a_server_with_ranges_is_not_asked_for_what_lies_before():
    async with shelf() as (one, box):
        await box("read_web_resource", one.url, start=1_500_000, length=10)
        assert one.asked == ["Range: bytes=0-", "Range: bytes=1500000-"]


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_search_goes_through_one_answer(ranges: bool):
    async with shelf(ranges=ranges) as (one, box):
        view = await box("grep_web_resource", one.url, "^0199999$")
        assert [(found["line"], found["text"]) for found in view["matches"]] == [
            (199_999, "0199999")
        ]
        assert len(one.asked) == 1


async def test_lines_are_read_of_a_server_without_ranges_and_without_a_size():
    async with shelf(ranges=False) as (one, box):
        view = await box("read_web_resource", one.url, start=1000, length=2, unit="lines")
        assert view["text"] == "0001000\n0001001\n"


async def test_something_empty_is_empty():
    for ranges in (True, False):
        async with shelf(data=b"", ranges=ranges) as (one, box):
            view = await box("read_web_resource", one.url)
            assert (view["text"], view["byte_len"], view["next"]) == ("", 0, None)


async def test_what_lies_too_far_in_for_a_server_without_ranges_is_told():
    async with shelf(ranges=False) as (one, _):
        resources = web_of(one.url.split("/")[2], max_skip=100_000)
        with pytest.raises(ModelError, match="gives no ranges"):
            await resources.read(ResourceRequest(uri=one.url, start=1_000_000))


async def test_something_that_changes_meanwhile_is_told():
    async with shelf() as (one, _):
        resources = web_of(one.url.split("/")[2])
        async with resources.router.open(ResourceRequest(uri=one.url)) as (_, source):
            assert await source.read(0, 10)
            one.headers = ('ETag: "2"',)
            with pytest.raises(ConnectionError, match="changed while it was read"):
                await source.read(500_000, 10)


async def test_a_version_may_have_a_long_name():
    async with shelf(headers=(f'ETag: "{"x" * 300}"',)) as (one, box):
        view = await box("read_web_resource", one.url, start=800_000, length=8)
        assert view["text"] == "0100000\n"


async def test_a_server_that_gives_another_range_is_told():
    async with serving(
        lambda _: reply(b"x", "206 Partial", "Content-Range: bytes 500-500/501")
    ) as server:
        resources = web_of(f"localhost:{server.port}")
        with pytest.raises(ConnectionError, match="another range"):
            await resources.read(ResourceRequest(uri=server.url()))


@pytest.mark.parametrize(
    ("status", "kind"),
    [("404 No", FileNotFoundError), ("410 No", FileNotFoundError), ("500 No", ConnectionError)],
)
async def test_errors_of_the_server_are_errors(status: str, kind: type[Exception]):
    async with serving(lambda _: reply(b"a page about it", status)) as server:
        with pytest.raises(kind):
            await web_of(f"localhost:{server.port}").read(ResourceRequest(uri=server.url()))


async def test_an_answer_packed_unasked_is_unpacked_piece_by_piece():
    bomb = gzip.compress(b"\n" * (200 << 20))
    async with serving(lambda _: reply(bomb, "200 OK", "Content-Encoding: gzip")) as server:
        resources = web_of(f"localhost:{server.port}")
        view = await resources.read(ResourceRequest(uri=server.url(), length=10))
        assert (view.text, view.byte_len, view.next) == ("\n" * 10, None, 10)


async def test_an_encoding_that_was_not_asked_for_is_told():
    async with serving(lambda _: reply(b"x", "200 OK", "Content-Encoding: br")) as server:
        with pytest.raises(ValueError, match="encoded as `br`"):
            await web_of(f"localhost:{server.port}").read(ResourceRequest(uri=server.url()))


async def test_a_server_that_breaks_off_or_hangs_is_told():
    async with serving(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc") as server:
        with pytest.raises(ConnectionError, match="broke off"):
            await web_of(f"localhost:{server.port}").read(ResourceRequest(uri=server.url()))

    async def silent(stream: ByteStream) -> None:
        await stream.receive()
        await anyio.sleep_forever()

    async with serving(silent) as server:
        resources = web_of(f"localhost:{server.port}", timeout_ms=50)
        with pytest.raises(ModelError) as caught:
            await resources.read(ResourceRequest(uri=server.url()))
        assert caught.value.code == "TIMEOUT_TOOL"


# -- hosts --------------------------------------------------------------------------------------------


def leading_to(*addresses: str) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return addresses

    return resolve


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "https://api.example.com.evil.com/",
        "https://evil.com#api.example.com",
        "https://api.example.com@evil.com/",
        "https://user:pw@api.example.com/",
        "https://api.example.com:8443/",
        "http://api.example.com/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://[::ffff:127.0.0.1]/",
        "https://localhost/",
        "http://169.254.169.254/latest/meta-data",
        "https://аpi.example.com/",  # a Cyrillic letter
        "https://api%2eexample%2ecom/",
        "https://api.example.com%00.evil.com/",
        "https://api.example.com\\@evil.com/",
        "https://api.example.com/\r\nHost: evil.com",
        "https://api.example.com/\x00",
        "https:api.example.com/x",
        "https:///x",
        "https://api.example.com/" + "x" * 9000,
    ],
)
async def test_only_listed_hosts_are_reached(url: str, dialled: list[str]):
    resources = web_of("api.example.com", resolve=leading_to(PUBLIC))
    with pytest.raises((ModelError, ValueError)):
        await resources.read(ResourceRequest(uri=url))
    with pytest.raises((ModelError, ValueError)):
        await resources.grep(GrepRequest(uri=url, pattern="x"))
    assert dialled == []


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1"]
)
async def test_a_name_that_leads_inside_is_refused(address: str, dialled: list[str]):
    resources = web_of("api.example.com", resolve=leading_to(address))
    with pytest.raises(ModelError) as caught:
        await resources.read(ResourceRequest(uri="https://api.example.com/"))
    assert caught.value.code == "PERMISSION_DENIED"
    assert dialled == []


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://evil.com/",
        "//evil.com/",
        "http://127.0.0.1:1/",
        "file:///etc/passwd",
        "data:text/plain,x",
        "http://user:pw@localhost/",
    ],
)
async def test_a_redirect_to_what_is_forbidden_is_not_followed(location: str, dialled: list[str]):
    async with serving(lambda _: reply(b"", "302 x", f"Location: {location}")) as server:
        resources = web_of(f"localhost:{server.port}")
        with pytest.raises((HoldfastError, ValueError)):
            await resources.read(ResourceRequest(uri=server.url()))
        assert {*dialled} <= {"127.0.0.1", "::1"}
        assert server.connections == 1


async def test_redirects_are_followed_and_counted():
    def answers(path: str) -> bytes:
        return reply("end") if path == "/b" else reply("", "307 x", "Location: /b")

    async with serving(answers) as server:
        resources = web_of(f"localhost:{server.port}")
        assert (await resources.read(ResourceRequest(uri=server.url("/a")))).text == "end"
    async with serving(lambda _: reply("", "302 x", "Location: /again")) as server:
        with pytest.raises(ConnectionError, match="More than 5 redirects"):
            await web_of(f"localhost:{server.port}").read(ResourceRequest(uri=server.url()))
        assert server.connections == 6


async def test_a_certificate_is_checked_against_the_name():
    assert TLS.exists()
    async with serving(lambda _: reply(b"x"), tls=True) as server:
        with pytest.raises(ConnectionError, match="certificate"):
            await web_of(f"localhost:{server.port}").read(
                ResourceRequest(uri=server.url(scheme="https"))
            )


async def test_hosts_are_listed_and_nothing_below_them():
    resources = web_of("api.example.com", "*.tree.org", "http://old.example.com")
    found = await resources.list(ListRequest(prefix="https:"))
    assert [one.uri for one in found.items] == ["https://api.example.com/"]
    found = await resources.list(ListRequest(prefix="http://"))
    assert [one.uri for one in found.items] == ["http://old.example.com/"]
    with pytest.raises(ModelError, match="can't be listed"):
        await resources.list(ListRequest(prefix="https://api.example.com/"))
