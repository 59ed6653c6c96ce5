"""A run killed with SIGKILL at its points, resumed in new processes: nothing lost, nothing twice."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_matrix.py"


def test_a_run_killed_anywhere_ends_the_same():
    """At all points, named: `scripts/crash_matrix.py --list`; here, at every seventh."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--every", "7", "--shift", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, points, steps, twice, summary = done.stdout.splitlines()
    assert int(undisturbed.split()[1]) > 120, "the story passes fewer points than it did"
    for line, most in ((points, 15), (steps, 12), (twice, 8)):
        assert int(line.partition("killed ")[2].split()[0]) >= most, line
    assert ", 0 lost, 0 twice" in summary
