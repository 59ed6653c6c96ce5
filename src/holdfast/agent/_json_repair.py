"""The JSON in a model's answer: without its fence, without the prose around it, and with its slips mended.

No library does this: those there are (`json-repair` the best kept) always give something, guess where structure is
broken, and have turned members into items and text into keys. An answer that is typed, recorded and acted upon must
be what the model meant or be asked for again, so here only damage with one reading is mended (`_json_reader`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.agent._json_reader import Reader, Stuck
from holdfast.contracts import Json

_MAX_STARTS = 1000
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_OPENERS = re.compile(r"[{\[]")
_CLOSERS = re.compile(r"[\s}\]]*")
# Atomic, or the ends of many comments could be combined in every way.
_COMMENTS = re.compile(r"(?>\s+|//[^\r\n]*|\#(?=\s|\Z)[^\r\n]*|/\*(?>.*?\*/))*+", re.DOTALL)
# What stands next to a value that is a part of something larger.
_INSIDE_BEFORE = re.compile(r"""[,\[{]\s*\Z|["'”’]\s*(?::\s*)?\Z""")
_INSIDE_AFTER = re.compile(r"""\s*(?:[:\]}"'“‘]|,\s*["'“‘{\[\d-])""")


class Found(NamedTuple):
    """The JSON value of an answer, or why there is none."""

    value: Json = None
    """The value; without one, as much of it as there is."""
    ok: bool = False
    """Whether there is one."""
    partial: bool = False
    """Without a value: whether there is a part of one."""
    repairs: tuple[str, ...] = ()
    """What had to be mended, by name."""
    rule: str = ""
    """Without a value: what is wrong."""
    where: str = ""
    """Without a value: where, if that is known."""


def find_json(text: str, fits: Callable[[Json], bool], *, cut: bool = False) -> Found:
    """The one JSON value in `text`.

    `fits` chooses among several pieces of JSON in prose. With `cut` the text is known to have been cut off, so that
    nothing at its end is closed.
    """
    inner = strip_fence(text)
    if not inner:
        return Found(rule="the answer is empty")
    reader = _read(inner, 0)
    if reader.done:
        if not inner[reader.at :].strip():
            return _given(reader)
        if _CLOSERS.fullmatch(inner, reader.at):
            return _given(reader, "extra_end")
        if _COMMENTS.fullmatch(inner, reader.at):
            return _given(reader, "comment")
    elif not reader.stuck:
        return _unfinished(reader, cut=cut)
    return _in_prose(inner, fits, reader, cut=cut)


def strip_fence(text: str) -> str:
    """`text` without the space around it and without one Markdown fence."""
    inner = text.strip()
    if start := _FENCE.match(inner):
        inner = inner[start.end() :]
    return inner.removesuffix("```").strip()


def _read(text: str, start: int) -> Reader:
    reader = Reader()
    reader.feed(text[start:] if start else text)
    reader.finish()
    return reader


def _given(reader: Reader, *more: str) -> Found:
    return Found(reader.value(), ok=True, repairs=tuple(dict.fromkeys((*reader.repairs, *more))))


def _unfinished(reader: Reader, *, cut: bool, prose: tuple[str, ...] = ()) -> Found:
    """What becomes of a text that ends too early: closed, if only brackets are missing and nobody cut it off."""
    if reader.closable and not cut:
        reader.close()
        return _given(reader, *prose)
    why = "the answer was cut off at its length limit, a shorter one is needed"
    return Found(
        reader.value() if reader.found else None,
        partial=reader.found,
        repairs=tuple(reader.repairs),
        rule=why if cut else "the JSON ends before it is complete",
    )


class _Piece(NamedTuple):
    """A piece of JSON in prose."""

    start: int
    end: int
    found: Found


class _Broken(Exception):
    """There is JSON in the prose that can't be told from its surroundings."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


def _in_prose(text: str, fits: Callable[[Json], bool], whole: Reader, *, cut: bool) -> Found:
    """The piece of JSON that is meant, if there is no doubt which."""
    try:
        pieces = list(_pieces(text, cut=cut))
    except _Broken as why:
        return why.found
    if not pieces or not _is_prose(text, pieces):
        return _refused(text, whole)
    fitting = [one.found for one in pieces if fits(one.found.value)]
    values = [one.found.value for one in pieces if not fitting or one.found in fitting]
    if any(_differ(values[0], one) for one in values[1:]):
        return Found(rule="there is more than one piece of JSON, and they differ")
    return fitting[0] if fitting else pieces[0].found


def _pieces(text: str, *, cut: bool) -> Iterator[_Piece]:
    """Every object and array that stands in the text by itself."""
    at = 0
    # A text full of brackets that lead nowhere must not be read once for each of them.
    budget = 4 * len(text) + 4096
    starts = 0
    while opener := _OPENERS.search(text, at):
        start = opener.start()
        reader = _read(text, start)
        budget -= reader.at
        starts += 1
        if budget < 0 or starts > _MAX_STARTS:
            raise _Broken(Found(rule="there is no JSON among all the brackets"))
        if reader.done:
            at = start + reader.at
            yield _Piece(start, at, _given(reader, "prose"))
        elif reader.stuck:
            at = start + 1
        else:
            found = _unfinished(reader, cut=cut, prose=("prose",))
            if not found.ok:
                raise _Broken(found)
            yield _Piece(start, len(text), found)
            return


def _is_prose(text: str, pieces: list[_Piece]) -> bool:
    """Whether what is around the pieces is prose, rather than the rest of JSON that is broken."""
    before = 0
    for one in pieces:
        if not _balanced(text[before : one.start]):
            return False
        if _INSIDE_BEFORE.search(text[max(0, one.start - 32) : one.start]):
            return False
        if _INSIDE_AFTER.match(text, one.end):
            return False
        before = one.end
    return _balanced(text[before:])


def _balanced(text: str) -> bool:
    opened: list[str] = []
    for char in text:
        if char in "{[":
            opened.append("}" if char == "{" else "]")
        elif char in "}]" and (not opened or opened.pop() != char):
            return False
    return not opened


def _differ(one: Json, other: Json) -> bool:
    # `True == 1` in Python, and not in JSON.
    return repr(one) != repr(other)


def _refused(text: str, whole: Reader) -> Found:
    if whole.stuck is None:
        return Found(rule="there is more text after the JSON", where=_place(text, whole.at))
    if not whole.found and not _OPENERS.search(text):
        return Found(rule="there is no JSON in the answer")
    stuck: Stuck = whole.stuck
    partial = whole.value() if whole.found else None
    return Found(
        partial, partial=whole.found, repairs=tuple(whole.repairs), rule=stuck.why,
        where=_place(text, stuck.at),
    )  # fmt: skip


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - (text.rfind(chr(10), 0, at) + 1) + 1}"
