"""`holdfast mcp add`, `remove`, `reload`, `list`: which tool surfaces there are to be."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.cli.mcp_support import BROKEN, ECHO, PAY, in_folder, npm, odd

from holdfast import runtime


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are given in."""
    return in_folder(tmp_path, monkeypatch)


def test_what_is_added_is_there_in_another_process(holdfast, in_process):
    added = in_process("mcp", "add", "odd", "--timeout", "5000", *odd(ECHO, PAY))
    assert added.code == 0, added.out
    told = added.json
    assert (told["name"], told["op"], told["replaced"]) == ("odd", "add", False)
    assert told["spec"]["timeout_ms"] == 5000
    found = told["found"]
    assert (found["status"], found["protocol"], found["server"]) == (
        "connected",
        "2025-06-18",
        "odd 1",
    )
    assert [one["name"] for one in found["tools"]] == ["odd_echo", "odd_env"]
    assert [one["side_effect"] for one in found["tools"]] == ["read", "external_system"]
    before = in_process("mcp", "list").json["items"]
    assert [(one["name"], one["from"], one["last"]) for one in before] == [("odd", "journal", None)]

    ran = holdfast("run", "-e", "await odd_echo(a=1)")
    assert json.loads(ran.json["result"]) == {"a": 1}
    (one,) = in_process("mcp", "list").json["items"]
    assert (one["last"]["op"], one["last"]["phase"], one["last"]["tools"]) == ("add", "applied", 2)
    assert re.search(r"odd +stdio +journal .*add applied · 2 tools", listed(in_process))


@pytest.mark.parametrize("name", "add remove reload list test resources prompts".split())
def test_help_is_everywhere(holdfast, in_process, name: str):
    done = in_process("mcp", name, "--help")
    assert (done.code, holdfast.home.exists()) == (0, False)
    assert done.out.startswith(f"Usage: holdfast mcp {name}")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from holdfast.cli.main import main; main(['mcp', 'add', '--help']);"
        "heavy = {'anyio', 'apsw', 'holdfast.contracts', 'holdfast.runtime', 'mcp', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def listed(in_process) -> str:
    return in_process("mcp", "list", "--no-json").out


async def test_a_running_holdfast_takes_it_at_its_next_boundary(holdfast):
    async def command(*arguments: str) -> None:
        done = await to_thread.run_sync(lambda: holdfast("mcp", *arguments))
        assert done.code == 0, done.out

    async with runtime.open(f"sqlite:///{holdfast.journal}", {}) as hf:
        assert (await hf.shell.run("list_tools()")).result == []
        await command("add", "shop", "--module", "shop_tools")
        with anyio.fail_after(20):
            while (await hf.shell.run("shop_stock(article='lamp')")).result != 3:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await command("reload", "shop")
        await hf.surfaces.wait_ready()
        assert (await hf.surfaces.view("shop")).generation == 2
        await command("remove", "shop")
        assert await hf.surfaces.list() == []


def test_what_is_not_there_is_not_added(in_process):
    done = in_process("mcp", "add", "odd", *odd(at_once=True))
    error = done.json["error"]
    assert (done.code, error["code"]) == (1, "SURFACE_FAILED")
    assert "no such option: --frobnicate" in error["message"]
    assert "--no-check" in error["hint"]
    assert in_process("mcp", "list").json["items"] == []

    done = in_process("mcp", "add", "odd", "--no-check", *odd(at_once=True))
    assert (done.code, done.json["found"]) == (0, None)
    assert len(in_process("mcp", "list").json["items"]) == 1


def test_one_that_is_there_is_replaced(in_process):
    in_process("mcp", "add", "shop", "--no-check", "--", "nothing")
    again = in_process("mcp", "add", "shop", "--module", "shop_tools", "--no-json")
    assert "`shop` is replaced. A running holdfast takes it at its next boundary." in again.out
    (one,) = in_process("mcp", "list").json["items"]
    assert one["kind"] == "module"


