"""A tool server behind a sign-in, from end to end: real servers, real processes, tokens that live three seconds."""

import sys
from pathlib import Path

import anyio
import pytest
from tests.e2e.oauth_caller import CALLS, CONFIG, SESSIONS, wanted
from tests.leases.support import login, record, visit
from tests.mcp.guarded import Docs, docs_server

import holdfast
from holdfast.contracts.approval import Asks
from holdfast.errors import OperatorError

CALLER = Path(__file__).parent / "oauth_caller.py"
KEY = "mcp:docs"


async def begin(hf: holdfast.Runtime, docs: Docs) -> None:
    """Want the surface, and sign in for it: who needs it is told the way."""
    spec = {"url": docs.url, "auth": "oauth", "connect_timeout_ms": 60_000}
    await hf.surfaces.add("docs", spec)
    with pytest.raises(OperatorError, match=f"connected: Sign in for `{KEY}` at {docs.guard.url}"):
        await hf.surfaces.wait_ready(["docs"])
    flow = await hf.leases.logins.pending(KEY)
    assert flow is not None
    await hf.leases.logins.finish(await visit(flow.url))
    # It is tried at once, not when its turn comes.
    await hf.surfaces.wait_ready(["docs"])


async def killed_in_the_middle(docs: Docs, url: str) -> None:
    """Let callers run in another process, and kill it when a third is done and no token is being renewed."""
    async with await anyio.open_process([sys.executable, CALLER, url], stdout=None) as callers:
        with anyio.fail_after(60):
            while len(docs.done) < SESSIONS * CALLS / 3 or not docs.newest_came:
                assert callers.returncode is None
                await anyio.sleep(0.005)
        callers.kill()


async def test_two_hundred_calls_over_several_expiries_and_a_restart(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/journal.db"
    with docs_server(lifetime=3) as docs:
        docs.pace = 0.6
        async with holdfast.open(url, CONFIG) as hf:
            await begin(hf, docs)
        await killed_in_the_middle(docs, url)
        results: dict[str, object] = {}

        async def go_on(hf: holdfast.Runtime, run_id: str, session: str) -> None:
            found = await hf.runs.resume(run_id)
            assert found.status == "ok", found.error
            results[session] = found.result

        async with holdfast.open(url, CONFIG) as hf:
            async with anyio.create_task_group() as tasks:
                for one in await hf.runs.list(status="active"):
                    tasks.start_soon(go_on, hf, one.id, one.session_id)
            assert await hf.approvals.list() == []
            steps = await record(hf.journal)
    # No failure reached the code, and nobody had to sign in again.
    assert results == {f"s{number}": wanted(number) for number in range(SESSIONS)}
    assert {*docs.done} == {*range(SESSIONS * CALLS)}
    assert docs.guard.count("authorization_code") == 1
    # Each token was renewed once, by whichever process: a second time would be refused, for the first took it away.
    renewed = [one["refresh_token"] for one in docs.guard.asked if "refresh_token" in one]
    assert len(renewed) >= 3
    assert renewed == [one.refresh for one in docs.guard.tokens[:-1]]
    generations = [number for _, number, reason in steps if reason in ("signed_in", "refreshed")]
    assert generations == [*range(1, len(docs.guard.tokens) + 1)]


async def test_revoked_parks_and_goes_on_after_a_sign_in_here_and_after_a_restart():
    code = "result = (await docs_send(n={}))['sent']"
    with docs_server() as docs:
        async with holdfast.open(config=CONFIG) as hf:
            await begin(hf, docs)
            assert (await hf.shell.run(code.format(1), session="a")).result == 1
            docs.guard.revoke()
            parked = [await hf.shell.run(code.format(n), session=f"s{n}") for n in (2, 3)]
            assert [one.status for one in parked] == ["waiting_for_approval"] * 2
            items = await hf.approvals.list()
            assert [one.asks for one in items] == [Asks.SIGN_IN] * 2
            assert {one.tool for one in items} == {"docs_send"}
            (link,) = {one.url for one in items}  # one sign-in is enough for both
            assert str(link).startswith(f"{docs.guard.url}/authorize?")
            assert docs.done == [1]
            # In another process, as a person does it: the link, the browser, the way back.
            assert (await login(KEY))["answered"] == 2
            here = await hf.runs.resume(str(parked[0].run_id))
            assert (here.status, here.result) == ("ok", 2), here.error
        async with holdfast.open(config=CONFIG) as hf:
            there = await hf.runs.resume(str(parked[1].run_id))
            assert (there.status, there.result) == ("ok", 3), there.error
            assert await hf.approvals.list() == []
    assert docs.done == [1, 2, 3]
    assert docs.guard.count("authorization_code") == 2
