"""`holdfast ask`: one question to an agent, on models by script, in processes of its own."""

import json
import signal
import time
from pathlib import Path

import pytest


def test_the_result_is_printed_as_json(in_process, script):
    done = in_process("ask", "Say hello.", *script("talk"))
    assert done.code == 0
    told = done.json
    assert (told["status"], told["text"], told["output"], told["turns"]) == (
        *("completed", "Hello.", "Hello."),
        1,
    )
    assert told["id"] == told["run_id"]
    assert told["usage"]["output_tokens"] > 0


def test_without_a_model_it_says_how_to_set_one(in_process):
    done = in_process("ask", "hello")
    assert done.code == 2
    error = done.json["error"]
    assert error["code"] == "INVALID_ARGUMENT"
    for way in ("--model", "HOLDFAST_MODEL", "[agent]"):
        assert way in error["hint"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "nobody"], "names no model"),
        (["--model", "scripted:nowhere.json"], "names no script"),
        (["--model", "scripted:x", "--run-budget", "apples=3"], "names no budget"),
        (["--model", "scripted:x", "--run-budget", "tokens=many"], "NAME=NUMBER"),
        (["--model", "scripted:x", "--output-schema", "nowhere.json"], "can't be read"),
    ],
)
def test_what_makes_no_sense_is_refused(in_process, arguments: list[str], says: str):
    done = in_process("ask", "hello", *arguments)
    assert done.code == 2
    assert says in done.json["error"]["message"]


def test_an_empty_prompt_is_refused(in_process, script):
    done = in_process("ask", "-", *script("talk"), stdin=b" \n")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")


def test_the_model_comes_from_the_settings(holdfast, script, tmp_path: Path):
    (tmp_path / "holdfast.toml").write_text(f'[agent]\nmodel = "{script("talk")[1]}"\n')
    assert holdfast("ask", "-", stdin=b"Say hello.").json["text"] == "Hello."
    assert holdfast("ask", "x", HOLDFAST_MODEL=script("odd")[1]).json["text"].endswith("red\x07")


