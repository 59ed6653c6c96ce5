"""`content:`, `data:` and `mcp:`: what is stored, what a URI holds, and what tool servers have."""

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import Box, box_of

from holdfast.capabilities.connection import ResourceLine
from holdfast.contracts import Body, Draft, Mount, Privacy, Setup, SideEffect
from holdfast.contracts.canonical import digest
from holdfast.contracts.resource import ListRequest, ResourceRequest
from holdfast.errors import CallerError, HoldfastError, ModelError, NotFound
from holdfast.journal import MemoryJournal
from holdfast.resources import Resources
from holdfast.resources.resolvers import mcp
from holdfast.resources.resolvers.content import ContentResolver
from holdfast.runtime.resources import make_resources, resource_capabilities

NOTE = b"a note\nof two lines\n"


async def journal_with(*bodies: Body, stream: str = "s") -> MemoryJournal:
    journal = MemoryJournal()
    for body in bodies:
        await journal.append(stream, [Draft(kind="test.note", bodies=(body,))])
    return journal


async def test_a_session_reads_the_content_of_its_own_records():
    body = Body.of(NOTE, mime="text/plain", privacy=Privacy.INTERNAL)
    box = box_of(Setup(), await journal_with(body))
    for uri in (f"content:{body.ref.digest}", f"content://{body.ref.digest}"):
        view = await box("read_resource", uri, start=1, unit="lines")
        assert (view["text"], view["byte_len"]) == ("of two lines\n", len(NOTE))
        assert (view["privacy"], view["version"]) == ("internal", body.ref.digest)


async def test_another_sessions_content_is_answered_like_none():
    body = Body.of(NOTE)
    journal = await journal_with(body, stream="other")
    box = box_of(Setup(), journal)
    said = set[str]()
    for name in (body.ref.digest, digest(b"never stored")):
        with pytest.raises(NotFound) as caught:
            await box("read_resource", f"content:{name}")
        said.add(str(caught.value).replace(name, "X"))
    assert len(said) == 1
    # The operator, whose journal it is, reads it.
    resources = make_resources(Setup(), journal)
    request = ResourceRequest(uri=f"content:{body.ref.digest}")
    assert (await resources.read(request)).text == NOTE.decode()


@pytest.mark.parametrize("privacy", [Privacy.SENSITIVE, Privacy.SECRET])
async def test_privacy_is_checked_before_anything_else(privacy: Privacy):
    body = Body.of(NOTE, privacy=privacy)
    journal = await journal_with(body, Body.of(NOTE, privacy=Privacy.PUBLIC))
    box = box_of(Setup(), journal)
    # Also when a laxer reference came later, and when there is nothing left to read.
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await box("read_resource", f"content:{body.ref.digest}")
        assert caught.value.code == "PERMISSION_DENIED"
        await journal.erase(body.ref.digest, reason="test")


async def test_what_was_erased_or_is_too_large_is_told():
    body = Body.of(NOTE)
    journal = await journal_with(body)
    resources = Resources()
    resources.router.register("content", ContentResolver(journal, max_bytes=5))
    request = ResourceRequest(uri=f"content:{body.ref.digest}", session_id="s")
    with pytest.raises(CallerError) as caught:
        await resources.read(request)
    assert caught.value.code == "CONTENT_TOO_LARGE"
    await journal.erase(body.ref.digest, reason="test")
    with pytest.raises(CallerError) as caught:
        await resources.read(request)
    assert caught.value.code == "CONTENT_ERASED"


@pytest.mark.parametrize(
    "rest", ["", "//", "abc", "g" * 64, "a" * 65, "A" * 64, "//../" + "a" * 64]
)
async def test_what_is_no_digest_is_refused(rest: str):
    box = box_of(Setup(), MemoryJournal())
    with pytest.raises(CallerError) as caught:
        await box("read_resource", f"content:{rest}")
    assert caught.value.code == "INVALID_ARGUMENT"


async def test_what_is_given_by_reference_is_stored_clean_and_can_be_read_again(tmp_path: Path):
    (tmp_path / "big").write_bytes(b"a hunter2 b" * 10)
    journal = MemoryJournal()
    setup = Setup(mounts=(Mount(path="/w", host=str(tmp_path)),))
    box = box_of(setup, journal)
    kept = box.context.kept
    kept.clean = lambda data: data.replace(b"hunter2", b"[secret]")
    view = await box("read_resource", "file:///w/big", start=11, length=11, format="reference")
    assert (view["format"], view["returned_bytes"], view["next"]) == ("reference", 11, 22)
    assert "text" not in view
    (body,) = kept.bodies
    assert (body.data, body.ref.digest) == (b"a [secret] b", view["content"])
    assert (body.ref.retention.value, body.ref.mime) == (
        "session_scoped",
        "application/octet-stream",
    )
    # As the gate does with the result; see `test_session.py`.
    await journal.append("s", [Draft(kind="test.result", bodies=tuple(kept.bodies))])
    again = await box("read_resource", f"content:{view['content']}")
    assert again["text"] == "a [secret] b"
    # It is that session's, and nobody else's.
    other = box_of(setup, journal, "other")
    with pytest.raises(NotFound):
        await other("read_resource", f"content:{view['content']}")


async def test_without_a_store_nothing_is_given_by_reference(tmp_path: Path):
    box = box_of(Setup())
    with pytest.raises(ModelError, match="Nothing can be stored"):
        await box("read_resource", "data:,x", format="reference")


