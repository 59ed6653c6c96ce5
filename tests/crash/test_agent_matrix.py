"""An agent's run killed with SIGKILL at its points, resumed in new processes: nothing lost, nothing twice."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_matrix.py"


@pytest.mark.parametrize(("tale", "every"), [("agent-code", 16), ("agent-tools", 9)])
def test_run_killed_anywhere_ends_the_same(tale: str, every: int) -> None:
    """At all points, each by its name: `scripts/crash_matrix.py agent-code agent-tools --list`; here, at some."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), tale, "--every", str(every), "--shift", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, points, steps, twice, summary = done.stdout.splitlines()
    passed, _, counted = undisturbed.partition(": ")[2].split()[:3]
    assert int(passed) > 150, "the story passes fewer points than it did"
    assert int(counted) > 150, "the story takes fewer steps than it did"
    for line, least in ((points, 15), (steps, 5), (twice, 4)):
        assert int(line.partition("killed ")[2].split()[0]) >= least, line
    assert ", 0 lost, 0 twice" in summary
