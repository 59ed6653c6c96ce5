"""`fetch_text` and `fetch_json`: what they give, from a real server on loopback."""

import gzip
import json
import sys
import zlib
from subprocess import run

import pytest
from tests.capabilities.support import Box
from tests.capabilities.web import TLS, Server, reply, serving

from holdfast.capabilities.builtin import http
from holdfast.contracts import SideEffect
from holdfast.errors import CallerError, ModelError


def box_for(server: Server, *more: str) -> Box:
    return Box(http([f"localhost:{server.port}", *more]))


async def test_text_comes_with_status_and_type():
    async with serving(lambda _: reply("héllo", "200 OK", "Content-Type: text/plain")) as server:
        found = await box_for(server)("fetch_text", server.url("/a?b=c d".replace(" ", "%20")))
        assert found == {
            "status": 200,
            "url": server.url("/a?b=c%20d"),
            "content_type": "text/plain",
            "text": "héllo",
        }
        first, *headers = server.requests[0].split("\r\n")
        assert first == "GET /a?b=c%20d HTTP/1.1"
        assert f"Host: localhost:{server.port}" in headers


async def test_json_is_parsed():
    data = {"a": [1, 2.5, None, "é"], "big": 2**70}
    async with serving(lambda _: reply(json.dumps(data))) as server:
        found = await box_for(server)("fetch_json", server.url("/x"))
        assert found == {"status": 200, "url": server.url("/x"), "json": data}


async def test_errors_of_the_server_are_answers():
    async with serving(lambda _: reply('{"why": "no"}', "503 Sorry")) as server:
        box = box_for(server)
        assert (await box("fetch_text", server.url()))["status"] == 503
        assert (await box("fetch_json", server.url()))["json"] == {"why": "no"}


@pytest.mark.parametrize(
    "body", ["<html>", "", "NaN", '{"a": Infinity}', '"\\ud800"', "[" * 100_000]
)
async def test_what_is_not_json_is_told(body: str):
    async with serving(lambda _: reply(body, "404 Gone")) as server:
        with pytest.raises(ValueError, match=r"Not JSON \(status 404\)"):
            await box_for(server)("fetch_json", server.url())


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        ('text/plain; charset="UTF-8"', b"\xc3\xa9\xff", "é\ufffd"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=zip", b"a", "a"),
        ("", b"\xef\xbb\xbfa", "a"),
    ],
)
async def test_text_is_decoded_as_the_server_says(content_type: str, body: bytes, text: str):
    answer = reply(body, "200 OK", f"Content-Type: {content_type}")
    async with serving(lambda _: answer) as server:
        assert (await box_for(server)("fetch_text", server.url()))["text"] == text


async def test_what_is_not_text_is_told():
    async with serving(lambda _: reply(b"\xff\xfe", "200 OK", "Content-Type: image/x")) as server:
        with pytest.raises(ValueError, match="Not text, but `image/x`"):
            await box_for(server)("fetch_text", server.url())


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"abc" * 1000)),
        ("gzip", gzip.compress(b"abc" * 400) + gzip.compress(b"abc" * 600)),
        ("deflate", zlib.compress(b"abc" * 1000)),
        ("identity", b"abc" * 1000),
    ],
    ids=["gzip", "two-gzip", "deflate", "identity"],
)
async def test_packed_answers_are_unpacked(encoding: str, body: bytes):
    answer = reply(body, "200 OK", f"Content-Encoding: {encoding}")
    async with serving(lambda _: answer) as server:
        assert (await box_for(server)("fetch_text", server.url()))["text"] == "abc" * 1000