# -- data ---------------------------------------------------------------------------------------------


@given(data=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=50))
async def test_a_data_uri_is_what_it_holds(data: str):
    packed = base64.b64encode(data.encode()).decode()
    view = await box_of(Setup())("read_resource", f"data:text/plain;charset=utf-8;base64,{packed}")
    assert view["text"] == data


async def test_data_uris_are_decoded_and_the_bytes_have_the_last_word():
    box = box_of(Setup())
    assert (await box("read_resource", "data:,a%20b"))["text"] == "a b"
    assert (await box("read_resource", "DATA:text/csv,a,b"))["mime"] == "text/csv"
    zipped = base64.b64encode(b"PK\x03\x04....").decode()
    view = await box("read_resource", f"data:text/plain;base64,{zipped}")
    assert (view["mime"], view["format"]) == ("application/zip", "binary")


@pytest.mark.parametrize(
    "uri", ["data:", "data:text/plain", "data:;base64,!!!", "data:;base64,abc"]
)
async def test_what_is_no_data_uri_is_told(uri: str):
    with pytest.raises(CallerError, match="no `data:` URI"):
        await box_of(Setup())("read_resource", uri)


# -- tool servers -------------------------------------------------------------------------------------


class Shop:
    """A connection, as far as resources need one."""

    def __init__(self, **parts: Sequence[tuple[bytes, str]]) -> None:
        self.parts = parts
        self.read_uris: list[str] = []

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        self.read_uris.append(uri)
        return self.parts[uri.rpartition("/")[2]]

    async def resources(self) -> Sequence[ResourceLine]:
        return [ResourceLine(f"demo://x/{one}", one, f"the {one}") for one in self.parts]


class Connected:
    def __init__(self, **shops: Shop) -> None:
        self.shops = shops

    def connection(self, name: str) -> Shop:
        return self.shops[name]

    def seen_by(self, setup: Setup) -> Sequence[str]:
        return [one for one in self.shops if setup.surfaces is None or one in setup.surfaces]

    def readable(self, setup: Setup) -> Sequence[str]:
        return self.seen_by(setup)

    def speaks(self, setup: Setup) -> bool:
        return True

    def touches(self, name: str) -> SideEffect:
        return SideEffect.NETWORK if name == "far" else SideEffect.READ

    async def boundary(self, setup: Setup) -> None: ...


def servers(shop: Shop, surfaces: tuple[str, ...] | None = None) -> Box:
    connected = Connected(shop=shop, other=Shop(secret=[(b"x", "text/plain")]))
    setup = Setup(surfaces=surfaces)
    # The stand-in has only what resources use.
    resources = make_resources(setup, None, connected=connected)  # type: ignore[arg-type]
    return Box(resource_capabilities(resources))


async def test_a_servers_resource_is_read_by_its_own_uri_as_it_is():
    shop = Shop(a=[(b"hello", "text/plain")], b=[(b"1", "text/plain"), (b"2", "text/x")])
    box = servers(shop)
    assert (await box("read_resource", "mcp://shop/demo://x/%2e%2e/a"))["text"] == "hello"
    assert (await box("read_resource", "mcp://shop/demo://x/b"))["text"] == "1\n2"
    assert shop.read_uris == ["demo://x/%2e%2e/a", "demo://x/b"]


async def test_servers_and_what_they_have_are_listed():
    box = servers(Shop(b=[], a=[]))
    listed = await box("list_resources")
    assert [one["uri"] for one in listed["items"]] == ["mcp://other/", "mcp://shop/"]
    first = await box("list_resources", "mcp://shop/", limit=1)
    assert [one["uri"] for one in first["items"]] == ["mcp://shop/demo://x/a"]
    rest = await box("list_resources", "mcp://shop/", limit=1, after=first["next"])
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["b"], None)


async def test_a_session_reads_only_the_servers_it_sees():
    box = servers(Shop(a=[]), surfaces=("shop",))
    for tool, uri in (("read_resource", "mcp://other/x"), ("list_resources", "mcp://other/")):
        with pytest.raises(NotFound, match="no tool server `other`"):
            await box(tool, uri)
    assert [one["name"] for one in (await box("list_resources"))["items"]] == ["shop"]


@pytest.mark.parametrize(
    "uri",
    [
        *("mcp:", "mcp:shop/x", "mcp:///x", "mcp://shop/", "mcp://Shop/x", "mcp://shop/a\x00"),
        *("mcp://a@shop/x", "mcp://shop:1/x", "mcp://shop/" + "x" * 9000),
    ],
)
async def test_what_names_no_servers_resource_is_refused(uri: str):
    with pytest.raises(CallerError, match="names no resource"):
        await servers(Shop())("read_resource", uri)


async def test_parts_that_are_not_text_and_too_much_are_refused(monkeypatch: pytest.MonkeyPatch):
    box = servers(
        Shop(a=[(b"x", "image/png"), (b"y", "text/plain")], b=[(b"x" * 11, "text/plain")])
    )
    with pytest.raises(ModelError, match="not all text"):
        await box("read_resource", "mcp://shop/a")
    monkeypatch.setattr(mcp, "MAX_RESOURCE_BYTES", 10)
    with pytest.raises(HoldfastError) as caught:
        await box("read_resource", "mcp://shop/b")
    assert caught.value.code == "RESPONSE_TOO_LARGE"


async def test_a_list_of_nothing_is_nothing():
    assert (await make_resources(Setup(), None).list(ListRequest())).items == ()
