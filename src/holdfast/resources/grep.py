"""Looking for a pattern in a source of any length: block by block, by an engine that is never slow.

The engine is Rust's `regex` (see `gate/_expression_patterns.py`): a search takes time in proportion to the text,
whatever pattern a model writes. A block without a match anywhere is dismissed in one search; only where there is
one are lines looked at one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.contracts.resource import GrepMatch, GrepRequest
from holdfast.errors import ModelError
from holdfast.gate._expression_patterns import Matcher, searcher
from holdfast.resources._window import OutOfBudget, Window
from holdfast.resources.parsers.detect import Kind
from holdfast.resources.parsers.lines import find
from holdfast.resources.parsers.text import decode

BLOCK = 256 * 1024
"""Bytes searched at a time; a longer line is searched in pieces of this size."""
MAX_GREP_BYTES = 512 << 20
"""Bytes that one search goes through."""
MAX_SHOWN = 400
"""Characters of a matching line that are shown."""
MAX_TEXT_BYTES = 128 * 1024
"""Bytes of all lines that are shown."""

_OWN_ENDS = re.compile(r"\\[Az]|\(\?[a-zA-Z-]+[:)]")
_OVERLAP = 4096
"""Bytes that pieces of a long line have in common, so that what lies across their border is found."""


class Pattern:
    """A pattern, ready to search with."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        """Compile it; raises `INVALID_ARGUMENT` with the reason for one that is none."""
        flags = "i" if ignore_case else ""
        try:
            searcher(pattern)  # alone first: what is put around it must not balance it
            self.line: Matcher = searcher(f"(?{flags}:{pattern})" if flags else pattern)
            self._block: Matcher = searcher(f"(?m{flags}:{pattern})")
        except ValueError as why:
            raise ModelError(
                "INVALID_ARGUMENT",
                f"The pattern can't be used: {str(why)[:200]}.",
                hint="It is a regular expression without look-around and back-references.",
            ) from None
        # These mean the ends of the text, or may switch off that `^` and `$` are those of lines.
        self._by_line = _OWN_ENDS.search(pattern) is not None

    def may_match(self, text: str) -> bool:
        """Whether a line of this text may match; `False` is certain."""
        return self._by_line or "\r" in text or self._block(text)


@dataclass(slots=True)
class Found:
    """What a search found, and how far it got."""

    matches: list[GrepMatch] = field(default_factory=list[GrepMatch])
    scanned: int = 0
    next: int | None = None
    next_line: int | None = None
    notes: tuple[str, ...] = ()


def grep(window: Window, kind: Kind, request: GrepRequest, line: int | None) -> Found:
    """The lines that match, from byte `request.start` on, which is the beginning of line `line`."""
    pattern = Pattern(request.pattern, ignore_case=request.ignore_case)
    start = max(request.start - request.start % kind.width, kind.bom)
    search = _Search(window, kind, pattern, request.max_matches, start, line)
    try:
        search.run()
    except OutOfBudget:
        search.stop(search.at)
    found = search.found
    found.scanned = (search.end if found.next is None else found.next) - start
    return found


class _Search:
    """One search on its way."""

    def __init__(
        self,
        window: Window,
        kind: Kind,
        pattern: Pattern,
        most: int,
        start: int,
        line: int | None,
    ) -> None:
        self.window = window
        self.kind = kind
        self.pattern = pattern
        self.most = most
        self.line = line
        """The number of the line at `at`."""
        self.at = start
        """The byte where what is not searched yet begins."""
        self.end = start
        """The byte where what was read ends."""
        self.found = Found()
        self._line_at = start
        self._told = False  # whether the line that goes on was found already
        self._size = 0

    def run(self) -> None:
        """Search until the end, or until there is enough."""
        buffer = b""
        while True:
            data = self.window.read(self.end, BLOCK)
            self.end += len(data)
            buffer += data
            cut = self._last_end(buffer) if data else len(buffer)
            if cut:
                if not self._block(buffer[:cut]):
                    return
                buffer = buffer[cut:]
            if not data:
                return
            if len(buffer) >= BLOCK:
                if not self._piece(buffer):
                    return
                buffer = buffer[-_OVERLAP:]

    def stop(self, at: int) -> None:
        """Remember where to go on."""
        self.found.next, self.found.next_line = at, self.line

    def _last_end(self, buffer: bytes) -> int:
        """The byte after the last line end; 0 without one."""
        found = buffer.rfind(self.kind.line_end)
        while found > 0 and found % self.kind.width:
            found = buffer.rfind(self.kind.line_end, 0, found + self.kind.width - 1)
        return found + self.kind.width if found >= 0 else 0

    def _block(self, data: bytes) -> bool:
        """Whole lines; `False`: there is enough."""
        if not self.pattern.may_match(decode(data, self.kind, final=True)[0]):
            self._pass(data)
            return True
        for begin, stop in self._lines(data):
            if not self._try(data[begin:stop]):
                return False
            self.at += stop - begin
            self._line_at, self._told = self.at, False
            self.line = None if self.line is None else self.line + 1
        return True

    def _pass(self, data: bytes) -> None:
        """Go past lines that do not match."""
        self.at += len(data)
        if self.line is not None:
            if self.kind.width == 1:
                self.line += data.count(b"\n")
            else:
                self.line += sum(1 for _ in self._lines(data))
        self._line_at, self._told = self.at, False

    def _lines(self, data: bytes) -> Iterator[tuple[int, int]]:
        begin = 0
        while begin < len(data):
            found = find(data, self.kind, begin)
            stop = len(data) if found < 0 else found + self.kind.width
            yield begin, stop
            begin = stop

    def _piece(self, data: bytes) -> bool:
        """A piece of a line that is too long to be searched at once."""
        note = f"Lines of more than {BLOCK} bytes are searched in pieces."
        if note not in self.found.notes:
            self.found.notes += (note,)
        if not self._try(data):
            return False
        self.at += len(data) - _OVERLAP
        return True

    def _try(self, data: bytes) -> bool:
        """Look at one line, or a piece of one; `False`: it matches, and there is enough already."""
        text = decode(data, self.kind, final=True)[0].removesuffix("\n").removesuffix("\r")
        if self._told or not self.pattern.line(text):
            return True
        shown, cut = self._shown(text)
        size = len(shown.encode())
        if len(self.found.matches) >= self.most or self._size + size > MAX_TEXT_BYTES:
            self.stop(self._line_at)
            return False
        self._size += size
        self._told = True
        whole = not cut and self._line_at == self.at
        match = GrepMatch(line=self.line, at=self._line_at, text=shown, cut=not whole)
        self.found.matches.append(match)
        return True

    def _shown(self, text: str) -> tuple[str, bool]:
        """The part of a line around the match, and whether it is only a part."""
        if len(text) <= MAX_SHOWN:
            return text, False
        # The engine says whether, not where; the shortest beginning that matches ends where the match does.
        low, high = 0, len(text)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.pattern.line(text[:middle]) else (middle + 1, high)
        start = max(0, min(low - MAX_SHOWN * 3 // 4, len(text) - MAX_SHOWN))
        return text[start : start + MAX_SHOWN], True
