"""What code gets of an answer, and what it is told when there is none; from servers that mean well and others."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream
from tests.capabilities.web import reply, serving
from tests.openapi.support import CONTEXT, Answer, Doc, Web, document, get, opened, operation

from holdfast.capabilities.openapi import Services
from holdfast.errors import ModelError
from holdfast.gate.executor import Unsure

POST = document({"/x": {"post": operation(operationId="op")}})


def answering(status: int, kind: str, body: bytes, **more: str) -> Callable[[Any], Answer]:
    headers = {"content-type": kind} if kind else {}
    return lambda _: (status, {**headers, **more}, body)


@pytest.mark.parametrize(
    ("status", "kind", "body", "value"),
    [
        (200, "application/json", b'{"a": [1]}', {"a": [1]}),
        (201, "application/problem+json; charset=utf-8", b"3", 3),
        (200, "application/json", b"null", None),
        (204, "", b"", None),
        (200, "application/json", b"", None),
        (200, "text/plain; charset=utf-8", "é".encode(), "é"),
        (200, "text/csv", b"\xe9", "é"),
        (200, "text/html", b"<html>", "<html>"),
        (200, "", b'{"a": 1}', {"a": 1}),
        (200, "", b"words", "words"),
        (200, "image/png", b"\x89P\xff", {"content_type": "image/png", "base64": "iVD/"}),
        (200, "application/xml", b"<a/>", "<a/>"),
    ],
)
async def test_a_success_gives_its_body(
    web: Web, tmp_path: Path, status: int, kind: str, body: bytes, value: Any
):
    web.answers = answering(status, kind, body)
    async with opened(get(), tmp_path, base_url=web.url) as api:
        assert await api("op") == value
    assert web.last.headers["accept"] == "application/json, */*;q=0.1"


@pytest.mark.parametrize(
    ("status", "said", "shown", "hint"),
    [
        (404, b'{"why": "no pet"}', '404 Not Found: {"why": "no pet"}', "check the arguments"),
        (401, b"", "401 Unauthorized", "credential"),
        (429, b"slow\x00 \xe2\x80\xaedown", "429 Too Many Requests: slow down", "less often"),
        (503, b"x" * 9000, "503 Service Unavailable: xxx", "trouble of its own"),
        (418, b"tea", "418 I'm a Teapot: tea", "The words are the server's"),
        (304, b"", "304 Not Modified", "words"),
        (599, b"\xff", "599: \ufffd", "trouble"),
    ],
)
async def test_a_failure_says_what_the_server_said(
    web: Web, tmp_path: Path, status: int, said: bytes, shown: str, hint: str
):
    web.answers = answering(status, "text/plain", said)
    for told in (get(), POST):
        async with opened(told, tmp_path, base_url=web.url) as api:
            with pytest.raises(ModelError) as caught:
                await api("op")
        assert caught.value.code == "TOOL_ERROR"
        assert shown.lower() in caught.value.message.lower()
        assert hint in (caught.value.hint or "")
        assert len(caught.value.message) < 1200


@pytest.mark.parametrize("body", [b"<html>", b"NaN", b'"\\ud800"', b"[" * 100_000])
async def test_json_that_is_none_is_told(web: Web, tmp_path: Path, body: bytes):
    web.answers = answering(200, "application/json", body)
    async with opened(POST, tmp_path, base_url=web.url) as api:
        with pytest.raises(ModelError, match="not the JSON that it says it is") as caught:
            await api("op")
    assert "It was carried out" in (caught.value.hint or "")


async def test_head_and_options(web: Web, tmp_path: Path):
    told = document(
        {"/x": {"head": operation(operationId="h"), "options": operation(operationId="o")}}
    )
    async with opened(told, tmp_path, base_url=web.url) as api:
        assert await api("h") is None
        assert await api("o") == {}
    assert [one.method for one in web.asked] == ["HEAD", "OPTIONS"]


# --- redirects ---


async def test_a_read_follows_redirects_on_its_own_host(web: Web, tmp_path: Path):
    def answers(asked: Any) -> Answer:
        if asked.path == "/x":
            return 302, {"location": "/y?z=1"}, b""
        return 200, {"content-type": "application/json"}, b'"there"'

    web.answers = answers
    async with opened(get(), tmp_path, base_url=web.url, headers={"x-key": "1"}) as api:
        assert await api("op") == "there"
    assert (web.last.path, web.last.raw_query, web.last.headers["x-key"]) == ("/y", "z=1", "1")


async def test_redirects_end(web: Web, tmp_path: Path):
    web.answers = answering(302, "", b"", location="/x")
    async with opened(get(), tmp_path, base_url=web.url) as api:
        with pytest.raises(ModelError, match="302 Found"):
            await api("op")
    assert len(web.asked) == 6


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_what_changes_something_follows_none(web: Web, tmp_path: Path, status: int):
    web.answers = answering(status, "", b"", location="/y")
    async with opened(POST, tmp_path, base_url=web.url) as api:
        with pytest.raises(ModelError, match=f"{status} .*made elsewhere, which is not done"):
            await api("op")
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    "where",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://localhost/",
        "//evil.example.com/",
        "http://127.0.0.1:1/",
        "http://user@localhost/",
        "file:///etc/passwd",
        "http://[::1/",
    ],
)
async def test_no_redirect_leads_to_another_host(web: Web, tmp_path: Path, where: str):
    web.answers = answering(302, "", b"", location=where)
    async with opened(get(), tmp_path, base_url=web.url, headers={"x-key": "1"}) as api:
        with pytest.raises(ModelError, match="made elsewhere, which is not done") as caught:
            await api("op")
    assert caught.value.code == "TOOL_ERROR"
    assert len(web.asked) == 1


# --- servers that mean no good, or are not there ---


async def failure(answers: Any, folder: Path, told: Doc, **spec: Any) -> Exception:
    """What a call raises whose server answers with these bytes, or speaks for itself."""
    async with (
        serving(answers) as server,
        opened(told, folder, base_url=server.url().rstrip("/"), **spec) as api,
    ):
        with pytest.raises((ModelError, Unsure)) as caught:
            await api("op")
        return caught.value


async def test_an_answer_that_is_too_long_is_refused(tmp_path: Path):
    packed = gzip.compress(b"0" * 50_000_000)
    for data in (reply(b"0" * 1_100_000), reply(packed, "200 OK", "Content-Encoding: gzip")):
        why = await failure(lambda _, data=data: data, tmp_path, get())
        assert isinstance(why, ModelError)
        assert why.code == "RESPONSE_TOO_LARGE"


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", b"HTTP/1.1 20"],
)
async def test_an_answer_that_is_lost_leaves_it_unsure(tmp_path: Path, data: bytes):
    for told in (get(), POST):
        why = await failure(lambda _, data=data: data, tmp_path, told)
        assert isinstance(why, Unsure)
        assert why.error.code == "SURFACE_UNAVAILABLE"
        assert ("may have been done" in (why.error.hint or "")) is (told is POST)


async def test_a_server_that_is_not_there_did_nothing(tmp_path: Path):
    async with opened(POST, tmp_path, base_url="http://localhost:1") as api:
        with pytest.raises(ModelError, match="Could not connect") as caught:
            await api("op")
    assert caught.value.code == "SURFACE_UNAVAILABLE"
    assert "Nothing was done" in (caught.value.hint or "")


async def test_a_server_that_says_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from holdfast.capabilities.openapi import source

    monkeypatch.setattr(source, "_SLACK_S", 0.0)  # else the gate is first

    async def silent(stream: ByteStream) -> None:
        while True:
            await stream.receive()

    async def drips(stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.01)

    for server in (silent, drips):
        why = await failure(server, tmp_path, get(), timeout_ms=100)
        assert isinstance(why, Unsure)
        assert why.error.code == "TIMEOUT_TOOL"


async def test_names_lead_to_public_addresses_only(tmp_path: Path):
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["10.0.0.1", "169.254.169.254", "127.0.0.1"]

    services = Services(resolve=inside)
    spec: Any = {"base_url": "https://api.example.com", "services": services}
    async with opened(get(), tmp_path, **spec) as api:
        with pytest.raises(ModelError, match="does not lead to a public address") as caught:
            await api("op")
    assert caught.value.code == "PERMISSION_DENIED"


async def test_a_tool_that_is_gone(tmp_path: Path):
    async with opened(get(), tmp_path) as api:
        with pytest.raises(ModelError, match="has no `gone` now") as caught:
            await api.connection.call("gone", {}, CONTEXT)
    assert caught.value.code == "SURFACE_UNAVAILABLE"


# --- documents at an address ---


async def test_a_document_at_an_address(web: Web):
    from holdfast.capabilities.openapi import OpenApiSource
    from holdfast.contracts.surface import OpenApiSurface

    told = json.dumps(get() | {"servers": [{"url": "../v3"}]})

    def answers(asked: Any) -> Answer:
        if asked.path == "/docs/old.json":
            return 302, {"location": "api.json"}, b""
        if asked.path == "/docs/api.json":
            return 200, {"content-type": "text/plain"}, told.encode()
        return 200, {"content-type": "application/json"}, json.dumps(asked.path).encode()

    web.answers = answers
    source = OpenApiSource("pets", OpenApiSurface(document=f"{web.url}/docs/old.json"))
    async with source.open() as connection:
        assert await connection.call("op", {}, CONTEXT) == "/v3/x"  # beside the document


@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        (404, {}, "its address answered 404"),
        (302, {"location": "http://169.254.169.254/"}, "not on the list of hosts"),
        (302, {"location": "/"}, "leads on more than 5 times"),
    ],
)
async def test_an_address_without_a_document(
    web: Web, status: int, headers: dict[str, str], why: str
):
    from holdfast.capabilities.openapi import OpenApiSource
    from holdfast.contracts.surface import OpenApiSurface
    from holdfast.errors import OperatorError

    web.answers = lambda _: (status, headers, b"")
    with pytest.raises(OperatorError, match=why):
        async with OpenApiSource("pets", OpenApiSurface(document=web.url)).open():
            pass


async def test_an_address_that_takes_too_long():
    from holdfast.capabilities.openapi import OpenApiSource
    from holdfast.contracts.surface import OpenApiSurface
    from holdfast.errors import OperatorError

    async def silent(stream: ByteStream) -> None:
        while True:
            await stream.receive()

    async with serving(silent) as server:
        spec = OpenApiSurface(document=server.url(), connect_timeout_ms=50)
        with pytest.raises(OperatorError, match=r"did not come within 0.05 s"):
            async with OpenApiSource("pets", spec).open():
                pass
