"""What policy says is what happens, and the rule that said so is on record."""

from typing import Any

import pytest
from tests.gate.support import World, approve, kinds, parked, said

import holdfast
from holdfast import capability
from holdfast.errors import CallerError
from holdfast.journal import MemoryJournal


def rules(*given: dict[str, Any]) -> dict[str, Any]:
    return {"policy": {"rules": list(given)}}


async def refs(hf: holdfast.Runtime, run: holdfast.RunResult) -> list[list[str]]:
    intents = await said(hf, run, "effect_intent")
    return [one.get("policy_refs", []) for one in intents if one["kind"] == "tool_execution"]


# -- without a rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["none", "read"])
async def test_what_only_reads_passes(effect: str) -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(side_effect=effect)]) as hf:
        run = await hf.shell.run("result = look()", session="s")
        assert run.result == "sky is blue"
        assert await refs(hf, run) == [["default.read"]]


@pytest.mark.parametrize("effect", ["write", "network", "database", "external_system"])
async def test_everything_else_asks(effect: str) -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send(side_effect=effect)]) as hf:
        run = await parked(hf)
        (request,) = await said(hf, run, "approval_requested")
        assert request["rule"] == "default.ask"
        run = await approve(hf, run)
        assert await refs(hf, run) == [["default.ask"]]


async def test_what_is_not_there_is_no_name() -> None:
    """Code has no name for what it was not given: there is nothing to call, and nothing to record."""
    async with holdfast.open("memory:", {}, capabilities=[World().look()]) as hf:
        run = await hf.shell.run("nothing_like_it()", session="s")
        assert run.status == "validation_error"
        assert "effect_intent" not in await kinds(hf, run)
        checked = await hf.shell.run("nothing_like_it()", session="s", validate_only=True)
        assert checked.error is not None
        assert checked.error.code == "UNKNOWN_TOOL"


async def test_what_is_not_there_any_more_is_no_name() -> None:
    """Also in a function that the session remembers from when it was."""
    world = World()
    tools = [world.look(), world.send()]
    journal = MemoryJournal()
    async with holdfast.open(journal, {}, capabilities=tools) as hf:
        assert (await hf.shell.run("def f():\n    return look()", session="s")).status == "ok"
    async with holdfast.open(journal, {}, capabilities=[world.send()]) as hf:
        run = await hf.shell.run("f()", session="s")
        assert run.error is not None
        assert "NameError" in run.error.message
    assert world.done == []


async def test_read_that_its_author_wants_asked_about() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.look(approval="manual")]) as hf:
        run = await approve(hf, await parked(hf, "look()"))
        assert await refs(hf, run) == [["capability.manual"]]


async def test_capability_with_a_rule_of_its_own() -> None:
    world = World()
    tool = world.send(approval="auto:args.to == 'ann'")
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == "ok"
        assert await refs(hf, run) == [["capability.auto"]]
        await parked(hf, "send('bob')")


# -- rules --------------------------------------------------------------------------------------------


async def test_first_rule_that_holds_decides() -> None:
    world = World()
    config = rules(
        {"id": "not-eve", "where": "args.to == 'eve'", "then": "deny", "reason": "Eve left."},
        {"id": "send", "tool": "send", "then": "allow"},
        {"id": "rest", "then": "deny"},
    )
    text = """
found = []
for to in ["ann", "eve"]:
    try:
        found.append(send(to))
    except PermissionError as why:
        found.append(str(why))
result = found
"""
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        run = await hf.shell.run(text, session="s")
        assert isinstance(run.result, list)
        assert run.result[0] == "sent to ann"
        assert "Eve left." in str(run.result[1])
        assert "not-eve" in str(run.result[1])
        assert [one.status for one in run.external_calls] == ["ok", "denied"]
        assert (await refs(hf, run))[0] == ["send"]
        denied = (await said(hf, run, "effect_result"))[1]
        assert denied["terminal_status"] == "denied_before_execution"
        assert denied["error"]["code"] == "PERMISSION_DENIED"
    assert world.done == ["ann"]


async def test_rule_that_denied_is_on_record() -> None:
    async with holdfast.open(
        "memory:", rules({"id": "never", "then": "deny"}), capabilities=[World().look()]
    ) as hf:
        run = await hf.shell.run("look()", session="s")
        assert await refs(hf, run) == [["never"]]


async def test_denied_and_uncaught_ends_the_run() -> None:
    world = World()
    config = rules({"id": "never", "then": "deny", "reason": "Not here."})
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        run = await hf.shell.run("x = 1\nlook()", session="s")
        assert run.status == "permission_denied"
        assert run.error is not None
        assert run.error.code == "PERMISSION_DENIED"
        assert "Not here." in run.error.message
        assert run.error.span is not None
        assert run.error.span.line == 2
        assert (await hf.shell.run("x", session="s")).result == 1  # what was done before stays
    assert world.done == []


