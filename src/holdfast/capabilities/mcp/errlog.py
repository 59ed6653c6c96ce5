"""What a server's program complains about: handed on line by line, and its end kept for whoever asks why it failed."""

from __future__ import annotations

from collections import deque

from holdfast.capabilities.mcp.services import LogLine, Services
from holdfast.capabilities.words import one_line

MAX_LINE = 500
"""Characters of a line that are kept."""

KEPT = 20
"""The last lines are kept."""

_LONGEST = 8 * MAX_LINE


class ErrorLog:
    """The error output of one process."""

    def __init__(self, surface: str, services: Services) -> None:
        self._surface = surface
        self._services = services
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._rest = b""
        self.exit_code: int | None = None
        """How the process ended, if it did so by itself."""

    def feed(self, chunk: bytes) -> None:
        """Take in what was written."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        # What has no lines is cut, not gathered.
        self._rest = rest[-_LONGEST:]
        for line in lines:
            self._add(line)

    def note(self, text: str) -> None:
        """Say something ourselves."""
        self._say("note", text)

    def say(self, level: str, text: str) -> None:
        """Hand on what the server says through the protocol."""
        self._say(level, text)

    def tail(self) -> str:
        """The last lines, without secrets."""
        rest = [self._shown(self._rest)] if self._rest.strip() else []
        return " | ".join([*self._lines, *rest])[-4 * MAX_LINE :]

    def _add(self, line: bytes) -> None:
        if text := self._shown(line):
            self._lines.append(text)
            self._hand_on("stderr", text)

    def _shown(self, line: bytes) -> str:
        # Secrets go first: half of one would not be found.
        text = self._services.redact(line[:_LONGEST].decode(errors="replace"))
        return one_line(text, MAX_LINE)

    def _say(self, level: str, text: str) -> None:
        self._hand_on(level, one_line(self._services.redact(text[:_LONGEST]), MAX_LINE))

    def _hand_on(self, level: str, text: str) -> None:
        if self._services.log is not None:
            self._services.log(LogLine(self._surface, level, text))
