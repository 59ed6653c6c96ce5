"""What pages are made of: forms as fields and back, values in words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CallerError
from holdfast.gate.forms import check_content
from holdfast.server.console import words
from holdfast.server.console.fields import Field, content_of, fields_of

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
ENUM: dict[str, Any] = {"type": "string", "enum": ["a", "b", ""]}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "needed": {"type": "string"},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "check": {"type": "boolean"},
        "one": ENUM,
        "some": {"type": "array", "items": ENUM},
        "titled": {"oneOf": [{"const": 1, "title": "One"}, {"const": None, "title": "None"}]},
        "deep": {"type": "object"},
    },
    "required": ["needed"],
}
ANSWERS = st.fixed_dictionaries(
    {"needed": TEXT, "check": st.booleans()},
    optional={
        "text": TEXT.filter(bool),
        "whole": st.integers(-(10**15), 10**15),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "one": st.sampled_from(ENUM["enum"]),
        "some": st.lists(st.sampled_from(ENUM["enum"]), min_size=1, unique=True).map(
            lambda found: [one for one in ENUM["enum"] if one in found]
        ),
        "titled": st.just(1),
        "deep": st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=3),
    },
)


def typed(field: Field, value: Any) -> dict[str, str]:
    """What a browser sends for a field with this value."""
    match field.control:
        case "check":
            return {field.key: "on"} if value else {}
        case "choice":
            at = [one.value for one in field.options].index(value)
            return {field.key: str(at)}
        case "choices":
            return {
                f"{field.key}.{at}": "1"
                for at, one in enumerate(field.options)
                if one.value in value
            }
        case "number" | "json":
            return {field.key: json.dumps(value)}
        case _:
            return {field.key: value}


@given(ANSWERS)
def test_what_is_typed_into_the_fields_of_a_form_is_the_answer(answer: dict[str, Any]):
    said: dict[str, str] = {}
    for field in fields_of(FORM):
        if field.name in answer:
            said |= typed(field, answer[field.name])
    found = content_of(FORM, said)
    assert found == answer
    check_content(FORM, found)


@given(ANSWERS)
def test_a_form_that_is_shown_again_is_filled_in_as_it_was(answer: dict[str, Any]):
    said: dict[str, str] = {}
    for field in fields_of(FORM):
        if field.name in answer:
            said |= typed(field, answer[field.name])
    again: dict[str, str] = {}
    for field in fields_of(FORM, said):
        if field.control == "choices":
            again |= {f"{field.key}.{i}": "1" for i, one in enumerate(field.options) if one.chosen}
        elif field.control == "choice":
            chosen = [str(at) for at, one in enumerate(field.options) if one.chosen]
            again |= {field.key: chosen[0]} if chosen else {}
        elif field.control == "check":
            again |= {field.key: "on"} if field.value == "true" else {}
        else:
            again |= {field.key: field.value}
    assert content_of(FORM, again) == answer


@pytest.mark.parametrize(
    ("schema", "control", "shown"),
    [
        ({"type": "string", "default": "x"}, "text", "x"),
        ({"type": "string", "maxLength": 5000}, "area", ""),
        ({"type": "string", "format": "email"}, "text", ""),
        ({"type": "boolean", "default": True}, "check", "true"),
        ({"type": "integer", "default": 3}, "number", "3"),
        ({"enum": [1, 2]}, "choice", ""),
        ({"type": "array", "items": {"enum": ["a"]}}, "choices", ""),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}]}}, "choices", ""),
        ({"type": "array", "items": {"type": "string"}}, "json", ""),
        ({"type": ["string", "null"]}, "json", ""),
        ({}, "json", ""),
        (True, "json", ""),
    ],
)
def test_each_kind_of_field_has_its_control(schema: Any, control: str, shown: str):
    (field,) = fields_of({"type": "object", "properties": {"x": schema}})
    assert (field.control, field.value, field.key) == (control, shown, "content.x")


def test_names_of_choices_are_shown_and_values_are_sent():
    schema = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "default": "g"}
    (field,) = fields_of({"properties": {"x": schema}})
    assert [(one.label, one.chosen) for one in field.options] == [("Red", False), ("Green", True)]
    assert content_of({"properties": {"x": schema}}, {"content.x": "0"}) == {"x": "r"}
    assert content_of({"properties": {"x": schema}}, {"content.x": "7"}) == {}


def test_what_is_no_value_of_its_field_names_it():
    for kind, text in (("number", "many"), ("object", "{")):
        form: dict[str, Any] = {"properties": {"x": {"type": kind}}}
        with pytest.raises(CallerError, match="`x` must be"):
            content_of(form, {"content.x": text})
    assert content_of(None, {"content.x": "1"}) is None
    assert fields_of(None) == []


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (words.ago(None), "never"),
        (words.ago(1000, 2000), "just now"),
        (words.ago(0, 42_000), "42 s ago"),
        (words.ago(0, 3_600_000 * 5), "5 h ago"),
        (words.ago(90_000_000, 0), "in 1 d"),
        (words.duration(None), "–"),
        (words.duration(12), "12 ms"),
        (words.duration(1250), "1.25 s"),
        (words.duration(42_500), "42.5 s"),
        (words.duration(125_000), "2 min 05 s"),
        (words.duration(3_720_000), "1 h 02 min"),
        (words.size(512), "512 B"),
        (words.size(1536), "1.5 KiB"),
        (words.size(5 << 40), "5120.0 GiB"),
        (words.money(0), "$0"),
        (words.money(4200), "$0.0042"),
        (words.money(12_300_000), "$12.30"),
        (words.count(1234567), "1\u2009234\u2009567"),
        (words.iso(0), "1970-01-01T00:00:00Z"),
        (words.clock(0), "1970-01-01 00:00:00 UTC"),
        (words.short(None), "–"),
        (words.short("my_long_session_name_here"), "my_long_session_name_here"),
        (words.short("run_18e890e145a6dd8f550a1b9f0003"), "run_…9f0003"),
        (words.short("eff_18e890e145a6dd8f550a1b9f0003_0"), "eff_…9f0003_0"),
        (words.short("browser:tok_18e890e145a6dd8f550a1b9f"), "browser:tok_…0a1b9f"),
        (words.words("waiting_for_approval"), "waiting for approval"),
        (words.shortened("in\n two  lines"), "in two lines"),
        (words.shortened("x" * 60), "x" * 47 + "…"),
        (words.shortened("x" + " " * 200 + "y"), "x…"),
        (words.touches("write"), "writes"),
        (words.touches("something_new"), "something new"),
        (words.visible("a\tb\n\x1b[2J\u202e"), "a\tb\n\\x1b[2J\\u202e"),
    ],
)
def test_values_in_words(found: str, wanted: str):
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "long"),
    [("", False), ("x" * 1399, False), ("x" * 1401, True), ("x\n" * 13, False), ("x\n" * 14, True)],
)
def test_a_text_that_fills_a_page_is_long(text: str, long: bool):
    assert words.is_long(text) is long