def test_fallbacks_instructions_and_budget_come_from_the_settings(
    in_process, script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "holdfast.toml"
    bad, good = script("broken")[1], script("echo")[1]
    settings.write_text(
        f'[agent]\nmodel = "{bad}"\nfallbacks = ["{good}"]\ninstructions = "Be brief."\n'
    )
    assert in_process("ask", "x").json["text"] == "Be brief."
    assert in_process("ask", "x", "--instructions", "Be long.").json["text"] == "Be long."
    settings.write_text(f'[agent]\nmodel = "{good}"\n[agent.budget]\ntokens = 10\n')
    assert in_process("ask", "x").json["error"]["code"] == "BUDGET_EXCEEDED"
    assert in_process("ask", "x", "--run-budget", "tokens=100000").code == 0


def test_it_goes_on_with_a_fallback(in_process, script):
    bad, good = script("broken"), script("talk")[1]
    assert in_process("ask", "x", *bad, "--fallback", good).json["text"] == "Hello."


def test_it_writes_code_unless_told_otherwise(in_process, script):
    assert in_process("ask", "x", *script("offered")).json["text"].split()[0] == "run_code"
    assert (
        in_process("ask", "x", *script("offered"), "--code").json["text"].split()[0] == "run_code"
    )
    assert "run_code" not in in_process("ask", "x", *script("offered"), "--tools").json["text"]


def test_a_conversation_goes_on_in_another_process(holdfast, script):
    first = holdfast("ask", "one", *script("talk"), "--session-id", "s").json
    again = holdfast("ask", "two", *script("talk"), "--session-id", "s").json
    assert (first["text"], again["text"]) == ("Hello.", "Hello again.")
    listed = holdfast("runs", "list", "--session-id", "s").json["items"]
    assert [(one["kind"], one["status"]) for one in listed] == [("agent", "completed")] * 2


def test_words_go_to_stdout_and_the_rest_to_stderr(holdfast, script, world, tools):
    done = holdfast("ask", "Buy.", *script("buys"), *tools, "--no-json")
    assert done.code == 3
    assert done.out == "I count, then I pay.\n"
    for told in ("pay('ada', n)", '→ count(what="a")', "✓ 1", "pay(cents=1", "approvals approve"):
        assert told in done.err, told
    assert "\x1b" not in done.err


def test_what_a_model_says_does_not_steer_the_terminal(in_process, script):
    done = in_process("ask", "x", *script("odd"), "--no-json")
    assert done.out == "\\x1b[31mred\\x07\n"


def test_on_a_terminal_it_is_told_in_colour_as_it_goes(terminal, script, world, tools):
    shown = terminal("ask", "Buy.", *script("buys"), *tools)
    assert shown.end() == 3
    assert "\x1b[" in shown.shown
    assert "I count, then I pay." in shown.shown
    assert " tokens" in shown.shown
    assert "waiting for approval" in shown.shown


def test_without_colour_if_so_told(terminal, script, world, tools):
    shown = terminal("ask", "Buy.", *script("buys"), *tools, NO_COLOR="1")
    assert shown.end() == 3
    assert "pay('ada', n)" in shown.shown  # in one piece: nothing is coloured within it


def test_a_run_that_waits_goes_on_in_the_process_that_approves(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools)
    assert (parked.code, parked.json["status"]) == (3, "waiting_for_approval")
    run_id, approval = parked.json["id"], parked.json["approvals"][0]
    assert holdfast("runs", "resume", run_id).code == 3  # nothing has changed
    done = holdfast("approvals", "approve", approval)
    assert done.code == 0
    assert (done.json["run"]["id"], done.json["run"]["output"]) == (run_id, "Ada is paid.")
    assert world.done == ["count a", "pay ada 1"]
    again = holdfast("runs", "resume", run_id)
    assert (again.code, again.json["output"]) == (0, "Ada is paid.")
    assert world.done == ["count a", "pay ada 1"]


def test_a_denial_is_told_to_the_model(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("direct"), *tools, "--tools").json
    done = holdfast(
        "approvals", "deny", parked["approvals"][0], "--reason", "too dear", "--no-json"
    )
    assert done.code == 0
    assert "Ada is paid." in done.out  # the model says so whatever it is told
    shown = holdfast("runs", "show", parked["id"], "--no-json").out
    assert "too dear" in shown
    assert world.done == []


def test_a_run_is_shown_step_by_step(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools, "--session-id", "s").json
    holdfast("approvals", "approve", parked["approvals"][0])
    shown = holdfast("runs", "show", parked["id"], "--no-json").out
    steps = ["› Buy.", "I count, then I pay.", "count('a')", "→ count", "waits for a person"]
    steps += ["resumed", "→ pay", '✓ "paid ada 1"', "n is 1", "Ada is paid."]
    places = [shown.find(step) for step in steps]
    assert -1 not in places, steps[places.index(-1)]
    assert places == sorted(places)
    told = holdfast("runs", "show", parked["id"]).json
    assert (told["kind"], told["result"]["output"]) == ("agent", "Ada is paid.")
    made = [one["name"].partition(":")[0] for one in told["effects"]]
    assert made == ["model", "count", "approval", "pay", "model"]
    # Wide, because the model's name holds the script's path: where it wraps is up to where the checkout lies.
    wide = {"COLUMNS": "400"}
    records = holdfast("journal", "show", "--session-id", "s", "--no-json", **wide).out
    for told in ("provider_request · model:scripted", "turn 2", "by the agent · code", "tokens"):
        assert told in records, told
    assert "agent" in holdfast("session", "show", "s", "--no-json").out


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@pytest.fixture
def schema(tmp_path: Path) -> list[str]:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return ["--output-schema", str(tmp_path / "schema.json")]


def test_an_output_that_fits_is_the_output(in_process, script, schema):
    done = in_process("ask", "Which city?", *script("typed"), *schema)
    assert (done.code, done.json["output"]) == (0, {"city": "Oslo", "people": 709})


def test_an_output_that_does_not_fit_fails(in_process, script, schema):
    done = in_process("ask", "Which city?", *script("wrong"), *schema)
    assert done.code == 1
    assert done.json["output"] is None
    assert done.json["output_error"]
    assert "no output" in in_process("ask", "?", *script("wrong"), *schema, "--no-json").err


def test_a_schema_must_be_one(in_process, script, tmp_path: Path):
    (tmp_path / "schema.json").write_text("[1]")
    done = in_process(
        "ask", "x", *script("typed"), "--output-schema", str(tmp_path / "schema.json")
    )
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")


def test_a_model_that_fails_fails_the_run(in_process, script):
    done = in_process("ask", "x", *script("broken"))
    assert (done.code, done.json["status"], done.json["error"]["code"]) == (
        *(1, "failed"),
        "MODEL_AUTH",
    )
    assert "No key." in in_process("ask", "x", *script("broken"), "--no-json").err


def test_max_turns_is_enforced(in_process, script):
    done = in_process("ask", "x", *script("long"), "--max-turns", "2")
    assert done.code != 0
    assert done.json["turns"] == 2
    assert done.json["error"]["code"] == "MAX_TURNS"


def test_run_budget_is_enforced(in_process, script):
    done = in_process("ask", "x", *script("long"), "--run-budget", "tokens=10")
    assert done.code != 0
    assert done.json["error"]["code"] == "BUDGET_EXCEEDED"


def test_the_sessions_budget_is_enforced(in_process, script):
    done = in_process("ask", "x", *script("long"), "--budget", "tokens=10")
    assert done.code != 0
    assert done.json["error"]["code"] == "BUDGET_EXCEEDED"


def test_a_timeout_is_enforced(holdfast, script, world, tools):
    world.db.with_name("hang").touch()
    done = holdfast("ask", "x", *script("hangs"), *tools, "--timeout", "1500")
    assert done.code != 0
    assert done.json["error"]["code"] == "TIMEOUT_WALL"


# -- processes that end in the middle -----------------------------------------------------------------


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def thinking(holdfast, script, world, tools):
    """A process in which a model does not answer, and its run."""
    hang = world.db.with_name("hang")
    hang.touch()
    process = holdfast.start("ask", "Count.", *script("hangs"), *tools, "--session-id", "s")
    try:
        wait_for(world.db.with_name("asked"))
        yield process, hang
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run_of(holdfast, session: str) -> str:
    found = holdfast("runs", "list", "--session-id", session).json["items"]
    return next(one["id"] for one in found if one["kind"] == "agent")


def test_a_run_whose_process_was_killed_goes_on_in_a_fresh_one(holdfast, thinking, world):
    process, hang = thinking
    process.send_signal(signal.SIGKILL)
    process.wait()
    hang.unlink()
    done = holdfast("runs", "resume", run_of(holdfast, "s"))
    assert (done.code, done.json["output"]) == (0, "Counted.")
    assert world.done == ["count a"]


def test_it_goes_on_with_another_model_if_so_told(holdfast, thinking, script, world):
    process, _ = thinking
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = holdfast("runs", "resume", run_of(holdfast, "s"), *script("talk"))
    assert (done.code, done.json["output"]) == (0, "Hello again.")  # the second answer of that one


@pytest.fixture
def stopping(holdfast, script, world, tools):
    """A process that was told by Ctrl-C to stop while a model does not answer, and has understood."""
    hang = world.db.with_name("hang")
    hang.touch()
    ask = ["ask", "Count.", *script("hangs"), *tools, "--session-id", "s", "--no-json"]
    process = holdfast.start(*ask)
    try:
        wait_for(world.db.with_name("asked"))
        process.send_signal(signal.SIGINT)
        while b"stopping after this step" not in process.stderr.readline():
            assert process.poll() is None
        yield process, hang
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_ctrl_c_stops_after_the_step_it_is_at(holdfast, stopping, world):
    process, hang = stopping
    hang.unlink()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b"Counted.\n"  # what was being said is heard to its end
    assert b"CANCELLED" in err


def test_ctrl_c_twice_stops_at_once(holdfast, stopping, script):
    process, _ = stopping
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"CANCELLED" in err
    done = holdfast("ask", "Go on.", *script("talk"), "--session-id", "s")
    assert done.code == 0  # the conversation is usable


def test_sigterm_stops_at_once(thinking):
    process, _ = thinking
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["status"]) == (143, "cancelled")


