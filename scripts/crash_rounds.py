"""Kill processes that write into one journal, again and again, and prove that the journal is whole each time.

    python scripts/crash_rounds.py --rounds 200

Each round four processes append at once to one file: two of them to a stream of their own, under a lease, with
epochs and expected positions; all of them to a shared stream. They are killed with SIGKILL at random moments,
together or one after another, some being replaced while the rest goes on. A worker notes every batch before it hands
it in and again when the journal has acknowledged it. After each round:

* every acknowledged record is there, once, with the hash that was acknowledged;
* every batch that was not acknowledged is there whole or not at all, and nothing is there that nobody handed in;
* the chain verifies, and projections folded again from zero are the same bytes;
* the epochs in a leased stream never go back, a dead worker's lease runs out, its successor gets a higher epoch, and
  the dead worker's epoch is refused.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from holdfast.contracts import Draft, Record
from holdfast.errors import LeaseHeld, StaleEpoch
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FakeClock

TTL_MS = 60_000
SHORT_TTL_MS = 80
ROUNDS_PER_FILE = 20


class Nursery:
    """The process that forks the workers."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("crash_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@dataclass
class Ledger:
    """What the workers of one file said."""

    tried: dict[str, int] = field(default_factory=dict)
    acked: dict[str, list[str]] = field(default_factory=dict)
    proved: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    claims: set[tuple[str, int]] = field(default_factory=set)
    stale: int = 0

    def take(self, log: Path) -> None:
        """Read one worker's log; its last line may be cut off, and then was never said."""
        for line in log.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            word, *rest = line.split()
            match word:
                case "try":
                    self.tried[rest[0]] = int(rest[1])
                case "ack":
                    self.acked[rest[0]] = rest[1:]
                case "claim":
                    claim = (rest[0], int(rest[1]))
                    assert claim not in self.claims, f"two workers got {claim}"
                    self.claims.add(claim)
                case "proved":
                    self.proved.add(rest[0])
                case "stale":
                    self.stale += 1
                case "error":
                    raise AssertionError(json.loads(line.partition(" ")[2]))
                case _:
                    pass


