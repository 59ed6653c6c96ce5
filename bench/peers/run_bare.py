"""The floor: a loop with the same model and tool and no framework, and by hand what a durable one must at least write.

loop      nothing is stored.
durable   `c2`: the answer and the intent in one commit on disk before the tool runs, its result in another after it;
          `c1`: all three in one commit after it, which is not write-ahead. WAL, synchronous=FULL.
growth    `c2` in a session of many turns.
resume    `grow` writes the rows of a long session, `load` reads and parses them all.
crowd     tasks that hand rows to one thread, which commits all it finds; two rows a turn, both waited for.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter, time
from typing import Any

from bench.peers import frame
from bench.peers.frame import DONE, PAYLOAD, USER, Asked, Clock, Crowd, Tool

Message = dict[str, Any]


def model(messages: list[Message], turns: int) -> Message:
    """Call the tool until it has been called often enough."""
    at = (len(messages) - 1) // 2
    if at < turns:
        return {
            "role": "assistant",
            "tool_call": {"id": f"c{at}", "name": "tool", "args": {"n": at}},
        }
    return {"role": "assistant", "text": DONE}


def loop(asked: Asked) -> None:
    """Nothing is stored."""
    tool = Tool()

    async def answer(messages: list[Message]) -> Message:
        return model(messages, asked.turns)

    async def act(n: int) -> Message:
        return tool(n)

    async def session(_: int) -> str:
        messages: list[Message] = [{"role": "user", "text": USER}]
        while True:
            said = await answer(messages)
            messages.append(said)
            if "text" in said:
                return str(said["text"])
            call = said["tool_call"]
            out = await act(**call["args"])
            messages.append({"role": "tool", "id": call["id"], "content": json.dumps(out)})

    asyncio.run(frame.arepeat(asked, session, tool))


class Written:
    """A loop that writes down what it does."""

    def __init__(self, db: sqlite3.Connection, tool: Tool) -> None:
        self._db = db
        self._tool = tool

    def run(self, name: str, turns: int, variant: str, stamp: Callable[[], object]) -> str:
        """One session."""
        self._name, self._seq = name, 0
        messages: list[Message] = [{"role": "user", "text": USER}]
        self._commit(("input", messages[0]))
        while True:
            stamp()
            said = model(messages, turns)
            messages.append(said)
            if "text" in said:
                self._commit(("final", said))
                return str(said["text"])
            call = said["tool_call"]
            if variant == "c2":
                self._commit(("model", said), ("intent", call))
            out = self._tool(**call["args"])
            result = ("result", {"id": call["id"], "out": out})
            if variant == "c2":
                self._commit(result)
            else:
                self._commit(("model", said), ("intent", call), result)
            messages.append({"role": "tool", "id": call["id"], "content": json.dumps(out)})

    def _commit(self, *rows: tuple[str, Message]) -> None:
        self._db.execute("begin")
        for kind, body in rows:
            whole = {"ts": time(), "run": self._name, "kind": kind, "body": body}
            row = (self._name, self._seq, kind, json.dumps(whole))
            self._db.execute("insert into journal values (?,?,?,?)", row)
            self._seq += 1
        self._db.execute("commit")


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that keeps what it is told."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=full")
        db.execute(
            "create table if not exists journal (run text, seq integer, kind text, body text,"
            " primary key (run, seq)) without rowid"
        )
        yield db


def durable(asked: Asked) -> None:
    """One or two commits a turn."""
    tool, path = Tool(), frame.fresh(asked, "bare")
    with database(path) as db:
        empty = frame.size(path)
        written = Written(db, tool)
        frame.repeat(asked, lambda at: written.run(f"s{at}", asked.turns, asked.variant, int), tool)
    frame.disk(asked, path, empty)


def growth(asked: Asked) -> None:
    """What a turn costs early and late."""
    tool = Tool()
    with database(frame.fresh(asked, "bare")) as db:
        written = Written(db, tool)

        def grow(name: str, turns: int) -> list[float]:
            stamps: list[float] = []
            written.run(name, turns, "c2", lambda: stamps.append(perf_counter()))
            tool.ran(turns)
            return stamps

        frame.growth(asked, grow)


def resume(asked: Asked) -> None:
    """Read a whole session."""
    path = asked.folder / f"bare-{asked.turns}.db"
    if asked.variant == "grow":
        with database(path) as db:
            Written(db, Tool(PAYLOAD)).run("s", asked.turns, "c1", int)
        return
    started = perf_counter()
    with database(path) as db:
        rows = db.execute("select body from journal where run='s' order by seq")
        bodies = [json.loads(body) for (body,) in rows]
    assert len(bodies) == 3 * asked.turns + 2
    frame.emit(open_to_model_ms=(perf_counter() - started) * 1e3)


class Writer(threading.Thread):
    """The thread that commits for all sessions."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(daemon=True)
        self._path, self._loop = path, loop
        self.queue: queue.SimpleQueue[tuple[Any, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.commits = 0

    def append(self, *row: Any) -> asyncio.Future[None]:
        """Done when the row is on disk."""
        future = self._loop.create_future()
        self.queue.put((row, future))
        return future

    def run(self) -> None:
        with database(self._path) as db:
            going = True
            while going:
                batch = [self.queue.get()]
                while not self.queue.empty():
                    batch.append(self.queue.get())
                found = [item for item in batch if item is not None]
                going = len(found) == len(batch)
                db.execute("begin")
                rows = [row for row, _ in found]
                db.executemany("insert into journal values (?,?,?,?)", rows)
                db.execute("commit")
                self.commits += 1
                self._loop.call_soon_threadsafe(_wake, [future for _, future in found])


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def crowd(asked: Asked) -> None:
    """Many sessions, in memory or through one writer."""
    asyncio.run(_crowd(asked))


async def _crowd(asked: Asked) -> None:
    tool, people = Tool(), Crowd(asked)
    writer = Writer(frame.fresh(asked, "bare"), asyncio.get_running_loop())
    stored = asked.variant == "durable"
    if stored:
        writer.start()

    async def session(at: int) -> str:
        return await _turns(people.clock(), f"s{at}", asked.turns, tool, writer if stored else None)

    await people.measure(session, tool)
    if stored:
        writer.queue.put(None)
        writer.join()
        frame.emit(rows_per_commit=asked.sessions * asked.turns * 2 / writer.commits)


async def _turns(clock: Clock, name: str, turns: int, tool: Tool, writer: Writer | None) -> str:
    messages: list[Message] = [{"role": "user", "text": USER}]
    while (at := await clock.tick()) < turns:
        said: Message = {"role": "assistant", "tool_call": {"id": f"c{at}", "args": {"n": at}}}
        messages.append(said)
        if writer:
            await writer.append(name, 2 * at, "model", json.dumps(said))
        out = {"role": "tool", "id": f"c{at}", "content": json.dumps(tool(at))}
        messages.append(out)
        if writer:
            await writer.append(name, 2 * at + 1, "result", json.dumps(out))
    return DONE


if __name__ == "__main__":
    frame.main(loop=loop, durable=durable, growth=growth, resume=resume, crowd=crowd)
