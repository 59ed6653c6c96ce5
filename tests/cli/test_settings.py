"""A settings file means the same from every folder below it, and what is wrong with it is told with its name."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime import Settings

CAPS = """
from holdfast import capability

@capability(side_effect="read")
def price(item: str) -> int:
    "What an item costs."
    return 7
"""
WHOLE = """
home = "state"
[journal]
url = "sqlite:///books/journal.db"
[session]
capabilities = ["caps.py", "caps:price", "json"]
mounts = [{path = "/w", host = "./data"}, {path = "/h", host = "~/x"}, {path = "/a", host = "/abs"}]
databases = [{name = "a", url = "sqlite:///a.db"}, {name = "b", url = "$BOOKS"}, {name = "c", url = "postgresql://h/c"}]
[agent]
model = "scripted:answers.json"
fallbacks = ["openai:gpt", "scripted:caps.py:steps"]
[agents.helper.setup]
mounts = [{path = "/w", host = "../data"}]
[approvals]
command = ["./ask.sh", "./as-it-is"]
[vault]
key = "command"
command = ["pass", "show"]
[[hooks]]
id = "h"
point = "after_run_terminal"
command = ["bin/hook"]
[surfaces.one]
command = "python"
args = ["server.py"]
[surfaces.two]
command = "bin/server"
cwd = "servers"
[surfaces.three]
reference = "caps"
[surfaces.four]
document = "https://example.com/openapi.json"
[surfaces.five]
document = "openapi.json"
[surfaces.six]
command = "server"
jail = true
mounts = ["data:rw"]
"""


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """A folder of a project; the settings lie two above it."""
    (tmp_path / "caps.py").write_text(CAPS)
    folder = tmp_path / "sub" / "deep"
    folder.mkdir(parents=True)
    return folder


def test_relative_paths_are_meant_from_the_folder_of_the_file(
    below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "holdfast.toml").write_text(WHOLE)
    monkeypatch.chdir(below)
    for name in ("HOLDFAST_HOME", "HOLDFAST_URL", "HOLDFAST_MODEL"):
        monkeypatch.delenv(name, raising=False)
    found: dict[str, Any] = Settings.load().model_dump(mode="json")
    root = str(tmp_path)
    assert found["home"] == f"{root}/state"
    assert found["journal"]["url"] == f"sqlite:///{root}/books/journal.db"
    session = found["session"]
    assert session["capabilities"] == [f"{root}/caps.py", f"{root}/caps.py:price", "json"]
    assert [one["host"] for one in session["mounts"]] == [f"{root}/data", "~/x", "/abs"]
    urls = [one["url"] for one in session["databases"]]
    assert urls == [f"sqlite:///{root}/a.db", "$BOOKS", "postgresql://h/c"]
    assert found["agent"]["model"] == f"scripted:{root}/answers.json"
    assert found["agent"]["fallbacks"] == ["openai:gpt", f"scripted:{root}/caps.py:steps"]
    helper = found["agents"]["helper"]["setup"]
    assert helper["mounts"][0]["host"] == str(tmp_path.parent / "data")
    assert found["approvals"]["command"] == [f"{root}/ask.sh", "./as-it-is"]
    assert found["vault"]["command"] == ["pass", "show"]
    assert found["hooks"][0]["command"] == [f"{root}/bin/hook"]
    one, two, three, four, five, six = found["surfaces"].values()
    assert (one["command"], one["args"], one["cwd"]) == ("python", ["server.py"], root)
    assert (two["command"], two["cwd"]) == (f"{root}/bin/server", f"{root}/servers")
    assert three["reference"] == f"{root}/caps.py"
    assert four["document"] == "https://example.com/openapi.json"
    assert five["document"] == f"{root}/openapi.json"
    assert six["mounts"] == [f"{root}/data:rw"]
    assert "cwd" not in six


def test_relative_paths_elsewhere_are_meant_from_the_working_directory(
    below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "holdfast.toml").write_text('home = "state"\n')
    monkeypatch.chdir(below)
    monkeypatch.setenv("HOLDFAST_HOME", "mine")
    assert Settings.load().folder == below / "mine"
    monkeypatch.delenv("HOLDFAST_HOME")
    assert Settings.load({"home": "other"}).folder == below / "other"
    assert Settings.load("../../holdfast.toml").folder == tmp_path / "state"


def test_a_project_is_the_same_from_every_folder_in_it(holdfast, below: Path, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello")
    (below / "caps.py").write_text("raise RuntimeError('imported from the wrong folder')\n")
    (tmp_path / "holdfast.toml").write_text(
        '[session]\ncapabilities = ["caps.py"]\nmounts = [{path = "/w", host = "./data"}]\n'
    )
    code = "[price('x'), read_text('/w/a.txt')]"
    for folder in (tmp_path, below):
        done = holdfast("run", "-e", code, cwd=folder)
        assert done.json["result"] == [7, "hello"], done.out + done.err


@pytest.mark.parametrize(
    ("text", "code", "says", "page"),
    [
        ('[shell]\njail = "maybe"\n', "INVALID_ARGUMENT", "shell.jail", "reference/settings.md"),
        (
            '[[policy.rules]]\nid = "small"\nthen = "allow"\nbogus = 1\n',
            "POLICY_INVALID",
            "Rule `small`",
            "guides/policy.md",
        ),
        (
            '[[policy.rules]]\nid = "small"\nthen = "perhaps"\n',
            "POLICY_INVALID",
            "Rule `small`",
            "guides/policy.md",
        ),
        ('[policy]\ndefault = "perhaps"\n', "POLICY_INVALID", "policy.default", None),
        (
            '[[policy.rules]]\nid = "small"\nthen = "ask"\nwhere = "1 +"\n',
            "POLICY_INVALID",
            "small",
            None,
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_file_and_the_page_that_helps(
    holdfast, below: Path, tmp_path: Path, text: str, code: str, says: str, page: str | None
):
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    done = holdfast("session", "list", cwd=below)
    error = done.json["error"]
    assert (done.code, error["code"]) == (2, code)
    assert str(file) in error["message"]
    assert says in error["message"]
    assert page is None or f"docs/{page}" in error["hint"]
