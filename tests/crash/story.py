"""The story that is killed: one read, one keyed write, one keyless write, one approval, a gather of three.

`go_on` takes it from wherever the journal has it to its end, in the process that began it or in any later one, and
`check_*` say what must hold: each effect at most once, exactly once where it completed; the same end as undisturbed.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast import RunResult, RunStatus
from holdfast.contracts import digest
from holdfast.journal import Journal
from holdfast.journal.sqlite import SqliteJournal
from holdfast.runtime import Runtime
from holdfast.testing._conformance._base import everything

SESSION = "story"
BEFORE = "base = 10"


@dataclass(frozen=True)
class Tale:
    """A program, and how it ends."""

    code: str
    variables: str
    end: list[Any]
    calls: tuple[str, ...]
    asks: str
    keyless: str

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the world has in the end, beside the mail."""
        known = {"note": ("1", "2", "3"), self.asks: ("77 to ann",), "reserve": ("7 apples",)}
        return [(name, what) for name in sorted({*self.calls} & {*known}) for what in known[name]]

    async def live(self, folder: Path, journal: SqliteJournal, *, check: bool) -> int:
        """Be one process of it."""
        return await live(folder, journal, self, check=check)


ROW = Tale(
    """
import asyncio
base = base + 1
have = stock("apples")
order = reserve("apples", have)
mail = send("ann", order)
paid = pay("ann", have * base)

async def all_three():
    return await asyncio.gather(note(1), note(2), note(3))

notes = await all_three()
print("done")
result = [base, have, order, mail, paid, notes]
""",
    "[base, have, order, mail, paid, notes]",
    [11, 7, "reserve 7 apples", "mail 1", "pay 77 to ann", [10, 20, 30]],
    ("stock", "reserve", "send", "pay", "note", "note", "note"),
    asks="pay",
    keyless="send",
)
"""One after another, then three at a time."""

MIXED = Tale(
    """
import asyncio
base = base + 1
order = []

async def one(name, call):
    found = await call
    order.append(name)
    return found

first = await asyncio.gather(one("n", note(1)), one("p", pay_later("ann", 7 * base)), one("m", send_later("hi")))
rest = await asyncio.gather(note(2), note(3))
print("done")
result = [base, first, rest, sorted(order)]
""",
    "[base, first, rest, sorted(order)]",
    [11, [10, "pay_later 77 to ann", "mail 1"], [20, 30], ["m", "n", "p"]],
    ("note", "pay_later", "send_later", "note", "note"),
    asks="pay_later",
    keyless="send_later",
)
"""What waits for a person, what must not be done twice and what may, all under way at a time."""

TALES = {"row": ROW, "mixed": MIXED}

LEASE_MS = 3000
"""How much later each process lives than the one before: a dead one's lease has run out by then."""

CONFIG: dict[str, Any] = {
    "shell": {"jail": "off", "limits": {"wall_ms": 60_000}},
    "session": {"capabilities": [str(Path(__file__).with_name("world.py"))]},
    "policy": {
        "rules": [
            {"id": "money", "tool": "pay*", "then": "ask"},
            {"id": "writes", "side_effect": ["write"], "then": "allow"},
        ]
    },
}


class Wrong(AssertionError):
    """What must not be."""


def demand(holds: bool, what: object) -> None:
    """An assert that no option switches off."""
    if not holds:
        raise Wrong(what)


def clock_of(generation: int) -> Callable[[], int]:
    """The clock of the nth process."""
    return lambda: time.time_ns() // 1_000_000 + generation * (LEASE_MS + 100)


@asynccontextmanager
async def opened(journal: Journal, folder: Path) -> AsyncGenerator[Runtime]:
    """A runtime on the journal; the world is in the same folder."""
    os.environ["WORLD"] = str(folder / "world.db")
    config = {**CONFIG, "journal": {"url": f"sqlite:///{folder / 'journal.db'}"}}
    async with holdfast.open(journal, config) as hf:
        yield hf


# -- the way ------------------------------------------------------------------------------------------


