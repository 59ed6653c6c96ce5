"""What tests of the crash matrix share: one story killed at some of its points, and what must be true of it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_matrix.py"


class Least(NamedTuple):
    """How much has to have happened: fewer would mean that the matrix looks at less than it did."""

    passed: int
    """Points that the undisturbed story passes, and more."""
    points: int
    """Points at which it was killed."""
    steps: int
    """Steps of the journal at which it was."""
    twice: int
    """Points at which it was, and again when it went on."""


def killed(tale: str, *, every: int, shift: int, least: Least) -> None:
    """Tell the story, killed with SIGKILL at each of its points but some; nothing is lost, nothing happens twice."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), tale, "--every", str(every), "--shift", str(shift)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, points, steps, twice, summary = done.stdout.splitlines()
    passed, _, counted = undisturbed.partition(": ")[2].split()[:3]
    assert int(passed) > least.passed, "the story passes fewer points than it did"
    assert int(counted) > 150, "the story takes fewer steps than it did"
    for line, wanted in ((points, least.points), (steps, least.steps), (twice, least.twice)):
        assert int(line.partition("killed ")[2].split()[0]) >= wanted, line
    assert ", 0 lost, 0 twice" in summary
