"""What the tools of the MCP server take. A session that is not named is the connection's own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked
from holdfast.server.params import ListApprovals, OfSession, Page

WAIT_MS = 30_000


class RunCode(OfSession):
    """Code, and the session to run it in."""

    code: str
    """Python. What it defines stays in the session; the value of the last expression, or `result`, is the result."""
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    """Read-only variables of this run."""
    timeout_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    """How long it may take."""
    dry_run: bool = False
    """Answer reads, make no other call: `plan` says what it would do."""
    plan_id: str | None = None
    """An approved plan that the run must keep to."""


class ValidateCode(OfSession):
    """Code to check."""

    code: str
    """Python."""


class SearchTools(OfSession):
    """Capabilities by what they say of themselves."""

    query: str
    """Words; none: all of them."""
    limit: int = Field(default=20, ge=1, le=1000)
    """At most so many."""


class DescribeTool(OfSession):
    """One capability."""

    name: str
    """Which."""


class ListSessions(Page):
    """Sessions, by id."""


class ForkSession(OfSession):
    """Another session that goes on from where this one is."""

    new_session_id: str
    """Its name."""
    at: int | None = Field(default=None, ge=1)
    """As it was after this record."""


class ResumeRun(Asked):
    """A run that stands."""

    run_id: str
    """Which: `run_id` of the result that said so."""


class Approvals(ListApprovals):
    """What waits for a person."""


class Decide(Asked):
    """A person's answer."""

    approval_id: str
    """To which question."""
    decision: Literal["approved", "approved_for_session", "denied"]
    """The answer."""
    reason: str | None = None
    """Why, in words."""
    content: dict[str, JsonValue] | None = None
    """What was filled in, where the question has a form."""


class AskAgent(OfSession):
    """Something for an agent to do."""

    prompt: str
    """What it is asked."""
