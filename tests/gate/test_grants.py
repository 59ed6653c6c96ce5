"""Consent that is remembered: for one capability as it was, in one session, as long as it holds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.gate.support import World, answers, approve, kinds, later, parked, said, until

import holdfast
from holdfast import RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.contracts import Grant
from holdfast.errors import CallerError, NotFound
from holdfast.gate.approvals import Approvals
from holdfast.journal import MemoryJournal


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


async def granted(hf: holdfast.Runtime, session: str = "s", call: str = "send('ann')") -> RunResult:
    """A run in which somebody said that nobody need be asked again."""
    return await approve(hf, await parked(hf, call, session=session), "approved_for_session")


async def test_nobody_is_asked_again() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        first = await granted(hf)
        assert "grant_given" in await kinds(hf, first)
        (grant,) = await hf.approvals.grants("s")
        assert (grant.tool, grant.session_id, grant.actor) == ("send", "s", "ann")
        assert (grant.risk, grant.approval_id) == ("high", first.approval_id or grant.approval_id)
        run = await hf.shell.run("result = [send('bob'), send('eve')]", session="s")
        assert run.result == ["sent to bob", "sent to eve"]
        assert len(await hf.approvals.list(status="all")) == 1
        found = await kinds(hf, run)
        assert found.count("approval_preapproved") == 2
        assert "approval_requested" not in found
        intents = await said(hf, run, "effect_intent")
        assert [one["kind"] for one in intents] == ["tool_execution"] * 2  # nobody was asked
        assert [one["grant_id"] for one in intents] == [grant.id] * 2
        used = await said(hf, run, "approval_preapproved")
        assert used[0] == {"effect_id": intents[0]["effect_id"], "grant_id": grant.id}
    assert world.done == ["ann", "bob", "eve"]


async def test_within_the_run_it_was_given_in() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf, "for to in ['a', 'b', 'c']:\n    send(to)")
        run = await approve(hf, run, "approved_for_session")
        assert run.status == "ok"
    assert world.done == ["a", "b", "c"]


async def test_holds_after_a_restart(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        await granted(hf)
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        assert (await hf.shell.run("send('bob')", session="s")).status == "ok"


async def test_not_in_another_session() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        assert await hf.approvals.grants("other") == []
        await parked(hf, session="other")
    assert world.done == ["ann"]


async def test_not_for_another_capability() -> None:
    world = World()
    tools = [world.send(), world.send(name="send_too")]
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        await granted(hf)
        await parked(hf, "send_too('bob')")
    assert world.done == ["ann"]


async def test_not_inherited_by_a_fork() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        await hf.shell.fork("s", "forked")
        assert await hf.approvals.grants("forked") == []
        await parked(hf, session="forked")


async def test_not_kept_by_a_snapshot() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        await hf.shell.restore("copy", await hf.shell.snapshot("s"))
        assert await hf.approvals.grants("copy") == []
        await parked(hf, session="copy")
    assert world.done == ["ann"]


async def test_ends_with_its_session() -> None:
    """A session of the same name is another one."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        await hf.shell.destroy("s")
        assert await hf.approvals.grants("s") == []
        await parked(hf)


# -- never for what is critical -----------------------------------------------------------------------


async def test_not_offered_for_critical_risk() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send(risk="critical")]) as hf:
        run = await parked(hf)
        (view,) = await hf.approvals.list()
        assert [one.value for one in view.allowed] == ["approved", "denied"]
        with pytest.raises(CallerError) as raised:
            await hf.approvals.decide(view.id, "approved_for_session")
        assert raised.value.code == "DECISION_REFUSED"
        assert await answers(hf.journal) == [
            ("approval_refused", "approved_for_session", "approval.decision_not_allowed")
        ]
        assert len(await hf.approvals.list()) == 1  # it still waits
        await approve(hf, run)
        assert await hf.approvals.grants("s") == []


async def test_not_used_for_a_greater_risk(url: str) -> None:
    """What the operator calls critical since then is asked about, whatever was said before."""
    world = World()
    rule = {"id": "now", "then": "ask", "risk": "critical"}
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        await granted(hf)
    async with holdfast.open(url, {"policy": {"rules": [rule]}}, capabilities=[world.send()]) as hf:
        await parked(hf)
        assert len(await hf.approvals.grants("s")) == 1


