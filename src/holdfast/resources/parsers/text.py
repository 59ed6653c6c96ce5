"""Text: a range of bytes or of lines, decoded. Ranges that follow each other give the whole, character by character."""

from __future__ import annotations

import codecs

from holdfast.resources._window import OutOfBudget, Window
from holdfast.resources.parsers.detect import Kind
from holdfast.resources.parsers.lines import Skipped, lines, skip
from holdfast.resources.parsers.part import Part

PARSER = "text/1"
DEFAULT_LINES = 500
"""Lines that come when nobody says how many."""

_WIDEST = 4
"""Bytes of the longest character."""
_ODD = "Some bytes are not {encoding}; they are shown as \ufffd."


def decode(data: bytes, kind: Kind, *, final: bool) -> tuple[str, int]:
    """Text, and how many bytes it took: without `final`, a character that is cut at the end stays for later."""
    decoder = codecs.getincrementaldecoder(kind.encoding)(errors="replace")
    text = decoder.decode(data, final=final)
    return text, len(data) - len(decoder.getstate()[0])


def odd(text: str, kind: Kind) -> tuple[str, ...]:
    """What to say about bytes that are no characters."""
    return (_ODD.format(encoding=kind.encoding.upper()),) if "\ufffd" in text else ()


def read_bytes(window: Window, kind: Kind, start: int, length: int | None, *, most: int) -> Part:
    """The text of `length` bytes from `start` on: less, so that no character is cut; but at least one."""
    begin = max(start - start % kind.width, kind.bom if start < kind.bom else 0)
    want = min(length or most, most)
    data = window.read(begin, want + _WIDEST)
    at_end = len(data) <= want
    text, took = decode(data[:want], kind, final=at_end)
    while not text and not at_end:
        want += 1
        at_end = len(data) <= want
        text, took = decode(data[:want], kind, final=at_end)
    at_end = at_end and took == len(data)
    return Part(
        "bytes",
        begin,
        count=took,
        next=None if at_end else begin + took,
        short=not at_end and (length is None or length > most),
        took=took,
        text=text,
        notes=odd(text, kind),
    )


def read_lines(
    window: Window, kind: Kind, start: int, length: int | None, *, most: int, known: Skipped | None
) -> Part:
    """`length` lines from line `start` on, as far as they fit; `known`: where a line before that begins."""
    part = Part("lines", start, text="")
    try:
        place = skip(window, kind, known or Skipped(0, kind.bom), start)
        if place.line < start:
            return part  # there are not so many
        _gather(part, window, kind, place.at, length or DEFAULT_LINES, most=most)
    except OutOfBudget:
        part.short, part.next = True, start + part.count
        part.notes += ("That is too far in to count lines: read a range of bytes.",)
        return part
    if part.next is not None:
        part.short = part.short or length is None
    return part


def _gather(part: Part, window: Window, kind: Kind, at: int, length: int, *, most: int) -> None:
    """Add lines to a part, as many as are wanted and fit; one that is longer than the room is cut."""
    found: list[str] = []
    here = at
    for line in lines(window, kind, at, most=most):
        if part.count >= length or (part.count and line.end - at > most):
            part.next, part.mark = part.start + part.count, (part.start + part.count, line.at)
            part.short = part.count < length
            break
        text, took = decode(line.data, kind, final=line.whole)
        found.append(text)
        part.count += 1
        here = line.at + took
        if not line.whole:
            part.short = True
            size = line.end - line.at
            part.notes += (
                f"Line {part.start} has {size} bytes, of which {took} are shown; its rest begins at byte {here}.",
            )
            if not window.ends_at(line.end):
                part.next, part.mark = part.start + 1, (part.start + 1, line.end)
            break
    part.took = here - at
    part.text = "".join(found)
    part.notes += odd(part.text, kind)
