"""Many records of one machine, by id: the live ones, and the last few that are over.

Nothing is decided here: a step looks the record up, lets the machine decide, and files the result. A finished record is
kept for a while so that its id stays known; then the oldest is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from holdfast.machines.kernel import Machine, S

FINISHED_KEPT = 1_024
"""How many finished ids are remembered."""


class Book(NamedTuple, Generic[S]):
    """The records."""

    live: Mapping[str, S] = MappingProxyType({})
    finished: Mapping[str, S] = MappingProxyType({})
    """Oldest first."""

    def get(self, id_: str, machine: Machine[S]) -> S:
        """The record of an id, new if it was never seen or is forgotten."""
        return self.live.get(id_) or self.finished.get(id_) or machine.initial


class Written(NamedTuple, Generic[S]):
    """What an accepted input gave."""

    book: Book[S]
    effects: tuple[Any, ...]


def write(
    machine: Machine[S], book: Book[S], id_: str, input_: object, *, keep: int = FINISHED_KEPT
) -> Written[S]:
    """One input for one record; raises what the machine raises."""
    state, effects = machine.apply(book.get(id_, machine), input_)
    live = {key: record for key, record in book.live.items() if key != id_}
    if state.phase not in machine.ends:
        return Written(Book({**live, id_: state}, book.finished), effects)
    finished = {**book.finished, id_: state}
    dropped = max(len(finished) - keep, 0)
    return Written(Book(live, dict(islice(finished.items(), dropped, None))), effects)
