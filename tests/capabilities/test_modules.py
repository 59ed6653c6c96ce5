"""Python modules and entry points as surfaces: what they offer, and that a reload is one."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.capabilities.support import CONTEXT

from holdfast.capabilities.connection import Connection, Source
from holdfast.capabilities.modules import ModuleConnection, ModuleSource
from holdfast.contracts import SideEffect
from holdfast.contracts.surface import ModuleSurface
from holdfast.errors import CallerError, ModelError, NotFound

TOOLS = '''
from holdfast.capabilities import capability

STATE = []

@capability(side_effect="write", approval="manual", timeout_ms=123, rate_per_min=7, cost_micros=9, idempotent=True)
def keep(value: int) -> int:
    """Keep a number."""
    STATE.append(value)
    return helper()

@capability(side_effect="database", approval="auto:args.limit < 5")
async def look(limit: int) -> list[int]:
    """Look."""
    return STATE[:limit]

def helper():
    return VERSION

VERSION = 1
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def source(reference: str, name: str = "shop", **more: Any) -> ModuleSource:
    return ModuleSource(name, ModuleSurface(reference=reference, **more))


async def offered(one: ModuleSource) -> dict[str, str]:
    async with one.open() as connection:
        return {offer.tool: offer.capability.name for offer in connection.offers.tools}


async def test_a_module_is_a_source(folder: Path):
    (folder / "tools_a.py").write_text(TOOLS)
    one: Source = source("tools_a")
    async with one.open() as opened:
        connection: Connection = opened
        assert (await connection.call("keep", {"value": 5}, CONTEXT)) == 1
        assert (await connection.call("look", {"limit": 3}, CONTEXT)) == [5]
        assert sys.modules["tools_a"].STATE == [5]  # the program's own module, not a second one
        assert (await connection.resources(), connection.server) == ((), "tools_a")
        await connection.check()
        assert not connection.lost.is_set()
        assert not connection.changed.is_set()
        with pytest.raises(NotFound):
            await connection.read("x:y")
        with pytest.raises(ModelError, match="has no `gone` now") as caught:
            await connection.call("gone", {}, CONTEXT)
        assert caught.value.code == "SURFACE_UNAVAILABLE"


async def test_what_was_declared_is_kept(folder: Path):
    (folder / "tools_b.py").write_text(TOOLS)
    async with source("tools_b", timeout_ms=100_000).open() as connection:
        keep, look = (offer.capability for offer in connection.offers.tools)
    assert (keep.name, keep.description, keep.side_effect) == (
        "shop_keep",
        "Keep a number.",
        SideEffect.WRITE,
    )
    assert (keep.approval_policy, keep.idempotent, keep.cost_micros) == ("manual", True, 9)
    assert (keep.limits.timeout_ms, keep.limits.rate_per_min) == (123, 7)
    assert keep.input_schema["required"] == ["value"]
    assert keep.output_schema == {"type": "integer"}
    declared = sys.modules["tools_b"].keep.capability
    assert (keep.digest, declared.name) != (declared.digest, "shop_keep")
    assert (look.asynchronous, look.approval_policy) == (
        True,
        sys.modules["tools_b"].look.capability.approval_policy,
    )


async def test_what_the_definition_says_counts(folder: Path):
    (folder / "tools_c.py").write_text(TOOLS)
    assert await offered(source("tools_c", include=["k*"])) == {"keep": "shop_keep"}
    assert await offered(source("tools_c", exclude=["k*"])) == {"look": "shop_look"}
    assert await offered(source("tools_c", prefix="")) == {"keep": "keep", "look": "look"}
    assert await offered(source("tools_c:keep", prefix="my_")) == {"keep": "my_keep"}
    async with source("tools_c", side_effects={"lo*": "read"}, timeout_ms=50).open() as connection:
        keep, look = (offer.capability for offer in connection.offers.tools)
    assert (keep.side_effect, look.side_effect) == (SideEffect.WRITE, SideEffect.READ)
    assert (keep.limits.timeout_ms, look.limits.timeout_ms) == (50, 50)
    assert await offered(source("tools_c:keep", prefix="9-")) == {"keep": "tool_9_keep"}


async def test_a_tool_that_can_not_be_offered_is_refused_alone(folder: Path):
    (folder / "tools_d.py").write_text(
        TOOLS
        + """
