"""What requests say, and the answers that no contract has."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from holdfast.contracts import (
    EffectView,
    RunResult,
    RunView,
    SessionLimits,
    Setup,
)
from holdfast.contracts._base import Asked, Told, optional
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.surface import SurfaceName, SurfaceSpec
from holdfast.server.params import WaitMs

SESSION_WAIT_MS = 30_000

Cancelling = Literal["now", "after_effect"]


class Waiting(Asked):
    """How long to wait."""

    wait_ms: WaitMs | None = None
    """For the run to end, or to stand; then the answer is 202. Default: as long as the server bears."""


class OfSession(Asked):
    """Whose."""

    session_id: str | None = None
    """The session; without, one that is opened as the settings say."""


class InSession(Asked):
    """Something about a session."""

    wait_ms: WaitMs = SESSION_WAIT_MS
    """How long to wait while another run has the session."""


class CreateSession(Asked):
    """A new session."""

    session_id: str | None = Field(default=None, max_length=64)
    """Its name; one is made up without."""
    language: str = "python"
    """What its code is written in."""
    setup: Setup | None = None
    """What it is opened with; needs `admin`."""


class RunCode(InSession):
    """Code to run."""

    code: str
    """What to run."""
    language: str = "python"
    """Must be the session's."""
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    """Read-only top-level variables of this run."""
    timeout_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    """Overrides `wall_ms` for this run."""
    limits: SessionLimits | None = None
    """Overrides the session's limits for this run; more than the server's own needs `admin`."""
    return_snapshot: bool = False
    """Save the state after this run and name it in `snapshot_id`."""
    validate_only: bool = False
    """Check the code; run and write nothing."""
    dry_run: bool = False
    """Run it, answer reads, make no other call: what it would do is in `plan`."""
    plan_id: str | None = None
    """An approved plan the run must keep to."""
    setup: Setup | None = None
    """What the session is opened with from now on; needs `admin`."""


class RestoreSession(InSession):
    """A snapshot to put into a session."""

    snapshot: str
    """As `snapshot` gave it: base64."""
    setup: Setup | None = None
    """What the session is opened with from now on; needs `admin`."""


class ForkSession(InSession):
    """Another session to make of one."""

    new_session_id: str = Field(max_length=64)
    """The new session's name."""
    at: int | None = Field(default=None, ge=1, lt=1 << 63)
    """As it was after this record."""


class CancelSession(Asked):
    """Stop what runs in a session."""

    mode: Cancelling = "now"
    """At once, or when the calls that are under way have ended."""
    run_id: str | None = None
    """Only if it is this run."""


class RunAgent(InSession):
    """What an agent is to do."""

    prompt: str | None = None
    """What it is told; without, it begins with what waits in the session."""
    session_id: str | None = Field(default=None, max_length=64)
    """The conversation to go on with; a new one without."""
    account: str | None = None
    """Whose budget it uses up."""


class ResumeRun(InSession):
    """Go on with a run that stands."""

    setup: Setup | None = None
    """What its session is opened with from now on; needs `admin`."""


class CancelRun(InSession):
    """Stop a run."""

    mode: Cancelling = "now"
    """At once, or when the calls that are under way have ended."""
    reason: str | None = Field(default=None, max_length=2000)
    """Why; goes on record."""


class ResolveEffect(InSession):
    """What became of an effect in doubt."""

    answer: Literal["happened", "did_not_happen", "retry"]
    """What became of it."""
    value: JsonValue = None
    """What it gave, when it happened."""
    run_id: str | None = None
    """Its run, if the caller wants that checked."""
    actor: str | None = Field(default=None, min_length=1, max_length=200)
    """On whose behalf; needs `admin`. Else it is the caller."""


class Decide(Asked):
    """An answer to what waits, or to a plan."""

    decision: Literal["approved", "approved_for_session", "denied"]
    """The answer."""
    reason_code: str | None = Field(default=None, max_length=200)
    """Why, as a token."""
    reason: str | None = Field(default=None, max_length=2000)
    """Why, in words."""
    actor: str | None = Field(default=None, min_length=1, max_length=200)
    """On whose behalf; needs `admin`. Else it is the caller."""
    content: JsonValue = None
    """What was filled in, where there is a form."""
    resume: bool = True
    """Whether the run goes on."""


class AddSurface(Asked):
    """A surface to add."""

    name: SurfaceName
    """Starts the name of each of its tools."""
    spec: SurfaceSpec
    """What it is connected to."""


# -- answers --------------------------------------------------------------------------------------


class AgentRun(AgentResult):
    """What a run of an agent gave."""

    id: str
    """The run's name, as in every view."""


class RunAccepted(Told):
    """The run is under way: look at `url`."""

    id: str
    """The run's name."""
    run_id: str
    """The same."""
    session_id: str
    """Its session."""
    status: str = "running"
    """Where it stands."""
    url: str
    """Where it is shown."""


class RunDetails(RunView):
    """A run with all its calls, and what its caller got."""

    effects: tuple[EffectView, ...] = ()
    """Every call it made, in order."""
    result: RunResult | AgentRun | None = None
    """What its caller got; null while it is under way, or erased."""


class Snapshot(Told):
    """What is in a session, sealed."""

    session_id: str
    """Whose."""
    snapshot_id: str
    """Its digest."""
    snapshot: str
    """Base64."""
    bytes: int
    """How many it has."""


class Cancelled(Told):
    """Whether anything was stopped."""

    session_id: str
    """Where."""
    cancelled: bool
    """Whether something ran there."""


class ToolLine(Told):
    """A capability as lists show it."""

    name: str
    """What code calls it."""
    description: str
    """What it does."""
    side_effect: str
    """What it may touch."""
    risk: str
    """How much harm a mistake would do."""
    idempotent: bool
    """Whether it may be repeated."""
    stub: str
    """As the model sees it."""


class AgentLine(Told):
    """An agent that is served."""

    name: str
    """What it is asked by."""
    model: str
    """Its model."""
    mode: str
    """`code`: it acts by writing code; `tools`: by calling each."""
    instructions: str = ""
    """What it is told before everything else."""


class JournalRecord(Told):
    """A record as callers see it."""

    seq: int
    """Its place among all records."""
    stream: str
    """Whose history it is part of."""
    pos: int
    """Its place there."""
    time: int
    """Unix milliseconds."""
    kind: str
    """What kind of thing happened."""
    actor: str
    """On whose authority."""
    privacy: str
    """Who may see the payload."""
    run_id: str | None = optional()
    """The run it belongs to."""
    turn_id: str | None = optional()
    """The turn it belongs to."""
    effect_id: str | None = optional()
    """The effect it belongs to."""
    payload: dict[str, Any] | None = optional()
    """What happened, where it may be shown."""
    prev: str
    """The hash of the stream's record before it."""
    hash: str
    """Of the record as it is stored."""
