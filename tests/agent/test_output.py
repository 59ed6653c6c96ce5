"""`output_of` and `read`: shapes, values of the caller's types, faults a model can act on."""

import dataclasses
import datetime
import json
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from holdfast.agent.output import (
    MAX_CANDIDATE_BYTES,
    MAX_FAULTS,
    REPAIRS,
    Output,
    output_of,
    read,
    tool_calls_instead,
)
from holdfast.errors import CallerError


class Line(BaseModel):
    text: str
    cents: int = Field(ge=0)


class Invoice(BaseModel):
    """An invoice."""

    number: str
    due: datetime.date
    lines: list[Line]
    paid: bool = False


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str


class Tree(BaseModel):
    label: str
    children: list["Tree"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


INVOICE = {"number": "A1", "due": "2026-01-02", "lines": [{"text": "ink", "cents": 5}]}


# -- shapes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "given", "made"),
    [
        (
            Invoice,
            INVOICE,
            Invoice(
                number="A1",
                due=datetime.date(2026, 1, 2),
                lines=[Line(text="ink", cents=5)],
            ),
        ),
        (Point, {"x": 1}, Point(1, 0)),
        (Row, {"name": "a"}, {"name": "a"}),
        (list[int], [1, 2], [1, 2]),
        (int, 7, 7),
        (str, "a", "a"),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Cat | Dog, {"kind": "dog", "name": "Rex"}, Dog(kind="dog", name="Rex")),
        (Annotated[int, Field(ge=3)], 3, 3),
        (Tree, {"label": "a", "children": [{"label": "b"}]}, Tree(label="a", children=[Tree(label="b")])),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}, {"a": 1}),
        ({}, None, None),
    ],
)  # fmt: skip
def test_a_shape_gives_the_callers_type_back(shape: Any, given: Any, made: Any):
    reading = read(json.dumps(given), output_of(shape))
    assert reading.ok
    assert not reading.repaired
    assert reading.value == made
    assert type(reading.value) is type(made)
    assert reading.json == given


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (Invoice, "Invoice"),
        (Point, "Point"),
        (list[int], "list"),
        (Cat | Dog, "output"),
        ({"title": "A thing, or two"}, "A_thing_or_two"),
        ({}, "output"),
    ],
)
def test_an_output_has_a_name_that_providers_take(shape: Any, name: str):
    assert output_of(shape).spec.name == name


def test_the_name_can_be_given():
    assert output_of(int, name="answer").spec.name == "answer"
    with pytest.raises(CallerError, match="INVALID_ARGUMENT"):
        output_of(int, name="not a name")


def test_a_class_describes_itself():
    assert output_of(Invoice).spec.description == "An invoice."
    assert output_of(Point).spec.description is None


def test_the_order_of_properties_is_the_order_of_fields():
    properties: Any = output_of(Invoice).spec.schema["properties"]
    assert list(properties) == ["number", "due", "lines", "paid"]


def test_members_that_a_class_does_not_declare_are_denied():
    reading = read('{"x": 1, "z": 2}', output_of(Point))
    assert [(one.code, one.path) for one in reading.faults] == [
        ("additional_property_denied", "/z")
    ]


def test_a_class_may_allow_what_it_does_not_declare():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    assert read('{"a": 1, "b": 2}', output_of(Open)).ok


def test_a_schema_means_what_it_says_about_other_members():
    assert read('{"b": 2}', output_of({"type": "object", "properties": {"a": {}}})).ok


def test_an_output_is_itself_a_shape():
    output = output_of(Invoice)
    assert output_of(output) is output
    renamed = output_of(output, name="bill")
    assert renamed.spec.name == "bill"
    assert isinstance(read(json.dumps(INVOICE), renamed).value, Invoice)


@pytest.mark.parametrize("shape", [None, 5, "int", [int], (int,), print, object(), {"a": {1, 2}}])
def test_what_is_no_shape_is_refused(shape: Any):
    with pytest.raises(CallerError) as why:
        output_of(shape)
    assert why.value.code == "INVALID_ARGUMENT"
    assert why.value.hint


def test_a_type_that_names_what_is_not_there_is_refused():
    class Lost(BaseModel):
        other: "Nowhere"  # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(CallerError, match="Nowhere"):
        output_of(Lost)


# -- the same in another process --------------------------------------------------------------------------


