"""Rows: of JSON lines and of CSV, by number, with only the fields that are asked for."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import NoReturn, cast

from holdfast.contracts import Json, canonical_json
from holdfast.errors import HoldfastError, ModelError
from holdfast.resources._window import OutOfBudget, Window
from holdfast.resources.parsers.detect import Kind
from holdfast.resources.parsers.lines import Line, Skipped, lines, skip
from holdfast.resources.parsers.part import Part
from holdfast.resources.parsers.text import decode

JSONL_PARSER = "jsonl/1"
CSV_PARSER = "csv/1"
DEFAULT_ROWS = 200
"""Rows that come when nobody says how many."""
MAX_ROW_BYTES = 1024 * 1024
"""Of a longer row nothing is read."""

_DELIMITERS = ",;\t|"
_MOST_NOTES = 5
_FAR = "That is too far in to count rows: read a range of bytes as text."


def read_jsonl(
    window: Window,
    kind: Kind,
    start: int,
    length: int | None,
    *,
    most: int,
    select: Sequence[str] = (),
    known: Skipped | None = None,
) -> Part:
    """Rows of JSON lines; one that is not JSON is `None`, with a note."""
    rows = _Rows(start, length, most)
    try:
        place = skip(window, kind, known or Skipped(0, kind.bom), start)
        if place.line == start:
            for line in lines(window, kind, place.at, most=MAX_ROW_BYTES):
                if rows.full(line.at, window):
                    break
                value, why = _json(line, kind)
                if why:
                    rows.note(f"Row {rows.at} {why}.")
                if not rows.add(_picked(value, select), line.at, line.end):
                    break
    except OutOfBudget:
        return rows.too_far()
    return rows.part


def read_csv(
    window: Window,
    kind: Kind,
    start: int,
    length: int | None,
    *,
    most: int,
    select: Sequence[str] = (),
    known: Skipped | None = None,
) -> Part:
    """Rows of CSV after its first, which names the columns."""
    rows = _Rows(start, length, most)
    try:
        feed = _Feed(window, kind, kind.bom)
        delimiter = _delimiter(window.head, kind)
        header = next(csv.reader(feed, delimiter=delimiter), list[str]())
        columns, chosen = _columns(header, select)
        rows.part.columns = columns
        number = 0
        if known is not None and known.at > feed.end:
            number, feed = known.line, _Feed(window, kind, known.at)
        reader = csv.reader(feed, delimiter=delimiter)
        # Asked before the next row is looked at, which may be none.
        while not (number >= start and rows.full(feed.end, window)):
            begins = feed.end
            row = next(reader, None)
            if row is None:
                break
            if not row:  # an empty line
                continue
            if number >= start:
                picked = row if chosen is None else [row[i] if i < len(row) else "" for i in chosen]
                if not rows.add(cast("Json", picked), begins, feed.end):
                    break
            number += 1
    except OutOfBudget:
        return rows.too_far()
    except csv.Error as why:
        _no_csv(f"Row {rows.at}", str(why))
    return rows.part


class _Rows:
    """Rows that were found, until there are enough."""

    def __init__(self, start: int, length: int | None, most: int) -> None:
        self.part = Part("rows", start, rows=[])
        self._length = length
        self._most = most
        self._size = 0

    @property
    def at(self) -> int:
        """The number of the next row."""
        return self.part.start + self.part.count

    def full(self, byte: int, window: Window) -> bool:
        """Whether there are as many as were asked for; the next would begin at `byte`."""
        if self.part.count < (self._length or DEFAULT_ROWS):
            return False
        if not window.ends_at(byte):
            self._stop(byte)
            self.part.short = self._length is None
        return True

    def add(self, row: Json, begins: int, ends: int) -> bool:
        """Take a row; `False`: there is no room."""
        part = self.part
        assert part.rows is not None
        size = len(canonical_json(row))
        if size > self._most:
            self.note(f"Row {self.at} has {size} bytes and is left out: select less of it.")
            row, size, part.short = None, 4, True
        if self._size + size > self._most:
            self._stop(begins)
            part.short = True
            return False
        part.rows.append(row)
        part.count += 1
        part.took += ends - begins
        self._size += size
        return True

    def note(self, text: str) -> None:
        """Say something, if not too much was said."""
        if len(self.part.notes) < _MOST_NOTES:
            self.part.notes += (text,)

    def too_far(self) -> Part:
        """What there is when more may not be looked at."""
        self.part.short, self.part.next = True, self.at
        self.part.notes += (_FAR,)
        return self.part

    def _stop(self, byte: int) -> None:
        self.part.next, self.part.mark = self.at, (self.at, byte)


class _Feed:
    """Lines as the CSV reader wants them, and how far it got."""

    def __init__(self, window: Window, kind: Kind, at: int) -> None:
        self._lines = lines(window, kind, at, most=MAX_ROW_BYTES)
        self._kind = kind
        self.end = at
        """The byte after the last line that was taken."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if not line.whole:
            _no_csv(f"The line at byte {line.at}", f"it has more than {MAX_ROW_BYTES} bytes")
        self.end = line.end
        return decode(line.data, self._kind, final=True)[0]


def _no_csv(where: str, why: str) -> NoReturn:
    raise ModelError(
        "TOOL_ERROR", f"{where} is not CSV: {why[:200]}.", hint="Read it with `format='text'`."
    )


def _delimiter(head: bytes, kind: Kind) -> str:
    first = decode(head[kind.bom :], kind, final=False)[0].partition("\n")[0]
    return max(_DELIMITERS, key=first.count)


def _columns(header: list[str], select: Sequence[str]) -> tuple[list[str], list[int] | None]:
    if not select:
        return header, None
    for name in select:
        if name not in header:
            raise ModelError(
                "INVALID_ARGUMENT",
                f"There is no column `{name[:80]}`.",
                hint=f"There is: {', '.join(header)[:500]}.",
            )
    return list(select), [header.index(name) for name in select]


def _json(line: Line, kind: Kind) -> tuple[Json, str | None]:
    if not line.whole:
        return None, f"has more than {MAX_ROW_BYTES} bytes and is left out"
    text = decode(line.data, kind, final=True)[0].strip()
    if not text:
        return None, None
    try:
        value: Json = json.loads(text, parse_constant=_no_number)
        canonical_json(value)
    except (ValueError, RecursionError, HoldfastError):
        return None, "is not JSON"
    return value, None


def _no_number(text: str) -> float:
    raise ValueError(text)


def _picked(value: Json, select: Sequence[str]) -> Json:
    """Only these fields of an object; a field inside another by its path."""
    if not select or not isinstance(value, dict):
        return value
    return {path: _inside(value, path) for path in select}


def _inside(value: Json, path: str) -> Json:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value
