"""An approval is bound to what was shown, used once, in time, and by somebody whose name is on record."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.support import CAUGHT, World, answers, approve, kinds, later, parked, said, until

import holdfast
from holdfast import Decision, RunResult, capability
from holdfast.errors import CallerError, Conflict, NotFound
from holdfast.journal import MemoryJournal
from holdfast.testing import FakeClock


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


# -- bound --------------------------------------------------------------------------------------------


async def test_what_is_shown_is_what_is_called() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, "result = send(to='ann')", actor="agent:7")
        (view,) = await hf.approvals.list()
        assert (view.tool, view.arguments, view.session_id) == ("send", {"to": "ann"}, "s")
        assert (view.run_id, view.side_effect, view.risk) == (run.run_id, "external_system", "high")
        assert await hf.approvals.show(view.id) == view
        run = await approve(hf, run)
        assert world.done == ["ann"]
        request, intent = await said(hf, run, "effect_intent")
        assert intent["content_refs"] == [view.arguments_digest] == request["content_refs"]


async def test_what_was_denied_is_on_record_as_it_was_asked_for(url: str) -> None:
    """Denied in another process, where the code stands at the call and does not say again what it wants."""
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        (view,) = await hf.approvals.list()
        waits = run.external_calls[0].request_digest
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, run, "denied")
        assert run.external_calls[0].request_digest == waits
        _, intent = await said(hf, run, "effect_intent")
        assert intent["request"] == waits
        assert intent["content_refs"] == [view.arguments_digest]
        assert await hf.journal.content(intent["content_refs"][0]) == b'{"to":"ann"}'
        assert (await hf.shell.run("result", session="s")).result == run.result
    assert world.done == []


async def test_capability_that_changed_is_not_released(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        await hf.approvals.decide(str(run.approval_id), "approved")

    def send(to: str, copy: bool = False) -> str:
        """Send something to somebody else."""
        world.done.append((to, copy))
        return "sent"

    changed = capability(send, side_effect="external_system")
    async with holdfast.open(url, {}, capabilities=[changed]) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert run.status == "ok"
        assert "approval.capability_changed" in str(run.result)
        assert world.done == []
        (settled,) = await said(hf, run, "approval_settled")
        assert settled["reason_code"] == "approval.capability_changed"
        statuses = {one.kind: one.status for one in await hf.runs.effects(str(run.run_id))}
        assert statuses["tool_execution"] == "denied_before_execution"
        assert statuses["approval_dispatch"] == "denied_before_execution"
        # Asked again, the new form is shown, and can be approved.
        run = await approve(hf, await parked(hf, "result = send('ann')"))
        assert (run.result, world.done) == ("sent", [("ann", False)])


async def test_rule_that_denies_by_now_goes_before_the_answer(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        await hf.approvals.decide(str(run.approval_id), "approved")
    never: dict[str, Any] = {"policy": {"rules": [{"id": "never", "tool": "send", "then": "deny"}]}}
    async with holdfast.open(url, never, capabilities=[world.send()]) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert "never" in str(run.result)
        (settled,) = await said(hf, run, "approval_settled")
        assert (settled["status"], settled["reason_code"]) == ("denied", "approval.void")
        for effect in await hf.runs.effects(str(run.run_id)):
            assert effect.status == "denied_before_execution"
    assert world.done == []


async def test_description_and_limits_may_change(url: str) -> None:
    """What the caller can't tell from the outside does not void an answer."""
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        await hf.approvals.decide(str(run.approval_id), "approved")
    again = world.send(description="The same, in other words.", timeout_ms=1234)
    async with holdfast.open(url, {}, capabilities=[again]) as hf:
        assert (await hf.runs.resume(str(run.run_id))).result == "sent to ann"


# -- once ---------------------------------------------------------------------------------------------


async def test_an_approval_is_used_once() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, "for i in range(3):\n    send('ann')\nresult = i")
        for turn in range(1, 4):
            assert world.done == ["ann"] * (turn - 1)
            first = run.approval_id
            run = await approve(hf, run)
            assert run.approval_id != first
        assert (run.status, run.result, world.done) == ("ok", 2, ["ann"] * 3)
        assert len(await hf.approvals.list(status="all")) == 3


async def test_resuming_twice_gives_the_same_and_calls_once() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, await parked(hf))
        again = await hf.runs.resume(str(run.run_id))
        assert (again.status, again.result) == (run.status, run.result)
        assert world.done == ["ann"]


