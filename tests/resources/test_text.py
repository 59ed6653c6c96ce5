"""Text: ranges of bytes and lines, encodings, and what is said about them."""

import codecs
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import grep, holding, read, whole

from holdfast.resources._window import HEAD

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "latin-1"]
BOMS = {"utf-16-be": codecs.BOM_UTF16_BE}


def encoded(text: str, encoding: str) -> bytes:
    return BOMS.get(encoding, b"") + text.encode(encoding)


# The last two side by side have the bytes of a line end in UTF-16, between them.
TEXT = st.text(alphabet=st.sampled_from("ab é€😀\n\r\t\u0a41\u4100"), min_size=1, max_size=200)


@given(text=TEXT, length=st.integers(1, 40), encoding=st.sampled_from(ENCODINGS[:5]))
async def test_ranges_of_bytes_that_follow_each_other_are_the_whole(
    text: str, length: int, encoding: str
):
    resources, _ = holding(encoded(text, encoding))
    assert await whole(resources, length=length) == text


@given(
    text=TEXT,
    length=st.integers(1, 5),
    encoding=st.sampled_from(ENCODINGS[:5]),
    known=st.booleans(),
)
async def test_ranges_of_lines_that_follow_each_other_are_the_whole(
    text: str, length: int, encoding: str, known: bool
):
    resources, memory = holding(encoded(text, encoding))
    memory.version = "1" if known else None
    assert await whole(resources, unit="lines", length=length) == text


@given(text=TEXT, start=st.integers(0, 30), length=st.integers(1, 30))
async def test_a_range_of_lines_is_that_of_the_text(text: str, start: int, length: int):
    resources, memory = holding(text.encode())
    memory.chunk = 3
    lines = text.splitlines(keepends=True) if "\r" not in text else _lines(text)
    view = await read(resources, unit="lines", start=start, length=length)
    assert view.text == "".join(lines[start : start + length])
    assert view.count == len(lines[start : start + length])
    assert view.next == (start + length if start + length < len(lines) else None)
    assert not view.truncated


def _lines(text: str) -> list[str]:
    found = [f"{one}\n" for one in text.split("\n")]
    return [*found[:-1], *([found[-1][:-1]] if found[-1] != "\n" else [])]


@given(data=st.binary(max_size=300), length=st.integers(1, 50))
async def test_whatever_bytes_there_are_come_in_bounded_parts(data: bytes, length: int):
    resources, _ = holding(b"text: " + data.replace(b"\x00", b""))
    found = await whole(resources, length=length)
    assert found.startswith(("text: ", "Not text"))


@given(size=st.integers(0, 300), start=st.integers(0, 320), length=st.none() | st.integers(1, 300))
async def test_truncated_says_whether_less_came_than_was_asked_for(
    size: int, start: int, length: int | None
):
    most = 100
    resources, memory = holding(b"a" * size)
    memory.unknown_size = size % 2 == 0
    view = await read(resources, start=start, length=length, max_bytes=most)
    left = max(0, size - start)
    wanted = left if length is None else min(length, left)
    assert view.returned_bytes == min(wanted, most)
    assert view.truncated == (view.returned_bytes < wanted)
    assert (view.next is None) == (start + view.returned_bytes >= size)
    assert view.byte_len == (None if memory.unknown_size else size)


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_encodings_are_found(encoding: str):
    text = "héllo\nwörld\n"
    resources, _ = holding(encoded(text, encoding))
    view = await read(resources)
    assert view.text == text
    assert bool(view.notes) == (encoding == "latin-1")
    assert (await read(resources, unit="lines", start=1)).text == "wörld\n"


async def test_the_encoding_that_a_server_names_is_used_if_it_is_known():
    resources, memory = holding("приве́т".encode() + "привет".encode("koi8-r"))
    memory.mime = "text/plain; charset=nonsense"
    assert "Latin-1" in (await read(resources)).notes[0]
    resources, memory = holding("привет".encode("koi8-r"))
    memory.mime = 'text/plain; charset="KOI8-R"'
    view = await read(resources)
    assert (view.text, view.notes) == ("привет", ())


