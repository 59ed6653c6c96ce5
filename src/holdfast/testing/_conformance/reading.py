"""Reading, and being told."""

from __future__ import annotations

from contextlib import aclosing
from itertools import pairwise

import anyio

from holdfast.contracts import EffectStatus, Gap, Record
from holdfast.journal import Journal
from holdfast.testing._conformance._base import Conformance, records_of, refused
from holdfast.testing._drafts import completed, created, intent, note, result, started


async def first(journal: Journal, count: int, *, after: int | None = 0) -> list[Record]:
    """The first `count` records that a subscriber gets."""
    found: list[Record] = []
    async with aclosing(journal.subscribe(after=after)) as events:
        async for event in events:
            assert isinstance(event, Record)
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError("the subscription ended")


class Reading(Conformance):
    """What `read`, `read_all`, `page` and `subscribe` promise."""

    async def test_reading_starts_after_a_number_and_stops_at_a_limit(self, journal: Journal):
        for n in range(1, 6):
            await journal.append("a", [note(n)])
            await journal.append("b", [note(-n)])
        a = [record async for record in journal.read("a", after=1, limit=3)]
        assert [(record.pos, record.payload["n"]) for record in a] == [(2, 2), (3, 3), (4, 4)]
        everyone = [record async for record in journal.read_all(after=3, limit=4)]
        assert [record.seq for record in everyone] == [4, 5, 6, 7]
        assert [record async for record in journal.read_all(after=3, limit=0)] == []
        assert [record async for record in journal.read_all(after=10)] == []
        assert [record async for record in journal.read("nobody")] == []
        assert len([record async for record in journal.read_all(after=-5)]) == 10
        assert len([record async for record in journal.read("a", after=-1)]) == 5

    async def test_reading_goes_on_beyond_a_page(self, journal: Journal):
        for n in range(11):
            await journal.append("s", [note([n, part]) for part in range(100)])
        await journal.append("t", [note()])
        own = await records_of(journal, "s")
        assert [record.payload["n"] for record in own] == [
            [n, p] for n in range(11) for p in range(100)
        ]
        assert [record.seq for record in await records_of(journal)] == list(range(1, 1102))
        assert len([record async for record in journal.read("s", limit=1001)]) == 1001
        assert [r.pos async for r in journal.read("s", after=1000)] == list(range(1001, 1101))

    async def test_pages_hold_what_is_stored(self, journal: Journal):
        await journal.append("s", [note(1), note(2), note(3)])
        page = await journal.page("s", 1, 1)
        assert [(stored.seq, stored.stream, stored.pos) for stored in page] == [(2, "s", 2)]
        assert await journal.page(None, 3, 10) == []
        assert await journal.page(None, 0, 2) == await journal.page("s", 0, 2)

    async def test_a_strange_name_reads_as_nothing(self, journal: Journal):
        for name in ("", "a\nb", "\x00", "ü" * 1000):
            assert (await journal.head(name)).pos == 0
            assert await records_of(journal, name) == []
            assert await journal.row("sessions", name) is None
        with refused("NOT_FOUND"):
            await journal.content("no digest at all")

    async def test_a_subscriber_sees_what_was_and_what_comes(self, journal: Journal):
        await journal.append("s", [note(0), note(1)])
        found: list[Record] = []

        async def follow() -> None:
            found.extend(await first(journal, 5))

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await journal.append("t", [note(2)])
            await anyio.wait_all_tasks_blocked()
            await journal.append("s", [note(3), note(4)])
        assert [record.payload["n"] for record in found] == [0, 1, 2, 3, 4]
        assert found == await records_of(journal)

    async def test_a_subscriber_without_a_cursor_starts_now(self, journal: Journal):
        await journal.append("s", [note("old")])
        found: list[Record] = []

        async def follow() -> None:
            found.extend(await first(journal, 3, after=None))

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            while len(found) < 3:
                await journal.append("s", [note("new")])
                await anyio.lowlevel.checkpoint()
        assert all(record.payload["n"] == "new" for record in found)
        assert [b.seq - a.seq for a, b in pairwise(found)] == [1, 1]

    async def test_subscribers_lose_and_repeat_nothing_under_concurrent_writers(
        self, journal: Journal
    ):
        streams = ["a", "b", "c", "d", "shared", "shared"]
        found: list[list[Record]] = []

        async def follow() -> None:
            found.append(await first(journal, len(streams) * 20 * 2))

        async def write(stream: str) -> None:
            for n in range(20):
                await journal.append(stream, [note(n), note(-n)], durable=n % 4 == 0)

        async with anyio.create_task_group() as group:
            for at, stream in enumerate(streams):
                group.start_soon(write, stream)
                if at % 2:
                    group.start_soon(follow)
        everyone = await records_of(journal)
        assert len(everyone) == 240
        assert found == [everyone] * 3

    async def test_a_subscriber_that_fell_behind_gets_a_gap_and_every_end(self, journal: Journal):
        batch = [created(), started("r")]
        for n in range(10):
            batch += [note(n), intent(f"e{n}", "r"), result(f"e{n}", "r")]
        await journal.append("s", [*batch, completed("r"), *[note("tail")] * 5])
        everyone = await records_of(journal)
        async with aclosing(journal.subscribe(after=2, max_behind=5)) as events:
            gap = await anext(events)
            assert isinstance(gap, Gap)
            assert (gap.after, gap.upto) == (2, len(everyone) - 5)
            seen = [await anext(events) for _ in range(11 + 5)]
        in_gap = everyone[gap.after : gap.upto]
        ends = [r for r in in_gap if r.kind in ("effect_result", "run_completed")]
        assert len(ends) == 11
        assert seen == [*ends, *everyone[gap.upto :]]
        assert gap.skipped == len(in_gap) - len(ends)
        # What was skipped can be read after all.
        caught_up = journal.read_all(after=gap.after, limit=gap.upto - gap.after)
        assert [record async for record in caught_up] == in_gap

    async def test_max_behind_is_enforced(self, journal: Journal):
        await journal.append("s", [note(n) for n in range(5)])
        async with aclosing(journal.subscribe(after=0, max_behind=5)) as events:
            assert isinstance(await anext(events), Record)
        async with aclosing(journal.subscribe(after=0, max_behind=4)) as events:
            gap = await anext(events)
            assert gap == Gap(after=0, upto=1, skipped=1)
            following = await anext(events)
            assert isinstance(following, Record)
            assert following.seq == 2

    async def test_a_subscriber_goes_on_live_after_a_gap(self, journal: Journal):
        await journal.append("s", [note(n) for n in range(50)])
        async with aclosing(journal.subscribe(after=0, max_behind=2)) as events:
            seen = [await anext(events) for _ in range(3)]
            await journal.append("s", [intent("e"), result("e", status=EffectStatus.FAILED)])
            seen += [await anext(events) for _ in range(2)]
        assert [getattr(event, "seq", "gap") for event in seen] == ["gap", 49, 50, 51, 52]

    async def test_wait_returns_when_a_record_comes(self, journal: Journal):
        await journal.append("s", [note()])
        await journal.wait(0)  # it is there already
        came = anyio.Event()

        async def wait() -> None:
            await journal.wait(1)
            came.set()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not came.is_set()
            await journal.append("s", [note()])
            await came.wait()
