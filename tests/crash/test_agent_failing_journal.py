"""An agent with a journal that fails at each of its writes: nothing is done without a record, and it ends the same."""

from pathlib import Path

import pytest
from tests.crash import agent_story, story

from holdfast.errors import HoldfastError, JournalError
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FaultyJournal
from holdfast.testing.faults import full

SURE = {"agent-code": 47, "agent-tools": 26}
"""How many writes the story makes at least."""

REFUSALS = ("JOURNAL_FULL", "JOURNAL_IO", "STALE_POSITION", "STALE_EPOCH")


def open_journal(folder: Path, generation: int) -> SqliteJournal:
    return SqliteJournal.open(folder / "journal.db", clock=story.clock_of(generation))


async def in_trouble(folder: Path, journal: FaultyJournal, name: str, *, tries: int) -> int:
    """Go on with the story, in one process, until it ends or was tried so often; how often it failed."""
    failures = 0
    tale = agent_story.TALES[name]
    try:
        async with agent_story.opened(journal, folder) as hf:
            for _ in range(tries):
                try:
                    run = await agent_story.AgentGuide(hf, folder, tale).go_on()
                    await agent_story.check_end(hf, folder, run, tale)
                    break
                except HoldfastError as why:
                    story.demand(why.code in REFUSALS, why)
                    failures += 1
                await agent_story.check_cut(journal.inner, folder)
    except* JournalError:
        pass  # what could not be written is also told when the runtime is closed
    return failures


async def healthy(folder: Path, name: str) -> None:
    """Another process, another disk: the same end as ever."""
    journal = open_journal(folder, 1)
    await agent_story.TALES[name].live(folder, journal, check=True)
    await journal.close()


@pytest.mark.parametrize("name", SURE)
async def test_no_write_is_left_out(tmp_path: Path, name: str) -> None:
    inner = open_journal(tmp_path, 0)
    journal = FaultyJournal(inner, fail_at=0)
    async with agent_story.opened(journal, tmp_path) as hf:
        await agent_story.AgentGuide(hf, tmp_path, agent_story.TALES[name]).go_on()
        assert SURE[name] <= journal.appends <= SURE[name] + 4
    await inner.close()


def writes(every: int) -> list[tuple[str, int]]:
    return [(name, n) for name in SURE for n in range(1, SURE[name] + 1, every)]


@pytest.mark.parametrize("after", [False, True], ids=["lost", "landed"])
@pytest.mark.parametrize(("name", "number"), writes(3))
async def test_one_write_fails_and_the_process_goes_on(
    tmp_path: Path, name: str, number: int, after: bool
) -> None:
    """The first try fails, whether the write landed or not; the next is made with the same runtime."""
    inner = open_journal(tmp_path, 0)
    journal = FaultyJournal(inner, fail_at=number + after, after=after, failure=full())
    failures = await in_trouble(tmp_path, journal, name, tries=3)
    assert failures == 1 or number + after > SURE[name]
    await inner.close()
    await healthy(tmp_path, name)


@pytest.mark.parametrize(("name", "number"), writes(8))
async def test_every_write_fails_from_one_on(tmp_path: Path, name: str, number: int) -> None:
    inner = open_journal(tmp_path, 0)
    failure = JournalError("JOURNAL_IO", "The disk does not answer.")
    journal = FaultyJournal(inner, fail_at=number, failure=failure, dead=True)
    assert await in_trouble(tmp_path, journal, name, tries=2) == 2
    await inner.close()
    await healthy(tmp_path, name)
