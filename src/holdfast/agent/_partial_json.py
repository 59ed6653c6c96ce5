"""A typed answer while it is being given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.agent._json_reader import Reader
from holdfast.contracts import Json

if TYPE_CHECKING:
    from holdfast.agent.output import Output

_FENCE = re.compile(r"\s*```(?:json)?", re.IGNORECASE)
_OBJECT = re.compile(r"{")
_OPENER = re.compile(r"[{\[]")
_MAX_STARTS = 256
"""Brackets of the prose before the answer; after more of them nothing is shown."""
_MAX_SCALAR = 4096
"""A number or a literal is not longer than this, with its fence and the space around it."""


class Partial:
    """The newest value of an answer that comes in pieces. It never raises, and it decides nothing: `read` does.

    Prose and fences before the value are left out, slips are mended as `read` mends them, and numbers, literals and
    keys count once they are complete. Reading costs time in proportion to the text, however it is cut into pieces.
    """

    def __init__(self, output: Output | None = None) -> None:
        self._output = output
        self._opener = _OBJECT if output is not None and output.is_object else _OPENER
        self._reader: Reader | None = None
        self._before = ""
        self._seen = 0
        self._prose = False
        self._starts = 0

    @property
    def found(self) -> bool:
        """Whether there is a value at all."""
        return self._reader is not None and self._reader.found

    @property
    def value(self) -> Json:
        """The value so far; later text does not change what was given out. `None` when there is none yet."""
        found = self._reader.value() if self._reader is not None and self._reader.found else None
        if self._output is None:
            return found
        return self._output.unwrap(found, complete=self.complete)

    @property
    def complete(self) -> bool:
        """Whether the value is whole."""
        return self._reader is not None and self._reader.done

    @property
    def waiting(self) -> str:
        """What came and can't be read before more comes: part of one token at most."""
        if self._reader is None:
            return self._before
        return "" if self._reader.done or self._reader.stuck else self._reader.rest

    def feed(self, text: str) -> bool:
        """Take more of the answer; whether `value` is a new one."""
        self._take(text)
        return self._changed()

    def finish(self) -> bool:
        """There is no more; whether `value` is a new one. Only now a number that is the whole answer counts."""
        if self._reader is None:
            self._reader = Reader()
            self._reader.feed(_FENCE.sub("", self._before, count=1).strip().removesuffix("```"))
        self._reader.finish()
        return self._changed()

    def _changed(self) -> bool:
        if not self.found or self._reader is None or self._reader.version == self._seen:
            return False
        self._seen = self._reader.version
        return True

    def _take(self, text: str) -> None:
        while True:
            if self._reader is None:
                text = self._seek(text)
            if self._reader is None:
                return
            self._reader.feed(text)
            if self._reader.stuck is None or self._reader.found or self._starts > _MAX_STARTS:
                return
            # It was a bracket of the prose, and nothing was shown of it.
            text, self._prose, self._reader = self._reader.rest, True, None

    def _seek(self, text: str) -> str:
        """What begins with the first bracket, or with the quote of an answer that is one string."""
        before, self._before = self._before + text, ""
        start = _FENCE.match(before)
        rest = before[start.end() if start else 0 :]
        opener = self._opener.search(rest)
        if not self._prose and rest.lstrip().startswith('"'):
            found = rest.lstrip()
        elif opener:
            found = rest[opener.start() :]
        else:
            # Longer text is prose, of which no character is needed any more.
            self._prose = self._prose or len(before) > _MAX_SCALAR
            self._before = "" if self._prose else before
            return ""
        self._starts += 1
        self._reader, self._seen = Reader(), 0
        return found
