from collections.abc import Callable
from pathlib import Path

from holdfast.journal import Journal, MemoryJournal
from holdfast.testing import JournalConformance


class TestMemoryJournal(JournalConformance):
    async def open(self, place: Path, clock: Callable[[], int]) -> Journal:
        return MemoryJournal(clock=clock)
