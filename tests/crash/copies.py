"""Copies of a journal: whole, or up to a record, as if the process that wrote it had died right after that."""

from collections.abc import Callable

from holdfast.contracts import Body, Draft, Record
from holdfast.journal import Journal, MemoryJournal

Change = Callable[[Draft], Draft]


async def again(journal: Journal, record: Record) -> Draft:
    """The draft of a record, with the bodies it names."""
    bodies = [Body(ref=ref, data=await journal.content(ref.digest)) for ref in record.content]
    return Draft(
        kind=record.kind,
        payload=record.payload,
        run_id=record.run_id,
        effect_id=record.effect_id,
        actor=record.actor,
        bodies=tuple(bodies),
    )


async def copy(
    journal: Journal,
    upto: Callable[[Record], bool] = lambda _: False,
    *,
    change: Change = lambda draft: draft,
) -> MemoryJournal:
    """A journal that ends with the first record for which `upto` holds; `change` makes it another one."""
    found = MemoryJournal()
    async for record in journal.read_all():
        await found.append(record.stream, [change(await again(journal, record))])
        if upto(record):
            break
    return found


def last(kind: str, number: int = 1) -> Callable[[Record], bool]:
    """Whether a record is the nth of its kind about a call of the code."""
    left = number

    def found(record: Record) -> bool:
        nonlocal left
        mine = record.kind == kind and not str(record.effect_id or "").endswith("_ask")
        left -= mine
        return mine and left == 0

    return found
