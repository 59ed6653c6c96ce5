"""Values of the engine as JSON, strictly: what JSON can't express is refused, not turned into something else.

The engine hands some objects over as text: a function is `<function 'f' at 0xc>`, a range `range(0, 3)`, and a
list that holds itself has `[...]` inside. Text that looks so is in doubt. Whoever can evaluate the value again
asks the engine; otherwise `Doubt.likely` decides.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Container
from enum import IntEnum
from math import isfinite
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pydantic_monty import MontyClassProxy, MontyClassTypeProxy, MontyStdTypeProxy

from holdfast.contracts import Json

MAX_DEPTH = 100
"""Deeper nesting is refused: not every reader of JSON copes with it."""

MAX_ITEMS = 250_000
MAX_CHARS = 16 << 20
"""More values or text is refused. In the box one list may stand in a thousand places and take the room of one;
written down it takes the room of a thousand, and doubled thirty times it would never come to an end."""


class Doubt(IntEnum):
    """How sure it is that text is text."""

    NONE = 0
    SLIGHT = 1
    LIKELY = 2
    """Nobody writes such text by hand."""


class Value(NamedTuple):
    """A value, and whether it may be something else in disguise."""

    json: Json
    doubt: Doubt = Doubt.NONE
    of: str = ""
    """The text in doubt."""


class NotJson(Exception):
    """The value is, or holds, what JSON can't express."""

    def __init__(self, kind: str, hint: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.hint = hint


# Each takes linear time: the text is the agent's, and matching it must not hold the host up.
_LIKELY = re.compile(
    r"<function '[^']*' at 0x[0-9a-f]+>|<[\w.]+ object(?: at 0x[0-9a-f]+)?>|<bound method>"
    r"|<coroutine [\w ().<>]+>|<module '[\w.]+'>|<re\.Match object; .*>|<std(?:out|err)>|<gather\(\d+\)>"
    r"|<\w+ _hashlib\.HASH object @ 0x[0-9a-f]+>"
    r"|range\(-?\d+, -?\d+(?:, -?\d+)?\)|dict_(?:keys|values|items)\(\[.*\]\)",
    re.DOTALL,
)
_SLIGHT = re.compile(
    r"<class '[\w.]+'>|\[\.\.\.\]|\{\.\.\.\}|(?:re\.compile|slice|functools\.partial)\(.*\)",
    re.DOTALL,
)
# What Python itself refuses to write in decimal.
_TOO_LONG = 10**4300
_BITS = _TOO_LONG.bit_length() - 2
_SMALL = 1 << 63
ENDINGS = frozenset(">)]}")
"""Text that ends in none of these is text."""

_ANYTHING = "Give text, numbers, lists, or dicts with text keys."
_CONVERSIONS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((set, frozenset), "Convert it with list(...) or sorted(...)."),
    (bytes, "Convert it with .decode(), .hex() or base64."),
    (datetime.timedelta, "Convert it with .total_seconds()."),
    ((datetime.date, datetime.time), "Convert it with .isoformat()."),
    (decimal.Decimal, "Convert it with str(...) or float(...)."),
    (complex, "Give its .real and .imag."),
    (PurePosixPath, "Convert it with str(...)."),
    (BaseException, "Convert it with str(...)."),
)


def to_json(value: Any, names: Container[str] = ()) -> Value:
    """`value` as JSON; raises `NotJson`. Text equal to one of `names` may be the function of that name."""
    if value is None or value is True or value is False:
        return Value(value)
    if isinstance(value, str):
        doubt = _doubt(value, names)
        return Value(value, doubt, value if doubt else "")
    if isinstance(value, int | float):
        _check_scalar(value)
        return Value(value)
    return _Copy(names).of(value)


