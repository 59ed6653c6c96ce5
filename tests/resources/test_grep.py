"""Searching: the same lines as the plain way finds, whatever the text, and bounded in everything."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import grep, holding

from holdfast.contracts.resource import MAX_PATTERN_CHARS, GrepRequest
from holdfast.errors import ModelError
from holdfast.resources import Resources
from holdfast.resources.grep import BLOCK, MAX_SHOWN, MAX_TEXT_BYTES

PATTERNS = [
    "a",
    "^a",
    "a$",
    "^$",
    "b|é",
    "a.b",
    r"\Aa",
    r"a\z",
    r"\bab\b",
    "(?i)A",
    "[^a]b",
    "(?:ab)+",
]
TEXT = st.text(alphabet=st.sampled_from("abAé \n\r"), max_size=120)


def reference(text: str, pattern: str) -> list[tuple[int, str]]:
    """As Python's own engine says, line by line."""
    sought = re.compile(pattern.replace(r"\z", r"\Z"))
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    plain = [one.removesuffix("\r") for one in lines]
    return [(number, one) for number, one in enumerate(plain) if sought.search(one)]


async def all_matches(
    resources: Resources, pattern: str, most: int
) -> list[tuple[int | None, str]]:
    start: int | None = 0
    found: list[tuple[int | None, str]] = []
    while start is not None:
        view = await grep(resources, pattern, start=start, max_matches=most)
        assert len(view.matches) <= most
        assert view.truncated == (view.next is not None)
        assert view.next is None or view.next > start
        found += [(one.line, one.text) for one in view.matches]
        start = view.next
    return found


@given(text=TEXT, pattern=st.sampled_from(PATTERNS), most=st.integers(1, 5))
async def test_it_finds_what_the_plain_way_finds(text: str, pattern: str, most: int):
    resources, memory = holding(text.encode())
    memory.chunk = 7
    assert await all_matches(resources, pattern, most) == reference(text, pattern)


@given(text=TEXT.filter(bool), encoding=st.sampled_from(["utf-16", "utf-32", "utf-8-sig"]))
async def test_wide_text_is_searched_like_any_other(text: str, encoding: str):
    resources, _ = holding(text.encode(encoding))
    assert await all_matches(resources, "b", 3) == reference(text, "b")


@given(lines=st.lists(st.integers(0, BLOCK // 2), min_size=1, max_size=8), data=st.data())
async def test_it_finds_the_same_wherever_blocks_end(lines: list[int], data: st.DataObject):
    hit = data.draw(st.sets(st.integers(0, len(lines) - 1)))
    text = "\n".join("x" * size + ("needle" if n in hit else "") for n, size in enumerate(lines))
    resources, _ = holding(text.encode())
    view = await grep(resources, "needle")
    assert [one.line for one in view.matches] == sorted(hit)
    assert all("needle" in one.text for one in view.matches)
    starts = [sum(len(one) + 1 for one in text.split("\n")[:n]) for n in sorted(hit)]
    assert [one.at for one in view.matches] == starts
    assert view.scanned_bytes == len(text)


@pytest.mark.parametrize("at", [0, BLOCK - 3, BLOCK, 5 * BLOCK + 17, (10 << 20) - 6])
async def test_a_line_of_ten_megabytes_is_searched_in_pieces(at: int):
    line = bytearray(b"x" * (10 << 20))
    line[at : at + 6] = b"needle"
    resources, _ = holding(b"first\n" + bytes(line) + b"\nneedle\n")
    view = await grep(resources, "needle")
    assert [one.line for one in view.matches] == [1, 2]
    first = view.matches[0]
    assert (first.at, first.cut, len(first.text)) == (6, True, MAX_SHOWN)
    assert "needle" in first.text
    assert "in pieces" in view.notes[0]


async def test_of_a_long_line_the_part_around_the_match_is_shown():
    resources, _ = holding(b"a" * 5000 + b"needle" + b"b" * 5000 + b"\n")
    (match,) = (await grep(resources, "needle")).matches
    assert "aaneedlebb" in match.text
    assert (len(match.text), match.cut) == (MAX_SHOWN, True)


async def test_max_matches_is_enforced_and_the_rest_can_be_had():
    resources, _ = holding(b"a\n" * 10)
    view = await grep(resources, "a", max_matches=4)
    assert [one.line for one in view.matches] == [0, 1, 2, 3]
    assert (view.truncated, view.next) == (True, 8)
    rest = await grep(resources, "a", start=8, max_matches=100)
    assert [one.line for one in rest.matches] == [4, 5, 6, 7, 8, 9]
    assert (rest.truncated, rest.next) == (False, None)


async def test_a_search_that_begins_anywhere_knows_the_bytes_and_no_line():
    resources, _ = holding(b"a\nb\na\n")
    (match,) = (await grep(resources, "a", start=4)).matches
    assert (match.line, match.at) == (None, 4)


async def test_all_that_is_shown_is_bounded():
    resources, _ = holding((b"n" * MAX_SHOWN + b"\n") * 1000)
    view = await grep(resources, "n", max_matches=1000)
    assert sum(len(one.text) for one in view.matches) <= MAX_TEXT_BYTES
    assert view.truncated


async def test_all_that_is_looked_at_is_bounded():
    data = b"x" * 99 + b"\n"
    resources, _ = holding(data * 100_000 + b"needle\n", grep_bytes=2_000_000)
    found = await grep(resources, "needle")
    assert found.matches == ()
    assert found.next is not None
    assert found.scanned_bytes < 3_000_000
    while found.next is not None:
        found = await grep(resources, "needle", start=found.next)
    assert [one.line for one in found.matches] == [100_000]


@pytest.mark.parametrize(
    "pattern", ["(", "a)|(b", "(?=a)", r"(a)\1", "[", "a{1000}{1000}{1000}", "(?:\\w{1,60}){1,60}"]
)
async def test_patterns_that_can_not_be_used_are_refused_with_the_reason(pattern: str):
    resources, _ = holding(b"a")
    for ignore_case in (False, True):
        with pytest.raises(ModelError, match="can't be used") as caught:
            await grep(resources, pattern, ignore_case=ignore_case)
        assert caught.value.code == "INVALID_ARGUMENT"


def test_pattern_length_is_enforced():
    GrepRequest(uri="mem:x", pattern="a" * MAX_PATTERN_CHARS)
    with pytest.raises(ValueError, match="at most"):
        GrepRequest(uri="mem:x", pattern="a" * (MAX_PATTERN_CHARS + 1))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+b", "(.*a){20}b", "^(([a-z])+.)+[A-Z]$"])
async def test_patterns_that_are_made_to_be_slow_are_not(pattern: str):
    # Python's engine would not come back from any of these.
    resources, _ = holding(b"a" * (BLOCK - 10) + b"!\n")
    assert (await grep(resources, pattern)).matches == ()


async def test_case_can_be_ignored():
    resources, _ = holding("ÉA\néa\n".encode())
    assert len((await grep(resources, "éa")).matches) == 1
    assert len((await grep(resources, "éa", ignore_case=True)).matches) == 2


async def test_what_is_not_text_is_not_searched():
    resources, _ = holding(b"%PDF-1.7 needle")
    view = await grep(resources, "needle")
    assert view.matches == ()
    assert "only text can be searched" in view.notes[0]
