"""Records handed in without waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

import pytest
from anyio.lowlevel import checkpoint

from holdfast.contracts import Draft, Record
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.testing._conformance._base import Conformance, everything, records_of, refused
from holdfast.testing._drafts import STORY, created, note, result, started


class Failures:
    """Collects what `failed` was told, from whatever thread."""

    def __init__(self) -> None:
        self.seen: list[BaseException] = []

    def __call__(self, failure: BaseException) -> None:
        self.seen.append(failure)

    @property
    def codes(self) -> list[str]:
        return [getattr(failure, "code", repr(failure)) for failure in self.seen]


def of(*drafts: Draft) -> Callable[[], Sequence[Draft]]:
    """What `post` wants: records in the making."""
    return lambda: drafts


def broken() -> Sequence[Draft]:
    """Records that can't be made."""
    raise ZeroDivisionError("in the making")


class Posting(Conformance):
    """What `post` and `flush` promise."""

    async def test_what_was_posted_is_read(self, journal: Journal):
        failures = Failures()
        journal.post("s", of(*STORY), failed=failures)
        assert (await journal.head("s")).pos == len(STORY)
        journal.post("s", of(note(1)), failed=failures)
        assert await journal.last_seq() == len(STORY) + 1
        journal.post("s", of(note(2)), failed=failures)
        assert len(await records_of(journal, "s")) == len(STORY) + 2
        journal.post("t", of(created()), failed=failures)
        assert await journal.row("sessions", "t") is not None
        assert (await journal.verify()).records == len(STORY) + 3
        assert failures.seen == []

    async def test_everything_keeps_its_place(self, journal: Journal):
        failures = Failures()
        for n in range(0, 60, 3):
            journal.post("s", of(note(n)), failed=failures, expected_pos=n)
            journal.post("s", of(note(n + 1)), failed=failures, expected_pos=n + 1)
            if n % 2:
                await journal.append("s", [note(n + 2)], expected_pos=n + 2)
            else:
                journal.post("s", of(note(n + 2)), failed=failures)
        await journal.flush()
        assert [r.payload["n"] for r in await records_of(journal, "s")] == list(range(60))
        assert failures.seen == []

    async def test_light_ones_keep_their_place_too(self, journal: Journal):
        failures, made = Failures(), list[int]()

        def making(n: int) -> Callable[[], Sequence[Draft]]:
            def make() -> Sequence[Draft]:
                made.append(n)
                return [note(n)]

            return make

        for n in range(0, 40, 2):
            journal.post("s", making(n), failed=failures, expected_pos=n, light=n % 3 > 0)
            if n % 5 == 0:
                await checkpoint()  # somebody has time
            journal.post("s", broken, failed=failures, light=True)
            if n % 4:
                await journal.append("s", [note(n + 1)], expected_pos=n + 1)
            else:
                journal.post("s", making(n + 1), failed=failures, light=True)
        await journal.flush()
        assert [r.payload["n"] for r in await records_of(journal, "s")] == list(range(40))
        assert len(made) == len(set(made)), "records were made twice"
        assert failures.codes == ["INTERNAL_ERROR"] * 20

    async def test_an_append_proves_what_was_posted_before_it(self, journal: Journal):
        for n in range(5):
            journal.post("s", of(note(n)), failed=Failures())
        assert (await journal.append("s", [note(5)])).pos == 6

    async def test_a_refusal_is_reported_and_writes_nothing(self, journal: Journal):
        await journal.append("s", [created(), note()])
        await journal.claim("leased", "me", ttl_ms=1000)
        before = await everything(journal)
        failures = Failures()
        journal.post("s", of(note(), created()), failed=failures)
        journal.post("s", of(result("nothing")), failed=failures)
        journal.post("s", of(note()), failed=failures, expected_pos=7)
        journal.post("leased", of(note()), failed=failures)
        journal.post("leased", of(note()), failed=failures, epoch=9)
        journal.post("s", of(Draft(kind="nothing")), failed=failures)
        journal.post("s", of(), failed=failures)
        journal.post("s", broken, failed=failures)
        await journal.flush()
        assert failures.codes == [
            "ILLEGAL_RECORD",
            "ILLEGAL_RECORD",
            "STALE_POSITION",
            "STALE_EPOCH",
            "STALE_EPOCH",
            "INVALID_RECORD",
            "INVALID_ARGUMENT",
            "INTERNAL_ERROR",
        ]
        assert await everything(journal) == before

    async def test_a_refusal_does_not_touch_those_beside_it(self, journal: Journal):
        failures = Failures()
        for n in range(4):
            journal.post(f"s{n}", of(created(), note(n)), failed=failures)
            journal.post(f"s{n}", broken, failed=failures)
            journal.post(f"s{n}", of(started(f"r{n}")), failed=failures, expected_pos=2)
        await journal.append("s0", [note()], expected_pos=3)
        assert failures.codes == ["INTERNAL_ERROR"] * 4
        assert await journal.last_seq() == 13
        assert (await journal.verify()).ok

    async def test_a_report_that_fails_does_no_harm(
        self, journal: Journal, caplog: pytest.LogCaptureFixture
    ):
        def failed(failure: BaseException) -> None:
            raise RuntimeError("in the report")

        journal.post("s", broken, failed=failed)
        journal.post("s", of(note(1)), failed=failed)
        assert (await journal.append("s", [note(2)])).pos == 2
        assert "in the making" in caplog.text
        assert "in the report" in caplog.text

    async def test_what_can_be_refused_at_once_is(self, journal: Journal):
        with refused("INVALID_ID"):
            journal.post("a\nb", of(note()), failed=Failures())
        await journal.close()
        with refused("JOURNAL_CLOSED"):
            journal.post("s", of(note()), failed=Failures())
        with refused("JOURNAL_CLOSED"):
            await journal.flush()

    async def test_closing_finishes_what_was_posted(self, journal: Journal):
        failures, made = Failures(), list[int]()

        def make(n: int) -> Callable[[], Sequence[Draft]]:
            def drafts() -> Sequence[Draft]:
                made.append(n)
                return [note(n)]

            return drafts

        for n in range(50):
            journal.post("s", make(n), failed=failures)
        await journal.close()
        assert made == list(range(50))
        assert failures.seen == []

    async def test_a_subscriber_sees_what_was_posted(self, journal: Journal):
        async with aclosing(journal.subscribe(after=0)) as events:
            for n in range(3):
                journal.post("s", of(note(n)), failed=Failures())
                event = await anext(events)
                assert isinstance(event, Record)
                assert event.payload == {"n": n}

    async def test_nothing_posted_needs_no_flush(self, journal: Journal):
        await journal.flush()
        await journal.append("s", [note()], durable=False)
        await journal.flush()
        assert await journal.last_seq() == 1

    async def test_failures_are_ours(self, journal: Journal):
        failures = Failures()
        journal.post("s", broken, failed=failures)
        await journal.flush()
        assert isinstance(failures.seen[0], HoldfastError)
        assert "ZeroDivisionError" in str(failures.seen[0])
