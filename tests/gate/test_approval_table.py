"""How asking can end: every row of the table, what is recorded of it, and whether the call is made.

Where the table has an intent and a result, we have the request before the intent, and the settlement after the
result: who may answer, and who did, is on record, and an approval is used once. A refused call is on record as an
effect that was denied before it was executed.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from tests.gate.support import CAUGHT, FailsAt, World, answers, approve, kinds, later, parked, said

import holdfast
from holdfast import ApprovalDecision, Decision, RunResult
from holdfast.errors import JournalError
from holdfast.gate.dispatch import NoAnswer
from holdfast.journal import MemoryJournal
from holdfast.testing import FaultyJournal

ASKED = ["run_started", "approval_requested", "effect_intent"]
WAITED = ["run_parked", "run_resumed"]
SETTLED = ["effect_result", "approval_settled"]
CALLED = ["effect_intent", "effect_result", "run_completed"]
"""Of a call that was made, and of one that was refused: those differ in what the result says."""


@dataclass
class Row:
    """One way in which asking ends."""

    id: str
    effect: str
    """Status of the effect of asking."""
    status: str
    """Status of the approval."""
    code: str
    """Reason code."""
    summary: str
    decision: str | None = None
    """The decision on record in the settlement."""
    says: Any = None
    """What the dispatcher answers, or raises."""
    risk: str = "high"
    actor: str = "holdfast"
    recorded: tuple[tuple[str, str | None, str | None], ...] = ()
    """What comes in as an answer."""

    @property
    def released(self) -> bool:
        return self.status in ("approved", "approved_for_session")


def _decided(decision: str, **more: Any) -> ApprovalDecision:
    return ApprovalDecision(decision=Decision(decision), **more)


DENIED = "denied_before_execution"
ROWS = [
    Row(
        id="approved",
        says="approved",
        effect="completed",
        status="approved",
        code="approval.approved",
        summary="approval approved",
        decision="approved",
        recorded=(("approval_responded", "approved", None),),
    ),
    Row(
        id="approved for session",
        says="approved_for_session",
        effect="completed",
        status="approved_for_session",
        code="approval.approved_for_session",
        summary="approval approved for session",
        decision="approved_for_session",
        recorded=(("approval_responded", "approved_for_session", None),),
    ),
    Row(
        id="denied",
        says=_decided("denied", reason_code="too.much", actor="bob"),
        effect=DENIED,
        status="denied",
        code="too.much",
        summary="approval denied",
        decision="denied",
        recorded=(("approval_responded", "denied", "too.much"),),
    ),
    Row(
        id="denied without a word",
        says=False,
        effect=DENIED,
        status="denied",
        code="approval.denied",
        summary="approval denied",
        decision="denied",
        recorded=(("approval_responded", "denied", "approval.denied"),),
    ),
    Row(
        id="not offered",
        says="approved_for_session",
        risk="critical",
        effect=DENIED,
        status="denied",
        code="approval.decision_not_allowed",
        summary="approval decision not allowed",
        decision="denied",
        recorded=(("approval_refused", "approved_for_session", "approval.decision_not_allowed"),),
    ),
    Row(
        id="an extension approves itself",
        says=_decided("approved", actor="extension:x"),
        actor="extension:x",
        effect=DENIED,
        status="denied",
        code="approval.extension_self_response",
        summary="extension cannot approve its own action",
        decision="denied",
        recorded=(("approval_refused", "approved", "approval.extension_self_response"),),
    ),
    Row(
        id="an extension denies itself",
        says=_decided("denied", actor="extension:x", reason_code="own"),
        actor="extension:x",
        effect=DENIED,
        status="denied",
        code="approval.extension_self_response",
        summary="extension cannot approve its own action",
        decision="denied",
        recorded=(("approval_refused", "denied", "approval.extension_self_response"),),
    ),
    Row(
        id="self response goes before not offered",
        says=_decided("approved_for_session", actor="extension:x"),
        actor="extension:x",
        risk="critical",
        effect=DENIED,
        status="denied",
        code="approval.extension_self_response",
        summary="extension cannot approve its own action",
        decision="denied",
        recorded=(
            ("approval_refused", "approved_for_session", "approval.extension_self_response"),
        ),
    ),
    Row(
        id="timed out",
        says=NoAnswer("timed_out"),
        effect="timed_out",
        status="timed_out",
        code="approval.timeout",
        summary="approval timed out",
    ),
    Row(
        id="dispatcher cancelled",
        says=NoAnswer("cancelled"),
        effect="cancelled",
        status="cancelled",
        code="approval.cancelled",
        summary="approval cancelled",
    ),
    Row(
        id="unavailable",
        says=NoAnswer("unavailable", "pager.down"),
        effect="failed",
        status="dispatcher_unavailable",
        code="pager.down",
        summary="approval dispatcher unavailable",
    ),
    Row(
        id="no answer",
        says=None,
        effect="failed",
        status="dispatcher_unavailable",
        code="approval.no_answer",
        summary="approval dispatcher unavailable",
    ),
    Row(
        id="raises",
        says=RuntimeError("the pager is broken"),
        effect="failed",
        status="dispatcher_unavailable",
        code="approval.dispatcher_error",
        summary="approval dispatcher failed: RuntimeError",
    ),
    Row(
        id="no such word",
        says="yes",
        effect=DENIED,
        status="denied",
        code="approval.invalid_answer",
        summary="approval denied",
        decision="denied",
        recorded=(("approval_responded", "denied", "approval.invalid_answer"),),
    ),
]
IDS = [row.id for row in ROWS]


async def check(
    hf: holdfast.Runtime, run: RunResult, row: Row, world: World, *, waited: bool = False
) -> None:
    """Compare what is on record with the row."""
    between = WAITED if waited else []
    granted = ["grant_given"] if row.status == "approved_for_session" else []
    assert await kinds(hf, run) == [*ASKED, *between, *SETTLED, *granted, *CALLED]
    asking, call = await said(hf, run, "effect_result")
    assert (asking["terminal_status"], asking["redacted_summary"]) == (row.effect, row.summary)
    (settled,) = await said(hf, run, "approval_settled")
    assert (settled["status"], settled["reason_code"]) == (row.status, row.code)
    decision: Any = settled.get("decision") or {}
    assert decision.get("decision") == row.decision
    (view,) = await hf.approvals.list(status="all")
    assert (view.status.value, view.reason_code) == (row.status, row.code)
    assert await hf.approvals.list() == []
    assert world.done == (["ann"] if row.released else [])
    assert call["terminal_status"] == ("completed" if row.released else DENIED)
    assert run.status == "ok"
    if row.released:
        assert run.result == "sent to ann"
    else:
        assert str(run.result).startswith("no: ")
        assert row.code in str(run.result)
        if row.decision is None:  # nobody has decided, so nobody said no
            assert "person" not in str(run.result)
            assert "denied" not in str(run.result)
    assert await answers(hf.journal) == list(row.recorded)
    for effect in await hf.runs.effects(str(run.run_id)):
        assert effect.status not in ("open", "unknown")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["function", "coroutine"])
@pytest.mark.parametrize("row", ROWS, ids=IDS)
async def test_callback(row: Row, asynchronous: bool) -> None:
    def asked(_: holdfast.ApprovalView) -> Any:
        if isinstance(row.says, Exception):
            raise row.says
        return row.says

    async def asked_later(view: holdfast.ApprovalView) -> Any:
        return asked(view)

    world = World()
    tools = [world.send(risk=row.risk)]
    callback = asked_later if asynchronous else asked
    async with holdfast.open("memory:", {}, capabilities=tools, on_approval=callback) as hf:
        run = await hf.shell.run(CAUGHT, session="s", actor=row.actor)
        await check(hf, run, row, world)


def _program(answer: str, *, code: int = 0) -> list[str]:
    text = f"import sys; sys.stdin.read(); print({answer!r}); sys.exit({code})"
    return [sys.executable, "-c", text]


COMMANDS = [
    (IDS.index("approved"), _program('{"decision": "approved"}')),
    (IDS.index("approved for session"), _program('{"decision": "approved_for_session"}')),
    (IDS.index("denied"), _program('{"decision": "denied", "reason_code": "too.much"}')),
    (IDS.index("not offered"), _program('{"decision": "approved_for_session"}')),
    (
        IDS.index("an extension approves itself"),
        _program('{"decision": "approved", "actor": "extension:x"}'),
    ),
    (IDS.index("no such word"), _program('{"decision": "yes"}')),
]


@pytest.mark.parametrize(("at", "command"), COMMANDS, ids=[IDS[at] for at, _ in COMMANDS])
async def test_command(at: int, command: list[str]) -> None:
    row, world = ROWS[at], World()
    config = {"approvals": {"command": command}}
    tools = [world.send(risk=row.risk)]
    async with holdfast.open("memory:", config, capabilities=tools) as hf:
        run = await hf.shell.run(CAUGHT, session="s", actor=row.actor)
        await check(hf, run, row, world)


@pytest.mark.parametrize(
    "command",
    [
        _program('{"decision": "approved"}', code=1),
        _program("approved"),
        _program('["approved"]'),
        _program(""),
        [sys.executable, "-c", "print('x' * 100_000)"],
    ],
    ids=["exit code", "no JSON", "no object", "nothing", "too long"],
)
async def test_command_that_fails_denies(command: list[str]) -> None:
    world = World()
    row = Row(
        id="command fails",
        effect="failed",
        status="dispatcher_unavailable",
        code="approval.command_failed",
        summary="approval dispatcher unavailable",
    )
    config = {"approvals": {"command": command}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        run = await hf.shell.run(CAUGHT, session="s")
        await check(hf, run, row, world)
        assert "the program that was to decide failed" in str(run.result)


async def test_command_that_is_not_there_denies() -> None:
    world = World()
    row = Row(
        id="no command",
        effect="failed",
        status="dispatcher_unavailable",
        code="approval.dispatcher_error",
        summary="approval dispatcher failed: FileNotFoundError",
    )
    config = {"approvals": {"command": ["/no/such/program"]}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        await check(hf, await hf.shell.run(CAUGHT, session="s"), row, world)


INBOX = [row for row in ROWS if row.id in ("approved", "approved for session", "denied")]


@pytest.mark.parametrize("row", INBOX, ids=[row.id for row in INBOX])
async def test_inbox(row: Row) -> None:
    """Nobody is there: the run parks, and whoever looks answers."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        assert await kinds(hf, run) == [*ASKED, "run_parked"]
        assert world.done == []
        code = row.code if row.id == "denied" else None
        await hf.approvals.decide(str(run.approval_id), row.status, reason_code=code)
        run = await hf.runs.resume(str(run.run_id))
        await check(hf, run, row, world, waited=True)


