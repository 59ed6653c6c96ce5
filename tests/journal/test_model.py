"""Random lives of sessions, legal and illegal, on both stores side by side: they agree on everything."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.contracts import Body, ContentRef, Decision, Draft, EffectStatus, Retention, digest
from holdfast.errors import HoldfastError
from holdfast.journal import Journal, Lease, MemoryJournal, sweep
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FakeClock
from holdfast.testing import _drafts as draft
from holdfast.testing._conformance._base import everything
from holdfast.testing._conformance.projecting import MODELS

# Few names, so that records meet.
streams = st.sampled_from(["s1", "s2", "inbox"])
runs = st.sampled_from(["r1", "r2", "r3"])
maybe_runs = st.none() | runs
effects = st.sampled_from(["e1", "e2", "e3"])
approvals = st.sampled_from(["a1", "a2"])
numbers = st.integers(0, 5)
LONG = b"two " * 1000
data = st.sampled_from([b"", b"one", LONG])
bodies = st.builds(Body.of, data, retention=st.sampled_from(Retention))
refs = st.builds(
    lambda body, retention: ContentRef(digest=digest(body), size=len(body), retention=retention),
    data,
    st.sampled_from(Retention),
)

typed = st.one_of(
    st.just(draft.created()),
    st.just(draft.created()),
    st.just(draft.state()),
    st.just(draft.destroyed()),
    st.builds(draft.started, runs),
    st.builds(draft.started, maybe_runs, bodies=st.lists(bodies, max_size=1)),
    st.builds(
        draft.completed, maybe_runs, duration_ms=numbers, calls=numbers, at_once=st.booleans()
    ),
    st.builds(draft.failed, runs, cancelled=st.booleans()),
    st.builds(draft.intent, effects, maybe_runs),
    st.builds(draft.result, effects, maybe_runs, st.sampled_from(EffectStatus)),
    st.builds(draft.asked, approvals, effects, maybe_runs),
    st.builds(draft.answered, approvals, st.sampled_from(Decision)),
    st.builds(draft.used, maybe_runs, tokens=numbers, cost=numbers),
    st.builds(draft.note, numbers, bodies=st.lists(bodies, max_size=2), run_id=maybe_runs),
    st.builds(lambda ref: Draft(kind="test.ref", content=(ref,)), refs),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


def mangle(original: Draft, changes: dict[int, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields of a draft of the same kind whose payload somebody got wrong."""
    payload = {**original.payload, **extra}
    for number, value in changes.items():
        if payload:
            name = sorted(payload)[number % len(payload)]
            if value == "absent":
                del payload[name]
            else:
                payload[name] = value
    return {"kind": original.kind, "payload": payload, "run_id": original.run_id}


mangled = st.builds(
    mangle,
    typed,
    st.dictionaries(st.integers(0, 9), st.just("absent") | json_values, max_size=2),
    st.dictionaries(st.sampled_from(["error", "start", "x"]), json_values, max_size=1),
)


