"""Kills a process at each of its operations on the journal's files, with and without cutting the power.

    python tests/crash/everywhere.py append upgrade backup

For each scenario, for each write, sync, truncation and removal that SQLite makes in it: run it in a process that dies
right there, leaving on the disk all, some, or nothing of what was not yet synced; then look at what is left. Run by
`test_journal_kill.py`; a process of its own, because it forks and so must not have threads.
"""

import argparse
import asyncio
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw

from holdfast.contracts import Body, Draft, digest
from holdfast.journal import _sqlite_schema, _sqlite_store, _writer
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._conformance._base import everything
from holdfast.testing._drafts import STORY
from holdfast.testing.disk import Disk, Op

# How much of each unsynced operation is on the disk after the power cut; `None`: the process alone dies.
LEFT: dict[str, Callable[[int], float] | None] = {
    "kill": None,
    "nothing": lambda number: 0,
    "every other": lambda number: number % 2,
    "torn": lambda number: (1, 0.4, 1, 0)[number % 4],
}
FORMAT = len(_sqlite_schema.UPGRADES)
STEP = "create table extra (x); insert into extra select count(*) from records"


def note(n: int) -> Draft:
    return Draft(kind="test.note", payload={"n": n}, bodies=(Body.of(bytes([n]) * 700 * n),))


class Scenario:
    """What the process does, and what must hold after its death."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self.log = folder / "acks"

    def prepare(self) -> None:
        """Before; on a good disk."""

    async def act(self) -> None:
        """The process dies in here."""
        raise NotImplementedError

    async def check(self, power_cut: bool) -> None:
        """After."""
        raise NotImplementedError

    def ack(self, word: object) -> None:
        with self.log.open("a") as log:
            print(word, file=log)

    def acks(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


class AppendScenario(Scenario):
    """Make a journal, append, copy the log back, erase, close."""

    async def act(self) -> None:
        _sqlite_store.CHECKPOINT_PAGES = 12
        journal = SqliteJournal.open(self.path)
        for n in range(1, 7):
            durable = n not in (3, 5)
            await journal.append("s", [note(n)] * (n % 3 + 1), durable=durable)
            self.ack(n if durable else f"{n}?")
        await journal.erase(digest(bytes([2]) * 1400), reason="test")
        self.ack("erased")
        await journal.close()
        self.ack("closed")

    async def check(self, power_cut: bool) -> None:
        acks = self.acks()
        journal = SqliteJournal.open(self.path)
        report = await journal.verify()
        assert report.ok, report
        numbers = [int(str(record.payload["n"])) async for record in journal.read("s")]
        there = sorted(set(numbers))
        assert numbers == [n for n in there for _ in range(n % 3 + 1)], numbers
        assert there == list(range(1, len(there) + 1))
        # A power cut may take what was appended last without a sync; nothing may take the rest.
        sure = [int(ack.rstrip("?")) for ack in acks if ack.rstrip("?").isdigit()]
        while power_cut and sure and f"{sure[-1]}?" in acks and "erased" not in acks:
            sure.pop()
        assert set(sure) <= set(there), f"{sure} acknowledged, {there} there"
        assert len(there) <= len([ack for ack in acks if ack.rstrip("?").isdigit()]) + 1
        if "erased" in acks:
            assert report.erased == 1
        before = await everything(journal)
        await journal.rebuild()
        assert await everything(journal) == before
        await journal.append("s", [note(9)], expected_pos=len(numbers))
        await journal.close()


class UpgradeScenario(Scenario):
    """Take a file from one format to the next."""

    async def fill(self) -> None:
        journal = SqliteJournal.open(self.path)
        await journal.append("s", STORY)
        await journal.close()

    def prepare(self) -> None:
        asyncio.run(self.fill())

    async def act(self) -> None:
        _sqlite_schema.UPGRADES.append(STEP)
        journal = SqliteJournal.open(self.path)
        self.ack("upgraded")
        await journal.append("s", [note(1)])
        self.ack("appended")
        await journal.close()

    async def check(self, power_cut: bool) -> None:
        db = apsw.Connection(str(self.path))
        ((version,),) = db.execute("pragma user_version").fetchall()
        tables = db.execute("select name from sqlite_schema where name='extra'").fetchall()
        db.close()
        assert (version, len(tables)) in ((FORMAT, 0), (FORMAT + 1, 1)), "half upgraded"
        assert version != FORMAT or "upgraded" not in self.acks()
        _sqlite_schema.UPGRADES.append(STEP)
        journal = SqliteJournal.open(self.path)
        assert journal.found.upgraded_from == (FORMAT if version == FORMAT else None)
        assert (await journal.verify()).records in (len(STORY), len(STORY) + 1)
        if "appended" in self.acks():
            assert await journal.last_seq() == len(STORY) + 1
        assert len(await journal.rows("runs")) == 4
        await journal.close()


class BackupScenario(UpgradeScenario):
    """Copy a journal that is in use."""

    async def act(self) -> None:
        journal = SqliteJournal.open(self.path)
        await journal.append("s", [note(1)])
        await journal.backup(str(self.path.with_name("backup.db")))
        self.ack("backed-up")
        await journal.close()

    async def check(self, power_cut: bool) -> None:
        journal = SqliteJournal.open(self.path)
        assert (await journal.verify()).records in (len(STORY), len(STORY) + 1)
        backup = self.path.with_name("backup.db")
        assert backup.exists() or "backed-up" not in self.acks()
        if backup.exists():
            copy = SqliteJournal.open(backup)
            assert (await copy.verify()).records == len(STORY) + 1
            assert await everything(copy) == await everything(journal)
            await copy.close()
        await journal.close()


SCENARIOS = {"append": AppendScenario, "upgrade": UpgradeScenario, "backup": BackupScenario}


def in_child(work: Callable[..., object], *args: object) -> int:
    """Do it in a process of its own; how that ended."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        work(*args)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the parent must hear of it, whatever it is
        traceback.print_exc()
        os._exit(1)


