"""Live values, told to whoever takes them out of texts, before anything can leak."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from holdfast.contracts import digest

KEPT = 12
"""Earlier values of a lease that are still looked for: they may be good a while longer."""


class Redact(Protocol):
    """Replaces values by their names, wherever they turn up; the gate's `Redactor`."""

    def add(self, name: str, value: str) -> None:
        """From now on."""
        ...

    def remove(self, name: str) -> None:
        """No longer."""
        ...


class Shown:
    """What was told of each lease."""

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact
        self._told: dict[str, dict[str, str]] = {}
        self._count = 0

    def add(self, key: str, values: Iterable[str]) -> None:
        """These are live. Those that were not mentioned for longest are forgotten: their time is over."""
        if self._redact is None:
            return
        told = self._told.setdefault(key, {})
        for value in values:
            name = told.pop(value, None)
            if name is None:
                self._count += 1
                name = _name(key, self._count)
                self._redact.add(name, value)
            told[value] = name
        while len(told) > KEPT:
            self._redact.remove(told.pop(next(iter(told))))


def _name(key: str, count: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", ".", key)
    if plain != key:
        plain = f"{plain[:32]}.{digest(key.encode())[:6]}"
    return f"lease.{plain[:44]}.{count}"
