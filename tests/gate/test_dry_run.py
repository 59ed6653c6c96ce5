"""A dry run makes a plan; an approved plan is kept to: those calls, as often as they were planned, once."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.crash.copies import copy, last
from tests.gate.hooks_support import hook
from tests.gate.support import ASKS_NOT, World, kinds

import holdfast
from holdfast import RunResult, capability
from holdfast.contracts.hook import HookPoint
from holdfast.contracts.hook_response import HookResponse
from holdfast.errors import CallerError, Conflict, NotFound
from holdfast.gate.hooks import HookInput
from holdfast.journal import MemoryJournal

CODE = """
seen = look("sky")
for to in ["ann", "bob"]:
    send(to)
result = seen
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


async def dry(hf: holdfast.Runtime, code: str = CODE, **more: Any) -> RunResult:
    run = await hf.shell.run(code, **{"session": "s", "dry_run": True, **more})
    assert run.plan_id is not None
    return run


async def planned(hf: holdfast.Runtime, code: str = CODE, **more: Any) -> str:
    """An approved plan."""
    plan = str((await dry(hf, code, **more)).plan_id)
    await hf.approvals.decide_plan(plan, "approved", actor="ann")
    return plan


# -- trying -------------------------------------------------------------------------------------------


async def test_reads_are_answered_and_the_rest_is_listed() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(), world.send()]) as hf:
        run = await dry(hf)
        assert (run.status, run.result) == ("ok", "sky is blue")
        assert run.run_id is None
        assert [(one.name, one.arguments, one.verdict, one.rule) for one in run.plan] == [
            ("send", {"to": "ann"}, "ask", "default.ask"),
            ("send", {"to": "bob"}, "ask", "default.ask"),
        ]
        assert [one.ordinal for one in run.plan] == [1, 2]
        # What was made, and nothing else.
        assert [(one.name, one.status) for one in run.external_calls] == [("look", "ok")]
        assert run.metrics.external_calls_count == 1
        assert run.plan[0].side_effect == "external_system"
        assert await hf.approvals.list(status="all") == []
    assert world.done == ["look sky"]


async def test_session_stays_as_it_is() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(), world.send()]) as hf:
        await hf.shell.run("x = 1", session="s")
        before = [record.kind async for record in hf.journal.read("s")]
        run = await dry(hf, "x = 2\ny = 3\nsend('ann')\nresult = x")
        assert run.result == 2
        assert [record.kind async for record in hf.journal.read("s")] == before
        assert (await hf.shell.run("x", session="s")).result == 1
        assert (await hf.shell.run("y", session="s")).status != "ok"


async def test_session_that_is_not_there_is_not_made() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        await dry(hf, "send('ann')", session="new")
        assert await hf.shell.list() == []


async def test_what_is_denied_is_listed_and_denied() -> None:
    world = World()
    config: dict[str, Any] = {
        "policy": {"rules": [{"id": "never", "tool": "send", "then": "deny"}]}
    }
    text = "try:\n    send('ann')\nexcept PermissionError:\n    result = 'no'"
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        run = await dry(hf, text)
        assert run.result == "no"
        assert [(one.verdict, one.rule) for one in run.plan] == [("deny", "never")]
    assert world.done == []


async def test_what_is_allowed_is_not_made_either() -> None:
    world = World()
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()]) as hf:
        run = await dry(hf, "send('ann')")
        assert [(one.verdict, one.rule) for one in run.plan] == [("allow", "all")]
    assert world.done == []


async def test_read_that_a_person_is_asked_about_is_listed() -> None:
    world = World()
    tools = [world.look(approval="manual")]
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        run = await dry(hf, "look()")
        assert [(one.name, one.verdict) for one in run.plan] == [("look", "ask")]
        assert world.done == []
        plan = await planned(hf, "look()")
        run = await hf.shell.run("look()", session="s", plan=plan)
        assert run.status == "ok"  # the plan was the approval
    assert world.done == ["look sky"]


async def test_call_that_a_hook_wants_asked_about_is_listed() -> None:
    world = World()

    async def asks(question: HookInput) -> HookResponse:
        return question.ask("Really?")

    guard = hook(
        HookPoint.BEFORE_TOOL_CALL, id="asks", rights=["request_approval"], failure="deny"
    )(asks)
    async with holdfast.open("memory:", {}, capabilities=[world.look()], hooks=[guard]) as hf:
        run = await dry(hf, "look()")
        assert [(one.name, one.verdict) for one in run.plan] == [("look", "ask")]
    assert world.done == []


