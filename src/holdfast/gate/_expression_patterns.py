"""Globs and regular expressions whose time grows with the text and not with what the text was made to do.

Python's `re` backtracks: thirty characters are enough to keep `(a+)+b` busy for minutes, so bounding the text
does not help, and the text is the model's. The engine here is Rust's `regex`, which pydantic brings along: a
search is linear in the text, lookaround and back-references do not exist, and a pattern that would compile to
more than 10 MiB is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from pydantic_core import SchemaError, SchemaValidator, core_schema

Matcher: TypeAlias = Callable[[str], bool]
"""Whether a text matches, as a whole."""

WILD = "*?"
"""What makes a name a pattern."""

_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~")


def _engine(pattern: str) -> Matcher:
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
    return SchemaValidator(schema).isinstance_python


def escaped(text: str) -> str:
    """The pattern that matches `text` and nothing else."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def searcher(pattern: str) -> Matcher:
    """Whether the pattern occurs in a text; raises `ValueError` with the reason for a pattern that is none."""
    if pattern != _sound(pattern):
        raise ValueError("it holds a character that is no Unicode text")
    try:
        return _engine(pattern)
    except SchemaError as why:
        raise ValueError(str(why).splitlines()[-1].removeprefix("error: ").strip()) from None


def _sound(text: str) -> str:
    # The engine takes no lone surrogate, and a text must not escape a rule by having one.
    return text if text.isascii() else text.encode(errors="replace").decode()


@lru_cache(maxsize=1024)
def regex(pattern: str) -> Matcher:
    """Whether a whole text matches the regular expression; `.` is any character, a line end included."""
    searcher(pattern)  # Alone first: `a)|(?:b` must not be balanced by what is put around it.
    matches = searcher(rf"\A(?s:{pattern})\z")
    return lambda text: matches(_sound(text))


@lru_cache(maxsize=1024)
def glob(pattern: str) -> Matcher:
    """Whether a whole text matches, with `*` for any characters (also none, also `/`) and `?` for one."""
    if not any(char in WILD for char in pattern):
        return lambda text: text == pattern
    if not pattern.strip("*"):
        return lambda text: True
    wild = {"*": ".*", "?": "."}
    return regex("".join(wild.get(char) or escaped(char) for char in pattern))
