"""Run the official conformance suite of MCP against holdfast's server at `/mcp`, and print what became of each scenario.

    python scripts/conformance_server.py [--list] [--json] [SCENARIO ...]

The server (`tests/server/mcp_conformance_server.py`) is the whole app, with the tools, prompts and resources that the suite
expects from a module of capabilities. The suite needs `make node`. It ends with 1 if a scenario fails that is not in
`NOT_YET`, or one passes that is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from mcp_suite import ROOT, SECONDS, Ran, main, run

SERVER = ROOT / "tests" / "server" / "mcp_conformance_server.py"

NOT_YET: dict[str, str] = {
    "server-sse-polling": "the suite asks as 2025-03-26, which knows no priming events; from 2025-11-25 on they are sent",
}
"""Scenario → why it does not pass."""


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


def run_all(wanted: dict[str, str], _: int) -> list[Ran]:
    """One after another: they share the server."""
    with server() as url:
        return [run(name, spec, "server", "--url", url) for name, spec in wanted.items()]


if __name__ == "__main__":
    sys.exit(main("server", NOT_YET, run_all))