class Guide:
    """Whoever uses holdfast: starts the story, answers, looks what happened, resumes."""

    def __init__(self, hf: Runtime, folder: Path, tale: Tale = ROW) -> None:
        self.hf = hf
        self.tale = tale
        self.folder = folder
        self.doubts = 0

    async def go_on(self) -> RunResult:
        """Take the story to its end."""
        run_id = await self.find()
        if run_id is None:
            await self.hf.shell.run(BEFORE, session=SESSION)
            result = await self.hf.shell.run(self.tale.code, session=SESSION)
        else:
            result = await self.hf.runs.resume(run_id)
        for _ in range(10):
            if result.status is RunStatus.WAITING_FOR_APPROVAL:
                await self._approve(result)
            elif result.status is RunStatus.INTERRUPTED:
                await self._resolve(result)
            else:
                return result
            result = await self.hf.runs.resume(str(result.run_id))
        raise Wrong(f"it does not end: {result}")

    async def find(self) -> str | None:
        """The story's run, if it is on record."""
        wanted = digest(self.tale.code.encode())
        async for record in self.hf.journal.read(SESSION):
            if record.kind == "run_started" and record.payload["code"] == wanted:
                return record.run_id
        return None

    async def _approve(self, result: RunResult) -> None:
        demand(result.approval_id is not None, result)
        shown = await self.hf.approvals.show(str(result.approval_id))
        demand(shown.tool == self.tale.asks, shown)
        demand(shown.arguments == {"to": "ann", "cents": 77}, shown)
        await self.hf.approvals.decide(str(result.approval_id), "approved", actor="ann")

    async def _resolve(self, result: RunResult) -> None:
        """It must name exactly the keyless write; say what the world says."""
        self.doubts += 1
        run_id = str(result.run_id)
        demand(len(result.in_doubt) == 1, result)
        effects = {one.id: one for one in await self.hf.runs.effects(run_id)}
        effect = effects[result.in_doubt[0]]
        demand((effect.name, effect.status) == (self.tale.keyless, "unknown"), effect)
        demand((await self.hf.runs.show(run_id)).status == "needs_attention", result)
        sent = look(self.folder, "select number from mails where effect=?", effect.id)
        if sent:
            value = f"mail {sent[0][0]}"
            await self.hf.runs.resolve(run_id, effect.id, "happened", value=value)
        else:
            await self.hf.runs.resolve(run_id, effect.id, "retry")


def look(folder: Path, sql: str, *values: str) -> list[Any]:
    """The world, from outside."""
    if not (folder / "world.db").exists():
        return []
    db = apsw.Connection(str(folder / "world.db"), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(10_000)
    found = db.execute("select 1 from sqlite_schema where name='mails'").fetchall()
    return db.execute(sql, values).fetchall() if found else []


# -- what must hold -----------------------------------------------------------------------------------


async def check_journal(journal: Journal) -> None:
    """It verifies, and what is folded again from zero is what is there."""
    report = await journal.verify()
    demand(report.ok, report)
    before = await seen(journal)
    await journal.rebuild()
    demand(before == await seen(journal), "projections folded again are not what was there")


async def seen(journal: Journal) -> object:
    """All that can be seen of a journal."""
    more = [await journal.rows(name) for name in ("grants", "budgets", "plans")]
    return (await everything(journal), more)


async def check_intents(journal: Journal, folder: Path) -> None:
    """Nothing was done that was not on record before, and allowed."""
    acts = look(folder, "select distinct effect, name from acts")
    intents = {
        record.effect_id: record.payload
        async for record in journal.read(SESSION)
        if record.kind == "effect_intent"
    }
    for effect, name in acts:
        demand(effect in intents, f"`{name}` was done without an intent")
        if name.startswith("pay"):
            approval = await journal.row("approvals", str(intents[effect].get("approval_id")))
            demand(approval is not None and approval["status"] == "approved", approval)
    check_once(folder)


def check_once(folder: Path) -> None:
    """No mail is there twice."""
    mails = look(folder, "select effect, count(*) from mails group by effect")
    demand(len(mails) <= 1, mails)
    demand(all(count == 1 for _, count in mails), f"sent twice: {mails}")


async def check_end(hf: Runtime, folder: Path, result: RunResult, tale: Tale = ROW) -> None:
    """The same end as undisturbed: result, variables, world, record."""
    demand(result.status is RunStatus.OK, result)
    demand(result.result == tale.end, result)
    demand(result.stdout == "done\n", result)
    calls = tuple(one.name for one in result.external_calls)
    demand(calls == tale.calls, result)
    demand(all(one.status == "ok" for one in result.external_calls), result)
    kept = look(folder, "select name, what from kept order by name, what")
    demand(kept == tale.kept, kept)
    demand(len(look(folder, "select * from mails")) == 1, "the mail is lost, or there twice")
    await check_intents(hf.journal, folder)
    for row in await hf.journal.rows("effects"):
        demand(row.value["status"] == "completed", row)
    await check_variables(hf, tale)


async def check_variables(hf: Runtime, tale: Tale) -> None:
    """What is left in the session."""
    now = await hf.shell.run(tale.variables, session=SESSION)
    demand(now.result == tale.end, now)


async def live(
    folder: Path, journal: SqliteJournal, tale: Tale = ROW, *, check: bool = True
) -> int:
    """Be one process of the story, to its end; how often somebody had to say what became of the keyless write."""
    if check and await journal.last_seq():
        await check_journal(journal)
        await check_intents(journal, folder)
    async with opened(journal, folder) as hf:
        guide = Guide(hf, folder, tale)
        result = await guide.go_on()
        if check:
            await check_end(hf, folder, result, tale)
    if check:
        # Without the key no saved state counts: the session is made again from its record.
        (folder / "journal.db.key").unlink()
        async with opened(journal, folder) as hf:
            await check_variables(hf, tale)
        await check_journal(journal)
    return guide.doubts
