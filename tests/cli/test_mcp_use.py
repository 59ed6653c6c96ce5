"""`holdfast mcp test`, `resources`, `prompts`; and tool surfaces in `holdfast tools` and `doctor`."""

import re
import sys
from pathlib import Path

import pytest
from tests.cli.mcp_support import BROKEN, ECHO, PAY, PYTHON, SERVER, in_folder, odd
from tests.leases.server import Guard, running


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are given in."""
    return in_folder(tmp_path, monkeypatch)


@pytest.fixture
def shop(in_process) -> None:
    """A module of tools is added."""
    assert in_process("mcp", "add", "shop", "--module", "shop_tools").code == 0


# -- trying -------------------------------------------------------------------------------------------


def test_a_test_shows_what_it_offers_and_says(in_process):
    in_process("mcp", "add", "odd", *odd(ECHO, BROKEN, stderr=["ready to serve"]))
    done = in_process("mcp", "test", "odd")
    assert (done.code, done.json["status"], list(done.json["refused"])) == (0, "connected", ["bad"])
    assert any("ready to serve" in line for line in done.json["log"])
    shown = in_process("mcp", "test", "odd", "--no-json")
    assert "ready to serve" in shown.err
    assert "odd: connected" in shown.out


@pytest.mark.parametrize("options", [{"at_once": True}, {"die_on": "tools/list"}])
def test_a_test_that_fails_exits_with_1(in_process, options: dict[str, object]):
    in_process("mcp", "add", "odd", "--no-check", *odd(**options))
    done = in_process("mcp", "test", "odd")
    assert (done.code, done.json["status"]) == (1, "failed")
    assert done.json["error"]["code"] == "SURFACE_FAILED"
    assert "mcp test" not in str(done.json["error"])
    assert "odd: failed" in in_process("mcp", "test", "odd", "--no-json").out


def test_one_that_does_not_come_up_in_time(in_process):
    slow = ["--connect-timeout", "300", *odd(silent_on="initialize")]
    done = in_process("mcp", "add", "odd", *slow)
    assert (done.code, done.json["error"]["code"]) == (1, "SURFACE_FAILED")
    assert re.search(r"0\.3 s|300 ms", done.json["error"]["message"])


def test_a_tool_is_called_through_the_gate(in_process, shop: None):
    done = in_process("mcp", "test", "shop", "stock", "--args", '{"article": "lamp"}')
    assert (done.code, done.json["status"], done.json["result"]) == (0, "ok", 3)
    assert done.json["external_calls"][0]["name"] == "shop_stock"
    again = in_process("mcp", "test", "shop", "shop_stock", "--args", '{"article": "x"}')
    assert again.json["result"] == 0  # by the name that code uses, too
    wrong = in_process("mcp", "test", "shop", "stock", "--args", '{"a": 1}')
    assert (wrong.code, wrong.json["status"]) == (1, "runtime_error")
    (row,) = in_process("session", "list").json["items"]
    assert row["id"] == "mcp-shop"


def test_a_call_that_is_asked_about_waits(holdfast, in_process, shop: None):
    asked = in_process("mcp", "test", "shop", "order", "--args", '{"article": "lamp"}')
    assert (asked.code, asked.json["status"]) == (3, "waiting_for_approval")
    went_on = in_process("approvals", "approve", asked.json["approval_id"])
    assert (went_on.code, went_on.json["run"]["result"]) == (0, "ordered lamp")


def test_a_call_in_a_session_that_is_there(in_process, shop: None):
    in_process("mcp", "add", "odd", *odd(ECHO))
    in_process("mcp", "test", "odd", "echo", "--session-id", "s")
    done = in_process(
        "mcp", "test", "shop", "stock", "--args", '{"article": "lamp"}', "--session-id", "s"
    )
    assert done.json["result"] == 3
    # It sees both from here on; a session that sees all is left as it is.
    assert in_process("run", "--session-id", "s", "-e", "await odd_echo()").code == 0
    in_process("session", "create", "all")
    assert in_process("mcp", "test", "odd", "echo", "--session-id", "all").code == 0
    assert in_process("run", "--session-id", "all", "-e", "shop_stock(article='lamp')").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nothing"], "NOT_FOUND", "offers no tool `nothing`"),
        (["stock", "--args", "{"], "INVALID_ARGUMENT", "not JSON"),
        (["stock", "--args", "[1]"], "INVALID_ARGUMENT", "no JSON object"),
        (["--args", "{}"], "INVALID_ARGUMENT", "for a call"),
        (["--session-id", "s"], "INVALID_ARGUMENT", "for a call"),
    ],
)
def test_a_call_that_can_not_be(in_process, shop: None, arguments: list[str], code: str, told: str):
    done = in_process("mcp", "test", "shop", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, code)
    assert told in done.json["error"]["message"]


def test_a_call_of_one_that_is_not_there(in_process):
    in_process("mcp", "add", "odd", "--no-check", *odd(at_once=True))
    done = in_process("mcp", "test", "odd", "echo")
    assert (done.code, done.json["error"]["code"]) == (1, "SURFACE_FAILED")


def test_resources_and_prompts(in_process, here: Path):
    (here / "library.py").write_text(SERVER)
    # The environment's interpreter, which has the SDK.
    in_process("mcp", "add", "library", "--no-check", "--", sys.executable, "library.py")
    shown = in_process("mcp", "resources", "library", "--no-json").out
    assert re.search(r"shop://hours +text/plain +hours", shown)

    (one,) = in_process("mcp", "prompts", "library").json["items"]
    assert one["name"] == "greet"
    required = [(arg["name"], arg["required"]) for arg in one["arguments"]]
    assert required == [("who", True), ("how", False)]
    filled = in_process("mcp", "prompts", "library", "greet", "--arg", "who=Ann", "--no-json")
    assert "user: Greet Ann kindly." in filled.out
    unknown = in_process("mcp", "prompts", "library", "nothing")
    assert (unknown.code, unknown.json["error"]["code"]) == (1, "TOOL_ERROR")
    assert in_process("mcp", "prompts", "library", "--arg", "a=b").code == 2


def test_a_module_has_neither(in_process, shop: None):
    assert in_process("mcp", "resources", "shop").json == {"items": [], "next": None}
    assert "nothing to read" in in_process("mcp", "resources", "shop", "--no-json").out
    done = in_process("mcp", "prompts", "shop")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")


def test_one_that_wants_a_sign_in_is_added_and_says_how(in_process):
    with running(Guard()) as guard:
        url = f"{guard.url}/api"
        done = in_process("mcp", "add", "api", "--url", url, "--auth", "oauth")
        assert (done.code, done.json["found"]["status"]) == (0, "sign_in_required"), done.out
        error = done.json["found"]["error"]
        assert error["code"] == "SIGN_IN_REQUIRED"
        assert f"`holdfast auth login mcp:api --url {url}`" in error["hint"]
        tested = in_process("mcp", "test", "api")
        assert (tested.code, tested.json["status"]) == (1, "sign_in_required")
        assert "sign in required" in in_process("mcp", "list", "--connect", "--no-json").out
        checks = {one["name"]: one for one in in_process("doctor").json["checks"]}
        assert checks["surface api"]["state"] == "warn"


# -- elsewhere ----------------------------------------------------------------------------------------


def test_tools_of_surfaces_are_listed_described_and_found(in_process, shop: None, tools):
    items = {one["name"]: one for one in in_process("tools", "list", *tools).json["items"]}
    assert items["shop_stock"]["surface"] == "shop"
    assert items["pay"]["surface"] is None
    only = in_process("tools", "list", *tools, "--surface", "shop").json["items"]
    assert [one["name"] for one in only] == ["shop_order", "shop_stock"]
    assert "# read, risk low, from shop" in in_process("tools", "list", "--no-json").out

    found = in_process("tools", "describe", "shop_order").json
    assert (found["surface"], found["side_effect"]) == ("shop", "write")
    assert re.search(
        r"surface +shop", in_process("tools", "describe", "shop_order", "--no-json").out
    )
    other = in_process("tools", "describe", "pay", *tools, "--surface", "shop")
    assert (other.code, other.json["error"]["code"]) == (2, "NOT_FOUND")

    found = in_process("tools", "search", "order more", *tools, "--surface", "shop", "--limit", "1")
    assert [one["name"] for one in found.json["items"]] == ["shop_order"]
    assert in_process("tools", "list", "--surface", "none").json["error"]["code"] == "NOT_FOUND"


def test_a_session_sees_the_surfaces_it_was_opened_with(in_process, here: Path, shop: None):
    (here / "holdfast.toml").write_text("[session]\nsurfaces = []\n")
    assert in_process("tools", "list").json["items"] == []
    assert in_process("tools", "list", "--surface", "shop").json["items"] == []


def test_a_surface_that_is_down_does_not_hide_the_rest(in_process, shop: None):
    in_process("mcp", "add", "down", "--no-check", "--", "nothing-at-all")
    found = in_process("tools", "list").json
    assert {one["surface"] for one in found["items"]} == {"shop"}
    assert "nothing-at-all" in found["failed"]["down"]
    assert "nothing-at-all" in in_process("tools", "list", "--no-json").err
    only = in_process("tools", "list", "--surface", "down")
    assert (only.code, only.json["error"]["code"]) == (1, "SURFACE_FAILED")


def test_what_a_session_has_itself_needs_no_connection(in_process, tools, tmp_path: Path):
    started = tmp_path / "started"
    script = f"open({str(started)!r}, 'w')"
    in_process("mcp", "add", "x", "--no-check", "--", PYTHON, "-c", script)
    assert in_process("tools", "describe", "pay", *tools).code == 0
    assert not started.exists()
    assert in_process("mcp", "list").code == 0
    assert not started.exists()
    assert in_process("mcp", "test", "x").code == 1
    assert started.exists()


def test_the_doctor_connects_to_each(in_process, shop: None):
    in_process("mcp", "add", "odd", *odd(ECHO, BROKEN))
    in_process("mcp", "add", "down", "--no-check", *odd(at_once=True))
    done = in_process("doctor")
    checks = {one["name"]: one for one in done.json["checks"]}
    assert done.code == 1
    assert checks["surface shop"]["state"] == "ok"
    assert "2 tools" in checks["surface shop"]["what"]
    assert checks["surface odd"]["state"] == "warn"
    assert "refused: bad" in checks["surface odd"]["what"]
    assert checks["surface down"]["state"] == "fail"
    assert "--frobnicate" in checks["surface down"]["what"]


def test_looking_records_nothing(in_process, shop: None):
    before = len(in_process("journal", "show").json["items"])
    for command in (
        ["mcp", "list", "--connect"],
        ["mcp", "test", "shop"],
        ["tools", "list"],
        ["doctor"],
    ):
        assert in_process(*command).code == 0
    assert len(in_process("journal", "show").json["items"]) == before


def test_what_is_said_about_a_tool_here_goes_before_its_server(in_process):
    added = in_process("mcp", "add", "odd", "--side-effect", "env=read", *odd(PAY))
    assert [one["side_effect"] for one in added.json["found"]["tools"]] == ["read"]
