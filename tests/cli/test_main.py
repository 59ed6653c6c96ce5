"""The program itself: help, version, how it ends."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.cli import main

COMMANDS = [
    (),
    *((name,) for name in main.COMMANDS),
    *(
        ("session", name)
        for name in "list show create snapshot restore fork reset diff destroy".split()
    ),
    *(("tools", name) for name in "list describe search".split()),
    *(("runs", name) for name in "list show resume cancel resolve".split()),
    *(("approvals", name) for name in "list plans show approve deny grants revoke".split()),
    *(("journal", name) for name in "show tail verify export backup sweep".split()),
    *(("machines", name) for name in "list show explore".split()),
]


def test_version(holdfast):
    done = holdfast("--version")
    assert (done.code, done.out) == (0, f"holdfast {__version__}\n")


def test_the_installed_script_is_the_same_program():
    script = Path(sysconfig.get_path("scripts")) / "holdfast"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"holdfast {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_everywhere(holdfast, in_process, command: tuple[str, ...]):
    done = in_process(*command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: {' '.join(['holdfast', *command])}")
    assert not holdfast.home.exists()


def test_without_a_command_help_is_shown(in_process):
    assert in_process().out == in_process("--help").out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from holdfast.cli.main import main; main(['--help']);"
        "heavy = {'anyio', 'apsw', 'asyncio', 'holdfast.contracts', 'holdfast.runtime', 'pydantic', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bogus"], "No such command"),
        (["run", "--bogus"], "No such option"),
        (["session"], "Missing command"),
        (["runs", "bogus"], "No such command"),
        (["approvals", "approve"], "Missing argument"),
        (["daemon"], "--listen"),
        (["session", "show"], "Missing argument"),
        (["journal", "show", "--limit", "0"], "--limit"),
        (["journal", "show", "--after", "x"], "--after"),
    ],
)
def test_bad_usage_is_an_error_object(in_process, arguments: list[str], told: str):
    done = in_process(*arguments)
    assert done.code == 2
    assert done.json["error"]["code"] == "INVALID_ARGUMENT"
    assert told in done.json["error"]["message"]
    assert "--help" in done.json["error"]["hint"]


def test_bad_usage_is_told_to_people_on_stderr(holdfast):
    done = holdfast("run", "--bogus", "--no-json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error INVALID_ARGUMENT: ")
    assert "hint: " in done.err


def test_a_closed_pipe_is_silent(used):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        used.command("journal", "export"),
        env=used.environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_that_can_not_be_written_is_an_error(used):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            used.command("journal", "verify"),
            env=used.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error IO_ERROR: ")
    assert b"Traceback" not in done.stderr


def test_home_and_url_are_options_too(holdfast, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    assert holdfast("--home", str(elsewhere), "run", "-e", "1").code == 0
    assert (elsewhere / "journal.db").exists()
    named = tmp_path / "named.db"
    assert holdfast("--url", f"sqlite:///{named}", "run", "-e", "1").code == 0
    assert named.exists()
    assert not holdfast.home.exists()


def test_a_url_nobody_knows_is_refused(holdfast):
    done = holdfast("--url", "ftp://x", "session", "list")
    assert done.code == 2
    assert done.json["error"]["code"] == "INVALID_ARGUMENT"


def test_settings_come_from_the_nearest_file(holdfast, tmp_path: Path):
    (tmp_path / "holdfast.toml").write_text("[shell.limits]\ncpu_ms = 77\n")
    holdfast("run", "-e", "1")
    assert holdfast("session", "show", "default").json["limits"]["cpu_ms"] == 77


def test_a_broken_settings_file_is_explained(holdfast, tmp_path: Path):
    (tmp_path / "holdfast.toml").write_text("[shell\n")
    done = holdfast("session", "list")
    assert done.code == 2
    assert "holdfast.toml" in done.json["error"]["message"]
