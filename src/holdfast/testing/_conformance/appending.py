"""Batches, numbers, order."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from pydantic import JsonValue

from holdfast.contracts import Draft, Record
from holdfast.errors import StalePosition
from holdfast.journal import Appended, Head, Journal
from holdfast.testing._conformance._base import (
    Conformance,
    everything,
    leaves_no_trace,
    records_of,
    refused,
)
from holdfast.testing._drafts import created, note, result
from holdfast.testing.clock import FakeClock


class Appending(Conformance):
    """What `append` promises."""

    async def test_a_fresh_journal_is_empty(self, journal: Journal):
        assert journal.found.created
        assert journal.found.records == 0
        assert journal.found.upgraded_from is None
        assert await journal.last_seq() == 0
        assert await records_of(journal) == []
        assert await journal.head("s") == Head("s")
        assert await journal.heads() == []

    async def test_append_says_where_the_batch_landed(self, journal: Journal, clock: FakeClock):
        await journal.append("other", [note()])
        first = await journal.append("s", [note(1), note(2)])
        second = await journal.append("s", [note(3)])
        last = (await records_of(journal, "s"))[-1]
        assert first[:6] == ("s", 1, 2, 2, 3, clock.now)
        assert second == Appended("s", 3, 3, 4, 4, clock.now, last.hash)
        head = await journal.head("s")
        assert (head.pos, head.seq, head.hash) == (3, 4, last.hash)

    async def test_append_now_does_the_same_or_nothing(self, journal: Journal, clock: FakeClock):
        for n in range(20):
            at = (await journal.head("s")).pos
            found = journal.append_now("s", [note(n), note(-n)], expected_pos=at)
            if found is None:
                assert (await journal.head("s")).pos == at
                found = await journal.append("s", [note(n), note(-n)], expected_pos=at)
            assert found[:3] == ("s", 2 * n + 1, 2 * n + 2)
        stored = [record.payload for record in await records_of(journal, "s")]
        assert stored == [note(m).payload for n in range(20) for m in (n, -n)]

    async def test_append_now_refuses_what_append_refuses(self, journal: Journal):
        lease = await journal.claim("s", "me", ttl_ms=1000)

        async def at_once(epoch: int | None, pos: int | None = None) -> object:
            found = journal.append_now("s", [note()], epoch=epoch, expected_pos=pos)
            return found or await journal.append("s", [note()], epoch=epoch, expected_pos=pos)

        await leaves_no_trace(journal, "STALE_EPOCH", at_once(None))
        await leaves_no_trace(journal, "STALE_EPOCH", at_once(lease.epoch + 1))
        await leaves_no_trace(journal, "STALE_POSITION", at_once(lease.epoch, 7))

    async def test_a_record_comes_back_as_it_went_in(self, journal: Journal, clock: FakeClock):
        payload: dict[str, JsonValue] = {
            "text": "“ü”\n\x00\U0001f600",
            "n": [1, -2.5, 1e300, True, None, {"": {}}],
        }
        draft = Draft(
            kind="my.kind",
            payload=payload,
            run_id="run ü",
            turn_id="t",
            effect_id="e",
            actor="someone",
            cause=1,
        )
        await journal.append("s", [note()])
        await journal.append("s", [draft])
        first, record = await records_of(journal, "s")
        assert record.payload == payload
        assert (record.seq, record.stream, record.pos) == (2, "s", 2)
        assert (record.time, record.v, record.prev) == (clock.now, 1, first.hash)
        for name in ("kind", "run_id", "turn_id", "effect_id", "actor", "cause", "privacy"):
            assert getattr(record, name) == getattr(draft, name)
        assert record.known

    async def test_numbers_are_dense_and_the_chain_holds(self, journal: Journal):
        for n in range(4):
            for stream in ("a", "b", "c"):
                await journal.append(stream, [note(n)] * (n + 1))
        everyone = await records_of(journal)
        assert [record.seq for record in everyone] == list(range(1, 31))
        for stream in ("a", "b", "c"):
            own = await records_of(journal, stream)
            assert [record.pos for record in own] == list(range(1, 11))
            assert own[0].prev == "0" * 64
            assert all(after.prev == before.hash for before, after in pairwise(own))

    async def test_a_batch_is_whole_or_absent(self, journal: Journal):
        # The third is illegal: no intent. The first two alone would have been fine.
        await leaves_no_trace(
            journal, "ILLEGAL_RECORD", journal.append("s", [created(), note(), result("nothing")])
        )

    async def test_empty_batch_is_refused(self, journal: Journal):
        await leaves_no_trace(journal, "INVALID_ARGUMENT", journal.append("s", []))

    async def test_expected_pos_is_enforced(self, journal: Journal):
        await journal.append("s", [note(1)], expected_pos=0)
        await journal.append("s", [note(2), note(3)], expected_pos=1)
        for stale in (0, 1, 2, 4, -1, 1 << 70):
            await leaves_no_trace(
                journal, "STALE_POSITION", journal.append("s", [note()], expected_pos=stale)
            )
        await leaves_no_trace(
            journal, "STALE_POSITION", journal.append("new", [note()], expected_pos=1)
        )
        assert (await journal.append("s", [note(4)], expected_pos=3)).pos == 4

    async def test_of_writers_at_one_position_one_wins(self, journal: Journal):
        won: list[JsonValue] = []
        lost: list[int] = []

        async def write(n: int) -> None:
            try:
                await journal.append("s", [note(n), note(n)], expected_pos=0)
                won.append(n)
            except StalePosition as refusal:
                lost.append(refusal.actual)

        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(write, n)
        assert len(won) == 1
        assert lost == [2] * 7
        assert [record.payload["n"] for record in await records_of(journal)] == won * 2

    async def test_concurrent_batches_do_not_mix(self, journal: Journal):
        async def write(name: str) -> None:
            for n in range(10):
                batch = [note([name, n, part]) for part in range(3)]
                await journal.append("shared", batch, durable=n % 2 == 0)

        async with anyio.create_task_group() as group:
            for name in "abcdef":
                group.start_soon(write, name)
        found = [record.payload["n"] for record in await records_of(journal, "shared")]
        whole: list[list[JsonValue]] = [
            [[name, n, part] for part in range(3)] for name in "abcdef" for n in range(10)
        ]
        batches = [found[at : at + 3] for at in range(0, 180, 3)]
        # No batch is mixed with another, none is missing, and each writer's own order is kept.
        assert sorted(batches, key=whole.index) == whole
        for name in "abcdef":
            own = [batch for batch in whole if repr(name) in repr(batch)]
            assert [batch for batch in batches if batch in own] == own
        assert (await journal.verify()).ok

    async def test_a_refusal_does_not_touch_those_beside_it(self, journal: Journal):
        await journal.append("s", [created()])
        refusals: list[str] = []

        async def good(n: int) -> None:
            await journal.append(f"good{n}", [created(), note(n)])

        async def bad() -> None:
            with refused("ILLEGAL_RECORD"):
                await journal.append("s", [note(), created()])
            refusals.append("s")

        async with anyio.create_task_group() as group:
            for n in range(4):
                group.start_soon(good, n)
                group.start_soon(bad)
        assert len(refusals) == 4
        assert await journal.last_seq() == 9
        assert (await journal.head("s")).pos == 1
        assert (await journal.verify()).ok

    async def test_an_unsynced_append_is_read_like_any_other(self, journal: Journal):
        await journal.append("s", [note(1)], durable=False)
        await journal.append("s", [note(2)])
        await journal.append("s", [note(3)], durable=False)
        assert [record.payload["n"] for record in await records_of(journal, "s")] == [1, 2, 3]

    @pytest.mark.parametrize("steps", range(6))
    async def test_a_cancelled_append_is_whole_or_absent(self, journal: Journal, steps: int):
        await journal.append("s", [note("before")])
        batch = [note("x"), note("y"), note("z")]
        async with anyio.create_task_group() as group:
            group.start_soon(journal.append, "s", batch)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await journal.append("s", [note("after")])  # the journal is usable,
        found: list[Record] = await records_of(journal, "s")
        said = [record.payload["n"] for record in found]
        assert said in (["before", "after"], ["before", "x", "y", "z", "after"])
        seen = await everything(journal)
        await journal.append("other", [note()])  # and nothing comes later
        assert await journal.page("s", 0, 100) == seen.records
        assert (await journal.verify()).ok
