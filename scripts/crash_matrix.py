"""Kill a run at every point, resume it in a new process, and prove that nothing is lost and nothing done twice.

    python scripts/crash_matrix.py

The tales of code (`tests/crash/story.py`) have one read, one keyed write, one keyless write, one approval and a gather of three, one
after another and all at a time; the world they change is a SQLite file. An undisturbed process lists the points it passes: before and after every journal
append, every other operation on the journal, every step of the engine, every act of a capability; and it counts the steps
of its event loop, which are what lies between two awaits. Then, for each of them, a process is killed with SIGKILL right
there, and new processes take over until the story ends. Each of them checks first that the journal verifies, that its
projections folded again are the same, and that nothing was done without an intent on record. In the end:

* result, output, variables and the world are what they are without any death;
* the run stopped for a person only to ask about the keyless write, and was told what the world shows;
* the session made again from its record alone has the same variables.

The tales of agents (`tests/crash/agent_story.py`) have a model that writes code, or calls tools itself, with approvals and
a structured output; they say themselves what must hold. That of questions (`tests/crash/questions_story.py`) has a keyless
write that must know something from a person first.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.crash import agent_story, points, questions_story, story

from holdfast.capabilities.load import load
from holdfast.journal.sqlite import SqliteJournal

Target = str | int
"""A place by its label, or the number of a step of the event loop."""


class Tale(Protocol):
    """What is lived, in one process after another."""

    async def live(self, folder: Path, journal: SqliteJournal, *, check: bool) -> int:
        """Be one of them, to the end; how often somebody had to say what became of a keyless write."""
        ...


TALES: dict[str, Tale] = {**story.TALES, **agent_story.TALES, **questions_story.TALES}

STRAY = 10
"""Steps beyond those counted: timers make their number vary."""


@dataclass
class Tally:
    """What came of all cases."""

    died: Counter[str] = field(default_factory=Counter[str])
    missed: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    doubts: int = 0

    def add(self, case: Sequence[Target], said: dict[str, object]) -> None:
        """Count one case."""
        where = said["where"]
        assert isinstance(where, list)
        for target, place in zip(case, where, strict=True):
            if place is None:
                self.missed.append(str(target))
            else:
                self.died[_shown(target, place)] += 1
        self.doubts += int(str(said["doubts"]))

    def join(self, other: "Tally", name: str) -> None:
        """Count what another has counted, under a name."""
        self.died += Counter({f"{name}, {place}": n for place, n in other.died.items()})
        self.missed += other.missed
        self.failed += other.failed
        self.doubts += other.doubts


def _shown(target: Target, place: str) -> str:
    return target if isinstance(target, str) else f"step {target}, after `{place}`"


def in_child(work: Callable[[], object]) -> int:
    """Do it in a process of its own; how that ended."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the parent must hear of it, whatever it is
        traceback.print_exc()
        os._exit(1)


async def _live(folder: Path, generation: int, watched: bool, tale: Tale) -> int:
    kind = points.WatchedJournal if watched else SqliteJournal
    journal = kind.open(folder / "journal.db", clock=story.clock_of(generation))
    try:
        return await tale.live(folder, journal, check=not watched)
    finally:
        await journal.close()


def count(folder: Path, tale: Tale) -> None:
    """Live undisturbed, and write down what was passed."""
    found = points.watch(None)
    points.watch_steps()
    asyncio.run(_live(folder, 0, True, tale))
    (folder / "points").write_text(json.dumps({"labels": found.labels, "steps": found.steps}))


def victim(folder: Path, generation: int, target: Target, tale: Tale) -> None:
    """Live, and die there."""
    points.watch(target, folder / "died")
    if isinstance(target, int):
        points.watch_steps()
    asyncio.run(_live(folder, generation, True, tale))


def survivor(folder: Path, generation: int, tale: Tale) -> None:
    """Take over, and check everything."""
    doubts = asyncio.run(_live(folder, generation, False, tale))
    (folder / "doubts").write_text(str(doubts))


