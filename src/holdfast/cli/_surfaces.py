"""Tool surfaces for commands: which there are, and connections to try them with.

A connection of a command is its own: what it finds is told, and not recorded. Nothing else is opened for it, no engine and
no session.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.capabilities.connection import Connection, Source
from holdfast.cli._setup import import_from_here
from holdfast.contracts import Setup
from holdfast.contracts.surface import (
    SURFACES,
    HttpSurface,
    OpenApiSurface,
    SurfaceChanged,
    SurfaceSpec,
    SurfaceStaged,
    SurfaceView,
)
from holdfast.errors import HoldfastError, NotFound, OperatorError, PersonError
from holdfast.gate.executor import NeedsAnswer, Toolbox
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal, MemoryJournal
from holdfast.runtime import Settings, wiring
from holdfast.runtime._surface_sources import lease_of
from holdfast.runtime._surface_tool import SurfaceTool
from holdfast.runtime.surfaces import Surfaces

if TYPE_CHECKING:
    from holdfast.leases import Broker as Leases

NEWS = 5_000
"""So many of the last records about surfaces are looked at, for how each fared."""
LOG_LINES = 200
"""So much of what a server says is kept."""
_CHARS_PER_TOKEN = 4
_MANY = 10_000


class Defined(NamedTuple):
    """A surface that there is to be."""

    name: str
    spec: SurfaceSpec
    origin: Literal["file", "journal"]
    """Who says so."""
    last: dict[str, Any] | None = None
    """What became of it last, in whichever process."""


class Definitions(NamedTuple):
    """Every surface that there is to be."""

    known: dict[str, Defined]
    removed: list[str]
    """Those that the file has, and the journal says are to be no more."""

    def get(self, name: str) -> Defined:
        """One of them; raises `NOT_FOUND`."""
        found = self.known.get(name)
        if found is None:
            names = ", ".join(f"`{one}`" for one in self.known)
            raise NotFound(
                "NOT_FOUND",
                f"There is no tool surface `{name[:80]}`.",
                hint=f"There are {names}." if names else "`holdfast mcp add` makes one.",
            )
        return found

    @property
    def specs(self) -> dict[str, SurfaceSpec]:
        """What each is, by name."""
        return {name: one.spec for name, one in self.known.items()}


async def definitions(settings: Settings) -> Definitions:
    """What the settings say, and over it what the journal says. Nothing is made or connected for it."""
    path = wiring.journal_path(settings)
    if path is None or not path.exists():
        return _merged(settings, {}, {})
    journal = wiring.open_journal(settings, read_only=True)
    try:
        rows = await journal.rows("surfaces", limit=_MANY)
        staged = {row.key: SurfaceStaged.model_validate(_staged(row.value)) for row in rows}
        return _merged(settings, staged, await _fates(journal))
    finally:
        await journal.close()


def _staged(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in SurfaceStaged.model_fields if name in row}


def _merged(
    settings: Settings, staged: Mapping[str, SurfaceStaged], fates: Mapping[str, dict[str, Any]]
) -> Definitions:
    specs: dict[str, tuple[SurfaceSpec, Literal["file", "journal"]]] = {
        name: (spec, "file") for name, spec in settings.surfaces.items()
    }
    for name, said in staged.items():
        if said.op == "add" and said.spec is not None:
            specs[name] = (said.spec, "journal")
        else:
            specs.pop(name, None)
    known = {
        name: Defined(name, spec, origin, fates.get(name))
        for name, (spec, origin) in sorted(specs.items())
    }
    return Definitions(known, sorted(name for name in settings.surfaces if name not in known))


async def _fates(journal: Journal) -> dict[str, dict[str, Any]]:
    """What became last of each, as somebody recorded it."""
    found: dict[str, dict[str, Any]] = {}
    after = max(0, (await journal.head(SURFACES)).pos - NEWS)
    async for record in journal.read(SURFACES, after=after):
        if record.kind == "surface_changed":
            said = SurfaceChanged.model_validate(record.payload)
            found[said.name] = {
                "op": said.op,
                "phase": said.phase,
                "generation": said.generation,
                "tools": len(said.names),
                "detail": said.detail,
                "time": record.time,
            }
    return found


# -- connecting ---------------------------------------------------------------------------------------


class Trial:
    """Connections to some surfaces."""

    def __init__(
        self,
        surfaces: Surfaces,
        specs: Mapping[str, SurfaceSpec],
        noted: Mapping[str, Exception],
        redactor: Redactor,
    ) -> None:
        self.surfaces = surfaces
        self._specs = specs
        self._noted = noted
        self._redactor = redactor
        self._tools = wiring.make_tools((), redactor, surfaces=surfaces)

    def toolbox(self, setup: Setup) -> Toolbox:
        """What a session that is opened like this may call."""
        return self._tools(setup)

    async def problem(self, name: str) -> HoldfastError | None:
        """Why it is not connected."""
        view = await self.surfaces.view(name)
        return None if view.status == "connected" else self._refusal(view)

    async def connection(self, name: str) -> Connection:
        """The connection to one; raises why there is none."""
        problem = await self.problem(name)
        if problem is not None:
            raise problem
        return self.surfaces.connection(name)

    async def found(self, name: str) -> dict[str, Any]:
        """How it is, and what it offers."""
        problem, ping = await self.problem(name), None
        if problem is None:
            try:
                ping = await _pinged(self.surfaces.connection(name))
            except HoldfastError as why:
                problem = why
        setup = Setup(surfaces=(name,))
        box = self.toolbox(setup)  # first: what has a name that is taken is refused by it
        view = await self.surfaces.view(name)
        tools = [one for one in self.surfaces.tools(setup) if box.get(one.capability.name) is one]
        stubs = box.stubs([one.capability.name for one in tools]) if tools else ""
        status = "connected" if problem is None else "failed"
        if problem is not None and problem.code == "SIGN_IN_REQUIRED":
            status = "sign_in_required"
        return {
            "name": name,
            "kind": view.kind,
            "status": status,
            "server": view.server,
            "protocol": view.protocol,
            "ping_ms": ping,
            "tools": [_line(one) for one in tools],
            "refused": view.refused,
            "tokens": len(stubs) // _CHARS_PER_TOKEN,
            "error": None if problem is None else problem.to_json(),
        }

    def _refusal(self, view: SurfaceView) -> HoldfastError:
        name, why = view.name, self._noted.get(view.name)
        spec = self._specs[name]
        if isinstance(why, NeedsAnswer):
            return sign_in(name, spec, why.question.message)
        if not isinstance(why, HoldfastError):
            detail = (view.detail or "it did not come up").rstrip(".")
            return OperatorError("SURFACE_FAILED", f"`{name}` can't be connected: {detail}.")
        text = self._redactor.text(why.message)
        if why.code != "SURFACE_FAILED":
            text = f"`{name}` can't be connected: {text}"
        # Who tries it by itself need not be told to.
        hint = None if why.hint is None or "mcp test" in why.hint else why.hint
        return OperatorError("SURFACE_FAILED", text, hint=hint)


def sign_in(name: str, spec: SurfaceSpec, message: str) -> HoldfastError:
    """The refusal of a server that wants to know who is there."""
    hint = None
    if isinstance(spec, HttpSurface | OpenApiSurface) and spec.auth is not None:
        at = f" --url {spec.url}" if isinstance(spec, HttpSurface) else ""
        hint = f"`holdfast auth login {lease_of(name, spec.auth)}{at}` signs in."
    return PersonError(
        "SIGN_IN_REQUIRED", f"`{name}` wants somebody to sign in: {message}", hint=hint
    )


def _line(one: SurfaceTool) -> dict[str, Any]:
    capability = one.capability
    return {
        "name": capability.name,
        "tool": one.tool,
        "side_effect": capability.side_effect.value,
        "description": capability.description,
    }


async def _pinged(connection: Connection) -> float:
    began = monotonic()
    await connection.check()
    return round((monotonic() - began) * 1000, 1)


@asynccontextmanager
async def trial(settings: Settings, specs: Mapping[str, SurfaceSpec]) -> AsyncGenerator[Trial]:
    """Connect to these, and wait until each is there or has failed; leaving closes the connections."""
    import_from_here()
    redactor = wiring.make_redactor(settings, {})
    credentials, noted = _Credentials(settings, redactor), dict[str, Exception]()
    make = wiring.make_sources(settings, redactor, credentials)
    try:
        with wiring.redacted_logs(redactor):
            # A journal of its own: whoever runs sessions need not hear of it.
            journal, made = MemoryJournal(), _watched(make, noted)
            async with Surfaces.open(journal, made, specs, redact=redactor.text) as surfaces:
                await surfaces.boundary(Setup())
                yield Trial(surfaces, specs, noted, redactor)
    finally:
        await credentials.close()


class _Credentials:
    """Credentials are opened when the first connection needs one: most need none, and they need the journal."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        self._settings = settings
        self._redactor = redactor
        self._opened: tuple[Journal, Leases] | None = None

    def __call__(self) -> Leases:
        if self._opened is None:
            journal = wiring.open_journal(self._settings)
            self._opened = journal, wiring.make_leases(self._settings, journal, self._redactor)
        return self._opened[1]

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[0].close()


def _watched(
    make: Callable[[str, SurfaceSpec], Source], noted: dict[str, Exception]
) -> Callable[[str, SurfaceSpec], Source]:
    """The same, and `noted` has why the last attempt failed, as it was raised."""
    return lambda name, spec: _Watched(make(name, spec), name, noted)


class _Watched:
    def __init__(self, source: Source, name: str, noted: dict[str, Exception]) -> None:
        self._source = source
        self._name = name
        self._noted = noted

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Connection]:
        """A new connection."""
        try:
            async with self._source.open() as connection:
                yield connection
        except (HoldfastError, NeedsAnswer) as why:
            self._noted[self._name] = why
            raise


class Heard(logging.Handler):
    """What servers said while it is open, the end of it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self._log = logging.getLogger("holdfast.surfaces")
        self._level = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines = [*self.lines[1 - LOG_LINES :], record.getMessage()]

    def __enter__(self) -> Heard:
        self._level = self._log.level
        self._log.setLevel(logging.DEBUG)
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._level)
