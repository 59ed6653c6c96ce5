"""Run the official conformance suite of MCP against holdfast's client, and print what became of each scenario.

    python scripts/conformance.py [--list] [--jobs N] [--json] [SCENARIO ...]

Each scenario is a server that the suite starts, and a client (`tests/mcp/conformance_client.py`) that holdfast connects
to it as it connects any surface: with `McpSource`, and requests that `LeaseAuth` signs. The suite needs `make node`.
It ends with 1 if a scenario fails that is not in `NOT_YET`, or one passes that is.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from mcp_suite import ROOT, SECONDS, Ran, main, run

CLIENT = ROOT / "tests" / "mcp" / "conformance_client.py"

NOT_YET: dict[str, str] = {}
"""Scenario → why it does not pass."""


def run_all(wanted: dict[str, str], jobs: int) -> list[Ran]:
    """Each with a client of its own."""
    asked = ("client", "--command", f"{sys.executable} {CLIENT}", "--timeout", str(SECONDS * 1000))

    def one(scenario: str) -> Ran:
        return run(scenario, wanted[scenario], *asked, seconds=SECONDS + 30)

    with ThreadPoolExecutor(jobs) as pool:
        return [*pool.map(one, wanted)]


if __name__ == "__main__":
    sys.exit(main("client", NOT_YET, run_all))
