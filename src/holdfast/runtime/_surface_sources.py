"""What a surface is connected to, by its kind. Each library is imported when the first of its kind is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.capabilities.connection import Source
from holdfast.contracts.surface import (
    HttpSurface,
    ModuleSurface,
    OpenApiSurface,
    StdioSurface,
    SurfaceSpec,
)
from holdfast.errors import CallerError
from holdfast.gate.executor import Context
from holdfast.gate.gate import Gate
from holdfast.gate.redact import Redactor
from holdfast.runtime.settings import Settings

if TYPE_CHECKING:
    from holdfast.agent.work import Work
    from holdfast.capabilities.mcp.services import LogLine, Root, Sample, Step
    from holdfast.leases import Broker as Leases
    from holdfast.models.base import Model

OAUTH = "oauth"
"""A lease of the surface's own, got by signing in as its server asks."""

_log = logging.getLogger("holdfast.surfaces")


class Thinking(Protocol):
    """The agents of a runtime."""

    def working(self, session_id: str) -> Work | None:
        """What the agent works with that has a session here."""
        ...

    def model(self, id_: str) -> Model:
        """A model by its id."""
        ...

    def step(self, step: Step) -> None:
        """Tell whoever watches how far a call is."""
        ...


class Sources:
    """Makes sources with what they need from this runtime."""

    def __init__(
        self,
        settings: Settings,
        redactor: Redactor,
        leases: Callable[[], Leases],
        gate: Gate | None = None,
        thinking: Callable[[], Thinking] | None = None,
    ) -> None:
        self._settings = settings
        self._redactor = redactor
        self._leases = leases
        self._gate = gate
        self._thinking = thinking

    def __call__(self, name: str, spec: SurfaceSpec) -> Source:
        """What this surface is connected to."""
        match spec:
            case StdioSurface() | HttpSurface():
                return self._mcp(name, spec)
            case ModuleSurface():
                from holdfast.capabilities.modules import ModuleSource

                return ModuleSource(name, spec)
            case OpenApiSurface():
                return self._openapi(name, spec)

    def _mcp(self, name: str, spec: StdioSurface | HttpSurface) -> Source:
        from holdfast.capabilities.mcp.services import Services
        from holdfast.capabilities.mcp.source import McpSource

        auth = None
        if isinstance(spec, HttpSurface) and spec.auth is not None:
            from holdfast.leases import Ask
            from holdfast.leases.http_auth import LeaseAuth

            auth = LeaseAuth(self._leases(), lease_of(name, spec.auth), Ask(url=spec.url))
        services = Services(
            redact=self._redactor.text,
            hide=self._hide,
            keep=_kept,
            progress=None if self._thinking is None else self._step,
            log=_logged,
            sample=self._sample(name) if spec.sampling else None,
            roots=self._roots,
            auth=auth,
        )
        return McpSource(name, spec, services)

    def _sample(self, name: str) -> Sample | None:
        if self._gate is None or self._thinking is None:
            return None
        from holdfast.runtime.sampling import Sampling

        return Sampling(self._settings.agent, self._gate, self._thinking).of(name)

    def _step(self, step: Step) -> None:
        if self._thinking is not None:
            self._thinking().step(step)

    def _openapi(self, name: str, spec: OpenApiSurface) -> Source:
        from holdfast.capabilities.openapi.source import OpenApiSource, Services

        credentials = None
        if spec.auth is not None:
            from holdfast.leases.http_auth import Authorizer

            credentials = Authorizer(self._leases())
        return OpenApiSource(name, spec, Services(credentials=credentials, hide=self._hide))

    def _hide(self, name: str, value: str) -> None:
        with suppress(CallerError):  # too short to be one, or to be looked for
            self._redactor.add(name, value)

    def _roots(self) -> list[Root]:
        """The folders that every session has: a server is shared by sessions."""
        from holdfast.capabilities.mcp.services import Root

        mounts = self._settings.session.mounts
        folders = ((one.path, Path(one.host).expanduser().absolute()) for one in mounts)
        return [Root(folder.as_uri(), path) for path, folder in folders]


def lease_of(name: str, auth: str) -> str:
    """The lease that a surface's `auth` names."""
    return f"mcp:{name}" if auth == OAUTH else auth


async def _kept(context: Context, data: bytes, mime: str) -> str:
    return await context.keep(data, mime)


def _logged(line: LogLine) -> None:
    _log.debug("%s: %s: %s", line.surface, line.level, line.text)
