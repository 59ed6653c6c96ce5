"""The official conformance suite: here, some of its scenarios for servers; all of them: `scripts/conformance_server.py`."""

import json

from tests.mcp.support import run_script

SAMPLE = """
    tools-call-mixed-content tools-call-with-progress tools-call-elicitation tools-call-sampling resources-templates-read
    prompts-get-with-args
""".split()


def test_sampled_scenarios_pass():
    ran = json.loads(run_script("conformance_server.py", "--json", *SAMPLE))
    assert [one["scenario"] for one in ran if one["passed"]] == SAMPLE


def test_all_scenarios_are_run_by_the_script():
    assert len(run_script("conformance_server.py", "--list").splitlines()) == 32
