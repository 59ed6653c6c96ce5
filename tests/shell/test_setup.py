"""A session remembers what it was opened with: any process that goes on with it has the same."""

from pathlib import Path
from typing import Any

import pytest
from tests.shell.support import ALLOW, TOOLS, codes, elsewhere, kinds

import holdfast
from holdfast.errors import CallerError

ASK = "[current_policy()['limits'][name] for name in ('memory_mb', 'cpu_ms')]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Something to mount."""
    found = tmp_path / "data"
    found.mkdir()
    (found / "a.txt").write_text("hello")
    return found


async def again(file: str, code: str, config: Any = ALLOW) -> Any:
    """Result, or error code, of code that another process runs in the session."""
    text = f"""
done = await hf.shell.run({code!r}, session="s")
tell(done.result if done.error is None else done.error.code)
"""
    return await elsewhere(file, text, config)


async def test_capabilities_by_reference(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        done = await hf.shell.run("tick('a')", session="s", setup={"capabilities": [TOOLS]})
        assert done.result == 1
        assert (await hf.shell.run("tick('a')", session="other")).status != "ok"
    assert await again(file, "tick('a')") == 2


async def test_one_capability_of_a_file(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        setup: dict[str, Any] = {"capabilities": [f"{TOOLS}:tick"]}
        code = "[one['name'] for one in list_tools()]"
        done = await hf.shell.run(code, session="s", setup=setup)
        assert done.result == ["tick"]


async def test_mounts(file: str, folder: Path) -> None:
    setup: dict[str, Any] = {"mounts": [{"path": "/data", "host": str(folder)}]}
    async with holdfast.open(file, ALLOW) as hf:
        code = "read_text('/data/a.txt')"
        assert (await hf.shell.run(code, session="s", setup=setup)).result == "hello"
        assert (await hf.shell.run(code, session="other")).status != "ok"
        denied = await hf.shell.run("write_text('/data/b.txt', 'x')", session="s")
        assert denied.status != "ok"
    assert await again(file, "read_text('/data/a.txt')") == "hello"
    assert not (folder / "b.txt").exists()


async def test_rules(file: str) -> None:
    setup: dict[str, Any] = {
        "capabilities": [TOOLS],
        "rules": [{"id": "no-ticks", "tool": "tick", "then": "deny", "reason": "Quiet."}],
    }
    async with holdfast.open(file, ALLOW) as hf:
        done = await hf.shell.run("tick('a')", session="s", setup=setup)
        assert codes(done) == ("permission_denied", "PERMISSION_DENIED")
    assert await again(file, "tick('a')") == "PERMISSION_DENIED"
    assert await again(file, "await look('a')") == "a is fine"


async def test_budget(file: str) -> None:
    setup: dict[str, Any] = {"capabilities": [TOOLS], "budget": {"calls": 3}}
    async with holdfast.open(file, ALLOW) as hf:
        done = await hf.shell.run("[tick('a'), tick('b')]", session="s", setup=setup)
        assert done.result == [1, 2]
    assert await again(file, "tick('c')") == 3
    assert await again(file, "tick('d')") == "BUDGET_EXCEEDED"


async def test_limits(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        setup: dict[str, Any] = {"limits": {"memory_mb": 32, "cpu_ms": 1234}}
        assert (await hf.shell.run(ASK, session="s", setup=setup)).result == [32, 1234]
    assert await again(file, ASK) == [32, 1234]


async def test_the_first_setup_is_in_the_first_record(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("1", session="s", setup={"ttl_ms": 5000})
        assert "session_opened" not in await kinds(hf, "s")
        made = await anext(hf.journal.read("s"))
        setup = made.payload["setup"]
        assert isinstance(setup, dict)
        assert setup["ttl_ms"] == 5000


async def test_a_later_setup_replaces_it_and_is_on_record(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = tick('a')", session="s", setup={"capabilities": [TOOLS]})
        later: dict[str, Any] = {"capabilities": [f"{TOOLS}:look"], "limits": {"cpu_ms": 4321}}
        assert (await hf.shell.run(ASK, session="s", setup=later)).result == [64, 4321]
        assert (await kinds(hf, "s")).count("session_opened") == 1
        assert (await hf.shell.run("await look('a')", session="s")).result == "a is fine"
        assert (await hf.shell.run("tick('b')", session="s")).status != "ok"
        # The same once more is nothing new.
        await hf.shell.run("1", session="s", setup=later)
        assert (await kinds(hf, "s")).count("session_opened") == 1
    assert await again(file, "[x, await look('b')]") == [1, "b is fine"]
    assert await again(file, ASK) == [64, 4321]


async def test_state_is_kept_under_other_limits(file: str) -> None:
    """Also those that are built into the engine's state."""
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = 1", session="s")
        for memory in (32, 128, 64):
            setup: dict[str, Any] = {"limits": {"memory_mb": memory}}
            done = await hf.shell.run("x = x + 1\nx", session="s", setup=setup)
            assert done.status == "ok", done.error
            assert (await hf.shell.run(ASK, session="s")).result[0] == memory  # type: ignore[index]
    assert await again(file, "x") == 4


async def test_a_copy_is_opened_with_the_same(file: str, folder: Path) -> None:
    setup: dict[str, Any] = {"mounts": [{"path": "/data", "host": str(folder)}]}
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = 1", session="s", setup=setup)
        await hf.shell.fork("s", "t")
        await hf.shell.restore("u", await hf.shell.snapshot("s"))
        for name in ("t", "u"):
            done = await hf.shell.run("read_text('/data/a.txt')", session=name)
            assert done.result == "hello"


async def test_a_setup_that_comes_with_a_snapshot_is_remembered(file: str, folder: Path) -> None:
    setup: dict[str, Any] = {"mounts": [{"path": "/data", "host": str(folder)}]}
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = 1", session="s")
        await hf.shell.restore("s", await hf.shell.snapshot("s"), setup=setup)
        done = await hf.shell.run("[x, read_text('/data/a.txt')]", session="s")
        assert done.result == [1, "hello"]
    assert await again(file, "[x, read_text('/data/a.txt')]") == [1, "hello"]


async def test_a_session_made_again_under_its_name_has_nothing_of_the_old(file: str) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = tick('a')", session="s", setup={"capabilities": [TOOLS]})
        await elsewhere(file, "await hf.shell.destroy('s')", ALLOW)
        assert (await hf.shell.run("tick('b')", session="s")).status != "ok"
        assert (await hf.shell.run("list_tools()", session="s")).result == []


async def test_settings_are_what_a_session_is_opened_with_unless_it_says_otherwise(
    file: str, folder: Path
) -> None:
    config = {
        **ALLOW,
        "session": {"mounts": [{"path": "/data", "host": str(folder)}], "limits": {"cpu_ms": 777}},
    }
    async with holdfast.open(file, config) as hf:
        done = await hf.shell.run("read_text('/data/a.txt')", session="s")
        assert done.result == "hello"
        done = await hf.shell.run(ASK, session="t", setup={"clock": True})
        assert done.result != [64, 777]
        assert (await hf.shell.run("read_text('/data/a.txt')", session="t")).status != "ok"


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ({"capabilities": ["no.such.module"]}, "no.such.module"),
        ({"capabilities": [f"{TOOLS}:nothing"]}, "nothing"),
        ({"colour": "red"}, "colour"),
        ({"ttl_ms": 0}, "ttl_ms"),
    ],
)
async def test_a_setup_that_can_not_be_is_refused(
    file: str, setup: dict[str, Any], says: str
) -> None:
    async with holdfast.open(file, ALLOW) as hf:
        await hf.shell.run("x = 1", session="s")
        before = await kinds(hf, "s")
        done = await hf.shell.run("x = 2", session="s", setup=setup)
        assert codes(done) == ("validation_error", "INVALID_ARGUMENT")
        assert done.error is not None
        assert says in done.error.message
        assert await kinds(hf, "s") == before
        assert (await hf.shell.run("x", session="s")).result == 1
        with pytest.raises(CallerError):
            await hf.shell.create("t", setup=setup)
        assert [one.id for one in await hf.shell.list()] == ["s"]
