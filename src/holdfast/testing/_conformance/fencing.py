"""Leases and epochs."""

from __future__ import annotations

import pytest

from holdfast.errors import LeaseHeld, StaleEpoch
from holdfast.journal import Journal, Lease
from holdfast.testing._conformance._base import Conformance, leaves_no_trace, refused
from holdfast.testing._drafts import note
from holdfast.testing.clock import FakeClock


class Fencing(Conformance):
    """What `claim`, `renew`, `release` and `epoch` promise."""

    async def test_claim_gives_the_stream_with_a_new_epoch(
        self, journal: Journal, clock: FakeClock
    ):
        await journal.append("s", [note(), note()])
        lease = await journal.claim("s", "me", ttl_ms=1000)
        assert lease == Lease("s", "me", 1, clock.now + 1000, 2)
        head = await journal.head("s")
        assert (head.owner, head.epoch, head.until) == ("me", 1, clock.now + 1000)
        assert (await journal.append("s", [note()], epoch=1, expected_pos=2)).pos == 3

    async def test_a_claim_writes_no_record(self, journal: Journal):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        await journal.release(await journal.renew(lease, ttl_ms=1000))
        assert await journal.last_seq() == 0
        assert (await journal.verify()).ok

    async def test_a_live_lease_keeps_others_out(self, journal: Journal, clock: FakeClock):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        clock.advance(999)
        with pytest.raises(LeaseHeld) as caught:
            await journal.claim("s", "you", ttl_ms=1000)
        assert (caught.value.owner, caught.value.until) == ("me", lease.until)
        await leaves_no_trace(journal, "LEASE_HELD", journal.claim("s", "you", ttl_ms=1))

    async def test_streams_are_leased_one_by_one(self, journal: Journal):
        await journal.claim("a", "me", ttl_ms=1000)
        await journal.append("b", [note()])
        assert (await journal.claim("b", "you", ttl_ms=1000)).epoch == 1

    async def test_without_an_epoch_a_leased_stream_is_closed(
        self, journal: Journal, clock: FakeClock
    ):
        await journal.claim("s", "me", ttl_ms=1000)
        await leaves_no_trace(journal, "STALE_EPOCH", journal.append("s", [note()]))
        clock.advance(1000)
        assert (await journal.append("s", [note()])).pos == 1

    async def test_a_wrong_epoch_is_refused(self, journal: Journal):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        for epoch in (lease.epoch - 1, lease.epoch + 1, -1):
            await leaves_no_trace(
                journal, "STALE_EPOCH", journal.append("s", [note()], epoch=epoch)
            )
        await leaves_no_trace(journal, "STALE_EPOCH", journal.append("new", [note()], epoch=1))

    async def test_an_epoch_is_checked_before_a_position(self, journal: Journal):
        await journal.claim("s", "me", ttl_ms=1000)
        await leaves_no_trace(
            journal, "STALE_EPOCH", journal.append("s", [note()], epoch=9, expected_pos=9)
        )

    async def test_an_expired_lease_holds_while_nobody_took_over(
        self, journal: Journal, clock: FakeClock
    ):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        clock.advance(5000)
        assert (await journal.append("s", [note()], epoch=lease.epoch)).pos == 1
        assert (await journal.renew(lease, ttl_ms=1000)).pos == 1

    async def test_an_expired_lease_does_not_hide_what_others_wrote(
        self, journal: Journal, clock: FakeClock
    ):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        clock.advance(1000)
        await journal.append("s", [note("stranger")])
        await leaves_no_trace(
            journal,
            "STALE_POSITION",
            journal.append("s", [note()], epoch=lease.epoch, expected_pos=0),
        )

    async def test_after_it_ran_out_another_takes_over_with_a_higher_epoch(
        self, journal: Journal, clock: FakeClock
    ):
        old = await journal.claim("s", "me", ttl_ms=1000)
        await journal.append("s", [note()], epoch=old.epoch)
        clock.advance(1000)
        new = await journal.claim("s", "you", ttl_ms=1000)
        assert (new.epoch, new.pos) == (old.epoch + 1, 1)
        with pytest.raises(StaleEpoch) as caught:
            await journal.append("s", [note("zombie")], epoch=old.epoch)
        assert (caught.value.given, caught.value.actual) == (old.epoch, new.epoch)
        assert (await journal.append("s", [note()], epoch=new.epoch)).pos == 2

    async def test_claiming_again_fences_the_older_self(self, journal: Journal):
        old = await journal.claim("s", "me", ttl_ms=1000)
        new = await journal.claim("s", "me", ttl_ms=1000)
        assert new.epoch == old.epoch + 1
        await leaves_no_trace(
            journal, "STALE_EPOCH", journal.append("s", [note()], epoch=old.epoch)
        )
        await leaves_no_trace(journal, "STALE_EPOCH", journal.renew(old, ttl_ms=1000))
        await journal.release(old)  # lost: it is left alone
        await journal.append("s", [note()], epoch=new.epoch)

    async def test_renewing_makes_it_last(self, journal: Journal, clock: FakeClock):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        await journal.append("s", [note()], epoch=lease.epoch)
        clock.advance(900)
        lease = await journal.renew(lease, ttl_ms=1000)
        assert lease == Lease("s", "me", 1, clock.now + 1000, 1)
        clock.advance(999)
        await journal.append("s", [note()], epoch=lease.epoch)

    async def test_many_are_renewed_at_once_but_for_those_that_were_lost(
        self, journal: Journal, clock: FakeClock
    ):
        leases = [await journal.claim(f"s{n}", "me", ttl_ms=1000) for n in range(3)]
        clock.advance(1000)
        await journal.claim("s1", "you", ttl_ms=1000)
        found = await journal.renew_all(leases, ttl_ms=5000)
        assert [one and one.until for one in found] == [clock.now + 5000, None, clock.now + 5000]
        assert (await journal.head("s2")).until == clock.now + 5000
        assert (await journal.head("s1")).owner == "you"
        assert await journal.renew_all([], ttl_ms=1000) == []

    async def test_renewing_after_somebody_took_over_is_refused(
        self, journal: Journal, clock: FakeClock
    ):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        clock.advance(1000)
        await journal.claim("s", "you", ttl_ms=1000)
        await leaves_no_trace(journal, "STALE_EPOCH", journal.renew(lease, ttl_ms=1000))

    async def test_releasing_gives_the_stream_back(self, journal: Journal):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        await journal.release(lease)
        head = await journal.head("s")
        assert (head.owner, head.until, head.epoch) == (None, 0, lease.epoch)
        await leaves_no_trace(
            journal, "STALE_EPOCH", journal.append("s", [note()], epoch=lease.epoch)
        )
        await leaves_no_trace(journal, "STALE_EPOCH", journal.renew(lease, ttl_ms=1000))
        await journal.append("s", [note()])
        assert (await journal.claim("s", "you", ttl_ms=1)).epoch == lease.epoch + 1
        await journal.release(lease)

    async def test_release_by_a_stranger_is_ignored(self, journal: Journal, clock: FakeClock):
        lease = await journal.claim("s", "me", ttl_ms=1000)
        await journal.release(lease._replace(owner="you"))
        await journal.release(lease._replace(epoch=lease.epoch + 1))
        await journal.release(Lease("nothing", "me", 1, clock.now + 1, 0))
        head = await journal.head("s")
        assert (head.owner, head.until, head.epoch) == ("me", lease.until, lease.epoch)
        with refused("LEASE_HELD"):
            await journal.claim("s", "you", ttl_ms=1000)
        await journal.append("s", [note()], epoch=lease.epoch)

    @pytest.mark.parametrize("ttl_ms", [0, -1, 86_400_001])
    async def test_ttl_ms_is_enforced(self, journal: Journal, ttl_ms: int):
        await leaves_no_trace(journal, "INVALID_ARGUMENT", journal.claim("s", "me", ttl_ms=ttl_ms))
        lease = await journal.claim("s", "me", ttl_ms=1000)
        await leaves_no_trace(journal, "INVALID_ARGUMENT", journal.renew(lease, ttl_ms=ttl_ms))

    async def test_owner_and_stream_of_a_claim_are_ids(self, journal: Journal):
        with refused("INVALID_ID"):
            await journal.claim("a\nb", "me", ttl_ms=1)
        with refused("INVALID_ID"):
            await journal.claim("s", "", ttl_ms=1)