def test_another_process_cancels_it(holdfast, thinking):
    process, _ = thinking
    view = holdfast("runs", "cancel", run_of(holdfast, "s")).json
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["status"] == "cancelled"
    assert view["kind"] == "agent"


def test_a_run_that_waits_is_cancelled_where_it_stands(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools).json
    assert holdfast("runs", "cancel", parked["id"]).json["status"] == "cancelled"
    assert holdfast("approvals", "list").json["items"] == []
    assert holdfast("runs", "resume", parked["id"]).json["status"] == "cancelled"


def test_an_effect_in_doubt_is_resolved_by_the_agents_run(holdfast, script, world, tools):
    world.stall.touch()
    (holdfast.home.parent / "holdfast.toml").write_text(
        '[[policy.rules]]\nid = "ok"\ntool = "ship"\nthen = "allow"\n'
    )
    ask = ["ask", "Ship.", *script("ships"), *tools, "--session-id", "s"]
    process = holdfast.start(*ask)
    try:
        world.wait_for("ship tea")
    finally:
        process.kill()
        process.communicate()
    world.stall.unlink()
    run_id = run_of(holdfast, "s")
    stands = holdfast("runs", "resume", run_id)
    assert (stands.code, stands.json["status"]) == (4, "needs_attention")
    effect = stands.json["in_doubt"][0]
    told = holdfast("runs", "resolve", run_id, effect, "--happened", '"shipped tea"')
    assert (told.code, told.json["status"]) == (0, "completed")
    done = holdfast("runs", "resume", run_id)
    assert (done.code, done.json["output"]) == (0, "It is on its way.")
    assert world.done == ["ship tea"]


