"""Redaction: no live value survives, in any spelling or nesting, and nothing else changes."""

import base64
import json
import logging
import sys
from io import StringIO
from types import TracebackType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import Json
from holdfast.errors import CallerError
from holdfast.gate.redact import ANONYMOUS, RedactingFilter, Redactor

SECRET = 's3cr3t/"key"\n+ä'


def redactor(**secrets: str) -> Redactor:
    found = Redactor()
    for name, value in secrets.items():
        found.add(name, value)
    return found


# -- text ---------------------------------------------------------------------------------------------


def test_a_value_is_replaced_by_its_name():
    assert redactor(KEY="hunter22").text("a hunter22 b hunter22") == "a [secret:KEY] b [secret:KEY]"


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps({"a": SECRET})),
        json.dumps(json.dumps({"a": SECRET}, ensure_ascii=False), ensure_ascii=False),
        repr(SECRET),
        ascii(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
    ],
)
def test_spellings_are_replaced(spelled: str):
    shown = redactor(KEY=SECRET).text(f"<{spelled}>")
    assert "[secret:KEY]" in shown
    assert "s3cr3t" not in shown
    assert "7333637233" not in shown


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("value", ["hunter22", "hunter223", "hunter2234", "???>>>~~~"])
def test_base64_is_replaced_wherever_it_begins(before: int, after: int, encode: Any, value: str):
    around = encode(b"u" * before + value.encode() + b"v" * after).decode()
    shown = redactor(KEY=value).text(f"Basic {around};")
    assert shown.startswith("Basic ")
    assert shown.endswith(";")
    # Not one digit is left that holds a bit of the value.
    left = shown.removeprefix("Basic ").removesuffix(";").replace("[secret:KEY]", "|").split("|")
    assert len(left) == 2
    assert len(left[0]) <= before * 8 // 6
    assert len(left[1].rstrip("=")) <= -(-after * 8 // 6)


def test_overlapping_values_go_together():
    found = redactor(A="abcdef", B="defghi", C="abcdefghijkl")
    assert found.text("xabcdefghix") == "x[secret:A]x"
    assert found.text("xabcdefghijklx") == "x[secret:C]x"
    assert redactor(A="aaaaaa").text("a" * 20) == "[secret:A]"


def test_a_longer_value_goes_before_a_shorter_one_in_it():
    assert redactor(SHORT="hunter", LONG="hunter22").text("hunter22 hunter") == (
        "[secret:LONG] [secret:SHORT]"
    )


def test_special_characters_of_regular_expressions_mean_nothing():
    assert redactor(A=".*.*.*").text("anything") == "anything"
    assert redactor(A=".*.*.*").text("a .*.*.* b") == "a [secret:A] b"


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ({"A": "secret"}, "my secret"),
        ({"API_KEY": "API_KEY"}, "API_KEY=API_KEY"),
        ({"A": "hunter22", "B": "x[secret:A]"}, "xhunter22"),
        ({"A": "hunter22", "B": "A][sec"}, "hunter22hunter22"),
        ({"A": "hunter22", "B": "x[***]y", "hunter22": "hunter23"}, "xhunter23y"),
    ],
)
def test_a_marker_gives_nothing_away(secrets: dict[str, str], text: str):
    shown = redactor(**secrets).text(text)
    assert not [value for value in secrets.values() if value in shown]


def test_what_cannot_be_cleaned_is_given_up():
    found = redactor(A="x[secret:A", B="yyyyyy")
    assert found.text("x" * 50 + "x[secret:A") == ANONYMOUS


def test_a_text_with_broken_characters_is_searched_as_well():
    assert redactor(A="hunter22").text("\ud800hunter22") == "\ud800[secret:A]"
    assert redactor(A="hünter22").text("ä hünter22") == "ä [secret:A]"


# -- what is live -------------------------------------------------------------------------------------


def test_only_live_values_are_replaced():
    found = redactor(A="hunter22", B="hunter33")
    found.remove("A")
    found.remove("unknown")
    assert found.text("hunter22 hunter33") == "hunter22 [secret:B]"
    found.remove("B")
    assert found.text("hunter33") == "hunter33"
    assert found.names == ()


def test_an_earlier_value_stays_until_its_name_is_removed():
    found = redactor(A="hunter22")
    found.add("A", "hunter33")
    found.add("A", "hunter33")
    assert found.text("hunter22 hunter33") == "[secret:A] [secret:A]"
    found.remove("A")
    assert found.text("hunter22 hunter33") == "hunter22 hunter33"


