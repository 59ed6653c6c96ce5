"""What the methods of JSON-RPC take. By name; by position they are taken in the order of the fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from holdfast.contracts import RunRequest, Setup
from holdfast.contracts._base import Asked
from holdfast.contracts.view import RunFilter

WAIT_MS = 30_000
WaitMs = Annotated[int, Field(ge=0, le=600_000)]
"""How long a request may wait for a session that another run has."""


class NoParams(Asked):
    """Nothing."""


class Page(Asked):
    """A part of a list."""

    after: str = ""
    """`next` of the part before it."""
    limit: int = Field(default=100, ge=1, le=10_000)
    """At most so many."""


class InSession(Asked):
    """A session."""

    session_id: str = "default"
    """Which."""
    wait_ms: WaitMs = WAIT_MS
    """How long to wait while another run has it."""


class CreateSession(Asked):
    """A new session."""

    session_id: str | None = None
    """Its name; one is made up without."""
    language: str = "python"
    """What its code is written in."""
    setup: Setup | None = None
    """What it is opened with."""


class RunCode(RunRequest):
    """A `RunRequest`, and how to carry it out."""

    session_id: str = "default"  # checked by the shell, whose refusal is a `RunResult`
    """Created on first use."""
    language: str = "python"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Must be the session's."""
    setup: Setup | None = None
    """What the session is opened with from now on."""
    wait_ms: WaitMs = WAIT_MS
    """How long to wait while another run has the session."""


class CancelSession(Asked):
    """Stop what runs in a session."""

    session_id: str = "default"
    """Which."""
    mode: Literal["now", "after_effect"] = "now"
    """At once, or when the calls that are under way have ended."""
    run_id: str | None = None
    """Only if it is this run."""


class RestoreSession(InSession):
    """Put a snapshot into a session."""

    snapshot: str
    """The snapshot, in base64."""
    setup: Setup | None = None
    """What the session is opened with from now on."""


class ForkSession(InSession):
    """Make another session of one."""

    new_session_id: str
    """The new session's name."""
    at: int | None = Field(default=None, ge=1, lt=1 << 63)
    """As it was after this record."""


class OfSession(Asked):
    """What a session may do."""

    session_id: str | None = None
    """Which; without, one that is opened as the settings say."""


class DescribeTool(OfSession):
    """One capability."""

    name: str
    """Which."""


class SearchTools(OfSession):
    """Capabilities by what they say of themselves."""

    query: str
    """Words."""
    limit: int = Field(default=20, ge=1, le=1000)
    """At most so many."""


class GetRun(Asked):
    """One run."""

    run_id: str
    """Which."""


class ListRuns(Page):
    """Runs."""

    session_id: str | None = None
    """Only of this session."""
    status: RunFilter | None = None
    """Only these: `active`, `ended`, or a status."""


class ResumeRun(GetRun):
    """Go on with a run that stands."""

    setup: Setup | None = None
    """What its session is opened with from now on."""
    wait_ms: WaitMs = WAIT_MS
    """How long to wait while another run has the session."""


class CancelRun(GetRun):
    """Stop a run."""

    mode: Literal["now", "after_effect"] = "now"
    """At once, or when the calls that are under way have ended."""
    reason: str | None = None
    """Why; goes on record."""
    wait_ms: WaitMs = WAIT_MS
    """How long to wait while another run has the session."""


class ResolveEffect(Asked):
    """What became of an effect in doubt."""

    effect_id: str
    """Which."""
    answer: Literal["happened", "did_not_happen", "retry"]
    """What became of it."""
    value: JsonValue = None
    """What it gave, when it happened."""
    run_id: str | None = None
    """Its run, if the caller wants that checked."""
    actor: str | None = None
    """Who says so."""
    wait_ms: WaitMs = WAIT_MS
    """How long to wait while another run has the session."""


class ListApprovals(Page):
    """What waits for a person."""

    status: Literal["pending", "decided", "all"] = "pending"
    """Which of them."""


class Decide(Asked):
    """An answer to what waits, or to a plan."""

    id: str
    """The approval, or the plan."""
    decision: Literal["approved", "approved_for_session", "denied"]
    """The answer."""
    reason_code: str | None = None
    """Why, as a token."""
    reason: str | None = None
    """Why, in words."""
    actor: str | None = None
    """Who answers."""
    content: JsonValue = None
    """What was filled in, where there is a form."""
    resume: bool = True
    """Whether the run goes on here; `run.resume` gives its result."""


class ReadJournal(Asked):
    """Records, oldest first."""

    after: int = Field(default=0, ge=0, lt=1 << 63)
    """Only those with a greater seq."""
    limit: int = Field(default=100, ge=1, le=10_000)
    """At most so many."""
    session_id: str | None = None
    """Only what its own stream holds, which is found at once. Answers to it and its plans are in shared streams."""
    run_id: str | None = None
    """Only of this run."""
    kind: str | None = None
    """Only of this kind."""


class Subscribe(Asked):
    """Records as they come."""

    after: int | None = Field(default=None, ge=0, lt=1 << 63)
    """Start after this seq; without, with what comes from now on."""
    session_id: str | None = None
    """Only what is about this session, also in shared streams: answers to it, and its plans."""
    kind: str | None = None
    """Only of this kind."""


class Unsubscribe(Asked):
    """No more records."""

    subscription: str
    """Which."""
