"""A hook that is a URL: the question is posted to it, the response is the answer, both JSON."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.contracts.hook_config import HookConfig
from holdfast.errors import OperatorError
from holdfast.gate._hook_call import Hook
from holdfast.gate._hook_command import MAX_ANSWER_BYTES
from holdfast.gate._hook_rules import invalid
from holdfast.gate._hook_view import HookInput

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def http_hook(config: HookConfig) -> Hook:
    """The hook that asks the URL of `config`; raises `HOOK_INVALID` for one that may not be used.

    200 with JSON, or 204 for having looked; anything else is a failure. Redirects are not followed, and no proxy
    of the environment is used: the question goes where the settings say, or nowhere.
    """
    url = config.url or ""
    _check(config, url)

    async def asked(question: HookInput) -> bytes:
        body = question.model_dump_json().encode()
        status, answer = await _post(url, _headers(config), body)
        if status not in (200, 204):
            raise OperatorError("HOOK_FAILED", f"Its URL answered with status {status}.")
        return answer

    return Hook(config.spec(), asked)


def _check(config: HookConfig, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and not config.allow_http and not _is_loopback(parts.hostname or ""):
        raise invalid(
            config.id,
            "its `url` is plain HTTP to another machine",
            "Use https, or say `allow_http = true`.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _headers(config: HookConfig) -> dict[str, str]:
    return {
        name: _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value)
        for name, value in config.headers.items()
    }


async def _post(url: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    import httpx

    # What is not compressed can't grow: the limit is on what comes over the wire.
    headers = {"content-type": "application/json", "accept-encoding": "identity"} | headers
    heard = bytearray()
    try:
        # The deadline is the hook's own: whoever asks cancels this.
        async with (
            httpx.AsyncClient(timeout=None, trust_env=False) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            async for part in response.aiter_raw():
                heard += part
                if len(heard) > MAX_ANSWER_BYTES:
                    break
            status = response.status_code
    except httpx.HTTPError as why:
        raise OperatorError(
            "HOOK_FAILED", f"Its URL can't be asked: {type(why).__name__}."
        ) from why
    if len(heard) > MAX_ANSWER_BYTES:
        raise OperatorError("HOOK_FAILED", f"Its answer is over {MAX_ANSWER_BYTES} bytes.")
    return status, bytes(heard)
