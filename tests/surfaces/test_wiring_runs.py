"""A run is known from the moment it is asked for, also while what it may call is still being connected."""

import anyio
import pytest
from tests.surfaces.support import SPEC, World, opened, until

import holdfast
from holdfast.errors import NotFound


async def test_a_run_whose_surfaces_connect_can_be_cancelled(world: World):
    world["slow"].gate = anyio.Event()
    found: list[holdfast.RunResult] = []

    async with opened(surfaces={"slow": SPEC}) as hf:

        async def go() -> None:
            found.append(await hf.shell.run("1", session="s"))

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await until(lambda: hf.shell.cancel("s", reason="enough"))
        assert (found[0].status, found[0].run_id) == ("cancelled", None)
        assert found[0].error is not None
        assert "enough" in str(found[0].error)
        # Nothing began: nothing is on record, and the session is free.
        with pytest.raises(NotFound):
            await hf.shell.show("s")
        world["slow"].gate.set()
        assert not hf.shell.cancel("s")
        assert (await hf.shell.run("1 + 1", session="s")).result == 2


async def test_a_run_is_not_cancelled_by_another_ones_name(world: World):
    world["slow"].gate = anyio.Event()
    found: list[holdfast.RunResult] = []

    async with opened(surfaces={"slow": SPEC}) as hf:

        async def go() -> None:
            found.append(await hf.shell.run("1", session="s"))

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await anyio.wait_all_tasks_blocked()
            assert not hf.shell.cancel("s", run_id="run_other")
            world["slow"].gate.set()
        assert found[0].result == 1