async def test_inbox_timed_out() -> None:
    row = next(row for row in ROWS if row.id == "timed out")
    row = Row(**{**vars(row), "recorded": (("approval_ended", None, "approval.timeout"),)})
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, CAUGHT)
        later(hf)
        run = await hf.runs.resume(str(run.run_id))
        await check(hf, run, row, world, waited=True)


async def test_callback_that_is_too_slow() -> None:
    """The deadline is ours, not the dispatcher's."""
    row = next(row for row in ROWS if row.id == "timed out")
    row = Row(**{**vars(row), "recorded": (("approval_ended", None, "approval.timeout"),)})
    world = World()

    async def never(_: holdfast.ApprovalView) -> str:
        await anyio.sleep_forever()
        return "approved"

    config = {"approvals": {"timeout_ms": 1}}
    tools = [world.send()]
    async with holdfast.open("memory:", config, capabilities=tools, on_approval=never) as hf:
        await check(hf, await hf.shell.run(CAUGHT, session="s"), row, world)


async def test_nobody_to_ask() -> None:
    world = World()
    row = Row(
        id="nobody",
        effect="failed",
        status="denied",
        code="missing.approval_dispatcher",
        summary="approval dispatcher unavailable",
    )
    config = {"approvals": {"inbox": False}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        await check(hf, await hf.shell.run(CAUGHT, session="s"), row, world)


# -- cancelled ----------------------------------------------------------------------------------------


async def check_cancelled(hf: holdfast.Runtime, run_id: str, world: World) -> None:
    """The effect of asking has ended, the approval is withdrawn, and nothing was called."""
    (asking,) = await hf.runs.effects(run_id)
    assert (asking.kind, asking.status) == ("approval_dispatch", "cancelled")
    (view,) = await hf.approvals.list(status="all")
    assert (view.status.value, view.reason_code) == ("cancelled", "approval.cancelled")
    records = await hf.runs.records(run_id)
    (settled,) = [record.payload for record in records if record.kind == "approval_settled"]
    assert (settled["status"], settled["reason_code"]) == ("cancelled", "approval.cancelled")
    assert records[-1].kind == "run_cancelled"
    assert ("approval_ended", None, "approval.cancelled") in await answers(hf.journal)
    assert world.done == []


async def test_cancelled_while_it_waits_in_the_inbox() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        await hf.runs.cancel(str(run.run_id))
        await check_cancelled(hf, str(run.run_id), world)


async def test_cancelled_while_somebody_is_asked() -> None:
    world, asked, stopped = World(), anyio.Event(), anyio.Event()

    async def slow(_: holdfast.ApprovalView) -> str:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return "approved"

    tools, found, run_id = [world.send()], list[RunResult](), ""
    async with holdfast.open("memory:", {}, capabilities=tools, on_approval=slow) as hf:

        async def run() -> None:
            found.append(await hf.shell.run("send('ann')", session="s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await asked.wait()
            (active,) = await hf.runs.list(status="active")
            run_id = active.id
            await hf.runs.cancel(run_id)
        assert found[0].status == "cancelled"
        assert stopped.is_set()  # whoever was asked hears that it is over
        await check_cancelled(hf, run_id, world)


async def test_cancelled_after_the_answer_and_before_its_use() -> None:
    """The answer stays on record; nobody can use it any more."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        await hf.approvals.decide(str(run.approval_id), "approved")
        await hf.runs.cancel(str(run.run_id))
        (asking,) = await hf.runs.effects(str(run.run_id))
        assert asking.status == "completed"
        (view,) = await hf.approvals.list(status="all")
        assert view.status.value == "approved"
        assert (await hf.runs.resume(str(run.run_id))).status == "cancelled"
        assert world.done == []


# -- the journal fails --------------------------------------------------------------------------------


async def broken(
    journal: FaultyJournal,
    world: World,
    act: Callable[[holdfast.Runtime], Awaitable[Any]],
    **terms: Any,
) -> list[str]:
    """Work with a journal that fails; the kinds of records in the session that are there afterwards."""
    with pytest.raises(JournalError) as raised:
        async with holdfast.open(
            journal, capabilities=[world.send()], **{"config": {}, **terms}
        ) as hf:
            await act(hf)
    assert raised.value.code == "JOURNAL_IO"
    return [record.kind async for record in journal.inner.read("s")]


async def test_request_not_recorded_asks_nobody() -> None:
    world, asked = World(), list[str]()

    def approves(view: holdfast.ApprovalView) -> str:
        asked.append(view.id)
        return "approved"

    journal = FailsAt(MemoryJournal(), "approval_requested")
    found = await broken(
        journal, world, lambda hf: hf.shell.run(CAUGHT, session="s"), on_approval=approves
    )
    assert (asked, world.done) == ([], [])
    assert "approval_requested" not in found
    assert "effect_intent" not in found


async def test_settlement_not_recorded_after_somebody_was_asked() -> None:
    """The intent stays, and it is raised. The answer is on record, so whoever resumes goes on from there.

    The source has a recovery record here; the open intent of asking is what says the same with us.
    """
    world, asked = World(), list[str]()

    def approves(view: holdfast.ApprovalView) -> str:
        asked.append(view.id)
        return "approved"

    journal = FailsAt(MemoryJournal(), "approval_settled")
    found = await broken(
        journal, world, lambda hf: hf.shell.run(CAUGHT, session="s"), on_approval=approves
    )
    assert len(asked) == 1
    assert world.done == []
    assert found == ["session_created", *ASKED]
    async with holdfast.open(
        journal.inner, {}, capabilities=[world.send()], on_approval=approves
    ) as hf:
        (active,) = await hf.runs.list(status="active")
        run = await hf.runs.resume(active.id)
        assert (run.status, run.result) == ("ok", "sent to ann")
    assert len(asked) == 1
    assert world.done == ["ann"]


async def test_settlement_not_recorded_when_nobody_was_asked() -> None:
    """Likewise, with nobody to ask: the intent stays, and it is raised."""
    world = World()
    journal = FailsAt(MemoryJournal(), "approval_settled")
    config = {"approvals": {"inbox": False}}
    found = await broken(
        journal, world, lambda hf: hf.shell.run(CAUGHT, session="s"), config=config
    )
    assert found == ["session_created", *ASKED]
    assert world.done == []


async def test_answer_not_recorded_releases_nothing() -> None:
    world = World()
    journal = FailsAt(MemoryJournal(), "approval_responded")
    found = await broken(
        journal,
        world,
        lambda hf: hf.shell.run(CAUGHT, session="s"),
        on_approval=lambda _: "approved",
    )
    assert found == ["session_created", *ASKED]
    assert world.done == []


async def test_intent_of_the_call_not_recorded_makes_no_call() -> None:
    world = World()
    journal = FailsAt(MemoryJournal(), "effect_intent", nth=2)
    found = await broken(
        journal,
        world,
        lambda hf: hf.shell.run(CAUGHT, session="s"),
        on_approval=lambda _: "approved",
    )
    # Settlement and intent are one append: the approval is not used up by a call that was not made.
    assert found == ["session_created", *ASKED]
    assert world.done == []


async def test_invalid_request_is_never_made() -> None:
    """Arguments that do not fit are refused before anybody is asked."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await hf.shell.run(
            "try:\n    send(1)\nexcept TypeError as why:\n    result = str(why)", session="s"
        )
        assert run.status == "ok"
        assert "approval_requested" not in await kinds(hf, run)
        assert await hf.approvals.list(status="all") == []


async def test_approved_call_is_released_in_this_order() -> None:
    """Nothing about the call is written before the approval has ended."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, await parked(hf))
        intents = await said(hf, run, "effect_intent")
        assert [intent["kind"] for intent in intents] == ["approval_dispatch", "tool_execution"]
        (request,) = await said(hf, run, "approval_requested")
        assert intents[0]["effect_id"] == request["dispatch_id"]
        assert intents[1]["effect_id"] == request["effect_id"]
        assert intents[1]["approval_id"] == request["id"]
        assert intents[0]["redacted_summary"] == "approval dispatch for send"
        assert request["allowed"] == ["approved", "approved_for_session", "denied"]
        assert (request["tool"], request["risk"], request["rule"]) == (
            "send",
            "high",
            "default.ask",
        )
