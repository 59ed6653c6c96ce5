"""`holdfast repl`: from a pipe, block by block, and at a terminal."""

import json

import pytest

from holdfast.cli._blocks import Blocks

SAID = """\
x = 1
for i in range(3):
    x += i

def double(a):
    return a * 2
if x > 3:
    y = double(x)
else:
    y = 0
y
z = [1,
2]
1/0
z
"""


def blocks_of(text: str) -> list[str]:
    blocks = Blocks()
    found = [block for line in text.splitlines() for block in blocks.add(line)]
    rest = blocks.rest()
    return [one.rstrip("\n") for one in [*found, *([rest] if rest else [])]]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("\n\n", []),
        ("a\nb", ["a", "b"]),
        ("if a:\n    b\n\nc", ["if a:\n    b", "c"]),
        ("if a:\n    b\nc", ["if a:\n    b", "c"]),
        ("if a:\n    b\nelse:\n    c\nd", ["if a:\n    b\nelse:\n    c", "d"]),
        ("try:\n    a\nexcept E:\n    b\nfinally:\n    c\nd", None),
        ("x = (1,\n2)\ny", ["x = (1,\n2)", "y"]),
        ("'''a\n\nb'''\nc", ["'''a\n\nb'''", "c"]),
        ("@d\ndef f():\n    1\nf()", ["@d\ndef f():\n    1", "f()"]),
        ("await f()\na", ["await f()", "a"]),
        ("def broken(:\na", ["def broken(:", "a"]),
        ("if a:\n    b", ["if a:\n    b"]),
        ("# only a remark\na", ["# only a remark", "a"]),
    ],
)
def test_lines_become_blocks(text: str, blocks: list[str] | None):
    expected = [text.removesuffix("\nd"), "d"] if blocks is None else blocks
    assert blocks_of(text) == expected


def test_piped_blocks_share_a_session_and_give_a_result_each(holdfast):
    done = holdfast("repl", "--session-id", "s", stdin=SAID.encode())
    results = [json.loads(line) for line in done.out.splitlines()]
    told = [one["result"] for one in results if one["result"] is not None]
    assert told == [8, [1, 2]]
    failed = [one["error"]["code"] for one in results if "error" in one]
    assert failed == ["RUNTIME_ERROR"]
    assert done.code == 0
    assert holdfast("run", "--session-id", "s", "-e", "[x, y]").json["result"] == [4, 8]


def test_it_ends_as_its_last_run_did(holdfast):
    assert holdfast("repl", stdin=b"1\n1/0").code == 1
    assert holdfast("repl", stdin=b"").code == 0


def test_a_pipe_ends_at_a_run_that_waits(holdfast, world, tools):
    done = holdfast("repl", *tools, stdin=b"count('a')\npay('ada', 1)\ncount('b')\n")
    assert done.code == 3
    last = json.loads(done.out.splitlines()[-1])
    assert last["status"] == "waiting_for_approval"
    assert world.done == ["count a"]
    refused = holdfast("repl", stdin=b"1\n2\n")
    assert refused.code == 1
    assert [json.loads(line)["error"]["code"] for line in refused.out.splitlines()] == ["RUN_OPEN"]


def test_at_a_terminal_a_person_is_asked(holdfast, world, tools):
    typed = "for i in range(2): pay('ada', i)\n\ny\nn\n6 * 7\n:tools\n:names\n:help\n:odd\n:quit\n"
    done = holdfast.on_terminal("repl", *tools, typed=typed, NO_COLOR="1")
    assert "pay" in done.out
    assert "approve?" in done.out
    assert "PERMISSION_DENIED" in done.out
    assert "42" in done.out
    assert "def pay(to: str, cents: int) -> str:" in done.out
    assert ":resume" in done.out
    assert "There is no `:odd`" in done.out
    assert world.done == ["pay ada 0"]
    assert done.code == 0


def test_what_was_put_off_can_be_resumed(holdfast, world, tools):
    done = holdfast.on_terminal(
        "repl", *tools, typed="pay('ada', 1)\nl\n1\n:resume\ns\n:resume\n:reset\n:q\n", NO_COLOR="1"
    )
    assert "RUN_OPEN" in done.out
    assert "paid ada 1" in done.out
    assert "No run stands here." in done.out
    assert world.done == ["pay ada 1"]


def test_history_is_kept_for_its_owner(holdfast):
    holdfast.on_terminal("repl", typed="1 + 1\n:quit\n", NO_COLOR="1")
    history = holdfast.home / "history"
    assert "1 + 1" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
