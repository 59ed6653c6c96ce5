"""Who is asked: the inbox, a function, or a command.

The inbox asks nobody: a request lies there until somebody answers, and its run parks. A dispatcher asks somebody
who is there now, while the run waits. What it says counts only if the inbox takes it as an answer, so a person who
was faster, or the deadline, wins, and the dispatcher's answer is recorded as late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Literal, Protocol

from anyio import to_thread

from holdfast.contracts import ApprovalDecision, ApprovalView, Decision, Json

_YES = ApprovalDecision(decision=Decision.APPROVED)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a dispatcher has no decision."""

    why: Literal["timed_out", "cancelled", "unavailable"]
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class Filled:
    """A form that was filled in, in answer to a request that has one."""

    content: Json
    """By the names of its fields."""
    decision: ApprovalDecision = _YES
    """Who says so."""


class Dispatcher(Protocol):
    """Asks somebody."""

    async def dispatch(self, request: ApprovalView) -> ApprovalDecision | Filled | NoAnswer:
        """Ask, and wait for the answer. May raise: that counts as unavailable."""
        ...


Said = ApprovalDecision | Filled | NoAnswer | Decision | str | bool | None
Callback = Callable[[ApprovalView], "Said | Awaitable[Said]"]


class AskFunction:
    """Asks a function of the host: it gets the request, and gives a decision."""

    def __init__(self, function: Callback, *, actor: str = "callback") -> None:
        self._function = function
        self._actor = actor

    async def dispatch(self, request: ApprovalView) -> ApprovalDecision | Filled | NoAnswer:
        """Call it: a coroutine is awaited, any other function runs in a thread."""
        said = await to_thread.run_sync(self._function, request, abandon_on_cancel=True)
        if isawaitable(said):
            said = await said
        return understood(said, actor=self._actor, via="callback")


def understood(said: Said, *, actor: str, via: str) -> ApprovalDecision | Filled | NoAnswer:
    """What an answer means. Only the exact words count; anything else is a denial, and never a guess."""
    if isinstance(said, ApprovalDecision | NoAnswer):
        return said
    if isinstance(said, Filled):
        own = {"actor": said.decision.actor or actor, "via": said.decision.via or via}
        return Filled(said.content, said.decision.model_copy(update=own))
    if said is True:
        said = Decision.APPROVED
    if said is None:
        return NoAnswer("unavailable", "approval.no_answer")
    try:
        decision = Decision(said) if isinstance(said, str) else Decision.DENIED
    except ValueError:
        return ApprovalDecision(
            decision=Decision.DENIED, reason_code="approval.invalid_answer", actor=actor, via=via
        )
    code = "approval.denied" if decision is Decision.DENIED else None
    return ApprovalDecision(decision=decision, reason_code=code, actor=actor, via=via)
