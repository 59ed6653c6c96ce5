"""Starting: `import holdfast` and `holdfast --help` beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from bench._report import Report

ROUNDS = 11


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    started = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - started


def measure(report: Report) -> None:
    """Every figure of this module."""
    python = sys.executable
    commands = {
        "bare": [python, "-c", "pass"],
        "import": [python, "-c", "import holdfast"],
        "help": [str(Path(python).with_name("holdfast")), "--help"],
        "contracts": [python, "-c", "from holdfast import RunResult"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            took[name].append(seconds(command) * 1000)
    bare = median(took["bare"])
    beside = f"bare interpreter {bare:.0f} ms"
    report.at_most("import holdfast", median(took["import"]), 150, "ms", beside)
    report.at_most("holdfast --help", median(took["help"]), 200, "ms", beside)
    report.note("from holdfast import RunResult", median(took["contracts"]), "ms", beside)
