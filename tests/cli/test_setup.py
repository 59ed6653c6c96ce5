"""What a session is opened with, given as options."""

import os
from pathlib import Path

import pytest

from holdfast.cli._setup import Flags
from holdfast.errors import CallerError


def fields(**given):
    return Flags(**given).fields()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_xyz.py").write_text("")
    return tmp_path


def test_nothing_given_says_nothing():
    assert fields() == {}


def test_what_is_relative_is_made_absolute(here: Path):
    assert fields(capabilities=["mine_xyz.py:pay"])["capabilities"] == [f"{here}/mine_xyz.py:pay"]
    assert fields(capabilities=["mine_xyz"])["capabilities"] == [f"{here}/mine_xyz.py"]
    assert fields(capabilities=["mine_xyz:pay"])["capabilities"] == [f"{here}/mine_xyz.py:pay"]
    [mount] = fields(mounts=["/w=data:rw"])["mounts"]
    assert mount == {"path": "/w", "host": f"{here}/data", "writable": True}
    [mount] = fields(mounts=["/w=/tmp/../tmp"])["mounts"]
    assert mount == {"path": "/w", "host": os.path.realpath("/tmp"), "writable": False}
    [database] = fields(databases=["books=sqlite:///b.db"])["databases"]
    assert database == {"name": "books", "url": f"sqlite:///{here}/b.db", "writable": False}


def test_what_is_installed_is_named_as_it_is():
    assert fields(capabilities=["json:loads"])["capabilities"] == ["json:loads"]
    assert fields(capabilities=["a.b:c"])["capabilities"] == ["a.b:c"]


def test_the_rest():
    found = fields(
        allow_hosts=["*.example.com"],
        databases=["d=postgresql://me:$PW@h/n:rw", "e=$URL"],
        clock=True,
        randomness=False,
        budget=["calls=3", "wall_ms=10"],
        ttl=5,
    )
    assert found == {
        "allow_hosts": ["*.example.com"],
        "databases": [
            {"name": "d", "url": "postgresql://me:$PW@h/n", "writable": True},
            {"name": "e", "url": "$URL", "writable": False},
        ],
        "clock": True,
        "randomness": False,
        "budget": {"calls": 3, "wall_ms": 10},
        "ttl_ms": 5,
    }


def test_rules_come_from_a_file(here: Path):
    (here / "p.toml").write_text('[[rules]]\nid = "no"\ntool = "pay"\nthen = "deny"\n')
    assert fields(policy="p.toml") == {"rules": [{"id": "no", "tool": "pay", "then": "deny"}]}
    (here / "q.toml").write_text('[[policy.rules]]\nid = "no"\nthen = "deny"\n')
    assert fields(policy="q.toml") == {"rules": [{"id": "no", "then": "deny"}]}


@pytest.mark.parametrize(
    "given",
    [
        {"capabilities": ["nowhere.py"]},
        {"mounts": ["/w"]},
        {"mounts": ["=x"]},
        {"mounts": ["/w="]},
        {"databases": ["x"]},
        {"databases": ["x="]},
        {"databases": ["d=postgresql://me:secret@h/n"]},
        {"budget": ["cats=3"]},
        {"budget": ["calls=many"]},
        {"policy": "nowhere.toml"},
        {"policy": "mine_xyz.py"},
    ],
    ids=str,
)
def test_what_can_not_be_understood_is_refused(given):
    with pytest.raises(CallerError) as why:
        fields(**given)
    assert why.value.code == "INVALID_ARGUMENT"
    assert "secret" not in str(why.value)


# -- through the program ------------------------------------------------------------------------------


def test_mounts_clock_and_databases_are_remembered(holdfast, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello")
    code = "read_text('/w/a.txt')"
    run = ["run", "--session-id", "s", "-e", code]
    denied = holdfast(*run)
    assert denied.code == 1
    assert holdfast(*run, "--mount", "/w=data").json["result"] == "hello"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert holdfast(*run, cwd=elsewhere).json["result"] == "hello"
    # Another option replaces its own part, and leaves the rest.
    more = holdfast("run", "--session-id", "s", "--clock", "-e", f"[{code}, now()]")
    assert more.json["result"][0] == "hello"
    validated = holdfast("validate", "--session-id", "s", "-e", code)
    assert validated.json["status"] == "ok"


def test_a_stricter_policy_denies(holdfast, world, tools, tmp_path: Path):
    (tmp_path / "p.toml").write_text('[[rules]]\nid = "never"\ntool = "pay"\nthen = "deny"\n')
    done = holdfast("run", *tools, "--policy", "p.toml", "-e", "pay('ada', 1)")
    assert (done.code, done.json["error"]["code"]) == (1, "PERMISSION_DENIED")
    assert world.done == []


def test_a_budget_holds_over_processes(holdfast, world, tools):
    first = holdfast("run", *tools, "--budget", "calls=2", "-e", "count('a')")
    assert first.json["result"] == 1
    second = holdfast("run", "-e", "count('b'); count('c')")
    assert (second.code, second.json["error"]["code"]) == (1, "BUDGET_EXCEEDED")
    assert world.done == ["count a", "count b"]
