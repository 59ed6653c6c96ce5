"""The SQLite store: the conformance suite, and what is its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import anyio
import apsw
import pytest
from anyio import to_thread

from holdfast.contracts import Body, ContentRef, Draft, Retention, digest
from holdfast.errors import HoldfastError, JournalError
from holdfast.journal import Journal, _writer
from holdfast.journal._sqlite_db import Columns, Db
from holdfast.journal._stage import Stage
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.sqlite_reader import SqliteReader
from holdfast.testing import PersistentJournalConformance
from holdfast.testing._conformance._base import everything
from holdfast.testing._drafts import STORY, created, destroyed, note


class TestSqliteJournal(PersistentJournalConformance):
    async def open(self, place: Path, clock: Callable[[], int]) -> Journal:
        return SqliteJournal.open(place / "journal.db", clock=clock)


class TestOnASlowDisk(PersistentJournalConformance):
    """The same, when the thread commits instead of the event loop."""

    @pytest.fixture(autouse=True)
    def slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_writer, "FAST_COMMIT", 0)

    async def open(self, place: Path, clock: Callable[[], int]) -> Journal:
        return SqliteJournal.open(place / "journal.db", clock=clock)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "journal.db")
    yield journal
    await journal.close()


@pytest.fixture(params=["loop", "thread"])
def committer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9 if request.param == "loop" else 0)
    return request.param


class Hold:
    """Keeps the writer busy until told: whatever is appended meanwhile waits and is then one group."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._lock = journal._writer._lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class TestCancellation:
    async def test_an_append_cancelled_while_it_waits_never_comes(self, journal: SqliteJournal):
        await journal.append("s", [note("before")])
        with Hold(journal):
            async with anyio.create_task_group() as group:
                group.start_soon(journal.append, "s", [note("cancelled")])
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
        assert (await journal.append("s", [note("after")], expected_pos=1)).pos == 2
        await journal.close()
        journal = SqliteJournal.open(journal.path)
        assert [r.payload["n"] async for r in journal.read("s")] == ["before", "after"]
        await journal.close()

    async def test_an_append_cancelled_before_it_began_never_comes(self, journal: SqliteJournal):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await journal.append("s", [note("cancelled")])
        await journal.append("t", [note("other")])
        assert (await journal.head("s")).pos == 0

    async def test_the_others_of_its_group_are_not_touched(self, journal: SqliteJournal):
        async with anyio.create_task_group() as group:
            with Hold(journal):
                async with anyio.create_task_group() as doomed:
                    for n in range(3):
                        group.start_soon(journal.append, "s", [note(n)])
                        doomed.start_soon(journal.append, "s", [note(-1)])
                    await anyio.wait_all_tasks_blocked()
                    doomed.cancel_scope.cancel()
        found = [r.payload["n"] async for r in journal.read("s")]
        assert len(found) == 3
        assert all(n in found for n in range(3))


