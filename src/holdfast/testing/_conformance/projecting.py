"""Projections, the proof, and the end."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from holdfast.contracts import (
    ApprovalView,
    Body,
    Decision,
    EffectStatus,
    EffectView,
    RunView,
    SessionView,
    Usage,
)
from holdfast.journal import Journal, Report
from holdfast.testing._conformance._base import Conformance, everything, refused, rows_of
from holdfast.testing._drafts import (
    STORY,
    answered,
    asked,
    completed,
    created,
    destroyed,
    intent,
    note,
    result,
    started,
    used,
)
from holdfast.testing.clock import FakeClock

MODELS = {
    "sessions": SessionView,
    "runs": RunView,
    "effects": EffectView,
    "approvals": ApprovalView,
    "usage": Usage,
}


class Projecting(Conformance):
    """What `row`, `rows` and `rebuild` promise."""

    async def test_a_session_and_its_runs(self, journal: Journal, clock: FakeClock):
        at = clock.now
        await journal.append("s", [created()])
        clock.advance(10)
        await journal.append("s", [started("r"), used("r", tokens=4, cost=5)])
        session = await journal.row("sessions", "s")
        run = await journal.row("runs", "r")
        assert session is not None
        assert run is not None
        assert (session["created_at"], session["last_used_at"]) == (at, at + 10)
        assert (session["status"], session["runs"], session["created_seq"]) == ("open", 1, 1)
        assert (run["status"], run["started_at"], run["ended_at"]) == ("running", at + 10, None)
        clock.advance(5)
        await journal.append("s", [completed("r", duration_ms=3, calls=1)])
        run = RunView.model_validate(await journal.row("runs", "r"))
        assert (run.status, run.ended_at) == ("completed", at + 15)
        spent = Usage(
            runs=1, duration_ms=3, external_calls=1, input_tokens=4, output_tokens=4, cost_micros=5
        )
        assert run.usage == spent
        assert Usage.model_validate(await journal.row("usage", "s")) == spent
        await journal.append("s", [destroyed()])
        assert await rows_of(journal, "sessions", "open") == []
        assert await rows_of(journal, "sessions", "destroyed") == ["s"]

    async def test_open_effects_and_doubt(self, journal: Journal):
        await journal.append("s", [created(), started("r"), intent("e1", "r"), intent("e2", "r")])
        await journal.append("s", [result("e1", "r")])
        assert await rows_of(journal, "effects", "open") == ["e2"]
        await journal.append("s", [result("e2", "r", EffectStatus.UNKNOWN)])
        assert await rows_of(journal, "effects", "open") == ["e2"]
        assert RunView.model_validate(await journal.row("runs", "r")).in_doubt == ("e2",)
        await journal.append("s", [result("e2", "r", EffectStatus.FAILED)])
        assert await rows_of(journal, "effects", "open") == []
        assert RunView.model_validate(await journal.row("runs", "r")).in_doubt == ()

    async def test_the_inbox(self, journal: Journal):
        await journal.append("s", [created(), started("r"), asked("a", "e", "r"), asked("b")])
        assert await rows_of(journal, "approvals", "pending") == ["a", "b"]
        assert RunView.model_validate(await journal.row("runs", "r")).pending_approvals == ("a",)
        await journal.append("inbox", [answered("a", Decision.DENIED)])
        approval = ApprovalView.model_validate(await journal.row("approvals", "a"))
        assert (approval.status, approval.session_id, approval.run_id) == ("denied", "s", "r")
        assert approval.decision is not None
        assert approval.decision.actor == "me"
        assert await rows_of(journal, "approvals", "pending") == ["b"]
        assert RunView.model_validate(await journal.row("runs", "r")).pending_approvals == ()

    async def test_every_row_fits_its_view(self, journal: Journal):
        await journal.append("s", STORY)
        for projection, model in MODELS.items():
            rows = await journal.rows(projection)
            assert rows
            for row in rows:
                model.model_validate(row.value)
                assert await journal.row(projection, row.key) == row.value
        assert await journal.rows("nothing") == []
        assert await journal.row("runs", "nothing") is None

    async def test_rows_come_in_pages_by_key_and_tag(self, journal: Journal):
        names = ["b", "a", "ü", "Z", "a\U0001f600", "a\uffff", "c", "aa"]
        await journal.append("s", [asked(name) for name in names])
        await journal.append("s", [answered(name) for name in names[:3]])
        ordered = sorted(names)
        assert await rows_of(journal, "approvals") == ordered
        for tag, wanted in (
            (None, ordered),
            ("pending", sorted(names[3:])),
            ("decided", sorted(names[:3])),
            ("nothing", []),
        ):
            for newest in (False, True):
                found: list[str] = []
                while page := await journal.rows(
                    "approvals",
                    tag=tag,
                    after=found[-1] if found else "",
                    limit=2,
                    newest=newest,
                ):
                    assert len(page) <= 2
                    found += [row.key for row in page]
                assert found == (wanted[::-1] if newest else wanted)

    async def test_a_reader_can_not_change_a_row(self, journal: Journal):
        await journal.append("s", STORY)
        before = await everything(journal)
        for projection in MODELS:
            for row in await journal.rows(projection):
                row.value.clear()
        session = await journal.row("sessions", "s")
        assert session is not None
        session["limits"]["cpu_ms"] = 0  # pyright: ignore[reportIndexIssue, reportOptionalSubscript, reportArgumentType, reportCallIssue]
        assert (await everything(journal)).rows.keys() == before.rows.keys()
        assert await journal.rebuild() == len(before.records)
        after = await journal.row("sessions", "s")
        assert after is not None
        assert after["limits"] != session["limits"]

    async def test_rebuilding_changes_nothing(self, journal: Journal, clock: FakeClock):
        for draft in STORY:
            await journal.append("s", [draft])
            clock.advance(7)
        await journal.append("s", [destroyed()])
        before = await everything(journal)
        assert await journal.rebuild() == len(STORY) + 1
        assert await everything(journal) == before

    async def test_appending_goes_on_while_rebuilding(self, journal: Journal):
        await journal.append("s", STORY)
        before = await everything(journal)

        async def write(n: int) -> None:
            await journal.append(f"s{n}", [created(), started(f"run{n}"), intent(f"effect{n}")])
            await journal.append(f"s{n}", [completed(f"run{n}"), result(f"effect{n}")])

        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(write, n)
                group.start_soon(journal.rebuild)
        live = await everything(journal)
        await journal.rebuild()
        assert await everything(journal) == live
        assert len(live.rows["runs"]) == len(before.rows["runs"]) + 6


class Proving(Conformance):
    """What `verify` promises of a journal nobody meddled with."""

    async def test_an_empty_journal_verifies(self, journal: Journal):
        report = await journal.verify()
        assert (report.ok, report.records, report.streams) == (True, 0, 0)

    async def test_it_counts_and_sums_up(self, journal: Journal):
        await journal.append("a", [note(1), note(2, bodies=[Body.of(b"x" * 5000)])])
        await journal.append("b", [note(3)])
        report = await journal.verify()
        assert report.ok
        assert (report.records, report.streams, report.erased) == (3, 2, 0)
        assert (await journal.verify()).root == report.root
        await journal.claim("a", "me", ttl_ms=1000)  # no record, no other root
        await journal.claim("c", "me", ttl_ms=1000)
        await journal.rebuild()
        assert (await journal.verify()).root == report.root
        await journal.append("b", [note(4)])
        assert (await journal.verify()).root != report.root

    async def test_it_holds_beyond_a_page(self, journal: Journal):
        for _ in range(11):
            await journal.append("s", [note(n) for n in range(100)])
        report = await journal.verify()
        assert (report.ok, report.records) == (True, 1100)

    async def test_it_holds_while_others_write(self, journal: Journal):
        reports: list[Report] = []

        async def write(stream: str) -> None:
            for n in range(30):
                await journal.append(stream, [note(n)], durable=False)

        async def check() -> None:
            for _ in range(5):
                reports.append(await journal.verify())

        async with anyio.create_task_group() as group:
            for stream in "abab":
                group.start_soon(write, stream)
                group.start_soon(check)
        assert [report.bad for report in reports] == [None] * 20


class Closing(Conformance):
    """What `close` promises."""

    async def test_after_closing_everything_is_refused(self, journal: Journal, tmp_path: Path):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        (record,) = [record async for record in journal.read("s")]
        lease = await journal.claim("t", "me", ttl_ms=1000)
        await journal.close()
        name = record.content[0].digest
        for use in (
            journal.append("s", [note()]),
            journal.append("s", [note()], durable=False),
            journal.claim("u", "me", ttl_ms=1),
            journal.renew(lease, ttl_ms=1),
            journal.release(lease),
            journal.erase(name, stream="s", reason="test"),
            journal.rebuild(),
            journal.head("s"),
            journal.heads(),
            journal.last_seq(),
            journal.page(None, 0, 1),
            journal.content(name),
            journal.holdings(),
            journal.row("runs", "r"),
            journal.rows("runs"),
            journal.wait(0),
            journal.wait(99),
            journal.verify(),
            anext(journal.read_all()),
            anext(journal.subscribe(after=0)),
        ):
            with refused("JOURNAL_CLOSED"):
                await use

    async def test_closing_twice_is_fine(self, journal: Journal):
        await journal.close()
        await journal.close()
        with refused("JOURNAL_CLOSED"):
            await journal.last_seq()

    async def test_what_was_handed_in_before_closing_is_done(self, journal: Journal):
        done: list[int] = []

        async def write(n: int) -> None:
            done.append((await journal.append("s", [note(n)])).pos)

        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(write, n)
            await anyio.wait_all_tasks_blocked()
            await journal.close()
        assert sorted(done) == list(range(1, 21))

    async def test_closing_wakes_a_subscriber(self, journal: Journal):
        async def follow() -> None:
            with pytest.raises(Exception, match="JOURNAL_CLOSED"):
                await anext(journal.subscribe(after=0))

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await journal.close()
