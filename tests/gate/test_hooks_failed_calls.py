"""A hook fails at a call: what was done is on record and told, nothing is lost, and nothing is done twice."""

from pathlib import Path
from typing import Any

import pytest
from tests.gate.hooks_support import hook
from tests.gate.support import ASKS_NOT, World, approve, kinds, said

import holdfast
from holdfast import RunResult
from holdfast.contracts.hook import HookPoint
from holdfast.gate.hooks import Hook, HookInput

BEFORE, AFTER = HookPoint.BEFORE_TOOL_CALL, HookPoint.AFTER_TOOL_CALL
RIGHTS = {BEFORE: ["deny"], AFTER: ["rewrite_tool_result"]}
POINTS = pytest.mark.parametrize("point", [BEFORE, AFTER])


class Fragile:
    """A hook that fails while it is `broken`, at every call or at those `only` for somebody."""

    def __init__(self, point: str, failure: str, *, only: str = "", right: str = "") -> None:
        self.broken = True
        self.asked = 0
        self.only = only
        rights = [right] if right else RIGHTS.get(HookPoint(point), [])
        terms: dict[str, Any] = {"failure": failure, "rights": rights, "blocking": True}
        terms |= {"id": point, "privacy": "content_capture_allowed"}
        self.hook: Hook = hook(HookPoint(point), **terms)(self._ask)

    async def _ask(self, question: HookInput) -> None:
        self.asked += 1
        if self.broken and self.only in f"{question.arguments}{question.result}":
            raise RuntimeError("broken")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def told(run: RunResult) -> list[tuple[str, str]]:
    """The calls that a result tells of, which it also counts."""
    assert run.metrics.external_calls_count == len(run.external_calls)
    return [(one.name, one.status.value) for one in run.external_calls]


# -- interrupt_run ------------------------------------------------------------------------------------


@POINTS
async def test_the_run_stands_at_the_call_and_goes_on_there(url: str, point: str) -> None:
    """Elsewhere, too; and for as long as the hook fails, nothing else happens."""
    world, fragile = World(), Fragile(point, "interrupt_run")
    tools, code = [world.send()], "print('hi')\nresult = send('ann')"
    made = ["ann"] if point == AFTER else []
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run(code, session="s")
        for asked in (1, 2):
            assert (run.status, run.stdout, fragile.asked) == ("interrupted", "hi\n", asked)
            assert run.error is not None
            assert (run.error.code, run.in_doubt) == ("HOOK_FAILED", ())
            assert "resume" in str(run.error.hint)
            assert told(run) == ([("send", "ok")] if made else [])
            (view,) = await hf.runs.list(status="needs_attention")
            assert (view.id, view.ended_at) == (run.run_id, None)
            if asked == 1:
                run = await hf.runs.resume(str(run.run_id))
    assert world.done == made
    fragile.broken = False
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert (run.status, run.result, run.stdout) == ("ok", "sent to ann", "hi\n")
        assert told(run) == [("send", "ok")]
        (view,) = await hf.runs.list()
        assert (view.status, view.usage.external_calls) == ("completed", 1)
        assert [one["reason"] for one in await said(hf, run, "run_resumed")] == ["repaired"] * 2
        assert (await hf.shell.run("result", session="s")).result == "sent to ann"
    assert world.done == ["ann"]


@POINTS
async def test_calls_made_together_come_to_rest_first(point: str) -> None:
    """One of them is held at the hook, one waits for a person, one is made; none is lost or made twice."""
    world = World()
    fragile = Fragile(point, "interrupt_run", only="bob")
    rule: Any = {"id": "ask", "where": "args.to == 'cid'", "then": "ask"}
    config = {"policy": {"rules": [rule, {"id": "rest", "then": "allow"}]}}
    code = "import asyncio\nresult = await asyncio.gather(asend('ann'), asend('bob'), asend('cid'))"
    async with holdfast.open(
        "memory:", config, capabilities=[world.asend()], hooks=[fragile.hook]
    ) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.status == "interrupted"
        assert run.approval_id is not None
        assert sorted(world.done) == (["ann", "bob"] if point == AFTER else ["ann"])
        fragile.broken = False
        run = await hf.runs.resume(str(run.run_id))  # before anybody has decided
        assert (run.status, sorted(world.done)) == ("waiting_for_approval", ["ann", "bob"])
        run = await approve(hf, run)
        assert run.result == ["sent to ann", "sent to bob", "sent to cid"]
        assert told(run) == [("asend", "ok")] * 3
    assert sorted(world.done) == ["ann", "bob", "cid"]


