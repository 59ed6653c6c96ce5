"""Code that is certain to fail is refused before any of it runs; code that may go well never is."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.shell.rehearsal import rehearse


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


class Till:
    """Something that is done, or not."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def price(self) -> Any:
        @holdfast.capability(side_effect="read")
        def price(item: str) -> int:
            """What an item costs."""
            self.done.append(item)
            return 7

        return price


@pytest.mark.parametrize(
    ("code", "expected", "line"),
    [
        ("foo(1)", "UNKNOWN_TOOL", 1),
        ("price('z')\nfoo(1)", "UNKNOWN_TOOL", 2),
        ("price('z')\nx = [1, 2 + foo()]", "UNKNOWN_TOOL", 2),
        ("price('z')\nif foo(): pass", "UNKNOWN_TOOL", 2),
        ("price('z')\nfor i in foo(): pass", "UNKNOWN_TOOL", 2),
        ("price('z')\nawait foo()", "UNKNOWN_TOOL", 2),
        ("price('z')\nprint(f'{foo()}')", "UNKNOWN_TOOL", 2),
        ("def f():\n  return foo()\nprice('z')\nfoo(f())", "UNKNOWN_TOOL", 4),
        ("try:\n  foo()\nexcept NameError:\n  pass\nprice('z')\nfoo()", "UNKNOWN_TOOL", 6),
        ("price('z')\nglobals()", "UNSUPPORTED_FEATURE", 2),
        ("price('z')\nimport subprocess", "UNSUPPORTED_FEATURE", 2),
        ("price('z')\nimport json, socket", "UNSUPPORTED_FEATURE", 2),
        ("price('z')\nfrom collections.abc import Mapping", "UNSUPPORTED_FEATURE", 2),
        ("exec_ = 1\nprice('z'); import subprocess", "UNSUPPORTED_FEATURE", 2),
    ],
)
async def test_what_is_certain_to_fail(url: str, code: str, expected: str, line: int) -> None:
    till = Till()
    async with holdfast.open(url, {}, capabilities=[till.price()]) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.error is not None
        assert (run.status, run.error.code) == ("validation_error", expected)
        assert run.error.span is not None
        assert run.error.span.line == line
        assert till.done == []
        checked = await hf.shell.run(code, session="s", validate_only=True)
        assert any(
            (one.code, one.message, one.hint, one.span)
            == (run.error.code, run.error.message, run.error.hint, run.error.span)
            for one in checked.diagnostics
        )
        dry = await hf.shell.run(code, session="s", dry_run=True)
        assert dry.error == run.error


@pytest.mark.parametrize(
    "code",
    [
        "if 1 > 2: foo()",
        "def f():\n  return foo()",
        "f = lambda: foo()",
        "[foo(x) for x in ()]",
        "1 == 2 and foo()",
        "1 if True else foo()",
        "for i in []: foo()",
        "while False: foo()",
        "1 > 2 > foo()",
        "try:\n  foo()\nexcept NameError:\n  pass",
        "try:\n  import subprocess\nexcept ImportError:\n  pass",
        "if False:\n  import subprocess",
        "def f():\n  import subprocess",
        "return 1\nfoo()",
        "if True:\n  return 1\nfoo()",
        "exec('def foo(): pass')\nfoo()",
        "def make():\n  global foo\n  foo = print\nmake()\nfoo()",
        "for foo in [print]: pass\nfoo()",
        "match print:\n  case foo: pass\nfoo()",
        "if True:\n  foo = print\nfoo()",
        "text = 'foo() import subprocess'  # foo()\nlen(text)",
        "import json\njson.dumps(1)",
        "import os.path as p, re\nfrom datetime import date as day\nday(2020, 1, 1).isoformat()",
    ],
)
async def test_what_may_go_well_is_run(code: str) -> None:
    async with holdfast.open("memory:", {}) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.status == "ok", run.error


async def test_what_a_session_knows_can_be_called(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("def f():\n  return 1", session="s")
        await hf.shell.run("g = f", session="s")
        assert (await hf.shell.run("f() + g()", session="s")).result == 2
        taken = await hf.shell.run("h()", session="s")
        assert (taken.error and taken.error.code) == "UNKNOWN_TOOL"
        await hf.shell.run("exec('def h(): return 3')", session="s")
        assert (await hf.shell.run("h()", session="s")).result == 3
    async with holdfast.open(url, {}) as hf:
        assert (await hf.shell.run("f() + g() + h()", session="s")).result == 5
        await hf.shell.fork("s", "t")
        assert (await hf.shell.run("f()", session="t")).result == 1
        other = await hf.shell.run("f()", session="u")
        assert (other.error and other.error.code) == "UNKNOWN_TOOL"


async def test_a_refused_run_leaves_nothing_and_is_on_record(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        refused = await hf.shell.run("x = 2\ny = 3\nfoo()", session="s")
        assert (await hf.shell.run("x", session="s")).result == 1
        called = await hf.shell.run("y()", session="s")
        assert (called.error and called.error.code) == "UNKNOWN_TOOL"
        assert refused.run_id is not None
        assert (await rehearse(hf.shell.services, refused.run_id)).same
    async with holdfast.open(url, {}) as hf:
        checked = await hf.shell.run("y()", session="s", validate_only=True)
        assert (checked.error and checked.error.code) == "UNKNOWN_TOOL"
        assert (await hf.shell.run("x", session="s")).result == 1
        runs = await hf.runs.list(session="s")
        assert refused.run_id in [one.id for one in runs if one.status == "failed"]
