"""The capabilities: what code sees of them, through the gate; and that nothing is too large for it."""

from pathlib import Path
from typing import Any

import pytest
from tests.resources.support import Box, box_of, mounted

import holdfast
from holdfast.capabilities import CapabilitySet
from holdfast.contracts import Setup, SideEffect, canonical_json
from holdfast.contracts.resource import MAX_ENTRIES, MAX_MATCHES, ResourceRequest
from holdfast.errors import CallerError, ModelError
from holdfast.journal import MemoryJournal
from holdfast.resources import Held, Resources, Source
from holdfast.resources.router import MAX_BYTES
from holdfast.runtime.resources import make_resources, resource_capabilities


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "log.txt").write_text("".join(f"line {n}\n" for n in range(50_000)))
    (tmp_path / "nuls").write_bytes(b"text" * 3000 + b"\x01" * 500_000)
    return box_of(mounted(tmp_path))


def test_what_is_on_the_network_has_functions_of_its_own(tmp_path: Path):
    setup = mounted(tmp_path).model_copy(update={"allow_hosts": ("api.example.com",)})
    box = box_of(setup, MemoryJournal())
    assert {name: one.capability.side_effect for name, one in box.tools.items()} == {
        "read_resource": SideEffect.READ,
        "grep_resource": SideEffect.READ,
        "list_resources": SideEffect.READ,
        "read_web_resource": SideEffect.NETWORK,
        "grep_web_resource": SideEffect.NETWORK,
    }
    assert "`content:`, `data:`, `file:`" in box.tools["read_resource"].capability.description
    assert all(one.capability.idempotent for one in box.tools.values())


async def test_neither_reads_what_is_the_others(tmp_path: Path):
    box = box_of(mounted(tmp_path).model_copy(update={"allow_hosts": ("api.example.com",)}))
    for tool, uri in (
        ("read_resource", "https://api.example.com/"),
        ("read_web_resource", "file:///workspace/x"),
    ):
        with pytest.raises(ModelError, match="not read by this function") as caught:
            await box(tool, uri)
        assert caught.value.code == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_resource", {"uri": ""}),
        ("read_resource", {"uri": "data:,x", "start": -1}),
        ("read_resource", {"uri": "data:,x", "length": 0}),
        ("read_resource", {"uri": "data:,x", "unit": "words"}),
        ("read_resource", {"uri": "data:,x", "format": "exe"}),
        ("read_resource", {"uri": "data:,x", "session_id": "other"}),
        ("read_resource", {"uri": "data:,x", "max_bytes": 1 << 40}),
        ("grep_resource", {"uri": "data:,x", "pattern": ""}),
        ("grep_resource", {"uri": "data:,x", "pattern": "x", "max_matches": MAX_MATCHES + 1}),
        ("list_resources", {"limit": MAX_ENTRIES + 1}),
    ],
)
async def test_arguments_are_held_to_their_bounds(box: Box, tool: str, arguments: dict[str, Any]):
    with pytest.raises((CallerError, ModelError)) as caught:
        await box(tool, **arguments)
    assert caught.value.code == "INVALID_ARGUMENT"


async def test_a_read_without_a_length_is_short_and_a_long_one_is_bounded(box: Box):
    view = await box("read_resource", "file:///workspace/log.txt")
    assert (view["count"], view["truncated"], view["next"]) == (32 * 1024, True, 32 * 1024)
    view = await box("read_resource", "file:///workspace/log.txt", length=1 << 40)
    assert (view["count"], view["truncated"]) == (MAX_BYTES, True)


async def test_the_worst_text_still_fits_into_a_result(box: Box):
    limit = box.tools["read_resource"].capability.limits.max_response_bytes
    view = await box("read_resource", "file:///workspace/nuls", start=12_000, length=MAX_BYTES)
    assert len(canonical_json(view)) < limit
    assert view["count"] == MAX_BYTES


def test_stubs_are_python(box: Box):
    stubs = CapabilitySet(*box.tools.values()).stubs()
    compile(stubs, "stubs", "exec")
    assert "def read_resource(uri: str, start: int = 0, length: int = ..., unit: " in stubs


async def test_code_in_the_box_pages_through_a_file_by_the_gate(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    text = "".join(f"line {n}\n" for n in range(3000))
    (data / "log.txt").write_text(text)
    tools = resource_capabilities(make_resources(mounted(data), None))
    code = """
start, lines = 0, 0
while start is not None:
    part = read_resource("file:///workspace/log.txt", start=start, length=10_000)
    lines += part["text"].count("\\n")
    start = part["next"]
found = grep_resource("file:///workspace/log.txt", "line 29..$")
result = [lines, [one["line"] for one in found["matches"]][:3], found["next"]]
"""
    # `Foreign` is what the gate calls; the runtime's own list is of declared functions.
    given: Any = tools
    async with holdfast.open("memory:", {}, capabilities=given) as hf:
        run = await hf.shell.run(code)
        # There are a hundred such lines, and fifty come at once.
        assert run.result == [3000, [2900, 2901, 2902], text.index("line 2950")]
        assert {call.name for call in run.external_calls} == {"read_resource", "grep_resource"}


async def test_a_resolver_of_ones_own_is_one_method():
    class Greetings:
        async def open(self, request: ResourceRequest) -> Source:
            name = request.uri.partition(":")[2]
            return Held(f"hello {name} of {request.session_id}\n".encode())

    resources = Resources()
    resources.router.register("hello", Greetings())
    box = Box(resource_capabilities(resources))
    assert (await box("read_resource", "hello:ann"))["text"] == "hello ann of s\n"
    assert (await box("list_resources"))["items"] == []


def test_without_routes_there_are_no_tools():
    assert resource_capabilities(Resources()) == []
    assert [
        one.capability.name for one in resource_capabilities(make_resources(Setup(), None))
    ] == [
        "read_resource",
        "grep_resource",
        "list_resources",
    ]
