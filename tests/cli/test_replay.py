"""`holdfast replay`: a recorded run again, nothing executed."""

from pathlib import Path

import pytest

CODE = "a = count('x')\nb = count('y')\n[a, b]"


@pytest.fixture
def recorded(holdfast, world, tools) -> str:
    done = holdfast("run", *tools, "-e", CODE)
    assert done.json["result"] == [1, 2]
    return done.json["run_id"]


def test_the_same_again_and_nothing_done(holdfast, world, recorded):
    done = holdfast("replay", recorded)
    assert (done.code, done.json["same"]) == (0, True)
    assert done.json["result"]["result"] == [1, 2]
    assert [one["name"] for one in done.json["calls"]] == ["count", "count"]
    assert "The same" in holdfast("replay", recorded, "--no-json").out
    assert world.done == ["count x", "count y"]


def test_other_code_is_answered_as_far_as_the_record_goes(holdfast, world, recorded, tmp_path):
    file = tmp_path / "other.py"
    file.write_text("count('y') * 10")
    done = holdfast("replay", recorded, "--code", str(file))
    assert (done.code, done.json["same"], done.json["result"]["result"]) == (1, False, 20)
    file.write_text("count('new')")
    done = holdfast("replay", recorded, "--code", str(file))
    assert done.code == 1
    assert "not on record" in done.json["stopped_at"]["message"]
    assert "not on record" in holdfast("replay", recorded, "--code", str(file), "--no-json").out
    assert world.done == ["count x", "count y"]


def test_another_policy_says_what_it_would_have_said(holdfast, recorded, tmp_path: Path):
    (tmp_path / "p.toml").write_text('[[rules]]\nid = "no-y"\ntool = "count"\nthen = "deny"\n')
    done = holdfast("replay", recorded, "--policy", "p.toml")
    assert [one["verdict_now"] for one in done.json["calls"]] == ["deny", "deny"]
    assert {one["rule_now"] for one in done.json["calls"]} == {"no-y"}


def test_a_run_nobody_knows(used):
    done = used("replay", "run_nobody")
    assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")


# -- of agents ----------------------------------------------------------------------------------------


@pytest.fixture
def agents(holdfast, script, world, tools) -> str:
    parked = holdfast("ask", "Buy.", *script("buys"), *tools).json
    done = holdfast("approvals", "approve", parked["approvals"][0])
    assert done.json["run"]["status"] == "completed"
    return parked["id"]


def test_an_agents_run_is_the_same_again_and_nothing_is_done(holdfast, world, agents):
    done = holdfast("replay", agents)
    assert (done.code, done.json["same"], done.json["turns"], done.json["calls"]) == (0, True, 2, 2)
    assert "The same" in holdfast("replay", agents, "--no-json").out
    assert world.done == ["count a", "pay ada 1"]


def test_another_model_goes_another_way(holdfast, script, world, agents):
    done = holdfast("replay", agents, *script("talk"))
    assert (done.code, done.json["same"]) == (1, False)
    told = holdfast("replay", agents, *script("talk"), "--no-json").out
    assert "It goes another way." in told
    assert "+Hello." in told
    assert world.done == ["count a", "pay ada 1"]


def test_another_prompt_changes_nothing_that_is_on_record(holdfast, agents):
    asked = ["--prompt", "Sell.", "--instructions", "Be brief."]
    assert holdfast("replay", agents, *asked).json["run_id"] == agents


def test_another_policy_judges_an_agents_calls(holdfast, agents, tmp_path: Path):
    (tmp_path / "p.toml").write_text('[[rules]]\nid = "no"\ntool = "count"\nthen = "deny"\n')
    done = holdfast("replay", agents, "--policy", str(tmp_path / "p.toml"))
    assert (done.code, done.json["same"]) == (1, False)
    assert done.json["difference"]["name"] == "count"


def test_what_is_not_for_this_kind_of_run_is_refused(
    holdfast, agents, world, tools, tmp_path: Path
):
    (tmp_path / "other.py").write_text("1")
    done = holdfast("replay", agents, "--code", str(tmp_path / "other.py"))
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    code = holdfast("run", "-e", "1").json["run_id"]
    done = holdfast("replay", code, "--prompt", "x")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