class BothStores(RuleBasedStateMachine):
    """The same request to a journal in memory and to one in a file must have the same outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.memory = MemoryJournal(clock=self.clock)
        self.sqlite = self.open()
        self.leases: list[Lease] = []

    def open(self) -> SqliteJournal:
        return SqliteJournal.open(self.folder / "journal.db", clock=self.clock)

    def both(self, ask: Callable[[Journal], Awaitable[object]]) -> object:
        """Ask both; the outcome, which must be the same, refusals and their words included."""

        async def outcome(journal: Journal) -> object:
            try:
                return await ask(journal)
            except HoldfastError as refusal:
                return type(refusal), refusal.to_json()

        memory = self.runner.run(outcome(self.memory))
        sqlite = self.runner.run(outcome(self.sqlite))
        assert memory == sqlite
        return memory

    @initialize(begun=st.booleans())
    def sessions_are_open(self, begun: bool) -> None:
        for stream, run in (("s1", "r1"), ("s2", "r2")):
            batch = [draft.created(), *([draft.started(run)] if begun else [])]
            self.both(lambda journal, s=stream, b=batch: journal.append(s, b))

    @rule(stream=streams, batch=st.lists(typed, min_size=1, max_size=4), durable=st.booleans())
    def append(self, stream: str, batch: Sequence[Draft], durable: bool) -> None:
        self.both(lambda journal: journal.append(stream, batch, durable=durable))

    @rule(stream=streams, one=typed, pos=st.none() | numbers, epoch=st.none() | numbers)
    def append_fenced(self, stream: str, one: Draft, pos: int | None, epoch: int | None) -> None:
        self.both(lambda journal: journal.append(stream, [one], expected_pos=pos, epoch=epoch))

    @rule(stream=streams, batch=st.lists(mangled, min_size=1, max_size=2))
    def append_mangled(self, stream: str, batch: list[dict[str, Any]]) -> None:
        async def append(journal: Journal) -> object:
            drafts = [Draft.model_validate(fields) for fields in batch]
            return await journal.append(stream, drafts)

        self.both(append)

    @rule(stream=streams, owner=st.sampled_from(["me", "you"]))
    def claim(self, stream: str, owner: str) -> None:
        outcome = self.both(lambda journal: journal.claim(stream, owner, ttl_ms=1000))
        if isinstance(outcome, Lease):
            self.leases.append(outcome)

    @rule(at=numbers, release=st.booleans())
    def renew_or_release(self, at: int, release: bool) -> None:
        if self.leases:
            lease = self.leases[-1 - at % len(self.leases)]
            if release:
                self.both(lambda journal: journal.release(lease))
            else:
                self.both(lambda journal: journal.renew(lease, ttl_ms=1000))

    @rule(ms=st.sampled_from([1, 600, -5]))
    def time_goes_by(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(body=data, stream=streams)
    def erase(self, body: bytes, stream: str) -> None:
        self.both(lambda journal: journal.erase(digest(body), stream=stream, reason="test"))

    @rule(ref=refs, limit=st.none() | st.integers(0, 4000))
    def read_content(self, ref: ContentRef, limit: int | None) -> None:
        self.both(lambda journal: journal.content(ref, max_bytes=limit))

    @rule()
    def sweep(self) -> None:
        async def swept(journal: Journal) -> object:
            return sorted(await sweep(journal))

        # The order in which bodies go is the store's own, and with it the order of the records.
        if self.both(held) == []:
            self.both(swept)

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.sqlite.close())
        self.sqlite = self.open()

    @rule(stream=streams, after=st.integers(-2, 9), limit=st.none() | numbers)
    def read(self, stream: str, after: int, limit: int | None) -> None:
        async def records(journal: Journal) -> object:
            return [record async for record in journal.read(stream, after=after, limit=limit)]

        self.both(records)

    @invariant()
    def they_look_the_same(self) -> None:
        self.both(everything)

    def teardown(self) -> None:
        try:
            self.both(lambda journal: journal.verify())
            self.rows_fit_their_views()
            self.rebuilding_gives_the_same_bytes()
        finally:
            self.runner.run(self.sqlite.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    def rows_fit_their_views(self) -> None:
        for projection, model in MODELS.items():
            for row in self.runner.run(self.memory.rows(projection)):
                model.model_validate(row.value, strict=False)

    def rebuilding_gives_the_same_bytes(self) -> None:
        live = self.raw_rows()
        self.both(lambda journal: journal.rebuild())
        assert self.raw_rows() == live
        self.both(everything)

    def raw_rows(self) -> Sequence[tuple[object, ...]]:
        db = apsw.Connection(str(self.sqlite.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            both = "select projection, key from live intersect select projection, key from rows"
            assert db.execute(both).fetchall() == []
            sql = "select cast(projection as blob), cast(key as blob), cast(tag as blob),"
            parts = [f"{sql} cast(value as blob), '{one}' from {one}" for one in ("live", "rows")]
            return db.execute(f"{' union all '.join(parts)} order by 1, 2").fetchall()
        finally:
            db.close()


async def held(journal: Journal) -> object:
    """The holdings, unless a single body is all there is."""
    return sorted({holding.digest for holding in await journal.holdings()})[1:]


TestBothStores = BothStores.TestCase
TestBothStores.settings = settings(max_examples=40, stateful_step_count=25)