def die_at(scenario: Scenario, number: int, keep: Callable[[int], float] | None) -> None:
    """Act, and die at that operation."""
    # Nothing may depend on how fast the disk is.
    _writer.FAST_COMMIT, _writer.SYNC_AFTER = 1e9, 1000
    made = 0

    def before(op: Op) -> None:
        nonlocal made
        made += 1
        if made == number:
            if keep is not None:
                disk.cut_power(keep)
            os.kill(os.getpid(), signal.SIGKILL)

    disk = Disk(before)
    asyncio.run(scenario.act())


def look_after(scenario: Scenario, power_cut: bool) -> None:
    """Check what is left."""
    asyncio.run(scenario.check(power_cut))


def run(name: str, every: int, shift: int) -> None:
    """Die everywhere in one scenario, or at every so many operations."""
    deaths = 0
    for number in count(1 + shift % every, every):
        left = list(LEFT)[(deaths + shift) % len(LEFT)]
        with tempfile.TemporaryDirectory(prefix="everywhere-") as folder:
            scenario = SCENARIOS[name](Path(folder))
            assert in_child(scenario.prepare) == 0
            code = in_child(die_at, scenario, number, LEFT[left])
            if code == 0:
                break
            assert code == -signal.SIGKILL, f"{name} ended with {code} before operation {number}"
            if in_child(look_after, scenario, left != "kill"):
                kept = shutil.copytree(folder, tempfile.mkdtemp(), dirs_exist_ok=True)
                raise SystemExit(f"{name}, operation {number}, {left} left: see {kept}")
        deaths += 1
    print(f"{name}: died at {deaths} operations", flush=True)


def main() -> None:
    """Die as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=SCENARIOS)
    parser.add_argument("--every", type=int, default=1, help="die at every so many operations only")
    parser.add_argument("--shift", type=int, default=0, help="pair operations and cuts otherwise")
    options = parser.parse_args()
    for name in options.names:
        run(name, options.every, options.shift)


if __name__ == "__main__":
    main()
