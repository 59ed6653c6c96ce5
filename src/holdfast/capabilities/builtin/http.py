"""HTTP for code: reading from the hosts a session was given.

GET only. What a GET does can be done again without harm, so both functions are idempotent; a service that
changes something on GET does not belong on the list. Writing to a service is a capability of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import anyio
from pydantic import JsonValue
from typing_extensions import TypedDict

from holdfast.capabilities.builtin._hosts import Hosts, Target
from holdfast.capabilities.declare import Declared, capability
from holdfast.contracts import canonical_json
from holdfast.errors import HoldfastError, ModelError

if TYPE_CHECKING:
    from holdfast.capabilities.builtin._wire import Answer, Resolve, Wire

MAX_BYTES = 1024 * 1024
"""Size of an answer, unpacked."""
TIMEOUT_MS = 10_000
"""Time for one call, redirects included."""
MAX_REDIRECTS = 5
"""How many redirects are followed."""

# As JSON, text can take more room than it had.
_ROOM = 4
_SLACK_MS = 1000

_CHARSETS = frozenset(
    "utf-8 utf8 us-ascii ascii iso-8859-1 latin1 iso-8859-2 iso-8859-15 windows-1250 windows-1251"
    " windows-1252 utf-16 shift_jis euc-jp euc-kr gb2312 gbk gb18030 big5 koi8-r".split()
)


class Text(TypedDict):
    """What a server answered."""

    status: int
    url: str
    content_type: str
    text: str


class Data(TypedDict):
    """What a server answered, parsed."""

    status: int
    url: str
    json: JsonValue


def http(
    allow_hosts: Sequence[str],
    *,
    max_bytes: int = MAX_BYTES,
    timeout_ms: int = TIMEOUT_MS,
    resolve: Resolve | None = None,
) -> list[Declared[..., Any]]:
    """`fetch_text` and `fetch_json`, for these hosts.

    An entry is a host (`api.example.com`), the hosts below one (`*.example.com`), a host with a port
    (`api.example.com:8443`), an address, or `localhost:8000`. It means https; http too for loopback, and in
    place of it for `http://host`. A name must lead to public addresses; `localhost` and an address that is
    listed itself are reached as they are. `resolve` looks names up in place of the system.
    """
    web = Web(Hosts(allow_hosts), max_bytes=max_bytes, timeout_ms=timeout_ms, look_up=resolve)
    return [
        capability(
            one,
            side_effect="network",
            idempotent=True,
            timeout_ms=timeout_ms + _SLACK_MS,
            max_response_bytes=max_bytes * _ROOM,
        )
        for one in (web.fetch_text, web.fetch_json)
    ]


class Web:
    """The functions, for one list of hosts."""

    def __init__(
        self, hosts: Hosts, *, max_bytes: int, timeout_ms: int, look_up: Resolve | None
    ) -> None:
        self._hosts = hosts
        self._max_bytes = max_bytes
        self._timeout = timeout_ms / 1000
        self._look_up = look_up
        self._made: Wire | None = None

    async def fetch_text(self, url: str) -> Text:
        """Fetch a URL (GET) as text.

        Errors of the server are answers too: look at `status`. ConnectionError if there is no answer.

        Args:
            url: Absolute URL of an allowed host. Redirects are followed if they stay on allowed hosts.
        """
        answer, target = await self._fetch(url)
        return {
            "status": answer.status,
            "url": str(target),
            "content_type": answer.content_type,
            "text": _text(answer, target),
        }

    async def fetch_json(self, url: str) -> Data:
        """Fetch a URL (GET) and parse its JSON, found in `json`.

        Errors of the server are answers too: look at `status`. ConnectionError if there is no answer, ValueError
        if it is not JSON.

        Args:
            url: Absolute URL of an allowed host. Redirects are followed if they stay on allowed hosts.
        """
        answer, target = await self._fetch(url)
        return {"status": answer.status, "url": str(target), "json": _json(answer, target)}

    async def _fetch(self, url: str) -> tuple[Answer, Target]:
        target = self._hosts.check(url)
        try:
            with anyio.fail_after(self._timeout):
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await self._wire().get(target)
                    if answer.location is None:
                        return answer, target
                    target = self._hosts.check(urljoin(str(target), answer.location))
        except TimeoutError:
            raise ModelError(
                "TIMEOUT_TOOL",
                f"No whole answer within {self._timeout:g} s: {target}",
                hint="Ask for less, or try again later.",
            ) from None
        raise ConnectionError(f"More than {MAX_REDIRECTS} redirects: {url}")

    def _wire(self) -> Wire:
        if self._made is None:
            # On use: most sessions never fetch anything, and the library takes its time to import.
            from holdfast.capabilities.builtin import _wire as wire

            self._made = wire.Wire(
                self._hosts,
                self._look_up or wire.resolve,
                max_bytes=self._max_bytes,
                timeout=self._timeout,
            )
        return self._made


def _text(answer: Answer, target: Target) -> str:
    charset = _charset(answer.content_type)
    if charset is not None:
        return answer.body.decode(charset, errors="replace")
    try:
        return answer.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"Not text, but `{answer.content_type[:80] or 'bytes'}`: {target}"
        ) from None


def _charset(content_type: str) -> str | None:
    """The encoding that the header names, if it is one that pages really have."""
    for part in content_type.split(";")[1:]:
        name, _, value = part.partition("=")
        value = value.strip().strip("\"'").lower()
        if name.strip().lower() == "charset" and value in _CHARSETS:
            return value
    return None


def _json(answer: Answer, target: Target) -> JsonValue:
    try:
        found = json.loads(answer.body, parse_constant=_no_number)
        canonical_json(found)
    except (ValueError, RecursionError, HoldfastError):
        said = answer.body[:80].decode(errors="replace")
        raise ValueError(f"Not JSON (status {answer.status}): {target} said {said!r}") from None
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
