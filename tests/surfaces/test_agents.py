"""Agents whose tools come and go: told at the boundary, in fixed words, once; and the conversation stays valid."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.loop_support import consistent, said
from tests.surfaces.support import SPEC, World, opened, tool, until

import holdfast
from holdfast import Agent
from holdfast.contracts.approval import Asks
from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError, NotFound
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.machines import texts
from holdfast.testing import ScriptedModel, call, say, write_code


class Story:
    """A model that calls `a_one` again and again, while something happens before each of its answers."""

    def __init__(self, hf: holdfast.Runtime, *steps: Any) -> None:
        self.hf = hf
        self.steps = [*steps]
        self.model = ScriptedModel(self._answer, keep_requests=True)

    async def _answer(self, request: ModelRequest) -> Any:
        if not self.steps:
            return say("done")
        found = await self.steps.pop(0)()
        return call("a_one", n=1) if found is None else found

    @property
    def notices(self) -> list[list[str]]:
        """For each question, the notices it came with for the first time."""
        found: list[list[str]] = []
        known = 0
        for request in self.model.requests:
            told = [
                one.text for one in request.messages if isinstance(one, UserMessage) and one.notice
            ]
            found.append(told[known:])
            known = len(told)
        return found


def agent(model: Any, **more: Any) -> Agent[str]:
    return Agent(model, code_mode=False, **more)


async def nothing() -> None:
    pass


async def test_a_model_is_told_what_came_went_and_changed(world: World):
    async with opened() as hf:

        async def add() -> None:
            await hf.surfaces.add("b", SPEC)
            await hf.surfaces.wait_ready()

        async def change() -> None:
            epoch = hf.surfaces.epoch
            world["a"].change(one=tool("a_one", answer="word"), two=tool("a_two"))
            await anyio.wait_all_tasks_blocked()
            await hf.surfaces.boundary(hf.settings.session)
            await until(lambda: hf.surfaces.epoch > epoch)

        async def remove() -> None:
            await hf.surfaces.remove("b")

        await hf.surfaces.add("a", SPEC)
        story = Story(hf, nothing, add, change, remove, nothing)
        run = await agent(story.model).run("go", session="s", runtime=hf)
        assert run.status == "completed", run.error
        start = "[SYSTEM NOTICE][TOOL_SCOPE] Tool configuration changed at turn boundary: "
        assert story.notices == [
            [],
            [],
            [f"{start}added: b_one."],
            [f"{start}added: a_two; changed: a_one."],
            [f"{start}removed: b_one."],
            [],
        ]
        offered = [{one.name for one in request.tools} for request in story.model.requests]
        assert [("b_one" in one) for one in offered] == [False, False, True, True, False, False]
        given = await said(hf, "s", "notice_given")
        assert [one["turn"] for one in given] == [3, 4, 5]
        await consistent(hf, "s")


async def test_a_model_is_told_of_trouble_once_and_when_it_is_over(world: World):
    async with opened() as hf:

        async def lose() -> None:
            world["a"].broken = OSError("503")
            world["a"].lose()
            await until(lambda: world.open == 0)

        async def mend() -> None:
            world["a"].broken = None
            await until(lambda: world.open == 1)

        await hf.surfaces.add("a", SPEC)
        story = Story(hf, nothing, lose, nothing, mend, nothing)
        run = await agent(story.model).run("go", session="s", runtime=hf)
        assert run.status == "completed", run.error
        assert story.notices == [
            [],
            [],
            [texts.server_unreachable("a")],
            [],
            [texts.server_back("a")],
            [],
        ]
        shown = [one.text for one in run.messages if one.role == "tool"]
        assert ["SURFACE_UNAVAILABLE" in one for one in shown] == [False, True, True, False, False]
        assert {one.name for one in story.model.requests[2].tools} >= {"a_one"}
        await consistent(hf, "s")


async def test_a_model_is_told_who_is_still_connecting(world: World):
    world["b"].gate = gate = anyio.Event()
    async with opened() as hf:

        async def add() -> None:
            await hf.surfaces.add("b", SPEC)

        async def come() -> None:
            gate.set()
            await until(lambda: world["b"].opened)

        await hf.surfaces.add("a", SPEC)
        story = Story(hf, add, nothing, come, nothing)
        await agent(story.model).run("go", session="s", runtime=hf)
        assert story.notices == [
            [],
            ["[SYSTEM NOTICE][MCP_PENDING] Servers connecting: b. Tools will appear when ready."],
            [],
            [texts.tools_came_and_went(["b_one"], [], [])],
            [],
        ]


async def test_a_model_is_told_that_somebody_has_to_sign_in(world: World):
    world["b"].broken = NeedsAnswer(Question(Asks.SIGN_IN, "Sign in."))
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        story = Story(hf, nothing)
        await agent(story.model).run("go", session="s", runtime=hf)
        assert story.notices == [[texts.reauth_required("b")], []]


async def test_a_model_is_told_of_a_removal_that_was_forced(world: World):
    async with opened() as hf:

        async def force() -> None:
            hf.surfaces._board.fate("a").forced += 1

        await hf.surfaces.add("a", SPEC)
        story = Story(hf, force)
        await agent(story.model).run("go", session="s", runtime=hf)
        assert story.notices == [[], [texts.removal_forced("a")]]


async def test_an_agent_names_its_surfaces(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        story = Story(hf, nothing)
        mine = agent(story.model, surfaces=["a", ("c", {"command": "x"})])
        await mine.run("go", session="s", runtime=hf)
        names = {one.name for one in story.model.requests[0].tools}
        assert {"a_one", "c_one"} <= names
        assert "b_one" not in names
        await mine.run("go", session="t", runtime=hf)
        assert world["c"].opened == 1  # it is there already
        with pytest.raises(NotFound, match="no tool surface `nope`"):
            await agent(story.model, surfaces=["nope"]).run("go", runtime=hf)


async def test_a_run_goes_on_in_another_process_that_connects_what_it_needs(
    world: World, tmp_path: Path
):
    url = f"sqlite:///{tmp_path}/j.db"
    model = "scripted:surfaces"
    ask: dict[str, Any] = {"policy": {"rules": [{"id": "ask", "tool": "a_one", "then": "ask"}]}}

    def answer(request: ModelRequest) -> Any:
        return say("done") if request.messages[-1].role == "tool" else call("a_one", n=5)

    mine = Agent(
        ScriptedModel(answer, id=model), code_mode=False, surfaces=[("a", {"command": "x"})]
    )
    async with holdfast.open(url, ask) as hf:
        run = await mine.run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval", run.error
        (approval,) = run.approvals
    assert world.open == 0
    async with holdfast.open(url, ask) as hf:
        await hf.approvals.decide(approval, "approved")
        found = await mine.resume(run.id, runtime=hf)
        assert found.status == "completed", found.error
        assert world["a"].opened == 2
        assert len(world["a"].calls) == 1
        await consistent(hf, "s")


async def test_a_run_is_not_resumed_without_the_tool_it_waits_to_call(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    ask: dict[str, Any] = {"policy": {"rules": [{"id": "ask", "tool": "a_one", "then": "ask"}]}}
    mine = Agent(ScriptedModel([call("a_one", n=5), say("ok")]), code_mode=False)
    async with holdfast.open(url, ask) as hf:
        await hf.surfaces.add("a", SPEC)
        run = await mine.run("go", session="s", runtime=hf)
        code = await hf.shell.run("a_one(n=6)", session="c")
        approvals = await hf.approvals.list()
    world["a"].broken = OSError("gone")
    async with holdfast.open(url, ask) as hf:
        for approval in approvals:
            await hf.approvals.decide(approval.id, "approved")
        with pytest.raises(HoldfastError, match=r"SNAPSHOT_CAPABILITY_MISMATCH.*a_one") as caught:
            await mine.resume(run.id, runtime=hf)
        assert "holdfast mcp list" in (caught.value.hint or "")
        with pytest.raises(HoldfastError, match=r"SNAPSHOT_CAPABILITY_MISMATCH.*a_one") as caught:
            await hf.runs.resume(code.run_id or "")
        assert "holdfast mcp list" in (caught.value.hint or "")


async def test_a_replay_says_what_was_said(world: World):
    async with opened() as hf:

        async def add() -> None:
            await hf.surfaces.add("b", SPEC)
            await hf.surfaces.wait_ready()

        await hf.surfaces.add("a", SPEC)
        story = Story(hf, nothing, add, nothing)
        run = await agent(story.model).run("go", session="s", runtime=hf)
        calls = len(world["a"].calls)
        again = await hf.agents.replay(run.id)
        assert again.same, again
        assert len(world["a"].calls) == calls


async def test_a_long_list_of_names_is_cut():
    text = texts.tools_came_and_went([f"t{n}" for n in range(25)], [], ["x"])
    assert text.endswith("t18, t19 and 5 more; changed: x.")


async def test_code_mode_sees_the_tools_of_its_next_program(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        steps = iter(range(3))

        async def answer(request: ModelRequest) -> Any:
            match next(steps):
                case 0:
                    await hf.surfaces.add("b", SPEC)
                    await hf.surfaces.wait_ready()
                    return write_code("a_one(n=1)['n']")
                case 1:
                    return write_code("b_one(n=2)['n']")
                case _:
                    return say("done")

        run = await Agent(ScriptedModel(answer)).run("go", session="s", runtime=hf)
        assert run.status == "completed"
        assert [one.text for one in run.messages if one.role == "tool"] == [
            "result: 1",
            "result: 2",
        ]
