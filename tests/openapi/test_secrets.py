"""Where credentials and headers go: to their place, on the host that the operator named, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.openapi.support import Answer, Doc, Web, document, get, opened, operation

from holdfast.capabilities.openapi import OpenApiSource, Services
from holdfast.contracts.surface import OpenApiSurface
from holdfast.errors import HoldfastError, OperatorError
from holdfast.gate.executor import NeedsAnswer, Question

SECRET = "s3cret-s3ntinel"


class Vault:
    """Has one credential, and notes who asked for it."""

    def __init__(self, **headers: str) -> None:
        self.headers = headers or {"Authorization": f"Bearer {SECRET}"}
        self.asked: list[tuple[str, str]] = []

    async def header(self, key: str, host: str) -> dict[str, str]:
        self.asked.append((key, host))
        return self.headers

    async def rejected(self, key: str, host: str, sent: Any) -> dict[str, str] | None:
        self.headers = {"Authorization": f"{sent['Authorization']}-again"}
        return self.headers


SCHEMES: Doc = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "tls": {"type": "mutualTLS"},
    "evil": {"type": "apiKey", "in": "header", "name": "X\r\nY"},
}


def secured(security: Any, *, schemes: Any = SCHEMES, path: Any = None) -> Doc:
    told = get()
    if security is not None:
        told["security"] = security
    if path is not None:
        told["paths"]["/x"]["get"]["security"] = path
    return told | {"components": {"securitySchemes": schemes}}


PLACES = [
    ([{"bearer": []}], ("authorization", f"Bearer {SECRET}")),
    ([{"oauth": ["read"]}], ("authorization", f"Bearer {SECRET}")),
    ([{"key": []}], ("x-api-key", SECRET)),
    ([{"cookie": []}], ("cookie", f"sid={SECRET}")),
    ([{"tls": []}, {"key": []}], ("x-api-key", SECRET)),
    ([{}, {"key": []}], ("x-api-key", SECRET)),
    ([{"key": [], "bearer": []}, {"bearer": []}], ("authorization", f"Bearer {SECRET}")),
]


@pytest.mark.parametrize(("security", "header"), PLACES)
async def test_the_credential_goes_where_the_document_says(
    web: Web, tmp_path: Path, security: Any, header: tuple[str, str]
):
    vault = Vault()
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(vault)}
    for told in (secured(security), secured([{"query": []}], path=security)):
        async with opened(told, tmp_path, **spec) as api:
            assert api["op"].input_schema["properties"] == {}
            await api("op")
        assert web.last.headers[header[0]] == header[1]
        sent = [name for name, value in web.last.headers.items() if SECRET in value]
        assert (sent, web.last.raw_query) == ([header[0]], "")
    assert set(vault.asked) == {("pets:me", "localhost")}


async def test_the_credential_in_a_query(web: Web, tmp_path: Path):
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(Vault())}
    told = secured([{"query": []}])
    told["paths"]["/x"]["get"]["parameters"] = [{"name": "api key", "in": "query", "schema": {}}]
    async with opened(told, tmp_path, **spec) as api:
        assert api["op"].input_schema["properties"] == {}  # it is not code's to give
        await api("op")
    assert web.last.query == [("api key", SECRET)]


async def test_what_is_called_like_the_credential_elsewhere_is_an_argument(
    web: Web, tmp_path: Path
):
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(Vault())}
    schemes: Doc = {"key": {"type": "apiKey", "in": "query", "name": "key"}}
    parameters = [
        {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "Key", "in": "query", "schema": {"type": "string"}},
        {"name": "key", "in": "query", "schema": {"type": "string"}},
    ]
    told = secured([{"key": []}], schemes=schemes)
    told["paths"] = {"/x/{key}": {"get": operation(operationId="op", parameters=parameters)}}
    async with opened(told, tmp_path, **spec) as api:
        properties: Any = api["op"].input_schema["properties"]
        assert [*properties] == ["key", "Key"]
        await api("op", key="a", Key="b")
    assert (web.last.path, web.last.query) == ("/x/a", [("Key", "b"), ("key", SECRET)])


async def test_a_credential_is_sent_only_where_it_is_wanted(web: Web, tmp_path: Path):
    vault = Vault()
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(vault)}
    for told in (secured([{"key": []}], path=[]), secured(None), secured([{"tls": []}, {}])):
        async with opened(told, tmp_path, **spec) as api:
            await api("op")
        assert not any(SECRET in value for value in web.last.headers.values())
    assert vault.asked == []
    # A document that does not speak of credentials at all leaves it to whoever gave one.
    async with opened(get(), tmp_path, **spec) as api:
        await api("op")
    assert web.last.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("security", "why"),
    [
        ([{"key": [], "bearer": []}], "it wants 2 credentials at a time"),
        ([{"tls": []}], "of a kind that is not supported"),
        ([{"evil": []}], "goes where nothing can be sent"),
        ([{"missing": []}], "`missing` is not in the document"),
    ],
)
async def test_what_can_not_be_signed_is_refused(tmp_path: Path, security: Any, why: str):
    spec: Any = {"auth": "pets:me", "services": Services(Vault())}
    async with opened(secured(security), tmp_path, **spec) as api:
        assert why in api.refused["op"]
    async with opened(secured(security), tmp_path) as api:  # nothing to sign with: let it try
        assert api.tools == ["op"]


async def test_headers_of_the_surface_can_be_one_of_two_credentials(web: Web, tmp_path: Path):
    spec: Any = {
        "base_url": web.url,
        "auth": "pets:me",
        "services": Services(Vault(), environ={"K": "k"}),
    }
    told = secured([{"key": [], "bearer": []}])
    async with opened(told, tmp_path, headers={"x-api-key": "$K"}, **spec) as api:
        await api("op")
    assert web.last.headers["x-api-key"] == "k"
    assert web.last.headers["authorization"] == f"Bearer {SECRET}"


async def test_a_sign_in_that_is_needed_reaches_whoever_called(web: Web, tmp_path: Path):
    from holdfast.contracts.approval import Asks

    class Locked:
        open = False

        async def header(self, key: str, host: str) -> dict[str, str]:
            if not self.open:
                raise NeedsAnswer(Question(Asks.SIGN_IN, "Sign in."))
            return {"Authorization": "Bearer old"}

        async def rejected(self, key: str, host: str, sent: Any) -> None:
            self.open = False

    vault = Locked()
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(vault)}
    async with opened(get(), tmp_path, **spec) as api:
        with pytest.raises(NeedsAnswer):
            await api("op")
        assert web.asked == []
        vault.open = True  # it has one, but the server takes it no more
        web.answers = lambda _: (401, {}, b"")
        with pytest.raises(NeedsAnswer):
            await api("op")
    assert len(web.asked) == 1


async def test_a_credential_that_is_refused_is_renewed_once(web: Web, tmp_path: Path):
    def answers(asked: Any) -> Answer:
        fresh = asked.headers["authorization"] == f"Bearer {SECRET}-again"
        return 200 if fresh else 401, {"content-type": "application/json"}, b"1"

    web.answers = answers
    spec: Any = {"base_url": web.url, "auth": "pets:me", "services": Services(Vault())}
    told = document({"/x": {"post": operation(operationId="op")}})
    async with opened(told, tmp_path, **spec) as api:
        assert await api("op") == 1
        assert len(web.asked) == 2
        web.answers = lambda _: (401, {}, b"never")
        with pytest.raises(HoldfastError, match="401 Unauthorized: never"):
            await api("op")
        assert len(web.asked) == 4


async def test_auth_without_anybody_who_has_it_is_told(tmp_path: Path):
    with pytest.raises(OperatorError, match="nobody has credentials"):
        async with opened(get(), tmp_path, auth="pets:me"):
            pass


async def test_headers_come_from_the_environment_and_are_hidden(web: Web, tmp_path: Path):
    hidden: dict[str, str] = {}
    services = Services(environ={"KEY": SECRET}, hide=hidden.__setitem__)
    headers = {
        "Authorization": "Token ${KEY}",
        "X-Plain": "$$5",
        "accept": "text/x",
        "Host": "evil",
    }
    told = get({"name": "x-plain", "in": "header", "schema": {}})
    async with opened(told, tmp_path, base_url=web.url, headers=headers, services=services) as api:
        assert api["op"].input_schema["properties"] == {}
        await api("op")
    assert web.last.headers["authorization"] == f"Token {SECRET}"
    assert web.last.headers["x-plain"] == "$5"
    assert web.last.headers["accept"] == "text/x"
    assert web.last.headers["host"] == f"localhost:{web.port}"
    assert hidden == {"KEY": SECRET}
    with pytest.raises(OperatorError, match=r"`\$NONE` is not in the environment"):
        async with opened(get(), tmp_path, headers={"X-Key": "$NONE"}, services=services):
            pass


async def test_no_error_shows_a_credential(web: Web, tmp_path: Path):
    told = secured([{"query": []}])
    services = Services(Vault())
    for status in (302, 500):
        web.answers = lambda asked, status=status: (
            status,
            {"location": "http://evil.example"},
            b"no",
        )
        async with opened(told, tmp_path, base_url=web.url, auth="p:m", services=services) as api:
            with pytest.raises(HoldfastError) as caught:
                await api("op")
        assert SECRET not in str(caught.value)
    async with opened(
        told, tmp_path, base_url="http://localhost:1", auth="p:m", services=services
    ) as api:
        with pytest.raises(HoldfastError) as caught:
            await api("op")
    assert SECRET not in str(caught.value)


# --- who decides where requests go ---


@pytest.mark.parametrize(
    "server",
    [
        "http://169.254.169.254/",
        "https://10.0.0.1/",
        "http://api.example.com/",
        "https://localhost/",
        "https://[::1]/",
        "https://user@api.example.com/",
        "https://api.example.com/?a=b",
        "https://{host}/",
        "/v1",
        "ftp://x",
    ],
)
async def test_a_document_can_not_point_inside(tmp_path: Path, server: str):
    with pytest.raises(OperatorError) as caught:
        async with opened(get() | {"servers": [{"url": server}]}, tmp_path, base_url=None):
            pass
    assert caught.value.code == "SURFACE_FAILED"


async def test_a_document_can_name_a_public_host(tmp_path: Path):
    server = {"url": "https://{r}.example.com/v1", "variables": {"r": {"default": "eu"}}}
    told = get() | {"servers": [server]}
    async with opened(told, tmp_path, base_url=None) as api:
        assert api.tools == ["op"]
    with pytest.raises(OperatorError, match=r"`headers` would go to `https://eu.example.com`"):
        async with opened(told, tmp_path, base_url=None, headers={"X-Key": "1"}):
            pass


@pytest.mark.parametrize(
    "base", ["ftp://x", "https://", "https://u:p@x.com", "https://x.com?a", "https://x.com:99999"]
)
async def test_a_place_that_is_none_is_told(tmp_path: Path, base: str):
    with pytest.raises(OperatorError) as caught:
        async with opened(get(), tmp_path, base_url=base):
            pass
    assert caught.value.code == "SURFACE_FAILED"


async def test_operations_go_where_the_operator_says(web: Web, tmp_path: Path):
    told = document(
        {"/x": {"get": operation(operationId="op", servers=[{"url": "https://evil.example.com"}])}},
        servers=[{"url": "https://evil.example.com"}],
    )
    async with opened(told, tmp_path, base_url=f"{web.url}/v9") as api:
        await api("op")
    assert web.last.path == "/v9/x"


async def test_headers_go_to_a_document_only_at_home(web: Web):
    def answers(asked: Any) -> Answer:
        return 200, {}, json.dumps(get() | {"servers": [{"url": "/"}]}).encode()

    web.answers = answers
    services = Services(environ={"KEY": SECRET})
    for base, sent in ((web.url, SECRET), ("https://api.example.com", None)):
        spec = OpenApiSurface(document=f"{web.url}/d", base_url=base, headers={"X-Key": "$KEY"})
        async with OpenApiSource("pets", spec, services).open():
            assert web.last.headers.get("x-key") == sent
