"""What each kind of record says. `PAYLOADS` is the whole list."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from holdfast.contracts._base import Count, Told, listed, optional, unless
from holdfast.contracts.agent import AGENT_PAYLOADS
from holdfast.contracts.approval import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalStatus,
    Grant,
)
from holdfast.contracts.content import Digest
from holdfast.contracts.effect import (
    EffectAttempt,
    EffectIntent,
    EffectReleased,
    EffectResult,
    EffectSeen,
)
from holdfast.contracts.hook import HookRecord
from holdfast.contracts.ids import Id, SessionId
from holdfast.contracts.lease import LEASE_PAYLOADS
from holdfast.contracts.policy import Setup
from holdfast.contracts.run import ErrorObject, Metrics, RunStatus
from holdfast.contracts.session import Language, SessionLimits
from holdfast.contracts.surface import SURFACE_PAYLOADS
from holdfast.contracts.token import TOKEN_PAYLOADS


class SessionCreated(Told):
    """A session exists from here on."""

    language: Language
    """What its code is written in."""
    limits: SessionLimits
    """What each of its runs may use."""
    engine: str
    """Engine and version, as `name/version`."""
    setup: Setup | None = optional()
    """What it was opened with."""


class SessionOpened(Told):
    """The session is used with another setup from here on."""

    setup: Setup
    """What it was opened with."""


class SessionState(Told):
    """The session's state was saved; runs up to here need no replay."""

    state: Digest
    """The sealed engine state."""
    engine: str
    """Engine and version that wrote it."""
    limits: SessionLimits
    """The limits the engine carries inside the state."""
    names: tuple[str, ...] = listed()
    """The variables and functions in it."""
    reason: Literal["saved", "reset", "restored", "forked"] = "saved"
    """How it came about: by running code, or in place of what was there."""
    origin: str | None = optional()
    """Where it was taken from, when it was restored or forked."""


class SessionDestroyed(Told):
    """The session is gone. Its bodies are erased with the next sweep; the chain stays."""

    reason: str
    """Why, as a token."""


class RunStarted(Told):
    """A run began. On record before its end is, and before anything it asks of the outside."""

    kind: Literal["code", "agent"]
    """What runs."""
    language: Language
    """What the code is written in."""
    limits: SessionLimits | None = optional()
    """The limits in force for this run, where they are not the session's."""
    code: Digest | None = optional()
    """The code; an agent's run has none."""
    inputs: Digest | None = optional()
    """The inputs, as canonical JSON."""
    agent: Digest | None = optional()
    """The agent, as an `AgentSpec`."""
    prompt: Digest | None = optional()
    """What it was asked, as a message."""
    account: Id | None = optional()
    """The account it uses up, with others."""
    parent: Id | None = optional()
    """The agent's run that wrote this code."""
    call_id: str | None = optional()
    """The model's call that this code answers."""
    toolbox: str | None = optional()
    """The set of capabilities in force: its digest."""
    plan: Id | None = optional()
    """The approved plan it must keep to."""
    actor: str | None = optional()
    """On whose behalf it calls."""
    return_snapshot: bool = unless(False)
    """Whether its caller wants the state after it saved and named."""


class RunCompleted(Told):
    """A run reached its end."""

    result: Digest
    """The `RunResult`, as JSON."""
    metrics: Metrics
    """What it used."""
    start: RunStarted | None = optional()
    """How it started, when no record of that went before: a short run is one record."""


class RunFailed(Told):
    """A run ended without reaching its end."""

    status: RunStatus
    """How."""
    error: ErrorObject
    """Why."""
    result: Digest | None = optional()
    """The `RunResult`, as JSON; absent when the process died before there was one."""
    metrics: Metrics
    """What it used."""
    state_kept: bool
    """Whether what it had changed in the session so far stays (as after an exception) or was undone."""
    start: RunStarted | None = optional()
    """How it started, when no record of that went before."""


class RunCancelled(RunFailed):
    """A run was stopped by its user or host."""


class RunParked(Told):
    """A run stands and nothing can go on without somebody. Any process may resume it."""

    status: Literal["waiting_for_approval", "needs_attention", "interrupted"]
    """For whom it waits: who approves, who knows what became of an effect, or whoever resumes it."""
    approvals: tuple[Id, ...] = listed()
    """The approvals it waits for."""
    in_doubt: tuple[Id, ...] = listed()
    """The effects nobody knows the end of."""
    state: Digest | None = optional()
    """The sealed engine state at the call; without one, the code is run again against recorded results."""
    progress: Digest | None = optional()
    """What it had used and printed by then."""
    engine: str | None = optional()
    """Engine and version that wrote the state."""
    limits: SessionLimits | None = optional()
    """The limits the engine carries inside the state."""
    wall_used_ms: Count = 0
    """How much of its `wall_ms` is used."""
    error: ErrorObject | None = optional()
    """What it waits for, in words."""
    result: Digest | None = optional()
    """The `RunResult` its caller got, as JSON."""


