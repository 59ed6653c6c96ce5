"""Agents call real servers while those are killed, hung, changed, added and removed. More: scripts/chaos_surfaces.py."""

import asyncio
import os
import signal
import sys

import anyio
from tests.surfaces._chaos import Server, World, alive, world_of
from tests.surfaces._chaos_checks import effects_of, no_wrong_tool
from tests.surfaces._chaos_life import live

import holdfast
from holdfast.capabilities.mcp import Services
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.stdio import stdio


async def test_whatever_happens_to_servers_holds():
    found = await live(60, seed=1)
    assert found["calls"] >= 60
    assert found["executed"] > 0
    assert sum(found["chaos"].values()) > 5


async def restarted(world: World, server: Server) -> None:
    """It goes in good order and is back, and nobody called it meanwhile."""
    server.signal(signal.SIGTERM)
    assert server.child is not None
    server.child.wait()
    server.start()
    await world.up()


def arrived(server: Server) -> list[tuple[int, int]]:
    """Each call: the version it reached, and its number."""
    return [(one["version"], one["arguments"]["n"]) for one in server.log if "tool" in one]


async def test_a_server_at_an_address_that_was_replaced_by_another_is_not_called_for_the_old_one():
    # The newest protocol has no sessions: nothing but the connection tells that somebody else answers.
    async with world_of(1) as world:
        server, add = world.servers["c"], "await c_add(n={n}, word='x')"
        async with holdfast.open("memory:", world.config) as hf:
            await hf.surfaces.add("c", server.spec)
            await hf.surfaces.wait_ready(["c"])
            assert (await hf.shell.run(add.format(n=1), session="s")).error is None
            server.offer(1)
            await restarted(world, server)
            # This one is the same in both versions.
            assert (await hf.shell.run("await c_look(n=2, word='x')", session="s")).error is None
            n = 3
            with anyio.fail_after(20):
                while error := (await hf.shell.run(add.format(n=n), session="s")).error:
                    assert "SURFACE_UNAVAILABLE" in error.message
                    n += 1
                    await anyio.sleep(0.05)
            assert "c_extra1" in (await hf.surfaces.view("c")).tools
            assert arrived(server) == [(0, 1), (1, 2), (1, n)]
            await hf.journal.flush()
            assert await no_wrong_tool(hf, world, await effects_of(hf, "s")) == 3


async def test_calls_side_by_side_need_connections_and_all_get_through():
    async with world_of(1) as world:
        server = world.servers["c"]
        async with holdfast.open("memory:", world.config) as hf:
            await hf.surfaces.add("c", server.spec)
            await hf.surfaces.wait_ready(["c"])
            await restarted(world, server)
            calls = ", ".join(f"c_slow(n={n}, ms=20)" for n in range(12))
            code = f"import asyncio\nlen(await asyncio.gather({calls}))"
            run = await hf.shell.run(code, session="s")
            assert run.result == 12, run.error
            assert sorted(n for _, n in arrived(server)) == [*range(12)]


async def test_a_server_that_hangs_is_ended_also_by_a_loop_that_is_interrupted():
    # As `asyncio.run` does after a second Ctrl-C: it cancels what a shield of anyio would protect.
    async with world_of(1) as world:
        server = world.servers["a"]
        leaving = anyio.Event()

        async def connected() -> None:
            log = ErrorLog("a", Services())
            async with stdio([sys.executable, *server.arguments], os.environ, None, log):
                with anyio.fail_after(20):
                    while not server.pids:  # noqa: ASYNC110 - it is a process
                        await anyio.sleep(0.01)
                server.signal(signal.SIGSTOP)
                leaving.set()

        task = asyncio.create_task(connected())
        await leaving.wait()
        (pid,) = server.pids
        with anyio.fail_after(20):
            while not task.done():
                task.cancel()
                await anyio.sleep(0.02)
            while alive(pid):  # noqa: ASYNC110 - it is a process
                await anyio.sleep(0.01)
        assert task.cancelled()
        assert not alive(pid)
