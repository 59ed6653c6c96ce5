"""What each kind of record says. `PAYLOADS` is the whole list."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from holdfast.contracts._base import Count, Told, optional
from holdfast.contracts.approval import ApprovalDecision, ApprovalRequest
from holdfast.contracts.content import Digest
from holdfast.contracts.effect import EffectIntent, EffectResult
from holdfast.contracts.ids import Id, SessionId
from holdfast.contracts.run import ErrorObject, Metrics, RunStatus
from holdfast.contracts.session import Language, SessionLimits


class SessionCreated(Told):
    """A session exists from here on."""

    language: Language
    """What its code is written in."""
    limits: SessionLimits
    """What each of its runs may use."""
    engine: str
    """Engine and version, as `name/version`."""


class SessionState(Told):
    """The session's state was saved; runs up to here need no replay."""

    state: Digest
    """The sealed engine state."""
    engine: str
    """Engine and version that wrote it."""
    limits: SessionLimits
    """The limits the engine carries inside the state."""


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
    code: Digest
    """The code."""
    inputs: Digest | None = optional()
    """The inputs, as canonical JSON."""


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
    "code_validated": CodeValidated,
    "effect_intent": EffectIntent,
    "effect_result": EffectResult,
    "approval_requested": ApprovalRequest,
    "approval_responded": ApprovalResponded,
    "usage_recorded": UsageRecorded,
    "content_erased": ContentErased,
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
    }
)
"""Kinds that end something: no subscriber ever misses one."""