@pytest.mark.parametrize(
    ("encoding", "body"), [("gzip", b"no"), ("br", b"x"), ("gzip, gzip", b"x")]
)
async def test_odd_encodings_are_told(encoding: str, body: bytes):
    answer = reply(body, "200 OK", f"Content-Encoding: {encoding}")
    async with serving(lambda _: answer) as server:
        with pytest.raises(ValueError, match="The answer"):
            await box_for(server)("fetch_text", server.url())


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
async def test_redirects_are_followed(status: str):
    def answers(path: str) -> bytes:
        return reply("end") if path == "/b/end" else reply("", status, "Location: b/end")

    async with serving(answers) as server:
        found = await box_for(server)("fetch_text", server.url("/a"))
        assert (found["text"], found["url"]) == ("end", server.url("/b/end"))


async def test_redirects_are_counted():
    async with serving(lambda _: reply("", "302 x", "Location: /again")) as server:
        with pytest.raises(ConnectionError, match="More than 5 redirects"):
            await box_for(server)("fetch_text", server.url())
        assert server.connections == 6


async def test_nothing_is_remembered_between_calls():
    async with serving(lambda _: reply("x", "200 OK", "Set-Cookie: a=b")) as server:
        box = box_for(server)
        await box("fetch_text", server.url())
        await box("fetch_text", server.url())
        assert all("cookie" not in one.lower() for one in server.requests)


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(lambda _: reply("direct")) as server:
        assert (await box_for(server)("fetch_text", server.url()))["text"] == "direct"


async def test_encryption_is_checked_against_the_name(monkeypatch: pytest.MonkeyPatch):
    async with serving(lambda _: reply("safe"), tls=True) as server:
        with pytest.raises(ConnectionError, match="certificate"):
            await box_for(server)("fetch_text", server.url(scheme="https"))
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
        found = await box_for(server)("fetch_text", server.url(scheme="https"))
        assert found["text"] == "safe"
        assert server.names[-1] == "localhost"
        # The right authority, the wrong name.
        wrong = Box(http([f"127.0.0.1:{server.port}"]))
        with pytest.raises(ConnectionError, match="certificate"):
            await wrong("fetch_text", server.url(scheme="https", host="127.0.0.1"))


async def test_no_answer_is_a_connection_error():
    async with serving(lambda _: b"") as server:
        with pytest.raises(ConnectionError, match="broke off"):
            await box_for(server)("fetch_text", server.url())
    with pytest.raises(ConnectionError, match="Could not connect"):
        await box_for(server)("fetch_text", server.url())


async def test_a_name_that_does_not_exist_is_told():
    async def nowhere(_host: str, _port: int) -> list[str]:
        raise OSError("no")

    with pytest.raises(ConnectionError, match="No such host"):
        await Box(http(["api.example.com"], resolve=nowhere))(
            "fetch_text", "https://api.example.com"
        )


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.com",
        "a b",
        "a/b",
        "ftp://a",
        "a:0",
        "a:70000",
        "*.1.2.3.4",
        "127.1",
        "0x7f.1",
        "2130706433",
        "a..b",
        "-a",
        "user@host",
        "a:b",
        "a.*.b",
        "::1",
        "é.example",
    ],
)
def test_entries_that_mean_nothing_are_refused(entry: str):
    with pytest.raises(CallerError) as caught:
        http([entry])
    assert caught.value.code == "INVALID_ARGUMENT"


def test_side_effect_and_limits():
    for one in http(["a.example.com"], timeout_ms=3000):
        assert one.capability.side_effect == SideEffect.NETWORK
        assert one.capability.idempotent
        assert one.capability.asynchronous
        assert one.capability.limits.timeout_ms > 3000


async def test_max_bytes_is_enforced():
    async with serving(lambda _: reply("x" * 1001)) as server:
        hosts = [f"localhost:{server.port}"]
        assert (
            len((await Box(http(hosts, max_bytes=1001))("fetch_text", server.url()))["text"])
            == 1001
        )
        with pytest.raises(ModelError) as caught:
            await Box(http(hosts, max_bytes=1000))("fetch_text", server.url())
        assert caught.value.code == "RESPONSE_TOO_LARGE"


def test_the_library_is_imported_on_first_use():
    code = "import sys, holdfast.capabilities.builtin as b; b.http(['a.example.com']); sys.exit('httpcore' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
