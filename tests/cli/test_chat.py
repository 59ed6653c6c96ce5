"""`holdfast chat`: line by line from a pipe, and at a real terminal."""

import json

import pytest

YOU = "you › "


def test_each_line_of_a_pipe_is_a_message(holdfast, script):
    done = holdfast("chat", *script("talk"), stdin=b"one\n\n/cost\n")
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["text"] for one in told] == [
        "Hello.",
        "Hello again.",
    ]  # there are no commands there
    assert len({one["session_id"] for one in told}) == 1
    assert done.code == 0


def test_a_pipe_ends_at_a_run_that_waits(holdfast, script, world, tools):
    done = holdfast("chat", *script("buys"), *tools, stdin=b"buy\ny\n")
    assert done.code == 3
    assert [json.loads(line)["status"] for line in done.out.splitlines()] == [
        "waiting_for_approval"
    ]
    assert world.done == ["count a"]


def test_it_ends_as_its_last_run_did(holdfast, script):
    assert holdfast("chat", *script("broken"), stdin=b"one\n").code == 1
    assert holdfast("chat", *script("talk"), stdin=b"").code == 0


def test_as_text_a_pipe_has_commands(holdfast, script, world, tools):
    said = b"one\n/cost\n/help\n/tools\n/sessions\n/resume\n/nothing\n/quit\ntwo\n"
    done = holdfast("chat", *script("talk"), *tools, "--session-id", "s", "--no-json", stdin=said)
    lines = done.out.splitlines()
    assert lines[0] == "Hello."
    assert lines[1].endswith("tokens")
    for told in ("def pay(", "(this one)", "No run stands here.", "There is no `/nothing`"):
        assert told in done.out, told
    assert "Hello again." not in done.out
    assert "completed · 1 turn" in done.err


def test_without_a_model_it_says_so_before_anything_is_asked(holdfast):
    done = holdfast("chat", stdin=b"one\n")
    assert (done.code, done.json["error"]["message"]) == (2, "No model is set.")


# -- at a terminal ------------------------------------------------------------------------------------


def test_a_call_that_needs_a_person_asks_here(terminal, script, world, tools, holdfast):
    shown = terminal("chat", *script("buys"), *tools, "--session-id", "s")
    shown.expect(YOU)
    shown.type("buy it\r")
    shown.expect("I count, then I pay.")
    shown.expect("approve?")
    shown.type("y\r")
    shown.expect("Ada is paid.")
    shown.expect("total")
    shown.expect(YOU)
    shown.type("\x04")
    assert shown.end() == 0
    assert world.done == ["count a", "pay ada 1"]
    assert "buy it" in (holdfast.home / "chat_history").read_text()


def test_a_denial_can_say_why(terminal, script, world, tools, holdfast):
    shown = terminal("chat", *script("buys"), *tools, "--session-id", "s")
    shown.expect(YOU)
    shown.type("buy it\r")
    shown.expect("approve?")
    shown.type("n too dear\r")
    shown.expect("too dear")
    shown.expect(YOU)
    shown.type("/quit\r")
    assert shown.end() == 0
    assert world.done == ["count a"]


def test_later_is_an_answer_too(terminal, script, world, tools):
    shown = terminal("chat", *script("buys"), *tools, "--session-id", "s")
    shown.expect(YOU)
    shown.type("buy it\r")
    shown.expect("approve?")
    shown.type("l\r")
    shown.expect(YOU)
    shown.type("/quit\r")
    assert shown.end() == 3
    shown = terminal("chat", *script("buys"), "--session-id", "s")
    shown.expect("A run stands here")
    shown.expect(YOU)
    shown.type("/resume\r")
    shown.expect("approve?")
    shown.type("y\r")
    shown.expect("Ada is paid.")
    shown.expect(YOU)
    shown.type("/quit\r")
    assert shown.end() == 0
    assert world.done == ["count a", "pay ada 1"]


@pytest.fixture
def shipping(terminal, script, world, tools, holdfast):
    """A chat whose agent is in the middle of a call that does not end while `world.stall` is there."""
    world.stall.touch()
    (holdfast.home.parent / "holdfast.toml").write_text(
        '[[policy.rules]]\nid = "ok"\ntool = "ship"\nthen = "allow"\n'
    )
    shown = terminal("chat", *script("ships"), *tools, "--session-id", "s")
    shown.expect(YOU)
    shown.type("ship it\r")
    shown.expect("→ ")
    shown.expect("calling ship")
    return shown


def test_what_is_typed_while_it_works_reaches_it(shipping, world, holdfast):
    shipping.type("and tell m\x7fme\r")
    shipping.expect("(at its next step)")
    shipping.type("/cost\r")
    shipping.expect("(when it is done)")
    shipping.type("half a line")
    shipping.expect("half a line")
    world.stall.unlink()
    shipping.expect("It is on its way.")
    shipping.expect(YOU)
    shipping.expect("half a line")  # what was begun is not lost
    shipping.type("\x15/quit\r")
    assert shipping.end() == 0
    run_id = holdfast("runs", "list", "--session-id", "s").json["items"][0]["id"]
    told = holdfast("runs", "show", run_id, "--no-json").out
    assert told.find("› and tell me") < told.find("It is on its way.")
    assert "› and tell me" in told


def test_ctrl_c_stops_after_the_step_it_is_at(shipping, world):
    shipping.type("\x03")
    shipping.expect("stopping after this step")
    world.stall.unlink()
    shipping.expect("CANCELLED")
    shipping.expect(YOU)
    shipping.type("are you there?\r")
    shipping.expect("It is on its way.")  # the script's next answers: the conversation goes on
    shipping.expect(YOU)
    shipping.type("/quit\r")
    shipping.end()
    assert world.done == ["ship tea"]


def test_ctrl_c_twice_stops_at_once(shipping, world):
    shipping.type("\x03")
    shipping.expect("stopping after this step")
    shipping.type("\x03")
    shipping.expect("CANCELLED")
    shipping.expect(YOU)
    shipping.type("never mind")
    shipping.expect("never mind")
    shipping.interrupt_prompt(YOU)  # it only drops the line
    world.stall.unlink()
    shipping.type("/quit\r")
    assert shipping.end() == 1


def test_a_dumb_terminal_will_do(terminal, script, world, tools):
    shown = terminal("chat", *script("buys"), *tools, TERM="dumb")
    shown.expect("› ")
    shown.type("buy it\r")
    shown.expect("approve?")
    shown.type("s\r")
    shown.expect("Ada is paid.")
    shown.expect("› ")
    shown.type("go on \\\rover two lines\r")
    shown.expect("Anything else?")
    shown.type("/quit\r")  # perhaps before it is done: then afterwards
    assert shown.end() == 0
    assert "\x1b[2K" not in shown.shown  # nothing moves
