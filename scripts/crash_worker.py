"""The processes that `crash_rounds.py` kills: each writes into one journal as fast as it can, until it is dead.

Run by `crash_rounds.py` as a nursery: it imports everything once and then forks a worker for every line it reads,
so that a round costs milliseconds and the kill falls into the writing, not into the imports.
"""

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import anyio

from holdfast.contracts import Body, Draft, Json
from holdfast.errors import LeaseHeld, StaleEpoch, StalePosition
from holdfast.journal import Lease, _sqlite_store
from holdfast.journal.sqlite import SqliteJournal

LIMITS: dict[str, object] = {}
METRICS = {"duration_ms": 3, "external_calls_count": 1}


class Worker:
    """One process of a round."""

    def __init__(self, order: dict[str, object]) -> None:
        self.name = str(order["name"])
        self.stream = order["stream"]
        self.ttl_ms = int(str(order["ttl_ms"]))
        self.path = Path(str(order["path"]))
        self.random = random.Random(str(order["seed"]))
        self.log = os.open(str(order["log"]), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.parent = os.getppid()
        self.batches = 0
        self.posted: list[str] = []
        self.proved = 0
        self.stopping = False

    def say(self, *words: object) -> None:
        """One line, in one write: it is there whole or not at all, and whatever kills us next."""
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    async def main(self) -> None:
        # Some of the workers copy the log back all the time, so that kills fall into that as well.
        _sqlite_store.CHECKPOINT_PAGES = self.random.choice([8, 50, 1000])
        journal = SqliteJournal.open(self.path)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        async with anyio.create_task_group() as group:
            if self.stream is not None:
                group.start_soon(self.own, journal, str(self.stream))
            for _ in range(1 if self.stream is not None else 3):
                group.start_soon(self.share, journal)
            group.start_soon(self.watch_parent)
        await journal.close()
        self.say("closed")

    def stop(self) -> None:
        self.stopping = True

    async def watch_parent(self) -> None:
        while not self.stopping:
            if os.getppid() != self.parent:
                os._exit(1)
            await anyio.sleep(0.05)

    async def append(
        self, journal: SqliteJournal, stream: str, drafts: list[Draft], actor: str, **fence: int
    ) -> None:
        """Append one batch, announced before and acknowledged after, its marks in every record."""
        batch, marked = self.mark(drafts, actor)
        upto = len(self.posted)
        done = await journal.append(stream, marked, durable=self.random.random() < 0.7, **fence)
        self.say(
            "ack", batch, done.first_seq, done.seq, stream, done.first_pos, done.pos, done.hash
        )
        # Whatever was posted before this append was handed in is there, too.
        for earlier in self.posted[self.proved : upto]:
            self.say("proved", earlier)
        self.proved = max(self.proved, upto)

    def mark(self, drafts: list[Draft], actor: str) -> tuple[str, list[Draft]]:
        """Give a batch its name and announce it."""
        self.batches += 1
        batch = f"{self.name}.{self.batches}"
        size = len(drafts)
        self.say("try", batch, size)
        return batch, [
            draft.model_copy(update={"actor": actor, "turn_id": f"{batch}/{at}/{size}"})
            for at, draft in enumerate(drafts)
        ]

    async def share(self, journal: SqliteJournal) -> None:
        """Into the stream of all, without a lease; now and then without waiting."""
        while not self.stopping:
            drafts = [self.note() for _ in range(self.random.randint(1, 5))]
            if self.random.random() < 0.2:
                self.post(journal, drafts)
            else:
                await self.append(journal, "shared", drafts, self.name)

    def post(self, journal: SqliteJournal, drafts: list[Draft]) -> None:
        batch, marked = self.mark(drafts, self.name)
        journal.post("shared", lambda: marked, failed=self.refused)
        self.posted.append(batch)

    def refused(self, failure: BaseException) -> None:
        self.say("error", json.dumps(f"a post was refused: {failure!r}"))

    def note(self) -> Draft:
        data = self.random.randbytes(self.random.choice([10, 10, 3000]))
        bodies = (Body.of(data),) if self.random.random() < 0.2 else ()
        return Draft(kind="crash.note", payload={"n": self.random.random()}, bodies=bodies)

    async def own(self, journal: SqliteJournal, stream: str) -> None:
        """Into a stream of our own, under a lease, at positions we know."""
        lease: Lease | None = None
        pos = 0
        work = iter(())
        while not self.stopping:
            if lease is None:
                try:
                    lease = await journal.claim(stream, self.name, ttl_ms=self.ttl_ms)
                except LeaseHeld:
                    await anyio.sleep(0.005)  # of a worker that was killed: it runs out
                    continue
                pos = lease.pos
                self.say("claim", stream, lease.epoch)
                work = self.life(await journal.row("sessions", stream))
            drafts = [next(work) for _ in range(self.random.randint(1, 5))]
            actor = f"{self.name}#{lease.epoch}"
            try:
                await self.append(
                    journal, stream, drafts, actor, expected_pos=pos, epoch=lease.epoch
                )
                pos += len(drafts)
                if self.random.random() < 0.2:
                    lease = await journal.renew(lease, ttl_ms=self.ttl_ms)
            except StaleEpoch:
                self.say("stale", stream, lease.epoch)
                lease = None  # the machine was too slow for the lease
            except StalePosition as why:
                raise RuntimeError(f"somebody wrote into {stream} under our lease") from why
        if lease is not None:
            await journal.release(lease)

    def life(self, session: dict[str, Json] | None) -> Iterator[Draft]:
        """Records as a session writes them, without end; each may follow those before it."""
        if session is not None and session.get("open_run"):  # of a worker that was killed
            error = {"code": "INTERRUPTED", "message": "killed"}
            dead = {"status": "interrupted", "error": error, "metrics": {}, "state_kept": False}
            yield Draft.model_validate(
                {"kind": "run_failed", "payload": dead, "run_id": session["open_run"]}
            )
        if session is None:
            said = {"language": "python", "limits": LIMITS, "engine": "crash/1"}
            yield Draft(kind="session_created", payload=said)
        while True:
            run = f"run_{self.name}_{self.random.getrandbits(48):x}"
            effect = run.replace("run", "effect")
            started = {"kind": "code", "language": "python", "limits": LIMITS, "code": "ab" * 32}
            said = {"effect_id": effect, "kind": "file_write", "name": "f", "redacted_summary": ""}
            ended = {"effect_id": effect, "terminal_status": "completed", "redacted_summary": ""}
            for kind, payload in (
                ("run_started", started),
                ("effect_intent", said),
                ("effect_result", ended),
                ("usage_recorded", {"model": "m", "input_tokens": 1}),
                ("run_completed", {"result": "ab" * 32, "metrics": METRICS}),
            ):
                yield Draft(kind=kind, payload=payload, run_id=run)  # pyright: ignore[reportArgumentType]


def work(order: dict[str, object]) -> None:
    """Be a worker; never returns."""
    code = 1
    worker = Worker(order)
    try:
        asyncio.run(worker.main())
        code = 0
    except BaseException:  # noqa: BLE001 - the round must hear of it, whatever it is
        text = "".join(traceback.format_exception(*sys.exc_info()))
        worker.say("error", json.dumps(text))
    finally:
        os._exit(code)


def nursery() -> None:
    """Fork a worker for every order on standard input, reap those asked for, answer on standard output."""
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            children.discard(order["reap"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                work(order)
            children.add(answer)
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    nursery()
