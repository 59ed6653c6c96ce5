"""The journal as many watchers follow it: each record is read and written out once, however many want it.

A watcher is a number: the seq of the last record it had. Records never change and have no gaps, so they are kept in
pages of fixed places, the ones used last; a watcher that is far behind reads older pages at its own pace and disturbs
nobody. Nothing is queued for a watcher, so a slow one costs no memory.

One of those that wait looks for new records on behalf of all. When it leaves, the next one does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import anyio

from holdfast.contracts import Event, Record
from holdfast.errors import CallerError
from holdfast.journal import Journal
from holdfast.journal.belonging import session_of
from holdfast.journal.chain import Stored, decode
from holdfast.server.rpc import encoded
from holdfast.server.sight import readable, without_secrets

PAGE = 256
"""Records of a page."""

KEPT_BYTES = 1 << 20
"""Bytes of stored records in the pages that are kept, which take about twice as many here; the newest page is kept
whatever its size. Those who follow are at the end, and who is behind reads a page once."""


class TailClosed(Exception):
    """Nothing more will come: the server stops."""


async def start_of(journal: Journal, after: int | None) -> int:
    """The seq after which a watcher begins: now, unless it says. Raises `INVALID_ARGUMENT` for one that is to come."""
    last = await journal.last_seq()
    if after is not None and after > last:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"There is no record {after}; the newest is {last}.",
            hint="This is another journal, or an older copy of it: start without an id.",
        )
    return last if after is None else after


class Frame:
    """One record, as watchers get it.

    Thousands of these are kept, and a record as an object is ten times as large as its bytes: those that are sent and
    those that are stored are all it takes.
    """

    __slots__ = ("_full", "_plain", "_stored", "family", "kind", "run_id", "seq", "session_id")

    def __init__(self, stored: Stored, record: Record, session_id: str | None) -> None:
        event = Event.of(record)
        self.seq = record.seq
        self.kind = event.kind
        self.family = event.family
        self.run_id = event.run_id
        self.session_id = session_id
        """The session it is about."""
        self._stored = stored
        self._plain = self._written(encoded(event))
        self._full: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the stored record."""
        return len(self._stored.body)

    def told(self, *, payload: bool) -> bytes:
        """The record as a server-sent event; with what it says, where that may be shown."""
        if not payload:
            return self._plain
        if self._full is None:
            self._full = self._said()
        return self._full

    def _said(self) -> bytes:
        record = decode(self._stored)
        if not readable(record):
            return self._plain
        said = {**Event.of(record).model_dump(mode="json"), "payload": without_secrets(record)}
        return self._written(encoded(said))

    def _written(self, data: bytes) -> bytes:
        return b"id: %d\ndata: %s\n\n" % (self.seq, data)


class Tail:
    """What the watchers of one journal share."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pages: OrderedDict[int, list[Frame]] = OrderedDict()
        self._bytes = 0
        self._reading = anyio.Lock()
        self._seen = 0
        self._waiting: dict[anyio.Event, None] = {}
        self._looking: anyio.CancelScope | None = None
        self._closed = False

    @property
    def seen(self) -> int:
        """The newest seq that anybody here knows of."""
        return self._seen

    async def after(self, seq: int) -> Sequence[Frame]:
        """Records with a greater seq, in order: at least one, none left out. Waits for it; raises `TailClosed`."""
        self._seen = max(self._seen, seq)  # who had it knows that it is there
        while not self._closed:
            page = await self._page(seq // PAGE)
            if page and page[-1].seq > seq:
                return [one for one in page[seq % PAGE :] if one.seq > seq]
            await self._wait(seq)
        raise TailClosed

    def close(self) -> None:
        """Let every watcher go."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        self._wake(len(self._waiting))

    async def _wait(self, seq: int) -> None:
        """Return once there may be a record with a greater seq."""
        if self._seen > seq or self._closed:
            return
        if self._looking is None:
            await self._look(seq)
            return
        woken = anyio.Event()
        self._waiting[woken] = None
        try:
            await woken.wait()
        finally:
            self._waiting.pop(woken, None)
            self._pass_on()  # it was to look, perhaps, and may be on its way out

    async def _look(self, seq: int) -> None:
        """Look for new records on behalf of all."""
        before, self._looking = self._seen, anyio.CancelScope()
        try:
            with self._looking:
                await self._journal.wait(seq)
                self._seen = max(self._seen, await self._journal.last_seq())
        finally:
            # Also when this watcher was told to go, or failed: then the next one looks.
            self._looking = None
            if self._seen > before:
                self._wake(len(self._waiting))
            self._pass_on()

    def _pass_on(self) -> None:
        if self._looking is None:
            self._wake(1)

    def _wake(self, count: int) -> None:
        for woken in list(self._waiting)[:count]:
            woken.set()
            del self._waiting[woken]

    async def _page(self, number: int) -> list[Frame]:
        """What is on record of a page; the page is kept, and grows as long as it is not full."""
        page = self._kept(number)
        if page is not None:
            return page
        async with self._reading:
            page = self._kept(number)  # somebody has read it meanwhile
            if page is not None:
                return page
            page = self._pages.get(number, [])
            start = page[-1].seq if page else number * PAGE
            found = await self._journal.page(None, start, (number + 1) * PAGE - start)
            grown = [await self._frame(stored) for stored in found]
            self._keep(number, [*page, *grown], sum(one.size for one in grown))
            return self._pages[number]

    def _kept(self, number: int) -> list[Frame] | None:
        """A page that nothing is missing from, as far as anybody knows."""
        page = self._pages.get(number)
        if not page or (len(page) < PAGE and page[-1].seq < self._seen):
            return None
        self._pages.move_to_end(number)
        return page

    async def _frame(self, stored: Stored) -> Frame:
        record = decode(stored)
        return Frame(stored, record, await session_of(self._journal, record))

    def _keep(self, number: int, page: list[Frame], more: int) -> None:
        self._pages[number] = page
        self._pages.move_to_end(number)
        self._bytes += more
        if page:
            self._seen = max(self._seen, page[-1].seq)
        while self._bytes > KEPT_BYTES and len(self._pages) > 1:
            _, oldest = self._pages.popitem(last=False)
            self._bytes -= sum(one.size for one in oldest)