async def test_bytes_that_are_no_characters_are_shown_and_told():
    resources, _ = holding(b"a" * HEAD + b"\xff\xfeb")
    view = await read(resources, start=HEAD)
    assert view.text == "\ufffd\ufffdb"
    assert "not UTF-8" in view.notes[0]


@pytest.mark.parametrize("unit", ["bytes", "lines"])
async def test_past_the_end_there_is_nothing(unit: str):
    resources, _ = holding(b"a\nb\n")
    view = await read(resources, start=1000, unit=unit)
    assert (view.text, view.count, view.next, view.truncated) == ("", 0, None, False)


async def test_an_empty_text_is_empty():
    resources, _ = holding(b"")
    view = await read(resources)
    assert (view.text, view.byte_len, view.next, view.format) == ("", 0, None, "text")


async def test_a_line_that_is_too_long_is_cut_and_says_where_it_goes_on():
    size = 10 << 20
    resources, _ = holding(b"first\n" + b"x" * size + b"\nlast\n")
    view = await read(resources, unit="lines", start=1, max_bytes=1000)
    assert (view.text, view.count, view.truncated, view.next) == ("x" * 1000, 1, True, 2)
    assert f"has {size + 1} bytes, of which 1000 are shown" in view.notes[0]
    assert f"byte {6 + 1000}." in view.notes[0]
    assert (await read(resources, unit="lines", start=2)).text == "last\n"


async def test_pages_of_lines_are_not_counted_again():
    data = b"".join(b"%06d\n" % n for n in range(200_000))
    resources, memory = holding(data)
    last = await read(resources, unit="lines", start=150_000, length=10)
    memory.reads.clear()
    view = await read(resources, unit="lines", start=last.next, length=10)
    assert view.text == "".join(f"{n:06d}\n" for n in range(150_010, 150_020))
    assert min(at for at, _ in memory.reads if at) > 1_000_000
    # Something else has the name now: nothing that was remembered holds.
    memory.version, memory.things["x"] = "2", b"a\n" * 200_000
    assert (await read(resources, unit="lines", start=last.next, length=1)).text == "a\n"


async def test_lines_too_far_in_are_not_counted_for_ever():
    resources, _ = holding(b"a\n" * 1_000_000, scan_bytes=500_000)
    view = await read(resources, unit="lines", start=900_000)
    assert (view.text, view.truncated, view.next) == ("", True, 900_000)
    assert "range of bytes" in view.notes[0]


@pytest.mark.parametrize(
    ("data", "mime", "format_"),
    [
        (b"PK\x03\x04" + b"\0" * 50, "application/zip", "binary"),
        (b"\x1f\x8b\x08" + b"\0" * 50, "application/gzip", "binary"),
        (b"\0\1\2\3", "application/octet-stream", "binary"),
        (bytes(range(1, 32)) * 3, "application/octet-stream", "binary"),
        (b"plain", "text/plain", "text"),
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.png", "x.pdf"])
async def test_bytes_count_more_than_names(data: bytes, mime: str, format_: str, name: str):
    resources, _ = holding(data, name)
    view = await read(resources, f"mem:{name}")
    assert view.format == format_
    assert view.mime == ("text/csv" if format_ == "text" and name == "x.csv" else mime)


async def test_what_is_binary_is_only_described_however_it_is_asked_for():
    resources, memory = holding(b"PK\x03\x04" + b"secret" * 100_000)
    for more in ({}, {"format": "text"}, {"format": "csv"}, {"unit": "lines"}):
        asked: dict[str, Any] = more
        view = await read(resources, **asked)
        assert (view.format, view.returned_bytes, view.next) == ("binary", 0, None)
        assert view.text == "Not text: application/zip, 600004 bytes."
    assert sum(length for _, length in memory.reads) <= 4 * HEAD


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_halves_of_two_characters_are_no_line_end(encoding: str):
    text = "a\u0a41\u4100b\u4100\u0a41c\nlast"
    resources, _ = holding(f"\ufeff{text}".encode(encoding))
    first = await read(resources, unit="lines", length=1)
    assert (first.text, first.next) == (text.removesuffix("last"), 1)
    assert (await read(resources, unit="lines", start=1)).text == "last"
    found = await grep(resources, "b|last")
    assert [(one.line, one.text) for one in found.matches] == [(0, text[:-5]), (1, "last")]