async def test_values_of_the_right_shape() -> None:
    def make(name: str) -> dict[str, int]:
        return {"id": 7}

    tool = capability(make, side_effect="write")
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await dry(hf, "found = make('a')\nresult = type(found).__name__")
        assert (run.status, run.result) == ("ok", "dict")


async def test_failing_code_has_a_plan_up_to_there() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        run = await dry(hf, "send('ann')\n1 / 0\nsend('bob')")
        assert run.status == "runtime_error"
        assert len(run.plan) == 1


async def test_awaited_calls_are_planned() -> None:
    world = World()
    text = "import asyncio\nawait asyncio.gather(asend('a'), asend('b'))"
    async with holdfast.open("memory:", {}, capabilities=[world.asend()]) as hf:
        run = await dry(hf, text)
        assert [one.arguments for one in run.plan] == [{"to": "a"}, {"to": "b"}]
        plan = await planned(hf, text)
        assert (await hf.shell.run(text, session="s", plan=plan)).status == "ok"
    assert sorted(world.done) == ["a", "b"]


# -- keeping to it ------------------------------------------------------------------------------------


async def test_approved_as_a_batch() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(), world.send()]) as hf:
        plan = str((await dry(hf)).plan_id)
        (waits,) = await hf.approvals.plans()
        assert waits["id"] == plan
        row = await hf.approvals.decide_plan(plan, "approved", actor="ann", via="test")
        assert row["status"] == "approved"
        assert row["decision"]["actor"] == "ann"
        assert await hf.approvals.plans() == []
        run = await hf.shell.run(CODE, session="s", plan=plan)
        assert run.status == "ok"
        assert "approval_requested" not in await kinds(hf, run)
    assert world.done == ["look sky", "look sky", "ann", "bob"]


async def test_call_that_is_not_in_the_plan_is_denied() -> None:
    """The same code on another world: what it does then was not approved."""
    world = World()
    texts = ["ann", "bob"]

    def who() -> str:
        return texts[0]

    tools = [capability(who, side_effect="read"), world.send()]
    async with holdfast.open("memory:", ASKS_NOT, capabilities=tools) as hf:
        plan = await planned(hf, "send(who())")
        texts.pop(0)
        run = await hf.shell.run("send(who())", session="s", plan=plan)
        assert run.status == "permission_denied"  # though policy allows it
        assert "not in the approved plan" in str(run.error)
    assert world.done == []


async def test_more_often_than_planned_is_denied() -> None:
    world, times = World(), [2]

    def often() -> int:
        return times[0]

    tools = [capability(often, side_effect="read"), world.send()]
    text = "for n in range(often()):\n    send('ann')"
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        plan = await planned(hf, text)
        times[0] = 3
        assert (await hf.shell.run(text, session="s", plan=plan)).status == "permission_denied"
    assert world.done == ["ann", "ann"]


async def test_more_often_than_planned_is_denied_also_after_a_break(url: str) -> None:
    """What the run called before it stood still is used up."""
    world, times = World(), [2]

    def often() -> int:
        return times[0]

    async def hang(n: int) -> str:
        await anyio.sleep_forever()
        return ""

    stuck = capability(hang, side_effect="write", timeout_ms=30)
    tools = [capability(often, side_effect="read"), world.send(), stuck]
    text = "for n in range(often()):\n    send('ann')\n    if n == 1:\n        await hang(n)"
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        plan = await planned(hf, text)
        times[0] = 3
        run = await hf.shell.run(text, session="s", plan=plan)
        assert run.status == "interrupted"
        assert world.done == ["ann", "ann"]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        await hf.runs.resolve(str(run.run_id), run.in_doubt[0], "happened", value="")
        run = await hf.runs.resume(str(run.run_id))
        assert run.status == "permission_denied"
    assert world.done == ["ann", "ann"]


