"""Python stubs from contracts: what they say, and that they are always Python the engine's checker takes."""

import ast
import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_monty import Monty, MontyRuntimeError, MontySession, MontyTypingError

from holdfast.capabilities import CapabilitySet, Foreign, capability, python_stubs, signature
from holdfast.contracts import Capability, Json
from holdfast.errors import CallerError
from holdfast.gate.executor import Context


def tool(
    name: str, schema: Any = None, output: Any = None, *, awaited: bool = False, said: str = ""
) -> Capability:
    return Capability(
        name=name,
        description=said,
        input_schema=schema or {},
        output_schema=output or {},
        asynchronous=awaited,
    )


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({}, "Any"),
        (True, "Any"),
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, "list[Any]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"enum": ["a", 1, True, None]}, "Literal['a', 1, True] | None"),
        ({"const": "x"}, "Literal['x']"),
        ({"enum": [1.5, "a"]}, "Literal['a'] | float"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "str | int"),
        ({"oneOf": [{"type": "string"}, {}]}, "Any"),
        ({"allOf": [{"type": "string"}]}, "str"),
        ({"$ref": "#/nowhere"}, "Any"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "FX"),
    ],
    ids=str,
)
def test_types(schema: Any, hint: str):
    stubs = python_stubs([tool("f", {**taking(x=schema), "required": ["x"]})])
    assert f"def f(x: {hint}) -> Any: ..." in stubs


def test_a_whole_set():
    shared = {
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["name"],
            }
        },
        "$ref": "#/$defs/Node",
    }
    tools = [
        tool("tree", None, shared, awaited=True, said="The tree.\nAll of it."),
        tool("odd", taking(**{"from": {}, "user-id": {}}), {"type": "string"}),
        tool(
            "pay",
            {
                **taking(
                    cents={"type": "integer", "default": 5},
                    to={
                        "type": "object",
                        "properties": {"str": {"type": "string"}, "b": {"type": "string"}},
                        "required": ["b"],
                    },
                ),
                "required": ["to"],
            },
            {"type": "null"},
            said='Say "pay"',
        ),
    ]
    assert python_stubs(tools) == (
        "from typing import Any, NotRequired, TypedDict\n\n"
        'PayTo = TypedDict("PayTo", {\n'
        "    'str': NotRequired[str],\n"
        "    'b': str,\n"
        "})\n\n"
        "class Node(TypedDict):\n"
        "    name: str\n"
        "    children: NotRequired[list[Node]]\n\n"
        "def odd(**rest: Any) -> str: ...\n\n"
        "def pay(cents: int = 5, *, to: PayTo) -> None:\n"
        '    """Say \\"pay\\""""\n\n'
        "async def tree(**rest: Any) -> Node:\n"
        '    """The tree."""\n'
    )
    assert python_stubs(reversed(tools)) == python_stubs(tools)
    assert python_stubs([]) == ""


def test_what_is_the_same_is_defined_once():
    thing = {"type": "object", "title": "Thing", "properties": {"a": {"type": "integer"}}}
    other = {"type": "object", "title": "Thing", "properties": {"b": {"type": "integer"}}}
    stubs = python_stubs([tool("f", None, thing), tool("g", None, thing), tool("h", None, other)])
    assert stubs.count("class Thing(") == 1
    assert "class Thing2(" in stubs
    assert "def g(**rest: Any) -> Thing: ..." in stubs


def test_names_of_capabilities_are_left_alone():
    thing = {"type": "object", "title": "Any", "properties": {"Literal": {"enum": ["a"]}}}
    stubs = python_stubs([tool("Any", None, thing), tool("AAny"), tool("Literal")])
    compile(stubs, "stubs", "exec")
    assert "def Any(" in stubs
    assert "Any as _Any" in stubs


def test_a_signature_is_one_line():
    @capability
    def pay(to: dict[str, int], cents: int = 5, *, at: str) -> list[str]:
        """Pay."""
        return [f"{to}{cents}{at}"]

    assert signature(pay.capability) == (
        "pay(to: dict[str, int], cents: int = 5, *, at: str) -> list[str]"
    )


# -- anything that looks like a schema ----------------------------------------------------------------

