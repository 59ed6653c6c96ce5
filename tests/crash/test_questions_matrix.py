"""A run whose call asks a person, killed with SIGKILL at its points: asked once, answered once, done once."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_matrix.py"


def test_run_that_asks_killed_anywhere_ends_the_same() -> None:
    """At all points: `scripts/crash_matrix.py question`; here, at every eighth."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "question", "--every", "8", "--shift", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, points, _, _, summary = done.stdout.splitlines()
    passed = undisturbed.partition(": ")[2].split()[0]
    assert int(passed) > 80, "the story passes fewer points than it did"
    assert int(points.partition("killed ")[2].split()[0]) >= 10, points
    assert ", 0 lost, 0 twice" in summary
