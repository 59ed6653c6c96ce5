"""A surface whose first connection needs a sign-in: an item of the inbox, once, that no run waits for."""

from pathlib import Path

from tests.leases.support import login
from tests.mcp.guarded import docs_server
from tests.surfaces.support import FREE, SPEC, World, opened, until

import holdfast
from holdfast import ApprovalView
from holdfast.contracts.approval import Asks
from holdfast.contracts.surface import HttpSurface
from holdfast.errors import OperatorError
from holdfast.gate.executor import NeedsAnswer, Question

LINK = "https://auth.example/authorize?state=1"
MESSAGE = "Sign in for `mcp:b` at auth.example: run `holdfast auth login mcp:b`."


def needed(url: str = LINK) -> NeedsAnswer:
    return NeedsAnswer(Question(Asks.SIGN_IN, MESSAGE, url=url, key="sign_in:mcp:b"))


async def waiting(hf: holdfast.Runtime) -> list[ApprovalView]:
    return await hf.approvals.list()


async def test_it_asks_once_and_comes_up_at_the_next_boundary(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    world["b"].broken = needed()
    async with opened(url, surfaces={"b": SPEC}) as hf:
        assert (await hf.shell.run("1", session="s")).result == 1
        (item,) = await waiting(hf)
        assert (item.asks, item.url, item.summary) == (Asks.SIGN_IN, LINK, MESSAGE)
        assert (item.run_id, item.effect_id, item.tool) == (None, "surface:b", "surface:b")
        assert item.arguments == {"surface": "b"}
        await hf.shell.run("2", session="s")
        hf.surfaces._board.again("b")
        await hf.shell.run("3", session="t")
        assert [one.id for one in await waiting(hf)] == [item.id]
    # Another process asks nothing new.
    async with opened(url, surfaces={"b": SPEC}) as hf:
        await hf.shell.run("4", session="s")
        assert [one.id for one in await waiting(hf)] == [item.id]
        world["b"].broken = None
        await hf.approvals.decide(item.id, "approved", actor="ann")
        run = await hf.shell.run("b_one(n=1)['n']", session="s")
        assert run.result == 1, run.error
        assert await waiting(hf) == []
        assert (await hf.journal.verify()).ok


async def test_whoever_only_says_so_is_asked_again(world: World):
    world["b"].broken = needed()
    async with opened(surfaces={"b": SPEC}) as hf:
        await hf.shell.run("1")
        (item,) = await waiting(hf)
        await hf.approvals.decide(item.id, "approved")
        # An attempt that was under way then says nothing yet: the one after it does.
        await hf.shell.run("2")
        await hf.shell.run("3")
        (again,) = await waiting(hf)
        assert again.id != item.id


async def test_no_is_no_until_there_is_another_link(world: World):
    world["b"].broken = needed()
    async with opened(surfaces={"b": SPEC}) as hf:
        await hf.shell.run("1")
        (item,) = await waiting(hf)
        await hf.approvals.decide(item.id, "denied")
        for code in "23":
            hf.surfaces._board.again("b")
            await hf.shell.run(code)
            assert await waiting(hf) == []
        world["b"].broken = needed("https://auth.example/authorize?state=2")
        hf.surfaces._board.again("b")
        await until(lambda: "state=2" in str(hf.surfaces._board.fate("b").question))
        await hf.shell.run("4")
        (other,) = await waiting(hf)
        assert other.url is not None
        assert other.url.endswith("state=2")


async def test_nobody_need_answer_once_it_is_up_or_gone(world: World):
    for how in ("up", "gone", "other link"):
        world["b"].broken = needed()
        async with opened(surfaces={}) as hf:
            await hf.surfaces.add("b", SPEC)
            await hf.shell.run("1")
            (item,) = await waiting(hf)
            if how == "up":
                world["b"].broken = None
                hf.surfaces._board.again("b")
                await until(lambda hf=hf: hf.surfaces._board.alive("b"))
            elif how == "gone":
                await hf.surfaces.remove("b")
            else:
                world["b"].broken = needed(LINK + "2")
                hf.surfaces._board.again("b")
                await until(lambda hf=hf: LINK + "2" in str(hf.surfaces._board.fate("b").question))
            await hf.shell.run("2")
            assert (await hf.approvals.show(item.id)).status == "cancelled"
            assert len(await waiting(hf)) == (how == "other link")


async def test_a_failure_that_is_none_asks_nobody(world: World):
    world["b"].broken = OperatorError("SURFACE_FAILED", "It is broken.")
    async with opened(surfaces={"b": SPEC}) as hf:
        await hf.shell.run("1")
        assert await waiting(hf) == []


async def test_a_real_server_is_signed_in_for_on_the_command_line():
    with docs_server() as docs:
        spec = {"url": docs.url, "auth": "oauth", "connect_timeout_ms": 60_000}
        config = {**FREE, "surfaces": {"docs": spec}}
        async with holdfast.open(config=config) as hf:
            await hf.shell.run("1", session="s")
            (item,) = await waiting(hf)
            assert str(item.url).startswith(f"{docs.guard.url}/authorize?")
            assert (await login("mcp:docs"))["answered"] == 1
            run = await hf.shell.run("(await docs_look(n=4))['n']", session="s")
            assert run.result == 4, run.error
            assert await waiting(hf) == []
            # Where connecting was tried again meanwhile, another link had taken the place of the first.
            *replaced, last = await hf.approvals.list(status="decided")
            assert [one.status for one in replaced] == ["cancelled"] * len(replaced)
            assert last.status == "approved"


async def test_what_a_dead_process_asked_is_taken_back_once_it_is_up(world: World, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/j.db"
    guarded = HttpSurface(url="https://b.example", auth="oauth")
    world["b"].broken = needed()
    async with opened(url, surfaces={"b": guarded}) as hf:
        await hf.shell.run("1")
        (item,) = await waiting(hf)
    world["b"].broken = None
    async with opened(url, surfaces={"b": guarded}) as hf:
        await hf.shell.run("2")
        assert (await hf.approvals.show(item.id)).status == "cancelled"
