"""Generated schemas: their values pass as they are, and what is wrong with others is told at its place."""

import json
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.output import MAX_FAULTS, Partial, output_of, read

NAMES = st.sampled_from(["a", "b", "c/d", "e~f", "ä", ""])
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def cases(draw: st.DrawFn, depth: int = 3) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    """A schema, and the values that fit it."""
    kind = draw(
        st.sampled_from(
            [
                "integer",
                "string",
                "boolean",
                "null",
                "enum",
                *["array", "object", "anyOf"] * (depth > 0),
            ]
        )
    )
    match kind:
        case "integer":
            low = draw(st.integers(-5, 5))
            return {"type": "integer", "minimum": low}, st.integers(low, low + 9)
        case "string":
            most = draw(st.integers(0, 6))
            return {"type": "string", "maxLength": most}, TEXT.map(lambda one: one[:most])
        case "enum":
            options = draw(st.lists(TEXT | st.integers(), min_size=1, max_size=3))
            return {"enum": options}, st.sampled_from(options)
        case "array":
            schema, values = draw(cases(depth - 1))
            return {"type": "array", "items": schema, "maxItems": 3}, st.lists(values, max_size=3)
        case "object":
            return draw(objects(depth))
        case "anyOf":
            several = draw(st.lists(cases(depth - 1), min_size=1, max_size=3))
            return {"anyOf": [one for one, _ in several]}, st.one_of(*(one for _, one in several))
        case _:
            return {"type": kind}, st.booleans() if kind == "boolean" else st.none()


@st.composite
def objects(draw: st.DrawFn, depth: int) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    members = draw(st.dictionaries(NAMES, cases(depth - 1), max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(members)), unique=True)) if members else []
    schema = {
        "type": "object",
        "properties": {name: one for name, (one, _) in members.items()},
        "required": required,
        "additionalProperties": False,
    }
    values = {name: one for name, (_, one) in members.items()}
    return schema, st.fixed_dictionaries(
        {name: values[name] for name in required},
        optional={name: one for name, one in values.items() if name not in required},
    )


OTHERS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3),
    max_leaves=6,
)


@given(st.data(), cases())
def test_a_value_of_its_schema_passes_unrepaired(data: Any, case: Any):
    schema, values = case
    value = data.draw(values)
    output = output_of(schema)
    text = json.dumps(value)
    reading = read(text, output)
    assert reading.ok
    assert not reading.repaired
    assert json.dumps(reading.value) == text
    partial = Partial(output)
    partial.feed(text)
    partial.finish()
    assert json.dumps(partial.value) == text


@given(cases(), OTHERS)
def test_faults_agree_with_the_standard_and_name_a_place(case: Any, value: Any):
    schema, _ = case
    output = output_of(schema, name="nobody")
    reading = read(json.dumps(value), output)
    assert reading.ok == jsonschema_rs.is_valid(schema, value)
    assert len(reading.faults) <= MAX_FAULTS
    for one in reading.faults:
        assert one.message.startswith(f"`{one.path}` ")
        assert has_place(value, one.path, missing=one.code == "missing_required_field")


def has_place(value: Any, path: str, *, missing: bool) -> bool:
    """Whether a path leads to a part of `value`, or to a member that is not there."""
    parts = path.split("/")[1:] if path != "/" else []
    if path == "/" and missing:
        parts = [""]
    for index, part in enumerate(parts):
        key = part.replace("~1", "/").replace("~0", "~")
        last = index == len(parts) - 1
        if isinstance(value, dict):
            if missing and last:
                return key not in value
            if key not in value:
                return False
            value = value[key]
        elif isinstance(value, list):
            value = value[int(key)]
        else:
            return False
    return True
