"""An agent's run whose calls are denied and approved: wherever its journal ends, it goes on to the same end."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.crash.copies import again
from tests.crash.test_prefixes import Noting

import holdfast
from holdfast import Agent, capability
from holdfast.contracts import Draft
from holdfast.contracts._dump import dumped
from holdfast.journal import Journal, MemoryJournal
from holdfast.models.script import Line, call, say, together, write_code
from holdfast.models.scripted import Scripted
from holdfast.runtime import Runtime
from holdfast.runtime.agent import Run

SESSION = "cut"
CONFIG: dict[str, Any] = {
    "shell": {"jail": "off"},
    "policy": {"rules": [{"id": "asked", "tool": "ask_*", "then": "ask"}]},
}
TRIED = """
import asyncio

async def tried(what):
    try:
        return await ask_keep(what)
    except PermissionError:
        return "no"

first = await asyncio.gather(tried("no 1"), tried("yes 1"))
[first, await tried("no 2"), await tried("yes 2")]
"""
SCRIPTS: dict[str, tuple[Line, ...]] = {
    "code": (
        write_code("1 + 1"),
        write_code(TRIED),
        say("Done."),
    ),
    "tools": (
        together(call("ask_keep", what="no 1"), call("ask_keep", what="yes 1")),
        call("ask_keep", what="no 2"),
        say("Done."),
    ),
}


@capability(side_effect="write", idempotent=True)
async def ask_keep(what: str) -> str:
    """Keep something, once somebody has approved it."""
    assert what.startswith("yes"), "it was denied"
    return f"kept {what}"


def agent(mode: str) -> Agent[str]:
    model = Scripted(SCRIPTS[mode], id="scripted:cut")
    return Agent(model, capabilities=[ask_keep], code_mode=mode == "code")


async def go_on(hf: Runtime, mode: str) -> Run[str]:
    """Take the run to its end; what begins with `yes` is approved, the rest is denied."""
    started = [one async for one in hf.journal.read(SESSION) if one.kind == "run_started"]
    mine = [one.run_id for one in started if one.payload["kind"] == "agent"]
    if mine:
        run = await agent(mode).resume(str(mine[0]), runtime=hf)
    else:
        run = await agent(mode).run("Go.", session=SESSION, runtime=hf)
    for _ in range(8):
        if run.status != "waiting_for_approval":
            return run
        pending = [one.id for one in await hf.approvals.list()]
        assert sorted(run.approvals) == sorted(pending), "it names what waits, and nothing else"
        assert (await hf.runs.show(run.id)).pending_approvals == run.approvals
        shown = await hf.approvals.show(run.approvals[0])
        said = "approved" if "yes" in str(shown.arguments) else "denied"
        await hf.approvals.decide(run.approvals[0], said, actor="ann")
        run = await run.resume()
    raise AssertionError(f"it does not end: {run.result}")


async def lived(journal: Journal, mode: str) -> list[dict[str, Any]]:
    async with holdfast.open(journal, CONFIG) as hf:
        run = await go_on(hf, mode)
        assert (run.status, run.output) == ("completed", "Done."), run.result
        assert await hf.approvals.list() == []
        return [dumped(one) for one in run.messages]


async def upto(drafts: Sequence[tuple[str, Draft]]) -> MemoryJournal:
    journal = MemoryJournal()
    for stream, draft in drafts:
        await journal.append(stream, [draft])
    return journal


@pytest.mark.parametrize("mode", SCRIPTS)
async def test_wherever_the_journal_ends_the_run_ends_the_same(mode: str) -> None:
    journal = Noting()
    undisturbed = await lived(journal, mode)
    assert "kept yes 1" in str(undisturbed)
    drafts = [(one.stream, await again(journal, one)) async for one in journal.read_all()]
    assert any(draft.kind == "approval_settled" for _, draft in drafts)
    for number in sorted(journal.ends):
        kinds = [draft.kind for _, draft in drafts[:number]][-3:]
        assert await lived(await upto(drafts[:number]), mode) == undisturbed, kinds
