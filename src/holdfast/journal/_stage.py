"""One write transaction, worked out in memory before anything is written.

A store opens a transaction, makes a `Stage` over what it holds, lets every waiting request run against it, and
writes what the stage has collected. Fencing, the chain, legality and the projections are therefore decided in
one place for all stores, and a request that is refused leaves no trace in the stage, whatever the others of
its group do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from holdfast.contracts import Body, Draft, Retention, check_id, digest, parse
from holdfast.contracts.canonical import json_string
from holdfast.contracts.payload import ContentErased
from holdfast.errors import (
    CallerError,
    HoldfastError,
    InternalError,
    LeaseHeld,
    StaleEpoch,
    StalePosition,
)
from holdfast.journal.chain import Entry, Stored, encode
from holdfast.journal.content import check_body
from holdfast.journal.log import Appended, Head, Holding, Lease
from holdfast.journal.projections import FOLDS, Fact, Value, illegal

Key = tuple[str, str]
Cell = tuple[str | None, Value]
"""A projection row's tag and value."""


class Holder(Protocol):
    """What a store must be able to look up inside its write transaction."""

    def find_head(self, stream: str) -> Head | None:
        """The stream's head, if anybody ever wrote to or claimed it."""
        ...

    def find_row(self, at: Key) -> Cell | None:
        """A projection row."""
        ...

    def has_body(self, digest: str) -> bool:
        """Whether the content store has (or had) this body."""
        ...


class Append(NamedTuple):
    """A request to append; to call it is to stage it."""

    stream: str
    entries: Sequence[Entry]
    expected_pos: int | None
    epoch: int | None

    def __call__(self, stage: Stage) -> Appended:
        return stage.append(self)


class Stage:
    """What a transaction is going to write."""

    def __init__(self, holder: Holder, last_seq: int, now: int) -> None:
        self.seq = last_seq
        self.now = now
        self.records: list[Stored] = []
        self.entries: list[Entry] = []
        self.heads: dict[str, Head] = {}
        self.rows: dict[Key, Cell] = {}
        self.bodies: dict[str, Body] = {}
        self.holdings: list[Holding] = []
        self._holder = holder

    def head(self, stream: str) -> Head:
        """The stream's head as of this transaction."""
        return self.heads.get(stream) or self._holder.find_head(stream) or Head(stream)

    def append(self, request: Append) -> Appended:
        """Stage the records, or raise the refusal and leave the stage as it was."""
        stream, entries, expected_pos, epoch = request
        head = self.head(stream)
        if epoch is not None or expected_pos is not None or head.owner is not None:
            self._fence(head, expected_pos, epoch)
        rows: _Overlay | None = None  # most records change no row: only made when one does
        records: list[Stored] = []
        pos, last, seq, now = head.pos, head.hash, self.seq, self.now
        name = json_string(stream)
        holds = False
        for entry in entries:
            pos += 1
            seq += 1
            body = entry.body(pos, last, seq, name, now)
            last = digest(body)
            records.append(Stored(seq, stream, pos, body, last))
            if entry.held:
                holds = True
            fold = FOLDS.get(entry.kind)
            if fold is not None:
                rows = rows or _Overlay(self.rows, self._holder)
                run_id, effect_id = entry.run_id, entry.effect_id
                fact = Fact(seq, stream, pos, now, entry.kind, run_id, effect_id, entry.payload)
                try:
                    fold(rows, fact)
                except (KeyError, TypeError, AttributeError) as why:
                    # Somebody changed the payload of a draft that had been checked: that is no reason to
                    # fail those who happen to be committed together with it.
                    raise illegal(fact, f"its payload breaks its contract ({why!r})") from None
        first = self.seq + 1
        if holds:
            self._hold(entries, first, stream)
        self.records += records
        self.entries += entries
        if rows is not None:
            self.rows.update(rows.changed)
        self.seq = seq
        self.heads[stream] = Head(stream, pos, seq, last, head.epoch, head.owner, head.until)
        return Appended(stream, head.pos + 1, pos, first, seq, now, last)

    def claim(self, stream: str, owner: str, ttl_ms: int) -> Lease:
        """Stage a new epoch for `owner`."""
        head = self.head(stream)
        if head.owner not in (None, owner) and head.until > self.now:
            raise LeaseHeld(stream, head.owner or "", head.until)
        until = self.now + ttl_ms
        self.heads[stream] = head._replace(epoch=head.epoch + 1, owner=owner, until=until)
        return Lease(stream, owner, head.epoch + 1, until, head.pos)

    def renew(self, lease: Lease, ttl_ms: int) -> Lease:
        """Stage a later end of the lease."""
        head = self.head(lease.stream)
        self._fence(head, None, lease.epoch)
        until = self.now + ttl_ms
        self.heads[lease.stream] = head._replace(until=until)
        return lease._replace(until=until, pos=head.pos)

    def renew_all(self, leases: Sequence[Lease], ttl_ms: int) -> list[Lease | None]:
        """Stage a later end of each; `None` for one that was lost."""
        found: list[Lease | None] = []
        for lease in leases:
            try:
                found.append(self.renew(lease, ttl_ms))
            except StaleEpoch:
                found.append(None)
        return found

    def release(self, lease: Lease) -> None:
        """Stage the end of the lease, unless somebody else has the stream by now."""
        head = self.head(lease.stream)
        if head.epoch == lease.epoch and head.owner == lease.owner:
            self.heads[lease.stream] = head._replace(owner=None, until=0)

    def _fence(self, head: Head, expected_pos: int | None, epoch: int | None) -> None:
        live = head.owner is not None and head.until > self.now
        if epoch is None:
            if live:
                why = f"without an epoch while `{head.owner}` holds its lease"
                raise StaleEpoch(head.stream, None, head.epoch, why)
        elif epoch != head.epoch:
            raise StaleEpoch(
                head.stream, epoch, head.epoch, f"of epoch {epoch}; it is at epoch {head.epoch}"
            )
        elif head.owner is None:
            raise StaleEpoch(head.stream, epoch, head.epoch, "that gave its lease back")
        # One that ran out still holds until somebody takes the stream: its writer was late, not replaced.
        if expected_pos is not None and expected_pos != head.pos:
            raise StalePosition(head.stream, expected_pos, head.pos)

    def _hold(self, entries: Sequence[Entry], first_seq: int, stream: str) -> None:
        """Take the bodies in; a reference to a body nobody ever stored is refused."""
        bodies: dict[str, Body] = {}
        holdings: list[Holding] = []
        for seq, entry in enumerate(entries, first_seq):
            for body in entry.bodies:
                bodies[body.ref.digest] = body
            for digest_, retention in entry.held:
                if not (digest_ in bodies or digest_ in self.bodies):
                    self._must_have(digest_, entry.kind)
                holdings.append(Holding(digest_, seq, stream, entry.run_id, retention))
        self.bodies.update(bodies)
        self.holdings += holdings

    def _must_have(self, digest: str, kind: str) -> None:
        if not self._holder.has_body(digest):
            raise CallerError(
                "INVALID_RECORD",
                f"A `{kind}` record refers to content {digest} that was never stored.",
                hint="Hand the bytes in with the record, as one of its `bodies`.",
            )


