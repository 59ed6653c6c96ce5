"""Runs the programs in `bench/peers`, interleaved in rounds, and keeps what they print.

A round runs each program once, so that a slow moment of the machine hits all of them; ratios are taken inside a round.
A program that fails, or whose environment cannot be made, is named in the report and counts as a miss.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench._report import Report
from bench.environments import CACHE, ROOT, Unavailable, interpreter, last_line

TIMEOUT = 900


@dataclass(frozen=True)
class Program:
    """One peer in one variant."""

    peer: str
    """Its program is `bench.peers.run_<peer>`."""
    variant: str = ""
    environment: str | None = None
    """The lock it runs with, where that does not have the peer's name."""

    def __str__(self) -> str:
        return f"{self.peer} {self.variant}".strip().replace("_", "-")

    @property
    def here(self) -> bool:
        """Whether it runs in this interpreter's environment: the floor and holdfast do."""
        return self.peer in ("bare", "holdfast")


Round = dict[Program, dict[str, float]]
"""What each program printed in one round."""


@dataclass
class Campaign:
    """Rounds of programs, and the misses among them."""

    report: Report
    peers: bool = True
    """Whether the peers run too, or only the floor and holdfast."""
    rounds: int | None = None
    """How many rounds, where that is not what a part thinks right."""
    _broken: set[str] = field(default_factory=set)

    def rounded(
        self,
        bench: str,
        ours: Sequence[Program],
        peers: Sequence[Program] = (),
        *,
        rounds: int = 5,
        peer_rounds: int | None = None,
        **options: object,
    ) -> Rounds:
        """Run all programs in rounds; the peers only in the first `peer_rounds`, where they take long."""
        count = self.rounds or rounds
        among = min(count, peer_rounds or count) if self.peers else 0
        done: list[Round] = []
        with scratch() as folder:
            for at in range(count):
                programs = [*ours, *(peers if at < among else ())]
                got = {one: self.run(one, bench, folder, **options) for one in programs}
                done.append({one: figures for one, figures in got.items() if figures})
        return Rounds(done)

    def run(
        self, program: Program, bench: str, folder: Path, **options: object
    ) -> dict[str, float]:
        """Run one program; give back what it printed, or nothing if it failed."""
        return self._tried(program, bench, folder, options) or {}

    def succeeds(self, program: Program, bench: str, folder: Path, **options: object) -> bool:
        """Run one program that prints nothing; whether it worked."""
        return self._tried(program, bench, folder, options) is not None

    def _tried(
        self, program: Program, bench: str, folder: Path, options: dict[str, object]
    ) -> dict[str, float] | None:
        key = f"{bench}, {program}"
        if key in self._broken:
            return None
        try:
            return self._run(program, bench, folder, options)
        except Unavailable as error:
            # Once is enough: it would fail in the next round as well.
            self._broken.add(key)
            self.report.absent(key, str(error))
            return None

    def _run(
        self, program: Program, bench: str, folder: Path, options: dict[str, object]
    ) -> dict[str, float]:
        python = (
            sys.executable
            if program.here
            else str(interpreter(program.environment or program.peer))
        )
        command = [python, "-W", "ignore", "-m", f"bench.peers.run_{program.peer}", bench]
        command += ["--folder", str(folder)]
        command += ["--variant", program.variant] if program.variant else []
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        try:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"took longer than {TIMEOUT} s") from None
        if done.returncode:
            raise Unavailable(last_line(done.stderr) or f"ended with {done.returncode}")
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {line["metric"]: float(line["value"]) for line in lines}


@dataclass(frozen=True)
class Rounds:
    """What the programs printed, round by round."""

    rounds: list[Round]

    def values(self, program: Program, metric: str) -> list[float]:
        """One figure of one program, in each round it has it."""
        return [one[program][metric] for one in self.rounds if metric in one.get(program, {})]

    def median(self, program: Program, metric: str) -> float | None:
        """The median over the rounds; `None` when the program never ran."""
        found = self.values(program, metric)
        return median(found) if found else None

    def ratio(self, metric: str, ours: Program, base: Program) -> float | None:
        """The median of the rounds' own ratios; `None` when there is no round with both."""
        found = [
            one[ours][metric] / one[base][metric]
            for one in self.rounds
            if metric in one.get(ours, {}) and metric in one.get(base, {})
        ]
        return median(found) if found else None

    def within(self, program: Program, metric: str, base: str) -> float | None:
        """The median of one program's own ratios of two figures; `None` when it never ran."""
        both = zip(self.values(program, metric), self.values(program, base), strict=True)
        found = [one / other for one, other in both]
        return median(found) if found else None

    def best(self, metric: str, among: Iterable[Program], *, least: bool) -> Program | None:
        """The program with the least or the greatest median; `None` when none of them ran."""
        medians = {one: self.median(one, metric) for one in among}
        known = {one: value for one, value in medians.items() if value is not None}
        if not known:
            return None
        return (min if least else max)(known, key=lambda one: known[one])


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for files; on the disk of the checkout, because a temporary folder may be in memory."""
    CACHE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=CACHE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
