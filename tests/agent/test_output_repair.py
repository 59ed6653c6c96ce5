"""The JSON in an answer: what is mended, what is refused, and that nothing becomes something else."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.agent.output import LOSSY, REPAIRS, output_of, read

ANY = output_of({})
OBJECT = output_of({"type": "object"})

KEYS = st.text(max_size=8)
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)


def containers(inner: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = TEXT) -> Any:
    return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)


VALUES = st.recursive(SCALARS, containers, max_leaves=15)
TREES = containers(VALUES)
NAMES = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,6}", fullmatch=True).filter(
    lambda name: name not in ("True", "False", "None")
)
NAMED = st.dictionaries(
    NAMES, st.recursive(SCALARS, lambda one: containers(one, NAMES)), max_size=4
)

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, where `1` and `True` differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def tokens(value: Any, **options: Any) -> list[str]:
    return TOKEN.findall(json.dumps(value, **options))


# -- whatever is valid passes as it is ----------------------------------------------------------------------


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_valid_json_passes_unrepaired(value: Any, ascii_only: bool, indent: int | None):
    reading = read(json.dumps(value, ensure_ascii=ascii_only, indent=indent), ANY)
    assert reading.ok
    assert not reading.repaired
    assert same(reading.json, value)


# -- damage that loses nothing is mended to the same value ----------------------------------------------------


def trailing_commas(value: Any, rng: random.Random) -> str:
    found = tokens(value)
    for index in range(len(found) - 1, 0, -1):
        if found[index] in "]}" and found[index - 1] not in "[{" and rng.random() < 0.7:
            found.insert(index, ",")
    return " ".join(found)


def python_repr(value: Any, rng: random.Random) -> str:
    return repr(value)


def single_quotes(value: Any, rng: random.Random) -> str:
    def quoted(token: str) -> str:
        if not token.startswith('"'):
            return token
        inner = token[1:-1].replace('\\"', '"').replace("'", "\\'")
        return f"'{inner}'"

    return " ".join(map(quoted, tokens(value)))


def smart_quotes(value: Any, rng: random.Random) -> str:
    def quoted(token: str) -> str:
        return f"“{token[1:-1]}”" if token.startswith('"') else token

    return " ".join(map(quoted, tokens(value)))


def bare_keys(value: Any, rng: random.Random) -> str:
    found = tokens(value)
    for index, token in enumerate(found[:-1]):
        if found[index + 1] == ":" and re.fullmatch(r'"[A-Za-z_$][\w$]*"', token, re.ASCII):
            found[index] = token[1:-1]
    return " ".join(found)


def comments(value: Any, rng: random.Random) -> str:
    remarks = ["// a, b: [c]\n", "/* } ] \" ' */", "# it's\n", ""]
    return "".join(f"{one} {rng.choice(remarks)}" for one in tokens(value))


def odd_spaces(value: Any, rng: random.Random) -> str:
    return "\u00a0".join(tokens(value))


def raw_control(value: Any, rng: random.Random) -> str:
    return json.dumps(value).replace("\\\\", "\\u005c").replace("\\n", "\n").replace("\\t", "\t")


def no_commas_between_members(value: Any, rng: random.Random) -> str:
    """Each member on its own line, and its comma forgotten."""
    text = json.dumps(value, indent=1)
    return re.sub(r',\n(\s*"(?:[^"\\]|\\.)*": )', r"\n\1", text)


def extra_end(value: Any, rng: random.Random) -> str:
    return json.dumps(value) + rng.choice("]}") * rng.randint(1, 3)


def prose_around(value: Any, rng: random.Random) -> str:
    text = json.dumps(value, indent=rng.choice([None, 2]))
    fenced = f"```json\n{text}\n```"
    before = rng.choice(["Sure! Here it is:\n", "The answer (see below) is:\n\n", "Well, "])
    after = rng.choice(["\nHope it helps.", "", "\n\nLet me know: I'm here, as always."])
    return before + rng.choice([text, fenced]) + after


LOSSLESS = {
    trailing_commas: TREES,
    python_repr: TREES,
    single_quotes: TREES,
    smart_quotes: TREES,
    bare_keys: NAMED,
    comments: TREES,
    odd_spaces: TREES,
    raw_control: TREES,
    no_commas_between_members: NAMED,
    extra_end: TREES,
    prose_around: TREES,
}
# These three have inputs that can be read in two ways; there they refuse.
MAY_REFUSE = {smart_quotes, python_repr, prose_around}


@pytest.mark.parametrize("damage", LOSSLESS, ids=lambda damage: damage.__name__)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_damage_is_mended_to_the_same_value_or_refused(damage: Any, data: Any, seed: int):
    value = data.draw(LOSSLESS[damage])
    text = damage(value, random.Random(seed))
    reading = read(text, ANY)
    if reading.ok or damage not in MAY_REFUSE:
        assert reading.ok, (text, reading.error)
        assert same(reading.json, value), text
        assert not reading.lossy
        assert set(reading.repairs) <= REPAIRS.keys()
        if damage not in (no_commas_between_members, raw_control):
            assert reading.repaired or text == json.dumps(value) or _is_json(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(st.lists(st.integers() | st.floats(0, 1e9), min_size=1))
def test_numbers_of_other_languages_are_mended(numbers: list[float]):
    text = ", ".join(f"{one:+_}" if isinstance(one, int) else f"+{one!r}" for one in numbers)
    reading = read(f"[{text}]", ANY)
    assert same(reading.json, numbers)
    assert reading.ok


# -- damage that loses something is refused, or said to ---------------------------------------------------------


@given(TREES, st.data())
def test_a_cut_answer_is_whole_or_refused_or_flagged(value: Any, data: Any):
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    end = data.draw(st.integers(0, len(text)))
    reading = read(text[:end], ANY)
    if reading.ok and not same(reading.json, value):
        assert reading.lossy
    known = read(text[:end], ANY, cut=True)
    assert not known.ok or same(known.json, value)


@given(TREES, st.data())
def test_a_lost_or_doubled_character_never_changes_the_value_silently(value: Any, data: Any):
    """Of brackets, commas, colons: inside text and numbers nobody could tell."""
    found = tokens(value)
    places = [index for index, token in enumerate(found) if token in "[]{},:"]
    index = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()):
        del found[index]
    else:
        found.insert(index, found[index])
    reading = read(" ".join(found), ANY)
    if reading.ok and not same(reading.json, value):
        assert reading.repaired or _is_json(" ".join(found))
        # A value that is still there in full may have one bracket more or less around it; none of it is lost.
        assert (
            reading.lossy or _scalars(reading.json) == _scalars(value) or _is_json(" ".join(found))
        )


def _scalars(value: Any) -> list[str]:
    return [one for one in tokens(value) if one not in "[]{},:"]


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": [1, 2', {"a": [1, 2]}, ("closed_end",)),
        ('{"a": {"b": "c"}', {"a": {"b": "c"}}, ("closed_end",)),
        ('Here:\n{"a": [1]', {"a": [1]}, ("closed_end", "prose")),
    ],
)
def test_missing_brackets_at_the_end_are_closed_and_flagged(
    text: str, value: Any, repairs: tuple[str, ...]
):
    reading = read(text, ANY)
    assert (reading.json, reading.repairs, reading.lossy) == (value, repairs, True)
    assert reading.ok
    assert set(LOSSY) == {"closed_end"}


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ('{"a": [1, 2,', {"a": [1, 2]}),
        ('{"a": "some te', {"a": "some te"}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('Here: {"a": 1, "b":', {"a": 1}),
    ],
)
def test_what_is_cut_in_the_middle_is_refused_and_kept(text: str, partial: Any):
    reading = read(text, ANY)
    assert not reading.ok
    assert (reading.found, reading.json) == (True, partial)
    assert [one.code for one in reading.faults] == ["invalid_json"]


def test_an_answer_known_to_be_cut_off_is_not_closed():
    reading = read('{"a": [1, 2', ANY, cut=True)
    assert not reading.ok
    assert reading.json == {"a": [1, 2]}
    assert "length limit" in (reading.error or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "``` ```",
        "I can't do that.",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": "\\ud800"}',
        '{"a": "\\q"}',
        '{"a": 007}',
        '{"a": 0x10}',
        '{"a": undefined}',
        '{"a": some text}',
        '{"a": "he said "hi" to me"}',
        '{"a": "x" "y"}',
        "{'a': 'it's'}",
        '["a" "b"]',
        "[1 2]",
        "[1,,2]",
        "[,1]",
        '["a" + "b"]',
        '{"a": 1, ...}',
        '{"a" 1}',
        '{"a": }',
        '{"a"; 1}',
        "[#fff, #000]",
        "[2026-01-02]",
        "{None: 1}",
        "(1, 2)",
        '[{"a": 1], 2]',
        '{"a": 1}, "b": 2}',
        '{"a": {"b": 1}, "c": {"d": 2 ]}',
        '"a": {"b": 1}',
        '{"a": oops {"x": 2} oops }',
        '{"a": 1} {"a": 2}',
        'First {"a": 1}, then {"a": 2}.',
        "[" * 1000,
        "[" * 100 + "]" * 100,
        "[ a" * 5000,
        "1" * 5000,
        "The answer is 42",
    ],
)
def test_what_could_mean_two_things_is_refused(text: str):
    reading = read(text, ANY)
    assert not reading.ok
    assert [one.code for one in reading.faults] == ["invalid_json"]
    assert reading.repairable


def test_of_several_pieces_in_prose_the_one_that_fits_is_taken():
    reading = read(
        'As in [1], from {"b": 2} follows {"x": 1}. ',
        output_of({"required": ["x"], "type": "object"}),
    )
    assert reading.json == {"x": 1}
    assert reading.repairs == ("prose",)
    assert read('{"x": 1}, or again: {"x": 1}', OBJECT).json == {"x": 1}
    assert not read('{"x": 1} or {"x": true}', OBJECT).ok


def test_a_piece_in_prose_that_does_not_fit_is_told_against_the_schema():
    reading = read('Here: {"y": 1}', output_of({"required": ["x"], "type": "object"}))
    assert [one.code for one in reading.faults] == ["missing_required_field"]


def test_positions_count_from_one():
    error = read('{\n  "a": 1\n  2}', ANY).error or ""
    assert error.startswith("Invalid JSON: line 3, column 3: ")


# -- whatever the text is ---------------------------------------------------------------------------------------

FRAGMENTS = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\u12", "\\ud800", "//", "/*", "*/", "#", " ", "\n", "```",
         "```json", "a", "True", "null", "1", "-", ".", "e9", "“", "”", "\ufeff", "\ud800", "\x00", "NaN", '"a":'],
    ),
    max_size=40,
).map("".join)  # fmt: skip


@given(st.text(st.characters()) | FRAGMENTS, st.booleans())
@example("```json", False)
@example("/", False)
@example("[1, /", True)
def test_no_text_raises(text: str, cut: bool):
    for output in (ANY, OBJECT, output_of(list[int]), output_of(int)):
        reading = read(text, output, cut=cut)
        assert reading.ok == (not reading.faults)
        assert reading.ok == (reading.error is None)
        if reading.found:
            json.dumps(reading.json, allow_nan=False, ensure_ascii=False).encode()


@given(FRAGMENTS)
def test_reading_twice_gives_the_same(text: str):
    assert read(text, ANY) == read(text, ANY)


@given(st.lists(st.sampled_from([*'[]{},:"1-.e', " ", "null", '"a"', '"b":', "0"]), max_size=12))
def test_text_that_is_json_to_python_is_json_here(pieces: list[str]):
    text = "".join(pieces)
    if _is_json(text):
        reading = read(text, ANY)
        # Python takes numbers that are too large to be one, and the last of two members of the same name.
        assert reading.ok or "e" in text or text.count('"b":') > 1