async def test_resuming_without_an_answer_changes_nothing() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        before = await kinds(hf, run)
        again = await hf.runs.resume(str(run.run_id))
        assert again == run
        assert await kinds(hf, run) == before


# -- in time ------------------------------------------------------------------------------------------


async def test_deadline_fires_though_nobody_was_running(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        later(hf)
        assert await hf.approvals.list() == []
        (view,) = await hf.approvals.list(status="all")
        assert (view.status.value, view.reason_code) == ("timed_out", "approval.timeout")
        run = await hf.runs.resume(str(run.run_id))
        assert "approval.timeout" in str(run.result)
        assert run.external_calls[0].error is not None
        assert run.external_calls[0].error.code == "PERMISSION_DENIED"
    assert world.done == []


async def test_timed_out_and_uncaught_ends_the_run() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        later(hf)
        run = await hf.runs.resume(str(run.run_id))
        assert run.status == "permission_denied"
        assert run.error is not None
        assert run.error.code == "PERMISSION_DENIED"


async def test_deadline_of_the_rule() -> None:
    world, clock = World(), FakeClock()
    rule = {"id": "quick", "then": "ask", "timeout_ms": 5000}
    config = {"policy": {"rules": [rule]}, "approvals": {"timeout_ms": 60_000}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        hf.approvals.now = clock
        await parked(hf)
        (view,) = await hf.approvals.list()
        assert view.deadline == clock.now + 5000
        clock.advance(5000)
        assert len(await hf.approvals.list()) == 1
        clock.advance(1)
        assert await hf.approvals.list() == []


async def test_late_answer_is_refused_and_recorded() -> None:
    world, clock = World(), FakeClock()
    journal, config = MemoryJournal(clock=clock), {"approvals": {"timeout_ms": 1000}}
    async with holdfast.open(journal, config, capabilities=[world.send()]) as hf:
        hf.approvals.now = clock
        run = await parked(hf)
        clock.advance(1001)
        with pytest.raises(Conflict) as raised:  # nobody had looked at the deadline before
            await hf.approvals.decide(str(run.approval_id), "approved", actor="ann")
        assert raised.value.code == "APPROVAL_CLOSED"
        assert await answers(hf.journal) == [
            ("approval_ended", None, "approval.timeout"),
            ("approval_refused", "approved", "approval.late_response"),
        ]
        assert (await hf.runs.resume(str(run.run_id))).status == "permission_denied"
    assert world.done == []


async def test_second_answer_is_refused_and_recorded() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        await hf.approvals.decide(str(run.approval_id), "denied", actor="ann")
        with pytest.raises(Conflict) as raised:
            await hf.approvals.decide(str(run.approval_id), "approved", actor="bob")
        assert raised.value.code == "APPROVAL_CLOSED"
        assert [kind for kind, _, _ in await answers(hf.journal)] == [
            "approval_responded",
            "approval_refused",
        ]
        assert str((await hf.runs.resume(str(run.run_id))).result).startswith("no: ")
    assert world.done == []


async def test_answer_after_a_cancel_is_refused() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        await hf.runs.cancel(str(run.run_id))
        with pytest.raises(Conflict):
            await hf.approvals.decide(str(run.approval_id), "approved")
        assert (await answers(hf.journal))[-1] == (
            "approval_refused",
            "approved",
            "approval.late_response",
        )


# -- by somebody --------------------------------------------------------------------------------------


async def test_who_answered_is_on_record() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        view = await hf.approvals.decide(
            str(run.approval_id), Decision.APPROVED, actor="ann", via="http:token:7", reason="fine"
        )
        assert view.decision is not None
        assert (view.decision.actor, view.decision.via) == ("ann", "http:token:7")
        (record,) = [one async for one in hf.journal.read("holdfast:approvals")]
        assert record.actor == "ann"
        told: Any = record.payload["decision"]
        assert (told["actor"], told["via"], told["reason"]) == ("ann", "http:token:7", "fine")
        run = await hf.runs.resume(str(run.run_id))
        (settled,) = await said(hf, run, "approval_settled")
        assert settled["decision"] == told


async def test_reason_of_a_denial_reaches_the_code() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        await hf.approvals.decide(str(run.approval_id), "denied", reason="Ann is on holiday.")
        run = await hf.runs.resume(str(run.run_id))
        assert "Ann is on holiday." in str(run.result)


@pytest.mark.parametrize(
    "word", ["yes", "Approved", "approve", " approved", "APPROVED", "ok", "", "true"]
)
async def test_only_the_exact_words_count(word: str) -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        with pytest.raises(CallerError) as raised:
            await hf.approvals.decide(str(run.approval_id), word)
        assert raised.value.code == "INVALID_ARGUMENT"
        assert len(await hf.approvals.list()) == 1
    assert world.done == []


async def test_unknown_id_is_refused_and_recorded() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        with pytest.raises(NotFound):
            await hf.approvals.decide("apr_nobody", "approved", actor="mallory")
        assert await answers(hf.journal) == [
            ("approval_refused", "approved", "approval.unknown_request")
        ]
        with pytest.raises(NotFound):
            await hf.approvals.decide("x" * 100_000, "approved")
        with pytest.raises(NotFound):
            await hf.approvals.show("apr_nobody")


async def test_extension_can_not_answer_itself() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, actor="extension:x")
        for word in ("approved", "denied"):
            with pytest.raises(CallerError) as raised:
                await hf.approvals.decide(str(run.approval_id), word, actor="extension:x")
            assert raised.value.code == "DECISION_REFUSED"
        assert [code for _, _, code in await answers(hf.journal)] == [
            "approval.extension_self_response"
        ] * 2
        assert (await approve(hf, run)).result == "sent to ann"  # somebody else can


async def test_forged_settlement_is_refused_by_the_journal() -> None:
    """Not even whoever holds the session's stream can say that an approval was given."""
    from holdfast.contracts import ApprovalStatus, Draft
    from holdfast.contracts.payload import ApprovalEnded, ApprovalSettled

    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        key = str(run.approval_id)
        approved = ApprovalStatus.APPROVED
        settled = ApprovalSettled(id=key, status=approved, reason_code="approval.approved")
        with pytest.raises(CallerError, match="ILLEGAL_RECORD"):
            await hf.shell.record("s", [Draft.of(settled, run_id=run.run_id)])
        forged = ApprovalEnded(id=key, status=approved, reason_code="approval.approved")
        with pytest.raises(CallerError, match="ILLEGAL_RECORD"):
            await hf.journal.append("holdfast:approvals", [Draft.of(forged)])
        assert (await hf.approvals.show(key)).status == "pending"
    assert world.done == []


# -- several at once ----------------------------------------------------------------------------------


ANSWER = """
import sys, anyio, holdfast
async def main():
    async with holdfast.open(sys.argv[1], {}) as hf:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            await hf.approvals.decide(sys.argv[2], sys.argv[3], actor=sys.argv[3])
            print("counted")
        except holdfast.HoldfastError as why:
            print(why.code)
anyio.run(main)
"""


async def test_of_two_processes_exactly_one_counts(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)

    def other(word: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", ANSWER, url, str(run.approval_id), word],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with other("approved") as one, other("denied") as two:
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        outcomes = {
            word: process.communicate("go\n", timeout=60)[0].strip()
            for word, process in (("approved", one), ("denied", two))
        }
    assert sorted(outcomes.values()) == ["APPROVAL_CLOSED", "counted"]
    winner = next(word for word, outcome in outcomes.items() if outcome == "counted")
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        (view,) = await hf.approvals.list(status="all")
        assert view.status.value == winner
        found = await answers(hf.journal)
        assert sorted(kind for kind, _, _ in found) == ["approval_refused", "approval_responded"]
        await hf.runs.resume(str(run.run_id))
    assert world.done == (["ann"] if winner == "approved" else [])


async def test_of_many_answers_at_once_exactly_one_counts() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        counted = list[str]()

        async def answer(actor: str) -> None:
            try:
                await hf.approvals.decide(str(run.approval_id), "approved", actor=actor)
                counted.append(actor)
            except Conflict:
                pass

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(answer, f"person-{n}")
        assert len(counted) == 1
        view = await hf.approvals.show(str(run.approval_id))
        assert view.decision is not None
        assert view.decision.actor == counted[0]


GATHER = """
import asyncio
async def one(to):
    try:
        return await asend(to)
    except PermissionError as why:
        return "no"
async def main():
    return await asyncio.gather(one("ann"), one("bob"), work("x"))
result = await main()
"""


async def test_answered_while_other_branches_still_run() -> None:
    """An answer that comes while the run is at work is taken up without parking."""
    world, started, go = World(), anyio.Event(), anyio.Event()

    async def work(what: str) -> str:
        started.set()
        await go.wait()
        return what

    tools = [world.asend(), capability(work, side_effect="read")]
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        found = list[RunResult]()

        async def run() -> None:
            found.append(await hf.shell.run(GATHER, session="s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            for view in await until(lambda: hf.approvals.list(), lambda found: len(found) == 2):
                who: Any = view.arguments
                word = "approved" if who["to"] == "ann" else "denied"
                await hf.approvals.decide(view.id, word)
            await world.called.wait()  # while the third branch still works
            go.set()
        assert found[0].status == "ok"
        assert found[0].result == ["sent to ann", "no", "x"]
        assert "run_parked" not in await kinds(hf, found[0])


async def test_an_answer_that_a_call_has_not_seen_yet_is_waited_for() -> None:
    """The last thing that a run has to do ends just after somebody answered: it goes on, and does not park."""
    world, go, runtime = World(), anyio.Event(), list[holdfast.Runtime]()

    async def work(what: str) -> str:
        await go.wait()
        (asked,) = await runtime[0].approvals.list()
        await runtime[0].approvals.decide(asked.id, "approved")
        return what

    tools = [world.asend(), capability(work, side_effect="read")]
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        runtime.append(hf)
        found = list[RunResult]()

        async def run() -> None:
            code = "import asyncio\nawait asyncio.gather(asend('ann'), work('x'))"
            found.append(await hf.shell.run(code, session="s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: hf.approvals.list(), lambda found: len(found) == 1)
            go.set()
        assert found[0].result == ["sent to ann", "x"]
        assert "run_parked" not in await kinds(hf, found[0])


async def by_name(hf: holdfast.Runtime) -> list[holdfast.ApprovalView]:
    """What waits, by whom it is for: branches are asked about in any order."""
    return sorted(await hf.approvals.list(), key=lambda view: str(view.arguments))


async def test_parks_with_two_questions_and_goes_on_with_each_answer(url: str) -> None:
    world = World()
    tools = [world.asend(), capability(_work, name="work", side_effect="read")]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        run = await parked(hf, GATHER)
        ann, bob = await by_name(hf)
        await hf.approvals.decide(bob.id, "approved")
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert run.status == "waiting_for_approval"
        assert run.approval_id == ann.id
        assert world.done == ["bob"]
        await hf.approvals.decide(ann.id, "approved")
        run = await hf.runs.resume(str(run.run_id))
        assert run.result == ["sent to ann", "sent to bob", "x"]
    assert world.done == ["bob", "ann"]


async def _work(what: str) -> str:
    return what


async def test_deny_one_of_two(url: str) -> None:
    world = World()
    tools = [world.asend(), capability(_work, name="work", side_effect="read")]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        run = await parked(hf, GATHER)
        ann, bob = await by_name(hf)
        await hf.approvals.decide(ann.id, "denied")
        await hf.approvals.decide(bob.id, "approved")
        run = await hf.runs.resume(str(run.run_id))
        assert run.result == ["no", "sent to bob", "x"]


async def test_faster_person_beats_the_dispatcher() -> None:
    """Whoever looks into the inbox may answer while the callback still thinks; the callback is then too late."""
    world, asked, go = World(), anyio.Event(), anyio.Event()

    async def slow(_: holdfast.ApprovalView) -> str:
        asked.set()
        await go.wait()
        return "approved"

    async with holdfast.open("memory:", {}, capabilities=[world.send()], on_approval=slow) as hf:
        found = list[RunResult]()

        async def run() -> None:
            found.append(await hf.shell.run(CAUGHT, session="s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await asked.wait()
            (view,) = await hf.approvals.list()
            await hf.approvals.decide(view.id, "denied", actor="ann", reason_code="not.today")
        assert "not.today" in str(found[0].result)
    assert world.done == []


async def test_session_with_a_waiting_run_takes_no_other() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        with pytest.raises(CallerError) as raised:
            await hf.shell.run("1", session="s")
        assert raised.value.code == "RUN_OPEN"
        assert (await hf.shell.run("1 + 1", session="other")).result == 2
        assert (await approve(hf, run)).status == "ok"
        assert (await hf.shell.run("2", session="s")).result == 2
