"""New credentials without a person: from an authorization server, or from a program on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Protocol

import anyio

from holdfast.leases._web import Web
from holdfast.leases.credential import CommandRenewal, Given, OAuthRenewal
from holdfast.leases.oauth import TokenEndpoint, TokenRefused

COMMAND_SECONDS = 30
MAX_PRINTED = 64 * 1024


class Renew(Protocol):
    """Gets a new credential for an old one; raises `TokenRefused`."""

    async def __call__(self, given: Given) -> Given:
        """The new one."""
        ...


class Renewer:
    """Does it as the credential says."""

    def __init__(self, web: Web, now: Callable[[], int]) -> None:
        self._web = web
        self._now = now

    async def __call__(self, given: Given) -> Given:
        """The new one; a refresh token that was not replaced stays."""
        how = given.renewal
        if isinstance(how, OAuthRenewal):
            endpoint = TokenEndpoint(self._web, how.server, how.client, now=self._now)
            tokens = await endpoint.renew(how)
            if tokens.refresh is not None and how.grant == "refresh_token":
                how = how.model_copy(update={"refresh_token": tokens.refresh})
            scopes = given.scopes if tokens.scopes is None else tokens.scopes
            return given.model_copy(
                update={
                    "value": tokens.access,
                    "expires_at": tokens.expires_at,
                    "scopes": scopes,
                    "renewal": how,
                }
            )
        if isinstance(how, CommandRenewal):
            value = await printed(how.command)
            lasts = how.lifetime_ms
            expires_at = None if lasts is None else self._now() + lasts
            return given.model_copy(update={"value": value, "expires_at": expires_at})
        raise TokenRefused(given.url or "", "not_renewable", permanent=True)


async def printed(command: tuple[str, ...]) -> str:
    """The one line that a program prints."""
    failed = "command_failed"
    try:
        with anyio.fail_after(COMMAND_SECONDS):
            done = await anyio.run_process(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
            )
    except (OSError, ValueError, TimeoutError, subprocess.SubprocessError):
        raise TokenRefused(f"command://{command[0]}", failed, permanent=False) from None
    value = done.stdout[:MAX_PRINTED].decode(errors="replace").strip()
    if not value or "\n" in value:
        raise TokenRefused(f"command://{command[0]}", failed, permanent=False)
    return value
