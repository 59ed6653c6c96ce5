"""The journal in memory: the same rules, nothing kept. For tests, dry runs and throw-away sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import deepcopy
from itertools import islice
from typing import TypeVar

from holdfast.contracts import ContentRef, Draft, Json, Privacy, check_id
from holdfast.errors import CallerError, HoldfastError
from holdfast.journal._clock import now_ms
from holdfast.journal._request import closed, report
from holdfast.journal._stage import (
    Append,
    Cell,
    Key,
    Stage,
    check_batch,
    check_claim,
    check_ttl,
    erasure,
    make_batch,
    refuse_persistent,
    taken_since,
)
from holdfast.journal._wake import Wakeups
from holdfast.journal.chain import Report, Stored
from holdfast.journal.content import RAW, Packed, check_access, unpack
from holdfast.journal.log import (
    CONTENT_STREAM,
    READABLE,
    Appended,
    Found,
    Head,
    Holding,
    Journal,
    Lease,
    Row,
)
from holdfast.journal.projections import SCOPED, Rebuilt

T = TypeVar("T")


_Posted = tuple[
    str,
    Callable[[], Sequence[Draft]],
    int | None,
    int | None,
    Callable[[BaseException], None],
]


class MemoryJournal(Journal):
    """A journal that dies with its process. Nothing in it awaits, so nothing can interleave."""

    def __init__(self, *, clock: Callable[[], int] = now_ms) -> None:
        self.found = Found(True, 0, 0, False, None)
        self._clock = clock
        self._records: list[Stored] = []
        self._streams: dict[str, list[Stored]] = {}
        self._heads: dict[str, Head] = {}
        self._cells: dict[tuple[str, str], Cell] = {}
        self._keys: dict[str, set[str]] = {}
        self._bodies: dict[str, Packed] = {}
        self._holdings: dict[str, dict[tuple[str, str | None, str], Holding]] = {}
        """By digest, and then by what it is held for."""
        self._posted: deque[_Posted] = deque()
        self._wakeups = Wakeups()
        self._closed = False

    # -- what a stage looks up ------------------------------------------------------------------------

    def find_head(self, stream: str) -> Head | None:
        return self._heads.get(stream)

    def find_row(self, at: Key) -> Cell | None:
        return self._cells.get(at)

    def has_body(self, digest: str) -> bool:
        return digest in self._bodies

    # -- writing --------------------------------------------------------------------------------------

    async def append(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended:
        return self._write(Append(check_id(stream), check_batch(records), expected_pos, epoch))

    def append_now(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended:
        return self._write(Append(check_id(stream), check_batch(records), expected_pos, epoch))

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
        if self._closed:
            raise closed()
        check_id(stream)
        if not self._posted:
            asyncio.get_running_loop().call_soon(self._take_in)
        self._posted.append((stream, make, expected_pos, epoch, failed))

    def _take_in(self) -> None:
        """Append what was posted. Everything that reads or writes does so first."""
        while self._posted:
            stream, make, expected_pos, epoch, failed = self._posted.popleft()
            try:
                self._stage(Append(stream, make_batch(make), expected_pos, epoch))
            except HoldfastError as failure:
                report(failed, failure)

    async def flush(self) -> None:
        self._check_open()

    async def claim(self, stream: str, owner: str, *, ttl_ms: int) -> Lease:
        check_claim(stream, owner, ttl_ms)
        return self._write(lambda stage: stage.claim(stream, owner, ttl_ms))

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        check_ttl(ttl_ms)
        return self._write(lambda stage: stage.renew(lease, ttl_ms))

    async def renew_all(self, leases: Sequence[Lease], *, ttl_ms: int) -> list[Lease | None]:
        check_ttl(ttl_ms)
        return self._write(lambda stage: stage.renew_all(leases, ttl_ms))

    async def release(self, lease: Lease) -> None:
        self._write(lambda stage: stage.release(lease))

    async def erase(
        self,
        digest: str,
        *,
        reason: str,
        stream: str = CONTENT_STREAM,
        upto: int | None = None,
    ) -> bool:
        self._check_open()
        request = erasure(digest, stream, reason)
        packed = self._bodies.get(digest)
        held = [*self._holdings.get(digest, {}).values()]
        seqs = (one.seq for one in held)
        if packed is None or packed.codec is None or taken_since(upto, seqs):
            return False
        refuse_persistent(digest, (one.retention for one in held))
        self._write(request)
        self._bodies[digest] = Packed(packed.size, None, None)
        self._holdings.pop(digest, None)
        return True

    async def let_go(self, stream: str, digests: Collection[str], *, upto: int) -> None:
        self._check_open()
        for name in digests:
            held = self._holdings.get(name, {})
            for key, one in [*held.items()]:
                if one.stream == stream and one.seq <= upto and one.retention in SCOPED:
                    del held[key]

    async def rebuild(self) -> int:
        self._check_open()
        rows = Rebuilt()
        for stored in self._records:
            rows.add(stored)
        self._cells = rows.cells
        self._keys.clear()
        self._know(self._cells)
        return len(self._records)

    def _write(self, work: Callable[[Stage], T]) -> T:
        self._check_open()
        return self._stage(work)

    def _stage(self, work: Callable[[Stage], T]) -> T:
        stage = Stage(self, len(self._records), self._clock())
        result = work(stage)
        for stored in stage.records:
            self._streams.setdefault(stored.stream, []).append(stored)
        self._records += stage.records
        self._heads.update(stage.heads)
        self._cells.update(stage.rows)
        self._know(stage.rows)
        for name, body in stage.bodies.items():
            known = self._bodies.get(name)
            if known is None or known.codec is None:
                self._bodies[name] = Packed(len(body.data), RAW, body.data)
        for one in stage.holdings:
            held = self._holdings.setdefault(one.digest, {})
            held[one.stream, one.run_id, one.retention] = one
        self._wakeups.notify()
        return result

    def _know(self, cells: Iterable[tuple[str, str]]) -> None:
        for projection, key in cells:
            self._keys.setdefault(projection, set()).add(key)

    # -- reading --------------------------------------------------------------------------------------

    async def head(self, stream: str) -> Head:
        self._check_open()
        return self._heads.get(stream) or Head(stream)

    async def last_seq(self) -> int:
        self._check_open()
        return len(self._records)

    async def page(self, stream: str | None, after: int, limit: int) -> list[Stored]:
        self._check_open()
        records = self._records if stream is None else self._streams.get(stream, [])
        after = max(after, 0)
        return records[after : after + limit]

    async def heads(self) -> list[Head]:
        self._check_open()
        return list(self._heads.values())

    async def content(
        self,
        ref: ContentRef | str,
        *,
        allowed: Collection[Privacy] = READABLE,
        max_bytes: int | None = None,
    ) -> bytes:
        self._check_open()
        name = check_access(ref, allowed)
        return unpack(name, self._bodies.get(name), max_bytes)

    async def holdings(
        self, digests: Collection[str] | None = None, *, most: int | None = None
    ) -> list[Holding]:
        self._check_open()
        wanted = self._holdings if digests is None else dict.fromkeys(digests)
        limit = None if digests is None else most
        return [
            one
            for name in wanted
            if (body := self._bodies.get(name)) is not None and body.codec is not None
            for one in islice(self._holdings[name].values(), limit)
        ]

    async def row(self, projection: str, key: str) -> dict[str, Json] | None:
        self._check_open()
        cell = self._cells.get((projection, key))
        return None if cell is None else deepcopy(cell[1])

    async def rows(
        self,
        projection: str,
        *,
        tag: str | None = None,
        after: str = "",
        limit: int = 1000,
        newest: bool = False,
    ) -> list[Row]:
        self._check_open()
        found: list[Row] = []
        for key in sorted(self._keys.get(projection, ()), reverse=newest):
            if after and (key >= after if newest else key <= after):
                continue
            found_tag, value = self._cells[projection, key]
            if tag in (None, found_tag):
                found.append(Row(key, found_tag, deepcopy(value)))
            if len(found) >= limit:
                break
        return found

    async def verify(self) -> Report:
        report = await super().verify()
        report.erased = sum(packed.codec is None for packed in self._bodies.values())
        return report

    async def wait(self, after: int) -> None:
        signal = self._wakeups.signal()
        self._check_open()
        if len(self._records) <= after:
            await signal.wait()
        self._check_open()

    async def backup(self, path: str) -> None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A journal in memory can't be backed up.",
            hint="Open one with a `sqlite:///…` url, or export it.",
        )

    async def close(self) -> None:
        self._take_in()
        self._closed = True
        self._wakeups.notify()

    def _check_open(self) -> None:
        if self._closed:
            raise closed()
        self._take_in()
