"""What the code of the demo may call: a small shop whose book is a real SQLite file, so that doing twice would show.

The file is named by `HOLDFAST_DEMO_BOOK`. Named by reference (`holdfast.cli._demo_tools`), so every process of the
demo finds the same capabilities.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import anyio
import apsw

from holdfast.capabilities import capability
from holdfast.cli._stage import BOOK

if TYPE_CHECKING:
    from holdfast.contracts.model import ModelRequest
    from holdfast.models.script import Line

STALL = "HOLDFAST_DEMO_STALL"
"""Set in a process whose carrier, or whose model, never answers."""

PRICES = {"tea": 4, "milk": 2, "cake": 6, "jam": 3}

PROGRAM = """\
coins = price("jam")
receipt = pay("jam", coins)
receipt"""
"""What the model of the demo writes."""


@capability(side_effect="read")
def price(item: str) -> int:
    """The price of an item. Every time somebody asks is noted."""
    _note("price", item)
    return PRICES[item]


@capability(side_effect="external_system", approval="manual")
def pay(item: str, coins: int) -> str:
    """Pay for an item. Nobody could tell afterwards whether it was paid twice."""
    _note("pay", item)
    return f"{coins} paid for {item}"


@capability(side_effect="write", timeout_ms=60_000)
def ship(item: str) -> str:
    """Send an item out. It has no key by which the carrier would know a repetition."""
    _note("ship", item)
    if os.environ.get(STALL):
        time.sleep(30)  # the carrier has it; its answer never comes
    return f"{item} is on its way"


async def shopper(request: ModelRequest) -> Line | str:
    """A model by script: it writes a program, then says what came of it, unless its provider never answers."""
    from holdfast.models.script import say, together, write_code

    last = request.messages[-1]
    if last.role != "tool":
        return together(say("I look up the price and pay."), write_code(PROGRAM))
    if os.environ.get(STALL):
        await anyio.sleep(30)  # the question is out; its answer never comes
    return f"Done: {last.text.removeprefix('result: ')}."


def _note(what: str, item: str) -> None:
    book = _book()
    try:
        book.execute("insert into done (what, item) values (?, ?)", (what, item))
    finally:
        book.close()


def entries(path: str) -> dict[str, int]:
    """How often each thing was done, by the shop's own book."""
    book = _open(path)
    try:
        rows = book.execute("select what || ' ' || item, count(*) from done group by 1 order by 1")
        return {str(name): int(str(count)) for name, count in rows}
    finally:
        book.close()


def _book() -> apsw.Connection:
    return _open(os.environ[BOOK])


def _open(path: str) -> apsw.Connection:
    book = apsw.Connection(path)
    book.set_busy_timeout(5000)
    book.execute("create table if not exists done (what text, item text)")
    return book
