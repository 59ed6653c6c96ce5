"""A run that stands: going on with it, and showing where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from holdfast.cli import _exit, _output
from holdfast.cli._agent_flags import agent_again
from holdfast.cli._agent_result import show as show_agent
from holdfast.cli._agent_tell import Teller, used
from holdfast.cli._result import show
from holdfast.cli._screen import Paper
from holdfast.cli._setup import setup_for
from holdfast.cli._work import without_result
from holdfast.contracts import RunResult, RunView
from holdfast.contracts.agent import AgentResult
from holdfast.errors import Conflict, HoldfastError
from holdfast.server.views import result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.contracts import EffectView, Setup
    from holdfast.contracts.agent_event import AgentEvent
    from holdfast.runtime import Runtime

_ATTENTION = {
    "waiting_for_approval": "bold yellow",
    "needs_attention": "bold red",
    "interrupted": "bold red",
    "failed": "red",
    "completed": "green",
    "unknown": "bold red",
}


Found = RunResult | AgentResult | RunView
"""What a run that was to go on gave, or where it stands."""


async def go_on(
    hf: Runtime,
    run_id: str,
    fields: dict[str, Any],
    agent: dict[str, Any],
    *,
    wait_ms: int,
) -> Found:
    """What the run gives, here; where it stands when another process has it for longer than we wait.

    Code that an agent wrote goes on with the agent's run. `fields` are parts of a `Setup`, `agent` of an `AgentSpec`.
    """
    view = await hf.runs.show(run_id)
    setup = await setup_for(hf, view.session_id, fields)
    try:
        if view.kind == "agent" or await _parent(hf, run_id) is not None:
            return await _agent_goes_on(hf, view, setup, agent, wait_ms)
        return await hf.runs.resume_any(run_id, wait_ms=wait_ms, setup=setup)
    except Conflict as why:
        if why.code != "SESSION_BUSY":
            raise
        return await hf.runs.show(run_id)
    except HoldfastError as why:
        if why.status is None or view.kind == "agent":
            raise
        # It stands as it stood: the refusal is about this attempt.
        return without_result(why).model_copy(update={"run_id": run_id})


async def _agent_goes_on(
    hf: Runtime, view: RunView, setup: Setup | None, fields: dict[str, Any], wait_ms: int
) -> RunResult | AgentResult:
    run_id = view.id if view.kind == "agent" else await _parent(hf, view.id)
    if not fields or run_id is None or (await hf.runs.show(run_id)).ended_at is not None:
        return await hf.runs.resume_any(view.id, wait_ms=wait_ms, setup=setup)
    agent = await agent_again(hf, view.session_id, fields, setup)
    return await hf.agents.resume(run_id, agent, setup=setup, wait_ms=wait_ms)


async def _parent(hf: Runtime, run_id: str) -> str | None:
    """The agent's run that wrote this code."""
    found = (await hf.journal.row("runs", run_id) or {}).get("parent")
    return found if isinstance(found, str) else None


def exit_code(found: Found) -> int:
    """What to exit with after a run that was to go on."""
    match found:
        case RunResult():
            return _exit.of_result(found)
        case AgentResult():
            return _exit.of_agent(found)
        case RunView():
            return _exit.of_run(found)


def as_told(found: Found) -> RunResult | RunView | dict[str, Any]:
    """The same as JSON has it."""
    return found if isinstance(found, RunView) else result_of(found)


def tell(found: Found, *, as_json: bool, code: str = "", session: str = "") -> int:
    """Print what became of a run that was to go on; what to exit with."""
    if as_json:
        _output.print_json(as_told(found))
    elif isinstance(found, RunResult):
        show(found, code, session)
    elif isinstance(found, AgentResult):
        show_agent(found)
    else:
        _output.console().print(
            f"Run {found.id} is {found.status}; it goes on in another process.", style="yellow"
        )
    return exit_code(found)


def runs_table(runs: Sequence[RunView], *, session: bool = True) -> Table:
    """One line for each run; without `session`, they are all of one."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True, overflow="ignore")
    where = ("session",) if session else ()
    for name in (*where, "started", "status", "kind", "used", ""):
        table.add_column(name, overflow="fold")
    for one in runs:
        problem = one.error.code if one.error else ""
        moment, status = _output.clock(one.started_at), _styled(one.status)
        at = (one.session_id,) if session else ()
        table.add_row(one.id, *at, moment, status, one.kind, spent(one), problem)
    return table


def spent(run: RunView) -> str:
    """What a run used, in a few words: an agent's is counted in tokens, code in time."""
    return used(run.usage) if run.kind == "agent" else f"{run.usage.duration_ms} ms"


def show_run(found: dict[str, Any], events: Sequence[AgentEvent] = ()) -> None:
    """One run, with its calls; an agent's also with what was said."""
    view = RunView.model_validate(found)
    effects: Sequence[EffectView] = found["effects"]
    result: RunResult | dict[str, Any] | None = found["result"]
    out = _output.console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_row("run", view.id)
    facts.add_row("kind", view.kind)
    facts.add_row("session", view.session_id)
    facts.add_row("status", _styled(view.status))
    facts.add_row("started", _output.clock(view.started_at))
    if view.ended_at is not None:
        facts.add_row("ended", _output.clock(view.ended_at))
    for approval in view.pending_approvals:
        facts.add_row("waits for", f"{approval}  (holdfast approvals show {approval})")
    for effect in view.in_doubt:
        facts.add_row("in doubt", f"{effect}  (holdfast runs resolve {view.id} {effect} …)")
    if view.kind == "agent":
        facts.add_row("used", used(view.usage))
    out.print(facts)
    if not events:  # of an agent's run they tell all there is
        _show_effects(effects)
    if events:
        out.print()
        with Paper() as paper:
            teller = Teller(paper, asked=True)
            for event in events:
                teller.event(event)
    if result is not None:
        out.print()
        if isinstance(result, RunResult):
            show(result, "", view.session_id)
        else:
            show_agent(AgentResult.model_validate(result), heard=bool(events))


def _show_effects(effects: Sequence[EffectView]) -> None:
    out = _output.console()
    if effects:
        table = Table(box=None, pad_edge=False)
        table.add_column("effect", no_wrap=True, overflow="ignore")
        for name in ("call", "status", "intent", ""):
            table.add_column(name, overflow="fold")
        for one in effects:
            moment = _output.clock(one.intent_at)
            summary = _output.visible(one.summary)
            table.add_row(one.id, one.name, _styled(one.status), moment, summary)
        out.print()
        out.print(table)


def _styled(status: str) -> str | Any:
    from rich.text import Text

    return Text(status, style=_ATTENTION.get(status, ""))
