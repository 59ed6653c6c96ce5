"""What the journal has, to look at: nothing is run, and nothing is made where there is nothing yet."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.errors import NotFound
from holdfast.gate.approvals import Approvals
from holdfast.journal import Journal
from holdfast.runtime import Settings, wiring
from holdfast.shell.runs import Runs
from holdfast.shell.sessions import Sessions


@asynccontextmanager
async def journal_to_read() -> AsyncGenerator[Journal]:
    """The journal in force; raises `NOT_FOUND` when there is none yet."""
    journal = wiring.open_journal(Settings.load(), read_only=True)
    try:
        yield journal
    finally:
        await journal.close()


@asynccontextmanager
async def journal_to_write() -> AsyncGenerator[Journal]:
    """The journal in force, to answer what waits in it; raises `NOT_FOUND` when there is none yet."""
    settings = Settings.load()
    path = wiring.journal_path(settings)
    if path is not None and not path.exists():
        raise NotFound("NOT_FOUND", f"There is no journal at `{path}` yet.")
    journal = wiring.open_journal(settings)
    try:
        yield journal
    finally:
        await journal.close()


def approvals_of(journal: Journal) -> Approvals:
    """What waits for a person on a journal."""
    return Approvals(journal)


def sessions_of(journal: Journal) -> Sessions:
    """The sessions on a journal, to look at."""
    return Sessions(journal)


def runs_of(journal: Journal) -> Runs:
    """The runs on a journal, to look at."""
    return Runs(journal)
