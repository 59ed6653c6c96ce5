"""An agent's run killed with SIGKILL at its points, resumed in new processes: nothing lost, nothing twice."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_matrix.py"


@pytest.mark.parametrize(("tale", "shift"), [("agent-code", 5), ("agent-tools", 7)])
def test_run_killed_anywhere_ends_the_same(tale: str, shift: int) -> None:
    """At all points, each by its name: `scripts/crash_matrix.py agent-code agent-tools --list`; here, at every twelfth."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), tale, "--every", "12", "--shift", str(shift)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, points, steps, twice, summary = done.stdout.splitlines()
    passed, _, counted = undisturbed.partition(": ")[2].split()[:3]
    assert int(passed) > 200, "the story passes fewer points than it did"
    assert int(counted) > 150, "the story takes fewer steps than it did"
    for line, least in ((points, 15), (steps, 5), (twice, 6)):
        assert int(line.partition("killed ")[2].split()[0]) >= least, line
    assert ", 0 lost, 0 twice" in summary
