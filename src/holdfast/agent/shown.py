"""The pieces of an answer as they may be shown: a secret that comes in several of them is found as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.contracts.model import ModelDelta
from holdfast.gate.redact import Redactor, Stream


class Shown:
    """Tells `sink` the pieces of one answer, without secrets. Holds back only what may be the beginning of one."""

    def __init__(self, sink: Callable[[ModelDelta], None], redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor
        self._open: tuple[ModelDelta, Stream] | None = None

    def __call__(self, piece: ModelDelta) -> None:
        """One more piece; one of another part ends the part before."""
        part = self._open
        if part is not None and part[0].index != piece.index:
            self.close()
            part = None
        if part is None:
            part = self._open = (piece, self._redactor.stream())
        text = part[1].feed(piece.text)
        if text or piece.call_id is not None:
            self._sink(replace(piece, text=text))

    def close(self) -> None:
        """No more is coming: what was held back is told."""
        part, self._open = self._open, None
        if part is not None and (rest := part[1].close()):
            self._sink(replace(part[0], text=rest, call_id=None, name=None))