def test_a_stored_output_is_the_same_in_another_process():
    output = output_of(Invoice)
    program = (
        "import json, sys; from holdfast.agent.output import Output, read\n"
        "output = Output.restored(json.loads(sys.argv[1]))\n"
        "reading = read(sys.argv[2], output)\n"
        "print(json.dumps([output.digest, output.schema_text, reading.ok, reading.value]))"
    )
    # A record sorts the keys of what it holds; the order of the schema must survive that.
    stored = json.dumps(output.stored, sort_keys=True)
    done = subprocess.run(
        [sys.executable, "-c", program, stored, json.dumps(INVOICE)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [output.digest, output.schema_text, True, INVOICE]


def test_digests_differ_by_schema_and_by_name():
    digests = {
        output_of(Invoice).digest,
        output_of(Point).digest,
        output_of(int).digest,
        output_of(int, name="answer").digest,
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    "stored", [{}, {"name": "a", "schema": "{"}, {"name": "a", "schema": "[]"}]
)
def test_a_damaged_record_of_an_output_is_refused(stored: Any):
    with pytest.raises(CallerError, match="INVALID_ARGUMENT"):
        Output.restored(stored)


# -- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['{"x": 1}', '  {"x": 1}\n', '```json\n{"x": 1}\n```', '```\n{"x": 1}\n```', '```json{"x": 1}```', '{"x": 1}\n```'],
)  # fmt: skip
def test_space_and_one_fence_are_no_repair(text: str):
    reading = read(text, output_of(Point))
    assert reading.value == Point(1)
    assert not reading.repaired


def test_an_object_named_like_the_output_is_unwrapped():
    reading = read('{"Point": {"x": 1}}', output_of(Point))
    assert (reading.value, reading.unwrapped) == (Point(1), True)
    assert read('{"answer": [1]}', output_of(list[int], name="answer")).value == [1]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"output": {"type": "object"}}, "required": ["output"]}, '{"output": {}}'),
        ({"type": "object"}, '{"output": {"a": 1}}'),
        ({"type": "object", "maxProperties": 1}, '{"output": {"a": 1}}'),
    ],
)
def test_what_fits_as_it_is_stays_wrapped(schema: Any, text: str):
    reading = read(text, output_of(schema))
    assert reading.ok
    assert not reading.unwrapped
    assert reading.json == json.loads(text)


def test_a_key_of_another_name_is_not_unwrapped():
    assert not read('{"point": {"x": 1}}', output_of(Point)).ok


def test_errors_are_the_texts_of_the_contract():
    assert read("no", output_of(Point)).error == "Invalid JSON: there is no JSON in the answer"
    assert read('{"x": 1 2}', output_of(Point)).error == (
        "Invalid JSON: line 1, column 9: expected `,` or `}` after a member"
    )
    assert read('{"x": "a"}', output_of(Point)).error == (
        'Schema validation failed: `/x` must be an integer, but is "a"'
    )
    assert read('{"x": "a", "y": "b"}', output_of(Point)).error == (
        'Schema validation failed: `/x` must be an integer, but is "a" (and 1 more)'
    )
    assert read('{"x": 1}', output_of(Point)).error is None


@pytest.mark.parametrize(
    ("schema", "value", "code", "path"),
    [
        ({"type": "string"}, 1, "type_mismatch", "/"),
        ({"type": "integer"}, True, "type_mismatch", "/"),
        ({"type": ["string", "null"]}, 1, "type_mismatch", "/"),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "type_mismatch", "/a/1"),
        ({"required": ["a/b"]}, {}, "missing_required_field", "/a~1b"),
        ({"properties": {}, "additionalProperties": False}, {"a": 1}, "additional_property_denied", "/a"),
        ({"properties": {"a": False}}, {"a": 1}, "additional_property_denied", "/a"),
        ({"additionalProperties": {"type": "null"}}, {"a": 1}, "type_mismatch", "/a"),
        ({"prefixItems": [{"type": "null"}], "items": False}, [None, 1], "additional_property_denied", "/1"),
        ({"enum": ["a", 1]}, "b", "enum_mismatch", "/"),
        ({"const": None}, 0, "enum_mismatch", "/"),
        ({"minLength": 2}, "a", "min_length_violation", "/"),
        ({"maxLength": 2}, "abc", "max_length_violation", "/"),
        ({"minItems": 1}, [], "min_length_violation", "/"),
        ({"maxItems": 1}, [1, 2], "max_length_violation", "/"),
        ({"minProperties": 1}, {}, "min_length_violation", "/"),
        ({"maxProperties": 0}, {"a": 1}, "max_length_violation", "/"),
        ({"minimum": 3}, 2, "constraint_violation", "/"),
        ({"exclusiveMaximum": 3}, 3, "constraint_violation", "/"),
        ({"multipleOf": 2}, 3, "constraint_violation", "/"),
        ({"pattern": "^a"}, "b", "constraint_violation", "/"),
        ({"uniqueItems": True}, [1, 1], "constraint_violation", "/"),
        ({"not": {"type": "null"}}, None, "constraint_violation", "/"),
        ({"if": {"type": "null"}, "then": False}, None, "constraint_violation", "/"),
        ({"contains": {"type": "null"}}, [1], "constraint_violation", "/"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "constraint_violation", "/"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "constraint_violation", "/"),
        ({"patternProperties": {"^a": {"type": "null"}}}, {"ab": 1}, "constraint_violation", "/"),
        ({"unevaluatedProperties": False}, {"ab": 1}, "constraint_violation", "/"),
        ({"allOf": [{"type": "null"}]}, 1, "type_mismatch", "/"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "type_mismatch", "/"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1, "constraint_violation", "/"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, "type_mismatch", "/"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, {"b": 1, "a": {}}, "missing_required_field", "/a/b"),
    ],
)  # fmt: skip
def test_a_fault_has_its_code_and_its_path(schema: Any, value: Any, code: str, path: str):
    reading = read(json.dumps(value), output_of(schema))
    assert [(one.code, one.path) for one in reading.faults] == [(code, path)]
    (one,) = reading.faults
    assert one.message.startswith(f"`{path}` {one.rule}")
    assert reading.json == value
    assert reading.value is None
    assert reading.repairable