@pytest.mark.usefixtures("committer")
class TestOneGroup:
    """Requests that are committed together behave as if they had come one after the other."""

    async def together(self, journal: SqliteJournal, *calls: Callable[[], object]) -> list[object]:
        outcomes: list[object] = [None] * len(calls)

        async def make(at: int, call: Callable[[], object]) -> None:
            try:
                outcomes[at] = await call()  # pyright: ignore[reportGeneralTypeIssues]
            except HoldfastError as refusal:
                outcomes[at] = refusal.code

        async with anyio.create_task_group() as group:
            with Hold(journal):
                for at, call in enumerate(calls):
                    group.start_soon(make, at, call)
                    await anyio.wait_all_tasks_blocked()
        return outcomes

    async def test_a_body_brought_and_erased(self, journal: SqliteJournal):
        bring = [note(bodies=[Body.of(b"body")])]
        await journal.append("s", bring)
        _, erased = await self.together(
            journal,
            lambda: journal.append("s", bring),
            lambda: journal.erase(digest(b"body"), reason="test"),
        )
        assert erased is True
        with pytest.raises(HoldfastError, match="CONTENT_ERASED"):
            await journal.content(digest(b"body"))
        assert (await journal.verify()).erased == 1

    async def test_a_body_that_was_new_brought_and_erased(self, journal: SqliteJournal):
        _, erased = await self.together(
            journal,
            lambda: journal.append("s", [note(bodies=[Body.of(b"body")])]),
            lambda: journal.erase(digest(b"body"), reason="test"),
        )
        assert erased is True
        with pytest.raises(HoldfastError, match="CONTENT_ERASED"):
            await journal.content(digest(b"body"))

    async def test_a_body_erased_and_brought_back(self, journal: SqliteJournal):
        bring = [note(bodies=[Body.of(b"body")])]
        await journal.append("s", bring)
        await self.together(
            journal,
            lambda: journal.erase(digest(b"body"), reason="test"),
            lambda: journal.append("s", bring),
        )
        assert await journal.content(digest(b"body")) == b"body"

    async def test_a_body_made_persistent_and_erased(self, journal: SqliteJournal):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        ref = ContentRef(digest=digest(b"body"), size=4, retention=Retention.PERSISTENT)
        outcomes = await self.together(
            journal,
            lambda: journal.append("s", [Draft(kind="a.b", content=(ref,))]),
            lambda: journal.erase(ref.digest, reason="test"),
        )
        assert outcomes[1] == "CONTENT_NOT_ALLOWED"
        assert await journal.content(ref) == b"body"

    async def test_appends_around_a_rebuild(self, journal: SqliteJournal):
        outcomes = await self.together(
            journal,
            lambda: journal.append("s", STORY),
            journal.rebuild,
            lambda: journal.append("t", [created()]),
            lambda: journal.append("s", [destroyed()]),
            journal.rebuild,
        )
        assert (outcomes[1], outcomes[4]) == (len(STORY), len(STORY) + 2)
        live = await everything(journal)
        await journal.rebuild()
        assert await everything(journal) == live
        assert [row.tag for row in live.rows["sessions"]] == ["destroyed", "open"]

    async def test_a_claim_fences_those_behind_it(self, journal: SqliteJournal):
        outcomes = await self.together(
            journal,
            lambda: journal.append("s", [note(1)]),
            lambda: journal.claim("s", "me", ttl_ms=60_000),
            lambda: journal.append("s", [note(2)]),
            lambda: journal.append("s", [note(3)], epoch=1, expected_pos=1),
        )
        assert outcomes[2] == "STALE_EPOCH"
        assert (await journal.head("s")).pos == 2


class TestRiding:
    """What was posted, and nobody has come for yet."""

    @pytest.fixture(autouse=True)
    def patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9)
        monkeypatch.setattr(_writer, "RIDE", 60.0)

    async def test_it_rides_with_the_next_append(self, journal: SqliteJournal):
        failures: list[BaseException] = []
        for n in range(3):
            journal.post("s", lambda n=n: [note(n)], failed=failures.append)
        journal.post("s", lambda: [note(), created(), created()], failed=failures.append)
        landed = journal.append_now("s", [note(3)], expected_pos=3)
        assert landed is not None
        assert (landed.pos, landed.seq) == (4, 4)
        assert [getattr(one, "code", one) for one in failures] == ["ILLEGAL_RECORD"]
        # Nobody waited for it, so nobody is expected to come along the next time.
        assert journal.append_now("s", [note(4)]) is not None
        assert [r.payload["n"] async for r in journal.read("s")] == [0, 1, 2, 3, 4]

    async def test_it_keeps_its_place_when_another_process_writes(self, journal: SqliteJournal):
        failures: list[BaseException] = []
        other = apsw.Connection(str(journal.path))
        journal.post("s", lambda: [note(0)], failed=failures.append)
        with other:  # a write that takes long
            other.execute("update meta set value=value")
            assert journal.append_now("s", [note(1)]) is None
        other.close()
        assert (await journal.append("s", [note(1)])).pos == 2
        assert [r.payload["n"] async for r in journal.read("s")] == [0, 1]
        assert failures == []


