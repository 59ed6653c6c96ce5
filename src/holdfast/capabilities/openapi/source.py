"""An OpenAPI document as a source of tools: each operation is one.

Requests go to one place, `base_url`, and nowhere else: its address is checked and pinned as that of `fetch_text` is,
and redirects lead to no other host. Where the document decides what that place is, it can name a public host and
nothing else; and what the surface sends of its own (`headers`) needs a place that the operator has named.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import anyio
from anyio import to_thread

from holdfast.capabilities.builtin._hosts import Hosts, Target
from holdfast.capabilities.connection import Offers, ResourceLine
from holdfast.capabilities.openapi._failures import BadDocument, failed
from holdfast.capabilities.openapi.document import Document, origin, read_document
from holdfast.capabilities.openapi.offers import MAX_RESPONSE_BYTES, offers_of
from holdfast.capabilities.openapi.operations import READS, Operation
from holdfast.capabilities.openapi.requests import Request, request_for
from holdfast.capabilities.openapi.responses import refused, result_of
from holdfast.capabilities.openapi.security import Credentials, signed
from holdfast.capabilities.openapi.servers import base_of, same_origin
from holdfast.capabilities.words import one_line
from holdfast.contracts import Json
from holdfast.contracts.surface import OpenApiSurface
from holdfast.errors import HoldfastError, ModelError, NotFound
from holdfast.gate.executor import Context, Unsure

if TYPE_CHECKING:
    from holdfast.capabilities.builtin._wire import Answer, Broken, Resolve, Wire

MAX_REDIRECTS = 5
"""Followed by a read, on the same host."""

# The gate ends a call in time; this is for whoever calls without one.
_SLACK_S = 5.0
_NAME = re.compile(r"\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


@dataclass(frozen=True, slots=True)
class Services:
    """What a connection may use; handed in, none of it is looked for."""

    credentials: Credentials | None = None
    """Who has the credential that the surface's `auth` names."""
    hide: Callable[[str, str], None] | None = None
    """Told the name and value of everything that is taken from our environment: it may be a secret."""
    environ: Mapping[str, str] | None = None
    """Our environment; default: that of this process."""
    resolve: Resolve | None = None
    """Looks names up in place of the system."""


class OpenApiSource:
    """The operations of a document."""

    def __init__(self, name: str, spec: OpenApiSurface, services: Services | None = None) -> None:
        """Remember it; nothing is read yet."""
        self._name = name
        self._spec = spec
        self._services = services or Services()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[OpenApiConnection]:
        """Read the document; raises `SURFACE_FAILED` for one that can't be used."""
        spec, services = self._spec, self._services
        if spec.auth is not None and services.credentials is None:
            raise failed(self._name, "nobody has credentials here", "Leave `auth` out.")
        headers = self._headers()
        try:
            document = await read_document(
                spec.document,
                headers=headers if self._is_at_home() else {},
                seconds=spec.connect_timeout_ms / 1000,
                resolve=services.resolve,
            )
            base = base_of(document, spec)
        except BadDocument as why:
            hint = "Correct `document` or `base_url` of the surface, or the document."
            raise failed(self._name, str(why), hint) from None
        # In a thread: there may be many.
        made = await to_thread.run_sync(partial(offers_of, self._name, spec, document, headers))
        yield OpenApiConnection(self._name, spec, services, base, headers, document, made)

    def _is_at_home(self) -> bool:
        """Whether the document lies where the operator says that the operations are."""
        spec = self._spec
        if spec.base_url is None or not spec.document.startswith(("http://", "https://")):
            return False
        return same_origin(origin(spec.base_url), origin(spec.document))

    def _headers(self) -> dict[str, str]:
        environ = os.environ if self._services.environ is None else self._services.environ

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name is None:
                return "$"
            if name not in environ:
                hint = f"Set `{name}` for the process that runs holdfast, and write `$$` for a plain `$`."
                raise failed(self._name, f"`${name}` is not in the environment", hint)
            if self._services.hide is not None:
                self._services.hide(name, environ[name])
            return environ[name]

        return {name: _NAME.sub(value, text) for name, text in self._spec.headers.items()}


