"""The suite that any journal store must pass. Subclass it in a test module and say how to open the store:

```python
from holdfast.testing import PersistentJournalConformance


class TestMyJournal(PersistentJournalConformance):
    async def open(self, place, clock):
        return await MyJournal.open(f"my://{place}", clock=clock)
```

Async tests run under anyio's pytest plugin: set `anyio_mode = "auto"`.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.contracts import Body, digest
from holdfast.testing._conformance._base import Conformance, everything, leaves_no_trace
from holdfast.testing._conformance.appending import Appending
from holdfast.testing._conformance.contents import Contents, Retaining
from holdfast.testing._conformance.fencing import Fencing
from holdfast.testing._conformance.legality import Legality
from holdfast.testing._conformance.posting import Posting
from holdfast.testing._conformance.projecting import Closing, Projecting, Proving
from holdfast.testing._conformance.reading import Reading
from holdfast.testing._conformance.refusals import Refusals
from holdfast.testing._drafts import STORY, created, note
from holdfast.testing.clock import FakeClock


class JournalConformance(
    Appending,
    Posting,
    Fencing,
    Reading,
    Contents,
    Retaining,
    Refusals,
    Legality,
    Projecting,
    Proving,
    Closing,
):
    """Every promise of `holdfast.journal.Journal`. Define `open`."""


class Reopening(Conformance):
    """What a store that persists promises beyond that."""

    async def test_everything_is_there_after_reopening(self, tmp_path: Path, clock: FakeClock):
        journal = await self.open(tmp_path, clock)
        await journal.append("s", STORY)
        await journal.append("s", [note(bodies=[Body.of(b"x" * 9000)])], durable=False)
        await journal.claim("s", "me", ttl_ms=1000)
        before, report = await everything(journal), await journal.verify()
        await journal.close()
        journal = await self.open(tmp_path, clock)
        assert await everything(journal) == before
        assert await journal.verify() == report
        assert await journal.content(digest(b"x" * 9000)) == b"x" * 9000
        found = journal.found
        assert (found.created, found.records, found.streams) == (False, len(STORY) + 1, 1)
        assert (found.recovered, found.upgraded_from) == (False, None)
        await journal.close()

    async def test_fences_stand_after_reopening(self, tmp_path: Path, clock: FakeClock):
        journal = await self.open(tmp_path, clock)
        old = await journal.claim("s", "me", ttl_ms=1000)
        await journal.close()
        journal = await self.open(tmp_path, clock)
        await leaves_no_trace(journal, "STALE_EPOCH", journal.append("s", [note()]))
        await leaves_no_trace(journal, "LEASE_HELD", journal.claim("s", "you", ttl_ms=1))
        await journal.append("s", [note()], epoch=old.epoch, expected_pos=0)
        clock.advance(1000)
        assert (await journal.claim("s", "you", ttl_ms=1)).epoch == old.epoch + 1
        await journal.close()

    async def test_the_chain_goes_on_after_reopening(self, tmp_path: Path, clock: FakeClock):
        for n in range(3):
            journal = await self.open(tmp_path, clock)
            appended = await journal.append("s", [note(n), note(n)], expected_pos=2 * n)
            assert (appended.pos, appended.seq) == (2 * n + 2, 2 * n + 2)
            assert (await journal.verify()).records == 2 * n + 2
            await journal.close()

    async def test_two_openings_see_each_other(self, tmp_path: Path, clock: FakeClock):
        one, two = await self.open(tmp_path, clock), await self.open(tmp_path, clock)
        try:
            for n in range(5):
                await one.append("s", [note(n)], expected_pos=2 * n)
                await leaves_no_trace(
                    two, "STALE_POSITION", two.append("s", [note()], expected_pos=2 * n)
                )
                await two.append("s", [note(-n)], expected_pos=2 * n + 1)
            lease = await one.claim("s", "one", ttl_ms=1000)
            await leaves_no_trace(two, "STALE_EPOCH", two.append("s", [note()]))
            await leaves_no_trace(two, "LEASE_HELD", two.claim("s", "two", ttl_ms=1))
            await one.release(lease)
            assert (await two.claim("s", "two", ttl_ms=1)).epoch == lease.epoch + 1
            await one.append("t", [created()])
            await leaves_no_trace(two, "ILLEGAL_RECORD", two.append("t", [created()]))
            assert await everything(one) == await everything(two)
            assert (await two.verify()).ok
        finally:
            await one.close()
            await two.close()

    async def test_a_subscriber_sees_the_records_of_another_opening(
        self, tmp_path: Path, clock: FakeClock
    ):
        one, two = await self.open(tmp_path, clock), await self.open(tmp_path, clock)
        try:
            events = two.subscribe(after=0)
            for n in range(3):
                appended = await one.append("s", [note(n)])
                event = await anext(events)
                assert getattr(event, "hash", None) == appended.hash
            await events.aclose()
        finally:
            await one.close()
            await two.close()


class PersistentJournalConformance(JournalConformance, Reopening):
    """The same, for a store that outlives its process: opening a `place` again finds what was there."""
