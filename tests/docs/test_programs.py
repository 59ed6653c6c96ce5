"""Every program in `examples/` runs, twice in the same folder, as a reader would."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_example_runs(program: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
