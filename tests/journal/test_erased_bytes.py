"""What was erased is in no file of the journal any more: not in a free page, not beside what is left, not in the log."""

import random
from pathlib import Path

import anyio

from holdfast.contracts import Body, Draft
from holdfast.journal.sqlite import SqliteJournal

SIZES = (40, 60, 200, 500, 900, 1500, 5000, 30_000)
"""Within a page, in pages of their own, and between."""


def body(data: bytes) -> Body:
    return Body.of(data, role="text", mime="text/plain")


def draft(*bodies: Body) -> Draft:
    return Draft(kind="test.put", payload={}, bodies=bodies)


def on_disk(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}*")))


def left(bodies: list[bytes], path: Path) -> list[int]:
    """The sizes of those of which some part can still be found."""
    found = on_disk(path)
    return [
        len(data)
        for data in bodies
        if any(data[at : at + 16] in found for at in (0, len(data) // 2 - 8, len(data) - 16))
    ]


async def test_nothing_is_left_of_what_was_erased(tmp_path: Path):
    """Erased, put again and erased in any order: SQLite moves neighbours from page to page meanwhile."""
    path, rnd = tmp_path / "journal.db", random.Random(7)
    bodies = [rnd.randbytes(SIZES[at % len(SIZES)]) for at in range(120)]  # nothing squeezes these
    journal = SqliteJournal.open(path)
    for data in bodies:
        await journal.append("s", [draft(body(data))], durable=False)
    erased: set[int] = set()
    for _ in range(240):
        at = rnd.randrange(len(bodies))
        if at in erased:
            await journal.append("s", [draft(body(bodies[at]))], durable=False)
        else:
            assert await journal.erase(body(bodies[at]).ref.digest, reason="asked for")
        erased ^= {at}
    await journal.close()
    kept = [data for at, data in enumerate(bodies) if at not in erased]
    assert left(kept, path) == [len(data) for data in kept]
    assert left([bodies[at] for at in erased], path) == []


async def test_a_journal_in_use_empties_its_log_after_erasing(tmp_path: Path):
    path = tmp_path / "journal.db"
    said = [b"Ann, 12 Harbour Street, no. %d" % number for number in range(20)]
    journal = SqliteJournal.open(path)
    try:
        await journal.append("s", [draft(*(body(one) for one in said))])
        assert left(said, path) != []
        for one in said:
            await journal.erase(body(one).ref.digest, reason="asked for")
        with anyio.fail_after(30):
            while left(said, path):  # noqa: ASYNC110 - the files tell nobody
                await anyio.sleep(0.05)
        assert (await journal.verify()).ok
    finally:
        await journal.close()


async def test_a_reader_in_the_way_is_not_waited_for_and_the_log_is_emptied_later(tmp_path: Path):
    path, said = tmp_path / "journal.db", b"Ann, 12 Harbour Street"
    journal, other = SqliteJournal.open(path), SqliteJournal.open(path)
    try:
        await journal.append("s", [draft(body(said))])
        with other._reader() as db, db.snapshot():  # somebody who reads for long
            assert db.value("select count(*) from records") == 1
            await journal.erase(body(said).ref.digest, reason="asked for")
            await journal.append("s", [draft()])
            assert left([said], path) == [len(said)]
        with anyio.fail_after(30):
            while left([said], path):  # noqa: ASYNC110 - the files tell nobody
                await anyio.sleep(0.05)
    finally:
        await other.close()
        await journal.close()
