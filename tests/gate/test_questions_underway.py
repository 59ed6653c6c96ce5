"""A call that is under way asks a person: its time stands still, and the answer is there when it is made again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from tests.crash.copies import copy
from tests.gate.questions_support import CODE, FORM, SIZE, STATE, UNJAILED
from tests.gate.support import FAILURE, FailsAt, kinds, later, said, until

import holdfast
from holdfast import ApprovalView, Context, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.contracts import Record
from holdfast.contracts.approval import Asks
from holdfast.errors import HoldfastError, JournalError
from holdfast.gate.dispatch import Filled
from holdfast.gate.executor import Answer, Question
from holdfast.journal import Journal, MemoryJournal


@dataclass
class Held:
    """The other side: it asks in the middle of a call."""

    heard: list[Answer] = field(default_factory=list[Answer])
    begun: int = 0

    def book(
        self,
        *questions: Question,
        then: Callable[[], Awaitable[object]] | None = None,
        **terms: Any,
    ) -> Declared[..., Any]:
        """Asks these, one after another, then does something else, if told."""

        async def book(what: str, context: Context) -> str:
            """Book something."""
            self.begun += 1
            self.heard.extend([await context.ask(one) for one in questions or (SIZE,)])
            if then is not None:
                await then()
            return f"{what}: {self.heard[-1].action}"

        # Code that calls it does not await it: this is only how it works inside.
        terms = {"side_effect": "external_system", **terms}
        return capability(book, **terms)


AWAITED = CODE.replace("book(", "await book(")


async def pending(hf: holdfast.Runtime) -> ApprovalView:
    """The question that waits, once it does."""
    (view,) = await until(hf.approvals.list, lambda found: len(found) == 1)
    return view


async def meanwhile(
    hf: holdfast.Runtime,
    run: Callable[[], Awaitable[RunResult]],
    then: Callable[[ApprovalView], Awaitable[object]],
) -> RunResult:
    """A run, and what a person does about its question while it is under way."""
    found: list[RunResult] = []

    async def go() -> None:
        found.append(await run())

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        await then(await pending(hf))
    return found[0]


def answers(
    hf: holdfast.Runtime, decision: str = "approved", **more: Any
) -> Callable[[ApprovalView], Awaitable[object]]:
    """A person who answers."""
    if decision == "approved":
        more = {"content": {"size": 3}, **more}

    async def answer(view: ApprovalView) -> None:
        await hf.approvals.decide(view.id, decision, actor="ann", **more)

    return answer


async def started(hf: holdfast.Runtime, code: str = AWAITED, **more: Any) -> RunResult:
    return await hf.shell.run(code, session="s", **more)


async def test_answer_comes_while_the_connection_is_held() -> None:
    world = Held()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:

        async def look_and_answer(view: ApprovalView) -> None:
            assert (view.asks, view.form, view.during) == (Asks.INPUT, FORM, True)
            row = await hf.runs.show(str(view.run_id))
            assert (row.status, row.pending_approvals) == ("running", (view.id,))
            await answers(hf)(view)

        run = await meanwhile(hf, lambda: started(hf), look_and_answer)
        assert (run.result, world.begun) == ("bed: accept", 1)
        assert world.heard == [Answer("accept", {"size": 3}, STATE)]
        assert "effect_attempt" not in await kinds(hf, run)
        found = await kinds(hf, run)
        assert found.index("effect_intent") < found.index("approval_requested")
        assert found.index("approval_settled") < len(found) - found[::-1].index("effect_result")
        assert (await hf.journal.verify()).ok


@pytest.mark.parametrize("effect", ["external_system", "read"])
async def test_time_stands_still_while_somebody_thinks(effect: str) -> None:
    world = Held()
    tool = world.book(side_effect=effect, timeout_ms=1000)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:

        async def think(view: ApprovalView) -> None:
            await anyio.sleep(1.3)
            await answers(hf)(view)

        run = await meanwhile(hf, lambda: started(hf, limits={"wall_ms": 1200}), think)
        assert run.result == "bed: accept", run.error
        results = await said(hf, run, "effect_result")
        (took,) = [one["duration_ms"] for one in results if "_q" not in one["effect_id"]]
        assert took < 1300


async def test_time_goes_on_after_the_answer() -> None:
    world = Held()
    tool = world.book(then=anyio.sleep_forever, timeout_ms=300, idempotent=True)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        run = await meanwhile(hf, lambda: started(hf, "await book('bed')"), answers(hf))
        assert run.error is not None
        assert run.error.code == "TIMEOUT_TOOL"


@pytest.mark.parametrize(("how", "heard"), [("denied", "decline"), ("later", "cancel")])
async def test_no_is_an_answer_too(how: str, heard: str) -> None:
    world = Held()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:

        async def pass_on(_: ApprovalView) -> None:
            later(hf)

        then = pass_on if how == "later" else answers(hf, how)
        run = await meanwhile(hf, lambda: started(hf), then)
        assert run.result == f"bed: {heard}"


async def test_who_is_there_is_asked() -> None:
    world = Held()
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book()], on_approval=lambda _: Filled({"size": 9})
    ) as hf:
        assert (await started(hf)).result == "bed: accept"
        assert world.heard[0].content == {"size": 9}


async def test_same_question_twice_is_two_questions() -> None:
    world = Held()
    async with holdfast.open(
        "memory:",
        UNJAILED,
        capabilities=[world.book(SIZE, SIZE)],
        on_approval=lambda _: Filled({"size": 9}),
    ) as hf:
        await started(hf)
        assert len(world.heard) == len(await hf.approvals.list(status="all")) == 2


async def test_questions_are_bounded_and_secrets_are_not_asked_for() -> None:
    world = Held()
    secret = Question(
        Asks.INPUT, "?", {"type": "object", "properties": {"p": {"format": "password"}}}
    )
    async with holdfast.open(
        "memory:",
        UNJAILED,
        capabilities=[world.book(*[SIZE] * 11)],
        on_approval=lambda _: Filled({"size": 9}),
    ) as hf:
        assert "10 times already" in str((await started(hf)).result)
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(secret)]) as hf:
        assert "asks a person for a secret" in str((await started(hf)).result)
        assert await hf.approvals.list(status="all") == []


async def test_whoever_looks_what_became_of_a_call_asks_nobody() -> None:
    heard: list[Answer] = []

    async def book(what: str, context: Context) -> str:
        """Book something."""
        await anyio.sleep_forever()
        return what

    async def look(context: Context) -> str:
        heard.append(await context.ask(SIZE))
        return "it is booked"

    tool = capability(book, side_effect="write", timeout_ms=50, reconcile=look)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        assert (await started(hf)).result == "it is booked"
        assert heard == [Answer("cancel")]
        assert await hf.approvals.list(status="all") == []


async def test_dry_run_asks_nobody() -> None:
    world = Held()
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book(side_effect="read")]
    ) as hf:
        assert (await started(hf, dry_run=True)).result == "bed: cancel"
        assert await hf.approvals.list(status="all") == []


async def test_cancelled_run_withdraws_its_question() -> None:
    world = Held()
    tool = world.book(idempotent=True)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:

        async def stop(view: ApprovalView) -> None:
            await hf.runs.cancel(str(view.run_id))

        run = await meanwhile(hf, lambda: started(hf), stop)
        assert run.status == "cancelled"
        (view,) = await hf.approvals.list(status="all")
        assert (view.status, world.heard) == ("cancelled", [])


@pytest.mark.parametrize("how", ["now", "after_effect", "its caller", "it ends"])
async def test_who_asks_for_a_call_elsewhere_stops_with_it(how: str) -> None:
    """Not the call asks, but whoever has its connection; the answer that nobody wants any more is not recorded twice."""
    heard: list[Answer] = []
    ends = anyio.Event()

    async def book(what: str, context: Context) -> str:
        """Book something."""

        async def aside() -> None:
            heard.append(await context.ask(SIZE))

        connection.start_soon(aside)
        await ends.wait()
        return what

    tool = capability(book, side_effect="external_system", idempotent=True)
    async with (
        holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf,
        anyio.create_task_group() as connection,
    ):
        async with anyio.create_task_group() as caller:
            caller.start_soon(started, hf)
            view = await pending(hf)
            if how == "its caller":
                caller.cancel_scope.cancel()
            elif how == "it ends":
                ends.set()
            else:
                await hf.runs.cancel(
                    str(view.run_id), mode="now" if how == "now" else "after_effect"
                )
        for _ in range(2):
            assert (await hf.shell.run("1 + 1", session="s")).result == 2
        (view,) = await hf.approvals.list(status="all")
        assert view.status == "cancelled"
        found = [one.kind for one in await hf.runs.records(str(view.run_id))]
        assert found.count("approval_settled") == 1
    assert heard == [Answer("cancel")]


async def test_question_that_nobody_waits_for_any_more_is_withdrawn() -> None:
    """The capability gives up on its question, and goes on."""
    kept: list[Context] = []

    async def book(what: str, context: Context) -> str:
        """Book something."""
        kept.append(context)
        with anyio.move_on_after(0.1):
            await context.ask(SIZE)
        return what

    tool = capability(book, side_effect="external_system")
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        run = await started(hf)
        assert run.result == "bed"
        (view,) = await hf.approvals.list(status="all")
        assert view.status == "cancelled"
        assert (await hf.runs.show(str(run.run_id))).pending_approvals == ()
        assert await kept[0].ask(SIZE) == Answer("cancel")  # the call is over


async def test_journal_that_fails_is_not_the_capabilitys_failure() -> None:
    world = Held()
    journal = FailsAt(MemoryJournal(), "approval_requested")
    with pytest.raises(JournalError) as raised:
        async with holdfast.open(journal, UNJAILED, capabilities=[world.book()]) as hf:
            await started(hf)
    assert raised.value.code == FAILURE.code


# -- its process dies -----------------------------------------------------------------------------------


async def died(tool: Declared[..., Any], upto: Callable[[Record], bool]) -> MemoryJournal:
    """The journal of a process that died in the middle of a call that asks."""
    journal = MemoryJournal()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        await meanwhile(hf, lambda: started(hf), answers(hf))
    return await copy(journal, upto)


def dispatched(record: Record) -> bool:
    """The question is on record, and nobody has answered."""
    return record.kind == "effect_intent" and str(record.effect_id).endswith("_q1")


def responded(record: Record) -> bool:
    """It was answered, and its call does not know."""
    return record.kind == "approval_responded"


async def the_run(journal: Journal) -> str:
    (row,) = await journal.rows("runs", tag="active")
    return row.key


async def test_open_question_is_not_asked_again() -> None:
    world = Held()
    tool = world.book(idempotent=True)
    journal = await died(tool, dispatched)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        (before,) = await hf.approvals.list()
        run_id = await the_run(journal)
        run = await meanwhile(hf, lambda: hf.runs.resume(run_id), answers(hf))
        assert run.result == "bed: accept"
        (view,) = await hf.approvals.list(status="all")
        assert (view.id, view.status) == (before.id, "approved")


async def test_recorded_answer_is_taken() -> None:
    world = Held()
    tool = world.book(idempotent=True)
    journal = await died(tool, responded)
    world.heard.clear()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run = await hf.runs.resume(await the_run(journal))
        assert run.result == "bed: accept"
        assert world.heard == [Answer("accept", {"size": 3}, STATE)]
        assert len(await hf.approvals.list(status="all")) == 1
        assert len(await said(hf, run, "approval_settled")) == 1
        assert (await hf.journal.verify()).ok


async def test_another_question_is_asked_anew() -> None:
    """The recorded answer is one to the question that was asked, and the old question is withdrawn."""
    world = Held()
    journal = await died(world.book(idempotent=True), dispatched)
    other = Question(Asks.INPUT, "Which size, in centimetres?", FORM, key="size")
    tool = world.book(other, idempotent=True)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, found = await the_run(journal), list[RunResult]()

        async def go() -> None:
            found.append(await hf.runs.resume(run_id))

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            views = await until(hf.approvals.list, lambda views: len(views) == 2)
            (new,) = [one for one in views if "centimetres" in one.summary]
            await hf.approvals.decide(new.id, "approved", content={"size": 80})
        assert world.heard[-1].content == {"size": 80}
        status = {one.summary: one.status for one in await hf.approvals.list(status="all")}
        assert status == {SIZE.message: "cancelled", other.message: "approved"}


async def test_in_doubt_until_a_person_releases_it() -> None:
    world = Held()
    tool = world.book()
    journal = await died(tool, responded)
    world.heard.clear()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run = await hf.runs.resume(await the_run(journal))
        assert (run.status, world.heard) == ("interrupted", [])
        await hf.runs.resolve(str(run.run_id), run.in_doubt[0], "retry")
        run = await hf.runs.resume(str(run.run_id))
        assert (run.result, len(world.heard)) == ("bed: accept", 1)
        assert len(await hf.approvals.list(status="all")) == 1


async def test_what_happened_needs_no_answer() -> None:
    world = Held()
    tool = world.book()
    journal = await died(tool, dispatched)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run = await hf.runs.resume(await the_run(journal))
        assert run.status == "interrupted"
        assert len(await hf.approvals.list()) == 1
        await hf.runs.resolve(str(run.run_id), run.in_doubt[0], "happened", value="it is booked")
        run = await hf.runs.resume(str(run.run_id))
        assert run.result == "it is booked"
        (view,) = await hf.approvals.list(status="all")
        assert view.status == "cancelled"


async def test_late_answer_to_a_withdrawn_question_does_not_count() -> None:
    world = Held()
    tool = world.book()
    journal = await died(tool, dispatched)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        (view,) = await hf.approvals.list()
        await hf.runs.cancel(str(view.run_id))
        with pytest.raises(HoldfastError) as raised:
            await hf.approvals.decide(view.id, "approved", content={"size": 3})
        assert raised.value.code == "APPROVAL_CLOSED"
