"""A crowd of sessions looks for what is wanted: one asks the journal, and all who waited go on together."""

import anyio
import pytest

from holdfast.contracts import Setup
from holdfast.errors import JournalError
from holdfast.journal.log import Head
from holdfast.journal.memory import MemoryJournal
from holdfast.runtime import surfaces as module
from holdfast.runtime.surfaces import Surfaces

CROWD = 50


class Slow(MemoryJournal):
    """Answers when it is let; the first answers may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.failures = 0
        self.let = anyio.Event()

    async def head(self, stream: str) -> Head:
        self.looks += 1
        await self.let.wait()
        if self.failures:
            self.failures -= 1
            raise JournalError("JOURNAL_DAMAGED", "By order.")
        return await super().head(stream)


async def crowd(journal: Slow) -> list[str]:
    """How it went for each of many boundaries that are reached at once; at most a few rounds of the loop later."""
    went: list[str] = []
    async with Surfaces.open(journal, lambda *_: pytest.fail("nothing is wanted")) as found:

        async def one() -> None:
            try:
                await found.boundary(Setup())
                went.append("on")
            except JournalError:
                went.append("failed")

        async with anyio.create_task_group() as group:
            for _ in range(CROWD):
                group.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            assert not went
            journal.let.set()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    return went


async def test_all_who_wait_go_on_together() -> None:
    journal = Slow()
    assert await crowd(journal) == ["on"] * CROWD
    assert journal.looks == 1


async def test_when_the_one_who_looks_fails_another_looks() -> None:
    journal = Slow()
    journal.failures = 2
    assert sorted(await crowd(journal)) == ["failed"] * 2 + ["on"] * (CROWD - 2)
    assert journal.looks == 3


@pytest.mark.parametrize("up", [1.0, 1e6], ids=["a machine that has just started", "an old one"])
async def test_nobody_looks_again_at_once(monkeypatch: pytest.MonkeyPatch, up: float) -> None:
    monkeypatch.setattr(module, "monotonic", lambda: up)
    journal = Slow()
    journal.let.set()
    async with Surfaces.open(journal, lambda *_: pytest.fail("nothing is wanted")) as found:
        monkeypatch.setattr(module, "LOOK_EVERY", 3600)
        for _ in range(3):
            await found.boundary(Setup())
        assert journal.looks == 1
        monkeypatch.setattr(module, "LOOK_EVERY", 0)
        await found.boundary(Setup())
        assert journal.looks == 2
