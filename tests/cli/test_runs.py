"""`holdfast runs`: what stands goes on, is cancelled, or is told what became of it. Nothing happens twice."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

RUN = {
    *("id", "session_id", "kind", "status", "started_at", "ended_at", "usage", "error"),
    *("pending_approvals", "in_doubt"),
}
EFFECT = {"id", "kind", "name", "status", "intent_at", "result_at", "idempotent", "summary"}

ALLOW = '[[policy.rules]]\nid = "ships"\ntool = "ship"\nthen = "allow"\n'
PATIENT = ["--timeout", "60000", "--limit", "cpu_ms=60000"]


@pytest.fixture
def code() -> str:
    """What the run is about."""
    return "count('before'); x = ship('cake'); count('after'); x"


@pytest.fixture
def shipping(
    holdfast, world, tools, tmp_path: Path, code: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the middle of a write that has no key: it is done, and the answer is not there."""
    (tmp_path / "holdfast.toml").write_text(ALLOW)
    world.stall.touch()
    running = holdfast.start("run", *tools, *PATIENT, "-e", code)
    try:
        world.wait_for("ship cake")
        yield running
    finally:
        running.kill()
        running.communicate()


@pytest.fixture
def doubtful(holdfast, world, shipping) -> tuple[str, str]:
    """A run and its effect that nobody knows the end of."""
    shipping.send_signal(signal.SIGKILL)
    shipping.wait()
    world.stall.unlink()
    [run] = holdfast("runs", "list", "--status", "active").json["items"]
    assert run["status"] == "running"
    done = holdfast("runs", "resume", run["id"])
    assert (done.code, done.json["status"]) == (4, "interrupted")
    assert "`ship`" in done.json["error"]["message"]
    [effect] = done.json["in_doubt"]
    assert world.done == ["count before", "ship cake"]
    return run["id"], effect


def test_killed_in_a_write_without_a_key_it_is_named_and_not_repeated(holdfast, world, doubtful):
    run, effect = doubtful
    shown = holdfast("runs", "show", run).json
    assert set(shown) >= RUN
    assert (shown["status"], shown["in_doubt"]) == ("needs_attention", [effect])
    ship = next(one for one in shown["effects"] if one["id"] == effect)
    assert set(ship) >= EFFECT
    assert (ship["name"], ship["status"]) == ("ship", "unknown")
    # Resuming once more changes nothing.
    assert holdfast("runs", "resume", run).code == 4
    assert world.done == ["count before", "ship cake"]
    told = holdfast("runs", "show", run, "--no-json").out
    assert f"holdfast runs resolve {run} {effect}" in told


def test_it_happened(holdfast, world, doubtful):
    run, effect = doubtful
    done = holdfast("runs", "resolve", run, effect, "--happened", '"shipped by hand"')
    assert (done.code, done.json["id"], done.json["status"]) == (0, effect, "completed")
    done = holdfast("runs", "resume", run)
    assert (done.code, done.json["result"]) == (0, "shipped by hand")
    assert world.done == ["count before", "ship cake", "count after"]
    again = holdfast("runs", "resolve", run, effect, "--retry")
    assert (again.code, again.json["error"]["code"]) == (1, "EFFECT_NOT_IN_DOUBT")


def test_what_it_gave_is_held_against_what_it_promises(holdfast, doubtful):
    run, effect = doubtful
    done = holdfast("runs", "resolve", run, effect, "--happened", "5")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert "`ship` gave what it does not promise" in done.json["error"]["message"]
    assert holdfast("runs", "show", run).json["in_doubt"] == [effect]


def test_it_did_not_happen(holdfast, world, doubtful):
    run, effect = doubtful
    done = holdfast("runs", "resolve", run, effect, "--did-not-happen")
    assert (done.code, done.json["status"]) == (0, "failed")
    done = holdfast("runs", "resume", run)
    assert (done.code, done.json["error"]["code"]) == (1, "TOOL_ERROR")
    assert world.done == ["count before", "ship cake"]


def test_do_it_again(holdfast, world, doubtful):
    run, effect = doubtful
    done = holdfast("runs", "resolve", run, effect, "--retry", "--no-json")
    assert done.code == 0
    assert f"holdfast runs resume {run}" in done.out
    done = holdfast("runs", "resume", run)
    assert (done.code, done.json["result"]) == (0, "shipped cake")
    assert world.done == ["count before", "ship cake", "ship cake", "count after"]


def test_a_run_under_way_goes_on_where_it_is(holdfast, world, shipping):
    """Whoever resumes it meanwhile waits for it, and gets its result."""
    [run] = holdfast("runs", "list", "--status", "active").json["items"]
    impatient = holdfast("runs", "resume", run["id"], "--wait", "0")
    assert (impatient.code, impatient.json["status"]) == (0, "running")
    waiting = holdfast.start("runs", "resume", run["id"])
    world.stall.unlink()
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert b'"result":"shipped cake"' in out
    assert shipping.wait(60) == 0
    assert world.done.count("ship cake") == 1


def test_cancelled_from_another_process(holdfast, world, shipping):
    [run] = holdfast("runs", "list", "--status", "active").json["items"]
    done = holdfast("runs", "cancel", run["id"], "--reason", "changed my mind")
    assert (done.code, done.json["status"]) == (0, "cancelled")
    out, _ = shipping.communicate(timeout=60)
    assert shipping.returncode == 1, out
    assert b'"status":"cancelled"' in out
    world.stall.unlink()
    assert holdfast("run", "-e", "1").json["result"] == 1


