"""A machine as people read it: its rows as a Markdown table, and what they do as a Mermaid diagram."""

from __future__ import annotations

from functools import cache
from typing import Any

from holdfast.machines.explorer import explore
from holdfast.machines.kernel import Machine


@cache
def mermaid(machine: Machine[Any]) -> str:
    """The diagram: every arrow that the machine was seen to take, and no other."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial.phase.value}"]
    names = [phase.value for phase in machine.phases]
    arrows = explore(machine).arrows
    for start, target in sorted(arrows, key=lambda one: (names.index(one[0]), names.index(one[1]))):
        lines.append(f"    {start} --> {target}: {', '.join(arrows[start, target])}")
    for phase in machine.phases:
        if phase in machine.ends:
            lines.append(f"    {phase.value} --> [*]")
    return "\n".join(lines)


def table(machine: Machine[Any]) -> str:
    """The rows, as Markdown."""
    lines = ["| input | from | guards | to | emits |", "|---|---|---|---|---|"]
    last: type | None = None
    for one in machine.rows:
        name = f"`{_signature(one.input)}`" if one.input is not last else ""
        last = one.input
        phases = " ".join(sorted((p.value for p in one.phases), key=_order(machine)))
        if len(one.phases) == len(machine.phases):
            phases = "any"
        guards = " ∧ ".join(f"`{guard}`" for guard, _ in one.guards) or "–"
        note = f" ({one.note})" if one.note else ""
        lines.append(f"| {name} | {phases} | {guards} | {one.to}{note} | {one.emits or '–'} |")
    return "\n".join(lines)


def _order(machine: Machine[Any]) -> Any:
    names = [phase.value for phase in machine.phases]
    return names.index


def _signature(input_: type) -> str:
    fields = getattr(input_, "_fields", ())
    return f"{input_.__name__}({', '.join(fields)})" if fields else input_.__name__


def page(machine: Machine[Any]) -> str:
    """Everything about one machine, as a section of the reference."""
    ends = ", ".join(f"`{p.value}`" for p in machine.phases if p in machine.ends)
    facts = [f"* {name}" for name in machine.invariants]
    return "\n".join(
        [
            f"## `{machine.name}`",
            "",
            machine.purpose,
            "",
            table(machine),
            "",
            f"Starts in `{machine.initial.phase.value}`; may end in {ends}.",
            "",
            "Always true:",
            "",
            *facts,
            "",
            "```mermaid",
            mermaid(machine),
            "```",
            "",
        ]
    )
