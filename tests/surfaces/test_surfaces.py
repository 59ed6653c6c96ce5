"""Surfaces of a runtime: wanted at any time, connected at a boundary, seen by sessions, forgotten by none."""

from pathlib import Path

import anyio
import pytest
from tests.surfaces.support import FREE, SPEC, World, opened, tool, until

import holdfast
from holdfast.contracts.surface import SURFACES, StdioSurface
from holdfast.errors import CallerError, NotFound, OperatorError
from holdfast.runtime import Settings


async def names(hf: holdfast.Runtime, session: str = "default") -> set[str]:
    """What code in a session can call."""
    found = await hf.shell.run("[one['name'] for one in list_tools()]", session=session)
    assert found.status == "ok", found.error
    return set(found.result)  # type: ignore[arg-type]


async def changes(hf: holdfast.Runtime) -> list[tuple[str, str, str]]:
    return [
        (str(one.payload["name"]), str(one.payload["op"]), str(one.payload["phase"]))
        async for one in hf.journal.read(SURFACES)
        if one.kind == "surface_changed"
    ]


async def test_nothing_is_connected_before_a_session_sees_it(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        (view,) = await hf.surfaces.list()
        assert (view.status, view.staged, view.tools) == ("disconnected", "add", ())
        await hf.shell.run("1", setup={"surfaces": []}, session="blind")
        assert world["a"].opened == 0
        assert await names(hf) == {"a_one"}
        (view,) = await hf.surfaces.list()
        assert (view.status, view.staged, view.tools) == ("connected", None, ("a_one",))
        assert (view.generation, view.server, view.protocol) == (1, "a 1.0", "fake/1")
        assert await names(hf, "blind") == set()
    assert world.open == 0
    assert world["a"].closed == 1


async def test_code_calls_the_tool(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", {"command": "fake"})
        found = await hf.shell.run("a_one(n=3)['n'] + a_one(4)['n']")
        assert found.result == 7
        assert [one for one, _ in world["a"].calls] == ["one", "one"]
        assert (await hf.surfaces.view("a")).inflight == 0


async def test_a_session_sees_only_the_surfaces_its_setup_names(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        await hf.shell.run("1", session="s", setup={"surfaces": ["b"]})
        assert world["a"].opened == 0
        assert await names(hf, "s") == {"b_one"}
        assert await names(hf) == {"a_one", "b_one"}


async def test_what_was_added_and_removed_comes_back_after_a_restart(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    written = {"surfaces": {"file": {"command": "x"}, "gone": {"command": "x"}}}
    async with opened(url, **written) as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.remove("gone")
        await hf.surfaces.reload("a")
    async with opened(url, **written) as hf:
        assert [one.name for one in await hf.surfaces.list()] == ["a", "file"]
        assert await names(hf) == {"a_one", "file_one"}
    assert world["gone"].opened == 0


async def test_what_the_journal_says_goes_before_the_file(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    async with opened(url, surfaces={"a": {"command": "x"}}) as hf:
        await hf.surfaces.add("a", {"reference": "mod:tools"})
    async with opened(url, surfaces={"a": {"command": "x"}}) as hf:
        assert (await hf.surfaces.view("a")).kind == "module"


async def test_another_process_on_the_journal_sees_what_is_wanted(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    async with opened(url) as one, opened(url) as other:
        assert await names(other, "s") == set()
        await one.surfaces.add("a", SPEC)

        async def becomes(wanted: set[str]) -> None:
            with anyio.fail_after(10):
                while await names(other, "s") != wanted:  # noqa: ASYNC110  (it is seen at a boundary)
                    await anyio.sleep(0.02)

        await becomes({"a_one"})
        assert world["a"].opened == 1  # the first one has nobody who sees it
        await one.surfaces.remove("a")
        await becomes(set())
        await until(lambda: world.open == 0)


async def test_a_removed_surface_is_gone_at_the_next_boundary(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        assert await names(hf) == {"a_one"}
        await hf.surfaces.remove("a")
        assert (await hf.surfaces.list()) == []
        assert world.open == 1
        assert await names(hf) == set()
        await until(lambda: world.open == 0)
        assert await changes(hf) == [
            ("a", "add", "pending"),
            ("a", "add", "applied"),
            ("a", "remove", "draining"),
            ("a", "remove", "applied"),
        ]
        with pytest.raises(NotFound):
            await hf.surfaces.view("a")


async def test_reload_replaces_the_connection(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.wait_ready()
        world["a"].tools["two"] = tool("a_two")
        await hf.surfaces.reload("a")
        (view,) = await hf.surfaces.wait_ready(["a"])
        assert (view.generation, view.tools) == (2, ("a_one", "a_two"))
        await until(lambda: world.open == 1)
        assert await names(hf) == {"a_one", "a_two"}


async def test_a_failed_reload_leaves_the_old_connection_serving(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.wait_ready()
        world["a"].broken = OSError("no such program")
        await hf.surfaces.reload("a")
        await hf.shell.run("1")
        await until(lambda: hf.surfaces.epoch and world.open == 1)
        assert (await hf.shell.run("a_one(1)['n']")).result == 1
        assert (await hf.surfaces.view("a")).generation == 1


async def test_a_surface_that_fails_is_waited_for_once_and_tried_again(world: World):
    world["a"].broken = OSError("no such program")
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        assert await names(hf) == set()
        view = await hf.surfaces.view("a")
        assert view.detail is None or "OSError: no such program" in view.detail
        with pytest.raises(OperatorError, match=r"SURFACE_FAILED.*no such program"):
            await hf.surfaces.wait_ready(timeout_ms=1)
        world["a"].broken = None
        await until(lambda: world.open == 1)
        assert await names(hf) == {"a_one"}
        failed = [one for one in await changes(hf) if one[2] == "failed"]
        assert len(failed) == 1  # the same failure is told once


async def test_a_server_that_does_not_come_up_in_time_has_failed(world: World):
    world["a"].gate = anyio.Event()
    async with opened() as hf:
        await hf.surfaces.add("a", {"command": "x", "connect_timeout_ms": 50})
        assert await names(hf) == set()  # and does not wait for ever
        with pytest.raises(OperatorError, match="did not come up within"):
            await hf.surfaces.wait_ready(timeout_ms=1)


async def test_a_runtime_is_left_while_a_server_hangs(world: World):
    world["a"].gate = anyio.Event()
    with anyio.fail_after(5):
        async with opened() as hf:
            await hf.surfaces.add("a", {"command": "x", "connect_timeout_ms": 600_000})
            with anyio.move_on_after(0.05):
                await hf.shell.run("1")
    assert world.open == 0


async def test_tools_that_clash_are_refused_by_themselves(world: World):
    @holdfast.capability(name="a_one")
    def mine() -> int:
        """Mine."""
        return 1

    world["a"].tools["two"] = tool("a_two")
    world["b"].tools = {"x": tool("a_two"), "y": tool("b_y")}
    async with holdfast.open("memory:", FREE, capabilities=[mine]) as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        assert await names(hf) == {"a_one", "a_two", "b_y"}
        assert (await hf.shell.run("a_one()")).result == 1
        assert "is called `a_one`, too" in (await hf.surfaces.view("a")).refused["one"]
        assert "surface `a`" in (await hf.surfaces.view("b")).refused["x"]
        assert [(one.name, one.tools) for one in await hf.surfaces.list()] == [
            ("a", ("a_two",)),
            ("b", ("b_y",)),
        ]


async def test_a_clash_is_over_when_one_of_both_is_gone(world: World):
    world["a"].tools = {"two": tool("a_two")}
    world["b"].tools = {"x": tool("a_two")}
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.add("b", SPEC)
        assert await names(hf) == {"a_two"}
        await hf.surfaces.remove("a")
        assert await names(hf) == {"a_two"}
        view = await hf.surfaces.view("b")
        assert (view.tools, view.refused) == (("a_two",), {})


async def test_a_contract_that_is_none_is_refused_by_itself(world: World):
    good = tool("a_good")
    world["a"].tools = {
        "bad": good.model_copy(update={"name": "a_bad", "input_schema": {"type": "nonsense"}}),
        "good": good,
    }
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        assert await names(hf) == {"a_good"}
        assert [*(await hf.surfaces.view("a")).refused] == ["bad"]


async def test_what_is_no_surface_is_refused(world: World):
    async with opened() as hf:
        for name, spec in (("Bad", {"command": "x"}), ("a", {}), ("a", {"command": ""})):
            with pytest.raises(CallerError, match="INVALID_ARGUMENT"):
                await hf.surfaces.add(name, spec)
        with pytest.raises(NotFound, match="There is no tool surface `nope`"):
            await hf.surfaces.remove("nope")
        with pytest.raises(NotFound):
            await hf.surfaces.wait_ready(["nope"])
        assert await hf.surfaces.list() == []


@pytest.mark.parametrize("table", [{}, {"comand": "x"}, {"command": "x", "url": "https://a.b"}])
def test_a_table_that_does_not_say_what_it_is_is_refused_clearly(table: dict[str, str]):
    with pytest.raises(CallerError, match="says what it is by one of `command`") as why:
        Settings.load({"surfaces": {"a": table}})
    assert "`surfaces.a`" in why.value.message


async def test_a_second_definition_replaces_the_first(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        await hf.surfaces.wait_ready()
        await hf.surfaces.ensure("a", SPEC)
        await hf.surfaces.wait_ready()
        assert world["a"].opened == 1
        await hf.surfaces.ensure("a", StdioSurface(command="other"))
        await hf.surfaces.wait_ready()
        assert world["a"].opened == 2


async def test_validation_and_dry_runs_know_the_tools(world: World):
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        found = await hf.shell.run("a_one(n='x')", validate_only=True)
        assert found.error is not None
        assert found.error.code == "TYPE_ERROR"
    async with opened() as hf:
        await hf.surfaces.add("a", SPEC)
        found = await hf.shell.run("a_one(n=1)['n']", dry_run=True)
        assert found.result == 1


# -- the file ---------------------------------------------------------------------------------------------


def write(path: Path, *surfaces: str, rest: str = "") -> None:
    lines = [f'[surfaces.{one.partition("=")[0]}]\ncommand = "{one}"\n' for one in surfaces]
    path.write_text("[policy]\ndefault = 'allow'\n" + "".join(lines) + rest)


async def test_the_file_is_followed(world: World, tmp_path: Path):
    path = tmp_path / "holdfast.toml"
    write(path, "a", "b")
    async with holdfast.open("memory:", path) as hf:

        async def becomes(wanted: set[str]) -> None:
            with anyio.fail_after(10):
                while await names(hf) != wanted:  # noqa: ASYNC110  (it is seen at a boundary)
                    await anyio.sleep(0.02)

        await becomes({"a_one", "b_one"})
        write(path, "b", "c")
        await becomes({"b_one", "c_one"})
        assert world["b"].opened == 1  # what is the same stays
        write(path, "b=2", "c")
        with anyio.fail_after(10):
            while world["b"].opened != 2:
                await hf.shell.run("1")
                await anyio.sleep(0.02)
        path.write_text("[surfaces\n")
        with anyio.fail_after(10):
            while hf.surfaces.problem is None:
                await hf.shell.run("1")
                await anyio.sleep(0.02)
        assert str(path) in hf.surfaces.problem
        assert await names(hf) == {"b_one", "c_one"}
        write(path, "c")
        await becomes({"c_one"})
        assert hf.surfaces.problem is None
        await hf.surfaces.remove("c")
        await becomes(set())
        write(path, "c", rest="# again\n")
        await anyio.sleep(0.3)  # it stays away: what somebody said goes before the file
        assert await names(hf) == set()