@pytest.mark.parametrize("code", ["ship('cake')\nwhile True: pass"])
def test_cancelled_after_the_effect(holdfast, world, shipping):
    [run] = holdfast("runs", "list", "--status", "active").json["items"]
    cancel = holdfast.start("runs", "cancel", run["id"], "--after-effect")
    while not holdfast("journal", "show", "--kind", "run_cancel_requested").json["items"]:
        pass
    world.stall.unlink()
    out, _ = cancel.communicate(timeout=60)
    assert cancel.returncode == 0
    assert b'"status":"cancelled"' in out
    [effect] = holdfast("runs", "show", run["id"]).json["effects"]
    assert effect["status"] == "completed"


def test_a_run_that_waits_is_cancelled_where_it_stands(holdfast, world, tools):
    parked = holdfast("run", *tools, "-e", "pay('ada', 1)").json
    done = holdfast("runs", "cancel", parked["run_id"], "--no-json")
    assert (done.code, done.out) == (0, f"Run {parked['run_id']} is cancelled.\n")
    assert holdfast("approvals", "list").json["items"] == []
    late = holdfast("approvals", "approve", parked["approval_id"])
    assert late.json["error"]["code"] == "APPROVAL_CLOSED"
    assert holdfast("runs", "cancel", parked["run_id"]).json["status"] == "cancelled"
    assert world.done == []


def test_a_list_and_its_cursor(used):
    found = used("runs", "list").json
    assert len(found["items"]) == 5
    assert set(found["items"][0]) == RUN
    assert {one["kind"] for one in found["items"]} == {"code"}
    first = used("runs", "list", "--limit", "2").json
    second = used("runs", "list", "--after", first["next"]).json
    assert [*first["items"], *second["items"]] == found["items"]
    assert len(used("runs", "list", "--session-id", "a").json["items"]) == 3
    [failed] = used("runs", "list", "--status", "failed").json["items"]
    assert failed["error"]["code"] == "RUNTIME_ERROR"


def test_a_list_of_what_there_is_not_is_refused(used):
    for words, code, said in (
        (("--status", "bogus"), 2, "INVALID_ARGUMENT"),
        (("--session-id", "nope"), 2, "SESSION_NOT_FOUND"),
    ):
        refused = used("runs", "list", *words)
        assert (refused.code, refused.json["error"]["code"]) == (code, said)


def test_one_that_is_over_gives_its_result_again(used):
    run = used("runs", "list", "--session-id", "a").json["items"][1]
    shown = used("runs", "show", run["id"]).json
    assert (shown["status"], shown["effects"]) == ("completed", [])
    assert shown["result"]["result"] == 2
    # Tables show the end of an id; it is enough to name it.
    assert used("runs", "show", run["id"][-12:]).json == shown
    assert used("runs", "resume", run["id"]).json == shown["result"]


def test_people_see_tables(used):
    listed = used("runs", "list", "--no-json").out.splitlines()
    assert listed[0].split() == ["run", "session", "started", "status", "kind", "used"]
    assert len(listed) == 6
    run = listed[1].split()[0]
    shown = used("runs", "show", run, "--no-json").out
    assert "status   completed" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["resolve", "run_x", "eff_x"],
        ["resolve", "run_x", "eff_x", "--retry", "--did-not-happen"],
        ["resolve", "run_x", "eff_x", "--happened", "nonsense"],
        ["resolve", "run_x"],
    ],
    ids=" ".join,
)
def test_bad_usage(holdfast, in_process, arguments: list[str]):
    done = in_process("runs", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert not holdfast.home.exists()


@pytest.mark.parametrize("command", ["show", "resume", "cancel"])
def test_a_run_nobody_knows(holdfast, used, in_process, command: str):
    done = in_process("runs", command, "run_nobody")
    assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")
    assert not holdfast.home.exists()
    done = used("runs", command, "run_nobody")
    assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")


def test_looking_makes_nothing(holdfast):
    assert holdfast("runs", "list").json == {"items": [], "next": None}
    assert not holdfast.home.exists()


HOOK = """
[[hooks]]
id = "ledger"
point = "after_tool_call"
rights = ["rewrite_tool_result"]
failure = "{failure}"
timeout_ms = 60000
command = ["sh", "-c", "test ! -e broken"]
"""


def test_what_a_failed_hook_stops_is_resumed_once_it_is_repaired(holdfast, world, tools, tmp_path):
    (tmp_path / "holdfast.toml").write_text(ALLOW + HOOK.format(failure="interrupt_run"))
    (tmp_path / "broken").touch()
    done = holdfast("run", *tools, "-e", "ship('cake')")
    assert (done.code, done.json["status"]) == (4, "interrupted")
    assert [one["status"] for one in done.json["external_calls"]] == ["ok"]
    [run] = holdfast("runs", "list", "--status", "needs_attention").json["items"]
    (tmp_path / "broken").unlink()
    done = holdfast("runs", "resume", run["id"])
    assert (done.code, done.json["status"]) == (0, "ok")
    assert world.done == ["ship cake"]


def test_a_run_fails_with_a_hook_that_says_so(holdfast, world, tools, tmp_path):
    (tmp_path / "holdfast.toml").write_text(ALLOW + HOOK.format(failure="fail_run"))
    (tmp_path / "broken").touch()
    done = holdfast("run", *tools, "-e", "ship('cake')")
    assert (done.code, done.json["status"], done.json["error"]["code"]) == (
        1,
        "runtime_error",
        "HOOK_FAILED",
    )
    assert [one["status"] for one in done.json["external_calls"]] == ["ok"]
    assert world.done == ["ship cake"]