async def test_covers_only_the_risk_it_was_given_for() -> None:
    world = World()
    rules = [
        {"id": "big", "where": "args.to == 'everybody'", "then": "ask", "risk": "high"},
        {"id": "small", "then": "ask", "risk": "low"},
    ]
    config = {"policy": {"rules": rules}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        await granted(hf)
        assert (await hf.shell.run("send('bob')", session="s")).status == "ok"
        await parked(hf, "send('everybody')")


async def test_does_not_beat_a_rule_that_denies(url: str) -> None:
    world = World()
    rule = {"id": "never", "tool": "send", "then": "deny"}
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        await granted(hf)
    async with holdfast.open(url, {"policy": {"rules": [rule]}}, capabilities=[world.send()]) as hf:
        assert (await hf.shell.run("send('bob')", session="s")).status == "permission_denied"
    assert world.done == ["ann"]


# -- its end ------------------------------------------------------------------------------------------


async def test_changed_schema_revokes(url: str) -> None:
    world = World()
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        (grant,) = await hf.approvals.grants("s")

    def send(to: str, copy: bool = False) -> str:
        return "sent"

    changed = capability(send, side_effect="external_system")
    async with holdfast.open(url, {}, capabilities=[changed]) as hf:
        run = await parked(hf)
        assert await hf.approvals.grants("s") == []
        revoked = [one async for one in hf.journal.read("s") if one.kind == "grant_revoked"]
        assert [one.payload for one in revoked] == [
            {"id": grant.id, "reason": "capability_changed"}
        ]
        await approve(hf, run)
    # Also when the old form is back: it was revoked for good.
    async with holdfast.open(url, {}, capabilities=[world.send()]) as hf:
        await parked(hf)


async def test_revoked() -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        (grant,) = await hf.approvals.grants("s")
        await hf.approvals.revoke(grant.id)
        assert await hf.approvals.grants("s") == []
        await parked(hf)
        with pytest.raises(NotFound):
            await hf.approvals.revoke(grant.id)
        with pytest.raises(NotFound):
            await hf.approvals.revoke("grant_nobody")


async def test_revoked_while_the_run_is_parked_elsewhere() -> None:
    world = World()
    tools = [world.send(), world.look(approval="manual")]
    async with holdfast.open("memory:", {}, capabilities=tools) as hf:
        await granted(hf)
        run = await parked(hf, "look()\nsend('bob')")
        (grant,) = await hf.approvals.grants("s")
        await hf.approvals.revoke(grant.id)
        run = await approve(hf, run)
        assert run.status == "waiting_for_approval"
    assert world.done == ["ann", "look sky"]


@dataclass
class Readers:
    """Who looks for grants, so that a test knows when two have."""

    both: anyio.Event = field(default_factory=anyio.Event)
    count: int = 0
    wait: bool = False
    """Whether the first waits for the second before it goes on."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        grants = Approvals.grants

        async def watched(approvals: Approvals, session_id: str) -> list[Grant]:
            found = await grants(approvals, session_id)
            self.count += 1
            if self.count == 2:
                self.both.set()
            if self.wait:
                await self.both.wait()
            return found

        monkeypatch.setattr(Approvals, "grants", watched)


async def test_revoked_while_calls_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    go, readers = anyio.Event(), Readers()

    async def ship(to: str) -> str:
        """Ship something."""
        done.append(to)
        if to != "ann":
            await go.wait()
        return to

    tool = capability(
        ship, side_effect="external_system", approval="manual", concurrency=1, timeout_ms=60_000
    )
    code = """
import asyncio

async def tried(to):
    try:
        return await ship(to)
    except PermissionError as why:
        return str(why)

result = await asyncio.gather(tried("bob"), tried("eve"))
"""
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        await granted(hf, call="await ship('ann')")
        (grant,) = await hf.approvals.grants("s")
        readers.watch(monkeypatch)
        found: list[RunResult] = []

        async def done_by_bob() -> bool:
            return "bob" in done

        async def run() -> None:
            found.append(await hf.shell.run(code, session="s", timeout_ms=60_000))

        async with anyio.create_task_group() as both:
            both.start_soon(run)
            await readers.both.wait()
            await until(done_by_bob, bool)
            await hf.approvals.revoke(grant.id)
            go.set()
        made, refused = cast("list[str]", found[0].result)
        assert made == "bob"
        assert "approval.grant_ended" in refused
        assert (await kinds(hf, found[0])).count("approval_preapproved") == 1
        assert (await parked(hf, "await ship('eve')")).status == "waiting_for_approval"
    assert done == ["ann", "bob"]


async def test_two_who_find_that_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both calls see the grant before either has ended it; the second to do so has nothing to end."""

    def tool(more: str) -> Declared[..., Any]:
        async def send(to: str) -> str:
            return f"sent to {to}"

        send.__doc__ = f"Send something, {more}."
        return capability(
            send, side_effect="external_system", approval="manual", idempotent=more == "again"
        )

    both = "import asyncio\nresult = await asyncio.gather(send('bob'), send('eve'))"
    journal = MemoryJournal()
    async with holdfast.open(journal, {}, capabilities=[tool("once")]) as hf:
        await granted(hf, call="await send('ann')")
    Readers(wait=True).watch(monkeypatch)
    async with holdfast.open(journal, {}, capabilities=[tool("again")]) as hf:
        run = await hf.shell.run(both, session="s")
        assert run.status == "waiting_for_approval"
        assert len(await hf.approvals.list()) == 2


async def test_revoked_while_its_session_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        await granted(hf)
        grants = Approvals.grants

        async def and_then(self: Approvals, session_id: str) -> list[Grant]:
            found = await grants(self, session_id)
            for one in found:
                await self.revoke(one.id)
            return found

        monkeypatch.setattr(Approvals, "grants", and_then)
        await hf.shell.destroy("s")
        assert await hf.shell.list() == []


async def test_grant_ms_is_enforced() -> None:
    world = World()
    config = {"approvals": {"grant_ms": 3_600_000}}
    async with holdfast.open("memory:", config, capabilities=[world.send()]) as hf:
        await granted(hf)
        (grant,) = await hf.approvals.grants("s")
        assert grant.expires_at is not None
        assert (await hf.shell.run("send('bob')", session="s")).status == "ok"
        later(hf, 3_600_001)
        run = await parked(hf)
        revoked = [one.payload async for one in hf.journal.read("s") if one.kind == "grant_revoked"]
        assert revoked == [{"id": grant.id, "reason": "expired"}]
        assert run.run_id is not None


async def test_denied_gives_nothing() -> None:
    async with holdfast.open("memory:", {}, capabilities=[World().send()]) as hf:
        await approve(hf, await parked(hf), "denied")
        assert await hf.approvals.grants("s") == []


async def test_no_grant_without_the_call_that_it_releases() -> None:
    """A run that was cancelled after the answer leaves no consent behind."""
    world = World()
    async with holdfast.open("memory:", {}, capabilities=[world.send()]) as hf:
        run = await parked(hf)
        await hf.approvals.decide(str(run.approval_id), "approved_for_session")
        await hf.runs.cancel(str(run.run_id))
        assert await hf.approvals.grants("s") == []
        await parked(hf)
    assert world.done == []
