"""Hooks of the gate in an agent's run: the same for what the model calls itself and for what its code calls."""

from typing import Any

import pytest
from tests.agent.hooks_support import ASKS_NOT, at, check, decisions, model, ran
from tests.gate.support import World

import holdfast
from holdfast import Agent
from holdfast.gate.hooks import HookInput
from holdfast.models.script import Line, call, say, together, write_code

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

    world, one = World(), at("before_tool_call", fails, "deny", failure="interrupt_run")
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
