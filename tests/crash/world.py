"""What the story may call, and the world outside that it changes: a SQLite file, `$WORLD`.

`acts` has a line for every time that a capability was really about to act. What is `kept` is recognised by its key
when it comes again; `mails` are not: sending one twice makes two.
"""

import os

import anyio
import apsw
from tests.crash.points import here

from holdfast import Context, capability
from holdfast.contracts import Json
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import NeedsAnswer, Question

TABLES = """
create table if not exists acts (effect text, name text, attempt integer);
create table if not exists kept (key text primary key, name text, what text);
create table if not exists mails (number integer primary key, effect text, text text);
"""


def connect() -> apsw.Connection:
    """The world; its disk is not what is tested here, so it need not be waited for."""
    db = apsw.Connection(os.environ["WORLD"])
    db.set_busy_timeout(10_000)
    db.execute("pragma journal_mode=memory; pragma synchronous=off")
    db.execute(TABLES)
    return db


def _write(sql: str, values: tuple[object, ...]) -> int:
    """Write one row; its number."""
    db = connect()
    # Who begins by reading is not made to wait for another who writes, but turned away.
    db.execute("begin immediate")
    db.execute(sql, values)
    db.execute("commit")
    return db.last_insert_rowid()


def _keep(context: Context, name: str, what: str) -> str:
    _write("insert into acts values (?, ?, ?)", (context.effect_id, name, context.attempt))
    here(f"{name} {what}: before")
    _write("insert or ignore into kept values (?, ?, ?)", (context.idempotency_key, name, what))
    here(f"{name} {what}: done")
    return f"{name} {what}"


def _send(context: Context, name: str, text: str) -> str:
    _write("insert into acts values (?, ?, ?)", (context.effect_id, name, context.attempt))
    here(f"{name}: before")
    number = _write("insert into mails (effect, text) values (?, ?)", (context.effect_id, text))
    here(f"{name}: done")
    return f"mail {number}"


@capability(side_effect="read")
def stock(item: str) -> int:
    """How many there are."""
    here("stock: before")
    found = connect().execute("select count(*) from kept where name = ?", (item,)).fetchall()
    here("stock: done")
    return 7 - int(str(found[0][0]))


@capability(side_effect="write", idempotent=True)
def reserve(item: str, count: int, context: Context) -> str:
    """Put some aside; recognised when it comes again."""
    return _keep(context, "reserve", f"{count} {item}")


@capability(side_effect="write")
def send(to: str, text: str, context: Context) -> str:
    """Send a mail; there is no way to tell that it was sent before."""
    return _send(context, "send", text)


@capability(side_effect="write", idempotent=True)
def pay(to: str, cents: int, context: Context) -> str:
    """Pay; a person is asked first."""
    return _keep(context, "pay", f"{cents} to {to}")


@capability(side_effect="write", idempotent=True)
async def pay_later(to: str, cents: int, context: Context) -> str:
    """The same, awaited."""
    return _keep(context, "pay_later", f"{cents} to {to}")


@capability(side_effect="write")
async def send_later(text: str, context: Context) -> str:
    """Send a mail, awaited."""
    await anyio.sleep(0.001)
    return _send(context, "send_later", text)


@capability(side_effect="write", idempotent=True)
async def note(number: int, context: Context) -> int:
    """Note a number, slowly: the later it is asked, the sooner it is done."""
    _write("insert into acts values (?, ?, ?)", (context.effect_id, "note", context.attempt))
    here(f"note {number}: before")
    await anyio.sleep(0.004 * (4 - number))
    kept = (context.idempotency_key, "note", str(number))
    _write("insert or ignore into kept values (?, ?, ?)", kept)
    here(f"note {number}: done")
    return number * 10


SIZE: dict[str, Json] = {
    "type": "object",
    "properties": {"size": {"type": "integer"}},
    "required": ["size"],
}


@capability(side_effect="write")
def order(what: str, context: Context) -> str:
    """Order something by mail; which size, a person must say first."""
    here("order: asked")
    answer = context.answers.get("size")
    if answer is None:
        raise NeedsAnswer(Question(Asks.INPUT, "Which size?", SIZE, key="size", state=[what]))
    return _send(context, "order", f"{what}, size {answer.content}, {answer.state}")
