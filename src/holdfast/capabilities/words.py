"""Text that a server wrote: bounded, and without characters that nobody sees but a model reads."""

from __future__ import annotations

import unicodedata
from typing import cast

MAX_DESCRIPTION = 2000
"""Characters of a description."""

# Control, format (zero width, right to left, tags), private and lone surrogates.
_UNSEEN = frozenset(("Cc", "Cf", "Co", "Cs", "Cn"))

# Keywords of a schema whose values are data, not schemas.
_DATA = frozenset(("const", "default", "enum", "examples", "required"))


def clean(text: str, most: int = MAX_DESCRIPTION) -> str:
    """`text` as it may be shown: at most so many characters, lines kept, nothing invisible."""
    # What is cut off is not looked at: it may be very long.
    kept = "".join(_seen(char) for char in text[: 2 * most])
    kept = kept.strip()
    return kept if len(kept) <= most and len(text) <= 2 * most else f"{kept[: most - 1]}…"


def one_line(text: str, most: int = 300) -> str:
    """The same without lines."""
    return " ".join(clean(text, most).split())


def _seen(char: str) -> str:
    if char == "\n" or " " <= char <= "~":
        return char
    if char in "\t\r\v\f":
        return " "
    return "" if unicodedata.category(char) in _UNSEEN else char


def clean_schema(schema: object) -> object:
    """A schema whose titles and descriptions are clean; what they describe stays as it is."""
    if isinstance(schema, list):
        return [clean_schema(one) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, object] = {}
    for key, value in cast("dict[str, object]", schema).items():
        if key in ("title", "description") and isinstance(value, str):
            found[key] = clean(value)
        elif key == "$comment" and isinstance(value, str):
            continue
        else:
            found[key] = value if key in _DATA else clean_schema(value)
    return found