STDIO = {"kind": "stdio", "command": "prog", "args": ["-v"]}
HTTP = {"kind": "http", "url": "https://mcp.example.com/mcp"}
AT = ["--url", "https://mcp.example.com/mcp"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--env", "A=b=c", "--env", "TOKEN=$MY_TOKEN"], {"env": {"A": "b=c", "TOKEN": "$MY_TOKEN"}}),
        (["--cwd", "/srv"], {"cwd": "/srv"}),
        (["--jail", "--mount", "/srv", "--mount", "/var:rw"], {"mounts": ["/srv", "/var:rw"]}),
        (["--jail"], {"jail": True}),
        (["--prefix", "p_"], {"prefix": "p_"}),
        (["--include", "a*", "--include", "b"], {"include": ["a*", "b"]}),
        (["--exclude", "c"], {"exclude": ["c"]}),
        (["--side-effect", "a=read", "--side-effect", "b*=write"], {"side_effects": {"a": "read", "b*": "write"}}),
        (["--timeout", "7"], {"timeout_ms": 7}),
        (["--connect-timeout", "8"], {"connect_timeout_ms": 8}),
        (["--sampling"], {"sampling": True}),
        (["--no-roots"], {"roots": False}),
        (["--no-trust"], {"trust_annotations": False}),
    ],
)  # fmt: skip
def test_every_option_says_something(in_process, options: list[str], says: dict[str, Any]):
    done = in_process("mcp", "add", "x", "--no-check", *options, "--", "prog", "-v")
    assert done.code == 0, done.out
    spec = done.json["spec"]
    assert {name: spec.get(name) for name in says} == says
    assert {name: spec.get(name) for name in STDIO} == STDIO


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (AT, HTTP),
        ([*AT, "--header", "X-Team=sales"], {**HTTP, "headers": {"X-Team": "sales"}}),
        ([*AT, "--auth", "oauth"], {**HTTP, "auth": "oauth"}),
        (["--module", "json:x"], {"kind": "module", "reference": "json:x"}),
        (["--module", "entry_points:x"], {"kind": "module", "reference": "entry_points:x"}),
        (["--openapi", "https://x/api.json"], {"kind": "openapi", "document": "https://x/api.json"}),
        (
            ["--openapi", "/a.yaml", "--base-url", "https://x", "--auth", "k", "--header", "A=$B"],
            {"document": "/a.yaml", "base_url": "https://x", "auth": "k", "headers": {"A": "$B"}},
        ),
    ],
)  # fmt: skip
def test_every_kind_can_be_added(in_process, options: list[str], says: dict[str, Any]):
    done = in_process("mcp", "add", "x", "--no-check", *options)
    assert done.code == 0, done.out
    assert {name: done.json["spec"].get(name) for name in says} == says


def test_what_is_relative_means_this_folder(in_process, here: Path):
    (here / "api.json").write_text("{}")

    def spec(*arguments: str) -> dict[str, Any]:
        done = in_process("mcp", "add", "x", "--no-check", *arguments)
        assert done.code == 0, done.out
        return done.json["spec"]

    assert spec("--", "prog")["cwd"] == str(here)
    assert "cwd" not in spec("--jail", "--", "prog")
    jailed = spec("--jail", "--cwd", "sub", "--mount", ".:rw", "--", "./prog", "./it")
    assert jailed["cwd"] == str(here / "sub")
    assert jailed["mounts"] == [f"{here}:rw"]
    assert (jailed["command"], jailed["args"]) == (str(here / "prog"), ["./it"])
    assert spec("--module", "shop_tools")["reference"] == str(here / "shop_tools.py")
    assert spec("--openapi", "api.json")["document"] == str(here / "api.json")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x"], "not said what to connect to"),
        (["x", "--url", "http://h/", "--", "prog"], "at once"),
        (["X-y", "--", "prog"], "can't be a surface's name"),
        (["x" * 41, "--", "prog"], "can't be a surface's name"),
        (["x", "--url", "ftp://h/"], "is no address"),
        (["x", "--url", "http://[/"], "is no address"),
        (["x", "--openapi", "a", "--base-url", "here"], "is no address"),
        (["x", "--url", "http://h/", "--env", "A=b"], "`--env` is for a program"),
        (["x", "--url", "http://h/", "--jail"], "`--jail` is for a program"),
        (["x", "--header", "A=b", "--", "prog"], "`--header` is for an MCP server at an address"),
        (["x", "--module", "json", "--sampling"], "`--sampling` is for"),
        (["x", "--url", "http://h/", "--base-url", "http://h/"], "`--base-url` is for an OpenAPI"),
        (["x", "--mount", "/srv", "--", "prog"], "says what a jail shows"),
        (["x", "--env", "A", "--", "prog"], "`--env` is not NAME=VALUE"),
        (["x", "--env", "A=1", "--env", "A=2", "--", "prog"], "given twice"),
        (["x", "--side-effect", "a=magic", "--", "prog"], "side_effects.a"),
        (["x", "--module", "gone.py"], "There is no file"),
    ],
)
def test_what_can_not_be_is_refused(holdfast, in_process, arguments: list[str], told: str):
    done = in_process("mcp", "add", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert told in done.json["error"]["message"]
    assert not holdfast.home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "API_KEY=sesame-1234", "--", "prog"],
        ["--env", "sesame-1234", "--", "prog"],
        ["--url", "http://h/", "--header", "Authorization=Bearer sesame-1234"],
        ["--url", "http://ann:sesame-1234@h/"],
    ],
)
def test_a_secret_is_not_recorded(holdfast, in_process, arguments: list[str]):
    done = in_process("mcp", "add", "x", "--no-check", *arguments)
    assert done.code == 2
    assert "sesame" not in done.out + done.err
    assert not holdfast.home.exists()