@capability(name="keep")
def other() -> None: ...
@capability(approval="auto:args.nothing > 1")
def wrong(a: int) -> None: ...
@capability(name="int_")
def fine() -> None: ...
"""
    )
    async with source("tools_d").open() as connection:
        assert [one.tool for one in connection.offers.tools] == ["keep", "look", "int_"]
        assert set(connection.offers.refused) == {"keep", "wrong"}
        assert "called the same" in connection.offers.refused["keep"]
        assert "no argument of it" in connection.offers.refused["wrong"]
        assert await connection.call("keep", {"value": 1}, CONTEXT) == 1  # the first


async def test_arguments_are_converted_and_refused_as_declared(folder: Path):
    (folder / "tools_e.py").write_text(
        "from datetime import date\nfrom holdfast.capabilities import capability\n"
        "@capability\ndef year(day: date) -> int:\n    return day.year\n"
    )
    async with source("tools_e").open() as connection:
        assert await connection.call("year", {"day": "2020-02-03"}, CONTEXT) == 2020
        with pytest.raises(CallerError, match="was called wrongly"):
            await connection.call("year", {"day": "no"}, CONTEXT)


async def test_reconcilers_are_kept(folder: Path):
    (folder / "tools_f.py").write_text(
        "from holdfast.capabilities import capability\nfrom holdfast.gate.executor import Context\n"
        "def find(context: Context):\n    return 7\n"
        "@capability(side_effect='write', reconcile=find)\ndef pay() -> int:\n    return 1\n"
        "@capability\ndef other() -> int:\n    return 1\n"
    )
    async with source("tools_f").open() as connection:
        assert connection.reconciles == {"pay"}
        found = await connection.reconcile("pay", {}, CONTEXT)
        assert (found.status, found.value) == ("completed", 7)


# --- reload ---


async def test_a_reload_imports_again_and_the_old_one_goes_on(folder: Path):
    path = folder / "tools_g.py"
    path.write_text(TOOLS)
    one = source("tools_g")
    async with one.open() as old:
        assert await old.call("keep", {"value": 5}, CONTEXT) == 1
        path.write_text(TOOLS.replace("VERSION = 1", "VERSION = 2"))  # as long, in the same second
        async with one.open() as new:
            assert await new.call("keep", {"value": 6}, CONTEXT) == 2
            assert await new.call("look", {"limit": 3}, CONTEXT) == [6]
            # What drains keeps its own globals.
            assert await old.call("keep", {"value": 7}, CONTEXT) == 1
            assert await old.call("look", {"limit": 3}, CONTEXT) == [5, 7]
    # Also when the definition was made anew.
    path.write_text(TOOLS.replace("VERSION = 1", "VERSION = 3"))
    async with source("tools_g").open() as newest:
        assert await newest.call("keep", {"value": 1}, CONTEXT) == 3


@pytest.mark.parametrize(
    "broken",
    ["1 / 0", "def (", "import nothing_of_the_kind", "raise SystemExit(1)", "keep = None"],
)
async def test_a_broken_reload_changes_nothing(folder: Path, broken: str):
    path = folder / "tools_h.py"
    path.write_text(TOOLS)
    one = source("tools_h:keep", name=f"s{abs(hash(broken))}")
    async with one.open() as old:
        path.write_text(f"{TOOLS}\nVERSION = 2\n{broken}\n")
        before = sys.modules["tools_h"]
        with pytest.raises(CallerError):
            async with one.open():
                pass
        assert sys.modules["tools_h"] is before
        assert await old.call("keep", {"value": 1}, CONTEXT) == 1
    path.write_text(TOOLS.replace("VERSION = 1", "VERSION = 4"))
    async with one.open() as repaired:
        assert await repaired.call("keep", {"value": 1}, CONTEXT) == 4


async def test_a_package_is_imported_again_with_what_is_below_it(folder: Path):
    package = folder / "tools_i"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from holdfast.capabilities import capability\nfrom tools_i.deep import WORD\n"
        "@capability\ndef word() -> str:\n    return WORD\n"
    )
    (package / "deep.py").write_text("WORD = 'one'\n")
    one = source("tools_i")
    async with one.open() as connection:
        assert await connection.call("word", {}, CONTEXT) == "one"
    (package / "deep.py").write_text("WORD = 'two'\n")
    async with one.open() as connection:
        assert await connection.call("word", {}, CONTEXT) == "two"
    kept = sys.modules["tools_i.deep"]
    (package / "deep.py").write_text("WORD = 'three'\n1 / 0\n")
    with pytest.raises(CallerError, match="ZeroDivisionError"):
        async with one.open():
            pass
    assert sys.modules["tools_i.deep"] is kept
    assert sys.modules["tools_i"].deep is kept


async def test_a_submodule_stays_where_its_package_has_it(folder: Path):
    package = folder / "tools_j"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(TOOLS)
    one = source("tools_j.part")
    async with one.open():
        pass
    kept = sys.modules["tools_j.part"]
    (package / "part.py").write_text("1 / 0")
    with pytest.raises(CallerError):
        async with one.open():
            pass
    assert sys.modules["tools_j"].part is kept


async def test_what_is_ours_is_never_imported_twice():
    one = source("holdfast.testing._no_such", name="ours")
    before = {name: module for name, module in sys.modules.items() if name.startswith("holdfast")}
    for _ in range(2):
        with pytest.raises(CallerError):
            async with one.open():
                pass
    after = {name: module for name, module in sys.modules.items() if name in before}
    assert after == before


async def test_an_import_that_hangs_can_be_left(folder: Path):
    (folder / "tools_k.py").write_text(
        "import threading, builtins\n"
        "if not hasattr(builtins, 'holdfast_go'):\n"
        "    builtins.holdfast_go = threading.Event()\n"
        "builtins.holdfast_go.wait(30)\n" + TOOLS
    )
    import builtins

    async def opens() -> None:
        async with source("tools_k").open():
            pytest.fail("it can't be open yet")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opens)
        while not hasattr(builtins, "holdfast_go"):  # noqa: ASYNC110 - a thread sets it
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    builtins.holdfast_go.set()  # type: ignore[attr-defined]  # set by the module above
    async with source("tools_k").open() as connection:  # its turn comes when the other has ended
        assert isinstance(connection, ModuleConnection)
    del builtins.holdfast_go  # type: ignore[attr-defined]  # set by the module above


# --- entry points ---


def install(folder: Path, package: str, points: str) -> None:
    """An installed package, as pip leaves it."""
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)


async def test_an_entry_point_is_a_source(folder: Path):
    (folder / "tools_l.py").write_text(TOOLS)
    install(folder, "shopping", "[holdfast.capabilities]\nshop = tools_l:keep\nall = tools_l\n")
    assert await offered(source("entry_points:all")) == {"keep": "shop_keep", "look": "shop_look"}
    async with source("entry_points:shop").open() as connection:
        assert connection.server == "shopping 1.2"
        assert [one.tool for one in connection.offers.tools] == ["keep"]


async def test_entry_points_that_name_nothing_or_too_much(folder: Path):
    (folder / "tools_m.py").write_text(TOOLS)
    install(folder, "one", "[holdfast.capabilities]\nshop = tools_m:keep\n")
    with pytest.raises(CallerError, match="No installed package") as caught:
        await offered(source("entry_points:other"))
    assert "shop" in (caught.value.hint or "")
    install(folder, "two", "[holdfast.capabilities]\nshop = tools_m:look\n")
    with pytest.raises(CallerError, match="2 entry points are called `shop`"):
        await offered(source("entry_points:shop"))