class _Overlay:
    """Rows as one request sees them: its own changes, then the stage's, then the store's."""

    __slots__ = ("_find", "_staged", "changed")

    def __init__(self, staged: dict[Key, Cell], holder: Holder) -> None:
        self._staged = staged
        self._find = holder.find_row
        self.changed: dict[Key, Cell] = {}

    def get(self, projection: str, key: str) -> Value | None:
        at = (projection, key)
        cell = self.changed.get(at) or self._staged.get(at) or self._find(at)
        return None if cell is None else cell[1]

    def put(self, projection: str, key: str, value: Value, tag: str | None) -> None:
        self.changed[projection, key] = (tag, value)


def check_ttl(ttl_ms: int) -> int:
    """`ttl_ms` itself, or `INVALID_ARGUMENT`."""
    if 1 <= ttl_ms <= 86_400_000:
        return ttl_ms
    raise CallerError(
        "INVALID_ARGUMENT",
        f"A lease of {ttl_ms} ms can't be given.",
        hint="A lease lasts from 1 ms to a day.",
    )


def check_claim(stream: str, owner: str, ttl_ms: int) -> None:
    """Refuse a claim with a bad name or time."""
    check_id(stream)
    check_id(owner)
    check_ttl(ttl_ms)


def check_batch(records: Sequence[Draft]) -> list[Entry]:
    """Check and encode every draft, before any lock is taken."""
    if not records:
        raise CallerError("INVALID_ARGUMENT", "An append needs at least one record.")
    for draft in records:
        if draft.bodies:
            for body in draft.bodies:
                check_body(body.data)
    return [encode(draft) for draft in records]


def make_batch(make: Callable[[], Sequence[Draft]]) -> list[Entry]:
    """Make, check and encode drafts. Whatever goes wrong in there is refused, and touches nobody else."""
    try:
        return check_batch(make())
    except HoldfastError:
        raise
    except Exception as why:
        raise InternalError(f"Records could not be made: {why!r}.") from why


def erasure(digest: str, stream: str, reason: str) -> Append:
    """The record of an erasure."""
    draft = Draft.of(parse(ContentErased, {"digest": digest, "reason": reason}))
    return Append(check_id(stream), check_batch([draft]), None, None)


def taken_since(upto: int | None, holders: Iterable[int]) -> bool:
    """Whether a record after seq `upto` refers to a body that was to be erased."""
    return upto is not None and any(seq > upto for seq in holders)


def refuse_persistent(digest: str, retentions: Iterable[str]) -> None:
    """Refuse to erase a body that some record wants kept for ever."""
    if Retention.PERSISTENT.value in retentions:
        raise CallerError(
            "CONTENT_NOT_ALLOWED",
            f"The content {digest} is persistent and can't be erased.",
            hint="Only content of another retention class can be erased.",
        )