@pytest.mark.parametrize(
    ("name", "value"),
    [("A", "12345"), ("A", ""), ("A", "hunter\ud800"), ("", "hunter22"), ("a]b", "hunter22")],
)
def test_unusable_secrets_are_refused(name: str, value: str):
    with pytest.raises(CallerError) as caught:
        Redactor().add(name, value)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert not value or value not in str(caught.value)


def test_it_shows_no_value_itself():
    found = redactor(A="hunter22")
    stream = found.stream()
    stream.feed("hunter")
    for shown in (repr(found), str(found), repr(stream), str(stream)):
        assert "hunter" not in shown
        assert "A" in shown


# -- JSON and bytes -----------------------------------------------------------------------------------


def test_json_is_clean_in_every_nesting_and_key():
    found = redactor(KEY="hunter22")
    assert found.json({"a": [{"hunter22": "x hunter22"}, 1, None, True], "b": {}}) == {
        "a": [{"[secret:KEY]": "x [secret:KEY]"}, 1, None, True],
        "b": {},
    }


def test_no_key_is_lost():
    found = redactor(A="hunter22", B="hunter33")
    found.add("A", "hunter44")
    value: Json = {"hunter22": 1, "hunter44": 2, "hunter22hunter22": 3, "c": 4}
    assert found.json(value) == {
        "[secret:A]": 1,
        "[secret:A]#2": 2,
        "[secret:A][secret:A]": 3,
        "c": 4,
    }


def test_a_number_can_be_a_secret():
    assert redactor(PIN="123456").json([123456, 12.123456, 12345, True]) == [
        "[secret:PIN]",
        "12.[secret:PIN]",
        12345,
        True,
    ]


def test_what_has_no_secret_is_the_same_object():
    value: Json = {"a": ["b", {"c": 1.5}]}
    for found in (Redactor(), redactor(A="hunter22")):
        assert found.json(value) is value
        text, data = "nothing here", b"nothing \xff here"
        assert found.text(text) is text
        assert found.bytes_(data) is data


def test_bytes_are_clean():
    found = redactor(A="hünter22")
    assert found.bytes_("\xff".encode("latin-1") + "hünter22".encode()) == b"\xff[secret:A]"


def test_json_nested_without_end_is_refused():
    deep: Json = "hunter22"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CallerError, match="PAYLOAD_NOT_JSON"):
        redactor(A="hunter22").json(deep)


# -- streams ------------------------------------------------------------------------------------------


def streamed(found: Redactor, pieces: list[str]) -> str:
    stream = found.stream()
    return "".join([*map(stream.feed, pieces), stream.close()])


def test_a_secret_split_between_pieces_is_found():
    found = redactor(A="hunter22")
    assert streamed(found, ["a hun", "ter", "22 b"]) == "a [secret:A] b"
    assert streamed(found, list("hunter22hunter22")) == "[secret:A][secret:A]"
    assert streamed(found, ["a hun", "t"]) == "a hunt"


def test_a_stream_holds_back_only_what_may_be_a_secret():
    found = redactor(A="hunter22", B="unterwegs")
    stream = found.stream()
    assert stream.feed("go hunting\n") == "go hunting\n"
    assert stream.feed("go hunt") == "go "
    assert stream.feed("er!") == "hunter!"
    assert Redactor().stream().feed("hunter22") == "hunter22"


def test_a_stream_that_repeats_a_secret_is_not_held_for_ever():
    found = redactor(A="aaaaaa")
    stream = found.stream()
    shown = "".join(stream.feed("aaaaaaaa") for _ in range(1_000))
    assert shown
    assert "aaaaaa" not in shown + stream.close()


# -- logs ---------------------------------------------------------------------------------------------


class Failing(Exception):
    pass


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def raised(text: str) -> ExcInfo:
    try:
        try:
            raise ValueError(text)
        except ValueError as why:
            raise Failing("outer") from why
    except Failing:
        found = sys.exc_info()
        assert found[0] is not None
        return found


def logged(
    found: Redactor, msg: object, *args: object, exc_info: ExcInfo | None = None, **extra: object
) -> tuple[logging.LogRecord, str]:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter(found))
    record = logging.LogRecord("test", 20, __file__, 1, msg, args, exc_info)
    vars(record).update(extra)
    handler.handle(record)
    return record, out.getvalue()


def test_log_records_are_clean():
    found = redactor(A="hunter22")
    assert logged(found, "key %s", "hunter22")[1] == "key [secret:A]\n"
    assert logged(found, "key %s%s", "hunt", "er22")[1] == "key [secret:A]\n"
    assert logged(found, ValueError("hunter22"))[1] == "[secret:A]\n"
    assert logged(found, "key %(a)s", {"a": 1, "b": "hunter22"})[0].args == {
        "a": 1,
        "b": "[secret:A]",
    }
    assert logged(found, "%s, %.0s", 1, "hunter22")[0].args == (1, "[secret:A]")


