"""A run that stands: going on with it, and showing where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from holdfast.cli import _exit, _output
from holdfast.cli._result import show
from holdfast.cli._setup import setup_for
from holdfast.cli._work import without_result
from holdfast.contracts import RunResult, RunView
from holdfast.errors import Conflict, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.contracts import EffectView
    from holdfast.runtime import Runtime

_ATTENTION = {
    "waiting_for_approval": "bold yellow",
    "needs_attention": "bold red",
    "interrupted": "bold red",
    "failed": "red",
    "completed": "green",
    "unknown": "bold red",
}


async def go_on(
    hf: Runtime, run_id: str, fields: dict[str, Any], *, wait_ms: int
) -> RunResult | RunView:
    """What the run gives, here; where it stands when another process has it for longer than we wait."""
    view = await hf.runs.show(run_id)
    setup = await setup_for(hf, view.session_id, fields)
    try:
        return await hf.runs.resume(run_id, wait_ms=wait_ms, setup=setup)
    except Conflict as why:
        if why.code != "SESSION_BUSY":
            raise
        return await hf.runs.show(run_id)
    except HoldfastError as why:
        if why.status is None:
            raise
        # It stands as it stood: the refusal is about this attempt.
        return without_result(why).model_copy(update={"run_id": run_id})


def exit_code(found: RunResult | RunView) -> int:
    """What to exit with after a run that was to go on."""
    return _exit.of_result(found) if isinstance(found, RunResult) else _exit.of_run(found)


def tell(found: RunResult | RunView, *, as_json: bool, code: str = "", session: str = "") -> int:
    """Print what became of a run that was to go on; what to exit with."""
    if as_json:
        _output.print_json(found)
    elif isinstance(found, RunResult):
        show(found, code, session)
    else:
        _output.console().print(
            f"Run {found.id} is {found.status}; it goes on in another process.", style="yellow"
        )
    return exit_code(found)


def runs_table(runs: Sequence[RunView]) -> Table:
    """One line for each run."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True, overflow="ignore")
    for name in ("session", "started", "status", "time", ""):
        table.add_column(name, overflow="fold")
    for one in runs:
        problem = one.error.code if one.error else ""
        took = f"{one.usage.duration_ms} ms"
        status = _styled(one.status)
        table.add_row(one.id, one.session_id, _output.clock(one.started_at), status, took, problem)
    return table


def show_run(found: dict[str, Any]) -> None:
    """One run, with its calls."""
    view = RunView.model_validate(found)
    effects: Sequence[EffectView] = found["effects"]
    result: RunResult | None = found["result"]
    out = _output.console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_row("run", view.id)
    facts.add_row("session", view.session_id)
    facts.add_row("status", _styled(view.status))
    facts.add_row("started", _output.clock(view.started_at))
    if view.ended_at is not None:
        facts.add_row("ended", _output.clock(view.ended_at))
    for approval in view.pending_approvals:
        facts.add_row("waits for", f"{approval}  (holdfast approvals show {approval})")
    for effect in view.in_doubt:
        facts.add_row("in doubt", f"{effect}  (holdfast runs resolve {view.id} {effect} …)")
    out.print(facts)
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
    if result is not None:
        out.print()
        show(result, "", view.session_id)


def _styled(status: str) -> str | Any:
    from rich.text import Text

    return Text(status, style=_ATTENTION.get(status, ""))
