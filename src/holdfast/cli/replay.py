"""`holdfast replay`: a recorded run again, offline, nothing executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _files, _output
from holdfast.cli._agent_flags import model_id
from holdfast.cli._options import refuse
from holdfast.cli._setup import rules_of

_AGENTS = "Try another --model, --prompt, --instructions or --policy."

if TYPE_CHECKING:
    from holdfast.agent.replay import Changes, Replay
    from holdfast.runtime import Runtime
    from holdfast.shell.rehearsal import Rehearsal


def replay(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The run's id, or its end.", show_default=False)
    ],
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="TOML with [[rules]] to judge the calls by."),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", metavar="FILE", help="Other code in its place; not of an agent."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="M", help="Of an agent: another model, which is asked."),
    ] = None,
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", metavar="TEXT", help="Of an agent: other instructions."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Of an agent: another prompt.")
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Run a recorded run again against its record. No capability can execute.

    With another policy or other code, or an agent's run with another model, prompt or instructions, see what would
    change. Exits with 1 when anything differs.
    """
    from holdfast.cli._work import on_runtime

    rules = None if policy is None else rules_of(policy)
    text = None if code is None else _files.read(code).decode("utf-8", errors="replace")
    changes: Changes = {}
    if model is not None:
        changes["model"] = model_id(model)
    if instructions is not None:
        changes["instructions"] = instructions
    if prompt is not None:
        changes["prompt"] = prompt

    found = on_runtime(lambda hf: _work(hf, run, text, changes, rules))
    if _output.as_json(as_json):
        _output.print_json(found)
    else:
        _tell(found)
    return 0 if found.same else 1


async def _work(
    hf: Runtime, run: str, text: str | None, changes: Changes, rules: list[Any] | None
) -> Rehearsal | Replay:
    from holdfast.cli._find import find_run

    row = await find_run(hf.journal, run)
    is_agent = row.value["kind"] == "agent"
    if text is not None and is_agent:
        refuse("`--code` is not for an agent's run: its model wrote the code.", _AGENTS)
    if changes and not is_agent:
        refuse(f"`--{next(iter(changes))}` is for runs of agents, and this one is code.")
    if is_agent:
        return await _agent_again(hf, row.key, changes, rules)
    return await _again(hf, row.key, text, rules)


async def _again(hf: Runtime, run_id: str, text: str | None, rules: list[Any] | None) -> Rehearsal:
    from holdfast.gate.policy import Policy
    from holdfast.shell.rehearsal import rehearse

    judged = None if rules is None else Policy.load({"rules": rules})
    return await rehearse(hf.shell.services, run_id, policy=judged, code=text)


async def _agent_again(
    hf: Runtime, run_id: str, changes: Changes, rules: list[Any] | None
) -> Replay:
    from holdfast.agent.replay import replay as again
    from holdfast.models.catalog import model

    if rules is not None:
        changes = {**changes, "policy": rules}
    return await again(hf.shell.services, model, run_id, changes)


def _tell(found: Rehearsal | Replay) -> None:
    from holdfast.shell.rehearsal import Rehearsal

    if isinstance(found, Rehearsal):
        _show(found)
        return
    out = _output.console()
    if found.difference is None:
        made = f"{found.turns} turns and {found.calls} calls"
        out.print(f"The same: {made} were answered from the record, and none was made.")
        return
    out.print("It goes another way.", style="bold yellow")
    out.print(_output.visible(str(found.difference)))


def _show(found: Rehearsal) -> None:
    from rich.table import Table

    out = _output.console()
    if found.calls:
        table = Table("", "call", "then", "rules then", "now", "rule now", box=None, pad_edge=False)
        for one in found.calls:
            then, now = ", ".join(one.rules_then), one.verdict_now or ""
            status = one.status if one.reached else f"{one.status}, not reached now"
            told = (str(one.ordinal), one.name, status, then, now, one.rule_now or "")
            table.add_row(*map(_output.visible, told))
        out.print(table)
    if found.same:
        out.print("The same: every call was answered from the record, and none was made.")
    elif found.stopped_at is not None:
        out.print(_output.visible(found.stopped_at.message), style="bold yellow")
    else:
        out.print("It gives something else now.", style="bold yellow")
    from holdfast.cli._result import show

    show(found.result, "", "")
