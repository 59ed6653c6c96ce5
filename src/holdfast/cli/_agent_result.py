"""What an agent's run gave, for people and as an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.pretty import Pretty

from holdfast.cli import _output
from holdfast.cli._agent_tell import used

if TYPE_CHECKING:
    from holdfast.contracts.agent import AgentResult


def show(result: AgentResult, *, heard: bool = False, total: str = "") -> None:
    """Print it: its output on stdout, everything about the run on stderr.

    `heard`: its words were told as they came. `total`: what the conversation used so far.
    """
    out = _output.console()
    if result.output is not None and not isinstance(result.output, str):
        out.print(Pretty(result.output, expand_all=False))
    elif result.text and not heard:
        out.print(_output.visible(result.text))
    out.file.flush()
    err = _output.console(stderr=True)
    if result.output_error is not None:
        err.print("no output: ", style="bold red", end="")
        err.print(_output.visible(result.output_error))
    if result.error is not None:
        waits = result.status == "waiting_for_approval"
        err.print(f"{result.error.code}: ", style="bold yellow" if waits else "bold red", end="")
        err.print(_output.visible(result.error.message))
        if result.error.hint:
            _output.tell_hint(result.error.hint)
    err.print(_footer(result, total), style="dim")


def _footer(result: AgentResult, total: str) -> str:
    turns = f"{result.turns} turn{'' if result.turns == 1 else 's'}"
    parts = [result.status.replace("_", " "), turns, used(result.usage), total]
    parts += [f"session {result.session_id}", result.run_id]
    return " · ".join(part for part in parts if part)
