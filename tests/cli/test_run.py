"""`holdfast run` and `holdfast validate`."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from holdfast.errors import JournalError
from holdfast.journal.sqlite_reader import SqliteReader


def test_json_is_a_run_result(holdfast):
    done = holdfast("run", "-e", "print('hi'); 6 * 7", "--json")
    assert done.code == 0
    assert done.json["status"] == "ok"
    assert done.json["result"] == 42
    assert done.json["stdout"] == "hi\n"
    assert done.json["run_id"].startswith("run_")
    assert "error" not in done.json
    assert done.err == ""


def test_code_comes_from_a_file_or_from_stdin(holdfast, tmp_path: Path):
    file = tmp_path / "code.py"
    file.write_bytes("x = 'grün'\r\nx\r\n".encode())
    assert holdfast("run", "-f", str(file)).json["result"] == "grün"
    assert holdfast("run", "-f", "-", stdin=b"x + '!'").json["result"] == "grün!"


def test_inputs_are_variables(holdfast):
    arguments = ["--input", "a=1", "--input", 'b={"c": [true, null, "x=y"]}']
    done = holdfast("run", "-e", "[a, b]", *arguments)
    assert done.json["result"] == [1, {"c": [True, None, "x=y"]}]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "-e", "1", "-f", "x"],
        ["run", "-f", "/nowhere/at/all"],
        ["run", "-f", "/"],
        ["run", "-f", "-"],  # the stdin of this test is not UTF-8
        ["run", "-e", "1", "--input", "a"],
        ["run", "-e", "1", "--input", "=1"],
        ["run", "-e", "1", "--input", "a b=1"],
        ["run", "-e", "1", "--input", "a=b"],
        ["run", "-e", "1", "--input", "a="],
        ["run", "-e", "1", "--input", "a=NaN"],
        ["run", "-e", "1", "--input", "a=1", "--input", "a=2"],
        ["run", "-e", "1", "--limit", "speed=1"],
        ["run", "-e", "1", "--limit", "cpu_ms=fast"],
        ["run", "-e", "1", "--limit", "cpu_ms=-1"],
        ["run", "-e", "1", "--limit", "cpu_ms"],
        ["run", "-e", "1", "--limit", "cpu_ms=1", "--limit", "cpu_ms=2"],
        ["validate"],
        ["validate", "-f", "/nowhere/at/all"],
    ],
    ids=" ".join,
)
def test_bad_arguments_are_refused_before_anything_is_made(
    holdfast, in_process, arguments: list[str]
):
    done = in_process(*arguments, stdin=b"'\xff'")
    assert done.code == 2
    assert done.json["status"] == "validation_error"
    assert done.json["error"]["code"] == "INVALID_ARGUMENT"
    assert done.json["diagnostics"][0]["message"] == done.json["error"]["message"]
    assert not holdfast.home.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["-e", "1/0"], "RUNTIME_ERROR", 1),
        (["-e", "x = ("], "SYNTAX_ERROR", 1),
        (["-e", "lambda: 1"], "RESULT_NOT_SERIALIZABLE", 1),
        (["-e", "open('/etc/passwd')"], "PERMISSION_DENIED", 1),
        (["-e", "x = 'a' * 10**9"], "MEMORY_EXCEEDED", 1),
        (["-e", "while True: pass", "--timeout", "200"], "TIMEOUT_WALL", 1),
        (["-e", "while True: pass", "--limit", "cpu_ms=200"], "TIMEOUT_CPU", 1),
        (["-e", "1", "--session-id", "no/slash"], "INVALID_SESSION_ID", 2),
        (["-e", "1", "--language", "cobol"], "INVALID_ARGUMENT", 2),
        (["-e", "1", "--timeout", "0"], "INVALID_ARGUMENT", 2),
        (["-e", "1", "--limit", "memory_mb=0"], "INVALID_ARGUMENT", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_exit_codes(holdfast, arguments: list[str], code: str, exit_code: int):
    done = holdfast("run", *arguments)
    assert (done.json["error"]["code"], done.code) == (code, exit_code)


def test_a_limit_leaves_the_others_as_they_are(holdfast):
    ask = "[current_policy()['limits'][k] for k in ('memory_mb', 'cpu_ms', 'wall_ms')]"
    done = holdfast("run", "-e", ask, "--limit", "memory_mb=32", "--limit", "cpu_ms=900")
    assert done.json["result"] == [32, 900, 5000]
    assert holdfast("run", "-e", ask, "--limit", "cpu_ms=800").json["result"] == [64, 800, 5000]


def test_validate_takes_what_run_takes(holdfast):
    ask = ("-e", "x + 1", "--input", "x=1", "--timeout", "500", "--limit", "cpu_ms=100")
    assert holdfast("validate", *ask).json["status"] == "ok"
    assert holdfast("run", *ask).json["result"] == 2
    assert holdfast("validate", "-e", "1", "--limit", "nothing=1").code == 2


def test_validate_runs_nothing(holdfast):
    assert holdfast("validate", "-e", "x = 1; print(x)").json["status"] == "ok"
    done = holdfast("validate", "-e", "x = (")
    assert done.code == 1
    assert done.json["status"] == "validation_error"
    assert done.json["error"]["code"] == "SYNTAX_ERROR"
    assert done.json["error"]["span"]["line"] == 1
    assert holdfast("session", "list").json["items"] == []


# -- for people ---------------------------------------------------------------------------------------


def test_a_terminal_gets_text(holdfast):
    done = holdfast.on_terminal("run", "-e", "print('[b]hi'); {'a': [1, 2]}", NO_COLOR="1")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == "[b]hi"
    assert "{'a': [1, 2]}" in plain(lines[1])
    assert plain(lines[2]).startswith("ok · ")
    assert "session default" in lines[2]


def test_an_error_points_at_the_place(holdfast):
    done = holdfast.on_terminal("run", "-e", "a = 1\nb = '日本'; c = a / 0\n", NO_COLOR="1")
    lines = plain(done.out).splitlines()
    assert done.code == 1
    assert lines[0] == "error RUNTIME_ERROR: ZeroDivisionError: division by zero"
    assert lines[1] == "  2 │ b = '日本'; c = a / 0"
    # Each of the two ideographs is two columns wide.
    assert lines[2] == "    │ " + " " * 16 + "^^^^^ line 2, column 15"


def test_a_traceback_through_functions_is_shown(holdfast):
    done = holdfast.on_terminal("run", "-e", "def f(x):\n\treturn 1 / x\nf(0)", NO_COLOR="1")
    shown = plain(done.out)
    assert 'File "<code>", line 3, in <module>' in shown
    assert "  2 │     return 1 / x\n    │            ^^^^^ line 2" in shown


def test_hints_and_warnings_are_shown(holdfast):
    arguments = ["-e", "print('x' * 100)", "--limit", "max_stdout_bytes=10"]
    shown = plain(holdfast.on_terminal("run", *arguments, NO_COLOR="1").out)
    assert "warning OUTPUT_TRUNCATED: " in shown
    assert "hint: " in plain(holdfast.on_terminal("run", "-e", "open('x')", NO_COLOR="1").out)


def test_colour_is_for_terminals_that_want_it(holdfast):
    assert "\x1b[1;31merror" in holdfast.on_terminal("run", "-e", "1/0").out
    assert "\x1b[31" not in holdfast.on_terminal("run", "-e", "1/0", NO_COLOR="1").out
    assert "\x1b[" not in holdfast("run", "-e", "1/0", "--no-json").err


def test_code_can_not_steer_the_terminal(holdfast):
    code = r"print('\x1b[2J\x9b1m\u202e'); print('\x07', end=''); '\x1b]0;title\x07'"
    shown = holdfast.on_terminal("run", "-e", code, NO_COLOR="1").out
    assert r"\x1b[2J\x9b1m\u202e" in shown
    assert r"\x1b]0;title\x07" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    # A program gets what was printed.
    assert holdfast("run", "-e", code).json["stdout"].startswith("\x1b[2J")


def test_json_is_one_line_in_a_pipe_and_laid_out_on_a_terminal(holdfast):
    piped = holdfast("run", "-e", "1", "--json").out
    assert piped.startswith('{"status":"ok","result":1,')
    assert piped.count("\n") == 1
    shown = holdfast.on_terminal("run", "-e", "1", "--json").out
    assert shown.startswith('{\n  "status": "ok",\n')
    assert json.loads(shown)["result"] == 1


def plain(text: str) -> str:
    """`text` without what makes it bold or dim, which NO_COLOR leaves alone."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# -- while it runs ------------------------------------------------------------------------------------