class Rounds:
    """All rounds, and what they add up to."""

    def __init__(self, folder: Path, seed: int, max_ms: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.max_ms = max_ms
        self.totals: Counter[str] = Counter()
        self.nursery = Nursery()
        self.ledger = Ledger()
        self.path = folder
        self.names = 0

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            if number % ROUNDS_PER_FILE == 0:
                self.path = self.folder / f"journal{number}.db"
                self.count_out()
                self.totals["files"] += 1
            mode = self.random.choice(["together", "together", "one by one", "replaced", "mixed"])
            self.kill_some(mode)
            asyncio.run(self.check())
            self.totals["rounds"] += 1
        self.count_out()

    def count_out(self) -> None:
        """Close the books of a file."""
        acked = self.ledger.acked.values()
        self.totals["acknowledged batches"] += len(acked)
        self.totals["acknowledged records"] += sum(int(ack[1]) - int(ack[0]) + 1 for ack in acked)
        self.totals["posted and proved batches"] += len(self.ledger.proved)
        self.totals["claims"] += len(self.ledger.claims)
        self.ledger = Ledger()

    # -- killing --------------------------------------------------------------------------------------

    def start(self, stream: str | None, ttl_ms: int) -> tuple[int, Path]:
        self.names += 1
        log = self.folder / f"worker{self.names}.log"
        log.touch()
        pid = self.nursery.ask(
            name=f"w{self.names}",
            stream=stream,
            ttl_ms=ttl_ms,
            path=str(self.path),
            seed=self.random.getrandbits(32),
            log=str(log),
        )
        return pid, log

    def kill_some(self, mode: str) -> None:
        """One round of four processes."""
        ttl_ms = SHORT_TTL_MS if mode == "replaced" else TTL_MS
        streams = ["own1", "own2", None, None]
        workers = [self.start(stream, ttl_ms) for stream in streams]
        alive = list(workers)
        # From before they have opened the file to well into the writing.
        self.pause(self.random.choice([0, self.max_ms]))
        if mode == "replaced":
            for at in (0, 2):
                self.kill(*workers[at])
                alive.remove(workers[at])
                alive.append(self.start(streams[at], ttl_ms))
            self.pause(2 * SHORT_TTL_MS + self.max_ms)
        if mode == "together":
            for pid, _ in alive:
                os.kill(pid, signal.SIGKILL)
        for pid, log in self.random.sample(alive, len(alive)):
            gently = mode == "mixed" and self.random.random() < 0.5
            self.kill(pid, log, signal.SIGTERM if gently else signal.SIGKILL)
            if mode == "one by one":
                self.pause(self.max_ms / 4)

    def kill(self, pid: int, log: Path, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(pid, how)
        code = self.nursery.ask(reap=pid)
        self.ledger.take(log)
        # One that was told to end before it had set up its handler dies of that.
        assert code in (0, -how), f"a worker ended with {code}"
        self.totals["killed" if code == -signal.SIGKILL else "ended"] += 1

    def pause(self, up_to_ms: float) -> None:
        time.sleep(self.random.uniform(0, up_to_ms) / 1000)

    # -- checking -------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Everything that must hold after a round."""
        clock = FakeClock(time.time_ns() // 1_000_000)
        journal = SqliteJournal.open(self.path, clock=clock)
        try:
            self.totals["recovered"] += journal.found.recovered
            records = [record async for record in journal.read_all()]
            self.check_batches(records)
            self.check_epochs(records)
            await self.check_leases(journal, clock)
            report = await journal.verify()
            assert report.ok, report
            assert report.records == await journal.last_seq() >= len(records)
            self.totals["verified"] += 1
            live = self.rows()
            await journal.rebuild()
            assert self.rows() == live, "projections differ from those folded again"
            self.totals["rebuilt the same"] += 1
            self.totals["largest file"] = max(self.totals["largest file"], report.records)
        finally:
            await journal.close()

    def check_batches(self, records: list[Record]) -> None:
        found: dict[str, list[Record]] = {}
        for record in records:
            if record.turn_id is not None:
                found.setdefault(record.turn_id.partition("/")[0], []).append(record)
        for batch, parts in found.items():
            size = self.ledger.tried.get(batch)
            assert size is not None, f"{batch} is there and nobody handed it in"
            marks = [f"{batch}/{at}/{size}" for at in range(size)]
            assert [part.turn_id for part in parts] == marks, f"{batch} is torn or doubled"
            assert parts[-1].seq - parts[0].seq == parts[-1].pos - parts[0].pos == size - 1
        for batch, ack in self.ledger.acked.items():
            parts = found.get(batch)
            assert parts is not None, f"{batch} was acknowledged and is lost"
            first, last = parts[0], parts[-1]
            there = [first.seq, last.seq, first.stream, first.pos, last.pos, last.hash]
            assert list(map(str, there)) == ack, f"{batch} is not what was acknowledged"
        lost = self.ledger.proved - found.keys()
        assert not lost, f"{lost} were posted before what was acknowledged, and are lost"
        unsaid = found.keys() - self.ledger.acked.keys() - self.ledger.proved - self.ledger.seen
        self.totals["unacknowledged, whole"] += len(unsaid)
        self.ledger.seen |= unsaid
        absent = self.ledger.tried.keys() - found.keys()
        self.totals["unacknowledged, absent"] += len(absent)
        for batch in absent:  # it must never come: if it does, nobody has handed it in
            del self.ledger.tried[batch]

    def check_epochs(self, records: list[Record]) -> None:
        """Nobody writes into a leased stream once a successor has."""
        last: dict[str, int] = {}
        owner: dict[tuple[str, int], str] = {}
        for record in records:
            name, sign, number = record.actor.partition("#")
            if not sign:
                continue
            epoch = int(number)
            assert epoch >= last.get(record.stream, 0), f"a fenced writer got into {record.stream}"
            assert owner.setdefault((record.stream, epoch), name) == name
            last[record.stream] = epoch

    async def check_leases(self, journal: SqliteJournal, clock: FakeClock) -> None:
        """The lease of a dead worker keeps others out until it runs out; then its epoch is over."""
        for stream in ("own1", "own2"):
            head = await journal.head(stream)
            if head.owner is None:
                continue
            if head.until > clock.now:
                try:
                    await journal.claim(stream, "successor", ttl_ms=1000)
                    raise AssertionError(f"the lease of {stream} was not respected")
                except LeaseHeld:
                    self.totals["leases respected"] += 1
                clock.now = head.until
            lease = await journal.claim(stream, "successor", ttl_ms=1000)
            assert lease.epoch == head.epoch + 1
            assert lease.pos == head.pos
            try:
                await journal.append(stream, [Draft(kind="crash.zombie")], epoch=head.epoch)
                raise AssertionError(f"a zombie wrote into {stream}")
            except StaleEpoch:
                self.totals["zombies refused"] += 1
            await journal.append(stream, [Draft(kind="crash.successor")], epoch=lease.epoch)
            await journal.release(lease)

    def rows(self) -> Sequence[tuple[object, ...]]:
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            sql = "select projection, key, cast(tag as blob), cast(value as blob) from"
            both = f"{sql} live union all {sql} rows"
            return db.execute(f"{both} order by projection, key").fetchall()
        finally:
            db.close()


def main() -> int:
    """Run the rounds, print one line; 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--max-ms", type=int, default=200, help="longest time before a kill")
    options = parser.parse_args()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="crash-rounds-"))
    rounds = Rounds(folder, options.seed, options.max_ms)
    try:
        rounds.run(options.rounds)
    except BaseException:
        print(f"failed in round {rounds.totals['rounds']}; the files are in {folder}")
        raise
    finally:
        rounds.nursery.close()
    shutil.rmtree(folder)
    totals = rounds.totals
    took = time.monotonic() - started
    print(f"seed {options.seed}, {took:.0f} s: {json.dumps(totals)}")
    print(
        f"{totals['rounds']} rounds of kill -9, 4 processes:"
        f" {totals['acknowledged records']} records acknowledged, 0 lost, 0 duplicated,"
        f" chain verified {totals['verified']} times"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