async def test_plan_does_not_beat_a_rule_that_denies(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        plan = await planned(hf, "send('ann')")
    config: dict[str, Any] = {
        "policy": {"rules": [{"id": "never", "tool": "send", "then": "deny"}]}
    }
    async with holdfast.open(url, config, capabilities=[world.send()]) as hf:
        run = await hf.shell.run("send('ann')", session="s", plan=plan)
        assert run.status == "permission_denied"
    assert world.done == []


async def test_hook_that_changes_its_mind_changes_the_call() -> None:
    """What was approved is what was shown, not what the code had asked for."""
    world, to = World(), ["ann"]

    async def redirects(question: HookInput) -> HookResponse:
        return question.modify({"to": to[0]}, "redirected")

    guard = hook(
        HookPoint.BEFORE_TOOL_CALL,
        id="redirects",
        rights=["modify_tool_request"],
        failure="deny",
        privacy="content_capture_allowed",
    )(redirects)
    async with holdfast.open("memory:", {}, capabilities=[world.send()], hooks=[guard]) as hf:
        plan = await planned(hf, "send('x')")
        to[0] = "mallory"
        run = await hf.shell.run("send('x')", session="s", plan=plan)
        assert run.status == "permission_denied"
    assert world.done == []


async def test_other_code_other_inputs_other_session_are_refused() -> None:
    world = World()
    text = "send(to)"
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        plan = await planned(hf, text, inputs={"to": "ann"})
        for code, inputs in (("send(to) ", {"to": "ann"}), (text, {"to": "bob"})):
            run = await hf.shell.run(code, session="s", inputs=dict(inputs), plan=plan)
            assert (run.status, run.run_id) == ("validation_error", None)
        with pytest.raises(
            NotFound
        ) as refused:  # as if there were none: a tenant may not know of it
            await hf.shell.run(text, session="t", inputs={"to": "ann"}, plan=plan)
        assert str(refused.value).replace(plan, "plan_nobody") == await of_nobody(hf)
        run = await hf.shell.run(text, session="s", inputs={"to": "ann"}, plan=plan)
        assert run.status == "ok"
    assert world.done == ["ann"]


async def test_plan_ends_with_its_session() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await hf.shell.run("1", session="s")
        plan = await planned(hf, "send('ann')")
        await hf.shell.destroy("s")
        run = await hf.shell.run("send('ann')", session="s", plan=plan)
        assert run.status == "validation_error"
        assert "was destroyed" in str(run.error)
        plan = await planned(hf, "send('ann')")
        assert (await hf.shell.run("send('ann')", session="s", plan=plan)).status == "ok"
    assert world.done == ["ann"]


async def test_second_use_is_refused() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        plan = await planned(hf, "send('ann')")
        assert (await hf.shell.run("send('ann')", session="s", plan=plan)).status == "ok"
        run = await hf.shell.run("send('ann')", session="s", plan=plan)
        assert run.status == "validation_error"
        assert "used already" in str(run.error)
    assert world.done == ["ann"]


@pytest.mark.parametrize("decided", [None, "denied"])
async def test_plan_that_is_not_approved_is_refused(decided: str | None) -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        plan = str((await dry(hf, "send('ann')")).plan_id)
        if decided is not None:
            await hf.approvals.decide_plan(plan, decided)
        run = await hf.shell.run("send('ann')", session="s", plan=plan)
        assert run.status == "validation_error"
    assert world.done == []


async def test_plan_is_decided_once() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        plan = str((await dry(hf, "send('ann')")).plan_id)
        await hf.approvals.decide_plan(plan, "denied")
        with pytest.raises(Conflict) as raised:
            await hf.approvals.decide_plan(plan, "approved")
        assert raised.value.code == "APPROVAL_CLOSED"
        with pytest.raises(CallerError):
            await hf.approvals.decide_plan(plan, "yes")
        with pytest.raises(CallerError) as refused:
            await hf.approvals.decide_plan(plan, "approved_for_session")
        assert refused.value.code == "DECISION_REFUSED"
        with pytest.raises(NotFound):
            await hf.approvals.decide_plan("plan_nobody", "approved")


@pytest.mark.parametrize(
    ("gives", "takes", "status"),
    [
        ("def ready():\n    pass", "reset", "validation_error"),
        ("def ready():\n    pass", "def ready():\n    int('no')", "runtime_error"),
    ],
    ids=["refused", "failed"],
)
async def test_run_that_called_nobody_leaves_its_plan_good(
    gives: str, takes: str, status: str
) -> None:
    world, code = World(), "ready()\nsend('ann')"
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await hf.shell.run(gives, session="s")
        plan = await planned(hf, code)
        if takes == "reset":
            await hf.shell.reset("s")
        else:
            await hf.shell.run(takes, session="s")
        assert (await hf.shell.run(code, session="s", plan=plan)).status == status
        assert world.done == []
        await hf.shell.run(gives, session="s")
        assert (await hf.shell.run(code, session="s", plan=plan)).status == "ok"
        assert "used already" in str(await hf.shell.run(code, session="s", plan=plan))
    assert world.done == ["ann"]


async def test_run_that_died_before_it_called_anybody_leaves_its_plan_good() -> None:
    world, journal = World(), MemoryJournal()
    tools = [world.send()]
    async with holdfast.open(journal, {}, capabilities=tools) as hf:
        plan = await planned(hf, "send('ann')")
        assert (await hf.shell.run("send('ann')", session="s", plan=plan)).status == "ok"
    world.done.clear()
    async with holdfast.open(
        await copy(journal, last("run_started")), {}, capabilities=tools
    ) as hf:
        assert (await hf.shell.run("send('ann')", session="s", plan=plan)).status == "ok"
    assert world.done == ["ann"]


async def test_plan_that_nobody_made() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        assert "There is no plan `plan_nobody`" in await of_nobody(hf)


async def of_nobody(hf: holdfast.Runtime) -> str:
    """What is told of a plan that there is not."""
    with pytest.raises(NotFound) as refused:
        await hf.shell.run("send('ann')", session="s", plan="plan_nobody")
    return str(refused.value)


async def test_plan_holds_in_another_process(url: str) -> None:
    world = World()
    tools = [world.look(), world.send()]
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        plan = str((await dry(hf)).plan_id)
    async with holdfast.open(url, {}) as hf:
        await hf.approvals.decide_plan(plan, "approved")
    async with holdfast.open(url, {}, capabilities=tools) as hf:
        assert (await hf.shell.run(CODE, session="s", plan=plan)).status == "ok"
    assert world.done == ["look sky", "look sky", "ann", "bob"]


# -- what it was opened with --------------------------------------------------------------------------


async def test_a_plan_keeps_what_its_session_was_opened_with(url: str, tmp_path: Path) -> None:
    caps = tmp_path / "caps.py"
    caps.write_text(
        "from holdfast import capability\n\n\n"
        "@capability(side_effect='external_system')\n"
        "def transfer(to: str, cents: int) -> str:\n"
        "    'Send money.'\n"
        "    return 'sent ' + to\n"
    )
    code, setup = "transfer('ann', 1)", {"capabilities": [str(caps)]}
    async with holdfast.open(url, {}) as hf:
        plan = await planned(hf, code, setup=setup)
        assert await hf.shell.list() == []
    async with holdfast.open(url, {}) as hf:
        run = await hf.shell.run(code, session="s", plan=plan)
        assert (run.status, run.result) == ("ok", "sent ann")
        # From here on the session has it, as after any run.
        tools = await hf.shell.run("[one['name'] for one in list_tools()]", session="s")
        assert tools.result == ["transfer"]


async def test_a_plan_of_another_session_opens_nothing(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="t")
        plan = await planned(hf, "now()", setup={"clock": True})
        with pytest.raises(NotFound):
            await hf.shell.run("now()", session="t", plan=plan)
        assert (await hf.shell.run("list_tools()", session="t")).result == []


async def test_a_plan_that_waits_is_to_be_approved() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(), world.send()]) as hf:
        plan = str((await dry(hf)).plan_id)
        run = await hf.shell.run(CODE, session="s", plan=plan)
        assert run.error is not None
        assert run.error.code == "INVALID_ARGUMENT"
        assert f"approvals approve {plan}" in str(run.error.hint)


async def test_a_dry_run_keeps_to_no_plan() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(), world.send()]) as hf:
        plan = await planned(hf)
        run = await hf.shell.run(CODE, session="s", plan=plan, dry_run=True)
        assert run.error is not None
        assert run.error.code == "INVALID_ARGUMENT"
        assert (await hf.shell.run(CODE, session="s", plan=plan)).status == "ok"
