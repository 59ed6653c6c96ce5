"""The journal and the sessions on it, to look at without changing or creating anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.journal import Journal
from holdfast.runtime import Settings, wiring
from holdfast.shell.sessions import Sessions


@asynccontextmanager
async def journal_to_read() -> AsyncGenerator[Journal]:
    """The journal in force; raises `NOT_FOUND` when there is none yet."""
    journal = wiring.open_journal(Settings.load(), read_only=True)
    try:
        yield journal
    finally:
        await journal.close()


def sessions_of(journal: Journal) -> Sessions:
    """The sessions on a journal, to look at."""
    return Sessions(journal)
