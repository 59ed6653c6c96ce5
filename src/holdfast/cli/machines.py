"""`holdfast machines`: the lifecycles as tables and diagrams, and their exhaustive check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _output
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.machines import Exploration, Machine

app = typer.Typer(help="The lifecycles: list, show, explore.", rich_markup_mode=None)


@app.command("list")
def list_(as_json: _output.JsonFlag = None) -> None:
    """List every lifecycle."""
    from holdfast.machines.registry import MACHINES

    if _output.as_json(as_json):
        items = [_summary(machine) for machine in MACHINES.values()]
        _output.print_json({"items": items, "next": None})
        return
    from rich.table import Table

    table = Table("machine", "phases", "rows", "what it is for", box=None, pad_edge=False)
    for machine in MACHINES.values():
        counts = (str(len(machine.phases)), str(len(machine.rows)))
        table.add_row(machine.name, *counts, machine.purpose)
    _output.console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which.", show_default=False)],
    diagram: Annotated[
        bool, typer.Option("--mermaid", help="Only the diagram, as Mermaid.")
    ] = False,
    as_json: _output.JsonFlag = None,
) -> None:
    """Show one lifecycle: phases, rows, guards, what always holds."""
    from holdfast.machines.render import mermaid, page

    machine = _find(name)
    if diagram:
        print(mermaid(machine))
    elif _output.as_json(as_json):
        _output.print_json({**_summary(machine), "table": _rows(machine), **_facts(machine)})
    else:
        print(page(machine))


@app.command()
def explore(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Which; all without.", show_default=False),
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Visit every reachable state and look for anything that is wrong. Exits 1 when something is."""
    from holdfast.machines import explore as search
    from holdfast.machines.registry import MACHINES

    wanted = MACHINES.values() if name is None else [_find(name)]
    human = not _output.as_json(as_json)
    found: list[Exploration] = []
    for machine in wanted:
        found.append(search(machine))
        if human:
            _tell(found[-1])
    if not human:
        told = ("machine", "states", "steps", "refused", "problems", "sound")
        items = [{name: getattr(one, name) for name in told} for one in found]
        _output.print_json({"items": items, "next": None})
    return 0 if all(one.sound for one in found) else 1


def _tell(found: Exploration) -> None:
    out = _output.console()
    mark = ("ok  ", "green") if found.sound else ("FAIL", "bold red")
    out.print(mark[0], style=mark[1], end=" ")
    counts = f"{found.states:>6} states  {found.steps:>7} steps  {found.refused:>7} refused"
    out.print(f"{found.machine:<20} {counts}")
    for problem in found.problems:
        out.print(f"     {problem}")


def _find(name: str) -> Machine[Any]:
    from holdfast.machines.registry import MACHINES

    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise NotFound(
            "NOT_FOUND", f"There is no machine `{name[:80]}`.", hint=f"There are: {known}."
        )
    return MACHINES[name]


def _summary(machine: Machine[Any]) -> dict[str, Any]:
    return {
        "name": machine.name,
        "purpose": machine.purpose,
        "phases": [phase.value for phase in machine.phases],
        "ends": [phase.value for phase in machine.phases if phase in machine.ends],
        "rows": len(machine.rows),
    }


def _rows(machine: Machine[Any]) -> list[dict[str, Any]]:
    return [
        {
            "input": row.input.__name__,
            "from": [phase.value for phase in machine.phases if phase in row.phases],
            "guards": [name for name, _ in row.guards],
            "to": row.to,
            "emits": row.emits,
        }
        for row in machine.rows
    ]


def _facts(machine: Machine[Any]) -> dict[str, Any]:
    return {"initial": machine.initial.phase.value, "invariants": list(machine.invariants)}
