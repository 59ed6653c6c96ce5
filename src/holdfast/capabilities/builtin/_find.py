"""`glob` over mounts: one walk, each folder entered once, however many `**` a pattern has."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.capabilities.builtin import _paths as paths

MAX_LOOKS = 200_000
"""Entries looked at in one search."""
MAX_DEPTH = 64
"""Folders below each other in one search; a handle is open for each."""

_ANY = "**"
_WILD = re.compile(r"[*?\[]")
_Match = Callable[[str], object]


def find(mounts: paths.Mounts, pattern: str, most: int) -> list[str]:
    """The virtual paths that match, sorted; ValueError when there are more than `most`."""
    names = paths.split(pattern)
    fixed = next((at for at, name in enumerate(names) if _WILD.search(name)), len(names))
    start = mounts.place(names[:fixed])
    if fixed == len(names):
        return _single(start)
    steps = tuple(
        None if name == _ANY else re.compile(fnmatch.translate(name)).match
        for name in names[fixed:]
    )
    search = _Search(mounts, pattern, steps, most)
    try:
        with paths.folder(start) as handle, paths.told(start):
            search.walk(handle, start.names, search.closed({0}))
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing there, nothing matches
    return sorted(search.found)


def _single(place: paths.Place) -> list[str]:
    try:
        found = paths.look(place)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [str(place)] if paths.kind_of(found.st_mode) in ("file", "dir") else []


@dataclass(slots=True)
class _Search:
    """A walk that carries the set of places in the pattern where each folder may stand."""

    mounts: paths.Mounts
    pattern: str
    steps: tuple[_Match | None, ...]
    """One for each name of the pattern; None stands for `**`."""
    most: int
    found: list[str] = field(default_factory=list[str])
    looks: int = 0

    def closed(self, states: set[int]) -> frozenset[int]:
        """These places, and those reached from them by letting `**` match nothing."""
        reached: set[int] = set()
        for state in states:
            reached.add(state)
            while state < len(self.steps) and self.steps[state] is None:
                state += 1
                reached.add(state)
        return frozenset(reached)

    def after(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Where one more name leads."""
        reached: set[int] = set()
        for state in states:
            if state == len(self.steps):
                continue
            match = self.steps[state]
            if match is None:
                reached.add(state)
            elif match(name):
                reached.add(state + 1)
        return self.closed(reached)

    def walk(self, handle: int, names: paths.Names, states: frozenset[int]) -> None:
        """Add what matches below an open folder."""
        below: list[tuple[str, frozenset[int]]] = []
        with paths.listing(handle) as entries:
            for entry in entries:
                self._look()
                path = (*names, entry.name)
                if entry.is_symlink() or self.mounts.is_root(path):
                    continue  # another mount begins here: what this one has below it can't be named
                reached = self.after(states, entry.name)
                folder = entry.is_dir(follow_symlinks=False)
                if len(self.steps) in reached and (folder or entry.is_file(follow_symlinks=False)):
                    self._add(path)
                if folder and reached - {len(self.steps)}:
                    below.append((entry.name, reached))
        for name, reached in below:
            self._descend(handle, (*names, name), reached)

    def _descend(self, handle: int, names: paths.Names, states: frozenset[int]) -> None:
        if len(names) > MAX_DEPTH:
            raise ValueError(f"Folders are more than {MAX_DEPTH} deep. Search in one of them.")
        try:
            below = paths.enter(handle, names[-1], paths.shown(names))
        except (OSError, paths.ModelError):
            return  # gone, or something else, since the folder was read; or not ours to read
        try:
            self.walk(below, names, states)
        except PermissionError:
            pass  # a folder that may be walked through and not listed
        finally:
            os.close(below)

    def _look(self) -> None:
        self.looks += 1
        if self.looks > MAX_LOOKS:
            raise ValueError(f"`{self.pattern}` goes through more than {MAX_LOOKS} entries.")

    def _add(self, names: paths.Names) -> None:
        if len(self.found) >= self.most:
            raise ValueError(
                f"More than {self.most} paths match `{self.pattern}`. Narrow it, or raise `max_results`."
            )
        self.found.append(paths.shown(names))
