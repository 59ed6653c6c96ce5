"""kill -9 and power cuts: what was acknowledged is there, what was not is absent or whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_eight_rounds_of_four_processes():
    """The full figure: `scripts/crash_rounds.py --rounds 200`."""
    totals, summary = run(ROOT / "scripts" / "crash_rounds.py", "--rounds", 8, "--seed", 8)[-2:]
    assert summary.startswith("8 rounds of kill -9, 4 processes:")
    assert "0 lost, 0 duplicated, chain verified 8 times" in summary
    counts = json.loads(totals.partition(": ")[2])
    assert counts["acknowledged records"] > 100
    assert counts["killed"] >= 8
    assert counts["rebuilt the same"] == 8


@pytest.mark.parametrize(("name", "every"), [("append", 4), ("upgrade", 3), ("backup", 4)])
def test_death_at_operations_on_the_files(name: str, every: int):
    """At all of them: `tests/crash/everywhere.py append upgrade backup`, with each `--shift` from 0 to 3."""
    (summary,) = run(Path(__file__).with_name("everywhere.py"), name, "--every", every)
    assert int(summary.removeprefix(f"{name}: died at ").split()[0]) >= 12
