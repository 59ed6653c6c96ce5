"""How long to wait before asking the model again. Pure: the jitter is an argument.

The order matters: the computed delay first, then a longer wish of the server, else the floor for rate limits, and at
last the time the run has left. So a plan never sleeps past the end of its run, and a server that says "60 s" is never
asked after 30. What is retryable is decided by the typed kind of a failure, never by its text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

RATE_LIMIT_FLOOR_MS = 30_000
"""No rate limit is over sooner, unless the server asks for more than the computed delay, and so says how long it takes."""

JITTER = 0.1
"""The computed delay varies by at most this share."""

_ENDLESS = 1e300


class FailureKind(StrEnum):
    """How a model call failed."""

    RATE_LIMITED = "RateLimited"
    NETWORK_TIMEOUT = "NetworkTimeout"
    CALL_TIMEOUT = "CallTimeout"
    RETRYABLE_PROVIDER_ERROR = "RetryableProviderError"
    AUTH = "Auth"
    INVALID_MODEL = "InvalidModel"
    CONTEXT_EXCEEDED = "ContextExceeded"
    CONTENT_FILTER = "ContentFilter"
    INVALID_REQUEST = "InvalidRequest"


RETRYABLE = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.NETWORK_TIMEOUT,
        FailureKind.CALL_TIMEOUT,
        FailureKind.RETRYABLE_PROVIDER_ERROR,
    }
)
"""Asking again may help."""


class RetryPolicy(NamedTuple):
    """How often and how patiently."""

    max_retries: int = 3
    """Attempts after the first call."""
    initial_delay_ms: int = 500
    """Before the first retry."""
    multiplier: float = 2.0
    """Each further delay is this much longer."""
    max_delay_ms: int = 30_000
    """No computed delay is longer; a hint or the floor may be."""
    call_timeout_ms: int | None = None
    """Of one call, when nobody closer to it says otherwise."""


class RetryPlan(NamedTuple):
    """What will happen before the next attempt, and why so."""

    attempt: int
    """From 1."""
    max_retries: int
    """The last attempt allowed."""
    computed_delay_ms: int
    """By the policy, with jitter."""
    selected_delay_ms: int
    """What is slept."""
    retry_after_hint_ms: int | None = None
    """What the server asked for."""
    rate_limit_floor_applied: bool = False
    """Whether the floor made it longer."""
    budget_capped: bool = False
    """Whether the end of the run made it shorter."""


def retry_delay(
    attempt: int,
    policy: RetryPolicy,
    kind: FailureKind,
    *,
    hint_ms: int | None,
    remaining_ms: int | None,
    jitter: float,
) -> RetryPlan:
    """The plan for attempt `attempt` (from 1); `jitter` in −1…1 is the caller's random number."""
    computed = _computed(attempt, policy, jitter)
    selected, floored = computed, False
    if hint_ms is not None and hint_ms > computed:
        selected = hint_ms
    elif kind is FailureKind.RATE_LIMITED and computed < RATE_LIMIT_FLOOR_MS:
        selected, floored = RATE_LIMIT_FLOOR_MS, True
    capped = remaining_ms is not None and selected > max(remaining_ms, 0)
    if remaining_ms is not None and capped:
        selected = max(remaining_ms, 0)
    return RetryPlan(attempt, policy.max_retries, computed, selected, hint_ms, floored, capped)


def _computed(attempt: int, policy: RetryPolicy, jitter: float) -> int:
    factor = 1.0 + JITTER * min(1.0, max(-1.0, jitter))
    try:
        growth = float(policy.multiplier ** (attempt - 1))
    except OverflowError:
        growth = _ENDLESS
    return int(min(policy.initial_delay_ms * growth * factor, policy.max_delay_ms))


class CallTimeout(NamedTuple):
    """How long one call may take, and what it means when it does."""

    timeout_ms: int | None
    """`None`: as long as it likes."""
    ends_the_run: bool
    """Whether it is the run's time that is up; a call's own timeout is retryable."""


def call_timeout(
    explicit: int | Literal["disabled"] | None,
    profile_ms: int | None,
    policy: RetryPolicy,
    remaining_ms: int | None,
) -> CallTimeout:
    """The time one call may take; which of the two limits it is, is decided before waiting.

    `explicit` comes first; `"disabled"` also silences the model's profile and the policy.
    """
    own = None
    if explicit != "disabled":
        layers = (explicit, profile_ms, policy.call_timeout_ms)
        own = next((one for one in layers if one is not None), None)
    if remaining_ms is not None and (own is None or remaining_ms <= own):
        return CallTimeout(max(remaining_ms, 0), True)
    return CallTimeout(own, False)
