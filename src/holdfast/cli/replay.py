"""`holdfast replay`: a recorded run again, offline, nothing executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import _files, _output
from holdfast.cli._setup import rules_of

if TYPE_CHECKING:
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
        str | None, typer.Option("--code", metavar="FILE", help="Other code in its place.")
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Run a recorded run again against its record. No capability can execute.

    With another policy or other code, see what would change. Exits with 1 when anything differs.
    """
    from holdfast.cli._work import on_runtime

    rules = None if policy is None else rules_of(policy)
    text = None if code is None else _files.read(code).decode("utf-8", errors="replace")

    async def work(hf: Runtime) -> Rehearsal:
        from holdfast.cli._find import find_run
        from holdfast.gate.policy import Policy
        from holdfast.shell.rehearsal import rehearse

        run_id = (await find_run(hf.journal, run)).key
        judged = None if rules is None else Policy.load({"rules": rules})
        return await rehearse(hf.shell.services, run_id, policy=judged, code=text)

    found = on_runtime(work)
    if _output.as_json(as_json):
        _output.print_json(found)
    else:
        _show(found)
    return 0 if found.same else 1


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