@POINTS
async def test_a_call_that_nobody_awaits_is_held_too(point: str) -> None:
    world, fragile = World(), Fragile(point, "interrupt_run")
    code = (
        "import asyncio\nasync def main():\n    asend('ann')\n    return 1\nresult = await main()"
    )
    tools = [world.asend()]
    async with holdfast.open("memory:", ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.status == "interrupted"
        fragile.broken = False
        run = await hf.runs.resume(str(run.run_id))
        assert (run.status, told(run)) == ("ok", [("asend", "ok")])
    assert world.done == ["ann"]


async def test_a_run_that_stands_at_a_hook_can_be_cancelled() -> None:
    world, fragile = World(), Fragile(AFTER, "interrupt_run")
    tools = [world.send()]
    async with holdfast.open("memory:", ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        view = await hf.runs.cancel(str(run.run_id))
        assert (view.status, view.usage.external_calls) == ("cancelled", 1)
        assert (await hf.shell.run("1 + 1", session="s")).result == 2


@pytest.mark.parametrize(
    ("point", "right", "made"),
    [("run_starting", "stop_run", []), ("before_run_complete", "request_retry", ["ann"])],
)
async def test_hooks_of_the_run_itself(url: str, point: str, right: str, made: list[str]) -> None:
    world, fragile = World(), Fragile(point, "interrupt_run", right=right)
    tools, code = [world.send()], "print('hi')\nresult = send('ann')"
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run(code, session="s")
        assert (run.status, run.stdout) == ("interrupted", "hi\n" if made else "")
        assert told(run) == [("send", "ok") for _ in made]
        assert (await hf.runs.show(str(run.run_id))).status == "needs_attention"
    assert world.done == made
    fragile.broken = False
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert (run.result, run.stdout, told(run)) == ("sent to ann", "hi\n", [("send", "ok")])
    assert (world.done, fragile.asked) == (["ann"], 2)


async def test_hooks_around_asking() -> None:
    """Nobody is asked while the hook before it fails; and who has answered is not asked again."""
    world = World()
    first = Fragile("before_approval_request", "interrupt_run", right="deny")
    second = Fragile("after_approval_decision", "interrupt_run")
    tools, hooks = [world.send()], [first.hook, second.hook]
    async with holdfast.open("memory:", {}, capabilities=tools, hooks=hooks) as hf:
        run = await hf.shell.run("result = send('ann')", session="s")
        assert (run.status, await hf.approvals.list()) == ("interrupted", [])
        first.broken = False
        run = await hf.runs.resume(str(run.run_id))
        assert run.status == "waiting_for_approval"
        run = await approve(hf, run)
        assert (run.status, world.done) == ("interrupted", [])
        second.broken = False
        run = await hf.runs.resume(str(run.run_id))
        assert run.result == "sent to ann"
        assert len(await hf.approvals.list(status="all")) == 1
    assert world.done == ["ann"]


# -- fail_run -----------------------------------------------------------------------------------------


@POINTS
async def test_the_run_fails_and_tells_what_it_did(point: str) -> None:
    world, fragile = World(), Fragile(point, "fail_run", only="bob")
    code = "print('hi')\nlist_tools()\nsend('ann')\nresult = send('bob')"
    tools = [world.send()]
    async with holdfast.open("memory:", ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run(code, session="s")
        assert (run.status, run.stdout) == ("runtime_error", "hi\n")
        assert run.error is not None
        assert run.error.code == "HOOK_FAILED"
        assert "resume" not in str(run.error.hint)
        made = [("send", "ok")] * len(world.done)
        assert told(run) == [("list_tools", "ok"), *made]
        assert world.done == (["ann", "bob"] if point == AFTER else ["ann"])
        (view,) = await hf.runs.list()
        assert (view.status, view.usage.external_calls) == ("failed", len(made) + 1)
        assert await hf.runs.resume(view.id) == run
        assert (await hf.shell.run("1 + 1", session="s")).result == 2


async def test_a_run_that_fails_leaves_nobody_asked() -> None:
    world, fragile = World(), Fragile(BEFORE, "fail_run", only="bob")
    rule: Any = {"id": "ask", "where": "args.to == 'ann'", "then": "ask"}
    config = {"policy": {"rules": [rule, {"id": "rest", "then": "allow"}]}}
    code = "import asyncio\nawait asyncio.gather(asend('ann'), asend('bob'))"
    tools = [world.asend()]
    async with holdfast.open("memory:", config, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.status == "runtime_error"
        assert await hf.approvals.list() == []
    assert world.done == []


# -- deny ---------------------------------------------------------------------------------------------

WITHHELD = """
try:
    result = send("ann")
except PermissionError as why:
    result = f"no: {why}"
"""


async def test_a_result_that_is_withheld_is_an_error_that_says_so(url: str) -> None:
    """The code may live with it; and a replay sees the same, whatever the hook does by then."""
    world, fragile = World(), Fragile(AFTER, "deny")
    tools = [world.send()]
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        run = await hf.shell.run("send('ann')", session="s")
        assert run.status == "permission_denied"
        assert run.error is not None
        assert "was called" in run.error.message
        assert "Nothing was done" not in str(run.error.hint)
        assert told(run) == [("send", "ok")]
        run = await hf.shell.run(WITHHELD, session="s")
        assert (run.status, told(run)) == ("ok", [("send", "ok")])
        assert "`send` was called, and its result is withheld" in str(run.result)
        assert "effect_seen" in await kinds(hf, run)
    fragile.broken = False
    async with holdfast.open(url, ASKS_NOT, capabilities=tools, hooks=[fragile.hook]) as hf:
        assert (await hf.shell.run("result", session="s")).result == run.result
    assert world.done == ["ann", "ann"]
