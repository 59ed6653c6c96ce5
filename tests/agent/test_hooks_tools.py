"""Hooks of the gate in an agent's run: the same for what the model calls itself and for what its code calls."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.hooks_support import ASKS_NOT, at, check, decisions, model, ran
from tests.gate.support import World

import holdfast
from holdfast import Agent
from holdfast.contracts.model import ModelRequest
from holdfast.gate.hooks import HookInput
from holdfast.models.script import Line, call, say, together, write_code
from holdfast.models.scripted import Scripted

BOTH = pytest.mark.parametrize("code", [False, True], ids=["direct", "code"])


def wants(code: bool, to: str = "ann") -> Line:
    """The model wants something sent."""
    return write_code(f"result = send('{to}')") if code else call("send", to=to)


def agent(world: World, code: bool, *script: Any) -> Agent[str]:
    return Agent(model(*script), capabilities=[world.send()], code_mode=code)


@BOTH
async def test_deny_is_an_error_the_model_sees(code: bool) -> None:
    world, one = World(), at("before_tool_call", lambda q: q.deny("no", "Not to Ann."), "deny")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("sorry")))
        assert (run.status, run.output) == ("completed", "sorry")
        assert "Not to Ann." in getattr(run.messages[2], "text", "")
    assert world.done == []


@BOTH
async def test_modify_and_rewrite(code: bool) -> None:
    world = World()
    hooks = [
        at("before_tool_call", lambda q: q.modify({"to": "bob"}, "redirected"), "modify_tool_request"),
        at("after_tool_call", lambda q: q.rewrite("it is done", "hidden"), "rewrite_tool_result"),
    ]  # fmt: skip
    async with holdfast.open("memory:", ASKS_NOT, hooks=hooks) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("done")))
        assert run.status == "completed"
        shown = getattr(run.messages[2], "text", "")
        assert "it is done" in shown
        assert "bob" not in shown
    assert world.done == ["bob"]


@BOTH
async def test_request_retry_after_a_call_is_told_to_the_model(code: bool) -> None:
    world = World()
    one = at("after_tool_call", lambda q: q.retry("It did not arrive."), "request_retry")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("done")))
        assert "It did not arrive." in getattr(run.messages[2], "text", "")


@BOTH
async def test_request_approval_and_the_points_of_asking(code: bool) -> None:
    world, heard = World(), list[HookInput]()
    hooks = [
        at("before_tool_call", lambda q: q.ask("Sure?"), "request_approval"),
        at(
            "before_approval_request",
            lambda q: q.modify_approval("words", message="Truly?"),
            "modify_approval_request",
        ),
        at("after_approval_decision", asked=heard, blocking=True),
    ]
    async with holdfast.open("memory:", ASKS_NOT, hooks=hooks) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("done")))
        assert run.status == "waiting_for_approval"
        (view,) = await hf.approvals.list()
        assert view.summary == "Truly?"
        await hf.approvals.decide(view.id, "approved", actor="ann")
        run = await run.resume()
        assert run.status == "completed"
        await check(hf, run)
    assert world.done == ["ann"]
    assert [q.summary for q in heard] == ["approval approved"]


@BOTH
async def test_a_hook_that_fails_before_a_call_ends_the_run(code: bool) -> None:
    def fails(question: HookInput) -> Any:
        raise RuntimeError("broken")

    world, one = World(), at("before_tool_call", fails, "deny", failure="fail_run")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("never")))
        assert (run.status, run.result.cause) == ("failed", "HookFailure")
        assert run.error.code == "HOOK_FAILED"
        # The session is free, and its conversation can go on.
        assert (await hf.shell.run("1 + 1", session="s")).result == 2
    assert world.done == []


async def test_a_run_that_a_hook_ends_leaves_nobody_asked() -> None:
    """One call waits for a person when a hook fails at the other: nobody need answer any more."""

    def fails(question: HookInput) -> Any:
        if (question.arguments or {}).get("to") == "bob":
            raise RuntimeError("broken")
        return question.ask("Sure?")

    world = World()
    one = at("before_tool_call", fails, "request_approval", failure="fail_run")
    both = together(call("send", to="ann"), call("send", to="bob"))
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, False, both, say("never")))
        assert (run.status, run.result.cause) == ("failed", "HookFailure")
        assert await hf.approvals.list() == []
        assert ("before_tool_call", "failed") in await decisions(hf, run)
    assert world.done == []


POINTS = pytest.mark.parametrize(
    ("point", "right"),
    [("before_tool_call", "deny"), ("after_tool_call", "rewrite_tool_result")],
)


@BOTH
@POINTS
async def test_a_run_stands_at_a_call_whose_hook_failed(
    code: bool, point: str, right: str, tmp_path: Path
) -> None:
    """Repaired, the hook is asked again, elsewhere, too; the call is made once, and its result not shown before."""
    broken, asked = [True], list[HookInput]()

    def fails(question: HookInput) -> Any:
        if broken:
            raise RuntimeError("broken")

    world, one = World(), at(point, fails, right, failure="interrupt_run", asked=asked)
    made = ["ann"] if point == "after_tool_call" else []
    url, script = f"sqlite:///{tmp_path}/journal.db", [wants(code), say("done")]
    async with holdfast.open(url, ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, *script))
        found = run.status, run.result.cause, run.error.code
        assert found == ("needs_attention", "HookFailure", "HOOK_FAILED")
        assert world.done == made
        run = await run.resume()
        await check(hf, run)
        assert (run.status, len(asked), world.done) == ("needs_attention", 2, made)
    broken.clear()
    async with holdfast.open(url, ASKS_NOT, hooks=[one]) as hf:
        result = await hf.agents.resume(run.id, agent(world, code, *script).definition())
        assert (result.status, result.text) == ("completed", "done")
        messages = (await hf.agents.messages("s")).messages
        assert "sent to ann" in getattr(messages[2], "text", "")
    assert (world.done, len(asked)) == (["ann"], 3)


@BOTH
@POINTS
async def test_a_run_fails_with_its_hook_and_the_call_is_not_made_again(
    code: bool, point: str, right: str
) -> None:
    def fails(question: HookInput) -> Any:
        raise RuntimeError("broken")

    world, one = World(), at(point, fails, right, failure="fail_run")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("never")))
        found = run.status, run.result.cause, run.error.code
        assert found == ("failed", "HookFailure", "HOOK_FAILED")
        assert (await hf.shell.run("1 + 1", session="s")).result == 2
        assert [one.status for one in await hf.runs.list(status="active")] == []
    assert world.done == (["ann"] if point == "after_tool_call" else [])


@BOTH
async def test_a_result_that_a_failed_hook_withholds_is_an_error_the_model_sees(code: bool) -> None:
    def fails(question: HookInput) -> Any:
        raise RuntimeError("broken")

    world, one = World(), at("after_tool_call", fails, "rewrite_tool_result", failure="deny")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, code, wants(code), say("sorry")))
        assert (run.status, run.output) == ("completed", "sorry")
        shown = getattr(run.messages[2], "text", "")
        assert "was called, and its result is withheld" in shown
        assert "sent to ann" not in shown
    assert world.done == ["ann"]


async def test_calls_made_together_with_one_whose_hook_failed_keep_their_results() -> None:
    broken = [True]

    def fails(question: HookInput) -> Any:
        if broken and "bob" in str(question.result):
            raise RuntimeError("broken")

    world = World()
    one = at("after_tool_call", fails, "rewrite_tool_result", failure="interrupt_run")
    both = together(call("send", to="ann"), call("send", to="bob"))
    async with holdfast.open("memory:", ASKS_NOT, hooks=[one]) as hf:
        run = await ran(hf, agent(world, False, both, say("done")))
        assert run.status == "needs_attention"
        broken.clear()
        run = await run.resume()
        await check(hf, run)
        assert run.status == "completed"
        shown = [getattr(one, "text", "") for one in run.messages[2:4]]
        assert shown == ["sent to ann", "sent to bob"]
    assert sorted(world.done) == ["ann", "bob"]


# -- cancelled ----------------------------------------------------------------------------------------------

ENDS = ["on_run_cancel_requested", "after_run_terminal"]


@BOTH
@pytest.mark.parametrize("stands", [False, True], ids=["live", "stands"])
async def test_whatever_is_cancelled_is_told_to_hooks(code: bool, stands: bool) -> None:
    """The agent's run, and the run of its code."""
    world, heard, asked = World(), list[HookInput](), anyio.Event()

    async def slow(_: holdfast.ApprovalView) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "approved"

    hooks = [at(point, asked=heard, blocking=True) for point in ENDS]
    who = None if stands else slow
    async with holdfast.open("memory:", {}, hooks=hooks, on_approval=who) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ran, hf, agent(world, code, wants(code), say("never")))
            if not stands:
                await asked.wait()
                (first, *_) = await hf.runs.list()
                await hf.runs.cancel(first.id)
        if stands:
            (first, *_) = await hf.runs.list()
            await hf.runs.cancel(first.id)
        runs = [one.id for one in await hf.runs.list(status="cancelled")]
    assert len(runs) == 1 + code
    for run in runs:
        assert [one.point.value for one in heard if one.run_id == run] == ENDS
    assert world.done == []


