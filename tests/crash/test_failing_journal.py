"""The story with a journal that fails at each of its writes: no act without a record, and the same end afterwards."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.crash import story

from holdfast.contracts import Draft
from holdfast.errors import HoldfastError, JournalError
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FaultyJournal
from holdfast.testing.faults import full

WRITES = 20
"""As many writes as the story makes; `test_the_story_makes_so_many_writes` says when this is wrong."""


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
    with suppress(
        HoldfastError
    ):  # what could not be written is also told when the runtime is closed
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
    return failures


async def healthy(folder: Path) -> None:
    """Another process, another disk: the same end as ever."""
    journal = open_journal(folder, 1)
    await story.live(folder, journal)
    await journal.close()


async def test_the_story_makes_so_many_writes(tmp_path: Path):
    journal = FaultyJournal(open_journal(tmp_path, 0), fail_at=0)
    assert await in_trouble(tmp_path, journal, tries=1) == 0
    await journal.close()
    # With every write counted, the last ones are those of the check and of closing.
    assert WRITES <= journal.appends <= WRITES + 4


@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_one_write_fails_and_the_process_goes_on(tmp_path: Path, number: int):
    """The first try fails, the second is made in the same process, with the same runtime."""
    for after in (False, True):
        folder = tmp_path / str(after)
        folder.mkdir()
        inner = open_journal(folder, 0)
        journal = FaultyJournal(inner, fail_at=number, after=after, failure=full())
        assert await in_trouble(folder, journal, tries=3) <= 1
        await inner.close()
        await healthy(folder)


@pytest.mark.parametrize("number", range(1, WRITES + 1, 2))
async def test_every_write_fails_from_one_on(tmp_path: Path, number: int):
    inner = open_journal(tmp_path, 0)
    failure = JournalError("JOURNAL_IO", "The disk does not answer.")
    journal = FaultyJournal(inner, fail_at=number, failure=failure, dead=True)
    await in_trouble(tmp_path, journal, tries=2)
    await inner.close()
    await healthy(tmp_path)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_what_is_handed_in_without_waiting_is_not_written(
    tmp_path: Path, number: int, late: bool
):
    inner = open_journal(tmp_path, 0)
    journal = PostsFail(inner, fail_at=number, late=late)
    await in_trouble(tmp_path, journal, tries=3)
    await inner.close()
    await healthy(tmp_path)
