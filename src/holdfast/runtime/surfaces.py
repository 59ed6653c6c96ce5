"""Tool surfaces: servers, modules and documents of tools that come and go while sessions run. `hf.surfaces`.

What is wanted is staged at any time and applied at a boundary: where a run of code starts, and before a model is asked.
Nothing is connected before the first boundary of a session that sees it. From there on each connection has a task of its
own (`_surface_board.py`), lost ones are made again, and what changes is seen by a session at its next boundary only.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Self, cast

import anyio
import anyio.abc

from holdfast.capabilities.connection import Connection, Source
from holdfast.contracts import Capability, Setup, SideEffect
from holdfast.contracts.surface import HttpSurface, SurfaceSpec, SurfaceStaged, SurfaceView
from holdfast.errors import CallerError, NotFound, OperatorError
from holdfast.journal import Journal
from holdfast.machines import mcp_status
from holdfast.machines import surface_types as t
from holdfast.runtime._surface_board import Board
from holdfast.runtime._surface_clashes import Clashes
from holdfast.runtime._surface_links import unavailable
from holdfast.runtime._surface_news import Seen, seen_now, told
from holdfast.runtime._surface_notes import Notes
from holdfast.runtime._surface_sign_in import SignIns
from holdfast.runtime._surface_specs import check_name, spec_of
from holdfast.runtime._surface_tool import SurfaceTool
from holdfast.runtime._surface_upkeep import Upkeep
from holdfast.runtime._surface_wants import Wants, Wish

Given = SurfaceSpec | Mapping[str, Any]
"""A surface as callers give it."""
Op = Literal["add", "remove", "reload"]

LOOK_EVERY = 0.2
"""Seconds between two looks at the file and the journal: a run of code takes less than that."""


class Surfaces:
    """The surfaces of a runtime: `hf.surfaces`."""

    def __init__(
        self,
        journal: Journal,
        make: Callable[[str, SurfaceSpec], Source],
        written: Mapping[str, SurfaceSpec] | None = None,
        *,
        file: Path | None = None,
        owner: str = "holdfast",
        now: Callable[[], int] | None = None,
        redact: Callable[[str], str] = lambda text: text,
        sign_ins: SignIns | None = None,
    ) -> None:
        """`make` gives what a spec is connected to; `written` is what the settings say, and `file` where they do.

        `sign_ins` asks people for what can't come up without. Use `open`: connections live in tasks.
        """
        self._journal = journal
        self._wants = Wants(journal, written or {}, file)
        clock = {} if now is None else {"now": now}
        notes = Notes(journal, owner)
        self._board = notes.board = Board(make, notes, redact=redact, **clock)
        self._upkeep = Upkeep(self._board, self._ask_people)
        self._sign_ins = sign_ins
        self._group: anyio.abc.TaskGroup | None = None
        self._turn = anyio.Lock(fast_acquire=True)
        self._looking: anyio.Event | None = None
        self._looked = -math.inf
        self._due: dict[str, None] = {}
        self._clashes = Clashes(self._board.tools)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        journal: Journal,
        make: Callable[[str, SurfaceSpec], Source],
        written: Mapping[str, SurfaceSpec] | None = None,
        **more: Any,
    ) -> AsyncGenerator[Self]:
        """The surfaces of a runtime; leaving closes every connection."""
        found = cls(journal, make, written, **more)
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            found._group = group
            found._board.begin(group)
            try:
                yield found
            except Exception as why:  # noqa: BLE001 - a task group would wrap it; raised below
                failure = why
            finally:
                with anyio.CancelScope(shield=True):
                    await found._board.shut_down()
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    # -- what is wanted -------------------------------------------------------------------------------

    async def add(self, name: str, spec: Given) -> None:
        """Want a surface from the next boundary on, here and in every process with this journal.

        One that is there is replaced: the calls under way on it end first. After a restart it is wanted still.
        """
        said = SurfaceStaged(name=check_name(name), op="add", spec=spec_of(spec))
        await self._stage(said)

    async def ensure(self, name: str, spec: Given) -> None:
        """Want a surface, unless this very one is wanted already."""
        await self._look(force=True)
        if self._wants.known.get(check_name(name)) != spec_of(spec):
            await self.add(name, spec)

    async def remove(self, name: str) -> None:
        """Want it no more: from the next boundary on it takes no calls, and ends with the last under way."""
        await self._known(name)
        await self._stage(SurfaceStaged(name=name, op="remove"))

    async def reload(self, name: str) -> None:
        """Connect it anew at the next boundary; if that fails, the connection there is goes on."""
        await self._known(name)
        await self._stage(SurfaceStaged(name=name, op="reload"))

    async def _stage(self, said: SurfaceStaged) -> None:
        await self._wants.stage(said)
        await self._look(force=True)

    async def _known(self, name: str) -> SurfaceSpec:
        await self._look(force=True)
        found = self._wants.known.get(name)
        if found is None:
            raise no_surface(name, self._wants.known)
        return found

    async def check(self, names: Iterable[str]) -> None:
        """Raise `NOT_FOUND` unless all of these are wanted."""
        for name in names:
            await self._known(name)

    # -- looking --------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """Why the settings' file can't be read now; what it said before is in force."""
        return self._wants.problem

    @property
    def epoch(self) -> int:
        """Changes whenever what sessions see does."""
        return self._board.state.epoch

    @property
    def quiet(self) -> bool:
        """Whether a boundary would find nothing to do now: there are no surfaces, as far as was looked just now."""
        if self._group is None:
            return True
        if self._wants.any or self._board.state.records:
            return False
        return monotonic() - self._looked < LOOK_EVERY

    async def list(self) -> list[SurfaceView]:
        """Every surface that is wanted, or still draining, by name. Nothing is connected for it."""
        await self._look(force=True)
        return [self._view(name) for name in sorted({*self._wants.known, *self._draining()})]

    async def view(self, name: str) -> SurfaceView:
        """One of them."""
        await self._look(force=True)
        if name not in self._wants.known and name not in self._draining():
            raise no_surface(name, self._wants.known)
        return self._view(name)

    def _draining(self) -> list[str]:
        records = self._board.state.records
        return [name for name, one in records.items() if one.base is t.Base.REMOVING]

    def _view(self, name: str) -> SurfaceView:
        board, record = self._board, self._board.record(name)
        served, status = board.serving(name), mcp_status.status(record)
        connection = served.link.connection if served is not None else None
        state, detail = status.state.value, status.detail or None
        if state == "connected" and not board.alive(name):
            # The machine knows of connections that serve, not of those that broke.
            state, detail = "disconnected", "The connection was lost; it is being made again."
        staged = record.staged.op.value.lower() if record.staged is not None else None
        if staged is None and name in self._due:
            staged = "add"
        spec = self._wants.known.get(name) or board.specs.get(name)
        refused = dict(served.refused) if served is not None else {}
        clashes = self._clashes.of(name)
        return SurfaceView(
            name=name,
            kind=spec.kind if spec is not None else "unknown",
            status=state,
            generation=board.fate(name).generation,
            tools=tuple(o.capability.name for o in board.tools(name) if o.tool not in clashes),
            refused={**refused, **clashes},
            staged=staged,
            inflight=record.inflight + sum(one.inflight for one in record.old),
            detail=detail,
            server=connection.server if connection is not None else None,
            protocol=connection.protocol if connection is not None else None,
        )

    def connection(self, name: str) -> Connection:
        """The connection that serves, to read resources from; raises `SURFACE_UNAVAILABLE` when there is none."""
        served = self._board.serving(name)
        if served is None or served.link.over or served.link.connection is None:
            raise unavailable(name)
        return served.link.connection

    def readable(self, setup: Setup) -> Sequence[str]:
        """The surfaces that a session sees and that have something to read, by name; also one that is lost now."""
        return [one for one in self._visible(setup) if self._reads(one)]

    def speaks(self, setup: Setup) -> bool:
        """Whether a session sees one that may give bodies by reference: an MCP server."""
        return any(self._reads(one) is not None for one in self._visible(setup))

    def touches(self, name: str) -> SideEffect:
        """What reading from a surface touches."""
        spec = self._wants.known.get(name) or self._board.specs.get(name)
        return SideEffect.NETWORK if isinstance(spec, HttpSurface) else SideEffect.READ

    def _reads(self, name: str) -> bool | None:
        """Whether it has something to read; `None`: it is no server of resources at all."""
        served = self._board.serving(name)
        return None if served is None else getattr(served.link.connection, "readable", None)

    async def wait_ready(
        self, names: Iterable[str] | None = None, *, timeout_ms: int = 30_000
    ) -> list[SurfaceView]:
        """Connect these, or all, and wait until they are there; raises `SURFACE_FAILED` for one that is not in time."""
        wanted = [*names] if names is not None else None
        await self._look(force=True)
        await self.check(wanted or ())
        await self.boundary(Setup(surfaces=None if wanted is None else tuple(wanted)), wait=False)
        wanted = [*self._wants.known] if wanted is None else wanted
        with anyio.move_on_after(timeout_ms / 1000):
            while any(self._under_way(name) for name in wanted):
                await self._board.moved.wait()
        for name in wanted:
            if not self._board.alive(name):
                raise self._not_ready(name)
        return [self._view(name) for name in wanted]

    def _under_way(self, name: str) -> bool:
        record, fate = self._board.record(name), self._board.fate(name)
        return record.pending is not None or (not fate.tried and not self._board.alive(name))

    def _not_ready(self, name: str) -> OperatorError:
        view = self._view(name)
        why = view.detail or "it did not come up in time"
        return OperatorError(
            "SURFACE_FAILED",
            f"The tool surface `{name}` can't be connected: {why.rstrip('.')}.",
            hint=f"`holdfast mcp test {name}` tries it by itself.",
        )

    # -- boundaries -----------------------------------------------------------------------------------

    async def boundary(self, setup: Setup, *, wait: bool = True) -> None:
        """Carry out what is staged, and connect what a session that is opened like this sees.

        With `wait`, for what is connected for the first time: code has to know its names. Each surface is waited for
        once, no longer than it may take to come up; a server that is down does not hold up every run.
        """
        if self._group is None:
            return
        await self._look()
        if not self._wants.known and not self._board.state.records:
            return
        seen = self.seen_by(setup)
        for name in filter(self._board.asks, seen):
            await self._board.attempted(name)
        self._apply(seen)
        if wait:
            while any(self._first(name) for name in seen):
                await self._board.moved.wait()
            await self._ask_people()

    async def _ask_people(self) -> None:
        """See to it that whoever looks into the inbox knows for which surfaces somebody has to sign in."""
        if self._sign_ins is not None:
            await self._sign_ins.look(self._board)

    def _first(self, name: str) -> bool:
        pending = self._board.record(name).pending is not None
        return pending and not self._board.fate(name).tried and not self._board.alive(name)

    def _apply(self, seen: Sequence[str]) -> None:
        board = self._board
        for name in seen:
            if name in self._due:
                del self._due[name]
                board.specs[name] = self._wants.known[name]
                board.fate(name).tried = False
                board.step(name, t.StageAdd())
            elif board.fate(name).stale and board.alive(name) and self._idle(name):
                board.step(name, t.StageReload())
            elif board.asks(name):
                # Somebody may have signed in by now, and code has to know the names.
                board.fate(name).tried = False
                board.again(name)
        for name, record in [*board.state.records.items()]:
            if record.staged is not None and board.apply(name):
                self._start()
            board.pump(name)

    def _idle(self, name: str) -> bool:
        record = self._board.record(name)
        return record.staged is None and record.pending is None

    def _start(self) -> None:
        assert self._group is not None
        self._upkeep.start(self._group)
        self._board.wake.set()

    async def _look(self, *, force: bool = False) -> None:
        """Learn what is wanted by now."""
        while not force:
            if monotonic() - self._looked < LOOK_EVERY:
                return
            if self._looking is None:
                break
            # What somebody learns counts for all who wait, who go on together. In line for the lock they would go on
            # one by one, and in a crowd of sessions the last would wait until the others are done.
            await self._looking.wait()
        async with self._turn:
            looking = self._looking = anyio.Event()
            try:
                for wish in await self._wants.news():
                    self._wish(wish)
                self._looked = monotonic()
            finally:
                self._looking = None
                looking.set()

    def _wish(self, wish: Wish) -> None:
        """Hand it to the machine; what is to be added waits for a session that sees it."""
        name, board = wish.name, self._board
        if wish.op == "remove" or name not in self._wants.known:
            self._due.pop(name, None)
            board.specs.pop(name, None)
            board.fate(name).again_at = None
            if board.record(name) != t.Record():
                board.step(name, t.StageRemove())
        elif wish.op == "reload" and board.record(name).visible and name not in self._due:
            board.fate(name).stale = False  # asked for: another connection, not only another list
            board.step(name, t.StageReload())
        else:
            self._due[name] = None

    # -- what sessions see ----------------------------------------------------------------------------

    def seen_by(self, setup: Setup) -> Sequence[str]:
        """The surfaces that a session sees that is opened like this, by name."""
        known = self._wants.known
        if setup.surfaces is None:
            return [*known]
        return sorted(name for name in {*setup.surfaces} if name in known)

    def tools(self, setup: Setup) -> tuple[SurfaceTool, ...]:
        """The tools that it sees, in order; those of a surface that is not there now as well."""
        return tuple(tool for name in self._visible(setup) for tool in self._board.tools(name))

    def _visible(self, setup: Setup) -> Sequence[str]:
        allowed = setup.surfaces
        visible = sorted(self._board.state.visible)
        return visible if allowed is None else [one for one in visible if one in allowed]

    def clashes(self, tool: SurfaceTool, first: SurfaceTool | None) -> None:
        """A tool was left out, because that one, or something of the session's own, has its name."""
        self._clashes.add(tool, first)

    def news(
        self, setup: Setup, before: object, tools: Iterable[Capability], turn: int
    ) -> tuple[object, list[str]]:
        """What a session's model is told now, which was told `before`; and how things stand."""
        if not self._wants.known and not self._board.fates:
            return (
                before,
                [],
            )  # nothing there, and nothing ever was: it is asked before every question
        known = cast("Seen | None", before)
        names = {*self.seen_by(setup)} | {
            one for one in self._board.fates if setup.surfaces is None or one in setup.surfaces
        }
        own = {one.capability.name for one in self.tools(setup)}
        now = seen_now(self._board, names, (one for one in tools if one.name in own))
        return now, told(known, now)


def no_surface(name: str, known: Iterable[str]) -> CallerError:
    """The refusal of a name that is no surface's."""
    names = ", ".join(f"`{one}`" for one in known)
    return NotFound(
        "NOT_FOUND",
        f"There is no tool surface `{name[:80]}`.",
        hint=f"There are {names}." if names else "`hf.surfaces.add`, or `[surfaces.NAME]`.",
    )
