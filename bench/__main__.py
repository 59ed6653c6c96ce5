"""`python -m bench [start|machines|append|run|calls …] [--check]`: print the figures; with `--check`, fail on a miss."""

from __future__ import annotations

import sys
from importlib import import_module

import anyio

from bench._report import Report


def main() -> int:
    """Run the chosen parts, or all."""
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or [
        "start",
        "machines",
        "append",
        "run",
        "calls",
    ]
    report = Report()
    for part in chosen:
        print(f"-- {part}")
        module = import_module(f"bench.{part}")
        if part in ("start", "machines"):
            module.measure(report)
        else:
            anyio.run(module.measure, report)
    print(f"-- {len(report.lines)} figures, {report.missed} missed")
    return 1 if report.missed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
