"""`holdfast resources`: the real program over real files."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli import conftest as cli
from tests.mcp.support import npm

# The program as the tests of the command line run it, in its own process and in this one.
holdfast: Any = cli.holdfast
spawner: Any = cli.spawner
in_process: Any = cli.in_process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "log.txt").write_text("".join(f"line {n}\n" for n in range(1000)))
    (data / "t.csv").write_text("a,b\n1,2\n3,4\n")
    return data


def test_parts_lines_rows_and_matches(in_process, holdfast, folder: Path):
    mount = ("--mount", f"/w={folder}")
    log = "file:///w/log.txt"
    found = in_process("resources", "read", log, "--start", "7", "--length", "7", *mount).json
    assert (found["text"], found["next"]) == ("line 1\n", 14)
    found = in_process("resources", "read", log, "--lines", "--start", "998", *mount).json
    assert (found["text"], found["next"]) == ("line 998\nline 999\n", None)
    found = in_process("resources", "read", log, "--grep", "9$", "--length", "2", *mount).json
    assert ([one["line"] for one in found["matches"]], found["truncated"]) == ([9, 19], True)
    found = in_process("resources", "read", "file:///w/t.csv", "--format", "csv", *mount).json
    assert (found["columns"], found["rows"]) == (["a", "b"], [["1", "2"], ["3", "4"]])
    # Looking makes nothing.
    assert not holdfast.home.exists()


def test_people_see_the_text_and_are_told_how_to_go_on(in_process, folder: Path):
    mount = ("--mount", f"/w={folder}", "--no-json")
    done = in_process("resources", "read", "file:///w/log.txt", "--length", "7", *mount)
    assert (done.out, done.err) == ("line 0\n", "more: --start 7\n")
    done = in_process("resources", "read", "file:///w/log.txt", "--grep", "line 5$", *mount)
    assert done.out == "5: line 5\n"
    done = in_process("resources", "read", "file:///w/t.csv", "--format", "csv", *mount)
    assert done.out == '["a", "b"]\n["1", "2"]\n["3", "4"]\n'
    done = in_process("resources", "list", "file:///w", "--limit", "1", *mount)
    assert (done.out, done.err) == ("file:///w/log.txt  8890\n", "more: --after log.txt\n")


def test_lists_begin_with_what_is_granted(in_process, folder: Path):
    granted = ("--mount", f"/w={folder}", "--allow-host", "api.example.com")
    found = in_process("resources", "list", *granted).json["items"]
    assert [one["uri"] for one in found] == ["file:///w", "https://api.example.com/"]
    found = in_process("resources", "list", "file:///w", *granted).json
    assert [(one["name"], one["kind"]) for one in found["items"]] == [
        ("log.txt", "resource"),
        ("sub", "folder"),
        ("t.csv", "resource"),
    ]
    assert "--mount" in in_process("resources", "list", "--no-json").err


def test_a_session_reads_what_it_was_opened_with_and_only_its_own_content(in_process, folder: Path):
    in_process("session", "create", "s", "--mount", f"/w={folder}")
    in_process("session", "create", "t")
    done = in_process("run", "-e", "'x' * 3", "--session-id", "s")
    assert done.json["result"] == "xxx"
    listed = in_process("resources", "list", "--session-id", "s").json["items"]
    assert [one["uri"] for one in listed] == ["file:///w"]
    records = in_process("journal", "show", "--session-id", "s").json["items"]
    (digest,) = {
        ref["digest"] for one in records for ref in one.get("content", ()) if ref["role"] == "code"
    }
    uri = f"content:{digest}"
    assert in_process("resources", "read", uri, "--session-id", "s").json["text"] == "'x' * 3"
    other = in_process("resources", "read", uri, "--session-id", "t")
    assert (other.code, other.json["error"]["code"]) == (2, "NOT_FOUND")
    nobody = in_process("resources", "read", uri, "--session-id", "n")
    assert (nobody.code, nobody.json["error"]["code"]) == (2, "SESSION_NOT_FOUND")


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["read", "notes.txt"], "INVALID_ARGUMENT", 2),
        (["read", "ftp://x"], "PERMISSION_DENIED", 1),
        (["read", "file:///etc/passwd"], "PERMISSION_DENIED", 1),
        (["read", "data:,x", "--format", "exe"], "INVALID_ARGUMENT", 2),
        (["read", "data:,x", "--grep", "("], "INVALID_ARGUMENT", 2),
        (["read", "content:" + "a" * 64], "PERMISSION_DENIED", 1),
        (["read", "file:///w/none", "--mount", "/w=/usr"], "TOOL_ERROR", 1),
    ],
)
def test_what_is_wrong_is_told(in_process, arguments: list[str], code: str, exit_code: int):
    done = in_process("resources", *arguments)
    assert (done.json["error"]["code"], done.code) == (code, exit_code)


def test_the_program_itself(holdfast, folder: Path):
    log = holdfast("resources", "read", "file:///w/log.txt", "--mount", f"/w={folder}").json
    assert (log["byte_len"], log["truncated"]) == (8890, False)


def test_what_a_tool_server_has(holdfast):
    server = npm("everything")
    (holdfast.home.parent / "holdfast.toml").write_text(
        f"[surfaces.all]\ncommand = {json.dumps(server.command)}\nargs = {json.dumps(server.args)}\n"
    )
    uri = "mcp://all/demo://resource/dynamic/text/1"
    assert holdfast("resources", "read", uri).json["text"].startswith("Resource 1:")
    (match,) = holdfast("resources", "read", uri, "--grep", "^Resource").json["matches"]
    assert match["text"].startswith("Resource 1:")
    roots = holdfast("resources", "list").json["items"]
    assert [one["uri"] for one in roots] == ["mcp://all/"]
    listed = holdfast("resources", "list", "mcp://all/").json["items"]
    assert all(one["uri"].startswith("mcp://all/demo://") for one in listed)
    assert len(listed) > 3
    done = holdfast("resources", "read", "mcp://other/x")
    assert done.code != 0
    refused = done.json["error"]
    assert refused["code"] == "NOT_FOUND"
    assert "mcp list" in refused["hint"]


def test_what_a_server_has_that_was_added_by_command(holdfast):
    server = npm("everything")
    holdfast("mcp", "add", "ev", "--no-check", "--", server.command, *server.args)
    uri = "mcp://ev/demo://resource/static/document/architecture.md"
    assert "# " in holdfast("resources", "read", uri).json["text"]
    roots = holdfast("resources", "list").json["items"]
    assert [one["uri"] for one in roots] == ["mcp://ev/"]
    # And for a session: one that sees it, and one that sees none.
    (holdfast.home.parent / "holdfast.toml").write_text("[session]\nsurfaces = []\n")
    holdfast("session", "create", "blind", "--clock")
    (holdfast.home.parent / "holdfast.toml").unlink()
    holdfast("session", "create", "s")
    assert "# " in holdfast("resources", "read", uri, "--session-id", "s").json["text"]
    listed = holdfast("resources", "list", "mcp://ev/", "--session-id", "s").json["items"]
    assert len(listed) > 3
    assert holdfast("resources", "list", "--session-id", "blind").json["items"] == []
    refused = holdfast("resources", "read", uri, "--session-id", "blind").json["error"]
    assert refused["code"] == "NOT_FOUND"


def test_a_server_that_is_down_is_named(in_process):
    in_process("mcp", "add", "down", "--no-check", "--", "holdfast-no-such-program")
    done = in_process("resources", "read", "mcp://down/x")
    assert done.json["error"]["code"] == "SURFACE_FAILED"
    assert "`down`" in done.json["error"]["message"]
    # It does not hide what else there is, and is told.
    done = in_process("resources", "list", "--mount", "/w=/usr")
    assert [one["uri"] for one in done.json["items"]] == ["file:///w"]
    assert "`down`" in done.err
