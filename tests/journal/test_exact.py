"""What the journal writes fast is spelled as ever."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts import canonical_json
from holdfast.errors import CallerError
from holdfast.journal._exact import exact_json

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
exact = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=20,
)


@given(exact)
@example(10**30)
@example({"a": [2**64 - 1, 2**64, -(2**63), -(2**63) - 1]})
@example({"\U0001f600": "\x7f\x00\x1f\x08\u2028", "\uffff": '"\\/', "\x00": "\t\r\n\f"})
def test_the_fast_way_spells_the_same(value: object):
    assert exact_json(value) == canonical_json(value)


def test_the_fast_way_spells_every_character_the_same():
    for first in range(0, 0x110000, 0x400):
        every = "".join(map(chr, range(first, first + 0x400)))
        if not 0xD800 <= first < 0xE000:
            assert exact_json({every: every}) == canonical_json({every: every})


@pytest.mark.parametrize("value", [b"x", object(), "\ud800", {"a": "\udfff"}, [10**5000]])
def test_the_fast_way_refuses_the_same(value: object):
    with pytest.raises(CallerError) as caught:
        exact_json(value)
    assert caught.value.code == "PAYLOAD_NOT_JSON"


def test_depth_beyond_the_fast_way_is_spelled_the_same():
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    assert exact_json(deep) == canonical_json(deep)
