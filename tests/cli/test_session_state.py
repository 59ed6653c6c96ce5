"""`holdfast session create`, `snapshot`, `restore`, `fork`, `reset`, `diff`."""

import stat
from pathlib import Path

import pytest


def test_a_snapshot_is_restored_under_another_id_in_another_process(holdfast, tmp_path: Path):
    holdfast("run", "--session-id", "a", "-e", "x = [1, 2]\ndef total(): return sum(x)")
    file = tmp_path / "a.snapshot"
    done = holdfast("session", "snapshot", "a", "--out", str(file))
    assert done.code == 0
    expected = {"session_id": "a", "out": str(file), "bytes": file.stat().st_size}
    assert done.json == expected
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    done = holdfast("session", "restore", "--from", str(file), "--session-id", "b")
    assert (done.code, done.json["id"], done.json["status"]) == (0, "b", "open")
    assert holdfast("run", "--session-id", "b", "-e", "x.append(3); total()").json["result"] == 6
    assert holdfast("run", "--session-id", "a", "-e", "total()").json["result"] == 3
    # A snapshot replaces what is there, also an older file of the same name.
    assert holdfast("session", "snapshot", "b", "--out", str(file)).code == 0
    assert holdfast("session", "restore", "--from", str(file), "--session-id", "a").code == 0
    assert holdfast("run", "--session-id", "a", "-e", "total()").json["result"] == 6


def test_a_snapshot_that_was_changed_is_refused(spoilt, tmp_path: Path):
    file = tmp_path / "a.snapshot"
    spoilt("session", "snapshot", "a", "--out", str(file))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = spoilt("session", "restore", "--from", str(file), "--session-id", "z")
    assert (done.code, done.json["error"]["code"]) == (1, "SNAPSHOT_CORRUPT")
    assert spoilt("session", "show", "z").json["error"]["code"] == "SESSION_NOT_FOUND"


def test_a_fork_goes_its_own_way(spoilt):
    done = spoilt("session", "fork", "a", "a2")
    assert (done.code, done.json["id"]) == (0, "a2")
    assert spoilt("run", "--session-id", "a2", "-e", "x += 9; x").json["result"] == 10
    assert spoilt("run", "--session-id", "a", "-e", "x").json["result"] == 1
    taken = spoilt("session", "fork", "a", "b")
    assert (taken.code, taken.json["error"]["code"]) == (2, "INVALID_ARGUMENT")


def test_a_fork_of_the_past_and_what_changed_since(spoilt):
    then = spoilt("session", "show", "a").json["last_seq"]
    spoilt("run", "--session-id", "a", "-e", "x = 2; y = 'new'")
    changed = spoilt("session", "diff", "a", "--at", str(then))
    assert changed.code == 0
    expected = {
        "added": {"y": "'new'"},
        "removed": {},
        "changed": {"x": {"before": "1", "after": "2"}},
    }
    assert changed.json == expected
    told = spoilt("session", "diff", "a", "--at", str(then), "--no-json").out
    assert "+ y = 'new'" in told
    assert "~ x = 1  →  2" in told
    assert spoilt("session", "fork", "a", "old", "--at", str(then)).code == 0
    assert spoilt("run", "--session-id", "old", "-e", "x").json["result"] == 1
    other = spoilt("session", "diff", "a", "--other", "old").json
    assert other["added"] == {"y": "'new'"}


def test_reset_empties_a_session(spoilt):
    assert spoilt("session", "reset", "a").json["runs"] == 3
    assert spoilt("run", "--session-id", "a", "-e", "x").json["status"] == "runtime_error"


def test_create_remembers_what_it_was_opened_with(holdfast, world, tools):
    done = holdfast("session", "create", "s", *tools, "--limit", "cpu_ms=77")
    assert (done.code, done.json["id"], done.json["limits"]["cpu_ms"]) == (0, "s", 77)
    assert holdfast("run", "--session-id", "s", "-e", "count('x')").json["result"] == 1
    shown = holdfast("session", "show", "s", "--no-json").out
    assert "world.py" in shown
    # One that is there keeps what is in it, and is opened with what is given.
    assert holdfast("session", "create", "s", "--limit", "cpu_ms=78").code == 0
    asked = holdfast("run", "--session-id", "s", "-e", "current_policy()['limits']['cpu_ms']")
    assert asked.json["result"] == 78


@pytest.mark.parametrize(
    "arguments",
    [
        ["diff", "a"],
        ["diff", "a", "--at", "1", "--other", "b"],
        ["diff", "a", "--snapshot", "/nowhere"],
        ["restore", "--from", "/nowhere", "--session-id", "a"],
        ["snapshot", "a"],
        ["create", "a", "--limit", "x=1"],
    ],
    ids=" ".join,
)
def test_bad_usage(holdfast, in_process, arguments: list[str]):
    done = in_process("session", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert not holdfast.home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["snapshot", "n", "--out", "f"],
        ["fork", "n", "m"],
        ["reset", "n"],
        ["diff", "n", "--at", "1"],
    ],
    ids=" ".join,
)
def test_a_session_nobody_knows(holdfast, in_process, arguments: list[str]):
    done = in_process("session", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, "SESSION_NOT_FOUND")
    assert not holdfast.home.exists()


def test_a_file_that_can_not_be_written_is_called_by_its_name(holdfast):
    holdfast("run", "--session-id", "a", "-e", "x = 1")
    done = holdfast("session", "snapshot", "a", "--out", "/nowhere/at/all")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert "`/nowhere/at/all` can't be written" in done.json["error"]["message"]
