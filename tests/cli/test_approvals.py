"""`holdfast approvals`: asked in one process, answered in another, done once."""

import os
import pwd
from pathlib import Path

import pytest

LOOP = """
for i in range(3):
    count(f"before {i}")
    pay("ada", i)
result = i
"""

APPROVAL = {
    *("id", "status", "tool", "arguments", "side_effect", "risk", "summary", "session_id"),
    *("run_id", "effect_id", "requested_at", "deadline", "decision"),
}


@pytest.fixture
def parked(holdfast, world, tools) -> dict:
    """A run that waits at the first call of the loop; its process is gone."""
    done = holdfast("run", "--session-id", "s", *tools, "-e", LOOP)
    assert (done.code, done.json["status"]) == (3, "waiting_for_approval")
    assert world.done == ["count before 0"]
    return done.json


def test_approved_elsewhere_the_loop_goes_on_in_the_same_iteration(
    holdfast, world, parked, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # What the session was opened with is remembered: nothing is repeated, and the folder is another.
    done = holdfast("approvals", "approve", parked["approval_id"], cwd=elsewhere)
    assert done.code == 3
    assert done.json["status"] == "approved"
    run = done.json["run"]
    assert (run["status"], run["run_id"]) == ("waiting_for_approval", parked["run_id"])
    assert world.done == ["count before 0", "pay ada 0", "count before 1"]
    done = holdfast("approvals", "approve", run["approval_id"])
    done = holdfast("approvals", "approve", done.json["run"]["approval_id"])
    assert done.code == 0
    assert (done.json["run"]["status"], done.json["run"]["result"]) == ("ok", 2)
    once = [f"{what} {i}" for i in range(3) for what in ("count before", "pay ada")]
    assert world.done == once
    assert holdfast("journal", "verify").json["ok"]


def test_an_approval_has_its_shape_and_names_who_decided(holdfast, parked):
    listed = holdfast("approvals", "list").json
    assert listed["next"] is None
    [one] = listed["items"]
    assert set(one) >= APPROVAL
    assert (one["tool"], one["arguments"]) == ("pay", {"to": "ada", "cents": 0})
    assert (one["status"], one["side_effect"], one["risk"]) == ("pending", "write", "medium")
    assert (one["session_id"], one["run_id"]) == ("s", parked["run_id"])
    assert holdfast("approvals", "show", one["id"]).json == one
    done = holdfast("approvals", "deny", one["id"], "--reason", "not today", "--no-resume").json
    assert set(done) == set(one)
    user = pwd.getpwuid(os.getuid()).pw_name
    decision = {"decision": "denied", "reason": "not today", "actor": user, "via": "cli"}
    assert done["decision"] == decision
    assert one["decided_at"] is None
    assert one["requested_at"] <= done["decided_at"]
    assert "decided  " in holdfast("approvals", "show", one["id"], "--no-json").out
    assert holdfast("approvals", "list").json["items"] == []
    assert holdfast("approvals", "list", "--status", "decided").json["items"] == [done]


def test_the_environment_does_not_say_who_decided(holdfast, parked):
    done = holdfast(
        "approvals", "deny", parked["approval_id"], "--no-resume", USER="mallory", LOGNAME="mallory"
    )
    assert done.json["decision"]["actor"] == pwd.getpwuid(os.getuid()).pw_name


def test_denied_the_code_is_told(holdfast, world, parked):
    done = holdfast("approvals", "deny", parked["approval_id"], "--reason", "too much")
    assert done.code == 1
    run = done.json["run"]
    assert (run["status"], run["error"]["code"]) == ("permission_denied", "PERMISSION_DENIED")
    assert "pay ada 0" not in world.done
    # The session goes on, and a second answer comes too late.
    assert holdfast("run", "--session-id", "s", "-e", "i").json["result"] == 0
    late = holdfast("approvals", "approve", parked["approval_id"])
    assert (late.code, late.json["error"]["code"]) == (1, "APPROVAL_CLOSED")


def test_for_the_session_nobody_is_asked_again_until_it_is_revoked(holdfast, world, parked):
    done = holdfast("approvals", "approve", parked["approval_id"], "--for-session")
    assert (done.code, done.json["run"]["result"]) == (0, 2)
    assert world.done.count("pay ada 2") == 1
    [grant] = holdfast("approvals", "grants", "s").json["items"]
    assert (grant["tool"], grant["session_id"]) == ("pay", "s")
    revoked = holdfast("approvals", "revoke", grant["id"])
    assert (revoked.code, revoked.json) == (0, {"id": grant["id"], "status": "revoked"})
    assert holdfast("approvals", "grants", "s").json["items"] == []
    assert holdfast("approvals", "revoke", grant["id"]).json["error"]["code"] == "NOT_FOUND"
    assert holdfast("run", "--session-id", "s", "-e", "pay('bob', 1)").code == 3


def test_a_run_that_still_waits_is_left_alone(holdfast, parked):
    before = holdfast("journal", "verify").json["root"]
    done = holdfast("runs", "resume", parked["run_id"])
    assert (done.code, done.json["approval_id"]) == (3, parked["approval_id"])
    assert holdfast("journal", "verify").json["root"] == before


def test_decided_now_resumed_later(holdfast, world, parked):
    done = holdfast("approvals", "approve", parked["approval_id"], "--no-resume")
    assert (done.code, done.json["status"]) == (0, "approved")
    assert "run" not in done.json
    assert world.done == ["count before 0"]
    done = holdfast("runs", "resume", parked["run_id"])
    assert done.code == 3
    assert world.done == ["count before 0", "pay ada 0", "count before 1"]


def test_a_session_with_a_run_that_waits_takes_no_other(holdfast, parked):
    done = holdfast("run", "--session-id", "s", "-e", "1")
    assert (done.code, done.json["error"]["code"]) == (1, "RUN_OPEN")
    assert parked["run_id"] in done.json["error"]["hint"]


def test_without_its_capabilities_a_run_is_not_resumed(holdfast, world, tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text((Path(__file__).parent / "world.py").read_text())
    code = "pay('ada', 1)"
    run = holdfast("run", "--capabilities", "own", "-e", code).json
    own.rename(tmp_path / "moved.py")
    done = holdfast("approvals", "approve", run["approval_id"])
    assert done.code == 2
    assert done.json["status"] == "approved"
    assert "own.py" in done.json["run"]["error"]["message"]
    # Told where it is now, it goes on: what is given here wins.
    done = holdfast("runs", "resume", run["run_id"], "--capabilities", "moved")
    assert (done.code, done.json["result"]) == (0, "paid ada 1")
    assert world.done == ["pay ada 1"]


def test_people_see_what_would_happen(holdfast, parked):
    listed = holdfast("approvals", "list", "--no-json").out
    assert parked["approval_id"] in listed
    assert 'pay(cents=0, to="ada")' in listed
    shown = holdfast("approvals", "show", parked["approval_id"], "--no-json").out
    assert "may touch  write" in shown
    assert f"holdfast approvals approve {parked['approval_id']}" in shown
    done = holdfast("approvals", "approve", parked["approval_id"], "--for-session", "--no-json")
    assert done.code == 0
    assert "pay: approved_for_session." in done.out
    assert "pay" in holdfast("approvals", "grants", "s", "--no-json").out


def test_looking_makes_nothing(holdfast):
    assert holdfast("approvals", "list").json == {"items": [], "next": None}
    assert holdfast("approvals", "plans").json == {"items": [], "next": None}
    for command in (["show"], ["approve"], ["deny"], ["revoke"]):
        done = holdfast("approvals", *command, "apr_none")
        assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")
    assert not holdfast.home.exists()


def test_bad_usage(in_process):
    assert in_process("approvals", "list", "--status", "odd").code == 2


# -- plans --------------------------------------------------------------------------------------------


def test_a_plan_is_approved_as_a_whole_and_kept_to(holdfast, world, tools):
    code = "for i in range(2):\n    pay('ada', i)\ncount('read')"
    run = ["run", "--session-id", "s", *tools, "-e", code]
    dry = holdfast(*run, "--dry-run")
    assert dry.code == 0
    plan = dry.json["plan_id"]
    assert [one["name"] for one in dry.json["plan"]] == ["pay", "pay"]
    assert [one["arguments"]["cents"] for one in dry.json["plan"]] == [0, 1]
    assert {one["verdict"] for one in dry.json["plan"]} == {"ask"}
    assert world.done == ["count read"]

    [waiting] = holdfast("approvals", "plans").json["items"]
    assert waiting["id"] == plan
    assert len(holdfast("approvals", "show", plan).json["effects"]) == 2
    early = holdfast(*run, "--plan", plan)
    assert (early.code, early.json["error"]["code"]) == (2, "INVALID_ARGUMENT")

    approved = holdfast("approvals", "approve", plan)
    assert (approved.code, approved.json["status"]) == (0, "approved")
    done = holdfast(*run, "--plan", plan)
    assert (done.code, done.json["status"]) == (0, "ok")
    assert world.done[1:] == ["pay ada 0", "pay ada 1", "count read"]
    # It is good for one run.
    assert holdfast(*run, "--plan", plan).code == 2


def test_a_plan_is_told_to_people(holdfast, world, tools):
    dry = holdfast("run", *tools, "-e", "pay('ada', 1)", "--dry-run", "--no-json")
    assert 'pay(to="ada", cents=1)' in dry.out
    assert "holdfast approvals approve plan_" in dry.out
    assert "plans that wait: 1" in holdfast("approvals", "list", "--no-json").out
    assert "plan_" in holdfast("approvals", "plans", "--no-json").out
    assert world.done == []
