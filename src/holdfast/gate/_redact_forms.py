"""The spellings in which a secret turns up: itself, escaped, percent-encoded, in hex, in base64."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

_STANDARD = frozenset(string.ascii_letters + string.digits + "+/")
_URL_SAFE = frozenset(string.ascii_letters + string.digits + "-_")


class Form(NamedTuple):
    """One spelling of one secret."""

    text: str
    """What to look for."""
    name: str
    """Whose it is."""
    before: frozenset[str] = frozenset()
    """Goes with it, if it stands right before: a base64 digit that holds some bits of it."""
    after: frozenset[str] = frozenset()
    """Likewise, right behind."""


def forms(name: str, value: str) -> list[Form]:
    """Every spelling that is looked for, each once."""
    data = value.encode(errors="surrogateescape")
    found = [Form(text, name) for text in _spelled(value, data)]
    found += _base64(name, data)
    return list({form.text: form for form in reversed(found)}.values())[::-1]


def _spelled(value: str, data: bytes) -> Iterator[str]:
    yield value
    yield from _escaped(value)
    yield data.hex()
    yield data.hex().upper()
    for safe in ("", "/", "!'()*", "!$&'()*+,;=:@", "!$&'()*+,;=:@/?"):
        yield from _both_cases(quote(data, safe=safe))
    yield from _both_cases(quote_plus(data))


def _escaped(value: str) -> Iterator[str]:
    """As JSON and Python write it, and JSON inside JSON."""
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield value.replace("/", r"\/")
    yield repr(value)[1:-1]
    yield ascii(value)[1:-1]


def _both_cases(quoted: str) -> Iterator[str]:
    """`%2F` and `%2f`."""
    yield quoted
    first, *rest = quoted.split("%")
    yield "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(name: str, data: bytes) -> Iterator[Form]:
    """The digits that the value alone decides, wherever it begins within a group of three bytes."""
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + data).decode().rstrip("=")
        first = -(-shift * 8 // 6)
        last = (shift + len(data)) * 8 // 6
        core = encoded[first:last]
        shared_before, shared_after = bool(shift), bool((shift + len(data)) % 3)
        for digits, text in (
            (_STANDARD, core),
            (_URL_SAFE, core.translate(str.maketrans("+/", "-_"))),
        ):
            yield Form(
                text,
                name,
                digits if shared_before else frozenset(),
                digits if shared_after else frozenset(),
            )
