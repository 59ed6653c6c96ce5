"""`python -m bench [part …]`: print the figures of all parts or some; with `--check`, fail on a miss."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

import anyio

from bench._report import Report
from bench.campaign import Campaign

PLAIN = ("start", "machines")
AWAITED = ("append", "run", "calls", "mcp", "serve")
COMPARED = ("turns", "resume", "crowd", "tokens")
"""Parts that run programs in environments of their own."""


def main() -> int:
    """Run the chosen parts, or all."""
    parts = (*PLAIN, *AWAITED, *COMPARED)
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one of {', '.join(parts)}")
    parser.add_argument("--check", action="store_true", help="fail when a figure misses its limit")
    parser.add_argument("--without-peers", action="store_true", help="only holdfast and the floors")
    parser.add_argument("--rounds", type=int, help="rounds of turns, resume and crowd")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    report = Report()
    campaign = Campaign(report, peers=not asked.without_peers, rounds=asked.rounds)
    for part in asked.parts or parts:
        print(f"-- {part}")
        module = import_module(f"bench.{part}")
        if part in PLAIN:
            module.measure(report)
        elif part in AWAITED:
            anyio.run(module.measure, report)
        else:
            module.measure(report, campaign)
    print(f"-- {len(report.lines)} figures, {report.missed} missed")
    return 1 if report.missed and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
