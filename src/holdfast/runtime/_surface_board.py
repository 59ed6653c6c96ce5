"""Every surface of a runtime, driven by its machine: connections opened, watched, drained, closed and made again.

The machine (`machines/surfaces.py`) decides; here its effects are carried out. What the machine calls a connection is a
number; behind it is a `Served`: a link, and what it offered when that number was given. Two numbers may share a link: one
that said anew what it offers was not opened again, and is closed with the last of them.

A lost connection stays the one that serves until another one does: its tools stay known, calls are refused.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TypeAlias

import anyio
import anyio.abc

from holdfast.capabilities.connection import Offers, Source
from holdfast.contracts import Json
from holdfast.contracts.surface import SurfaceSpec
from holdfast.errors import HoldfastError
from holdfast.gate.executor import Context, Finding, NeedsAnswer
from holdfast.machines import surface_types as t
from holdfast.machines.kernel import GuardRejected, Rejected
from holdfast.machines.retry import FailureKind, RetryPolicy, retry_delay
from holdfast.machines.surfaces import Surfaces, step
from holdfast.runtime._surface_fates import Fate, Served, words_of
from holdfast.runtime._surface_links import Link, draining, other_tool, removed, unavailable
from holdfast.runtime._surface_tool import SurfaceTool

AGAIN = RetryPolicy(initial_delay_ms=500, multiplier=2.0, max_delay_ms=30_000)
"""When a connection that is wanted is tried again."""
SHUTDOWN_S = 15.0
"""Seconds that closing everything may take; then it is cut off."""
_DETAIL = 300
_CALLS = (t.CallStarted, t.CallFinished)

Told: TypeAlias = Callable[[str, t.Op, str], None]
"""Hears what became of which surface: the operation, and how far it got, or `lost`."""


class Board:
    """Steps the machine and carries out what follows."""

    def __init__(
        self,
        make: Callable[[str, SurfaceSpec], Source],
        told: Told,
        *,
        now: Callable[[], int] = lambda: int(monotonic() * 1000),
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`make` gives what a spec is connected to; `told` hears of every change."""
        self.state = Surfaces()
        self.specs: dict[str, SurfaceSpec] = {}
        """What is wanted, by name."""
        self.fates: dict[str, Fate] = defaultdict(Fate)
        self.moved = anyio.Event()
        """Set, and replaced, whenever anything has changed."""
        self._make = make
        self._told = told
        self.now = now
        self._redact = redact
        self._served: dict[int, Served] = {}
        self._attempts: dict[int, Link] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self.wake = anyio.Event()
        """Set when something may be due sooner than it was."""

    def begin(self, group: anyio.abc.TaskGroup) -> None:
        """Tasks are started in this group from here on."""
        self._group = group

    @property
    def operating(self) -> bool:
        """Whether it was not shut down."""
        return self.state.phase is t.Phase.OPERATING

    # -- looking --------------------------------------------------------------------------------------

    def record(self, name: str) -> t.Record:
        """Where the machine has it."""
        return self.state.record(name)

    def fate(self, name: str) -> Fate:
        """What else is known about it."""
        return self.fates[name]

    def serving(self, name: str) -> Served | None:
        """The connection that serves, also when it is lost."""
        number = self.record(name).connection
        return None if number is None else self._served.get(number)

    def alive(self, name: str) -> bool:
        """Whether calls can go out."""
        served = self.serving(name)
        return served is not None and not served.link.over

    def tools(self, name: str) -> tuple[SurfaceTool, ...]:
        """The tools that sessions see of it, whether or not its server is there now."""
        served = self.serving(name) if self.record(name).visible else None
        return () if served is None else served.tools

    # -- the machine ----------------------------------------------------------------------------------

    def step(self, name: str, input_: object) -> tuple[object, ...]:
        """One input; what follows is carried out, and given back. Raises what the machine raises."""
        self.state, emitted = step(self.state, name, input_)
        for server, effect in emitted:
            self._carry_out(server, effect)
        if not isinstance(input_, _CALLS):
            self._move()
        return tuple([one.effect for one in emitted])

    def _move(self) -> None:
        moved, self.moved = self.moved, anyio.Event()
        moved.set()

    def apply(self, name: str, turn: int = 0) -> bool:
        """Carry out what is staged, unless something else is under way: then it stays staged."""
        staged = self.record(name).staged
        if staged is None:
            return False
        try:
            self.step(name, t.Apply(staged.seq, self.now(), turn))
        except GuardRejected:
            return False
        return True

    def _carry_out(self, name: str, effect: object) -> None:
        match effect:
            case t.Connect():
                self._connect(name, effect)
            case t.CancelConnect(task):
                if task in self._attempts:
                    self._attempts[task].close()
            case t.Close(connection):
                self._close(connection)
            case t.Refresh(epoch):
                # What is visible is read off the state, so it is never behind.
                if self.operating:
                    self.state, _ = step(self.state, name, t.Aligned(epoch))
            case t.Delta():
                self._note(name, effect)
            case _:
                pass  # whoever called decides what follows from being admitted

    def _note(self, name: str, delta: t.Delta) -> None:
        fate = self.fate(name)
        if delta.phase is t.DeltaPhase.FORCED:
            fate.forced += 1
        self._told(name, delta.op, delta.phase.value.lower())

    # -- connections ----------------------------------------------------------------------------------

    def _connect(self, name: str, attempt: t.Connect) -> None:
        assert self._group is not None
        fate, spec = self.fate(name), self.specs[name]
        fate.again_at = None
        served = self.serving(name)
        if attempt.op is t.Op.RELOAD and fate.stale and served is not None:
            self._group.start_soon(self._relist, name, attempt, spec, served)
        else:
            self._group.start_soon(self._attempt, name, attempt, spec)

    async def _attempt(self, name: str, attempt: t.Connect, spec: SurfaceSpec) -> None:
        """The owner of a connection: opens it, keeps it while it is wanted, closes it."""
        fate = self.fate(name)

        def opened(link: Link) -> bool:
            assert link.connection is not None
            return self._succeeded(name, attempt, link, link.connection.offers)

        link: Link | None = None
        try:
            source = self._make(name, spec)
            link = Link(name, source, timeout_ms=spec.connect_timeout_ms)
            self._attempts[attempt.task] = link
            fate.links.add(link)
            await link.own(opened, self._changed)
        except Exception as why:  # noqa: BLE001 - whatever a source raises is why it failed
            self._failed(name, attempt, why)
        finally:
            if link is not None:
                self._attempts.pop(attempt.task, None)
                fate.links.discard(link)
                self._move()
        if link is not None and link.connection is not None and not link.closing:
            self._lost(name, link)

    async def _relist(
        self, name: str, attempt: t.Connect, spec: SurfaceSpec, served: Served
    ) -> None:
        """Ask a connection that is open what it offers now; open another one where it can't say."""
        try:
            offers = await served.link.relist(spec.connect_timeout_ms)
        except Exception as why:  # noqa: BLE001 - whatever it raises is why it failed
            self._failed(name, attempt, why)
            return
        if offers is None or served.link.over:
            await self._attempt(name, attempt, spec)
        else:
            self._succeeded(name, attempt, served.link, offers)

    def _succeeded(self, name: str, attempt: t.Connect, link: Link, offers: Offers) -> bool:
        """Hand a connection over; False when nobody wants it any more."""
        self._served[attempt.task] = self._serve(name, link, offers)
        fate = self.fate(name)
        fate.generation += 1
        try:
            self.step(name, t.Succeeded(attempt.task, attempt.seq, self.now()))
        except Rejected:
            fate.generation -= 1
            del self._served[attempt.task]
            return False
        fate.failures, fate.question, fate.tried = 0, None, True
        # Not before: what could not be learnt is asked for again at the next boundary.
        fate.stale = False
        return True

    def _serve(self, name: str, link: Link, offers: Offers) -> Served:
        """What it offers, as tools; one whose contract is none is refused by itself."""
        refused = dict(offers.refused)
        known = {one.tool: one for one in self.tools(name)}
        tools: dict[str, SurfaceTool] = {}
        for offer in offers.tools:
            before = known.get(offer.tool)
            if before is not None and before.capability == offer.capability:
                tool = before
            else:
                try:
                    tool = SurfaceTool(name, offer, self, reconciles=link.reconciles(offer.tool))
                except HoldfastError as why:
                    refused[offer.tool] = why.message
                    continue
            if tool.capability.name in tools:
                refused[offer.tool] = f"Another tool is called `{tool.capability.name}`."
            else:
                tools[tool.capability.name] = tool
        offered = {one.tool: one.capability for one in tools.values()}
        return Served(link, tuple(tools.values()), offered, refused)

    def _failed(self, name: str, attempt: t.Connect, why: Exception) -> None:
        fate = self.fate(name)
        fate.tried = True
        fate.question = why.question if isinstance(why, NeedsAnswer) else None
        fate.failures += 1
        detail = self._redact(words_of(why))[:_DETAIL]
        try:
            self.step(name, t.Failed(attempt.task, attempt.seq, detail=detail))
        except Rejected:
            return  # it was given up before
        if not self.alive(name):
            self._later(name)

    def _lost(self, name: str, link: Link) -> None:
        """The other side is gone: what serves is connected anew, and tools stay known meanwhile."""
        served = self.serving(name)
        if not self.operating or served is None or served.link is not link:
            return
        self._told(name, t.Op.RELOAD, "lost")
        self._later(name)
        self._move()

    def _later(self, name: str) -> None:
        """Try again after a while, longer from time to time."""
        if name not in self.specs or not self.operating:
            return
        plan = retry_delay(
            max(1, self.fate(name).failures),
            AGAIN,
            FailureKind.RETRYABLE_PROVIDER_ERROR,
            hint_ms=None,
            remaining_ms=None,
            jitter=random.uniform(-1, 1),
        )
        self.fate(name).again_at = self.now() + plan.selected_delay_ms
        self.wake.set()

    def _changed(self, link: Link) -> None:
        self.fate(link.name).stale = True

    def _close(self, number: int) -> None:
        served = self._served.pop(number, None)
        if served is None:
            return
        if not any(one.link is served.link for one in self._served.values()):
            served.link.close()

    # -- calls ----------------------------------------------------------------------------------------

    async def call(
        self, tool: SurfaceTool, arguments: Mapping[str, Json], context: Context
    ) -> Json:
        """Make one call on what serves now, if that is still what the tool was made of."""
        name = tool.surface
        if self.asks(name):
            await self._wakened(name)
        number = self._admitted(name)
        try:
            served = self._served[number]
            now = served.offered.get(tool.tool)
            if now is None or not tool.is_still(now):
                raise other_tool(name, tool.capability.name, gone=now is None)
            return await served.link.call(tool.tool, arguments, context)
        finally:
            self._finished(name, number)

    async def _wakened(self, name: str) -> None:
        """A server that waits for somebody to sign in is tried at once: that may be why this call is made again."""
        if self.serving(name) is None:
            return
        await self.attempted(name)
        if self.asks(name):
            self.again(name)
            await self.attempted(name)
        question = self.fate(name).question
        if question is not None and not self.alive(name):
            raise NeedsAnswer(question)

    def asks(self, name: str) -> bool:
        """Whether it waits for somebody to sign in."""
        return self.fate(name).question is not None and not self.alive(name)

    async def attempted(self, name: str) -> None:
        """Wait for the end of the attempt under way: it may have begun before somebody signed in."""
        while self.record(name).pending is not None:
            await self.moved.wait()

    def _admitted(self, name: str) -> int:
        """The connection that a call may go out on; raises why it may not."""
        for effect in self.step(name, t.CallStarted()):
            match effect:
                case t.Admit(connection):
                    return connection
                case t.Reject(t.Cause.SURFACE_DRAINING):
                    raise draining(name)
                case _:
                    continue
        raise unavailable(name) if name in self.specs else removed(name)

    def _finished(self, name: str, number: int) -> None:
        try:
            self.step(name, t.CallFinished(number))
        except Rejected:
            pass  # its connection was closed before it ended
        self.pump(name)
        served = self._served.get(number)
        if served is not None and served.link.suspect:
            self.wake.set()

    async def reconcile(
        self, tool: SurfaceTool, arguments: Mapping[str, Json], context: Context
    ) -> Finding:
        """Find out what became of a call, where that is possible."""
        served = self.serving(tool.surface)
        now = None if served is None else served.offered.get(tool.tool)
        if served is None or now is None or not tool.is_still(now):
            return Finding("unknown")
        return await served.link.reconcile(tool.tool, arguments, context)

    # -- what is due ----------------------------------------------------------------------------------

    def pump(self, name: str) -> None:
        """Finish a removal, and close what was replaced, if that is due."""
        record = self.record(name)
        if not record.old and record.removal is None:
            return
        now = self.now()
        due: list[object] = [t.PumpOld(now)] if record.old else []
        due += [t.PumpRemoval(now)] if record.removal is not None else []
        for input_ in due:
            try:
                self.step(name, input_)
            except Rejected:
                continue  # not yet

    def again(self, name: str) -> None:
        """Connect anew what is wanted and not there; what somebody staged goes first."""
        fate, record = self.fate(name), self.record(name)
        fate.again_at = None
        if name not in self.specs or record.staged is not None or record.pending is not None:
            return
        self.step(name, t.StageReload() if record.visible else t.StageAdd())
        self.apply(name)

    async def shut_down(self) -> None:
        """Close everything, and wait for it."""
        self.step("", t.Shutdown())
        self.wake.set()
        with anyio.move_on_after(SHUTDOWN_S):
            while any(fate.links for fate in self.fates.values()):
                await self.moved.wait()
