"""What every part of the suite stands on: a fresh journal, a clock, and a look at everything in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.contracts import Record
from holdfast.errors import HoldfastError
from holdfast.journal import Head, Holding, Journal, Row, Stored
from holdfast.testing.clock import FakeClock

PROJECTIONS = ("sessions", "runs", "effects", "approvals", "usage")


class Conformance(ABC):
    """Opens the store under test. `place` is an empty folder of the test's own."""

    @abstractmethod
    async def open(self, place: Path, clock: Callable[[], int]) -> Journal:
        """The journal at `place`: a new one, or, in a store that persists, the one that was there."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def journal(self, tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Journal]:
        journal = await self.open(tmp_path, clock)
        yield journal
        await journal.close()


class Everything(NamedTuple):
    """All that can be seen of a journal from outside."""

    last_seq: int
    records: list[Stored]
    heads: list[Head]
    rows: dict[str, list[Row]]
    holdings: list[Holding]


async def everything(journal: Journal) -> Everything:
    """All that can be seen of `journal`, in an order that does not depend on the store."""
    return Everything(
        await journal.last_seq(),
        await journal.page(None, 0, 1_000_000),
        sorted(await journal.heads()),
        {name: await journal.rows(name, limit=1_000_000) for name in PROJECTIONS},
        sorted(await journal.holdings(), key=lambda held: (held.digest, held.seq, held.retention)),
    )


@contextmanager
def refused(code: str) -> Generator[None]:
    """Demand a refusal with exactly this code."""
    with pytest.raises(HoldfastError) as caught:
        yield
    assert caught.value.code == code, caught.value


async def leaves_no_trace(journal: Journal, code: str, asked: Awaitable[object]) -> None:
    """Demand that `asked` is refused with `code` and that nothing of it can be seen afterwards."""
    before = await everything(journal)
    with refused(code):
        await asked
    assert await everything(journal) == before


async def records_of(journal: Journal, stream: str | None = None, after: int = 0) -> list[Record]:
    """The records of a stream, or of all."""
    found = journal.read_all(after=after) if stream is None else journal.read(stream, after=after)
    return [record async for record in found]


async def rows_of(journal: Journal, projection: str, tag: str | None = None) -> list[str]:
    """The keys of a projection, in order."""
    return [row.key for row in await journal.rows(projection, tag=tag)]
