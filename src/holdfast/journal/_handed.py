"""Records that were handed in: made as soon as there is time, at the latest when they are written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast.contracts import Draft
from holdfast.errors import HoldfastError
from holdfast.journal._stage import Append, Stage, make_batch
from holdfast.journal.log import Appended


class Handed:
    """A request of which the records are still to be made; to call it is to stage it.

    Whoever hands records in most often waits for somebody else next: an engine, a model. An event loop that has nothing
    to do then makes light ones, so that the writer's thread need not, which would take the interpreter from the loop just
    when the answer comes. What takes long to make is left to the thread.
    """

    __slots__ = ("_epoch", "_expected_pos", "_lock", "_made", "_make", "_refusal", "_stream")

    def __init__(
        self,
        stream: str,
        make: Callable[[], Sequence[Draft]],
        expected_pos: int | None,
        epoch: int | None,
    ) -> None:
        self._stream = stream
        self._make = make
        self._expected_pos = expected_pos
        self._epoch = epoch
        self._made: Append | None = None
        self._refusal: HoldfastError | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make the records, unless they are made."""
        with self._lock:
            if self._made is not None or self._refusal is not None:
                return
            try:
                entries = make_batch(self._make)
            except HoldfastError as why:
                self._refusal = why
            else:
                self._made = Append(self._stream, entries, self._expected_pos, self._epoch)

    def __call__(self, stage: Stage) -> Appended:
        self.prepare()
        if self._made is None:
            assert self._refusal is not None
            raise self._refusal
        return stage.append(self._made)
