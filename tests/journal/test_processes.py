"""Several processes on one file."""

# ruff: noqa: ASYNC220 - a test keeps nobody waiting
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts import Draft, Record
from holdfast.journal.sqlite import SqliteJournal

PROLOGUE = """
import asyncio, json, sys
from holdfast.contracts import Draft
from holdfast.errors import HoldfastError
from holdfast.journal.sqlite import SqliteJournal

def note(n):
    return Draft(kind="test.note", payload={"n": n})

def say(*words):
    print(json.dumps(words), flush=True)

def hear():
    return sys.stdin.readline()

journal = None

async def main():
    global journal
    path, name = sys.argv[1:]
    journal = SqliteJournal.open(path)
    say("open", journal.found.upgraded_from)
    hear()
    await act(name)
    await journal.close()

"""

# Writes as long as nobody else got in between; where somebody did, starts over from where the stream is.
OPTIMIST = """
async def act(name):
    won = 0
    while won < 30:
        pos = (await journal.head("shared")).pos
        try:
            await journal.append("shared", [note([name, won, part]) for part in range(2)], expected_pos=pos)
            won += 1
        except HoldfastError as why:
            assert why.code == "STALE_POSITION", why
    say("won")

asyncio.run(main())
"""

WRITER = """
async def act(name):
    for n in range(40):
        await journal.append(name, [note([name, n])], durable=n % 4 == 0)
        await journal.append("shared", [note([name, n, part]) for part in range(3)])
    say("done")

asyncio.run(main())
"""

FOLLOWER = """
from contextlib import aclosing

async def act(name):
    hashes = []
    async with aclosing(journal.subscribe(after=0)) as events:
        async for record in events:
            hashes.append([record.seq, record.hash])
            if len(hashes) == 320:
                break
    say(*hashes)

asyncio.run(main())
"""


class Process:
    """Another process, which opens the journal, waits for a word, and then acts."""

    def __init__(self, path: Path, act: str, name: str) -> None:
        command = [sys.executable, "-c", PROLOGUE + act, str(path), name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hear("open", None)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def hear(self, *expected: object) -> list[Any]:
        assert self._process.stdout is not None
        words = json.loads(self._process.stdout.readline())
        assert words[: len(expected)] == list(expected)
        return words

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def read(journal: SqliteJournal, stream: str | None = None) -> list[Record]:
    found = journal.read_all() if stream is None else journal.read(stream)
    return [record async for record in found]


async def test_writers_that_expect_a_position_never_interleave(path: Path):
    processes = [Process(path, OPTIMIST, name) for name in ("a", "b")]
    for process in processes:
        process.go()
    for process in processes:
        process.hear("won")
        process.end()
    journal = SqliteJournal.open(path)
    said = [record.payload["n"] for record in await read(journal, "shared")]
    batches = [said[at : at + 2] for at in range(0, len(said), 2)]
    assert len(batches) == 60
    for name in ("a", "b"):
        own = [[[name, n, 0], [name, n, 1]] for n in range(30)]
        assert [batch for batch in batches if batch in own] == own
    assert (await journal.verify()).ok
    await journal.close()


async def test_a_subscriber_in_another_process_loses_and_repeats_nothing(path: Path):
    follower = Process(path, FOLLOWER, "follower")
    writers = [Process(path, WRITER, name) for name in ("a", "b")]
    for process in (follower, *writers):
        process.go()
    seen = follower.hear()
    for process in (follower, *writers):
        process.end()
    journal = SqliteJournal.open(path)
    everyone = await read(journal)
    assert seen == [[record.seq, record.hash] for record in everyone]
    assert (await journal.verify()).records == 320
    await journal.close()


async def test_a_backup_while_others_write_is_a_prefix(path: Path, tmp_path: Path):
    journal = SqliteJournal.open(path)
    await journal.append("shared", [Draft(kind="test.first")])
    writers = [Process(path, WRITER, name) for name in ("a", "b")]
    for process in writers:
        process.go()
    backups: list[Path] = []
    while await journal.last_seq() < 321:
        backups.append(tmp_path / f"backup{len(backups)}.db")
        await journal.backup(str(backups[-1]))
    for process in writers:
        process.end()
    everyone = await journal.page(None, 0, 1000)
    assert len(everyone) == 321
    assert len(backups) > 1
    sizes: list[int] = []
    for backup in backups[:: max(1, len(backups) // 5)]:
        copy = SqliteJournal.open(backup)
        assert (await copy.verify()).ok
        page = await copy.page(None, 0, 1000)
        assert page == everyone[: len(page)]
        before = {name: await copy.rows(name) for name in ("sessions", "runs", "effects")}
        await copy.rebuild()
        assert {name: await copy.rows(name) for name in before} == before
        sizes.append(len(page))
        await copy.close()
    assert sizes == sorted(sizes)
    await journal.close()


async def test_all_who_open_a_new_file_at_once_get_the_same_journal(path: Path):
    program = (
        "import sys; from holdfast.journal.sqlite import SqliteJournal; sys.stdin.readline();"
        "journal = SqliteJournal.open(sys.argv[1]); print(journal.found.upgraded_from)"
    )
    command = [sys.executable, "-c", program, str(path)]
    pipe = subprocess.PIPE
    openers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) for _ in range(6)]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write(b"\n")
        opener.stdin.flush()
    for opener in openers:
        out, error = opener.communicate()
        assert (out, error) == (b"None\n", b"")
    journal = SqliteJournal.open(path)
    assert (journal.found.created, journal.found.records) == (False, 0)
    await journal.append("s", [Draft(kind="a.b")])
    await journal.close()
