"""Where in the agent's text the engine's offsets are."""

from __future__ import annotations

import re
from bisect import bisect_right

from pydantic_monty import SourceRange

from holdfast.contracts import Span
from holdfast.shell.languages._python_capture import Reading

_LINE = re.compile(rb"\r\n|\r|\n")


class Places:
    """Finds places in one piece of code; a loop asks for the same one again and again."""

    __slots__ = ("_file", "_found", "_reading", "_starts", "_text")

    def __init__(self, reading: Reading, number: int) -> None:
        self._reading = reading
        self._file = f"<python-input-{number}>"
        self._found: dict[tuple[int, int], Span] = {}
        self._text = b""
        self._starts: list[int] = []

    def own(self, place: SourceRange) -> bool:
        """Whether it is a place in this code, and not in that of an earlier run or in text that was evaluated."""
        return place.filename == self._file

    def find(self, place: SourceRange) -> Span | None:
        """The span in the code; `None` for a place in the code of an earlier run, or in text that was evaluated."""
        if place.filename != self._file:
            return None
        key = (place.start, place.end)
        span = self._found.get(key)
        if span is None:
            span = self._found[key] = self._span(*key)
        return span

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, as the engine counts them."""
        if not self._starts:
            self._text = self._reading.feed.encode()
            self._starts = [0, *(found.end() for found in _LINE.finditer(self._text))]
        line = bisect_right(self._starts, offset)
        before = self._text[self._starts[line - 1] : offset]
        return line, len(before.decode(errors="ignore")) + 1

    def _span(self, start: int, end: int) -> Span:
        """A span, as the agent counts it."""
        line, column = self.place(start)
        end_line, end_column = self.place(end)
        return Span(
            line=line,
            column=self._reading.column(line, column),
            end_line=end_line,
            end_column=self._reading.column(end_line, end_column),
        )
