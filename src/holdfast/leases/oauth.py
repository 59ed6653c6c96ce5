"""The token endpoint: codes, refresh tokens, device codes and client credentials become tokens, or a reason why not.

A lifetime becomes an absolute time at once, counted from before the request was sent. A refusal is permanent (asking
again can't help, a person must sign in) or transient (it may).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import OperatorError
from holdfast.leases import _protocol
from holdfast.leases._web import Reply, Unreachable, Web, where
from holdfast.leases.credential import Client, OAuthRenewal, Server

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

PERMANENT = frozenset(
    "invalid_client invalid_grant unauthorized_client invalid_scope access_denied permission_denied".split()
)
TRANSIENT = frozenset("temporarily_unavailable server_error slow_down rate_limited timeout".split())
TRANSIENT_STATUS = frozenset((408, 409, 425, 429))

_TOKEN = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a token endpoint gave."""

    access: str = field(repr=False)
    expires_at: int | None
    """Unix milliseconds."""
    refresh: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] | None = None
    """None: those that were asked for."""


class TokenRefused(OperatorError):
    """A token endpoint gave none."""

    def __init__(
        self, endpoint: str, reason: str, *, permanent: bool, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(
            "AUTH_FAILED",
            f"The authorization server at `{where(endpoint)}` gives no token: {reason}.",
            hint="Sign in again." if permanent else "Try again in a moment.",
        )
        self.reason = reason
        """As a token."""
        self.permanent = permanent
        """Whether asking again can't help."""
        self.retry_after_ms = retry_after_ms
        """How long the server wants to be left alone."""


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


class TokenEndpoint:
    """Asks one."""

    def __init__(
        self, web: Web, server: Server, client: Client, *, now: Callable[[], int] = now_ms
    ) -> None:
        self._web = web
        self._server = server
        self._client = client
        self._now = now

    async def code(
        self, code: str, *, verifier: str, redirect_uri: str, resource: str | None
    ) -> Tokens:
        """For the code of a sign-in."""
        return await self._ask(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect_uri,
                "code_verifier": verifier,
                "resource": resource,
            }
        )

    async def device(self, device_code: str) -> Tokens:
        """For a device code; refused with `authorization_pending` until somebody signed in."""
        return await self._ask({"grant_type": DEVICE_GRANT, "device_code": device_code})

    async def renew(self, how: OAuthRenewal) -> Tokens:
        """A new token, without a person."""
        scope = " ".join(how.scopes) or None
        if how.grant == "refresh_token":
            asked = {"grant_type": "refresh_token", "refresh_token": how.refresh_token}
        elif how.grant == "jwt_bearer":
            asked = {"grant_type": JWT_GRANT, "assertion": how.assertion, "scope": scope}
        else:
            asked = {"grant_type": "client_credentials", "scope": scope}
        return await self._ask({**asked, "resource": how.resource})

    async def begin_device(self, scopes: tuple[str, ...] | None, resource: str | None) -> Device:
        """Ask for a device code (RFC 8628)."""
        endpoint = self._server.device_authorization_endpoint
        if endpoint is None:
            raise OperatorError(
                "AUTH_FAILED",
                f"`{where(self._server.token_endpoint)}` has no sign-in with a code.",
                hint="Leave `--device` away.",
            )
        asked = {"scope": " ".join(scopes) if scopes else None, "resource": resource}
        before = self._now()
        told = await self._post(endpoint, asked)
        code, person, at = (
            told.get(name) for name in ("device_code", "user_code", "verification_uri")
        )
        if not (isinstance(code, str) and isinstance(person, str) and isinstance(at, str)):
            raise TokenRefused(endpoint, "malformed_answer", permanent=False)
        lasts, every = _seconds(told.get("expires_in")), _seconds(told.get("interval"))
        complete = told.get("verification_uri_complete")
        return Device(
            device_code=code,
            user_code=person,
            url=complete if isinstance(complete, str) and complete else at,
            expires_at=before + (lasts if lasts is not None else 600) * 1000,
            interval_ms=(every or 5) * 1000,
        )

    async def revoke(self, token: str) -> None:
        """Tell the server that a token is not needed any more (RFC 7009), if it wants to know."""
        if self._server.revocation_endpoint is not None:
            await self._post(self._server.revocation_endpoint, {"token": token}, empty=True)

    async def _ask(self, asked: Mapping[str, str | None]) -> Tokens:
        before = self._now()
        endpoint = self._server.token_endpoint
        told = await self._post(endpoint, asked)
        access, kind = told.get("access_token"), told.get("token_type")
        if not isinstance(access, str) or not access:
            raise TokenRefused(endpoint, "malformed_answer", permanent=False)
        if isinstance(kind, str) and kind.lower() != "bearer":
            raise TokenRefused(endpoint, "token_type_unsupported", permanent=True)
        lasts, refresh, scope = _seconds(told.get("expires_in")), told.get("refresh_token"), None
        if isinstance(told.get("scope"), str):
            scope = tuple(str(told["scope"]).split())
        return Tokens(
            access=access,
            expires_at=None if lasts is None else before + lasts * 1000,
            refresh=refresh if isinstance(refresh, str) and refresh else None,
            scopes=scope,
        )

    async def _post(
        self, endpoint: str, asked: Mapping[str, str | None], *, empty: bool = False
    ) -> dict[str, Any]:
        fields, headers = _protocol.proof(
            self._client, self._server.issuer or self._server.token_endpoint
        )
        form = {name: value for name, value in asked.items() if value} | fields
        try:
            reply = await self._web.post_form(endpoint, form, headers)
        except Unreachable as why:
            raise TokenRefused(endpoint, "unreachable", permanent=False) from why
        told = reply.json()
        if (
            reply.status in (200, 201)
            and (told is not None or empty)
            and "error" not in (told or {})
        ):
            return told or {}
        raise refusal(endpoint, reply, told)


@dataclass(frozen=True, slots=True)
class Device:
    """A sign-in on another device."""

    device_code: str = field(repr=False)
    user_code: str
    """What the person types, or compares."""
    url: str
    """Where."""
    expires_at: int
    interval_ms: int


def refusal(endpoint: str, reply: Reply, told: dict[str, Any] | None) -> TokenRefused:
    """What a refusal means (machines.md, section 9)."""
    said = str((told or {}).get("error", ""))
    known = _TOKEN.fullmatch(said) is not None
    reason = said if known else f"http_{reply.status}"
    if reply.status in TRANSIENT_STATUS or reply.status >= 500 or said in TRANSIENT:
        permanent = False
    elif reply.status in (401, 403) or said in PERMANENT:
        permanent = True
    else:
        # An error that is spelled out will be the same next time; a bare 404 may be a proxy's.
        permanent = known
    wait = _seconds(reply.retry_after)
    return TokenRefused(
        endpoint,
        reason,
        permanent=permanent,
        retry_after_ms=None if wait is None else wait * 1000,
    )


def _seconds(value: object) -> int | None:
    """A number of seconds; servers also send it as text."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value[:12])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        return None
    return int(value)