async def test_what_a_hook_hid_is_not_read_from_the_result_either() -> None:
    world, found = World(), dict[str, str]()

    def says(request: ModelRequest) -> Line:
        last = request.messages[-1]
        if last.role == "user":
            return call("send", to="ann")
        if not found:
            found["id"] = last.text.split('with id "')[1].split('"')[0]
            return call("read_result", id=found["id"], offset=0, length=10)
        found["read"] = last.text
        return say("done")

    hides = at("after_tool_call", lambda q: q.rewrite("x" * 900, "hidden"), "rewrite_tool_result")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[hides]) as hf:
        who = Agent(Scripted(says), capabilities=[world.send()], code_mode=False, view_bytes=300)
        run = await ran(hf, who)
        assert run.status == "completed"
        assert found["read"] == f"{'x' * 10}\n(900 characters in all)"


async def test_what_a_hook_wants_done_again_has_no_result_to_read() -> None:
    world = World()
    again = at("after_tool_call", lambda q: q.retry("It did not arrive."), "request_retry")
    async with holdfast.open("memory:", ASKS_NOT, hooks=[again]) as hf:

        async def says(request: ModelRequest) -> Line:
            last = request.messages[-1]
            if last.role == "user":
                return call("send", to="ann")
            if "It did not arrive." in last.text:
                (key,) = [one.key for one in await hf.journal.rows("effects", tag="closed")
                          if one.value["name"] == "send"]  # fmt: skip
                return call("read_result", id=key)
            return say(last.text)

        who = Agent(Scripted(says), capabilities=[world.send()], code_mode=False)
        run = await ran(hf, who)
        assert "There is no result" in run.output
