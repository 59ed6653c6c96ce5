"""What is true now, folded from what happened: sessions, runs, effects, approvals, usage.

A fold is a pure step: it looks at rows, puts new ones, and never changes one in place. The store runs the
folds in the transaction that appends the record, so a projection is never behind; `Journal.rebuild` runs them
over every record again and must give the same bytes. A fold that meets a record which may not follow those
before it raises `ILLEGAL_RECORD`, and the append is refused: what can't have happened can't be recorded.

Records of a newer format, and kinds without a fold, change nothing here.
"""

from __future__ import annotations

from holdfast.contracts import Retention
from holdfast.contracts.record import RECORD_VERSION
from holdfast.errors import CallerError, JournalError
from holdfast.journal._fold_agents import AGENTS
from holdfast.journal._fold_approvals import APPROVALS
from holdfast.journal._fold_effects import EFFECTS
from holdfast.journal._fold_sessions import SESSIONS
from holdfast.journal._fold_surfaces import SURFACES
from holdfast.journal._fold_tokens import TOKENS
from holdfast.journal._rows import Fact, Fold, Rows, Value, fact_of, illegal
from holdfast.journal.chain import Stored, damaged, decode

__all__ = ["FOLDS", "Fact", "Fold", "Rebuilt", "Rows", "Value", "fact_of", "illegal", "outlived"]

FOLDS: dict[str, Fold] = {**SESSIONS, **EFFECTS, **APPROVALS, **AGENTS, **SURFACES, **TOKENS}
"""Kind → fold. A kind that is not here changes no projection."""


class Rebuilt:
    """Projections folded again from stored records, in seq order."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], tuple[str | None, Value]] = {}

    def add(self, stored: Stored) -> None:
        """Fold one record. Refuses a newer format: its meaning would be lost from the projections."""
        record = decode(stored)
        if record.v > RECORD_VERSION:
            raise JournalError(
                "JOURNAL_TOO_NEW",
                f"Record {record.seq} has format {record.v}; rebuilding would forget what it says.",
                hint="Rebuild with the newest holdfast that writes to this journal.",
            )
        fold = FOLDS.get(record.kind)
        if fold is None:
            return
        try:
            fold(self, fact_of(record))
        except (CallerError, KeyError, TypeError, AttributeError):
            # It was checked when it was appended: either it or one before it is not what it was.
            raise damaged(stored, "it may not follow those before it") from None

    def get(self, projection: str, key: str) -> Value | None:
        """The row so far."""
        cell = self.cells.get((projection, key))
        return None if cell is None else cell[1]

    def put(self, projection: str, key: str, value: Value, tag: str | None) -> None:
        """Replace the row."""
        self.cells[projection, key] = (tag, value)


SCOPED = (Retention.EPHEMERAL, Retention.RUN_SCOPED, Retention.SESSION_SCOPED)
"""Classes that no body outlives its session with."""


def outlived(retention: str, *, run: Value | None, session_gone: bool) -> bool:
    """Whether a body held only for this reason may be erased now."""
    match Retention(retention):
        case Retention.EPHEMERAL:
            return True
        case Retention.RUN_SCOPED:
            return session_gone or (run is not None and run["ended_at"] is not None)
        case Retention.SESSION_SCOPED:
            return session_gone
        case _:
            return False