def test_of_alternatives_the_one_that_was_meant_is_explained():
    output = output_of(Cat | Dog | None)
    assert [one.message for one in read('{"kind": "dog"}', output).faults] == [
        "`/name` is required and missing"
    ]
    assert [one.message for one in read("5", output).faults] == [
        "`/` must be an object or null, but is 5"
    ]


def test_at_most_32_faults_are_told():
    reading = read(json.dumps(["a"] * 100), output_of(list[int]))
    assert len(reading.faults) == MAX_FAULTS


def test_long_values_are_cut_in_messages():
    (one,) = read(json.dumps("a" * 5000), output_of(int)).faults
    assert len(one.message) < 200


def test_a_recursive_union_is_explained_in_no_time():
    """The library's own list of errors doubles with every level: hours for this one."""

    class Leaf(BaseModel):
        value: int

    class Left(BaseModel):
        below: "Left | Right | Leaf"

    class Right(BaseModel):
        below: "Left | Right | Leaf"

    Left.model_rebuild(_types_namespace={"Left": Left, "Right": Right, "Leaf": Leaf})
    Right.model_rebuild(_types_namespace={"Left": Left, "Right": Right, "Leaf": Leaf})
    value: Any = {"value": "wrong"}
    for _ in range(40):
        value = {"below": value}
    (one,) = read(json.dumps(value), output_of(Left)).faults
    assert one.path == "/below" * 40 + "/value"


def test_a_validator_of_the_type_is_told_as_a_fault():
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    reading = read('{"number": 3}', output_of(Even))
    assert [(one.code, one.path) for one in reading.faults] == [("semantic_violation", "/number")]
    assert reading.repairable
    assert reading.json == {"number": 3}
    assert "must be even" in (reading.error or "")


def test_a_format_is_left_to_the_type():
    reading = read(json.dumps({**INVOICE, "due": "soon"}), output_of(Invoice))
    assert [(one.code, one.path) for one in reading.faults] == [("semantic_violation", "/due")]


def test_a_type_that_breaks_is_no_verdict_and_not_repairable():
    class Broken(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def breaks(cls, value: int) -> int:
            raise KeyError(value)

    reading = read('{"number": 3}', output_of(Broken))
    assert [one.code for one in reading.faults] == ["semantic_validator_unavailable"]
    assert not reading.repairable


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        ({"type": "string"}, "He said “hi” to “me”.", "He said “hi” to “me”."),
        ({"type": "string"}, 'He said "hi".', 'He said "hi".'),
        ({"type": "string"}, ' "hi" ', "hi"),
        ({"type": "string"}, '```json\n"hi"\n```', "hi"),
        ({"type": "string"}, "'hi'", "hi"),
        ({"type": "string"}, '{"output": "hi"}', "hi"),
        ({"type": "string", "enum": ["a", "b"]}, "a\n", "a"),
        ({"type": "string"}, 'As JSON it is {"a": 1}.', 'As JSON it is {"a": 1}.'),
        (datetime.date, "2026-02-03", datetime.date(2026, 2, 3)),
    ],
)
def test_words_are_a_string(shape: Any, text: str, value: object):
    """Where a string is wanted, a model need not put its words in quotes."""
    reading = read(text, output_of(shape))
    assert (reading.value, reading.ok) == (value, True)