async def test_rule_for_some_sessions() -> None:
    world = World()
    config = rules({"id": "guests", "session": "guest-*", "then": "deny"})
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        assert (await hf.shell.run("look()", session="s")).status == "ok"
        assert (await hf.shell.run("look()", session="guest-1")).status == "permission_denied"


async def test_rule_that_asks_tells_the_person_why() -> None:
    world = World()
    config = rules(
        {"id": "careful", "then": "ask", "risk": "critical", "reason": "It was wrong before."}
    )
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        await parked(hf, "look()")
        (view,) = await hf.approvals.list()
        assert (view.rule, view.risk) == ("careful", "critical")
        assert "It was wrong before." in view.summary


async def test_wide_rule_does_not_silence_an_author() -> None:
    world = World()
    config = rules({"id": "all", "then": "allow"})
    async with holdfast.open("memory:", config, capabilities=[world.send(approval="manual")]) as hf:
        run = await parked(hf)
        assert await refs(hf, await approve(hf, run)) == [["all", "capability.manual"]]


async def test_rule_that_names_it_does() -> None:
    world = World()
    config = rules({"id": "this", "tool": "send", "then": "allow"})
    async with holdfast.open("memory:", config, capabilities=[world.send(approval="manual")]) as hf:
        assert (await hf.shell.run("send('ann')", session="s")).status == "ok"


async def test_rule_by_provenance() -> None:
    world = World()
    config = rules({"id": "models", "provenance": ["model"], "then": "deny"})
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        assert (await hf.shell.run("look()", session="s")).status == "ok"
    config = rules({"id": "code", "provenance": ["code"], "then": "deny"})
    async with holdfast.open("memory:", config, capabilities=[world.look()]) as hf:
        assert (await hf.shell.run("look()", session="s")).status == "permission_denied"


async def test_bad_rule_is_refused_when_it_is_read() -> None:
    config = rules({"id": "bad", "where": "args.to ==", "then": "allow"})
    with pytest.raises(CallerError) as raised:
        async with holdfast.open("memory:", config):
            pass
    assert raised.value.code == "POLICY_INVALID"
    assert "bad" in raised.value.message


async def test_argument_that_is_not_there_lets_nothing_pass() -> None:
    world = World()
    config = rules({"id": "small", "where": "args.cents < 10", "then": "allow"})
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        await parked(hf)
    assert world.done == []


# -- a session's own ----------------------------------------------------------------------------------


async def test_session_rules_are_stricter() -> None:
    world = World()
    config = rules({"id": "send", "tool": "send", "then": "allow"})
    own: dict[str, Any] = {"rules": [{"id": "mine", "tool": "send", "then": "deny"}]}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        run = await hf.shell.run("send('ann')", session="s", setup=own)
        assert run.status == "permission_denied"
        assert "session.mine" in str(run.error)
        assert (await hf.shell.run("send('bob')", session="t")).status == "ok"
        # It remembers them.
        assert (await hf.shell.run("send('eve')", session="s")).status == "permission_denied"
    assert world.done == ["bob"]


async def test_session_rules_are_never_laxer() -> None:
    world = World()
    own: dict[str, Any] = {"rules": [{"id": "mine", "tool": "send", "then": "allow"}]}
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await approve(hf, await parked(hf, setup=own))
        assert await refs(hf, run) == [["session.mine", "default.ask"]]


async def test_session_rules_make_limits_smaller() -> None:
    world = World()
    own: dict[str, Any] = {"rules": [{"id": "few", "then": "allow", "limits": {"rate_per_min": 1}}]}
    async with holdfast.open("memory:", {}, capabilities=[world.look()]) as hf:
        run = await hf.shell.run("look('a')\nlook('b')", session="s", setup=own)
        assert run.error is not None
        assert run.error.code == "RATE_LIMITED"
    assert world.done == ["look a"]


async def test_code_can_read_its_policy() -> None:
    config = rules({"id": "never", "tool": "send", "then": "deny", "reason": "Not here."})
    async with holdfast.open("memory:", config, capabilities=[World().send()]) as hf:
        run = await hf.shell.run("result = current_policy()", session="s")
        assert isinstance(run.result, dict)
        told: Any = run.result["policy"]
        assert told["rules"][0]["id"] == "never"
        assert run.result["capabilities"] == ["send"]
        assert "effect_intent" not in await kinds(hf, run)


async def test_awaited_call_is_denied_where_it_is_awaited() -> None:
    async def later(n: int) -> int:
        return n

    config = rules({"id": "odd", "where": "args.n == 1", "then": "deny"})
    tool = capability(later, side_effect="read")
    text = """
import asyncio
async def one(n):
    try:
        return await later(n)
    except PermissionError:
        return "no"
result = await asyncio.gather(*[one(n) for n in range(3)])
"""
    async with holdfast.open("memory:", config, capabilities=[tool]) as hf:
        assert (await hf.shell.run(text, session="s")).result == [0, "no", 2]
