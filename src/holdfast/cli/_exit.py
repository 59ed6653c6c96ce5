"""What to exit with: 0 fine, 1 it failed, 2 bad usage, 3 waiting for approval, 4 needs attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import CODES

if TYPE_CHECKING:
    from holdfast.contracts import RunResult, RunView
    from holdfast.contracts.agent import AgentResult

WAITING, ATTENTION = 3, 4

_STANDS = {"waiting_for_approval": WAITING, "interrupted": ATTENTION, "needs_attention": ATTENTION}


def of_result(result: RunResult) -> int:
    """The exit code of whoever asked for a run and got this."""
    if result.error is None:
        return 0
    if result.status.value in _STANDS:
        return _STANDS[result.status.value]
    # A capability may fail with a code of its own, which is in nobody's table.
    known = CODES.get(result.error.code)
    return known.exit_code if known else 1


def of_agent(result: AgentResult) -> int:
    """The same for a run of an agent. One that stopped short of what was asked has failed, though it is over."""
    if result.status in _STANDS:
        return _STANDS[result.status]
    whole = result.error is None and result.output_error is None
    return 0 if result.status == "completed" and whole else 1


def of_run(run: RunView) -> int:
    """The same for a run that is looked at; one that is under way is fine so far."""
    if run.status in _STANDS:
        return _STANDS[run.status]
    return 0 if run.status in ("running", "completed") else 1
