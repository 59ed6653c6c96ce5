"""A journal that fails when told to: for tests of what stands on the journal.

`FaultyJournal(journal, fail_at=3)` passes everything through to `journal` and fails the third append. With
`after=False` nothing of that append took effect; with `after=True` all of it did and only the caller does not
learn it, which is what a process that dies between commit and answer looks like to its successor. A test that
runs its subject once for every `fail_at` and both values of `after` has been killed at every journal write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.contracts import ContentRef, Draft, Json, Privacy
from holdfast.errors import JournalError
from holdfast.journal import Appended, Head, Holding, Journal, Lease, Report, Row, Stored
from holdfast.journal.log import CONTENT_STREAM, READABLE


class Died(BaseException):
    """The process "died" at this append. No `Exception`, so that no handler survives it by accident."""


class FaultyJournal(Journal):
    """Another journal, whose `fail_at`-th append fails."""

    def __init__(
        self,
        journal: Journal,
        *,
        fail_at: int,
        after: bool = False,
        failure: BaseException | None = None,
        dead: bool = False,
    ) -> None:
        """`failure` is what is raised (default `Died`); with `dead`, every later append fails as well."""
        self.inner = journal
        """The journal behind it: what a successor would open."""
        self.found = journal.found
        self.appends = 0
        """Appends asked for so far."""
        self._fail_at = fail_at
        self._after = after
        self._failure = failure or Died(f"at append {fail_at}, {'after' if after else 'before'} it")
        self._dead = dead

    async def append(
        self,
        stream: str,
        records: Sequence[Draft],
        *,
        expected_pos: int | None = None,
        epoch: int | None = None,
        durable: bool = True,
    ) -> Appended:
        self.appends += 1
        failing = self.appends == self._fail_at
        if (failing and not self._after) or (self._dead and self.appends > self._fail_at):
            raise self._failure
        appended = await self.inner.append(
            stream, records, expected_pos=expected_pos, epoch=epoch, durable=durable
        )
        if failing:
            raise self._failure
        return appended

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
        self.appends += 1
        failing = self.appends == self._fail_at
        if (failing and not self._after) or (self._dead and self.appends > self._fail_at):
            raise self._failure
        self.inner.post(
            stream, make, failed=failed, expected_pos=expected_pos, epoch=epoch, light=light
        )
        if failing:
            raise self._failure

    async def flush(self) -> None:
        await self.inner.flush()

    async def claim(self, stream: str, owner: str, *, ttl_ms: int) -> Lease:
        return await self.inner.claim(stream, owner, ttl_ms=ttl_ms)

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        return await self.inner.renew(lease, ttl_ms=ttl_ms)

    async def renew_all(self, leases: Sequence[Lease], *, ttl_ms: int) -> list[Lease | None]:
        return await self.inner.renew_all(leases, ttl_ms=ttl_ms)

    async def release(self, lease: Lease) -> None:
        await self.inner.release(lease)

    async def erase(
        self,
        digest: str,
        *,
        reason: str,
        stream: str = CONTENT_STREAM,
        upto: int | None = None,
    ) -> bool:
        return await self.inner.erase(digest, reason=reason, stream=stream, upto=upto)

    async def let_go(self, stream: str, digests: Collection[str], *, upto: int) -> None:
        await self.inner.let_go(stream, digests, upto=upto)

    async def rebuild(self) -> int:
        return await self.inner.rebuild()

    async def head(self, stream: str) -> Head:
        return await self.inner.head(stream)

    async def last_seq(self) -> int:
        return await self.inner.last_seq()

    async def page(self, stream: str | None, after: int, limit: int) -> list[Stored]:
        return await self.inner.page(stream, after, limit)

    async def heads(self) -> list[Head]:
        return await self.inner.heads()

    async def content(
        self,
        ref: ContentRef | str,
        *,
        allowed: Collection[Privacy] = READABLE,
        max_bytes: int | None = None,
    ) -> bytes:
        return await self.inner.content(ref, allowed=allowed, max_bytes=max_bytes)

    async def contents(self, digests: Collection[str]) -> dict[str, bytes]:
        return await self.inner.contents(digests)

    async def holdings(
        self, digests: Collection[str] | None = None, *, most: int | None = None
    ) -> list[Holding]:
        return await self.inner.holdings(digests, most=most)

    async def row(self, projection: str, key: str) -> dict[str, Json] | None:
        return await self.inner.row(projection, key)

    async def rows(
        self,
        projection: str,
        *,
        tag: str | None = None,
        after: str = "",
        limit: int = 1000,
        newest: bool = False,
    ) -> list[Row]:
        return await self.inner.rows(projection, tag=tag, after=after, limit=limit, newest=newest)

    async def verify(self) -> Report:
        return await self.inner.verify()

    async def wait(self, after: int) -> None:
        await self.inner.wait(after)

    async def backup(self, path: str) -> None:
        await self.inner.backup(path)

    async def close(self) -> None:
        await self.inner.close()


def full() -> JournalError:
    """The failure of a disk without room, to hand in as `failure`."""
    return JournalError("JOURNAL_FULL", "There is no room left for the journal.")
