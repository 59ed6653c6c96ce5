"""Bodies by digest: kept, read, erased; and what a sweep lets go."""

from __future__ import annotations

import os

import pytest

from holdfast.contracts import Body, ContentRef, Draft, Privacy, Retention, digest
from holdfast.journal import Journal, sweep
from holdfast.testing._conformance._base import Conformance, leaves_no_trace, records_of, refused
from holdfast.testing._drafts import completed, created, destroyed, failed, note, started

TEXT = b"the same line again and again\n" * 1000
SIZES = [b"", b"x", os.urandom(1024), os.urandom(1025), os.urandom(100_000), TEXT]


def kept(retention: Retention, data: bytes = b"body") -> Body:
    """A body of this retention class."""
    return Body.of(data, retention=retention)


class Contents(Conformance):
    """What `content`, `erase` and `holdings` promise."""

    async def test_bodies_of_every_size_come_back(self, journal: Journal):
        bodies = [Body.of(data, role="test", mime="text/plain") for data in SIZES]
        await journal.append("s", [note(bodies=bodies)])
        (record,) = await records_of(journal)
        assert record.content == tuple(body.ref for body in bodies)
        for body in bodies:
            assert await journal.content(body.ref) == body.data
            assert await journal.content(body.ref.digest) == body.data
        assert (await journal.verify()).ok

    async def test_many_bodies_come_back_at_once(self, journal: Journal):
        bodies = [Body.of(data) for data in SIZES] + [Body.of(b"%d" % n) for n in range(1200)]
        for start in range(0, len(bodies), 100):
            await journal.append("s", [note(bodies=bodies[start : start + 100])])
        gone, kept = digest(b"7"), {body.ref.digest: body.data for body in bodies}
        assert await journal.erase(gone, reason="test")
        asked = [*kept, "ab" * 32, "no digest", *kept]
        assert await journal.contents(asked) == {
            name: data for name, data in kept.items() if name != gone
        }
        assert await journal.contents([]) == {}

    async def test_a_body_held_again_by_the_same_run_is_held_by_the_newest_record(
        self, journal: Journal
    ):
        body = Body.of(b"body")
        for seq in range(1, 4):
            await journal.append("s", [note(bodies=[body], run_id="r")])
            assert [(h.seq, h.run_id) for h in await journal.holdings()] == [(seq, "r")]

    async def test_a_body_is_kept_once_and_held_by_every_stream_and_run(self, journal: Journal):
        body = Body.of(b"body")
        await journal.append("s", [note(bodies=[body], run_id="r"), note(bodies=[body])])
        await journal.append("t", [Draft(kind="a.b", content=(body.ref,))])
        held = sorted(await journal.holdings(), key=lambda holding: holding.seq)
        assert [(h.digest, h.seq, h.stream, h.run_id) for h in held] == [
            (body.ref.digest, 1, "s", "r"),
            (body.ref.digest, 2, "s", None),
            (body.ref.digest, 3, "t", None),
        ]

    async def test_privacy_is_enforced(self, journal: Journal):
        for privacy in Privacy:
            body = Body.of(privacy.value.encode(), privacy=privacy)
            await journal.append("s", [note(bodies=[body])])
            if privacy in (Privacy.SENSITIVE, Privacy.SECRET):
                with refused("CONTENT_NOT_ALLOWED"):
                    await journal.content(body.ref)
            else:
                assert await journal.content(body.ref) == body.data
            assert await journal.content(body.ref, allowed={privacy}) == body.data
            with refused("CONTENT_NOT_ALLOWED"):
                await journal.content(body.ref, allowed=set())
            # A bare digest carries no class: it is the trusted host's.
            assert await journal.content(body.ref.digest) == body.data

    async def test_access_is_checked_before_presence_before_size(self, journal: Journal):
        body = Body.of(b"12345", privacy=Privacy.SECRET)
        with refused("CONTENT_NOT_ALLOWED"):  # absent, but that is not for this reader to know
            await journal.content(body.ref, max_bytes=1)
        with refused("NOT_FOUND"):
            await journal.content(body.ref, allowed={Privacy.SECRET}, max_bytes=1)
        await journal.append("s", [note(bodies=[body])])
        with refused("CONTENT_NOT_ALLOWED"):
            await journal.content(body.ref, max_bytes=1)
        with refused("CONTENT_TOO_LARGE"):
            await journal.content(body.ref, allowed={Privacy.SECRET}, max_bytes=4)
        await journal.erase(body.ref.digest, stream="s", reason="test")
        with refused("CONTENT_NOT_ALLOWED"):
            await journal.content(body.ref, max_bytes=1)
        with refused("CONTENT_ERASED"):
            await journal.content(body.ref, allowed={Privacy.SECRET}, max_bytes=1)

    async def test_max_bytes_is_enforced(self, journal: Journal):
        await journal.append("s", [note(bodies=[Body.of(TEXT)])])
        assert await journal.content(digest(TEXT), max_bytes=len(TEXT)) == TEXT
        with refused("CONTENT_TOO_LARGE"):  # however little it takes on the disk
            await journal.content(digest(TEXT), max_bytes=len(TEXT) - 1)

    @pytest.mark.parametrize("name", ["ab" * 32, "AB" * 32, "ab", "", "zz" * 32, "ab " * 32])
    async def test_a_missing_body_is_not_found(self, journal: Journal, name: str):
        with refused("NOT_FOUND"):
            await journal.content(name)

    async def test_only_the_exact_digest_names_a_body(self, journal: Journal):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        name = digest(b"body")
        for other in (name.upper(), f"{name[:2]} {name[2:]}", name[:-1]):
            with refused("NOT_FOUND"):
                await journal.content(other)

    async def test_a_reference_to_nothing_is_refused(self, journal: Journal):
        ref = ContentRef(digest="ab" * 32, size=1)
        dangling = Draft(kind="a.b", content=(ref,))
        await leaves_no_trace(journal, "INVALID_RECORD", journal.append("s", [note(), dangling]))

    async def test_a_batch_may_refer_to_the_bodies_it_brings(self, journal: Journal):
        body = Body.of(b"body")
        referring = Draft(kind="a.b", content=(body.ref,))
        await journal.append("s", [note(bodies=[body]), referring])
        assert [(h.digest, h.seq) for h in await journal.holdings()] == [(body.ref.digest, 2)]
        await journal.erase(body.ref.digest, stream="s", reason="test")
        await journal.append("s", [referring])  # it was stored once: that is enough
        assert (await records_of(journal, "s"))[-1].content == (body.ref,)
        with refused("CONTENT_ERASED"):  # and does not come back
            await journal.content(body.ref)

    async def test_a_refused_batch_leaves_no_body(self, journal: Journal):
        batch = [note(bodies=[Body.of(b"body")]), destroyed()]
        await leaves_no_trace(journal, "ILLEGAL_RECORD", journal.append("s", batch))
        with refused("NOT_FOUND"):
            await journal.content(digest(b"body"))

    async def test_a_body_over_the_limit_is_refused(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("holdfast.journal.content.MAX_BODY_BYTES", 10)
        await journal.append("s", [note(bodies=[Body.of(b"1" * 10)])])
        large = note(bodies=[Body.of(b"1" * 11)])
        await leaves_no_trace(journal, "CONTENT_TOO_LARGE", journal.append("s", [note(), large]))

    async def test_erasing_leaves_the_digest_and_says_so(self, journal: Journal):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        name = digest(b"body")
        assert await journal.erase(name, stream="t", reason="asked_to")
        with refused("CONTENT_ERASED"):
            await journal.content(name)
        (record,) = await records_of(journal, "t")
        assert record.kind == "content_erased"
        assert record.payload == {"digest": name, "reason": "asked_to"}
        assert await journal.holdings() == []
        report = await journal.verify()
        assert (report.ok, report.erased, report.records) == (True, 1, 2)

    async def test_there_is_nothing_to_erase_twice(self, journal: Journal):
        assert not await journal.erase("ab" * 32, stream="s", reason="test")
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        assert await journal.erase(digest(b"body"), stream="s", reason="test")
        assert not await journal.erase(digest(b"body"), stream="s", reason="test")
        assert await journal.last_seq() == 2

    async def test_a_body_can_come_back(self, journal: Journal):
        again = note(bodies=[Body.of(TEXT)])
        for _ in range(2):
            await journal.append("s", [again])
            assert await journal.content(digest(TEXT)) == TEXT
            assert await journal.erase(digest(TEXT), stream="s", reason="test")
        await journal.append("s", [again])
        assert await journal.content(digest(TEXT)) == TEXT
        assert (await journal.verify()).erased == 0

    async def test_a_body_can_come_back_after_somebody_has_referred_to_it(self, journal: Journal):
        body = Body.of(TEXT)
        await journal.append("s", [note(bodies=[body])])
        assert await journal.erase(body.ref.digest, stream="s", reason="test")
        for stream in ("s", "t"):
            only = Draft(kind="test.note", payload={}, content=(body.ref,))
            await journal.append(stream, [only])
        await journal.append("u", [note(bodies=[body])])
        assert await journal.content(body.ref.digest) == TEXT
        assert (await journal.verify()).erased == 0

    async def test_a_body_that_came_back_is_held_by_who_brought_it(self, journal: Journal):
        body = kept(Retention.DURABLE)
        await journal.append("s", [note(bodies=[body])])
        assert await journal.erase(body.ref.digest, reason="test")
        await journal.append("t", [note(bodies=[kept(Retention.EPHEMERAL)])])
        held = [(one.stream, one.retention) for one in await journal.holdings([body.ref.digest])]
        assert held == [("t", "ephemeral")]
        assert await sweep(journal) == [body.ref.digest]

    async def test_persistent_is_enforced(self, journal: Journal):
        body = kept(Retention.PERSISTENT)
        await journal.append("s", [note(bodies=[kept(Retention.EPHEMERAL)]), note(bodies=[body])])
        await leaves_no_trace(
            journal,
            "CONTENT_NOT_ALLOWED",
            journal.erase(body.ref.digest, stream="s", reason="test"),
        )
        assert await journal.content(body.ref) == b"body"

    async def test_a_body_held_twice_by_one_record_is_kept_for_the_stronger_reason(
        self, journal: Journal
    ):
        ephemeral, persistent = kept(Retention.EPHEMERAL), kept(Retention.PERSISTENT)
        for at, bodies in enumerate([(ephemeral, persistent), (persistent, ephemeral)], 1):
            await journal.append("s", [note(bodies=bodies)])
            held = [(holding.retention, holding.seq) for holding in await journal.holdings()]
            assert sorted(held) == [("ephemeral", at), ("persistent", at)]
        assert await sweep(journal) == []
        with refused("CONTENT_NOT_ALLOWED"):
            await journal.erase(persistent.ref.digest, reason="test")

    async def test_a_bad_erasure_is_refused(self, journal: Journal):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        await leaves_no_trace(
            journal, "INVALID_ARGUMENT", journal.erase("no digest", stream="s", reason="test")
        )
        await leaves_no_trace(
            journal, "INVALID_ID", journal.erase(digest(b"body"), stream="a\nb", reason="test")
        )

    async def test_an_erasure_respects_the_lease_of_the_stream_it_is_recorded_in(
        self, journal: Journal
    ):
        await journal.append("s", [note(bodies=[Body.of(b"body")])])
        await journal.claim("s", "me", ttl_ms=1000)
        name = digest(b"body")
        await leaves_no_trace(
            journal, "STALE_EPOCH", journal.erase(name, stream="s", reason="test")
        )
        assert await journal.content(name) == b"body"
        assert await journal.erase(name, stream="host", reason="test")


class Retaining(Conformance):
    """What `sweep` lets go, for each retention class."""

    async def hold(self, journal: Journal, retention: Retention) -> str:
        await journal.append("s", [created(), started("r", bodies=[kept(retention)])])
        return digest(b"body")

    async def test_ephemeral_goes_with_the_next_sweep(self, journal: Journal):
        name = await self.hold(journal, Retention.EPHEMERAL)
        assert await sweep(journal) == [name]
        assert await sweep(journal) == []
        last = (await records_of(journal))[-1]
        assert last.kind == "content_erased"
        assert last.payload == {"digest": name, "reason": "retention"}

    @pytest.mark.parametrize("end", [completed("r"), failed("r"), failed("r", cancelled=True)])
    async def test_run_scoped_goes_when_its_run_ended(self, journal: Journal, end: Draft):
        name = await self.hold(journal, Retention.RUN_SCOPED)
        assert await sweep(journal) == []
        await journal.append("s", [end])
        assert await sweep(journal) == [name]

    async def test_a_body_that_somebody_takes_meanwhile_stays(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("s", [destroyed()])
        looked = max(one.seq for one in await journal.holdings())
        await journal.append(
            "t", [created(), started("t", bodies=[kept(Retention.SESSION_SCOPED)])]
        )
        assert not await journal.erase(name, reason="retention", upto=looked)
        assert await journal.content(name) == b"body"
        assert await sweep(journal) == []
        await journal.append("t", [destroyed()])
        assert await sweep(journal) == [name]

    async def test_run_scoped_goes_with_its_session(self, journal: Journal):
        name = await self.hold(journal, Retention.RUN_SCOPED)
        await journal.append("s", [destroyed()])
        assert await sweep(journal) == [name]

    async def test_session_scoped_goes_with_its_session(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("s", [completed("r")])
        assert await sweep(journal) == []
        await journal.append("s", [destroyed()])
        assert await sweep(journal) == [name]

    async def test_a_stream_can_be_swept_alone(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        other = Body.of(b"other", retention=Retention.SESSION_SCOPED)
        shared = kept(Retention.SESSION_SCOPED)
        await journal.append("t", [created(), started("t", bodies=[other, shared])])
        await journal.append("s", [destroyed()])
        assert await sweep(journal, stream="s") == []  # the other one holds it
        await journal.append("t", [destroyed()])
        assert await sweep(journal, stream="s") == [name]
        assert await journal.content(other.ref.digest) == b"other"
        assert await sweep(journal, stream="t") == [other.ref.digest]

    async def test_holdings_can_be_asked_for_by_body(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("t", [created(), note(bodies=[Body.of(b"other")])])
        assert [one.digest for one in await journal.holdings([name])] == [name]
        assert [one.stream for one in await journal.holdings([name, "nothing"])] == ["s"]
        assert await journal.holdings([]) == []
        assert len(await journal.holdings()) == 2

    async def test_holdings_of_a_body_can_be_asked_for_up_to_a_number(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        body = kept(Retention.SESSION_SCOPED)
        await journal.append("t", [created()])
        await journal.append("t", [note(bodies=[body, Body.of(b"other")])])
        await journal.append("s", [note(bodies=[body])])
        assert len(await journal.holdings([name])) == 3
        assert len(await journal.holdings([name], most=2)) == 2
        both = await journal.holdings([name, digest(b"other")], most=1)
        assert sorted(one.digest for one in both) == sorted([name, digest(b"other")])

    async def test_a_session_that_is_over_does_not_hold_what_others_do(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        for stream in ("t", "u"):
            await journal.append(stream, [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])])
        for stream, left in (("s", {"t", "u"}), ("t", {"u"})):
            await journal.append(stream, [destroyed()])
            assert await sweep(journal, stream=stream) == []
            assert {one.stream for one in await journal.holdings([name])} == left
        assert await journal.content(name) == b"body"
        assert (await journal.verify()).ok
        await journal.append("u", [destroyed()])
        assert await sweep(journal, stream="u") == [name]

    async def test_a_session_that_goes_on_holds_what_it_held(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("t", [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])])
        assert await sweep(journal, stream="s") == []
        assert {one.stream for one in await journal.holdings([name])} == {"s", "t"}

    async def test_letting_go_leaves_a_namesake_and_what_outlives_sessions(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("s", [note(bodies=[kept(Retention.DURABLE)]), destroyed(), created()])
        upto = await journal.last_seq()
        await journal.append("s", [note(bodies=[kept(Retention.SESSION_SCOPED)])])
        await journal.let_go("s", [name], upto=upto)
        held = {(one.retention, one.seq > upto) for one in await journal.holdings([name])}
        assert held == {("durable", False), ("session_scoped", True)}
        await journal.let_go("nobody", [name], upto=upto)
        assert len(await journal.holdings([name])) == 2

    async def test_a_body_that_was_let_go_can_be_held_again(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("t", [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])])
        await journal.append("s", [destroyed()])
        assert await sweep(journal, stream="s") == []
        await journal.append("s", [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])])
        await journal.append("t", [destroyed()])
        assert await sweep(journal, stream="t") == []
        assert {one.stream for one in await journal.holdings([name])} == {"s"}
        assert await journal.content(name) == b"body"

    async def test_many_holders_that_are_over_keep_nothing(self, journal: Journal):
        """Whoever looks at some of them first must look at all before something is erased, or kept."""
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        for at in range(20):
            held = note(bodies=[kept(Retention.SESSION_SCOPED)])
            await journal.append(f"t{at}", [created(), held, destroyed()])
        await journal.append("u", [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])])
        await journal.append("s", [destroyed()])
        assert await sweep(journal, stream="s") == []
        assert "s" not in {one.stream for one in await journal.holdings([name])}
        await journal.append("u", [destroyed()])
        assert await sweep(journal, stream="s") == [name]

    async def test_session_scoped_is_not_kept_by_a_namesake(self, journal: Journal):
        name = await self.hold(journal, Retention.SESSION_SCOPED)
        await journal.append("s", [destroyed(), created()])
        assert await sweep(journal) == [name]

    @pytest.mark.parametrize(
        "retention", [Retention.DURABLE, Retention.PERSISTENT, Retention.HOST_POLICY]
    )
    async def test_the_rest_outlives_its_session(self, journal: Journal, retention: Retention):
        name = await self.hold(journal, retention)
        await journal.append("s", [completed("r"), destroyed()])
        assert await sweep(journal) == []
        assert await journal.content(name) == b"body"

    async def test_a_body_stays_while_anybody_holds_it(self, journal: Journal):
        name = await self.hold(journal, Retention.EPHEMERAL)
        other = [created(), note(bodies=[kept(Retention.SESSION_SCOPED)])]
        await journal.append("t", other)
        assert await sweep(journal) == []
        await journal.append("t", [destroyed()])
        assert await sweep(journal) == [name]

    async def test_a_stream_at_work_is_swept_and_not_disturbed(self, journal: Journal):
        name = await self.hold(journal, Retention.EPHEMERAL)
        lease = await journal.claim("s", "me", ttl_ms=1000)
        assert await sweep(journal) == [name]
        await journal.append("s", [note()], epoch=lease.epoch, expected_pos=2)
