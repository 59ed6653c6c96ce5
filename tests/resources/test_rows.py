"""Rows of JSON lines and CSV: by number, in part, and from files that are not what they should be."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import holding, read

from holdfast.errors import ModelError
from holdfast.resources import Resources
from holdfast.resources.parsers.rows import DEFAULT_ROWS, MAX_ROW_BYTES

CELL = st.text(alphabet=st.sampled_from("ab é,;\"'\n\t"), max_size=8)


async def rows_of(resources: Resources, **more: Any) -> list[Any]:
    """All the rows of parts that follow each other."""
    start: int | None = 0
    found: list[Any] = []
    while start is not None:
        view = await read(resources, start=start, **more)
        assert view.next is None or view.next > start
        assert view.rows is not None
        assert view.count == len(view.rows)
        found += view.rows
        start = view.next
    return found


@given(
    table=st.lists(st.lists(CELL, min_size=2, max_size=2), max_size=12),
    length=st.integers(1, 5),
    known=st.booleans(),
)
async def test_csv_comes_as_the_library_reads_it(table: list[list[str]], length: int, known: bool):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["name", "n"], *table])
    resources, memory = holding(out.getvalue().encode())
    memory.version = "1" if known else None
    assert await rows_of(resources, format="csv", length=length) == table
    assert (await read(resources, format="csv")).columns == ("name", "n")


@given(
    rows=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=5,
        ),
        max_size=12,
    ),
    length=st.integers(1, 5),
)
async def test_json_lines_come_as_they_are(rows: list[Any], length: int):
    resources, _ = holding("".join(json.dumps(one) + "\n" for one in rows).encode())
    assert await rows_of(resources, format="jsonl", length=length) == rows


async def test_fields_and_columns_are_selected():
    resources, _ = holding(b'{"a": {"b": 1}, "c": 2}\n{"c": 3}\n[1]\n')
    view = await read(resources, format="jsonl", select=("c", "a.b"))
    assert view.rows == ({"c": 2, "a.b": 1}, {"c": 3, "a.b": None}, [1])
    resources, _ = holding(b"x;y;z\n1;2;3\n4;5\n")
    view = await read(resources, format="csv", select=("z", "x"))
    assert (view.columns, view.rows) == (("z", "x"), (["3", "1"], ["", "4"]))
    with pytest.raises(ModelError, match="no column `q`") as caught:
        await read(resources, format="csv", select=("q",))
    assert caught.value.hint == "There is: x, y, z."


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
async def test_the_delimiter_is_found(delimiter: str):
    resources, _ = holding(f"a{delimiter}b\n1{delimiter}2\n".encode())
    view = await read(resources, format="csv")
    assert (view.columns, view.rows) == (("a", "b"), (["1", "2"],))


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
async def test_without_a_number_there_is_a_bound_on_rows(format_: str):
    resources, _ = holding(b"1\n" * (DEFAULT_ROWS + 5))
    view = await read(resources, format=format_)
    assert (view.count, view.next, view.truncated) == (DEFAULT_ROWS, DEFAULT_ROWS, True)
    view = await read(resources, format=format_, length=3)
    assert (view.count, view.next, view.truncated) == (3, 3, False)


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
async def test_rows_that_do_not_fit_come_later(format_: str):
    resources, _ = holding(b'"' + b'"\n"'.join([b"x" * 100] * 50) + b'"\n')
    view = await read(resources, format=format_, max_bytes=1000, length=40)
    assert 0 < view.count < 10
    assert view.truncated
    assert view.next == view.count
    found = await rows_of(resources, format=format_, max_bytes=1000)
    assert len(found) == (49 if format_ == "csv" else 50)


async def test_a_row_that_never_fits_is_left_out_and_told():
    resources, _ = holding(b'1\n"' + b"x" * 5000 + b'"\n2\n')
    view = await read(resources, format="jsonl", max_bytes=1000)
    assert view.rows == (1, None, 2)
    assert view.truncated
    assert "select less" in view.notes[0]


@pytest.mark.parametrize(
    "line",
    [b"nope", b'{"a": NaN}', b'"\\ud800"', b"[" * 100_000, b"\xff\xfe", b"9" * 5000, b"\x00"],
)
async def test_lines_that_are_not_json_are_told_and_the_others_come(line: bytes):
    # The first lines decide what it is: they are plain text.
    resources, _ = holding(b"1\n" * 5000 + line + b"\n2\n")
    view = await read(resources, format="jsonl", start=4999)
    assert view.rows == (1, None, 2)
    assert view.notes == ("Row 5000 is not JSON.",)


async def test_notes_are_bounded():
    resources, _ = holding(b"nope\n" * 100)
    view = await read(resources, format="jsonl")
    assert (view.count, len(view.notes)) == (100, 5)


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
async def test_a_row_of_ten_megabytes_is_not_held(format_: str):
    resources, _ = holding(b"a\n1\n" + b"x" * (10 * MAX_ROW_BYTES) + b"\n2\n")
    if format_ == "csv":
        assert (await read(resources, format="csv", length=1)).rows == (["1"],)
        with pytest.raises(ModelError, match=f"more than {MAX_ROW_BYTES} bytes"):
            await read(resources, format="csv")
        return
    view = await read(resources, format="jsonl", start=1)
    assert view.rows == (1, None, 2)
    assert "left out" in view.notes[0]


async def test_csv_with_nuls_is_bounded_and_never_crashes():
    resources, _ = holding(b"a,b\n" + b"1,2\n" * 4000 + b"x\x00y,\x00\n" + b"3,4\n")
    view = await read(resources, format="csv", start=4000)
    assert view.rows == (["x\x00y", "\x00"], ["3", "4"])


async def test_a_quote_that_is_never_closed_is_told():
    resources, _ = holding(b'a,b\n1,"2\n' + b"x" * 80 + b"\n" * 10 + b"y,z\n" * 100_000)
    with pytest.raises(ModelError, match="Row 0 is not CSV"):
        await read(resources, format="csv")


async def test_rows_too_far_in_are_not_counted_for_ever():
    for format_ in ("csv", "jsonl"):
        resources, _ = holding(b"1\n" * 1_000_000, scan_bytes=500_000)
        view = await read(resources, format=format_, start=900_000)
        assert (view.rows, view.truncated, view.next) == ((), True, 900_000)