ENDLESS = ["-e", "while True: pass", "--limit", "cpu_ms=60000", "--limit", "wall_ms=60000"]


@pytest.fixture
def endless(holdfast) -> Iterator[subprocess.Popen[bytes]]:
    """A run that is under way for certain: its start is on record."""
    running = holdfast.start("run", *ENDLESS)
    try:
        wait_for_record(holdfast.journal, "run_started")
        yield running
    finally:
        running.kill()
        running.communicate()


def wait_for_record(journal: Path, kind: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if has_record(journal, kind):
            return
        time.sleep(0.02)
    raise AssertionError("it does not start")


def has_record(journal: Path, kind: str) -> bool:
    if not journal.exists():
        return False
    try:
        reader = SqliteReader(journal)
    except JournalError:
        return False  # its tables are not made yet

    async def look() -> bool:
        return kind in [record.kind async for record in reader.read_all()]

    try:
        return anyio.run(look)
    finally:
        anyio.run(reader.close)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_run(holdfast, endless, number: signal.Signals):
    endless.send_signal(number)
    out, err = endless.communicate(timeout=30)
    assert endless.returncode == 128 + number
    assert json.loads(out)["status"] == "cancelled"
    assert json.loads(out)["error"]["code"] == "CANCELLED"
    assert err == b""
    ended = holdfast("journal", "show", "--kind", "run_cancelled").json["items"]
    assert len(ended) == 1
    # The session was given back: nobody has to wait for it.
    assert holdfast("run", "-e", "1", "--wait", "0").json["result"] == 1


def test_a_session_in_use_is_busy(holdfast, endless):
    done = holdfast("run", "-e", "1", "--wait", "100")
    assert done.code == 1
    assert done.json["error"]["code"] == "SESSION_BUSY"
    assert holdfast("run", "-e", "1", "--session-id", "other").code == 0
    assert endless.poll() is None


def test_nothing_is_left_behind(holdfast, tmp_path: Path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    holdfast("run", "-e", "1", TMPDIR=str(temporary))
    assert os.listdir(temporary) == []
    assert sorted(os.listdir(holdfast.home)) == ["journal.db", "journal.db.key"]
