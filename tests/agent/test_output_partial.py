"""`Partial`: a typed answer while it is being given."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.agent.output import Partial, output_of, read

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=4) | st.dictionaries(TEXT, one, max_size=4), max_leaves=15
)  # fmt: skip


class Point(BaseModel):
    x: int
    name: str = ""


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[Any, list[str]]:
    """A value and its text in pieces, cut anywhere."""
    value = draw(VALUES)
    text = json.dumps(
        value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
    )
    text = draw(st.sampled_from(["{}", " {}\n", "```json\n{}\n```"])).replace("{}", text)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return value, [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def shown(pieces: list[str], partial: Partial) -> list[Any]:
    """Every new value, in order, each as it was when it was given out."""
    found: list[Any] = []
    for piece in pieces:
        if partial.feed(piece):
            found.append(partial.value)
    if partial.finish():
        found.append(partial.value)
    return found


@given(cut_texts())
def test_the_last_partial_is_the_value(case: tuple[Any, list[str]]):
    value, pieces = case
    partial = Partial()
    values = shown(pieces, partial)
    assert json.dumps(values[-1]) == json.dumps(value)
    assert json.dumps(partial.value) == json.dumps(value)
    assert partial.complete


@given(cut_texts())
def test_what_was_given_out_does_not_change(case: tuple[Any, list[str]]):
    partial = Partial()
    given_out: list[tuple[Any, Any]] = []
    for piece in case[1]:
        if partial.feed(piece):
            given_out.append((partial.value, copy.deepcopy(partial.value)))
    partial.finish()
    assert all(json.dumps(now) == json.dumps(then) for now, then in given_out)


@given(cut_texts())
def test_every_partial_is_a_beginning_of_the_value(case: tuple[Any, list[str]]):
    value, pieces = case
    for one in shown(pieces, Partial()):
        assert begins(one, value)


def begins(part: Any, whole: Any) -> bool:
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(begins, part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        keys = list(whole)
        return list(part) == keys[: len(part)] and all(
            begins(part[key], whole[key]) for key in part
        )
    return json.dumps(part) == json.dumps(whole)


@given(
    st.lists(
        st.text(st.characters(), max_size=8)
        | st.sampled_from([*'{}[],:"\\', "```", "1", "a", "/*", "//"])
    )
)
def test_no_text_raises_and_no_change_goes_untold(pieces: list[str]):
    partial = Partial(output_of(list[int] | Point))
    before = json.dumps(partial.value)
    for piece in pieces:
        changed = partial.feed(piece)
        after = json.dumps(partial.value)
        assert changed or after == before
        before = after
    partial.finish()
    json.dumps(partial.value)
    assert not partial.complete or partial.found


@given(cut_texts())
def test_a_character_at_a_time_gives_the_same_end(case: tuple[Any, list[str]]):
    text = "".join(case[1])
    one, all_at_once = Partial(), Partial()
    shown(list(text), one)
    shown([text], all_at_once)
    assert json.dumps(one.value) == json.dumps(all_at_once.value)


def test_strings_grow_and_numbers_wait():
    partial = Partial()
    assert shown(['{"na', 'me": "A', 'da", "age": 3', "6", "}"], partial) == [
        {"name": "A"},
        {"name": "Ada"},
        {"name": "Ada", "age": 36},
    ]


def test_escapes_wait_for_their_end():
    assert shown(['"a\\u00', "e9\\ud83d", '\\ude00"'], Partial()) == ["a", "aé", "aé😀"]


def test_slips_are_mended_as_they_come():
    assert shown(["{'a': Tr", "ue, b: [1, 2,", "], /* no", "te */}"], Partial())[-1] == {
        "a": True,
        "b": [1, 2],
    }


def test_prose_before_the_value_is_left_out():
    assert shown(["Sure, as [see above] an", 'swer: {"x', '": 1}', " Bye."], Partial())[-1] == {
        "x": 1
    }
    long = "Once upon a time. " * 1000
    assert shown([long, long, "[1, 2]"], Partial())[-1] == [1, 2]


def test_a_list_in_the_prose_is_not_taken_for_an_object():
    partial = Partial(output_of(Point))
    assert shown(['From [1] follows {"x": 1}'], partial) == [{"x": 1}]


def test_what_is_named_like_the_output_is_unwrapped():
    partial = Partial(output_of(Point))
    assert shown(['{"Point": {"name": "a', '", "x": 1}}'], partial) == [
        {"name": "a"},
        {"name": "a", "x": 1},
    ]


@pytest.mark.parametrize("text", ['{"x": 1}', "```json\n{'x': 1,}\n```", '{"Point": {"x": 1}}'])
def test_the_last_partial_is_what_is_read(text: str):
    output = output_of(Point)
    assert shown([text], Partial(output))[-1] == read(text, output).json


def test_what_is_broken_keeps_what_it_had():
    partial = Partial()
    assert shown(['{"a": [1, oops', ', 2], "b": 3}'], partial) == [{"a": [1]}]
    assert not partial.complete


def test_a_long_text_in_small_pieces_is_read_once():
    """Counted, not timed: no more characters are looked at than twice the text has."""
    text = json.dumps([{"id": one, "text": "word " * 20} for one in range(500)])
    partial = Partial()
    looked = 0
    for at in range(0, len(text), 3):
        partial.feed(text[at : at + 3])
        looked += 3 + len(partial.waiting)
    assert partial.complete
    assert looked < 2 * len(text)
