"""Capabilities by reference."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

import holdfast
from holdfast.capabilities import load
from holdfast.errors import CallerError

TOOLS = '''
from holdfast.capabilities import capability

@capability
def first(a: int) -> int:
    """First."""
    return a

@capability
def second() -> None: ...

again = first
several = [first, (second,)]
by_name = {"x": second}

class box:
    inner = first

def plain(): ...
number = 5
'''


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "some_tools.py"
    path.write_text(TOOLS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_tools", raising=False)
    return path


def names(reference: str) -> list[str]:
    return [one.capability.name for one in load(reference)]


def test_references(tools: Path):
    for where in ("some_tools", str(tools)):
        assert names(where) == ["first", "second"]
        assert names(f"{where}:first") == ["first"]
        assert names(f"{where}:several") == ["first", "second"]
        assert names(f"{where}:by_name") == ["second"]
        assert names(f"{where}:box.inner") == ["first"]


def test_a_file_is_loaded_once(tools: Path):
    assert load(str(tools))[0] is load(f"{tools}:first")[0]


async def test_a_file_that_the_program_imports_too_has_the_same_capabilities(tools: Path):
    config = {"session": {"capabilities": [str(tools)]}, "policy": {"default": "allow"}}
    given = import_module("some_tools").first
    async with holdfast.open("memory:", config=config, capabilities=[given]) as hf:
        assert (await hf.shell.run("first(2)")).result == 2


async def test_a_copy_of_it_has_not(tools: Path, tmp_path: Path):
    other = tmp_path / "copy_of_them.py"
    other.write_text(TOOLS)
    config = {"session": {"capabilities": [str(tools), str(other)]}}
    async with holdfast.open("memory:", config=config) as hf:
        refused = (await hf.shell.run("1")).error
    assert refused is not None
    assert "Two capabilities are called `first`" in refused.message


def test_a_relative_path(tools: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tools.parent)
    assert names("some_tools.py:second") == ["second"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("", "names no capability"),
        (":x", "names no capability"),
        ("some_tools:", "names no capability"),
        ("no_such_module_here", "There is no module `no_such_module_here`"),
        ("some_tools.deeper", "There is no module `some_tools.deeper`"),
        ("not a module", "is not the name of a module"),
        ("no/such/file.py", "There is no file `no/such/file.py`"),
        ("some_tools:third", "`some_tools` has no `third`"),
        ("some_tools:plain", "is no capability but a `function`"),
        ("some_tools:number", "is no capability but a `int`"),
        ("json", "`json` declares no capability"),
    ],
)
def test_refusals(tools: Path, reference: str, said: str):
    with pytest.raises(CallerError) as refused:
        load(reference)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError", 2),
        ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'", 1),
        ("x = 1\ny = (\n", "SyntaxError", 2),
        (
            "from holdfast.capabilities import capability\n\n@capability\ndef f(*a): ...\n",
            "takes `*a`",
            3,
        ),
    ],
)
def test_a_module_that_can_not_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str, line: int
):
    path = tmp_path / "broken_tools.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for reference in ("broken_tools", str(path)):
        with pytest.raises(CallerError) as refused:
            load(reference)
        assert refused.value.code == "INVALID_ARGUMENT"
        assert said in refused.value.message
        assert f"broken_tools.py:{line}" in refused.value.message
        monkeypatch.delitem(sys.modules, "broken_tools", raising=False)
