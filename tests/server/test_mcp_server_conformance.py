"""The official conformance suite: here, some of its scenarios for servers; all of them: `scripts/conformance_server.py`."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "conformance_server.py"

SAMPLE = """
    tools-call-mixed-content tools-call-with-progress tools-call-elicitation tools-call-sampling resources-templates-read
    prompts-get-with-args
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
    assert len(script("--list").splitlines()) == 32
