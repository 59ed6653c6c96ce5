"""What a tool server wants a model asked takes the whole path through the gate, beside the call that is under way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from tests.crash.copies import copy
from tests.gate.questions_support import UNJAILED
from tests.gate.support import said, until

import holdfast
from holdfast import Agent, ApprovalView, Context, capability
from holdfast.capabilities.declare import Declared
from holdfast.capabilities.foreign import Foreign
from holdfast.contracts import Capability, Json, Record, Reserved, SideEffect
from holdfast.contracts.model import ModelUsage
from holdfast.errors import HoldfastError, InternalError
from holdfast.gate.crossing import Outcome
from holdfast.journal import MemoryJournal
from holdfast.shell.rehearsal import rehearse
from holdfast.testing import ScriptedModel, call, replay_async, say, write_code

CODE = "result = await guess('bed')"
ALLOWED: dict[str, Any] = {
    **UNJAILED,
    "policy": {
        "rules": [
            {"id": "all", "then": "allow"},
            {"id": "ask-models", "tool": "sampling:*", "then": "allow"},
        ]
    },
}


@dataclass
class Server:
    """A tool server that wants a model asked in the middle of a call."""

    hf: holdfast.Runtime | None = None
    asked: list[str] = field(default_factory=list[str])
    """What the model was asked, effect by effect."""
    heard: list[Outcome] = field(default_factory=list[Outcome])
    calls: list[Any] = field(default_factory=list[Any])
    times: int = 1
    surface: str = "srv"
    reserve: Reserved | None = None

    async def sample(self, arguments: dict[str, Any], context: Context) -> Json:
        """The model."""
        self.asked.append(f"{context.effect_id.rpartition('_')[2]}:{context.attempt}")
        context.usage = ModelUsage(input_tokens=10, output_tokens=5, cost_micros=7)
        context.cost_micros = 7
        return f"answer to {arguments['prompt']}"

    def guess(self, **terms: Any) -> Declared[..., Any]:
        """What code calls."""

        async def guess(what: str, context: Context) -> str:
            """Guess something."""
            self.calls.append(context.call)
            found = [await self.ask(context, f"{what}?") for _ in range(self.times)]
            return " and ".join(str(one.value or one.error) for one in found)

        return capability(guess, **{"side_effect": "external_system", **terms})

    async def ask(self, context: Context, prompt: str) -> Outcome:
        """As whoever wires sampling does it."""
        assert self.hf is not None
        model = Foreign(
            Capability(name="ask_model", description="Ask m.", side_effect=SideEffect.NETWORK),
            self.sample,
        )
        found = await self.hf.shell.services.gate.beside(
            context.call,
            model,
            {"prompt": prompt},
            name=f"sampling:{self.surface}",
            reserve=self.reserve,
        )
        self.heard.append(found)
        return found


async def decided(
    hf: holdfast.Runtime, decision: str, code: str = CODE
) -> tuple[holdfast.RunResult, ApprovalView]:
    """A run whose server wants a model asked, and a person who decides about that."""
    found: list[holdfast.RunResult] = []
    views: list[ApprovalView] = []

    async def go() -> None:
        found.append(await hf.shell.run(code, session="s"))

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        views += await until(hf.approvals.list, lambda views: len(views) == 1)
        await hf.approvals.decide(views[0].id, decision, actor="ann")
    return found[0], views[0]


async def test_a_person_is_asked_while_the_call_is_held() -> None:
    server = Server()
    async with holdfast.open("memory:", UNJAILED, capabilities=[server.guess()]) as hf:
        server.hf = hf
        run, view = await decided(hf, "approved")
        assert (view.tool, view.arguments, view.asks) == (
            "sampling:srv",
            {"prompt": "bed?"},
            "consent",
        )
        assert view.rule == "default.sampling"
        assert run.result == "answer to bed?"
        assert [one.name for one in run.external_calls] == ["guess"]
        ours, _, its = await said(hf, run, "effect_intent")
        assert its["effect_id"] == f"{ours['effect_id']}_s1"
        assert (its["beside"], its["kind"]) == (ours["effect_id"], "provider_request")
        assert its["name"] == "sampling:srv"
        assert its["approval_id"] == view.id
        assert "ordinal" not in its
        usage = (await hf.runs.show(str(run.run_id))).usage
        assert (usage.input_tokens, usage.output_tokens, usage.cost_micros) == (10, 5, 7)
        assert (await hf.journal.verify()).ok


async def test_no_is_an_error_for_the_server_alone() -> None:
    server = Server()
    async with holdfast.open("memory:", UNJAILED, capabilities=[server.guess()]) as hf:
        server.hf = hf
        run, _ = await decided(hf, "denied")
        assert run.status == "ok"
        (found,) = server.heard
        assert found.error is not None
        assert (found.error.code, server.asked) == ("PERMISSION_DENIED", [])


async def test_rules_decide_and_wide_ones_do_not() -> None:
    server = Server()
    async with holdfast.open("memory:", ALLOWED, capabilities=[server.guess()]) as hf:
        server.hf = hf
        assert (await hf.shell.run(CODE)).result == "answer to bed?"
        assert await hf.approvals.list(status="all") == []
    for config, rule in (
        ({"rules": [{"id": "never", "tool": "sampling:srv", "then": "deny"}]}, "never"),
        ({"default": "deny"}, "default.sampling"),
    ):
        server = Server()
        tool = server.guess(side_effect="read")
        async with holdfast.open(
            "memory:", {**UNJAILED, "policy": config}, capabilities=[tool]
        ) as hf:
            server.hf = hf
            assert (await hf.shell.run(CODE)).status == "ok"
            assert rule in str(server.heard[0].error)
            assert server.asked == []


async def test_consent_for_the_session_is_for_one_server() -> None:
    server = Server(times=2)
    async with holdfast.open("memory:", UNJAILED, capabilities=[server.guess()]) as hf:
        server.hf = hf
        run, _ = await decided(hf, "approved_for_session")
        assert run.result == "answer to bed? and answer to bed?"
        assert server.asked == ["s1:1", "s2:1"]
        (grant,) = await hf.approvals.grants("s")
        assert grant.tool == "sampling:srv"
        server.surface, server.times = "other", 1
        _, view = await decided(hf, "denied")
        assert view.tool == "sampling:other"


async def test_budget_of_the_run_is_used_up() -> None:
    server = Server(times=2, reserve=Reserved(cost_micros=7, tokens=15))
    config = {**ALLOWED, "session": {"budget": {"tokens": 20}}}
    async with holdfast.open("memory:", config, capabilities=[server.guess()]) as hf:
        server.hf = hf
        await hf.shell.run(CODE)
        first, second = server.heard
        assert first.error is None
        assert second.error is not None
        assert (second.error.code, server.asked) == ("BUDGET_EXCEEDED", ["s1:1"])


async def test_only_on_behalf_of_a_call_under_way_and_not_for_ever() -> None:
    server = Server(times=101)
    async with holdfast.open("memory:", ALLOWED, capabilities=[server.guess()]) as hf:
        server.hf = hf
        run = await hf.shell.run(CODE)
        assert run.error is not None
        assert "100 calls" in run.error.message
        context = Context("e", 1, "s", "r", call=server.calls[0])
        with pytest.raises(holdfast.HoldfastError, match="CANCELLED"):
            await server.ask(context, "too late")
        with pytest.raises(InternalError):
            await server.ask(Context("e", 1, "s", "r"), "whose?")


async def test_consent_that_nobody_wants_any_more_is_withdrawn() -> None:
    server = Server()

    async def guess(what: str, context: Context) -> str:
        """Guess something."""
        with anyio.move_on_after(0.1):
            await server.ask(context, what)
        return "went on"

    tool = capability(guess, side_effect="external_system")
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        server.hf = hf
        assert (await hf.shell.run(CODE)).result == "went on"
        (view,) = await hf.approvals.list(status="all")
        assert view.status == "cancelled"


# -- a replay does not see it ---------------------------------------------------------------------------


@pytest.mark.parametrize("config", [UNJAILED, ALLOWED], ids=["consent", "answer"])
@pytest.mark.parametrize("how", ["now", "after_effect", "its caller", "it ends"])
async def test_what_is_done_elsewhere_for_a_call_stops_with_it(
    how: str, config: dict[str, Any]
) -> None:
    """A model is asked by whoever has the connection, or a person about that, when nobody wants it any more."""
    server, begun, ends = Server(), anyio.Event(), anyio.Event()
    failed: list[str] = []

    async def sample(arguments: dict[str, Any], context: Context) -> Json:
        begun.set()
        await anyio.sleep_forever()

    server.sample = sample

    async def guess(what: str, context: Context) -> str:
        """Guess something."""

        async def aside() -> None:
            try:
                await server.ask(context, what)
            except HoldfastError as why:
                failed.append(why.code)

        connection.start_soon(aside)
        await ends.wait()
        return what

    tool = capability(guess, side_effect="external_system", idempotent=True)
    async with (
        holdfast.open("memory:", config, capabilities=[tool]) as hf,
        anyio.create_task_group() as connection,
    ):
        server.hf = hf
        async with anyio.create_task_group() as caller:
            caller.start_soon(lambda: hf.shell.run(CODE, session="s"))
            if config is ALLOWED:
                await begun.wait()
            else:
                await until(hf.approvals.list, lambda views: len(views) == 1)
            (run,) = await hf.runs.list()
            if how == "its caller":
                caller.cancel_scope.cancel()
            elif how == "it ends":
                ends.set()
            else:
                await hf.runs.cancel(run.id, mode="now" if how == "now" else "after_effect")
        for _ in range(2):
            assert (await hf.shell.run("1 + 1", session="s")).result == 2
        assert await hf.approvals.list() == []
        assert [one.in_doubt for one in await hf.runs.list()] == [()] * 3
    assert failed == ["CANCELLED"]


async def test_replays_do_not_see_it() -> None:
    server, journal = Server(), MemoryJournal()
    tool = server.guess()
    async with holdfast.open(journal, ALLOWED, capabilities=[tool]) as hf:
        server.hf = hf
        run = await hf.shell.run("found = await guess('bed')", session="s")
        assert (await rehearse(hf.shell.services, str(run.run_id))).same
        effects = await hf.runs.effects(str(run.run_id))
        assert [one.name for one in effects] == ["guess", "sampling:srv"]
        before = await journal.rows("effects")
        await journal.rebuild()
        assert await journal.rows("effects") == before
    async with holdfast.open(journal, ALLOWED, capabilities=[tool]) as hf:
        # Another key: the saved state does not count, and the session is made again from its record.
        assert (await hf.shell.run("result = found", session="s")).result == "answer to bed?"
    assert server.asked == ["s1:1"]


@pytest.mark.parametrize("code", [True, False], ids=["code", "tools"])
async def test_agents_replay_does_not_see_it(code: bool) -> None:
    server = Server()
    tool = server.guess()
    wants = write_code(CODE) if code else call("guess", what="bed")
    agent = Agent(ScriptedModel([wants, say("Done.")]), capabilities=[tool], code_mode=code)
    async with holdfast.open("memory:", ALLOWED) as hf:
        server.hf = hf
        run = await agent.run("Guess.", runtime=hf)
        assert run.status == "completed"
        assert server.asked == ["s1:1"]
        found = (await replay_async(run)).check()
        assert found.same
    assert server.asked == ["s1:1"]


# -- its process dies -----------------------------------------------------------------------------------


def at(kind: str) -> Callable[[Record], bool]:
    """The record of that kind about what is made beside the call; `asked`: nobody has answered yet."""
    end = "_s1"
    if kind == "asked":
        kind, end = "effect_intent", "_s1_ask"
    return lambda record: record.kind == kind and str(record.effect_id).endswith(end)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("asked", ["s1:1"]),
        ("effect_intent", ["s1:2"]),
        ("effect_result", []),
    ],
)
async def test_what_was_under_way_is_taken_up(kind: str, asked: list[str]) -> None:
    server, journal = Server(), MemoryJournal()
    tool = server.guess(idempotent=True)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        server.hf = hf
        await decided(hf, "approved")
    part = await copy(journal, at(kind))
    server.asked.clear()
    async with holdfast.open(part, UNJAILED, capabilities=[tool]) as hf:
        server.hf = hf
        (run,) = await hf.runs.list(status="active")
        for view in await hf.approvals.list():
            await hf.approvals.decide(view.id, "approved", actor="ann")
        result = await hf.runs.resume(run.id)
        assert result.result == "answer to bed?"
        assert server.asked == asked
        assert len(await hf.approvals.list(status="all")) == 1
        assert (await hf.journal.verify()).ok


@pytest.mark.parametrize("kind", ["asked", "effect_intent"])
async def test_what_nobody_takes_up_is_over(kind: str) -> None:
    server, journal = Server(), MemoryJournal()
    tool = server.guess(idempotent=True)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        server.hf = hf
        await decided(hf, "approved")
    part = await copy(journal, at(kind))
    server.times = 0
    async with holdfast.open(part, UNJAILED, capabilities=[tool]) as hf:
        server.hf = hf
        (run,) = await hf.runs.list(status="active")
        assert (await hf.runs.resume(run.id)).status == "ok"
        effects = {one.name: one.status for one in await hf.runs.effects(run.id)}
        assert effects["guess"] == "completed"
        assert effects.get("sampling:srv", "cancelled") == "cancelled"
        assert await hf.approvals.list() == []