def test_a_variable_reaches_the_server_and_nothing_else(
    holdfast, in_process, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SESAME", "sesame-1234")
    allowed = odd({**PAY, "annotations": {"readOnlyHint": True}})
    assert in_process("mcp", "add", "odd", "--env", "API_KEY=$SESAME", *allowed).code == 0
    done = in_process("mcp", "test", "odd", "env")
    assert "API_KEY" in done.json["result"]
    assert "sesame-1234" not in done.out
    for file in holdfast.home.iterdir():
        assert b"sesame-1234" not in file.read_bytes()


def test_the_file_and_the_journal_say_it_together(in_process, here: Path):
    (here / "holdfast.toml").write_text('[surfaces.shop]\nreference = "shop_tools"\n')
    (one,) = in_process("mcp", "list").json["items"]
    assert (one["name"], one["from"]) == ("shop", "file")
    assert in_process("mcp", "reload", "shop").json == {"name": "shop", "op": "reload"}
    assert in_process("mcp", "remove", "shop").json == {"name": "shop", "op": "remove"}
    found = in_process("mcp", "list").json
    assert (found["items"], found["removed"]) == ([], ["shop"])
    assert "shop: in the settings, and removed" in listed(in_process)
    staged = in_process("journal", "show", "--kind", "surface_staged").json["items"]
    assert [one["payload"]["op"] for one in staged] == ["reload", "remove"]
    told = in_process("mcp", "add", "shop", "--module", "shop_tools", "--no-json").out
    assert "shop_stock" in told
    assert [one["from"] for one in in_process("mcp", "list").json["items"]] == ["journal"]


@pytest.mark.parametrize("command", ["remove", "reload", "test", "resources", "prompts"])
def test_a_name_that_is_nobodys(holdfast, in_process, command: str):
    done = in_process("mcp", command, "nobody")
    assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")
    assert "holdfast mcp add" in done.json["error"]["hint"]


def test_a_journal_in_memory_is_no_place_for_a_wish(in_process, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOLDFAST_URL", "memory:")
    done = in_process("mcp", "add", "x", "--", "prog")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert "in memory" in done.json["error"]["message"]


def test_looking_makes_nothing(holdfast, in_process):
    assert in_process("mcp", "list").json == {"items": [], "next": None, "removed": []}
    assert in_process("mcp", "list", "--connect").json["items"] == []
    assert "holdfast mcp add" in listed(in_process)
    assert not holdfast.home.exists()


def test_each_is_connected_to_if_asked(in_process):
    added = in_process("mcp", "add", "odd", *odd(ECHO, BROKEN))
    assert added.code == 0, added.out
    in_process("mcp", "add", "down", "--no-check", "--", "nothing-at-all")
    items = {
        one["name"]: one["found"] for one in in_process("mcp", "list", "--connect").json["items"]
    }
    odd_, down = items["odd"], items["down"]
    assert odd_["status"] == "connected"
    assert odd_["ping_ms"] >= 0
    assert list(odd_["refused"]) == ["bad"]
    assert 5 < odd_["tokens"] < 100
    assert (down["status"], down["tools"], down["error"]["code"]) == (
        "failed",
        [],
        "SURFACE_FAILED",
    )
    shown = in_process("mcp", "list", "--connect", "--no-json").out
    assert re.search(r"odd: connected · stdio · odd 1 · MCP 2025-06-18 · [\d.]+ ms", shown)
    assert re.search(r"odd_echo +read +Says it again\.", shown)
    assert "refused: bad: " in shown
    assert "1 tool, about" in shown
    assert "down: failed" in shown


def test_a_real_server(in_process):
    added = in_process("mcp", "add", "all", "--include", "e*", *npm("everything"))
    assert added.code == 0, added.out
    assert [one["tool"] for one in added.json["found"]["tools"]] == ["echo"]
    done = in_process("mcp", "test", "all", "echo", "--args", '{"message": "hi"}')
    assert (done.code, done.json["result"]) == (0, "Echo: hi")
    uris = [one["uri"] for one in in_process("mcp", "resources", "all").json["items"]]
    assert any(one.startswith("demo://resource/") for one in uris)
    prompt = in_process("mcp", "prompts", "all", "args-prompt", "--arg", "city=Rome").json
    assert "Rome" in prompt["messages"][0]["content"]["text"]
