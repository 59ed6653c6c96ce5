"""A lease, told: to people, to the journal, to whoever uses it; and what is refused at once."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from holdfast.contracts import parse
from holdfast.contracts.lease import LeaseChanged, LeaseKey, LeaseView
from holdfast.errors import CallerError, HoldfastError
from holdfast.leases.credential import Credential, Entry, normal_host
from holdfast.machines.lease import REFRESH_WINDOW_MS, Lease, Phase

_STATUS: dict[Phase, Any] = {
    Phase.RELEASED: "released",
    Phase.VALID: "valid",
    Phase.EXPIRING: "expiring",
    Phase.EXPIRED: "expired",
    Phase.REFRESHING: "expiring",
    Phase.REAUTH_REQUIRED: "reauth_required",
}


class _Key(BaseModel):
    key: LeaseKey


def window_of(lease: Lease) -> int:
    """A short life has a short end: a token of three seconds is not renewed at once."""
    if lease.expires_at is None or lease.published_at is None:
        return REFRESH_WINDOW_MS
    return min(REFRESH_WINDOW_MS, (lease.expires_at - lease.published_at) // 4)


def told_of(key: str, lease: Lease, reason: str, actor: str) -> LeaseChanged:
    """What goes on record about a step."""
    return LeaseChanged(
        key=key,
        phase=lease.phase.value,
        generation=lease.generation,
        expires_at=lease.expires_at,
        reason=reason,
        actor=actor,
    )


def reason_of(broken: BaseException) -> str:
    """Why a renewal broke off, as a token."""
    return broken.code.lower() if isinstance(broken, HoldfastError) else "interrupted"


def view_of(key: str, entry: Entry) -> LeaseView:
    """A lease as people see it."""
    given = entry.given
    return LeaseView(
        key=key,
        kind=entry.kind,
        status=_STATUS[entry.lease.phase],
        generation=entry.lease.generation,
        expires_at=entry.lease.expires_at,
        hosts=given.hosts if given else (),
        scopes=given.scopes if given else (),
    )


def credential_of(key: str, entry: Entry) -> Credential:
    """What a caller gets."""
    given = entry.given
    assert given is not None
    return Credential(
        key=key,
        generation=entry.lease.generation,
        value=given.value,
        header=given.header,
        scheme=given.scheme,
        hosts=given.hosts,
        scopes=given.scopes,
        expires_at=given.expires_at,
    )


def check_key(key: str) -> None:
    """Raise `INVALID_ARGUMENT` for what is no key."""
    hint = (
        "A key is one word in lower case, such as `crm`, or `realm:binding`, such as `oauth:crm`."
    )
    parse(_Key, {"key": key}, hint=hint)


def check_host(key: str, entry: Entry, host: str) -> None:
    """Raise `INVALID_ARGUMENT` for a place that the credential is not for."""
    given = entry.given
    if given is not None and normal_host(host) not in given.hosts:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Credential `{key}` is not for `{host[:200]}`.",
            hint=f"It is only sent to {', '.join(given.hosts)}.",
        )