class OpenApiConnection:
    """A document that was read, and the way to its server. There is no connection to lose: each call makes its own."""

    protocol: str | None
    instructions: str | None = None

    def __init__(
        self,
        name: str,
        spec: OpenApiSurface,
        services: Services,
        base: str,
        headers: Mapping[str, str],
        document: Document,
        made: tuple[Offers, Mapping[str, Operation]],
    ) -> None:
        self.changed = anyio.Event()
        self.lost = anyio.Event()
        self.server: str | None = one_line(document.label) or None
        self.protocol = f"OpenAPI {str(document.root['openapi'])[:20]}"
        self.offers, self._operations = made
        self._name = name
        self._spec = spec
        self._services = services
        self._base = base
        self._host = urlsplit(base).hostname or ""
        self._headers = headers
        self._hosts = Hosts([origin(base)])
        self._seconds = spec.timeout_ms / 1000 + _SLACK_S
        self._made: Wire | None = None

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        """Make the request of an operation.

        A success gives its body, parsed; anything else raises `TOOL_ERROR` with what the server said. An answer that
        is lost is `Unsure`.
        """
        operation = self._operations.get(tool)
        if operation is None:
            raise ModelError(
                "SURFACE_UNAVAILABLE",
                f"The document has no `{tool[:80]}` now.",
                hint="list_tools() names the tools there are.",
            )
        credential = await self._credential(operation)
        request = self._request(operation, arguments, context, credential)
        answer = await self._answer(operation, request)
        if answer.status == HTTPStatus.UNAUTHORIZED and credential is not None:
            # Whoever is not let in has done nothing: it can be asked again.
            credential = await self._other_credential(credential)
            request = self._request(operation, arguments, context, credential)
            answer = await self._answer(operation, request)
        return result_of(tool, answer)

    async def resources(self) -> Sequence[ResourceLine]:
        """Nothing: a document has none."""
        return ()

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        """Raise `NOT_FOUND`."""
        raise NotFound("NOT_FOUND", f"An API has nothing to read, and no `{uri[:200]}`.")

    async def check(self) -> None:
        """Return: there is nothing that could be lost."""

    def _request(
        self,
        operation: Operation,
        arguments: Mapping[str, Json],
        context: Context,
        credential: Mapping[str, str] | None,
    ) -> Request:
        request = request_for(operation, arguments, context.effect_id)
        request.give(self._headers)
        if operation.place is not None and credential is not None:
            signed(operation.place, credential, request)
        return request

    async def _credential(self, operation: Operation) -> Mapping[str, str] | None:
        credentials, key = self._services.credentials, self._spec.auth
        if credentials is None or key is None or operation.place is None:
            return None
        return await credentials.header(key, self._host)

    async def _other_credential(self, sent: Mapping[str, str]) -> Mapping[str, str]:
        """What to send in place of what was refused; where that is a person's business, it is asked for."""
        credentials, key = self._services.credentials, self._spec.auth
        assert credentials is not None
        assert key is not None
        other = await credentials.rejected(key, self._host, sent)
        return other if other is not None else await credentials.header(key, self._host)

    async def _answer(self, operation: Operation, request: Request) -> Answer:
        """The last answer, after the redirects that are followed: a read's, on the same host."""
        from holdfast.capabilities.builtin import _wire as wire

        target = self._hosts.check(request.url(self._base))
        try:
            with anyio.fail_after(self._seconds):
                answer = await self._sent(request, target)
                for _ in range(MAX_REDIRECTS if operation.method in READS else 0):
                    if answer.location is None:
                        break
                    target = self._redirected(operation, target, answer)
                    answer = await self._sent(request, target)
                return answer
        except wire.Broken as why:
            raise self._broken(operation, why) from None
        except TimeoutError:
            late = ModelError("TIMEOUT_TOOL", f"`{operation.tool}` was not answered in time.")
            raise Unsure(late) from None

    async def _sent(self, request: Request, target: Target) -> Answer:
        return await self._wire().send(request.method, target, request.headers, request.body)

    def _redirected(self, operation: Operation, target: Target, answer: Answer) -> Target:
        try:
            return self._hosts.check(urljoin(str(target), answer.location))
        except (HoldfastError, ValueError):
            # Not where to: an address may hold what the server was sent.
            raise refused(operation.tool, answer) from None

    def _broken(self, operation: Operation, why: Broken) -> Exception:
        # Without the address: a credential may be in it.
        hint = "Try again later, or go without."
        if not why.sent:
            hint = f"Nothing was done. {hint}"
        elif not operation.idempotent:
            hint = "It may have been done all the same. Look before you call it again."
        error = ModelError(
            "SURFACE_UNAVAILABLE",
            f"`{operation.tool}` got no answer from `{self._name}`: {why}.",
            hint=hint,
        )
        return Unsure(error) if why.sent else error

    def _wire(self) -> Wire:
        if self._made is None:
            # On use: most runs never call anything, and the library takes its time to import.
            from holdfast.capabilities.builtin import _wire as wire

            self._made = wire.Wire(
                self._hosts,
                self._services.resolve or wire.resolve,
                max_bytes=MAX_RESPONSE_BYTES,
                timeout=self._seconds,
            )
        return self._made
