"""Secrets of tool servers appear nowhere but in the vault, encrypted, and in requests to their own host.

The servers are hostile: each says its secret wherever a server can say anything. One is started here and gets it in its
environment, one gets it in a header, and one is behind a sign-in and gets tokens.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from tests.leases.server import Guard, running
from tests.leases.support import everything_below, visit
from tests.mcp.guarded import Docs, threaded
from tests.security import hostile

import holdfast
from holdfast import Agent
from holdfast.errors import OperatorError
from holdfast.testing import ScriptedModel, call, say, write_code

FREE = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
ENV = "sentinel-env-4f1c77d0a2"
HEADER = "sentinel-header-93b2e6c1d8"
PART = 10
"""So much of a secret is as bad as all of it."""
NAMES = ("prog", "head", "docs")

CODE = """
found = {{}}
async def tried(how, made):
    try:
        found[how] = await made
    except Exception as why:
        found[how] = str(why)
    print(found[how])

await tried("echo", {name}_echo())
await tried("parts", {name}_parts())
await tried("fail", {name}_fail())
await tried("cut", {name}_fail(pad=12))
await tried("chat", {name}_chat())
await tried("slyly", {name}_slyly())
await tried("ask", {name}_ask())
result = found
"""


class World:
    """Three hostile servers, and one that must never hear of any secret."""

    def __init__(self, stack: ExitStack) -> None:
        self.guard = stack.enter_context(running(Guard()))
        self.guard.methods = ["client_secret_basic"]
        self.docs = Docs(self.guard)
        self.behind = hostile.Echoing(hostile.server(hostile.PLACE).streamable_http_app())
        self.head = hostile.Echoing(hostile.server(hostile.PLACE).streamable_http_app())
        self.other = hostile.Echoing(hostile.server(hostile.PLACE).streamable_http_app())
        self.urls: list[str] = []
        for app in (self.docs.app(self.behind), self.head, self.other):
            stack.enter_context(threaded(app, self.urls.append))
        self.docs.url, self.head_url, self.other_url = (f"{one}/mcp" for one in self.urls)

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        program = str(Path(hostile.__file__))
        return {
            "prog": {
                "command": sys.executable,
                "args": [program],
                "env": {"API_KEY": "$SENTINEL_ENV"},
                "connect_timeout_ms": 60_000,
            },
            "head": {"url": self.head_url, "headers": {"Authorization": "Bearer $SENTINEL_HEADER"}},
            "docs": {"url": self.docs.url, "auth": "oauth"},
        }

    @property
    def secrets(self) -> set[str]:
        given = {one for token in self.guard.tokens for one in (token.access, token.refresh) if one}
        clients = {one.secret for one in self.guard.clients.values() if one.secret}
        return {ENV, HEADER, *given, *clients}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("SENTINEL_ENV", ENV)
    monkeypatch.setenv("SENTINEL_HEADER", HEADER)
    with ExitStack() as stack:
        yield World(stack)


async def connected(hf: holdfast.Runtime, world: World, names: Sequence[str] = NAMES) -> str:
    """Everything is wanted, and somebody signs in; the secret of that sign-in."""
    for name in names:
        await hf.surfaces.add(name, world.specs[name])
    with pytest.raises(OperatorError, match="Sign in"):
        await hf.surfaces.wait_ready()
    flow = await hf.leases.logins.pending("mcp:docs")
    assert flow is not None
    await hf.leases.logins.finish(await visit(flow.url))
    await hf.surfaces.wait_ready()
    return flow.verifier


async def in_code(hf: holdfast.Runtime, name: str, told: list[str]) -> None:
    """Call everything there is from code; a person is asked twice."""
    run = await hf.shell.run(CODE.format(name=name), session=name)
    for words in ("Sure?", "Is [secret:"):
        assert run.status == "waiting_for_approval", run.error
        (item,) = await hf.approvals.list()
        assert item.summary.startswith(words)
        told += [run.model_dump_json(), item.model_dump_json()]
        await hf.approvals.decide(item.id, "approved", content={"sure": True})
        run = await hf.runs.resume(str(run.run_id))
    assert run.status == "ok", run.error
    # All of it was said, and is kept without the secret, so that saved states hold none either.
    found = cast("dict[str, Any]", run.result)
    assert set(found) == {"echo", "parts", "fail", "cut", "chat", "slyly", "ask"}
    assert found["echo"]["said"].startswith("Bearer [secret:")
    assert all("[secret:" in str(found[how]) for how in found.keys() - {"chat"})
    told.append(run.model_dump_json())


async def by_agents(hf: holdfast.Runtime, told: list[str]) -> None:
    """A model is told of the tools, and calls some; what it is asked must hold nothing."""
    calls = [call(f"{name}_{how}") for name in NAMES for how in ("echo", "fail")]
    direct = ScriptedModel([*calls, say("done")], keep_requests=True)
    code = ScriptedModel(
        [write_code("print(await docs_echo())\nawait head_fail()"), say("done")], keep_requests=True
    )
    for model, mode in ((direct, False), (code, True)):
        run = await Agent(model, code_mode=mode).run("Go.", session=f"a{mode}", runtime=hf)
        assert run.status == "completed", run.error
        told += [str(run), *map(repr, model.requests)]


async def on_record(hf: holdfast.Runtime) -> list[str]:
    """Every record and every body, unpacked."""
    records = [one.model_dump_json() async for one in hf.journal.read_all()]
    bodies = [await hf.journal.content(one.digest) for one in await hf.journal.holdings()]
    return [*records, *(one.decode(errors="replace") for one in bodies)]


def leaks(secrets: set[str], found: Mapping[Any, str | bytes]) -> list[str]:
    """Where a secret is, or the beginning of one, and in which words."""
    leaked: list[str] = []
    for where, content in found.items():
        text = content.decode(errors="replace") if isinstance(content, bytes) else content
        for secret in secrets:
            if (at := text.find(secret[:PART])) >= 0:
                leaked.append(f"{where}: {text[max(0, at - 100) : at + 60]}")
    return leaked


async def test_appear_nowhere(
    world: World,
    holdfast_home: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    async with holdfast.open(config=FREE) as hf:
        secrets = {await connected(hf, world)}
        for name in NAMES:
            await in_code(hf, name, told)
        assert await hf.leases.renew("mcp:docs", 1)
        await by_agents(hf, told)
        views = await hf.surfaces.list()
        told += [one.model_dump_json() for one in views]
        # What is called by a secret can't be shown, so it can't be called.
        assert all(any(tool.startswith("tool_[secret:") for tool in one.refused) for one in views)
        assert not any("tool" in tool for one in views for tool in one.tools)
        told += [one.model_dump_json() for one in await hf.leases.status()]
        for name in NAMES:
            connection = hf.surfaces.connection(name)
            told += [str(connection.server), str(connection.instructions)]
        # Nobody is signed in any more: what a person is told about that holds nothing either.
        world.guard.revoke()
        run = await hf.shell.run("await docs_echo()", session="late")
        assert run.status == "waiting_for_approval", run.error
        told += [run.model_dump_json(), *map(str, await hf.approvals.list())]
        told += await on_record(hf)
        # While it is open: the write-ahead log is one of the files.
        files = everything_below(holdfast_home)
    secrets |= world.secrets
    assert len(secrets) >= 8  # two of each token
    files |= everything_below(holdfast_home)
    printed = capfd.readouterr()
    # The authorization server runs in this process, too; what it logs itself is not ours.
    ours = [one for one in caplog.records if not one.name.startswith("authlib")]
    told += [printed.out, printed.err, *map(caplog.handler.format, ours)]
    assert any("log [secret:" in one for one in told)
    assert any("stderr [secret:" in one for one in told)
    assert leaks(secrets, files) == []
    assert leaks(secrets, dict(enumerate(told))) == []


async def test_go_to_their_own_host_only(world: World) -> None:
    """Also when that sends everybody elsewhere."""
    async with holdfast.open(config=FREE) as hf:
        await connected(hf, world, ("head", "docs"))
        await hf.shell.run("await head_echo(); await docs_echo()", session="s")
        assert await hf.leases.renew("mcp:docs", 1)
        await hf.shell.run("await head_echo(); await docs_echo()", session="s")
        before = len(world.head.seen), len(world.behind.seen)
        world.head.redirect = world.behind.redirect = world.other_url
        for name in ("head", "docs"):
            run = await hf.shell.run(f"await {name}_echo()", session="s")
            assert run.status == "runtime_error"
            await hf.surfaces.reload(name)
            await hf.surfaces.wait_ready([name])  # it was tried, and the old connection stays
    assert len(world.head.seen) > before[0]
    assert len(world.behind.seen) > before[1]
    tokens = {one.access for one in world.guard.tokens}
    assert len(tokens) == 2
    for host, own in ((world.head, {HEADER}), (world.behind, tokens), (world.other, set[str]())):
        came = {one for one in world.secrets if any(one in request for request in host.seen)}
        assert came == own
    assert world.other.seen == []