def test_code_goes_on_with_the_agent_that_wrote_it(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools, "--session-id", "s").json
    holdfast("approvals", "approve", parked["approvals"][0], "--no-resume")
    listed = holdfast("runs", "list", "--session-id", "s").json["items"]
    code = next(one["id"] for one in listed if one["kind"] == "code")
    done = holdfast("runs", "resume", code)
    assert (done.code, done.json["id"]) == (0, parked["id"])


def test_a_question_while_a_run_stands_is_refused(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools, "--session-id", "s").json
    done = holdfast("ask", "And?", *script("buys"), "--session-id", "s")
    assert done.code != 0
    error = done.json["error"]
    assert error["code"] == "RUN_OPEN"
    # It is the agent's run that somebody has to see to, not the code it wrote.
    assert parked["id"] in error["message"]
    for way in (f"runs show {parked['id']}", "--steer", "--queue"):
        assert way in error["hint"]


@pytest.mark.parametrize("lane", ["steer", "queue"])
def test_words_are_left_while_a_run_stands(holdfast, script, world, tools, lane: str):
    here = ("--session-id", "s")
    parked = holdfast("ask", "Buy.", *script("buys"), *tools, *here).json
    left = holdfast("ask", "And then stop.", f"--{lane}", *here)
    assert left.code == 0
    assert (left.json["session_id"], left.json["lane"]) == ("s", lane)
    done = holdfast("approvals", "approve", parked["approvals"][0]).json["run"]
    assert (done["id"], done["status"]) == (parked["id"], "completed")

    def said() -> list[tuple[str, str | None]]:
        records = holdfast("journal", "show", "--session-id", "s").json["items"]
        told = [one for one in records if one["kind"] == "run_prompted"]
        return [(one["run_id"], one["payload"].get("input_id")) for one in told]

    # Those who steer are heard by the run that stood, the others by the next one.
    if lane == "queue":
        assert said() == []
        after = holdfast("ask", "Go on.", *script("talk"), *here).json
        assert said()[0] == (after["id"], left.json["id"])
    else:
        assert said() == [(parked["id"], left.json["id"])]


def test_words_need_a_session_and_one_way_to_leave_them(in_process, script):
    assert in_process("ask", "x", "--queue").code == 2
    assert in_process("ask", "x", "--queue", "--steer", "--session-id", "s").code == 2
    done = in_process("ask", "x", "--queue", "--session-id", "nobody")
    assert done.json["error"]["code"] == "SESSION_NOT_FOUND"


def test_a_daemon_tells_about_an_agents_run_and_goes_on_with_it(holdfast, script, world, tools):
    parked = holdfast("ask", "Buy.", *script("buys"), *tools).json
    holdfast("approvals", "approve", parked["approvals"][0], "--no-resume")
    asked = [
        {"method": "run.get", "params": {"run_id": parked["id"]}},
        {"method": "run.resume", "params": {"run_id": parked["id"]}},
        {"method": "run.get", "params": {"run_id": parked["id"]}},
    ]
    daemon = holdfast.start("daemon", "--listen", "stdio", talk=True)
    told = []
    try:
        for n, one in enumerate(asked):
            daemon.stdin.write(json.dumps({"jsonrpc": "2.0", "id": n, **one}).encode() + b"\n")
            daemon.stdin.flush()
            told.append(json.loads(daemon.stdout.readline())["result"])
    finally:
        daemon.communicate(timeout=60)
    before, done, after = told
    assert (before["kind"], before["result"]["id"]) == ("agent", parked["id"])
    assert (done["id"], done["output"]) == (parked["id"], "Ada is paid.")
    assert (after["status"], after["result"]["output"]) == ("completed", "Ada is paid.")


def test_a_spent_run_goes_on_with_more(in_process, script):
    spent = in_process("ask", "x", *script("long"), "--run-budget", "tokens=3000")
    assert (spent.code, spent.json["cause"]) == (4, "BudgetExhausted")
    more = ["--run-budget", "tokens=1000000"]
    done = in_process("runs", "resume", spent.json["id"], *more)
    assert (done.code, done.json["output"]) == (0, "Done.")
