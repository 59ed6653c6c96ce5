"""The journal's seam: what any store must do, and what follows from it for free.

One append-only log. A **stream** is one history in it (a session has one). The store gives every record
two numbers: `seq`, its place among all records, and `pos`, its place in its stream. Both are dense, and
`seq` is *commit-ordered*: once a record can be read, every record with a lower seq can be read too. That one
property is what lets a reader remember a single number and never miss or repeat a record, so a store that
commits concurrently (PostgreSQL) must take its seq under a lock it holds until the commit.

Fencing, checked inside the transaction that writes, so nothing can happen in between:

* `expected_pos`: the stream must be exactly there, else `StalePosition`.
* `epoch`: the stream's lease must be live and of that epoch, else `StaleEpoch`. Without `epoch` the stream
  must not be leased at all: a process that forgot to claim can't write into another's stream.

A refused append has written nothing, in full or in part. An append whose outcome the caller did not learn
(the process died, the task was cancelled) is there whole or not at all.

A new store implements the abstract methods and passes `holdfast.testing.JournalConformance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import NamedTuple

from holdfast.contracts import ContentRef, Draft, Gap, Json, Privacy, Record
from holdfast.contracts.payload import TERMINAL
from holdfast.errors import HoldfastError, JournalError, StaleEpoch
from holdfast.journal.chain import Bad, ChainCheck, Report, Stored, decode

PAGE = 500
"""Records fetched at a time."""

SUPERSEDED = "superseded"
"""Why a body is erased that another took the place of: to have the room, not because somebody wants it gone. It goes
from the file as any other, and from the log when that is next emptied."""

CONTENT_STREAM = "holdfast:content"
"""Where erasures are recorded: a stream that nobody leases, so that erasing never waits for a session."""

READABLE = frozenset({Privacy.PUBLIC, Privacy.INTERNAL, Privacy.CONTENT_REFS_ONLY})
"""The privacy classes a reader gets unless it asks for more."""


class Appended(NamedTuple):
    """Where an append landed."""

    stream: str
    first_pos: int
    pos: int
    first_seq: int
    seq: int
    time: int
    hash: str


class Head(NamedTuple):
    """Where a stream stands. A stream nobody wrote to stands at 0."""

    stream: str
    pos: int = 0
    seq: int = 0
    hash: str = "0" * 64
    epoch: int = 0
    owner: str | None = None
    until: int = 0
    """Unix milliseconds at which the lease runs out; 0 without one."""


class Lease(NamedTuple):
    """The sole right to append to a stream, until it runs out or is released."""

    stream: str
    owner: str
    epoch: int
    until: int
    pos: int
    """Where the stream stood when it was claimed or last renewed."""


class Row(NamedTuple):
    """One row of a projection."""

    key: str
    tag: str | None
    value: dict[str, Json]


class Holding(NamedTuple):
    """A live body, and the newest record of a stream, run and retention class that refers to it."""

    digest: str
    seq: int
    stream: str
    run_id: str | None
    retention: str


class Found(NamedTuple):
    """What opening the journal found."""

    created: bool
    records: int
    streams: int
    recovered: bool
    """Whether commits were found that nobody had copied back yet: an earlier process died, or one is at work."""
    upgraded_from: int | None
    """The format the file had before it was upgraded just now."""


class Journal(ABC):
    """The append-only truth."""

    found: Found
    """What opening found."""

    # -- writing --------------------------------------------------------------------------------------

    @abstractmethod
    async def append(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended:
        """Append all `records`, with their bodies, or none.

        On disk when it returns. With `durable=False` it returns once written: it survives the death of
        this process, and of the machine from the next durable append (or sync) on.
        """

    def append_now(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended | None:
        """`append`, here and now; `None`, and nothing done, where that would mean waiting.

        For whoever appends all the time and can't be interrupted there: a task that never waits need not be shielded.
        """
        return None

    @abstractmethod
    def post(
        self,
        stream: str,
        make: Callable[[], Sequence[Draft]],
        *,
        failed: Callable[[BaseException], None],
        expected_pos: int | None = None,
        epoch: int | None = None,
        light: bool = False,
    ) -> None:
        """Hand records in and wait for nothing: they are made, checked and appended in a moment.

        `light`: they are made in no time worth mentioning, and may be made wherever there is some.

        They keep their place among all that this process hands in, so an `append` that returned later proves
        them too. If they are refused, or can't be written, `failed` is called, from any thread.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Return once everything handed in so far is on disk."""

    @abstractmethod
    async def claim(self, stream: str, owner: str, *, ttl_ms: int) -> Lease:
        """Take the stream with a new epoch; raises `LeaseHeld` while another owner's lease is live.

        Claiming again as the same owner also makes a new epoch: the older self is fenced off.
        """

    @abstractmethod
    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        """Make the lease last `ttl_ms` from now; raises `StaleEpoch` when somebody else took the stream."""

    async def renew_all(self, leases: Sequence[Lease], *, ttl_ms: int) -> list[Lease | None]:
        """Make many leases last; `None` for each whose stream somebody else took."""
        found: list[Lease | None] = []
        for lease in leases:
            try:
                found.append(await self.renew(lease, ttl_ms=ttl_ms))
            except StaleEpoch:
                found.append(None)
        return found

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Give the stream back; a lease that was lost meanwhile is left alone."""

    @abstractmethod
    async def erase(
        self,
        digest: str,
        *,
        reason: str,
        stream: str = CONTENT_STREAM,
        upto: int | None = None,
    ) -> bool:
        """Erase a body and record that; the chain still verifies. False: there is nothing to erase.

        With `upto`, it stays if a record after that seq refers to it: somebody has taken it since you looked.
        """

    @abstractmethod
    async def let_go(self, stream: str, digests: Collection[str], *, upto: int) -> None:
        """Forget that a session, which is over, held these bodies up to seq `upto`.

        Only what ends with a session is forgotten. It is not on record: that the session is over says the same.
        """

    @abstractmethod
    async def rebuild(self) -> int:
        """Fold every record into fresh projections, replace the old ones, return the number of records."""

    # -- reading --------------------------------------------------------------------------------------

    @abstractmethod
    async def head(self, stream: str) -> Head:
        """Where the stream stands now."""

    @abstractmethod
    async def last_seq(self) -> int:
        """The newest record's seq; 0 in an empty journal."""

    @abstractmethod
    async def page(self, stream: str | None, after: int, limit: int) -> list[Stored]:
        """At most `limit` stored records with `pos` (or, without a stream, `seq`) greater than `after`."""

    @abstractmethod
    async def heads(self) -> list[Head]:
        """Every stream."""

    @abstractmethod
    async def content(
        self,
        ref: ContentRef | str,
        *,
        allowed: Collection[Privacy] = READABLE,
        max_bytes: int | None = None,
    ) -> bytes:
        """A body, by reference or bare digest.

        Checked in this order: the privacy class is among `allowed` (a bare digest carries none and is the
        trusted host's business), it is there, it was not erased, it matches its digest, it fits.
        """

    async def contents(self, digests: Collection[str]) -> dict[str, bytes]:
        """Many bodies at once, by digest, for the trusted host; those erased or never stored are left out."""
        found: dict[str, bytes] = {}
        for name in digests:
            try:
                found[name] = await self.content(name)
            except HoldfastError as why:
                if why.code not in ("NOT_FOUND", "CONTENT_ERASED"):
                    raise
        return found

    @abstractmethod
    async def holdings(
        self, digests: Collection[str] | None = None, *, most: int | None = None
    ) -> list[Holding]:
        """Every reference to a body that is still there; with `digests`, to one of these.

        With both, no more than `most` to each.
        """

    @abstractmethod
    async def row(self, projection: str, key: str) -> dict[str, Json] | None:
        """One row of a projection."""

    @abstractmethod
    async def rows(
        self,
        projection: str,
        *,
        tag: str | None = None,
        after: str = "",
        limit: int = 1000,
        newest: bool = False,
    ) -> list[Row]:
        """Rows in key order, after a key; with `tag`, only those; with `newest`, from the last key down."""

    @abstractmethod
    async def wait(self, after: int) -> None:
        """Return once a record with a greater seq may be there; may return early, never too late."""

    @abstractmethod
    async def backup(self, path: str) -> None:
        """Write a consistent copy of the whole journal while it is in use."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was handed in, sync, and let go."""

    # -- what follows ---------------------------------------------------------------------------------

    def read(
        self, stream: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncGenerator[Record]:
        """The stream's records with `pos` greater than `after`, in order, up to now."""
        return self._scan(stream, after, limit)

    def read_all(self, *, after: int = 0, limit: int | None = None) -> AsyncGenerator[Record]:
        """All records with `seq` greater than `after`, in order, up to now."""
        return self._scan(None, after, limit)

    async def subscribe(
        self, *, after: int | None = None, max_behind: int | None = None
    ) -> AsyncGenerator[Record | Gap]:
        """Every record after seq `after`, as it comes, exactly once, in order.

        Without `after`, those that come once the first is waited for.

        A subscriber more than `max_behind` records late gets a `Gap`, then only those of the gap that end
        something, then goes on live: it can read the rest with `read_all(after=gap.after)`.
        """
        cursor = await self.last_seq() if after is None else after
        while True:
            last = await self.last_seq()
            if last <= cursor:
                await self.wait(cursor)
                continue
            if max_behind is not None and last - cursor > max_behind:
                upto = last - max_behind
                ends = [
                    r async for r in self._scan(None, cursor, upto - cursor) if r.kind in TERMINAL
                ]
                yield Gap(after=cursor, upto=upto, skipped=upto - cursor - len(ends))
                for record in ends:
                    yield record
                cursor = upto
            for stored in await self.page(None, cursor, PAGE):
                yield decode(stored)
                cursor = stored.seq

    async def verify(self) -> Report:
        """Prove that nothing was changed, removed or reordered; the report names the first bad record."""
        check = ChainCheck(await self._ends())
        after, size = 0, PAGE
        while True:
            try:
                page = await self.page(None, after, size)
            except JournalError as why:
                if why.code not in ("JOURNAL_DAMAGED", "JOURNAL_IO"):
                    raise
                if size == 1:
                    check.report.bad = Bad(after + 1, "", 0, f"it can't be read: {why.message}")
                    return check.report
                size = 1  # one of these can't be read: find out which
                continue
            if not page:
                break
            for stored in page:
                if check.add(stored):
                    return check.report
            report = check.report
            report.bad_content = report.bad_content or await self._missing(check.named)
            check.named.clear()
            after = page[-1].seq
        check.finish(await self._ends())
        return check.report

    async def _missing(self, digests: Collection[str]) -> str | None:
        """The first of these bodies that is not there and never was erased; a store that can lose one looks."""
        return None

    async def _ends(self) -> dict[str, tuple[int, str]]:
        return {head.stream: (head.pos, head.hash) for head in await self.heads()}

    async def _scan(
        self, stream: str | None, after: int, limit: int | None
    ) -> AsyncGenerator[Record]:
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = await self.page(stream, after, size)
            for stored in page:
                yield decode(stored)
            if len(page) < size:
                return
            after = page[-1].pos if stream is not None else page[-1].seq
            left = None if left is None else left - len(page)
