"""`holdfast approvals`: what a call asks of a person is shown, answered field by field, and used once."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli._forms import fields_of

TOOL = '''
from holdfast import Context, capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import NeedsAnswer, Question

FORM = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "title": "Size of the bed"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "quick": {"type": "boolean", "default": False},
    },
    "required": ["size"],
}


@capability(side_effect="read")
def book(what: str, context: Context) -> dict:
    """Book something."""
    answer = context.answers.get("q")
    if answer is None and what == "in":
        raise NeedsAnswer(Question(Asks.SIGN_IN, "Who are you?", url="https://id.example.com/x", key="q"))
    if answer is None:
        raise NeedsAnswer(Question(Asks.INPUT, "Which one?\\n\\x1b[2J", FORM, key="q", state={"hidden": 1}))
    return {"action": answer.action, "content": answer.content}
'''


@pytest.fixture
def parked(in_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs that wait for an answer; their process is gone."""
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "booking.py"
    file.write_text(TOOL)

    def park(what: str = "bed") -> dict[str, Any]:
        code = f"result = book('{what}')"
        done = in_process("run", "--session-id", what, "--capabilities", str(file), "-e", code)
        assert (done.code, done.json["status"]) == (3, "waiting_for_approval"), done.err
        return done.json

    return park


def test_what_is_asked_is_shown_as_the_words_of_somebody_else(in_process: Any, parked: Any) -> None:
    run = parked()
    assert "to answer a question of `book`" in run["error"]["message"]
    listed = in_process("approvals", "list", "--no-json").out
    assert "wants an answer: “Which one?" in listed
    shown = in_process("approvals", "show", run["approval_id"], "--no-json").out
    assert "“Which one?" in shown
    assert "\x1b[2J" not in shown
    assert "integer, required, at least 1 · “Size of the bed”" in shown
    assert 'string, optional, one of "red", "blue"' in shown
    assert f"approve {run['approval_id']} --field size=…" in shown
    told = in_process("approvals", "show", run["approval_id"]).json
    assert (told["asks"], told["form"]["required"]) == ("input", ["size"])
    assert "hidden" not in json.dumps(told)
    link = parked("in")
    shown = in_process("approvals", "show", link["approval_id"], "--no-json").out
    assert "a sign-in" in shown
    assert "https://id.example.com/x" in shown
    assert "https://id.example.com/x" in in_process("approvals", "list", "--no-json").out
    done = in_process("approvals", "approve", link["approval_id"])
    assert done.json["run"]["result"] == {"action": "accept", "content": None}


@pytest.mark.parametrize(
    ("options", "content"),
    [
        (["--field", "size=3", "--field", "tags=a, b"], {"size": 3, "tags": ["a", "b"]}),
        (["--field", "size=3", "--field", "quick=yes"], {"size": 3, "quick": True}),
        (["--answer", '{"size": 2, "colour": "red"}'], {"size": 2, "colour": "red"}),
    ],
)
def test_answered_with_options(
    in_process: Any, parked: Any, options: list[str], content: dict[str, Any]
) -> None:
    run = parked()
    done = in_process("approvals", "approve", run["approval_id"], *options)
    assert done.code == 0, done.out
    assert done.json["run"]["result"] == {"action": "accept", "content": content}


def test_answer_that_does_not_fit_leaves_the_question_open(in_process: Any, parked: Any) -> None:
    run = parked()
    id_ = run["approval_id"]
    for options, names in (
        ([], "size"),
        (["--field", "size=0"], "`size`"),
        (["--field", "size=big"], "`size`"),
        (["--answer", '{"size": 1, "colour": "green"}'], "`colour`"),
        (["--field", "weight=3"], "names no field"),
        (["--answer", "{"], "not JSON"),
        (["--answer", "{}", "--field", "size=1"], "twice"),
    ):
        done = in_process("approvals", "approve", id_, *options)
        assert done.code == 2, done.out
        assert names in done.json["error"]["message"]
    assert in_process("approvals", "show", id_).json["status"] == "pending"
    done = in_process("approvals", "deny", id_)
    assert done.json["run"]["result"] == {"action": "decline", "content": None}


def test_each_field_is_asked_for_on_a_terminal(holdfast: Any, in_process: Any, parked: Any) -> None:
    run = parked()
    # The size is wrong at first; what is optional is left out, but one.
    done = holdfast.on_terminal(
        *("approvals", "approve", run["approval_id"], "--no-json"),
        typed="0\n4\n\nyes\n\n",
        NO_COLOR="1",
    )
    assert done.code == 0, done.out
    assert "less than the minimum" in done.out
    assert "{'action': 'accept', 'content': {'quick': True, 'size': 4}}" in plain(done.out)
    assert in_process("runs", "show", run["run_id"]).json["status"] == "completed"


def test_in_a_repl(holdfast: Any, tmp_path: Path) -> None:
    file = tmp_path / "booking.py"
    file.write_text(TOOL)
    typed = "result = book('sofa')\ny\n4\n\n\n\n:quit\n"
    tools = ("--capabilities", str(file))
    done = holdfast.on_terminal("repl", *tools, typed=typed, NO_COLOR="1")
    assert "{'action': 'accept', 'content': {'size': 4}}" in plain(done.out)


def plain(shown: str) -> str:
    """What a terminal shows, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


def test_fields_of_strange_forms() -> None:
    assert fields_of(None) == []
    assert fields_of({"type": "object"}) == []
    (field,) = fields_of({"properties": {"x": True}})
    assert (field.kind, field.value("3"), field.value("x y")) == ("any", 3, "x y")
    (field,) = fields_of({"properties": {"x": {"oneOf": [{"const": "a"}, {"const": "b"}]}}})
    assert field.options == ["a", "b"]