def test_tracebacks_in_logs_are_clean():
    found = redactor(A="hunter22")
    record, shown = logged(found, "failed", exc_info=raised("no hunter22"))
    assert "hunter22" not in shown
    assert "ValueError: no [secret:A]" in shown
    assert "Failing: outer" in shown
    assert record.exc_info is None
    harmless, shown = logged(found, "failed", exc_info=raised("no"))
    assert harmless.exc_info is not None
    assert "ValueError: no" in shown


def test_extras_of_logs_are_clean():
    deep: Json = "hunter22"
    for _ in range(100_000):
        deep = [deep]
    record, _ = logged(
        redactor(A="hunter22"), "x", url="http://hunter22", body={"k": ["hunter22"]}, deep=deep
    )
    extra = vars(record)
    assert (extra["url"], extra["body"]) == ("http://[secret:A]", {"k": ["[secret:A]"]})
    assert extra["deep"] == ANONYMOUS


def test_a_wrong_format_string_shows_no_arguments():
    record, _ = logged(redactor(A="hunter22"), "%s hunter22")
    assert (record.msg, record.args) == ("%s [secret:A]", ())
    record = logging.LogRecord("test", 20, __file__, 1, "%d", ("hunter22",), None)
    assert RedactingFilter(redactor(A="hunter22")).filter(record)
    assert (record.msg, record.args) == ("%d", ())


def test_log_records_stay_as_they_are_without_secrets():
    record, shown = logged(Redactor(), "key %s", "hunter22")
    assert (record.args, shown) == (("hunter22",), "key hunter22\n")


# -- properties ---------------------------------------------------------------------------------------

secrets = st.lists(
    st.text("abc", min_size=6, max_size=9) | st.text(min_size=6, max_size=12),
    min_size=1,
    max_size=4,
).map(lambda values: {f"N{i}": value for i, value in enumerate(values)})
fillers = st.text("abc", max_size=5) | st.text(max_size=5)


@st.composite
def hiding(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """Secrets, and a text that is likely to hold some."""
    found = draw(secrets)
    parts = draw(st.lists(fillers | st.sampled_from(list(found.values())), max_size=6))
    return found, "".join(parts)


def live(found: dict[str, str], text: str) -> list[str]:
    return [value for value in found.values() if value in text]


@given(hiding())
def test_no_value_survives_in_a_text(case: tuple[dict[str, str], str]):
    found, text = case
    assert live(found, redactor(**found).text(text)) == []


@given(hiding())
def test_redacting_again_changes_nothing(case: tuple[dict[str, str], str]):
    clean = redactor(**case[0]).text(case[1])
    assert redactor(**case[0]).text(clean) is clean


@given(secrets, st.text(max_size=30))
def test_a_text_without_secrets_is_unchanged(found: dict[str, str], text: str):
    spelled = [value[:6] for value in found.values()]
    if not any(part in text for part in spelled):
        assert redactor(**found).text(text) == text


@given(hiding(), st.lists(st.integers(1, 12), max_size=12))
def test_no_value_survives_in_any_pieces(case: tuple[dict[str, str], str], sizes: list[int]):
    found, text = case
    pieces: list[str] = []
    rest = text
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert live(found, streamed(redactor(**found), [*pieces, rest])) == []


@given(st.text("ab cd", max_size=20), st.integers(0, 20), st.integers(0, 28))
def test_pieces_give_what_the_whole_gives(text: str, at: int, cut: int):
    whole = text[:at] + "hunter22" + text[at:]
    found = redactor(A="hunter22")
    assert streamed(found, [whole[:cut], whole[cut:]]) == found.text(whole)


@given(hiding(), st.data())
def test_no_value_survives_in_any_nesting(case: tuple[dict[str, str], str], data: st.DataObject):
    found, text = case
    leaves = st.just(text) | st.sampled_from(list(found.values())) | st.integers() | st.none()
    value = data.draw(
        st.recursive(
            leaves,
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.just(text) | st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        )
    )

    def texts(value: Json) -> list[str]:
        if isinstance(value, dict):
            return [*value, *(text for item in value.values() for text in texts(item))]
        if isinstance(value, list):
            return [text for item in value for text in texts(item)]
        return [str(value)]

    for each in texts(redactor(**found).json(value)):
        assert live(found, each) == []
