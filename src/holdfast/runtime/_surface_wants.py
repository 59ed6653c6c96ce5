"""Which surfaces there are to be: what the settings' file says, and over it what the journal says.

An intent (`SurfaceStaged`) is a record, so any process with this journal can have one, and every runtime on it follows.
The last intent about a name wins over the file, now and after a restart; what the file alone says is not recorded, for
whoever has the same file reads it himself.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.contracts import Draft
from holdfast.contracts.surface import SURFACES, SurfaceSpec, SurfaceStaged
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.runtime.settings import Settings

_log = logging.getLogger("holdfast.surfaces")

_MANY = 10_000
_SETTLE_NS = 50_000_000
"""A file that was written just now may be half written."""


class Wish(NamedTuple):
    """Something that is wanted of a surface from now on."""

    name: str
    op: str
    """`add`, `remove` or `reload`."""


class Wants:
    """Follows the file and the journal."""

    def __init__(
        self, journal: Journal, written: Mapping[str, SurfaceSpec], file: Path | None = None
    ) -> None:
        """`written` is what the settings say; `file` is where they come from, if that is to be followed."""
        self.problem: str | None = None
        """Why the file can't be read now; what it said before is in force."""
        self._journal = journal
        self._written = dict(written)
        self._staged: dict[str, SurfaceSpec | None] = {}
        self.known = self._all()
        """Every surface that is wanted, by name."""
        self._pos: int | None = None
        self._file = file
        self._stamp = _stamp(file)

    def _all(self) -> dict[str, SurfaceSpec]:
        found = {**self._written, **self._staged}
        return {name: spec for name, spec in sorted(found.items()) if spec is not None}

    @property
    def any(self) -> bool:
        """Whether there ever was one, as far as is known."""
        return bool(self._written or self._staged)

    async def stage(self, said: SurfaceStaged) -> None:
        """Put an intent on record; it is on disk when this returns."""
        await self._journal.append(SURFACES, [Draft.of(said)])

    async def news(self) -> list[Wish]:
        """What is wanted since this was last asked, in order; the first time, what there is to be at all."""
        if self._pos is None:
            await self._load()
            return [Wish(name, "add") for name in self.known]
        return [*self._from_file(), *await self._from_journal(self._pos)]

    async def _load(self) -> None:
        # The head first: what is staged while the rows are read is then read once more, which does no harm.
        self._pos = (await self._journal.head(SURFACES)).pos
        for row in await self._journal.rows("surfaces", limit=_MANY):
            said = SurfaceStaged.model_validate(row.value)
            self._staged[said.name] = said.spec if said.op == "add" else None
        self.known = self._all()

    async def _from_journal(self, pos: int) -> list[Wish]:
        if (await self._journal.head(SURFACES)).pos <= pos:
            return []
        found: list[Wish] = []
        async for record in self._journal.read(SURFACES, after=pos):
            self._pos = record.pos
            if record.kind != "surface_staged":
                continue
            said = SurfaceStaged.model_validate(record.payload)
            if said.op != "reload":
                self._staged[said.name] = said.spec if said.op == "add" else None
                self.known = self._all()
            found.append(Wish(said.name, said.op))
        return found

    def _from_file(self) -> list[Wish]:
        if self._file is None:
            return []
        stamp = _stamp(self._file)
        if stamp == self._stamp or _fresh(stamp):
            return []
        self._stamp = stamp
        try:
            written = Settings.load(self._file).surfaces
        except HoldfastError as why:
            self.problem = why.message
            _log.warning("%s The surfaces stay as they were.", why.message)
            return []
        self.problem = None
        before, self._written = self.known, dict(written)
        after = self.known = self._all()
        gone = [Wish(name, "remove") for name in before if name not in after]
        return gone + [
            Wish(name, "add") for name, spec in after.items() if before.get(name) != spec
        ]


def _fresh(stamp: tuple[int, int, int] | None) -> bool:
    return stamp is not None and 0 <= time.time_ns() - stamp[0] < _SETTLE_NS


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Changes whenever the file does."""
    try:
        found = os.stat(file) if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
