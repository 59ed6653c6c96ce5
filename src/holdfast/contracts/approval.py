"""A question to a person, and the answer."""

from __future__ import annotations

from enum import StrEnum

from holdfast.contracts._base import Told, optional
from holdfast.contracts.capability import SideEffect
from holdfast.contracts.content import Digest
from holdfast.contracts.ids import Id


class Risk(StrEnum):
    """How much harm a mistake would do."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Decision(StrEnum):
    """The only answers there are; nothing else counts as one."""

    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    DENIED = "denied"


class ApprovalRequest(Told):
    """May it? Bound to the effect and to the digest of what was shown."""

    id: Id
    """Its name in the inbox."""
    effect_id: Id
    """The effect it would release."""
    tool: str
    """The capability."""
    arguments: Digest
    """The canonical arguments, by digest; the body is in the content store."""
    side_effect: SideEffect
    """What the call may touch."""
    risk: Risk = Risk.MEDIUM
    """How much harm a mistake would do."""
    summary: str
    """One line for the person."""
    deadline: int | None = optional()
    """Unix milliseconds after which it counts as denied."""


class ApprovalDecision(Told):
    """An answer."""

    decision: Decision
    """The answer itself."""
    reason_code: str | None = optional()
    """Why, as a token."""
    actor: str | None = optional()
    """Who answered."""


class ApprovalView(Told):
    """An item of the inbox."""

    id: str
    """Its name."""
    status: str
    """`pending`, or the decision."""
    tool: str
    """The capability."""
    arguments: str
    """What it would be called with, by digest."""
    side_effect: str
    """What the call may touch."""
    risk: str
    """How much harm a mistake would do."""
    summary: str
    """One line for the person."""
    session_id: str | None = None
    """On whose behalf."""
    run_id: str | None = None
    """The run that waits."""
    effect_id: str
    """The effect it would release."""
    requested_at: int
    """Unix milliseconds."""
    deadline: int | None = None
    """Unix milliseconds."""
    decision: ApprovalDecision | None = None
    """The answer, once there is one."""
