"""The reconnect cycle of a live channel: a few attempts, each after a longer wait, then it is over.

The wait before attempt *k* is somewhere between nothing and 500 ms · 2^(k−1), at most 5 s: the caller brings the dice
(`luck`, 0 to 1). No attempt starts later than 30 s after the loss. An answer quotes its cycle and its attempt, so a late
one of an attempt that was given up changes nothing. Late and repeated news are normal, so every row is there for every
phase and says no by a named guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row

MAX_ATTEMPTS = 3
BACKOFF_MS = 500
MAX_BACKOFF_MS = 5_000
TOTAL_MS = 30_000


class Phase(StrEnum):
    """Where the cycle is."""

    IDLE = "Idle"
    RECONNECTING = "Reconnecting"
    EXHAUSTED = "Exhausted"


class Reconnect(NamedTuple):
    """The state."""

    phase: Phase = Phase.IDLE
    cycle: int = 0
    """How often the connection was lost."""
    attempt: int = 0
    """The attempt under way, or the last one."""
    lost_at: int = 0


# -- inputs -------------------------------------------------------------------------------------------


class Lost(NamedTuple):
    """The connection broke and should come back."""

    now: int
    luck: float


class AttemptFailed(NamedTuple):
    """That attempt brought nothing."""

    cycle: int
    attempt: int
    now: int
    luck: float


class Reattached(NamedTuple):
    """That attempt has a connection."""

    cycle: int
    attempt: int


# -- effects ------------------------------------------------------------------------------------------


class AttemptAfter(NamedTuple):
    """Try, after so long."""

    cycle: int
    attempt: int
    delay_ms: int


class Recovered(NamedTuple):
    """The channel goes on."""

    attempt: int


class GaveUp(NamedTuple):
    """The channel is over."""

    attempts: int


# -- guards -------------------------------------------------------------------------------------------

_IDLE, _RECONNECTING, _EXHAUSTED = Phase


def delay_ms(attempt: int, luck: float) -> int:
    """The wait before an attempt (1-based)."""
    # The exponent is capped too: a counter must not turn into a huge power.
    longest = min(BACKOFF_MS * 2 ** min(attempt - 1, 10), MAX_BACKOFF_MS)
    return int(longest * min(max(luck, 0.0), 1.0))


def _may_retry(state: Reconnect, failed: AttemptFailed) -> bool:
    starts_at = failed.now + delay_ms(state.attempt + 1, failed.luck)
    return state.attempt < MAX_ATTEMPTS and starts_at <= state.lost_at + TOTAL_MS


IDLE = guard("idle", lambda s, i: s.phase is _IDLE)
TRYING = guard("reconnecting", lambda s, i: s.phase is _RECONNECTING)
CURRENT = guard("attempt_current", lambda s, i: (i.cycle, i.attempt) == (s.cycle, s.attempt))
MAY_RETRY = guard("may_retry", _may_retry)
SPENT = guard("attempts_or_time_spent", lambda s, i: not _may_retry(s, i))


def _next_attempt(_: Reconnect, new: Reconnect, lost: Lost | AttemptFailed) -> tuple[Any, ...]:
    return (AttemptAfter(new.cycle, new.attempt, delay_ms(new.attempt, lost.luck)),)


def _alphabet(state: Reconnect) -> Iterator[object]:
    yield Lost(0, 1.0)
    for cycle in (state.cycle - 1, state.cycle):
        for attempt in (state.attempt - 1, state.attempt):
            yield from (AttemptFailed(cycle, attempt, now, 0.5) for now in (0, TOTAL_MS))
            yield Reattached(cycle, attempt)


RECONNECT = Machine(
    name="reconnect",
    purpose="A few attempts to get a live channel back, each after a longer wait.",
    initial=Reconnect(),
    rows=(
        row(
            Lost,
            Phase,
            _RECONNECTING,
            IDLE,
            update=lambda s, i: Reconnect(_RECONNECTING, s.cycle + 1, 1, i.now),
            effects=_next_attempt,
            emits="AttemptAfter",
        ),
        row(
            AttemptFailed,
            Phase,
            "=",
            TRYING,
            CURRENT,
            MAY_RETRY,
            update=lambda s, i: s._replace(attempt=s.attempt + 1),
            effects=_next_attempt,
            emits="AttemptAfter",
        ),
        row(
            AttemptFailed,
            Phase,
            _EXHAUSTED,
            TRYING,
            CURRENT,
            SPENT,
            update=lambda s, i: s._replace(phase=_EXHAUSTED),
            effects=lambda old, new, i: (GaveUp(new.attempt),),
            emits="GaveUp",
        ),
        row(
            Reattached,
            Phase,
            _IDLE,
            TRYING,
            CURRENT,
            update=lambda s, i: Reconnect(cycle=s.cycle),
            effects=lambda old, new, i: (Recovered(i.attempt),),
            emits="Recovered",
        ),
    ),
    invariants={
        "attempts exactly once the connection was lost": lambda s: (
            (s.attempt > 0) == (s.phase is not _IDLE)
        ),
        "attempts are bounded": lambda s: s.attempt <= MAX_ATTEMPTS,
        "attempts belong to a cycle": lambda s: s.cycle > 0 or (s.cycle == 0 and s.attempt == 0),
    },
    ends=frozenset({_IDLE, _EXHAUSTED}),
    alphabet=_alphabet,
    bounded=lambda s: s.cycle < 4,
)