class _Copy:
    """Copies lists and dicts, without recursion: code may nest them as deep as its memory allows."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names
        self._doubt, self._doubted = Doubt.NONE, ""
        self._items, self._chars = MAX_ITEMS, MAX_CHARS
        self._todo: list[tuple[Any, Any, int]] = []

    def of(self, value: Any) -> Value:
        """The copy."""
        root = self._copied(value, 0)
        while self._todo:
            source, into, depth = self._todo.pop()
            self._items -= len(source)
            self._check_size()
            if isinstance(into, dict):
                self._fill(source, into, depth)  # pyright: ignore[reportUnknownArgumentType]
            else:
                into.extend([self._copied(one, depth) for one in source])
        self._check_size()
        return Value(root, self._doubt, self._doubted)

    def _fill(self, source: dict[Any, Any], into: dict[str, Any], depth: int) -> None:
        for key, one in source.items():
            if not isinstance(key, str):
                raise NotJson(
                    f"a dict with {type(key).__name__} keys",
                    "Make the keys text: {str(k): v for k, v in d.items()}.",
                )
            self._chars -= len(key)
            into[key] = self._copied(one, depth)

    def _copied(self, item: Any, depth: int) -> Any:
        """A scalar as it is; a list or dict empty, to be filled later."""
        kind: type = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is bool or item is None:
            return item
        if kind is str:
            self._chars -= len(item)
            this = _doubt(item, self._names)
            if this > self._doubt:
                self._doubt, self._doubted = this, item
            return item
        if kind is int:
            if not -_SMALL < item < _SMALL:
                _check_scalar(item)
                self._chars -= item.bit_length() // 3  # about as many digits
            return item
        if isinstance(item, dict | list | tuple):
            if depth == MAX_DEPTH:
                raise NotJson("deep nesting", f"Nest lists and dicts at most {MAX_DEPTH} deep.")
            made: Any = {} if isinstance(item, dict) else []
            source: Any = item  # pyright: ignore[reportUnknownVariableType]
            self._todo.append((source, made, depth + 1))
            return made
        _check_scalar(item)
        return item

    def _check_size(self) -> None:
        if self._items < 0 or self._chars < 0:
            raise NotJson(
                "too much data",
                f"Give at most {MAX_ITEMS} values and {MAX_CHARS >> 20} MiB of text: a part of it, or a summary.",
            )


def _check_scalar(value: Any) -> None:
    if value is None:
        return
    if isinstance(value, int):
        if value.bit_length() > _BITS and abs(value) >= _TOO_LONG:
            raise NotJson(
                "an int of more than 4300 digits", "Give a smaller number, or hex(...) of it."
            )
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise NotJson(str(value), "JSON has no NaN or Infinity: give None or text instead.")
        return
    raise NotJson(*_kind(value))


def _kind(value: Any) -> tuple[str, str]:
    if isinstance(value, MontyClassProxy):
        return value.name, "Give its fields as a dict, for instance {'x': obj.x}."
    if isinstance(value, MontyClassTypeProxy):
        return f"class {value.name}", "Give an instance's fields as a dict."
    if isinstance(value, MontyStdTypeProxy):
        return f"{value.kind} {value.name}", "Call it, or give its name as text."
    for kinds, hint in _CONVERSIONS:
        if isinstance(value, kinds):
            return type(value).__name__, hint
    return type(value).__name__, _ANYTHING


def _doubt(text: str, names: Container[str]) -> Doubt:
    if text[-1:] not in ENDINGS:
        return Doubt.SLIGHT if text in names else Doubt.NONE
    if _LIKELY.fullmatch(text):
        return Doubt.LIKELY
    return Doubt.SLIGHT if _SLIGHT.fullmatch(text) else Doubt.NONE


def disguised(of: str) -> tuple[str, str]:
    """What text in doubt most likely is, and what to do about it."""
    kind = of.strip("<>").split("(")[0].split(" ")[0]
    return kind, hint_for(kind)


def hint_for(kind: str) -> str:
    """What to do with a value of a type that JSON does not have."""
    if kind.startswith(("range", "dict_", "itertools.")) or kind.endswith("iterator"):
        return "Convert it with list(...)."
    return _ANYTHING