class TestClosing:
    async def test_at_rest_it_is_one_file(self, journal: SqliteJournal):
        await journal.append("s", [note()], durable=False)
        _ = [record async for record in journal.read_all()]
        await journal.close()
        assert [path.name for path in journal.path.parent.glob("journal*")] == ["journal.db"]

    @pytest.mark.usefixtures("committer")
    async def test_appends_from_other_threads_are_done_or_refused(self, tmp_path: Path):
        """None may be left waiting, whatever the moment of closing."""
        for attempt in range(10):
            journal = SqliteJournal.open(tmp_path / f"{attempt}.db")
            outcomes: list[str] = []
            going = threading.Barrier(4)

            def write(
                journal: SqliteJournal = journal,
                outcomes: list[str] = outcomes,
                going: threading.Barrier = going,
            ) -> None:
                async def appends() -> None:
                    going.wait()
                    while "JOURNAL_CLOSED" not in outcomes:
                        try:
                            await journal.append("s", [note()], durable=False)
                            outcomes.append("ok")
                        except JournalError as refusal:
                            outcomes.append(refusal.code)

                asyncio.run(appends())

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(to_thread.run_sync, write)
                await to_thread.run_sync(going.wait)
                await journal.close()
            assert set(outcomes) <= {"ok", "JOURNAL_CLOSED"}
            again = SqliteJournal.open(journal.path)
            assert again.found.records == outcomes.count("ok")
            await again.close()

    async def test_an_append_just_too_late_is_refused(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        """Another thread closes the journal after the append looked and before it is queued."""
        awaited = _writer.Awaited

        def closing(work: Callable[[Stage], object], durable: bool) -> _writer.Awaited[Stage]:
            journal._writer.close()
            return awaited(work, durable)

        monkeypatch.setattr(_writer, "Awaited", closing)
        journal._writer._company = 1  # so that it is queued for others to join it
        with pytest.raises(JournalError, match="JOURNAL_CLOSED"):
            await journal.append("s", [note()])

    async def test_a_post_just_too_late_is_reported(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        failures: list[BaseException] = []

        class Closing(_writer.Posted[Stage]):
            def __init__(
                self, work: Callable[[Stage], object], failed: Callable[[BaseException], None]
            ) -> None:
                journal._writer.close()
                super().__init__(work, failed)

        monkeypatch.setattr(_writer, "Posted", Closing)
        journal.post("s", lambda: [note()], failed=failures.append)
        assert [getattr(failure, "code", None) for failure in failures] == ["JOURNAL_CLOSED"]

    async def test_a_reader_in_use_is_closed_when_it_comes_back(self, journal: SqliteJournal):
        with journal._reader() as db:
            await journal.close()
            assert db.value("select 1") == 1
        assert journal._readers == []
        with pytest.raises(apsw.ConnectionClosedError):
            db.value("select 1")

    async def test_a_loop_that_ended_does_no_harm(self, journal: SqliteJournal):
        """Somebody waits in an event loop that is gone when the record comes."""

        def give_up() -> None:
            async def wait() -> None:
                with anyio.move_on_after(0):
                    await journal.wait(0)
                journal._wakeups.signal()  # handed out, and nobody is left to take it

            asyncio.run(wait())

        await to_thread.run_sync(give_up)
        for n in range(1, 4):
            assert (await journal.append("s", [note()])).pos == n


class TestBugs:
    """What should never happen must not leave anybody waiting."""

    @pytest.mark.usefixtures("committer")
    async def test_a_failure_of_ours_is_told_to_the_whole_group(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        def commit(group: object, wait: bool) -> _writer.Committed:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(journal._writer, "_commit", commit)
            with pytest.raises(JournalError, match=r"JOURNAL_IO.*a bug"):
                await journal.append("s", [note()])
        await journal.append("s", [note()])

    async def test_an_interrupt_is_not_swallowed(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9)

        def commit(group: object, wait: bool) -> _writer.Committed:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(journal._writer, "_commit", commit)
            with pytest.raises(KeyboardInterrupt):
                await journal.append("s", [note()])
        await journal.append("s", [note()])

    async def test_a_reader_that_can_not_be_opened_is_an_error_of_ours(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
    ):
        def connect() -> object:
            raise apsw.CantOpenError("unable to open database file")

        monkeypatch.setattr(journal, "_connect", connect)
        with pytest.raises(JournalError, match="JOURNAL_IO"):
            await journal.head("s")

    async def test_a_projection_that_was_damaged_can_be_made_anew(self, journal: SqliteJournal):
        await journal.append("s", STORY)
        live = await everything(journal)
        db = apsw.Connection(str(journal.path))
        for damage in ("'no json'", "'7'", "cast(x'ff' as text)"):
            db.execute(f"update live set value={damage} where projection='sessions'")
            for question in (
                journal.rows("sessions"),
                journal.row("sessions", "s"),
                journal.append("s", [destroyed()]),
            ):
                with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
                    await question
            assert (await journal.verify()).ok
            await journal.append("t", [note()])  # others are not touched
            await journal.rebuild()
            assert (await everything(journal)).rows == live.rows
        db.close()


class TestRows:
    """What is under way is in one table, what is over in another."""

    def where(self, journal: SqliteJournal) -> dict[str, list[str]]:
        """The tables that have the row of session `s`."""
        db = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            sql = "select tag from {} where projection='sessions' and key='s'"
            tables = {one: db.execute(sql.format(one)).fetchall() for one in ("live", "rows")}
        finally:
            db.close()
        return {one: [str(tag) for (tag,) in found] for one, found in tables.items() if found}

    @pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
    async def test_a_row_moves_between_them(self, journal: SqliteJournal, cold: bool):
        for _ in range(2):
            for draft, expected in (
                (created(), {"live": ["open"]}),
                (destroyed(), {"rows": ["destroyed"]}),
            ):
                if cold:
                    journal._store._forget()
                await journal.append("s", [draft])
                assert self.where(journal) == expected
        await journal.append("s", [created(), destroyed()])
        assert self.where(journal) == {"rows": ["destroyed"]}
        await journal.append("s", [created()])
        assert await journal.rebuild() > 0
        assert self.where(journal) == {"live": ["open"]}

    @pytest.mark.parametrize(
        ("projection", "tag"),
        [("effects", "open"), ("runs", "active"), ("inputs", "queued:s"), ("grants", "active:s")],
    )
    async def test_few_are_found_without_reading_those_that_are_over(
        self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, projection: str, tag: str
    ):
        asked: list[str] = []
        every = Db.all

        def noted(db: Db, sql: str, values: Sequence[object] = ()) -> list[Columns]:
            plan = every(db, f"explain query plan {sql}", values)
            asked.extend(str(step[-1]) for step in plan)
            return every(db, sql, values)

        monkeypatch.setattr(Db, "all", noted)
        assert await journal.rows(projection, tag=tag, limit=10) == []
        assert len(asked) == 1
        index = "INDEX live_by_tag" if ":" in tag else "PRIMARY KEY"
        assert asked[0].startswith("SEARCH live USING")
        assert index in asked[0]


class TestCompany:
    """Whoever writes in turns with others is committed together with them."""

    @pytest.fixture(autouse=True)
    def fast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_writer, "FAST_COMMIT", 1e9)  # whatever the disk is like today

    async def test_a_second_writer_is_waited_for_at_once(self, journal: SqliteJournal):
        assert await journal.append("a", [note()])
        assert journal.append_now("a", [note()]) is not None
        assert journal.append_now("b", [note()]) is None

    async def test_one_that_writes_alone_waits_for_nobody(self, journal: SqliteJournal):
        looked = 0
        for n in range(64):
            if journal.append_now("a", [note(n)]) is None:
                await journal.append("a", [note(n)])
                looked += 1
        assert looked == 2  # now and then, for there may be others by now


class TestReader:
    async def test_every_attempt_to_write_is_refused(self, journal: SqliteJournal):
        await journal.append("s", [note(bodies=[Body.of(b"x")])])
        lease = await journal.claim("t", "me", ttl_ms=1000)
        reader = SqliteReader(journal.path)
        for attempt in (
            reader.append("s", [note()]),
            reader.claim("u", "me", ttl_ms=1),
            reader.renew(lease, ttl_ms=1),
            reader.release(lease),
            reader.erase(digest(b"x"), reason="test"),
            reader.rebuild(),
        ):
            with pytest.raises(JournalError, match="JOURNAL_READ_ONLY"):
                await attempt
        assert await everything(reader) == await everything(journal)
        await reader.close()

    async def test_it_sees_what_is_written_meanwhile(self, journal: SqliteJournal):
        reader = SqliteReader(journal.path)
        events = reader.subscribe(after=0)
        for n in range(3):
            await journal.append("s", [note(n)])
            event = await anext(events)
            assert getattr(event, "payload", None) == {"n": n}
        await events.aclose()
        await reader.close()


async def test_unstorable_questions_are_refused_or_find_nothing(journal: SqliteJournal):
    for ask in (
        lambda: journal.head("\ud800"),
        lambda: journal.row("runs", "\ud800"),
        lambda: journal.page("\ud800", 0, 1),
        lambda: journal.page(None, 1 << 70, 1),
    ):
        with pytest.raises(HoldfastError, match="INVALID_ARGUMENT"):
            await ask()
