"""Every tool server of a session: one `Record` each, one phase, one set of counters, one epoch.

Nothing is decided here. A step takes one record out, puts what is shared beside it, lets the table of `surface.py`
decide, and puts both back. Only a shutdown touches every record: each goes through the table, so each closes what it
has open, and what was visible disappears in one new epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from holdfast.machines.surface import SURFACE
from holdfast.machines.surface_types import Phase, Record, Refresh, Shutdown, Surface

UNKNOWN = Record()
"""The record of a server that was never heard of."""


class Surfaces(NamedTuple):
    """All servers, and what they share."""

    phase: Phase = Phase.OPERATING
    records: Mapping[str, Record] = MappingProxyType({})
    """By server id. A removed server stays, as `Removed`."""
    next_staged: int = 0
    next_task: int = 0
    epoch: int = 0
    aligned: int = 0

    def record(self, server: str) -> Record:
        """That of a server, whether or not it is known."""
        return self.records.get(server, UNKNOWN)

    @property
    def visible(self) -> frozenset[str]:
        """The servers whose tools the model sees."""
        return frozenset(server for server, record in self.records.items() if record.visible)


class Emitted(NamedTuple):
    """An effect, and the server it is about."""

    server: str
    effect: object


def step(surfaces: Surfaces, server: str, input_: object) -> tuple[Surfaces, tuple[Emitted, ...]]:
    """One input for one server; raises what the table raises. `Shutdown` and `Aligned` are for all of them."""
    if isinstance(input_, Shutdown):
        return shut_down(surfaces)
    old = _one(surfaces, server)
    new, effects = SURFACE.apply(old, input_)
    records = surfaces.records
    # An input that leaves no trace (a rejected call, an alignment) does not make its server known.
    if new.record != old.record:
        records = {**records, server: new.record}
    after = Surfaces(new.phase, records, new.next_staged, new.next_task, new.epoch, new.aligned)
    return after, tuple([Emitted(server, effect) for effect in effects])


def shut_down(surfaces: Surfaces) -> tuple[Surfaces, tuple[Emitted, ...]]:
    """Close everything; a second time, nothing."""
    closed = {
        server: SURFACE.apply(_one(surfaces, server), Shutdown()) for server in surfaces.records
    }
    epoch = max((one.state.epoch for one in closed.values()), default=surfaces.epoch)
    emitted = [
        Emitted(server, effect)
        for server, one in closed.items()
        for effect in one.effects
        if not isinstance(effect, Refresh)
    ]
    if epoch != surfaces.epoch:
        emitted.append(Emitted("", Refresh(epoch)))
    records = {server: one.state.record for server, one in closed.items()}
    return surfaces._replace(phase=Phase.SHUTDOWN, records=records, epoch=epoch), tuple(emitted)


def _one(surfaces: Surfaces, server: str) -> Surface:
    return Surface(
        surfaces.phase,
        surfaces.record(server),
        surfaces.next_staged,
        surfaces.next_task,
        surfaces.epoch,
        surfaces.aligned,
    )
