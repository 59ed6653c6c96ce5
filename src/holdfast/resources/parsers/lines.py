"""Lines of a source: where they begin, and their bytes, however long they or the source are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.resources._window import CHUNK, Window
from holdfast.resources.parsers.detect import Kind


class Line(NamedTuple):
    """One line."""

    at: int
    """The byte it begins at."""
    data: bytes
    """Its bytes, with the line end; of a long line, the first."""
    end: int
    """The byte after it."""
    whole: bool
    """Whether `data` is all of it."""


def find(data: bytes, kind: Kind, start: int = 0) -> int:
    """Where the first line end at or after `start` is, -1 without one; `data` begins with a whole character."""
    sought, width = kind.line_end, kind.width
    found = data.find(sought, start)
    while found >= 0 and found % width:
        found = data.find(sought, found + 1)  # it was made of halves of two characters
    return found


def lines(window: Window, kind: Kind, at: int, *, most: int) -> Iterator[Line]:
    """The lines from byte `at` on, of each at most `most` bytes."""
    buffer, start, seen = b"", at, at
    kept: bytes | None = None  # the beginning of a line that is too long
    while True:
        part = window.read(seen, CHUNK)
        seen += len(part)
        buffer += part
        here = 0
        while (found := find(buffer, kind, here)) >= 0:
            stop = found + kind.width
            data = buffer[here:stop] if kept is None else kept
            end = seen - len(buffer) + stop
            yield Line(start, data[:most], end, kept is None and len(data) <= most)
            start, here, kept = end, stop, None
        buffer = buffer[here:]
        if not part:
            break
        # Never cut inside a character that is two or four bytes.
        if kept is None and len(buffer) > most:
            kept = buffer[:most]
        if kept is not None:
            buffer = buffer[len(buffer) - len(buffer) % kind.width :]
    if start < seen:
        data = buffer if kept is None else kept
        yield Line(start, data[:most], seen, kept is None and len(data) <= most)


class Skipped(NamedTuple):
    """Where counting lines has led."""

    line: int
    at: int


def skip(window: Window, kind: Kind, start: Skipped, target: int) -> Skipped:
    """Where line `target` begins, counted from `start`; the end, if there are fewer lines."""
    line, at = start
    while line < target:
        data = window.read(at, CHUNK)
        usable = len(data) - len(data) % kind.width or len(data)
        data = data[:usable]
        if not data:
            return Skipped(line, at)
        if kind.width == 1 and line + (count := data.count(b"\n")) < target:
            line, at = line + count, at + len(data)
            continue
        here = 0
        while line < target and (found := find(data, kind, here)) >= 0:
            line, here = line + 1, found + kind.width
        at += here if line == target else len(data)
    return Skipped(line, at)