class RunResumed(Told):
    """A run that stood goes on."""

    how: Literal["state", "replay"]
    """From the parked state, or by running the code again against recorded results."""
    reason: str
    """Why, as a token."""
    agent: Digest | None = optional()
    """The agent it goes on with, where that is another than it started with."""


class RunCancelRequested(Told):
    """Somebody wants a run stopped."""

    run: Id
    """Which."""
    mode: Literal["now", "after_effect"]
    """At once, or when the calls that are under way have ended."""
    reason: str | None = optional()
    """Why, in words."""


class PlanMade(Told):
    """Code was tried without effects; this is what it would do."""

    id: Id
    """The plan's name."""
    session_id: SessionId
    """For which session."""
    code: Digest
    """The code."""
    inputs: Digest | None = optional()
    """The inputs, as canonical JSON."""
    plan: Digest
    """The list of effects, as JSON."""
    setup: Setup | None = optional()
    """What the session was opened with for it, if that was said: the run that keeps to the plan has the same."""
    status: RunStatus
    """How the trial ended."""


class PlanDecided(Told):
    """A plan as a whole was approved or denied."""

    id: Id
    """The plan."""
    decision: ApprovalDecision
    """The answer."""


class CodeValidated(Told):
    """Code was checked and not run."""

    session_id: SessionId
    """For which session."""
    language: Language
    """What it is written in."""
    code: Digest
    """The code."""
    status: RunStatus
    """`ok` or `validation_error`."""


class ApprovalResponded(Told):
    """Somebody answered."""

    id: Id
    """The request."""
    decision: ApprovalDecision
    """The answer."""


class ApprovalRefused(Told):
    """An answer that does not count: too late, not allowed, or to nothing that was asked."""

    id: str
    """The request it was for."""
    decision: ApprovalDecision
    """The answer."""
    reason_code: str
    """Why it does not count."""


class ApprovalEnded(Told):
    """A request ended without an answer: its time ran out, or its run was cancelled."""

    id: Id
    """The request."""
    status: ApprovalStatus
    """How."""
    reason_code: str
    """Why, as a token."""


class ApprovalSettled(Told):
    """The run has taken note of how its request ended. Single use: it can't be settled twice."""

    id: Id
    """The request."""
    status: ApprovalStatus
    """How it ended."""
    reason_code: str
    """Why, as a token."""
    decision: ApprovalDecision | None = optional()
    """The answer, if there was one."""


class ApprovalPreapproved(Told):
    """Nobody was asked, because somebody had said that nobody need be."""

    effect_id: Id
    """The effect."""
    grant_id: Id
    """The consent."""


class GrantRevoked(Told):
    """A grant holds no longer."""

    id: Id
    """Which."""
    reason: str
    """`revoked`, `expired`, `capability_changed`."""


class UsageRecorded(Told):
    """Something was used that has a price."""

    model: str
    """What was used."""
    input_tokens: Count = 0
    """Tokens in."""
    output_tokens: Count = 0
    """Tokens out."""
    cost_micros: Count = 0
    """Millionths of a US dollar."""


class ContentErased(Told):
    """A body was erased; its digest stays in the chain."""

    digest: Digest
    """Which."""
    reason: str
    """Why, as a token."""


PAYLOADS: dict[str, type[BaseModel]] = {
    "session_created": SessionCreated,
    "session_state": SessionState,
    "session_destroyed": SessionDestroyed,
    "run_started": RunStarted,
    "run_completed": RunCompleted,
    "run_failed": RunFailed,
    "run_cancelled": RunCancelled,
    "session_opened": SessionOpened,
    "run_parked": RunParked,
    "run_resumed": RunResumed,
    "run_cancel_requested": RunCancelRequested,
    "code_validated": CodeValidated,
    "plan_made": PlanMade,
    "plan_decided": PlanDecided,
    "effect_intent": EffectIntent,
    "effect_attempt": EffectAttempt,
    "effect_released": EffectReleased,
    "effect_result": EffectResult,
    "effect_seen": EffectSeen,
    "hook": HookRecord,
    "approval_requested": ApprovalRequest,
    "approval_responded": ApprovalResponded,
    "approval_refused": ApprovalRefused,
    "approval_ended": ApprovalEnded,
    "approval_settled": ApprovalSettled,
    "approval_preapproved": ApprovalPreapproved,
    "grant_given": Grant,
    "grant_revoked": GrantRevoked,
    "usage_recorded": UsageRecorded,
    "content_erased": ContentErased,
    **AGENT_PAYLOADS,
    **SURFACE_PAYLOADS,
    **LEASE_PAYLOADS,
    **TOKEN_PAYLOADS,
}
"""Kind → payload model."""

TERMINAL: frozenset[str] = frozenset(
    {
        "session_destroyed",
        "run_completed",
        "run_failed",
        "run_cancelled",
        "effect_result",
        "approval_responded",
        "approval_ended",
    }
)
"""Kinds that end something: no subscriber ever misses one."""
