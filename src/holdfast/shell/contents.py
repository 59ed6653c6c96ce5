"""What is in one session: a box, what its code defined, and how much of that is not saved yet.

A box may be thrown away at any time: the journal holds all it takes to make it again. So saving the state after every
run is not necessary: it is saved when replaying what is not in it would cost more than `DEBT_MS`, and when the session
is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any

from holdfast.contracts import Body, Diagnostic, Draft, SessionLimits, canonical_json
from holdfast.contracts.payload import SessionState
from holdfast.contracts.record import MAX_PAYLOAD_BYTES
from holdfast.errors import HoldfastError
from holdfast.journal.log import SUPERSEDED
from holdfast.journal.pen import Pen
from holdfast.shell.box import Box, Boxes, Ran
from holdfast.shell.definitions import Definitions
from holdfast.shell.replay import restore
from holdfast.shell.services import Services
from holdfast.shell.snapshot import Snapshot, pack

DEBT_MS = 100
DEBT_RUNS = 512
"""The state is saved once this much, or this many runs, would have to be replayed."""

CALL_DEBT_MS = 1
"""What replaying one call counts, beside computing."""

COMPACT_OVER = 64 << 10
"""Bytes from which on a saved state is worth compacting: the engine keeps all code it ever got."""

IDLE = 0.1
"""Seconds after which a worker is looked at before it is used again."""


class Contents:
    """What is in a session, and how it is saved."""

    def __init__(self, session_id: str, services: Services, boxes: Boxes, pen: Pen) -> None:
        self.boxes = boxes
        """The engine of its language."""
        self.box: Box | None = None
        self.definitions = Definitions(boxes, {})
        """What its code defined."""
        self.warning: Diagnostic | None = None
        """What whoever runs next should know."""
        self.debt_runs = 0
        """Runs that are not in the saved state."""
        self._session_id = session_id
        self._services = services
        self._pen = pen
        self._names: set[str] = set()
        self._unread: list[tuple[str, str | None]] = []
        self._running: str | None = None
        self._debt_ms = 0.0
        self._state: str | None = None
        self._size = 0

    # -- names ----------------------------------------------------------------------------------------

    @property
    def names(self) -> set[str]:
        """The variables and functions its code may have defined."""
        unread, self._unread = self._unread, []
        for code, error in unread:
            self._names |= self.boxes.binds(code, error)
        if self._running is None:
            return self._names
        return self._names | self.boxes.binds(self._running)

    def known(self) -> set[str]:
        """The same, for whoever may never ask."""
        return self.names

    @property
    def unread(self) -> bool:
        """Whether there is code of which nobody has found out yet what it defines."""
        return bool(self._unread)

    def reads(self, code: str, inputs: Iterable[str] = ()) -> None:
        """Take note of code that is about to run; what it defines is found out when somebody asks."""
        self._has_run(None)
        self._running = code
        self._names.update(inputs)

    def _has_run(self, error: str | None) -> None:
        """What ran last is over, as far as anybody will hear of it."""
        if self._running is not None:
            self._unread.append((self._running, error))
            self._running = None

    # -- the box --------------------------------------------------------------------------------------

    def at_hand(self, limits: SessionLimits, *, used: float) -> Box | None:
        """The box, if there is one that can keep `limits`; the session was last used at `used`."""
        box = self.box
        if box is None or not box.fits(limits):
            return None
        # A worker may have died since it was last used, which is nobody's fault that is about to run.
        return box if monotonic() - used <= IDLE or box.alive() else None

    async def ready(self, limits: SessionLimits, *, used: float) -> Box:
        """A box in the session's state that can keep `limits`, made if need be."""
        box = self.at_hand(limits, used=used)
        if box is not None:
            return box
        await self.drop()
        made = await restore(self._services, self.boxes, session_id=self._session_id, limits=limits)
        self.have(made.box, made.names, made.definitions)
        self._debt_ms, self.debt_runs = made.debt_ms, made.debt_runs
        self._state, self._size, self.warning = made.state, made.size, made.warning
        return made.box

    def have(self, box: Box, names: set[str], definitions: Definitions) -> None:
        """This is in the session from now on."""
        self.box, self.definitions = box, definitions
        self._names, self._unread, self._running = names, [], None

    async def drop(self) -> None:
        """Throw the box away."""
        box, self.box = self.box, None
        if box is not None:
            await box.close()

    # -- what is not saved ----------------------------------------------------------------------------

    def called(self, calls: int) -> None:
        """A run that is about to be over made this many calls."""
        self._debt_ms += CALL_DEBT_MS * calls

    def ran(self, code: str, ran: Ran) -> None:
        """A run is over."""
        self._debt_ms += ran.metrics.duration_ms
        self.debt_runs += 1
        self.warning = None
        if ran.refused:
            self._running = None
            return
        self._has_run(ran.error.code if ran.error is not None else None)
        if ran.state_kept:
            self.definitions.ran(code, ran)

    @property
    def due(self) -> bool:
        """Whether replaying what is not saved would cost too much."""
        return self.debt_runs >= DEBT_RUNS or self._debt_ms >= DEBT_MS

    # -- saving ---------------------------------------------------------------------------------------

    async def save(self) -> str | None:
        """Save the state, if it can be saved: one that is too large can't, and is replayed instead."""
        box = self.box
        if box is None:
            return None
        try:
            state = await self._small(box, await box.dump())
            draft = self._saved(state, box.limits)
        except HoldfastError:
            await self.drop()
            return None
        digest = draft.bodies[0].ref.digest
        await self._pen.append([draft])
        await self._supersede(digest)
        return digest

    async def snapshot(
        self,
        limits: SessionLimits,
        *,
        used: float,
        capabilities: dict[str, str],
        pending: dict[str, Any] | None,
    ) -> Snapshot:
        """What is in the session, as it would leave it."""
        box = await self.ready(limits, used=used)
        state = await box.dump()
        return Snapshot(
            self._session_id,
            self.boxes.engine,
            state,
            limits=box.limits.model_dump(mode="json"),
            names=tuple(sorted(self.names)),
            sources=self.definitions.told(),
            capabilities=capabilities,
            pending=pending,
        )

    async def replace(
        self,
        snapshot: Snapshot | None,
        limits: SessionLimits,
        *,
        reason: str,
        origin: str | None,
    ) -> Draft:
        """Have this instead of what is there, `None` for nothing; what is to be recorded of it."""
        await self.drop()
        inside = limits
        if snapshot is None:
            box = self.box = await self.boxes.open(limits)
            state = await box.dump()
            snapshot = Snapshot(self._session_id, self.boxes.engine, state, sources={})
        else:
            if snapshot.limits is not None:
                inside = SessionLimits.model_validate(snapshot.limits)
            box = await self.boxes.open(inside, snapshot.state)
        self.have(box, set(snapshot.names), Definitions(self.boxes, snapshot.sources))
        self._debt_ms, self.debt_runs = 0.0, 0
        self._state, self._size = None, len(snapshot.state)
        return self._saved(snapshot.state, inside, reason=reason, origin=origin)

    def _saved(
        self,
        state: bytes,
        limits: SessionLimits,
        *,
        reason: str = "saved",
        origin: str | None = None,
    ) -> Draft:
        names = tuple(sorted(self.names))
        sources = self.definitions.told()
        engine = self.boxes.engine
        snapshot = Snapshot(self._session_id, engine, state, names=names, sources=sources)
        sealed = pack(self._services.key, snapshot)
        body = Body.of(sealed, role="state", mime="application/x-holdfast-state")
        said = SessionState.model_validate(
            {
                "state": body.ref.digest,
                "engine": engine,
                "limits": limits,
                "names": _that_fit(names),
                "reason": reason,
                "origin": origin,
            }
        )
        return Draft.of(said, bodies=(body,))

    async def _small(self, box: Box, state: bytes) -> bytes:
        """The state, or a smaller one with the same in it; then the box is replaced by one that has it.

        Tried when the state has outgrown a power of two: so it is tried seldom, by whatever process saves.
        """
        outgrown = len(state).bit_length() > max(self._size, COMPACT_OVER - 1).bit_length()
        sources = self.definitions.told() if outgrown else None
        if sources is not None:
            names = frozenset(self.names)
            small = await self.boxes.compact(state, box.limits, names=names, sources=sources)
            if small is not None and 2 * len(small) <= len(state):
                self.box = await self.boxes.open(box.limits, small)
                await box.close()
                state = small
        self._size = len(state)
        return state

    async def _supersede(self, digest: str) -> None:
        """States replace each other: keeping each of them would grow without bound."""
        old, self._state = self._state, digest
        self._debt_ms, self.debt_runs = 0.0, 0
        if old is not None and old != digest:
            await self._services.journal.erase(old, reason=SUPERSEDED)


def _that_fit(names: Iterable[str]) -> tuple[str, ...]:
    """The names that a record has room for, short ones first; the state itself has them all."""
    found: list[str] = []
    room = MAX_PAYLOAD_BYTES // 2
    for name in sorted(names, key=len):
        room -= len(canonical_json(name)) + 1
        if room < 0:
            break
        found.append(name)
    return tuple(sorted(found))
