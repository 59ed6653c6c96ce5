"""The versioned set of what a session may call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from holdfast.capabilities._contract import Contract
from holdfast.capabilities._names import check_name
from holdfast.capabilities._schema import Schema
from holdfast.capabilities.search import Index
from holdfast.capabilities.stubs import python_stubs
from holdfast.contracts import Capability, digest_json
from holdfast.errors import CallerError, NotFound
from holdfast.gate.executor import Executor
from holdfast.gate.expression import check_approval


class Difference(NamedTuple):
    """How one set differs from another, by name."""

    added: tuple[str, ...]
    """Only in the other."""
    removed: tuple[str, ...]
    """Only in this one."""
    changed: tuple[str, ...]
    """In both, under another digest."""


class CapabilitySet:
    """Capabilities by name. Never changes: `with_` and `without` give a new set, one version on."""

    version: int
    """Counts the changes that led to it, from 1."""
    digest: str
    """Changes whenever a capability in it does; the order in which they were given does not matter."""

    def __init__(self, *executors: Executor, version: int = 1) -> None:
        self.version = version
        self._executors: dict[str, Executor] = {}
        for one in executors:
            check_approval(capability_of(one))
            self._take(one)
        self._all = tuple(self._executors[name].capability for name in sorted(self._executors))
        self.digest = digest_json(sorted(one.digest for one in self._all))
        self._stubs: dict[tuple[str, ...] | None, str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: object) -> bool:
        return name in self._executors

    def __iter__(self) -> Iterator[Executor]:
        return (self._executors[one.name] for one in self._all)

    def __repr__(self) -> str:
        return f"<CapabilitySet {self.version}: {', '.join(one.name for one in self._all)}>"

    def get(self, name: str) -> Executor | None:
        """The capability of that name."""
        return self._executors.get(name)

    def all(self) -> Sequence[Capability]:
        """Every capability, by name."""
        return self._all

    def stubs(self, names: Sequence[str] | None = None) -> str:
        """Python stubs of all, or of these; raises `NOT_FOUND` for a name that is not in the set."""
        key = None if names is None else tuple(sorted(set(names)))
        found = self._stubs.get(key)
        if found is None:
            chosen = self._all if key is None else [self._known(one).capability for one in key]
            found = self._stubs[key] = python_stubs(chosen)
        return found

    def search(self, query: str, *, limit: int = 20) -> Sequence[Capability]:
        """Capabilities that match the words of the query, best first; all of them for no words."""
        return self._index.search(query, limit=limit)

    def with_(self, *executors: Executor) -> CapabilitySet:
        """This set and these; raises `INVALID_ARGUMENT` for a name that is taken."""
        return CapabilitySet(*self, *executors, version=self.version + 1)

    def without(self, *names: str) -> CapabilitySet:
        """This set but these; raises `NOT_FOUND` for a name that is not in it."""
        for name in names:
            self._known(name)
        kept = [one for one in self if one.capability.name not in names]
        return CapabilitySet(*kept, version=self.version + 1)

    def diff(self, other: CapabilitySet) -> Difference:
        """What it takes to get from this set to the other."""
        mine = {one.name: one.digest for one in self._all}
        theirs = {one.name: one.digest for one in other.all()}
        both = sorted(mine.keys() & theirs.keys())
        return Difference(
            added=tuple(sorted(theirs.keys() - mine.keys())),
            removed=tuple(sorted(mine.keys() - theirs.keys())),
            changed=tuple(name for name in both if mine[name] != theirs[name]),
        )

    @cached_property
    def _index(self) -> Index:
        return Index(self._all)

    def _take(self, executor: Executor) -> None:
        capability = executor.capability
        name = check_name(capability.name)
        if not isinstance(executor, Contract):  # which has checked them already
            Schema(capability.input_schema, f"The input schema of `{name}`")
            Schema(capability.output_schema, f"The output schema of `{name}`")
        first = self._executors.get(name)
        if first is not None:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Two capabilities are called `{name}`: {_origin(first)} and {_origin(executor)}.",
                hint='Rename one: `@capability(name="…")`, or leave it out.',
            )
        self._executors[name] = executor

    def _known(self, name: str) -> Executor:
        found = self._executors.get(name)
        if found is None:
            near = self._index.nearest(name)
            raise NotFound(
                "NOT_FOUND",
                f"There is no capability `{name[:80]}` in this set.",
                hint=f"Did you mean `{near}`?" if near else "`all()` names those there are.",
            )
        return found


def capability_of(given: object) -> Capability:
    """The contract of something that can be called; raises `INVALID_ARGUMENT` for what has none."""
    found = getattr(given, "capability", None)
    if isinstance(found, Capability):
        return found
    name = getattr(given, "__name__", None) or repr(given)[:80]
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{name}` is no capability.",
        hint="Write `@capability` above the function (`from holdfast import capability`).",
    )


def _origin(executor: Executor) -> str:
    origin: str | None = getattr(executor, "origin", None)
    return origin or f"{type(executor).__module__}:{type(executor).__qualname__}"
