"""Who owns a session id within this process: at most one, known by a nonce.

A claim is released only by the token that holds it, so an old owner that lets go late, or twice, never frees the claim
of the next one. Nonces come from the caller and are used once. Both inputs are there in both phases: losing a race for a
claim and letting go of a lost one are normal, and refused by a named guard. Between processes the store's lease and the
epoch of `spine.py` do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Whether somebody owns it."""

    FREE = "Free"
    CLAIMED = "Claimed"


class Claim(NamedTuple):
    """The state."""

    phase: Phase = Phase.FREE
    nonce: str | None = None


class ClaimToken(NamedTuple):
    """Proof of a claim."""

    session_id: str
    nonce: str


# -- inputs -------------------------------------------------------------------------------------------


class Acquire(NamedTuple):
    """Own it."""

    nonce: str


class Release(NamedTuple):
    """Let go."""

    nonce: str


# -- effects ------------------------------------------------------------------------------------------


class Acquired(NamedTuple):
    """The nonce holds the claim."""

    nonce: str


class Released(NamedTuple):
    """The claim is free again."""

    nonce: str


# -- the table ----------------------------------------------------------------------------------------

_FREE, _CLAIMED = Phase

UNCLAIMED = guard("unclaimed", lambda s, i: s.phase is _FREE)
MINE = guard("nonce_matches", lambda s, i: s.nonce == i.nonce)

CLAIM = Machine(
    name="session_claim",
    purpose="One live owner per session id within a process.",
    initial=Claim(),
    rows=(
        row(
            Acquire,
            Phase,
            _CLAIMED,
            UNCLAIMED,
            update=lambda s, i: Claim(_CLAIMED, i.nonce),
            effects=lambda old, new, i: (Acquired(i.nonce),),
            emits="Acquired",
        ),
        row(
            Release,
            Phase,
            _FREE,
            MINE,
            update=lambda s, i: Claim(),
            effects=lambda old, new, i: (Released(i.nonce),),
            emits="Released",
        ),
    ),
    invariants={
        "a nonce exactly while claimed": lambda s: (s.nonce is not None) == (s.phase is _CLAIMED),
    },
    ends=frozenset({_FREE}),
    alphabet=lambda s: (*(Acquire(nonce) for nonce in "ab"), *(Release(nonce) for nonce in "ab")),
)


# -- many ---------------------------------------------------------------------------------------------


def acquire(claims: Mapping[str, str], token: ClaimToken) -> dict[str, str]:
    """The claims (session id → nonce) with that one; raises `GuardRejected` when somebody else has it."""
    state, _ = CLAIM.apply(_claim_of(claims, token), Acquire(token.nonce))
    assert state.nonce is not None
    return {**claims, token.session_id: state.nonce}


def release(claims: Mapping[str, str], token: ClaimToken) -> dict[str, str]:
    """The claims without that one; raises `GuardRejected` when the token does not hold it."""
    CLAIM.apply(_claim_of(claims, token), Release(token.nonce))
    return {id_: nonce for id_, nonce in claims.items() if id_ != token.session_id}


def already_claimed(session_id: str) -> str:
    """What whoever lost the race is told."""
    return f"session identity already claimed: {session_id}"


def _claim_of(claims: Mapping[str, str], token: ClaimToken) -> Claim:
    nonce = claims.get(token.session_id)
    return Claim() if nonce is None else Claim(_CLAIMED, nonce)
