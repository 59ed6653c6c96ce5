"""What the code of a session defined, so that its functions can be made again in a fresh box.

Reading code takes time that a run does not have: what ran is only kept, and read when somebody asks.
"""

from __future__ import annotations

from holdfast.shell.box import Boxes, Ran

_MAX_UNREAD = 1 << 20
"""Characters of code that are kept unread."""


class Definitions:
    """The definitions of one session."""

    def __init__(self, boxes: Boxes, sources: dict[str, str] | None) -> None:
        """Begin with what `told` gave; with `None`, nothing will ever be known."""
        self._boxes = boxes
        self._sources = sources
        self._unread: list[tuple[str, str | None]] = []
        self._chars = 0

    def ran(self, code: str, ran: Ran) -> None:
        """Code was run, and what it did stays."""
        self._unread.append((code, ran.error.code if ran.error is not None else None))
        self._chars += len(code)
        if self._chars > _MAX_UNREAD:
            self.told()

    def told(self) -> dict[str, str] | None:
        """What `Boxes.compact` wants to know; `None` when nobody can tell."""
        unread, self._unread, self._chars = self._unread, [], 0
        for code, error in unread:
            if self._sources is not None:
                self._sources = self._boxes.defines(self._sources, code, error)
        return self._sources
