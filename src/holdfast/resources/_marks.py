"""Where lines and rows begin, remembered: whoever reads on page by page need not count from the beginning again."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.resources.parsers.lines import Skipped

MAX_SOURCES = 256
"""Sources that are remembered at a time."""
MAX_PLACES = 64
"""Places that are remembered of one."""

Key = tuple[str, str, str]
"""The URI, its version, and what is counted."""


class Marks:
    """A bounded memory. Nothing depends on it but time."""

    def __init__(self) -> None:
        self._found: OrderedDict[Key, OrderedDict[int, int]] = OrderedDict()

    def add(self, key: Key | None, number: int, byte: int) -> None:
        """Remember that line or row `number` begins at `byte`."""
        if key is None:
            return
        places = self._found.setdefault(key, OrderedDict())
        self._found.move_to_end(key)
        places[number] = byte
        places.move_to_end(number)
        if len(places) > MAX_PLACES:
            places.popitem(last=False)
        if len(self._found) > MAX_SOURCES:
            self._found.popitem(last=False)

    def before(self, key: Key | None, number: int) -> Skipped | None:
        """The nearest place that is known, at or before line or row `number`."""
        places = self._found.get(key) if key is not None else None
        known = [one for one in places or () if one <= number]
        if not places or not known:
            return None
        nearest = max(known)
        return Skipped(nearest, places[nearest])

    def line_at(self, key: Key | None, byte: int) -> int | None:
        """The line that begins at `byte`, if that is known."""
        places = (self._found.get(key) if key is not None else None) or {}
        return next((number for number, at in places.items() if at == byte), None)