def run_case(case: Sequence[Target], folder: Path, tale: Tale) -> dict[str, object]:
    """Die at each target in turn, each in a new process, then take over."""
    where: list[str | None] = []
    for generation, target in enumerate(case):
        (folder / "died").unlink(missing_ok=True)
        code = in_child(lambda n=generation, t=target: victim(folder, n, t, tale))
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"{case}: process {generation} ended with {code}")
        where.append((folder / "died").read_text() if code else None)
    if in_child(lambda: survivor(folder, len(case), tale)):
        raise SystemExit(f"{case}: died at {where}")
    return {"where": where, "doubts": int((folder / "doubts").read_text())}


def run_all(cases: Iterator[Sequence[Target]], tale: Tale, jobs: int) -> Tally:
    """Several cases at a time, each in processes of its own."""
    tally = Tally()
    busy: dict[int, tuple[Sequence[Target], Path]] = {}
    todo = iter(cases)
    while True:
        while len(busy) < jobs and (case := next(todo, None)) is not None:
            folder = Path(tempfile.mkdtemp(prefix="crash-matrix-"))
            pid = os.fork()
            if pid == 0:
                _case_process(case, folder, tale)
            busy[pid] = (case, folder)
        if not busy:
            return tally
        pid, status = os.wait()
        case, folder = busy.pop(pid)
        if status:
            tally.failed.append(f"{list(case)}; see {folder}")
            continue
        tally.add(case, json.loads((folder / "said").read_text()))
        shutil.rmtree(folder)


def _case_process(case: Sequence[Target], folder: Path, tale: Tale) -> None:
    code = 1
    try:
        (folder / "said").write_text(json.dumps(run_case(case, folder, tale)))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent must hear of it, whatever it is
        traceback.print_exc()
    finally:
        os._exit(code)


def cases_of(
    labels: list[str], steps: int, options: argparse.Namespace
) -> dict[str, list[list[Target]]]:
    """Everything to die at, by kind."""
    singles: list[list[Target]] = [[label] for label in labels]
    awaits: list[list[Target]] = [[step] for step in range(1, steps + STRAY)]
    # The second process dies somewhere else each time; whether it comes that far depends on the first.
    pairs: list[list[Target]] = [
        [label, 1 + (number * 17) % 120] for number, label in enumerate(labels)
    ]
    every, shift = options.every, options.shift
    return {
        "points": singles[shift % every :: every],
        "steps": awaits[shift % (2 * every) :: 2 * every if every > 1 else 1],
        "twice": pairs[shift % (3 * every) :: 3 * every if every > 1 else 1],
    }


def matrix(name: str, options: argparse.Namespace) -> Tally:
    """Everything, of one tale."""
    tale = TALES[name]
    with tempfile.TemporaryDirectory(prefix="crash-matrix-") as folder:
        if in_child(lambda: count(Path(folder), tale)):
            raise SystemExit("FAILED: undisturbed")
        found = json.loads((Path(folder) / "points").read_text())
    print(f"{name}, undisturbed: {len(found['labels'])} points, {found['steps']} steps", flush=True)
    total = Tally()
    for kind, cases in cases_of(found["labels"], found["steps"], options).items():
        tally = run_all(iter(cases), tale, options.jobs)
        if options.list:
            for place, times in sorted(tally.died.items()):
                print(f"  {times} x {place}")
        print(
            f"{name}, {kind}: {len(cases)} cases, killed {tally.died.total()} times"
            f" at {len(tally.died)} points, {len(tally.missed)} not met, {tally.doubts} doubts",
            flush=True,
        )
        total.join(tally, kind)
    return total


def main() -> None:
    """Die as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tales", nargs="*", default=list(TALES), help="; ".join(TALES))
    parser.add_argument("--every", type=int, default=1, help="die at every so many points only")
    parser.add_argument("--shift", type=int, default=0, help="begin with another point")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--list", action="store_true", help="name every point")
    options = parser.parse_args()
    load(str(Path(story.__file__).with_name("world.py")))  # once, for all that are forked
    total = Tally()
    for name in options.tales:
        total.join(matrix(name, options), name)
    if total.failed:
        raise SystemExit("\n".join(["FAILED:", *total.failed]))
    print(
        f"killed {total.died.total()} times at {len(total.died)} points, 0 lost, 0 twice;"
        f" {total.doubts} times a person said what became of the keyless write"
    )


if __name__ == "__main__":
    main()