names = st.one_of(
    st.sampled_from(
        "a b x str int list Any None class from self __x rest Literal user-id ID type é ﬁ".split()
    ),
    st.text(max_size=6),
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),  # JSON has neither
    st.text(max_size=5),
    st.just([1]),
    st.just({"a": 1}),
)
kinds = st.sampled_from("string integer number boolean null array object strange".split())


def _object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=4)},
        optional={
            "required": st.lists(names, max_size=3),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "title": names,
            "default": values,
        },
    )


def _more(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    return st.one_of(
        _object(inner),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"type": st.lists(kinds, max_size=3), "items": inner}),
    )


schemas = st.recursive(
    st.one_of(
        st.just({}),
        st.booleans(),
        st.fixed_dictionaries({"type": kinds}, optional={"default": values}),
        st.fixed_dictionaries({"enum": st.lists(values, max_size=4)}),
        st.fixed_dictionaries({"const": values}),
        st.sampled_from([{"$ref": f"#/$defs/{one}"} for one in ("A", "B", "nowhere")]),
        st.just({"$ref": "#"}),
    ),
    _more,
    max_leaves=8,
)


@st.composite
def capabilities(draw: st.DrawFn, name: str) -> Capability:
    schema, output = draw(_object(schemas)), draw(schemas)
    output = output if isinstance(output, dict) else {}
    defs = {"A": draw(schemas), "B": draw(schemas)}
    return Capability(
        name=name,
        description=draw(st.text(max_size=20)),
        input_schema={**schema, "$defs": defs},
        output_schema={**output, "$defs": defs},
        asynchronous=draw(st.booleans()),
    )


@pytest.fixture(scope="module")
def pool() -> Generator[Monty]:
    with Monty() as opened:
        yield opened


@settings(max_examples=60)
@given(st.tuples(capabilities("first"), capabilities("Literal"), capabilities("str2")))
def test_stubs_are_always_python_that_the_checker_takes(pool: Monty, tools: tuple[Capability, ...]):
    stubs = python_stubs(tools)
    assert python_stubs(tools) == stubs
    ast.parse(stubs)
    for one in tools:
        ast.parse(f"def {signature(one)}: ...")
    with pool.checkout(
        type_check=True, type_check_stubs=stubs, type_check_format="json"
    ) as session:
        assert complaints(session, "\n".join(f"{one.name}" for one in tools)) == []
        # The stubs as code of their own: whatever is wrong with them would be said.
    with pool.checkout(type_check=True, type_check_format="json") as session:
        found = complaints(session, stubs)
        assert [one for one in found if one["code"] not in ALLOWED] == []


# As a module and not as stubs, functions have no body and some names come too late.
ALLOWED = ("empty-body", "invalid-return-type", "unresolved-reference", "invalid-parameter-default")


def complaints(session: MontySession, code: str) -> list[dict[str, Any]]:
    try:
        session.feed_run(f"0/0\n{code}")
    except MontyTypingError as error:
        return json.loads(error.display())
    except (MontyRuntimeError, NotImplementedError):
        pass
    return []


@settings(max_examples=100)
@given(capabilities("first"))
def test_what_the_stubs_show_is_how_calls_bind(one: Capability):
    try:
        tools = CapabilitySet(Foreign(one, _act))
    except CallerError:
        return  # no schema, which `test_registry` shows to be refused
    (function,) = [
        node
        for node in ast.parse(tools.stubs()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    executor = tools.get("first")
    assert executor is not None
    positional = [arg.arg for arg in function.args.args]
    kwargs: dict[str, Json] = {arg.arg: 0 for arg in function.args.kwonlyargs}
    if function.args.kwarg:
        kwargs.update((name, 0) for name in required_of(one) if name not in positional)
    elif not set(required_of(one)) <= {*positional, *kwargs}:
        return  # it can't be called at all
    bound = executor.bind([0] * len(positional), kwargs)
    assert list(bound)[: len(positional)] == positional


def required_of(one: Capability) -> list[str]:
    found: Any = one.input_schema.get("required", [])
    return found


async def _act(arguments: dict[str, Any], context: Context) -> Json:
    return arguments
