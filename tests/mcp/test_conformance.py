"""The official conformance suite: here, some of its scenarios for clients; all of them: `scripts/conformance.py`."""

import json

from tests.mcp.support import run_script

SAMPLE = """
    elicitation-sep1034-client-defaults sse-retry auth/basic-cimd auth/scope-step-up
    auth/2025-03-26-oauth-metadata-backcompat auth/cross-app-access-complete-flow
""".split()


def test_sampled_scenarios_pass():
    ran = json.loads(run_script("conformance.py", "--json", *SAMPLE))
    assert [one["scenario"] for one in ran if one["passed"]] == SAMPLE


def test_all_scenarios_are_run_by_the_script():
    assert len(run_script("conformance.py", "--list").splitlines()) == 26
