"""Requests to authorization servers: bounded in time and size, over TLS, and never led astray by a redirect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from holdfast.errors import OperatorError
from holdfast.leases.credential import is_local

if TYPE_CHECKING:
    import ssl

    import httpx

SECONDS = 15.0
MAX_BYTES = 1024 * 1024
MAX_REDIRECTS = 5


class Reply(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None

    def json(self) -> dict[str, Any] | None:
        """The body, if it is a JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None


class Unreachable(OperatorError):
    """No answer: it may come if it is asked again."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            "AUTH_FAILED",
            f"The authorization server at `{where(url)}` can't be reached: {why}.",
            hint="Check the network and the address, then try again.",
        )


def where(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")


def check_address(url: str, *, asked_by: str | None = None) -> str:
    """Refuse what would send a secret in the clear, or a stranger's pointer at this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        local = is_local(host)
        fine = parts.scheme == "https" or (parts.scheme == "http" and local)
        if local and asked_by is not None:
            fine = fine and is_local(urlsplit(asked_by).hostname or "")
    except ValueError:
        fine, host = False, ""
    if not fine or not host:
        raise OperatorError(
            "AUTH_FAILED",
            f"`{url[:200]}` is no safe address of an authorization server.",
            hint="It must be `https://…`; `http://` only on this machine.",
        )
    return url


class Web:
    """Sends them."""

    def __init__(self) -> None:
        self._trust: ssl.SSLContext | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Redirects are followed while they stay on the server."""
        origin = where(url)
        for _ in range(MAX_REDIRECTS):
            response, reply = await self._send("GET", url, headers=headers)
            follow = response.next_request
            if follow is None or where(str(follow.url)) != origin:
                return reply
            url = str(follow.url)
        raise Unreachable(url, "it leads in circles")

    async def post_form(
        self, url: str, data: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """A form. No redirect is followed: it would take the secrets along."""
        _, reply = await self._send("POST", url, data=data, headers=headers)
        return reply

    async def post_json(self, url: str, data: Mapping[str, Any]) -> Reply:
        """A JSON object."""
        _, reply = await self._send("POST", url, json=data)
        return reply

    async def _send(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[httpx.Response, Reply]:
        import anyio
        import httpx

        if self._trust is None:
            self._trust = httpx.create_ssl_context()
        sent = {"Accept": "application/json", **(headers or {})}
        body = bytearray()
        try:
            with anyio.fail_after(SECONDS):
                async with (
                    httpx.AsyncClient(verify=self._trust, timeout=SECONDS) as client,
                    client.stream(method, url, headers=sent, **more) as response,
                ):
                    async for piece in response.aiter_bytes():
                        body += piece
                        if len(body) > MAX_BYTES:
                            raise Unreachable(url, "its answer is too long")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as why:
            raise Unreachable(url, type(why).__name__) from None
        except TimeoutError:
            raise Unreachable(url, "it takes too long") from None
        return response, Reply(
            response.status_code, bytes(body), response.headers.get("retry-after")
        )
