"""A question to a person, and the answer."""

from __future__ import annotations

from enum import StrEnum

from pydantic import JsonValue

from holdfast.contracts._base import Told, listed, optional, unless
from holdfast.contracts.capability import Risk, SideEffect
from holdfast.contracts.content import Digest
from holdfast.contracts.ids import Id


class Decision(StrEnum):
    """The only answers there are; nothing else counts as one."""

    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    DENIED = "denied"


class ApprovalStatus(StrEnum):
    """Where a request stands. A call is released if, and only if, it is one of the two approvals."""

    PENDING = "pending"
    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    DENIED = "denied"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DISPATCHER_UNAVAILABLE = "dispatcher_unavailable"

    @property
    def releases(self) -> bool:
        """Whether the call may be made."""
        return self in (ApprovalStatus.APPROVED, ApprovalStatus.APPROVED_FOR_SESSION)


class Asks(StrEnum):
    """What a person is asked for."""

    CONSENT = "consent"
    """May it?"""
    INPUT = "input"
    """Something that a call needs to know: the answer is a form that is filled in."""
    SIGN_IN = "sign_in"
    """A credential: the answer is given by signing in at an address."""


class ApprovalRequest(Told):
    """May it? Bound to the effect, to the digest of what was shown, and to the capability as it was."""

    id: Id
    """Its name in the inbox."""
    effect_id: Id
    """The effect it would release."""
    dispatch_id: Id | None = optional()
    """The effect of asking."""
    tool: str
    """The capability."""
    arguments: Digest
    """The canonical arguments, by digest; the body is in the content store."""
    request: Digest | None = optional()
    """What the code asked for, before any hook changed it."""
    ordinal: int | None = optional()
    """The call's number in its run."""
    line: int | None = optional()
    """The line of the code that the call is at, from 1."""
    call_id: str | None = optional()
    """The model's call that it answers."""
    capability: Digest | None = optional()
    """The capability as it was: its digest."""
    side_effect: SideEffect
    """What the call may touch."""
    risk: Risk = Risk.MEDIUM
    """How much harm a mistake would do."""
    summary: str
    """One line for the person."""
    rule: str | None = optional()
    """The rule that asks."""
    requested_by: str | None = optional()
    """On whose behalf."""
    allowed: tuple[Decision, ...] = listed()
    """The answers that count; empty: all of them."""
    deadline: int | None = optional()
    """Unix milliseconds after which it counts as denied."""
    asks: Asks = unless(Asks.CONSENT)
    """What is asked for."""
    form: dict[str, JsonValue] | None = optional()
    """The JSON Schema of the answer, where one is filled in."""
    url: str | None = optional()
    """Where to go, where that is part of the answer."""
    key: str | None = optional()
    """Names the question among those of its call."""
    question: Digest | None = optional()
    """What is asked, as the digest of message, form and address: the same question has the same."""
    state: Digest | None = optional()
    """What the asker needs back with the answer, by digest; nobody else is shown the body."""
    during: bool = unless(False)
    """Whether the call is under way meanwhile; if not, nothing was done yet."""
    beside: Id | None = optional()
    """The effect under way on whose behalf this one is wanted."""


class ApprovalDecision(Told):
    """An answer."""

    decision: Decision
    """The answer itself."""
    reason_code: str | None = optional()
    """Why, as a token."""
    reason: str | None = optional()
    """Why, in words."""
    actor: str | None = optional()
    """Who answered."""
    via: str | None = optional()
    """How they came in: `cli`, `http:token:…`, `callback`."""
    answer: Digest | None = optional()
    """What was filled in, by digest; the body is in the content store."""


class ApprovalView(Told):
    """An item of the inbox."""

    id: str
    """Its name."""
    status: ApprovalStatus
    """`pending`, or how it ended."""
    tool: str
    """The capability."""
    arguments: JsonValue = None
    """What it would be called with; null when the body was erased."""
    arguments_digest: str | None = None
    """The digest of the same."""
    side_effect: str
    """What the call may touch."""
    risk: str
    """How much harm a mistake would do."""
    summary: str
    """One line for the person."""
    rule: str | None = None
    """The rule that asks."""
    allowed: tuple[Decision, ...] = ()
    """The answers that count."""
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
    decided_at: int | None = None
    """When it ended, in unix milliseconds; null of what ended before this was kept."""
    reason_code: str | None = None
    """How it ended, as a token."""
    asks: Asks = Asks.CONSENT
    """What is asked for."""
    form: dict[str, JsonValue] | None = optional()
    """The JSON Schema of the answer, where one is filled in."""
    url: str | None = optional()
    """Where to go, where that is part of the answer."""
    during: bool = unless(False)
    """Whether the call is under way meanwhile."""


class Scope(StrEnum):
    """Which arguments a grant covers."""

    ANY = "any"
    EXACT = "exact"


class Grant(Told):
    """Consent that is remembered: calls of one capability in one session need not be asked about again."""

    id: Id
    """Its name."""
    session_id: str
    """Where it holds; never anywhere else."""
    tool: str
    """The capability."""
    capability: Digest
    """The capability as it was; when that changes, the grant is void."""
    risk: Risk
    """Calls of a greater risk are asked about."""
    scope: Scope = Scope.ANY
    """Which arguments."""
    arguments: Digest | None = optional()
    """The arguments, when the scope is `exact`."""
    approval_id: str | None = optional()
    """The answer it came from."""
    actor: str | None = optional()
    """Who gave it."""
    expires_at: int | None = optional()
    """Unix milliseconds."""
