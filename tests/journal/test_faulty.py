"""The journal that fails when told to."""

from contextlib import suppress

import pytest

from holdfast.contracts import digest
from holdfast.journal import MemoryJournal
from holdfast.testing import Died, FaultyJournal
from holdfast.testing._conformance._base import everything, records_of
from holdfast.testing._drafts import STORY, note
from holdfast.testing.faults import full


async def three(journal: FaultyJournal) -> list[int]:
    """Append three batches of two; the positions acknowledged."""
    done: list[int] = []
    for n in range(3):
        done.append((await journal.append("s", [note(n), note(n)])).pos)
    return done


@pytest.mark.parametrize(("after", "there"), [(False, 2), (True, 4)])
async def test_the_nth_append_fails_before_or_after_it_took_effect(after: bool, there: int):
    inner = MemoryJournal()
    faulty = FaultyJournal(inner, fail_at=2, after=after)
    with pytest.raises(Died):
        await three(faulty)
    assert faulty.appends == 2
    assert len(await records_of(inner)) == there
    assert (await faulty.append("s", [note()])).pos == there + 1  # only that one


@pytest.mark.parametrize(("after", "there"), [(False, 1), (True, 2)])
async def test_a_post_counts_as_an_append(after: bool, there: int):
    faulty = FaultyJournal(MemoryJournal(), fail_at=2, after=after)
    faulty.post("s", lambda: [note()], failed=print)
    with pytest.raises(Died):
        faulty.post("s", lambda: [note()], failed=print)
    await faulty.flush()
    assert await faulty.last_seq() == there


async def test_dead_is_dead():
    faulty = FaultyJournal(MemoryJournal(), fail_at=1, after=True, dead=True)
    for _ in range(3):
        with pytest.raises(Died):
            await faulty.append("s", [note()])
    assert await faulty.last_seq() == 1


async def test_it_fails_with_what_it_was_told():
    faulty = FaultyJournal(MemoryJournal(), fail_at=1, failure=full())
    with pytest.raises(Exception, match="JOURNAL_FULL"):
        await faulty.append("s", [note()])


async def test_a_handler_does_not_survive_it_by_accident():
    faulty = FaultyJournal(MemoryJournal(), fail_at=1)

    async def careless() -> None:
        with suppress(Exception):
            await faulty.append("s", [note()])

    with pytest.raises(Died):
        await careless()


async def test_everything_else_goes_through():
    inner = MemoryJournal()
    faulty = FaultyJournal(inner, fail_at=100)
    assert await three(faulty) == [2, 4, 6]
    await faulty.append("t", STORY)
    lease = await faulty.renew(await faulty.claim("s", "me", ttl_ms=1000), ttl_ms=2000)
    assert (await inner.head("s")).epoch == lease.epoch
    await faulty.release(lease)
    assert await everything(faulty) == await everything(inner)
    assert await faulty.head("s") == await inner.head("s")
    assert await faulty.row("sessions", "t") == await inner.row("sessions", "t")
    assert await faulty.verify() == await inner.verify()
    assert await faulty.rebuild() == await inner.last_seq()
    assert not await faulty.erase(digest(b""), reason="test")
    await faulty.wait(0)
    with pytest.raises(Exception, match="NOT_FOUND"):
        await faulty.content(digest(b""))
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        await faulty.backup("nowhere")
    assert faulty.found is inner.found
    await faulty.close()
    with pytest.raises(Exception, match="JOURNAL_CLOSED"):
        await inner.last_seq()
