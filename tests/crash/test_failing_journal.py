"""The story with a journal that fails at each of its writes: no act without a record, and the same end afterwards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.crash import story

from holdfast.contracts import Draft
from holdfast.errors import HoldfastError, JournalError
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FaultyJournal
from holdfast.testing.faults import full

SURE, WRITES = 20, 22
"""How many writes the story makes at least and at most: what is handed in together depends on the time it takes."""


class PostsFail(FaultyJournal):
    """What is handed in without waiting is not written; whoever handed it in hears of it at once, or too late."""

    def __init__(self, journal: SqliteJournal, *, fail_at: int, late: bool) -> None:
        super().__init__(journal, fail_at=0)
        self.posts = 0
        self._at, self._late = fail_at, late
        self._tell: Callable[[], None] | None = None

    def post(
        self,
        stream: str,
        make: Callable[[], Sequence[Draft]],
        *,
        failed: Callable[[BaseException], None],
        **rest: Any,
    ) -> None:
        self.posts += 1
        if self.posts != self._at:
            self.inner.post(stream, make, failed=failed, **rest)
        elif self._late:
            self._tell = lambda: failed(full())
        else:
            failed(full())

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.inner.append(*args, **kwargs)
        finally:
            if self._tell is not None:
                self._tell()
                self._tell = None


def open_journal(folder: Path, generation: int) -> SqliteJournal:
    return SqliteJournal.open(folder / "journal.db", clock=story.clock_of(generation))


async def in_trouble(folder: Path, journal: FaultyJournal, *, tries: int) -> int:
    """Go on with the story, in one process, until it ends or was tried so often; how often it failed."""
    failures = 0
    try:
        async with story.opened(journal, folder) as hf:
            for _ in range(tries):
                try:
                    result = await story.Guide(hf, folder).go_on()
                    await story.check_end(hf, folder, result)
                    break
                except HoldfastError as why:
                    story.demand(why.code in ("JOURNAL_FULL", "JOURNAL_IO", "STALE_POSITION"), why)
                    failures += 1
                await story.check_intents(journal.inner, folder)
    except* JournalError:
        pass  # what could not be written is also told when the runtime is closed
    return failures


async def healthy(folder: Path) -> None:
    """Another process, another disk: the same end as ever."""
    journal = open_journal(folder, 1)
    await story.live(folder, journal)
    await journal.close()


async def test_no_write_is_left_out(tmp_path: Path) -> None:
    inner = open_journal(tmp_path, 0)
    journal = FaultyJournal(inner, fail_at=0)
    async with story.opened(journal, tmp_path) as hf:
        await story.Guide(hf, tmp_path).go_on()
        assert SURE <= journal.appends <= WRITES
    await inner.close()


@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_one_write_fails_and_the_process_goes_on(tmp_path: Path, number: int) -> None:
    """The first try fails, the next is made in the same process, with the same runtime."""
    inner = open_journal(tmp_path, 0)
    journal = FaultyJournal(inner, fail_at=number, after=False, failure=full())
    failures = await in_trouble(tmp_path, journal, tries=3)
    assert failures == 1 or number > SURE
    await inner.close()
    await healthy(tmp_path)


@pytest.mark.parametrize("number", range(1, WRITES + 1, 2))
async def test_one_write_lands_and_nobody_hears_of_it(tmp_path: Path, number: int) -> None:
    inner = open_journal(tmp_path, 0)
    journal = FaultyJournal(inner, fail_at=number, after=True, failure=full())
    failures = await in_trouble(tmp_path, journal, tries=3)
    assert failures == 1 or number > SURE
    await inner.close()
    await healthy(tmp_path)


@pytest.mark.parametrize("number", range(2, SURE + 1, 3))
async def test_every_write_fails_from_one_on(tmp_path: Path, number: int) -> None:
    inner = open_journal(tmp_path, 0)
    failure = JournalError("JOURNAL_IO", "The disk does not answer.")
    journal = FaultyJournal(inner, fail_at=number, failure=failure, dead=True)
    assert await in_trouble(tmp_path, journal, tries=2) == 2
    await inner.close()
    await healthy(tmp_path)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_what_is_handed_in_without_waiting_is_not_written(
    tmp_path: Path, number: int, late: bool
) -> None:
    inner = open_journal(tmp_path, 0)
    journal = PostsFail(inner, fail_at=number, late=late)
    assert await in_trouble(tmp_path, journal, tries=3) or number > 2
    await inner.close()
    await healthy(tmp_path)
