"""The calls that are under way on one connection, and which of them a server means when it asks something.

Over HTTP what a server asks during a call comes with the answer to that call, and the SDK hands it over in the context
of whoever made the call. Over stdio nothing says which call is meant: then it is the only one there is, or none.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from holdfast.gate.executor import Context


@dataclass(eq=False, slots=True)
class Underway:
    """One call."""

    tool: str
    context: Context
    failure: Exception | None = None
    """Why its request could not be made, or was not answered."""
    contract: str | None = None
    """The digest of the tool that it is meant for."""
    looked: bool = False
    """Whether its tool was looked at just now, and is what it was."""
    asked: int = 0
    """Questions that its server asked while it was under way."""
    status: int | None = None
    """What the server answered its request with, if that was a refusal."""


CURRENT: ContextVar[Underway | None] = ContextVar("holdfast_mcp_call", default=None)
"""The call on whose behalf this task acts."""


@dataclass(slots=True)
class Calls:
    """Those of one connection."""

    under_way: list[Underway] = field(default_factory=list[Underway])

    def meant(self) -> Underway | None:
        """The call that a server asks about; `None`: that can't be told."""
        current = CURRENT.get()
        if current is not None and current in self.under_way:
            return current
        return self.under_way[0] if len(self.under_way) == 1 else None
