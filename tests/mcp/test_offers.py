"""From what a server says about its tools to what code can call."""

import keyword
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mcp.support import odd, opened

from holdfast.capabilities import Foreign, python_stubs
from holdfast.capabilities.mcp.schema import MAX_DEPTH, MAX_SCHEMA_BYTES, MAX_TOOLS, offers
from holdfast.capabilities.naming import MAX_NAME, named
from holdfast.capabilities.words import clean, one_line
from holdfast.contracts import SideEffect
from holdfast.contracts.surface import StdioSurface

ANY = {"type": "object"}


def spec(**options: Any) -> StdioSurface:
    return StdioSurface(command="x", **options)


def tool(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": ANY} | more


def only(**more: Any):
    (found,) = offers("srv", spec(), [tool(**more)]).tools
    return found.capability


# -- names ------------------------------------------------------------------------------------------------


@given(st.sets(st.text(max_size=80) | st.from_regex(r"[a-b!_2]{1,4}", fullmatch=True), max_size=12))
def test_names_are_valid_different_and_the_same_each_time(tools: set[str]):
    for prefix in ("srv_", "", "é!"):
        found = named(tools, prefix)
        assert set(found) == tools
        assert len(set(found.values())) == len(tools)
        assert found == named(sorted(tools, reverse=True), prefix)
        for name in found.values():
            assert name.isascii()
            assert name.isidentifier()
            assert not keyword.iskeyword(name)
            assert not name.startswith("__")
            assert 0 < len(name) <= MAX_NAME


@given(st.sets(st.from_regex(r"[a-z][a-z_0-9]{0,8}[a-z]", fullmatch=True), max_size=8), st.text())
def test_a_tool_with_a_good_name_keeps_it_whatever_comes_along(tools: set[str], other: str):
    before, after = named(tools, "srv_"), named(tools | {other}, "srv_")
    assert all(after[one] == before[one] == f"srv_{one}" for one in tools)


@pytest.mark.parametrize(
    ("tools", "prefix", "names"),
    [
        (["get-file"], "fs_", ["fs_get_file"]),
        (["a.b", "a-b", "a_b"], "s_", ["s_a_b_3", "s_a_b_2", "s_a_b"]),
        (["a!", "a", "a_2"], "s_", ["s_a_3", "s_a", "s_a_2"]),
        (["class", "print", "list_tools"], "", ["class_tool", "print_tool", "list_tools_tool"]),
        (["3d", "日本", ""], "", ["tool_3d", "tool_2", "tool"]),
        (["größe"], "", ["große".encode("ascii", "ignore").decode()]),
    ],
)
def test_names(tools: list[str], prefix: str, names: list[str]):
    found = named(tools, prefix)
    assert [found[one] for one in tools] == names


def test_long_names_that_differ_at_their_ends_stay_apart():
    found = named(["x" * 100 + "1", "x" * 100 + "2"], "srv_")
    assert len(set(found.values())) == 2
    assert {len(one) for one in found.values()} == {MAX_NAME}


def test_the_prefix_is_the_surfaces_name_or_what_it_says():
    assert [one.capability.name for one in offers("srv", spec(), [tool()]).tools] == ["srv_t"]
    own = offers("srv", spec(prefix="my_"), [tool()])
    assert [one.capability.name for one in own.tools] == ["my_t"]
    assert [one.capability.name for one in offers("srv", spec(prefix=""), [tool()]).tools] == ["t"]


# -- which ------------------------------------------------------------------------------------------------


def test_include_and_exclude():
    tools = [tool(name) for name in ("read_a", "read_b", "write_a", "READ_c")]

    def names(**options: Any) -> list[str]:
        return [one.tool for one in offers("srv", spec(**options), tools).tools]

    assert names(include=("read_*",)) == ["read_a", "read_b"]
    assert names(exclude=("*_a",)) == ["READ_c", "read_b"]
    assert names(include=("read_*",), exclude=("*_b",)) == ["read_a"]


def test_a_tool_that_is_listed_twice_counts_once():
    found = offers("srv", spec(), [tool(description="first"), tool(description="second")])
    assert [one.capability.description for one in found.tools] == ["first"]
    assert "twice" in found.refused["t"]


def test_more_tools_than_make_sense_are_refused():
    found = offers("srv", spec(), [tool(f"t{n}") for n in range(MAX_TOOLS + 2)])
    assert len(found.tools) == MAX_TOOLS
    assert len(found.refused) == 2


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


BAD: dict[str, dict[str, Any]] = {
    "no schema": {"inputSchema": None},
    "a list": {"inputSchema": []},
    "not an object": {"inputSchema": {"type": "string"}},
    "nonsense": {"inputSchema": {"type": "object", "properties": {"a": {"type": 5}}}},
    "a bad pattern": {"inputSchema": {"type": "object", "properties": {"a": {"pattern": "("}}}},
    "a reference outside": {
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x.y/z"}}}
    },
    "a file": {"inputSchema": {"type": "object", "$ref": "file:///etc/passwd"}},
    "a reference to nothing": {"inputSchema": {"type": "object", "$ref": "#/$defs/none"}},
    "too deep": {"inputSchema": nested(MAX_DEPTH)},
    "too long": {"inputSchema": {"type": "object", "$comment": "x" * MAX_SCHEMA_BYTES}},
    "a bad output": {"outputSchema": {"type": "nonsense"}},
    "an output that is none": {"outputSchema": 7},
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_schema_costs_its_tool_only(what: str):
    found = offers("srv", spec(), [tool("good"), tool("bad") | BAD[what], tool("also")])
    assert [one.tool for one in found.tools] == ["also", "good"]
    assert list(found.refused) == ["bad"]
    assert 10 < len(found.refused["bad"]) <= 300


async def test_bad_tools_of_a_real_server_are_refused_one_by_one():
    tools = [tool(what) | more for what, more in BAD.items()]
    tools += [{"inputSchema": ANY}, "no tool", tool("odd hints", annotations={"readOnlyHint": 7})]
    async with opened(odd({"tools": [*tools, tool("echo")]})) as server:
        assert {one.tool for one in server.offers.tools} == {"echo", "odd hints"}
        assert set(server.offers.refused) == {*BAD, f"#{len(BAD) + 1}", f"#{len(BAD) + 2}"}


def test_the_limits_of_schemas_are_where_they_are_said_to_be():
    assert not offers("srv", spec(), [tool(inputSchema=nested(MAX_DEPTH // 2 - 1))]).refused
    room = MAX_SCHEMA_BYTES - 100
    assert not offers("srv", spec(), [tool(inputSchema=ANY | {"$comment": "x" * room})]).refused


def test_calls_are_checked_against_the_schema_and_stubs_can_be_made():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"path": {"type": "string"}, "if": {"type": "integer"}},
        "required": ["path"],
    }
    capability = only(inputSchema=schema, outputSchema={"type": "object"})

    async def act(arguments: dict[str, Any], context: object) -> None:
        return None

    foreign = Foreign(capability, act)
    assert foreign.bind(["a"], {"if": 3}) == {"path": "a", "if": 3}
    assert "async def srv_t(" in python_stubs([capability])
    assert capability.asynchronous


# -- what they may touch ----------------------------------------------------------------------------------

YES, NO = True, False


@pytest.mark.parametrize(
    ("hints", "side_effect", "idempotent"),
    [
        (None, "external_system", False),
        ({}, "external_system", False),
        ({"title": "T"}, "external_system", False),
        ({"readOnlyHint": YES}, "read", True),
        ({"readOnlyHint": YES, "openWorldHint": NO}, "read", True),
        ({"readOnlyHint": YES, "openWorldHint": YES}, "network", True),
        ({"readOnlyHint": YES, "destructiveHint": YES}, "read", True),
        ({"readOnlyHint": NO}, "external_system", False),
        ({"destructiveHint": NO}, "external_system", False),
        ({"openWorldHint": NO}, "external_system", False),
        ({"destructiveHint": NO, "openWorldHint": NO}, "write", False),
        ({"destructiveHint": NO, "openWorldHint": NO, "idempotentHint": YES}, "write", True),
        ({"destructiveHint": YES, "openWorldHint": NO}, "external_system", False),
        ({"idempotentHint": YES}, "external_system", True),
        ({"readOnlyHint": "true"}, "external_system", False),
        ({"readOnlyHint": 1}, "external_system", False),
        ("read-only, honestly", "external_system", False),
    ],
)
def test_hints(hints: Any, side_effect: str, idempotent: bool):
    found = only(annotations=hints)
    assert found.side_effect == SideEffect(side_effect)
    assert found.idempotent is idempotent


def test_hints_of_a_server_that_is_not_trusted_count_for_nothing():
    hints = {"readOnlyHint": True, "idempotentHint": True}
    (found,) = offers("srv", spec(trust_annotations=False), [tool(annotations=hints)]).tools
    assert found.capability.side_effect is SideEffect.EXTERNAL_SYSTEM
    assert not found.capability.idempotent


def test_the_surface_has_the_last_word():
    rules = {"get_*": "read", "get_money": "external_system", "*": "database"}
    tools = [tool(name) for name in ("get_money", "get_time", "other")]
    found = offers("srv", spec(side_effects=rules), tools).tools
    assert {one.tool: one.capability.side_effect.value for one in found} == {
        "get_money": "external_system",
        "get_time": "read",
        "other": "database",
    }


def test_the_time_a_call_may_take_is_the_surfaces():
    (found,) = offers("srv", spec(timeout_ms=1234), [tool()]).tools
    assert found.capability.limits.timeout_ms == 1234


# -- words ------------------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=300))
def test_words_are_bounded_and_visible(text: str):
    found = clean(text, 50)
    assert len(found) <= 50
    assert all(char == "\n" or char.isprintable() for char in found if char != "\u00a0")
    assert "\n" not in one_line(text, 50)


def test_descriptions_are_cleaned_wherever_they_are():
    hidden = "Do\u200b this.\x1b[31m\U000e0041"
    schema = {
        "type": "object",
        "description": hidden,
        "properties": {"description": {"type": "string", "title": hidden, "default": "\u200b"}},
    }
    found = only(description="a" * 9000 + hidden, inputSchema=schema)
    assert len(found.description) == 2000
    assert found.description.endswith("…")
    assert found.input_schema["description"] == "Do this.[31m"
    inner: Any = found.input_schema["properties"]
    assert inner["description"] == {"type": "string", "title": "Do this.[31m", "default": "\u200b"}


def test_a_tool_without_words_is_described_all_the_same():
    assert only().description == "The tool `t` of the MCP server `srv`."
    assert only(title="A title").description == "A title"
