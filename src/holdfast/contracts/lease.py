"""Credential leases, as far as anybody may know: what is known about a credential, never its value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from holdfast.contracts._base import Count, Told, listed, optional

LEASES = "holdfast:leases"
"""The stream of what happened to leases: the audit of credentials."""

LeaseKey = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}(:[a-zA-Z0-9_.@-]{1,64}){0,2}$")
]
"""`realm:binding[:profile]`, or one word."""

LeasePhase = Literal["Released", "Valid", "Expiring", "Expired", "Refreshing", "ReauthRequired"]
"""Where a lease is: the phases of `machines/lease.py`."""


class LeaseChanged(Told):
    """A lease moved, or its credential is another."""

    key: LeaseKey
    """Which."""
    phase: LeasePhase
    """Where it is now."""
    generation: Count
    """Counts its credentials."""
    expires_at: int | None = optional()
    """Unix milliseconds; none: never."""
    reason: str | None = optional()
    """Why, as a token: `signed_in`, `refreshed`, `expiring`, `invalid_grant`, `logged_out` …"""
    actor: str | None = optional()
    """Who."""


class LeaseView(Told):
    """A lease as people see it."""

    key: str
    """Which."""
    kind: str
    """`oauth`, `client_credentials`, `static`, `command`."""
    status: Literal["valid", "expiring", "expired", "reauth_required", "released", "unknown"]
    """Whether it can be used."""
    generation: Count = 0
    """Counts its credentials."""
    expires_at: int | None = None
    """Unix milliseconds."""
    hosts: tuple[str, ...] = ()
    """The only places that its credential is sent to."""
    scopes: tuple[str, ...] = listed()
    """What it is good for."""


LEASE_PAYLOADS: dict[str, type[BaseModel]] = {"lease_changed": LeaseChanged}
"""Kind → payload model."""
