"""Whatever was the last record to reach the disk: recovery ends, the same as ever, and sends nothing twice."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.crash import story
from tests.crash.copies import again

from holdfast.contracts import Draft
from holdfast.errors import HoldfastError
from holdfast.journal import MemoryJournal

KEY = "journal.db.key"


class Noting(MemoryJournal):
    """Remembers where an append ended: no journal ends anywhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = {0}

    def _stage(self, work: Callable[[Any], Any]) -> Any:
        found = super()._stage(work)
        self.ends.add(len(self._records))
        return found


async def record(folder: Path) -> tuple[list[tuple[str, Draft]], set[int]]:
    """Everything an undisturbed story writes, ready to be written again, and where each append ended."""
    journal = Noting()
    async with story.opened(journal, folder) as hf:
        await story.Guide(hf, folder).go_on()
    return [
        (one.stream, await again(journal, one)) async for one in journal.read_all()
    ], journal.ends


def world_after(prefix: list[tuple[str, Draft]], before: Path, folder: Path, *, done: bool) -> None:
    """The world when no more than `prefix` is on record: an intent without a result may be `done`, or not."""
    shutil.copy(before / "world.db", folder)
    intents = {str(one.effect_id) for _, one in prefix if one.kind == "effect_intent"}
    results = {str(one.effect_id) for _, one in prefix if one.kind == "effect_result"}
    happened = intents if done else results
    with apsw.Connection(str(folder / "world.db")) as db:
        for table, column in (("acts", "effect"), ("kept", "key"), ("mails", "effect")):
            marks = ",".join("?" * len(happened))
            db.execute(f"delete from {table} where {column} not in ({marks})", tuple(happened))


async def recover(prefix: list[tuple[str, Draft]], folder: Path) -> None:
    """Open a journal that ends there, and go on to the end."""
    journal = MemoryJournal()
    for stream, draft in prefix:
        await journal.append(stream, [draft])
    await story.check_intents(journal, folder)
    async with story.opened(journal, folder) as hf:
        result = await story.Guide(hf, folder).go_on()
        await story.check_end(hf, folder, result)
    await story.check_journal(journal)


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "done"])
async def test_every_prefix_of_a_journal_is_recovered_from(tmp_path: Path, done: bool):
    """All of them, with what is intended and not on record done or not, with parked states and without."""
    before = tmp_path / "before"
    before.mkdir()
    drafts, ends = await record(before)
    assert len(drafts) > 25
    for number in range(len(drafts) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        if (
            number % 2 == done
        ):  # with another key, a saved state can't be trusted: the code is run again
            os.link(before / KEY, folder / KEY)
        world_after(drafts[:number], before, folder, done=done)
        try:
            await recover(drafts[:number], folder)
        except HoldfastError as why:
            # Half an append is a damaged journal: it may be refused, but nothing is done twice.
            why.add_note(f"after {number} records: {[one.kind for _, one in drafts[:number]][-4:]}")
            story.demand(number not in ends, why)
            story.check_once(folder)
