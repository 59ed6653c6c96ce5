"""Hooks where they matter: in runs of code that calls out, waits, and is taken up again."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.hooks_support import hook as hook_at
from tests.gate.support import ASKS_NOT, CAUGHT, World, approve, kinds, parked, said, until

import holdfast
from holdfast import Risk
from holdfast.contracts.hook import HookPoint
from holdfast.contracts.hook_response import HookResponse
from holdfast.gate.hooks import Hook, HookFunction, HookInput

BEFORE, AFTER = HookPoint.BEFORE_TOOL_CALL, HookPoint.AFTER_TOOL_CALL
ENDS = ["on_run_cancel_requested", "after_run_terminal"]
SEES = "content_capture_allowed"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def hook(point: HookPoint | str, **terms: Any) -> Callable[[HookFunction], Hook]:
    return hook_at(HookPoint(point), **terms)


def before(answer: Any, *rights: str, asked: list[HookInput] | None = None, **terms: Any) -> Hook:
    """A hook that is asked before each call."""

    async def guard(question: HookInput) -> HookResponse | None:
        if asked is not None:
            asked.append(question)
        return answer(question)

    fixed: dict[str, Any] = {"id": "guard", "rights": rights, "failure": "deny", "privacy": SEES}
    return hook(BEFORE, **{**fixed, **terms})(guard)


async def decisions(hf: holdfast.Runtime, run: holdfast.RunResult) -> list[str]:
    """What the record says of each hook: the decision, or what happened."""
    found = [one["payload"] for one in await said(hf, run, "hook")]
    return [one.get("decision", one["type"]) for one in found]


# -- before a call ------------------------------------------------------------------------------------


async def test_deny() -> None:
    world = World()
    guard = before(lambda q: q.deny("foreign", "Not to Ann."), "deny")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await hf.shell.run(CAUGHT, session="s")
        assert "Not to Ann." in str(run.result)
        assert "foreign" in str(run.result)
        assert await decisions(hf, run) == ["accepted_journaled_before_apply"]
        # The triple of the hook, then the call that was not made.
        assert (await kinds(hf, run))[1:] == [
            "hook",
            "effect_intent",
            "effect_result",
            "effect_intent",
            "effect_result",
            "run_completed",
        ]
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == "permission_denied"
    assert world.done == []


async def test_deny_goes_before_policy_and_people() -> None:
    world = World()
    guard = before(lambda q: q.deny("no", "No."), "deny")
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[guard]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "permission_denied"
        assert await hf.approvals.list(status="all") == []


async def test_modify() -> None:
    world = World()
    guard = before(lambda q: q.modify({"to": "bob"}, "redirected"), "modify_tool_request")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await hf.shell.run("result = send('ann')", session="s")
        assert run.result == "sent to bob"
        mutation, call = await said(hf, run, "effect_intent")
        assert mutation["kind"] == "hook_mutation"
        assert call["request"] != call["content_refs"][0]  # what was asked for, what was called
        assert await hf.journal.content(call["content_refs"][0]) == b'{"to":"bob"}'
    assert world.done == ["bob"]


async def test_modify_is_validated_again() -> None:
    world = World()
    guard = before(lambda q: q.modify({"to": 7}, "broken"), "modify_tool_request")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == "permission_denied"
        assert await decisions(hf, run) == ["rejected_policy"]
    assert world.done == []


async def test_modify_is_measured_again() -> None:
    world = World()
    guard = before(lambda q: q.modify({"to": "x" * 100}, "longer"), "modify_tool_request")
    tool = world.send(max_request_bytes=50)
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[tool], hooks=[guard]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "permission_denied"
    assert world.done == []


async def test_policy_decides_on_what_hooks_made_of_it() -> None:
    world = World()
    guard = before(lambda q: q.modify({"to": "eve"}, "redirected"), "modify_tool_request")
    rule = {"id": "eve", "where": "args.to == 'eve'", "then": "deny"}
    config: dict[str, Any] = {"policy": {"rules": [rule, {"id": "rest", "then": "allow"}]}}
    async with holdfast.open("memory:", config, capabilities=[world.send()], hooks=[guard]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "permission_denied"
    assert world.done == []


async def test_person_is_shown_what_hooks_made_of_it() -> None:
    world = World()
    guard = before(lambda q: q.modify({"to": "bob"}, "redirected"), "modify_tool_request")
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await parked(hf)
        (view,) = await hf.approvals.list()
        assert view.arguments == {"to": "bob"}
        assert (await approve(hf, run)).result == "sent to bob"


async def test_request_approval() -> None:
    world = World()
    guard = before(lambda q: q.ask("Really?", risk="critical"), "request_approval")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await parked(hf)
        (view,) = await hf.approvals.list()
        assert view.risk == "critical"
        assert view.summary.endswith("(external_system; Hook `guard` asks: Really?)")
        assert [one.value for one in view.allowed] == ["approved", "denied"]
        assert (await approve(hf, run)).result == "sent to ann"


async def test_person_is_told_of_the_rule_and_the_hook_that_ask() -> None:
    world = World()
    guard = before(lambda q: q.ask("Really?"), "request_approval")
    config = {"policy": {"rules": [{"id": "mine", "then": "ask"}]}}
    async with holdfast.open("memory:", config, capabilities=[world.send()], hooks=[guard]) as hf:
        await parked(hf)
        (view,) = await hf.approvals.list()
        assert "`mine`" in view.summary
        assert view.summary.endswith("Hook `guard` asks: Really?)")


async def test_request_approval_does_not_overrule_a_denial() -> None:
    world = World()
    guard = before(lambda q: q.ask("Really?"), "request_approval")
    config: dict[str, Any] = {"policy": {"rules": [{"id": "never", "then": "deny"}]}}
    async with holdfast.open("memory:", config, capabilities=[world.send()], hooks=[guard]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "permission_denied"
        assert await hf.approvals.list(status="all") == []


@pytest.mark.parametrize(
    ("failure", "status"), [("deny", "permission_denied"), ("fail_run", "runtime_error")]
)
async def test_timeout_closes(failure: str, status: str) -> None:
    world = World()

    async def slow(question: HookInput) -> None:
        await anyio.sleep_forever()

    guard = hook(BEFORE, id="slow", rights=["deny"], failure=failure, timeout_ms=20)(slow)
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == status
        assert await decisions(hf, run) == ["timed_out"]
        assert (await hf.shell.run("1 + 1", session="s")).result == 2
    assert world.done == []


async def test_hook_that_raises_closes() -> None:
    world = World()

    def fails(question: HookInput) -> None:
        raise RuntimeError("broken")

    guard = hook(BEFORE, id="broken", rights=["deny"], failure="deny")(fails)
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await hf.shell.run(CAUGHT, session="s")
        assert str(run.result).startswith("no: ")
        assert await decisions(hf, run) == ["failed"]
    assert world.done == []


async def test_program_as_a_hook() -> None:
    world = World()
    text = (
        "import json, sys\n"
        "question = json.load(sys.stdin)\n"
        "if question['arguments']['to'] == 'ann':\n"
        "    payload = {'code': 'no', 'summary': 'Not to Ann.'}\n"
        "    json.dump({'type': 'deny', 'payload': payload}, sys.stdout)\n"
    )
    configured = {
        "id": "program",
        "point": "before_tool_call",
        "rights": ["deny"],
        "failure": "deny",
        "timeout_ms": 60_000,
        "privacy": SEES,
        "command": [sys.executable, "-c", text],
    }
    config = {**ASKS_NOT, "hooks": [configured]}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        assert "Not to Ann." in str((await hf.shell.run(CAUGHT, session="s")).result)
        assert (await hf.shell.run("send('bob')", session="s")).status == "ok"
    assert world.done == ["bob"]


# -- after a call -------------------------------------------------------------------------------------


def rewriting(answer: Any, *, asked: list[HookInput] | None = None, **terms: Any) -> Hook:
    async def cleaner(question: HookInput) -> HookResponse | None:
        if asked is not None:
            asked.append(question)
        return answer(question)

    fixed = {"id": "cleaner", "rights": ["rewrite_tool_result"], "failure": "deny", "privacy": SEES}
    return hook(AFTER, **{**fixed, **terms})(cleaner)


async def test_rewrite_and_the_original_is_kept() -> None:
    world = World()
    clean = rewriting(lambda q: q.rewrite("[removed]", "cleaned"))
    async with holdfast.open("memory:", {}, capabilities=[world.look()], hooks=[clean]) as hf:
        run = await hf.shell.run("result = look()", session="s")
        assert run.result == "[removed]"
        call = (await said(hf, run, "effect_result"))[0]
        assert await hf.journal.content(call["content_refs"][0]) == b'"sky is blue"'
        (seen,) = await said(hf, run, "effect_seen")
        assert seen["rewritten"] is True
        assert await hf.journal.content(seen["value"]) == b'"[removed]"'


async def test_rewrite_holds_on_replay(url: str) -> None:
    """Whoever takes the run up again gives the code what it got, and asks no hook about it."""
    world, asked = World(), list[HookInput]()
    clean = rewriting(lambda q: q.rewrite(f"[removed {len(asked)}]", "cleaned"), asked=asked)
    tools = [world.look(), world.send()]
    text = "seen = look()\nsend('ann')\nresult = seen"
    async with holdfast.open(url, {}, capabilities=tools, hooks=[clean]) as hf:
        run = await parked(hf, text)
        assert len(asked) == 1
    async with holdfast.open(url, {}, capabilities=tools) as hf:  # without the hook
        run = await approve(hf, run)
        assert run.result == "[removed 1]"
        # Cold: the variable is made again from the record.
        assert (await hf.shell.run("seen", session="s")).result == "[removed 1]"
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        assert (await hf.shell.run("seen", session="s")).result == "[removed 1]"
    assert world.done == ["look sky", "ann"]


async def test_rewrite_is_validated() -> None:
    world = World()
    clean = rewriting(lambda q: q.rewrite(["not", "text"], "broken"))
    async with holdfast.open("memory:", {}, capabilities=[world.look()], hooks=[clean]) as hf:
        run = await hf.shell.run("look()", session="s")
        assert run.status != "ok"
        assert await decisions(hf, run) == ["rejected_policy"]


# -- asking -------------------------------------------------------------------------------------------


async def test_before_approval_request_changes_the_question() -> None:
    world = World()

    async def words(question: HookInput) -> HookResponse:
        return question.modify_approval(
            "other", risk=Risk.CRITICAL, timeout_ms=5000, message="Truly?"
        )

    asks = hook(
        "before_approval_request", id="words", rights=["modify_approval_request"], failure="deny"
    )(words)
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[asks]) as hf:
        run = await parked(hf)
        (view,) = await hf.approvals.list()
        assert (view.risk, view.summary) == ("critical", "Truly?")
        assert view.deadline is not None
        assert view.deadline - view.requested_at <= 5000
        assert (await approve(hf, run)).status == "ok"


async def test_before_approval_request_refuses() -> None:
    world = World()

    async def spares(question: HookInput) -> HookResponse:
        return question.deny("at_night", "Nobody is woken up.")

    asks = hook("before_approval_request", id="spares", rights=["deny"], failure="deny")(spares)
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[asks]) as hf:
        run = await hf.shell.run(CAUGHT, session="s")
        assert "Nobody is woken up." in str(run.result)
        assert await hf.approvals.list(status="all") == []
    assert world.done == []


async def test_observers_hear_of_calls_decisions_and_ends() -> None:
    world, heard = World(), list[str]()

    def observer(point: str) -> Hook:
        async def note(question: HookInput) -> None:
            heard.append(f"{question.point.value}: {question.summary}")

        return hook(point, id=f"note.{point}")(note)

    points = ("after_tool_call", "after_approval_decision", "after_run_terminal")
    hooks = [observer(point) for point in points]
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=hooks) as hf:
        run = await approve(hf, await parked(hf))
        assert run.status == "ok"
    assert sorted(heard) == [
        "after_approval_decision: approval approved",
        "after_run_terminal: run over: ok",
        "after_tool_call: after tool call: send",
    ]


async def test_hooks_see_no_more_than_they_may() -> None:
    world, asked = World(), list[HookInput]()
    guard = before(lambda q: None, "deny", asked=asked, privacy="envelope_and_redacted_summary")
    async with holdfast.open("memory:", {}, capabilities=[world.look()], hooks=[guard]) as hf:
        await hf.shell.run("look('private parts')", session="s")
    assert asked[0].tool == "look"
    assert asked[0].arguments is None
    assert "private" not in asked[0].model_dump_json()


# -- runs ---------------------------------------------------------------------------------------------


async def test_run_starting_stops_the_run() -> None:
    world = World()

    async def closed(question: HookInput) -> HookResponse:
        return question.stop_run("closed", "We are closed.")

    door = hook("run_starting", id="door", rights=["stop_run"], failure="deny")(closed)
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()], hooks=[door]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == "permission_denied"
        assert run.error is not None
        assert "We are closed." in run.error.message
        found = await kinds(hf, run)
        assert found[0] == "run_started"
        assert found[-1] == "run_failed"
    assert world.done == []


async def test_run_starting_stops_code_that_calls_nothing() -> None:
    async def closed(question: HookInput) -> HookResponse:
        return question.stop_run("closed", "We are closed.")

    door = hook("run_starting", id="door", rights=["stop_run"], failure="deny")(closed)
    async with holdfast.open("memory:", {}, hooks=[door]) as hf:
        assert (await hf.shell.run("1 + 1", session="s")).status == "permission_denied"


async def test_run_starting_is_fired_once_for_a_run_that_waits() -> None:
    world, asked = World(), list[str]()

    async def note(question: HookInput) -> None:
        asked.append(question.run_id)

    door = hook("run_starting", id="door", rights=["stop_run"], failure="deny")(note)
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[door]) as hf:
        run = await approve(hf, await parked(hf))
        assert run.status == "ok"
        assert asked == [run.run_id]


async def test_cancelling_is_told_to_hooks() -> None:
    world, heard, asked = World(), list[str](), anyio.Event()

    async def note(question: HookInput) -> None:
        heard.append(question.point.value)

    async def slow(_: holdfast.ApprovalView) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "approved"

    hooks = [hook(point, id=point, blocking=True)(note) for point in ENDS]
    tools = [world.send()]
    async with (
        holdfast.open("memory:", {}, capabilities=tools, hooks=hooks, on_approval=slow) as hf,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: hf.shell.run("send('ann')", session="s"))
        await asked.wait()
        (active,) = await until(
            lambda: hf.runs.list(status="active"), lambda found: len(found) == 1
        )
        await hf.runs.cancel(active.id)
    assert heard == ENDS
    assert world.done == []


@pytest.mark.parametrize("how", ["cancelled", "destroyed"])
async def test_cancelling_a_run_that_stands_is_told_to_hooks(url: str, how: str) -> None:
    world, heard = World(), list[tuple[str, str, str]]()

    async def note(question: HookInput) -> None:
        heard.append((question.point.value, question.run_id, question.summary))

    hooks = [hook(point, id=point, blocking=True)(note) for point in ENDS]
    tools = [world.send()]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        run = await parked(hf)
    async with holdfast.open(url, {}, capabilities=tools, hooks=hooks) as hf:
        if how == "cancelled":
            await hf.runs.cancel(str(run.run_id))
        else:
            await hf.shell.destroy("s")
    ends = zip(ENDS, ("run cancel requested", "run over: cancelled"), strict=True)
    assert heard == [(point, run.run_id, summary) for point, summary in ends]


# -- taken up again -----------------------------------------------------------------------------------


async def test_answers_are_restored_and_nobody_is_asked_twice(url: str) -> None:
    world, asked = World(), list[HookInput]()
    guard = before(
        lambda q: q.modify({"to": f"bob{len(asked)}"}, "redirected"),
        "modify_tool_request",
        asked=asked,
    )
    async with holdfast.open(url, {}, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await parked(hf)
    async with holdfast.open(url, {}, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await approve(hf, run)
        assert run.result == "sent to bob1"
    assert len(asked) == 1
    assert world.done == ["bob1"]


async def test_denial_is_kept_when_the_run_is_taken_up_again(url: str) -> None:
    """A call that a hook refused stays refused, also where the hook is gone."""
    world = World()
    guard = before(lambda q: q.deny("no", "No.") if q.arguments == {"to": "eve"} else None, "deny")
    text = """
found = []
for to in ["eve", "ann"]:
    try:
        found.append(send(to))
    except PermissionError:
        found.append("no")
result = found
"""
    async with holdfast.open(url, {}, capabilities=[world.send()], hooks=[guard]) as hf:
        run = await parked(hf, text)
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, run)
        assert run.result == ["no", "sent to ann"]
    assert world.done == ["ann"]
