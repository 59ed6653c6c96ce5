"""One value, one spelling."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import canonical_json, digest, digest_json
from holdfast.contracts.canonical import canonical_text, json_string, seal, sealed_by
from holdfast.errors import CallerError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=20,
)


def shuffled(value: object) -> object:
    """The same value with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def same(one: object, two: object) -> bool:
    """Equal, and of the same types all the way down: 1 is neither 1.0 nor true."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return one == two and math.copysign(1, one) == math.copysign(1, two)
    return type(one) is type(two) and one == two


@given(values)
def test_it_comes_back_as_it_was(value: object):
    assert same(json.loads(canonical_json(value)), value)


@given(values)
def test_the_spelling_does_not_depend_on_the_order(value: object):
    assert canonical_json(shuffled(value)) == canonical_json(value)
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


@given(values, values)
def test_other_values_are_spelled_otherwise(one: object, two: object):
    assert (canonical_json(one) == canonical_json(two)) == same(one, two)


@given(text)
def test_a_string_alone_is_spelled_as_inside(value: str):
    assert json_string(value) == canonical_text(value)


@pytest.mark.parametrize(
    ("value", "spelling"),
    [
        ({"b": 1, "a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true],"b":1}'),
        ({"é": "é", "z": "\n\x00\x7f"}, '{"z":"\\n\\u0000\x7f","é":"é"}'),
        ({"\U0001f600": 1, "\uffff": 2}, '{"\uffff":2,"\U0001f600":1}'),
        ([1e16, 1e-7, -0.0, 10**20], "[1e+16,1e-07,-0.0,100000000000000000000]"),
        ("</script>\u2028", '"</script>\u2028"'),
    ],
)
def test_spellings_are_fixed_for_ever(value: object, spelling: str):
    assert canonical_text(value) == spelling
    assert canonical_json(value) == spelling.encode()


def test_digests_are_fixed_for_ever():
    assert digest(b"") == "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
    assert digest_json({"b": 1, "a": 2}) == digest(b'{"a":2,"b":1}')


def test_only_the_key_makes_the_seal():
    tag = seal(b"key", b"data")
    assert len(tag) == 32
    assert sealed_by(b"key", b"data", tag)
    assert not sealed_by(b"other", b"data", tag)
    assert not sealed_by(b"key", b"date", tag)
    assert not sealed_by(b"key", b"data", tag[:-1])


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"x", {1, 2}, object(), "\ud800", ["\udfff"], [10**5000]]
)
def test_what_json_can_not_express_is_refused(value: object):
    with pytest.raises(CallerError) as caught:
        canonical_json(value)
    assert caught.value.code == "PAYLOAD_NOT_JSON"


def test_cycles_and_depth_are_refused():
    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(CallerError) as caught:
            canonical_json(value)
        assert caught.value.code == "PAYLOAD_NOT_JSON"
