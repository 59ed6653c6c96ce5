"""The official conformance suite: here, some of its scenarios for clients; all of them: `scripts/conformance.py`."""

import json
import subprocess
import sys

from tests.mcp.support import HERE

SCRIPT = HERE.parents[1] / "scripts" / "conformance.py"

SAMPLE = """
    elicitation-sep1034-client-defaults sse-retry auth/basic-cimd auth/scope-step-up
    auth/2025-03-26-oauth-metadata-backcompat auth/cross-app-access-complete-flow
""".split()


def script(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sampled_scenarios_pass():
    ran = json.loads(script("--json", *SAMPLE))
    assert [one["scenario"] for one in ran if one["passed"]] == SAMPLE


def test_all_scenarios_are_run_by_the_script():
    assert len(script("--list").splitlines()) == 26