def test_words_that_do_not_fit_or_were_cut_off_are_no_string():
    short = output_of({"type": "string", "maxLength": 3})
    assert [one.code for one in read("too long", short).faults] == ["invalid_json"]
    assert [one.code for one in read("[1]", short).faults] == ["type_mismatch"]
    assert not read("Well, it", output_of({"type": "string"}), cut=True).ok
    assert not read("", output_of({"type": "string"})).ok


def test_a_long_answer_is_not_looked_at():
    text = json.dumps("a" * MAX_CANDIDATE_BYTES)
    (one,) = read(text, output_of(str)).faults
    assert one.code == "candidate_too_large"
    assert read(text, output_of(str), max_bytes=2 * MAX_CANDIDATE_BYTES).ok


def test_max_bytes_counts_bytes():
    text = json.dumps("ä" * 10, ensure_ascii=False)
    assert read(text, output_of(str), max_bytes=22).ok
    assert not read(text, output_of(str), max_bytes=21).ok


def test_tool_calls_instead_of_an_answer_have_their_text():
    assert tool_calls_instead(["a", "b"]) == (
        "structured output extraction returned tool calls instead of JSON: a, b"
    )


def test_every_repair_is_described():
    assert all(REPAIRS.values())


# -- schemas that are refused ---------------------------------------------------------------------------------


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def _multiplied(levels: int) -> dict[str, Any]:
    """Each level has the next one twice."""
    found: dict[str, Any] = {f"a{levels}": {"type": "null"}}
    for one in range(levels):
        ref = {"$ref": f"#/$defs/a{one + 1}"}
        found[f"a{one}"] = {"anyOf": [{"properties": {"b": ref}}, {"properties": {"b": ref}}]}
    return {"$ref": "#/$defs/a0", "$defs": found}


@pytest.mark.parametrize(
    ("schema", "code", "path"),
    [
        ({"description": "a" * 64 * 1024}, "hostile_schema", "/"),
        (_deep(24), "hostile_schema", "/"),
        ({"properties": {str(one): {} for one in range(257)}}, "hostile_schema", "/"),
        ({"items": {"enum": list(range(513))}}, "hostile_schema", "/items"),
        ({"pattern": "a" * 2049}, "hostile_schema", "/"),
        ({"patternProperties": {"a" * 2049: {}}}, "hostile_schema", "/"),
        ({"$ref": "https://example.com/a.json"}, "hostile_schema", "/$ref"),
        ({"$ref": "file:///etc/passwd"}, "hostile_schema", "/$ref"),
        ({"anyOf": [{"$ref": "other.json#/a"}]}, "hostile_schema", "/anyOf/0/$ref"),
        ({"$ref": "#/$defs/a"}, "schema_contract_violation", "/$ref"),
        ({"$ref": "#/enum", "enum": [1]}, "schema_contract_violation", "/$ref"),
        ({"$ref": "#"}, "hostile_schema", "/"),
        ({"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}, "hostile_schema", "/"),
        ({"$id": "https://example.com/"}, "unsupported_schema_ref", "/$id"),
        ({"$dynamicRef": "#a"}, "unsupported_schema_ref", "/$dynamicRef"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "unsupported_dialect", "/$schema"),
        ({"items": [{}]}, "schema_contract_violation", "/items"),
        ({"type": "text"}, "schema_contract_violation", "/type"),
        ({"pattern": "("}, "schema_contract_violation", "/pattern"),
        ({"pattern": "(?=a)b"}, "schema_contract_violation", "/pattern"),
        ({"properties": 5}, "schema_contract_violation", "/properties"),
        (_multiplied(60), "hostile_schema", "/"),
        ({"$defs": {f"a{one}": {"$ref": f"#/$defs/a{one + 1}"} for one in range(1800)} | {"a1800": {}}, "$ref": "#/$defs/a0"}, "hostile_schema", "/"),
    ],
)  # fmt: skip
def test_a_schema_that_could_do_harm_is_refused(schema: Any, code: str, path: str):
    with pytest.raises(CallerError) as why:
        output_of(schema)
    assert why.value.code == "INVALID_ARGUMENT"
    assert f"({code}) at `{path}`" in why.value.message
    assert why.value.hint


@pytest.mark.parametrize(
    "schema",
    [
        _deep(23),
        {"properties": {str(one): {} for one in range(256)}},
        {"enum": list(range(512))},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
        {"enum": [{"$ref": "https://example.com"}]},
        _multiplied(10),
        {"properties": {"a": {}, "b": {"$ref": "#/properties/a"}}},
    ],
)
def test_a_schema_within_its_limits_is_taken(schema: Any):
    assert output_of(schema).spec.schema == schema


def test_nobody_else_holds_the_schema():
    schema: dict[str, Any] = {"type": "integer"}
    output = output_of(schema)
    schema["type"] = "string"
    assert read("1", output).ok
