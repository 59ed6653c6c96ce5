"""The pen of one stream: the lease to write to it, and where it stands.

Several tasks may write with one pen. What they hand in keeps its order, and each says at which position it expects
to land, so the first write that fails makes all those after it fail too: nothing lands behind a hole. From then on
the pen is `lost`, until it is taken again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

import anyio

from holdfast.contracts import Draft
from holdfast.errors import LeaseHeld, StaleEpoch
from holdfast.journal.log import Appended, Journal, Lease

LEASE_MS = 3000
"""How long a lease lasts unless it is renewed; what a dead process can hold a stream up."""

LOST = -1
"""The position of a stream we no longer know: look before writing."""

_POLL = 0.02
_MARGIN = LEASE_MS / 2000
_RENEW = LEASE_MS / 1200
"""Seconds before its end at which the lease is renewed."""


class Pen:
    """Writes one stream, under a lease."""

    __slots__ = (
        "_failure",
        "_fresh_until",
        "_journal",
        "_lease",
        "_owner",
        "_since",
        "heard",
        "pos",
        "stream",
    )

    def __init__(self, journal: Journal, stream: str, owner: str) -> None:
        self.stream = stream
        self.pos = LOST
        """Where the stream will stand once all that was handed in is written."""
        self._journal = journal
        self._owner = owner
        self._lease: Lease | None = None
        self._fresh_until = 0.0
        self._failure: BaseException | None = None
        self._since = 0
        """Counts the failures that somebody heard of: what was handed in before one can't have been written either."""
        self.heard: Callable[[], None] | None = None
        """Told whenever something was written, or handed in."""

    @property
    def held(self) -> bool:
        """Whether we have the lease, as far as we know."""
        return self._lease is not None

    # -- the lease ------------------------------------------------------------------------------------

    async def take(self, deadline: float) -> bool:
        """Make sure that we hold the lease for a while; whether others may have written since we last did.

        Raises `LeaseHeld` when somebody else has it until `deadline`, and what could not be written before.
        """
        self.raise_failure()
        if self.fresh:
            return False
        now = monotonic()
        lease = await self._claim(deadline)
        self._lease = lease
        self._fresh_until = monotonic() + LEASE_MS / 1000 - (monotonic() - now)
        moved = lease.pos != self.pos
        self.pos = lease.pos
        return moved

    async def _claim(self, deadline: float) -> Lease:
        while True:
            try:
                return await self._journal.claim(self.stream, self._owner, ttl_ms=LEASE_MS)
            except LeaseHeld:
                if monotonic() >= deadline:
                    raise
                await anyio.sleep(_POLL)

    @property
    def fresh(self) -> bool:
        """Whether `take` has nothing to do."""
        if self._lease is None or self.pos == LOST:
            return False
        return monotonic() < self._fresh_until - _MARGIN

    @property
    def ages(self) -> bool:
        """Whether the lease should be renewed soon."""
        return self._fresh_until - monotonic() < _RENEW

    async def renew(self) -> None:
        """Make the lease last; when it was lost, the next write is refused."""
        await renew_all(self._journal, [self])

    @property
    def lease(self) -> Lease | None:
        """What we hold."""
        return self._lease

    def renewed(self, lease: Lease, until: float | None) -> None:
        """`lease` lasts `until` then, by our clock; `None`: it was lost."""
        if self._lease is not lease:
            return  # it was taken anew in the meantime
        if until is None:
            self._lease = None
        else:
            self._fresh_until = until

    async def release(self) -> None:
        """Give the stream back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            await self._journal.release(lease)

    # -- writing --------------------------------------------------------------------------------------

    async def append(self, drafts: Sequence[Draft], *, durable: bool = False) -> Appended:
        """Write records and wait for it; with `durable`, for the disk."""
        lease = self._held()
        at = self.pos
        self.pos = at + len(drafts)
        found: Appended | None = None
        try:
            found = self._journal.append_now(
                self.stream, drafts, expected_pos=at, epoch=lease.epoch, durable=durable
            )
            if found is not None:
                return self._told(found)
            # Whoever is cancelled meanwhile hears of it afterwards: else nobody knew where the stream stands.
            with anyio.CancelScope(shield=True):
                found = await self._journal.append(
                    self.stream, drafts, expected_pos=at, epoch=lease.epoch, durable=durable
                )
        except BaseException as failure:
            self.fail(failure)
            raise
        assert found is not None
        return self._told(found)

    def _told(self, found: Appended) -> Appended:
        if self.heard is not None:
            self.heard()
        return found

    def post(self, count: int, make: Callable[[], Sequence[Draft]], *, light: bool = False) -> None:
        """Hand `count` records in; whoever writes next hears of a failure."""
        lease = self._held()
        at = self.pos
        self.pos = at + count
        since = self._since

        def failed(failure: BaseException) -> None:
            if since == self._since:
                self.fail(failure)

        try:
            self._journal.post(
                self.stream, make, failed=failed, expected_pos=at, epoch=lease.epoch, light=light
            )
        except BaseException as failure:
            self.fail(failure)  # it may have been taken or not: as after a failed append
            raise
        if self.heard is not None:
            self.heard()

    def fail(self, failure: BaseException) -> None:
        """Something was not written, or we do not know: nothing more is written before somebody looked."""
        self._failure = self._failure or failure
        self.pos = LOST

    @property
    def cut_off(self) -> bool:
        """Whether a write was cancelled by force, and may have landed or not."""
        return isinstance(self._failure, asyncio.CancelledError)

    def raise_failure(self) -> None:
        """Raise what could not be written; once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self.pos = LOST
            self._since += 1
            raise failure

    def lose(self) -> None:
        """Forget where the stream stands: look before the next write."""
        self.pos = LOST
        self._failure = None
        self._since += 1

    def _held(self) -> Lease:
        if self._failure is not None:
            raise self._failure
        if self._lease is None or self.pos == LOST:
            raise StaleEpoch(self.stream, None, 0, "that lost its lease")
        return self._lease


async def renew_all(journal: Journal, pens: Iterable[Pen]) -> None:
    """Make the leases of all these pens last, in one write: one by one, a thousand would take longer than they last."""
    held = [(pen, pen.lease) for pen in pens]
    mine = [(pen, lease) for pen, lease in held if lease is not None]
    if not mine:
        return
    until = monotonic() + LEASE_MS / 1000
    found = await journal.renew_all([lease for _, lease in mine], ttl_ms=LEASE_MS)
    for (pen, lease), renewed in zip(mine, found, strict=True):
        pen.renewed(lease, until if renewed is not None else None)
