"""The words and escapes of JSON, the slips in them that have one meaning, and what every repair is called."""

from __future__ import annotations

import re
from math import isfinite
from typing import Final, NamedTuple

from holdfast.contracts import Json

REPAIRS: Final = {
    "trailing_comma": "a comma before a closing bracket was left out",
    "missing_comma": "a comma between two members was put in",
    "quotes": "single or typographic quotes became plain ones",
    "bare_key": "a key without quotes got them",
    "literal": "`True`, `False` or `None` became `true`, `false` or `null`",
    "number": "a number such as `+1`, `.5`, `5.` or `1_000` was written as JSON has it",
    "comment": "a comment was left out",
    "escape": "an escape of another language became one of JSON",
    "control": "a line break or another control character within a string was escaped",
    "space": "an unusual space between two tokens was left out",
    "extra_end": "closing brackets after the end were left out",
    "closed_end": "brackets that were still open at the end were closed",
    "prose": "text around the JSON was left out",
}
"""What can be repaired, by name. Only `closed_end` may hide a loss: nobody can tell what else was to come."""

LOSSY: Final = frozenset({"closed_end"})
"""Repairs after which something may be missing."""

HALF: Final = "half of a surrogate pair in a string"
NO_VALUE: Final = "expected a value: text must be in double quotes"

_MAX_KEY = 200
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LOOSE = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*(?:_[0-9]+)*)\.?|(?:0|[1-9][0-9]*)?\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
# What Python would write for other keys than text is no name: JSON writes it in another way.
_BARE_KEY = re.compile(r"(?!(?:True|False|None)$)(?:[^\W\d]|\$)[\w$-]*|0|[1-9][0-9]*")
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}
_OTHER_LITERALS: dict[str, Json] = {"True": True, "False": False, "None": None}
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WIDTHS = {"u": 4, "x": 2, "U": 8}
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+(?:\.[0-9]*)?")
_HEX = re.compile(r"[0-9A-Fa-f]+")


class More(Exception):
    """The text ends within a token."""


class Fail(Exception):
    """The text can't go on like this; the message says why, the same for the same mistake."""


class Scalar(NamedTuple):
    """A number or a literal."""

    value: Json
    repair: str | None = None


class Escaped(NamedTuple):
    """The character that an escape stands for, and where the escape ends."""

    char: str
    end: int
    repair: str | None = None


def is_bare_key(word: str) -> bool:
    """Whether a word without quotes can only be meant as a key."""
    return len(word) <= _MAX_KEY and _BARE_KEY.fullmatch(word) is not None


def scalar(word: str) -> Scalar:
    """The number or literal that a word is."""
    if word in _LITERALS:
        return Scalar(_LITERALS[word])
    if found := _NUMBER.fullmatch(word):
        return Scalar(_number(word, is_int=not (found[1] or found[2])))
    if word in _OTHER_LITERALS:
        return Scalar(_OTHER_LITERALS[word], "literal")
    if _NOT_FINITE.fullmatch(word):
        raise Fail("JSON has no `NaN` and no `Infinity`: give a number or null")
    if _LOOSE.fullmatch(word):
        plain = word.replace("_", "").removeprefix("+")
        return Scalar(_number(plain, is_int=not set(plain) & set(".eE")), "number")
    if _LEADING_ZERO.fullmatch(word):
        raise Fail("a number can't begin with a zero: if it is text, it must be in double quotes")
    raise Fail(NO_VALUE)


def _number(word: str, *, is_int: bool) -> Json:
    if is_int:
        return int(word)
    found = float(word)
    if not isfinite(found):
        raise Fail("a number too large to be one")
    return found


def escape(text: str, pos: int) -> Escaped:
    """The escape that begins with the backslash at `pos`."""
    char = _peek(text, pos + 1)
    if char in _ESCAPES:
        return Escaped(_ESCAPES[char], pos + 2)
    if char == "'":
        return Escaped(char, pos + 2, "escape")
    if char not in _WIDTHS:
        raise Fail("a backslash that begins no escape: write it as `\\\\`")
    code, end = _hex(text, pos + 2, _WIDTHS[char])
    if 0xD800 <= code < 0xDC00 and char == "u":
        low, end = _low_half(text, end)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise Fail(HALF)
    return Escaped(chr(code), end, None if char == "u" else "escape")


def _low_half(text: str, pos: int) -> tuple[int, int]:
    if _peek(text, pos) != "\\" or _peek(text, pos + 1) != "u":
        raise Fail(HALF)
    low, end = _hex(text, pos + 2, 4)
    if not 0xDC00 <= low < 0xE000:
        raise Fail(HALF)
    return low, end


def _hex(text: str, pos: int, width: int) -> tuple[int, int]:
    digits = text[pos : pos + width]
    if digits and not _HEX.fullmatch(digits):
        raise Fail(f"an escape without its {width} hexadecimal digits")
    if len(digits) < width:
        raise More
    return int(digits, 16), pos + width


def _peek(text: str, pos: int) -> str:
    if pos >= len(text):
        raise More
    return text[pos]
