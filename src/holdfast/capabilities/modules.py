"""A Python module, or an installed package's entry point, as a source of tools.

The first connection takes the module as it is, so that a program and its tools share one. Each later one of the same
surface imports it again, as a module of its own: what serves meanwhile keeps its functions and its globals, whether or
not the new one can be imported. (`importlib.reload` would run the new code within the old module, also half of it.)
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from holdfast.capabilities.connection import Offer, Offers, ResourceLine
from holdfast.capabilities.declare import Declared
from holdfast.capabilities.load import home_of, load
from holdfast.capabilities.offering import Offering, changed
from holdfast.contracts import Capability, Json
from holdfast.contracts.surface import ModuleSurface
from holdfast.errors import CallerError, HoldfastError, ModelError, NotFound
from holdfast.gate.executor import Context, Finding
from holdfast.gate.expression import check_approval

GROUP = "holdfast.capabilities"
"""The group of entry points that installed packages name their capabilities in."""
_ENTRY_POINTS = "entry_points"
_OURS = "holdfast"

# Imports change what the whole process has, so they are made one after the other.
_importing = threading.Lock()
_turns: RunVar[anyio.CapacityLimiter] = RunVar("imports of modules of tools")
_opened: set[tuple[str, str]] = set()


class _Loaded(NamedTuple):
    tools: list[Declared[..., Any]]
    server: str


class ModuleSource:
    """The capabilities that a reference names."""

    def __init__(self, name: str, spec: ModuleSurface) -> None:
        """Remember it; nothing is imported yet."""
        self._name = name
        self._spec = spec
        self._offering = Offering(name, spec)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ModuleConnection]:
        """Import, or import again; raises `INVALID_ARGUMENT` for what can't be."""
        # In a thread: a module may take its time. One that hangs keeps its turn, so that they do not pile up.
        found = await to_thread.run_sync(
            _load, self._name, self._spec.reference, abandon_on_cancel=True, limiter=_limiter()
        )
        yield ModuleConnection(self._offering, self._spec, found.tools, found.server)


class ModuleConnection:
    """Capabilities that were imported."""

    protocol: str | None = None
    instructions: str | None = None

    def __init__(
        self,
        offering: Offering,
        spec: ModuleSurface,
        tools: Sequence[Declared[..., Any]],
        server: str,
    ) -> None:
        self.changed = anyio.Event()
        self.lost = anyio.Event()
        self.server: str | None = server
        self._tools: dict[str, Declared[..., Any]] = {}
        refused: dict[str, str] = {}
        offers: list[Offer] = []
        seen = [one for one in dict.fromkeys(tools) if offering.sees(one.capability.name)]
        names = offering.names(one.capability.name for one in seen)
        for one in seen:
            tool = one.capability.name
            if tool in self._tools:
                refused[tool] = "Another capability is called the same; the first is offered."
                continue
            try:
                offers.append(Offer(tool, _offered(offering, spec, one, names[tool])))
                self._tools[tool] = one
            except HoldfastError as why:
                refused[tool] = why.message
        self.offers = Offers(tuple(offers), refused)

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call the function."""
        return await self._known(tool).execute(arguments, context)

    @property
    def reconciles(self) -> frozenset[str]:
        """The tools that can find out what became of a call."""
        return frozenset(name for name, one in self._tools.items() if one.reconciles)

    async def reconcile(
        self, tool: str, arguments: Mapping[str, Json], context: Context
    ) -> Finding:
        """Ask the tool what became of a call."""
        return await self._known(tool).reconcile(arguments, context)

    async def resources(self) -> Sequence[ResourceLine]:
        """Nothing: a module has none."""
        return ()

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        """Raise `NOT_FOUND`."""
        raise NotFound("NOT_FOUND", f"A module has nothing to read, and no `{uri[:200]}`.")

    async def check(self) -> None:
        """Return: a module is always there."""

    def _known(self, tool: str) -> Declared[..., Any]:
        found = self._tools.get(tool)
        if found is None:
            raise ModelError(
                "SURFACE_UNAVAILABLE",
                f"The module has no `{tool[:80]}` now.",
                hint="list_tools() names the tools there are.",
            )
        return found


def _offered(
    offering: Offering, spec: ModuleSurface, one: Declared[..., Any], name: str
) -> Capability:
    declared = one.capability
    limits = declared.limits
    if spec.timeout_ms < limits.timeout_ms:
        limits = limits.model_copy(update={"timeout_ms": spec.timeout_ms})
    effect = offering.side_effect(declared.name) or declared.side_effect
    made = changed(declared, name=name, side_effect=effect, limits=limits)
    check_approval(made)
    return made


def _limiter() -> anyio.CapacityLimiter:
    found = _turns.get(None)
    if found is None:
        found = anyio.CapacityLimiter(1)
        _turns.set(found)
    return found


def _load(name: str, reference: str) -> _Loaded:
    with _importing:
        point = _entry_point(reference)
        where = reference if point is None else point.value.partition("[")[0].strip()
        home = home_of(where)
        # What holdfast is made of is never there twice: a capability of another `Declared` would be none.
        ours = home.partition(".")[0] == _OURS
        key = (name, reference)
        again = key in _opened and home in sys.modules and not ours
        try:
            with _anew(home) if again else nullcontext():
                tools = load(where)
        except SystemExit as why:  # a module does not end the program that it is a tool of
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{where}` can't be imported: it ends the program ({why.code}).",
                hint="Let it declare its capabilities and do nothing else.",
            ) from None
        _opened.add(key)
        dist = point.dist if point is not None else None
        return _Loaded(tools, f"{dist.name} {dist.version}" if dist is not None else where)


def _entry_point(reference: str) -> EntryPoint | None:
    kind, _, name = reference.partition(":")
    if kind != _ENTRY_POINTS:
        return None
    importlib.invalidate_caches()  # a package may have been installed since
    found = list(dict.fromkeys(entry_points(group=GROUP, name=name)))
    if len(found) == 1:
        return found[0]
    if found:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"{len(found)} entry points are called `{name[:80]}`: {', '.join(_said(one) for one in found)}.",
            hint="Name the module of the one that is meant.",
        )
    known = sorted(entry_points(group=GROUP).names)
    raise CallerError(
        "INVALID_ARGUMENT",
        f"No installed package has an entry point `{name[:80]}` in the group `{GROUP}`.",
        hint=f"There are: {', '.join(known)}." if known else "Install the package that has it.",
    )


def _said(point: EntryPoint) -> str:
    return f"`{point.value}`"


@contextmanager
def _anew(home: str) -> Generator[None]:
    """Forget a module and what is below it while they are imported again; a failure brings them back."""
    old = _family(home)
    for one in old:
        del sys.modules[one]
    importlib.invalidate_caches()
    # Compiled code is recognised by second and size, which two edits can share; nothing is ever at this place.
    prefix, sys.pycache_prefix = sys.pycache_prefix, "/dev/null/holdfast"
    try:
        yield
    except BaseException:
        for one in _family(home):
            del sys.modules[one]
        sys.modules.update(old)
        parent, _, leaf = home.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], leaf, old[home])
        raise
    finally:
        sys.pycache_prefix = prefix


def _family(home: str) -> dict[str, Any]:
    below = f"{home}."
    return {
        name: one
        for name, one in list(sys.modules.items())
        if name == home or name.startswith(below)
    }
