"""The one door: what passes it, in which order, and what is on record when."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.support import ASKS_NOT, FailsAt, World, kinds, said

import holdfast
from holdfast import Context, capability
from holdfast.contracts import Draft, digest_json
from holdfast.errors import JournalError
from holdfast.journal import MemoryJournal


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


# -- records before acts ------------------------------------------------------------------------------


async def test_intent_is_on_record_before_the_act() -> None:
    found: list[list[str]] = []
    journal = MemoryJournal()

    async def act(context: Context) -> str:
        found.append([one.kind async for one in journal.read("s")])
        return context.effect_id

    tool = capability(act, side_effect="write")
    async with holdfast.open(journal, ASKS_NOT, capabilities=[tool]) as hf:
        run = await hf.shell.run("result = await act()", session="s")
        assert found == [["session_created", "run_started", "effect_intent"]]
        assert await kinds(hf, run) == [
            "run_started",
            "effect_intent",
            "effect_result",
            "run_completed",
        ]
        (intent,) = await said(hf, run, "effect_intent")
        assert intent["effect_id"] == run.result


async def test_no_act_without_a_durable_intent() -> None:
    world = World()
    journal = FailsAt(MemoryJournal(), "effect_intent")
    with pytest.raises(JournalError):
        async with holdfast.open(journal, ASKS_NOT, capabilities=[world.send()]) as hf:
            await hf.shell.run("send('ann')", session="s")
    assert world.done == []


async def test_result_that_is_not_recorded_is_not_seen() -> None:
    """The act has happened: it is in doubt, and nobody does it again by himself."""
    world = World()
    journal = FailsAt(MemoryJournal(), "effect_result")
    with pytest.raises(JournalError):
        async with holdfast.open(journal, ASKS_NOT, capabilities=[world.send()]) as hf:
            await hf.shell.run("send('ann')\nsend('bob')", session="s")
    assert world.done == ["ann"]
    async with holdfast.open(journal.inner, ASKS_NOT, capabilities=[world.send()]) as hf:
        (active,) = await hf.runs.list(status="active")
        run = await hf.runs.resume(active.id)
        assert run.status == "interrupted"
        assert len(run.in_doubt) == 1
        await hf.runs.resolve(active.id, run.in_doubt[0], "happened", value="sent to ann")
        assert (await hf.runs.resume(active.id)).status == "ok"
    assert world.done == ["ann", "bob"]


class Counting(MemoryJournal):
    """Remembers what was waited for, and how long."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[list[str]] = []

    def append_now(self, stream: str, records: Any, **terms: Any) -> Any:
        if stream == "s" and terms.get("durable", True):
            drafts: list[Draft] = list(records)
            self.durable.append([draft.kind for draft in drafts])
        return super().append_now(stream, records, **terms)


async def test_reads_need_no_sync() -> None:
    world, journal = World(), Counting()
    async with holdfast.open(journal, {}, capabilities=[world.look()]) as hf:
        await hf.shell.run("for n in range(5):\n    look()", session="s")
        assert journal.durable == []


async def test_what_must_not_be_done_twice_is_synced_before_and_after() -> None:
    world, journal = World(), Counting()
    async with holdfast.open(journal, ASKS_NOT, capabilities=[world.send()]) as hf:
        await hf.shell.run("send('ann')", session="s")
    waited = [kind for kinds in journal.durable for kind in kinds]
    assert waited.count("effect_intent") == 1
    assert waited.count("effect_result") == 1


# -- arguments and results ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    ["send()", "send(1)", "send('a', 'b')", "send(to='a', x=1)", "send(None)", "send(*'ab')"],
)
async def test_arguments_that_do_not_fit_are_refused(call: str) -> None:
    world = World()
    text = f"try:\n    {call}\nexcept TypeError as why:\n    result = 'caught'"
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send()]) as hf:
        run = await hf.shell.run(text, session="s")
        assert (run.status, run.result) == ("ok", "caught"), run.error
        assert await hf.approvals.list(status="all") == []
    assert world.done == []


async def test_refused_call_is_on_record() -> None:
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[World().send()]) as hf:
        run = await hf.shell.run("send(1)", session="s")
        assert run.status == "runtime_error"
        (result,) = await said(hf, run, "effect_result")
        assert result["terminal_status"] == "denied_before_execution"
        assert result["error"]["code"] == "INVALID_ARGUMENT"


async def test_result_that_does_not_fit_is_an_error() -> None:
    def number() -> int:
        return "no number"  # type: ignore[return-value]

    tool = capability(number, side_effect="read")
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run("number()", session="s")
        assert run.error is not None
        assert run.error.code == "TOOL_ERROR"
        (result,) = await said(hf, run, "effect_result")
        assert result["terminal_status"] == "failed"


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("k"), "KeyError"),
        (FileNotFoundError("gone"), "FileNotFoundError: gone"),
        (ZeroDivisionError("zero"), "ZeroDivisionError: zero"),
        (UnicodeError("odd"), "RuntimeError"),
    ],
)
async def test_what_a_capability_raises_is_what_code_sees(raised: Exception, caught: str) -> None:
    def fails() -> str:
        raise raised

    text = "try:\n    fails()\nexcept Exception as e:\n    result = f'{type(e).__name__}: {e}'"
    tool = capability(fails, side_effect="read")
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run(text, session="s")
        assert str(run.result).startswith(caught)
        assert run.external_calls[0].status == "error"


async def test_failure_of_a_write_is_an_answer() -> None:
    """A capability that raises has said what became of it: nothing is in doubt."""

    def fails() -> str:
        raise ValueError("no")

    tool = capability(fails, side_effect="write")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[tool]) as hf:
        run = await hf.shell.run("fails()", session="s")
        assert run.status == "runtime_error"
        assert (await hf.runs.effects(str(run.run_id)))[0].status == "failed"


async def test_line_about_each_call() -> None:
    world = World()
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.send(), world.look()]) as hf:
        run = await hf.shell.run("look('a')\nsend('b')\nlook('c')", session="s")
        assert [one.name for one in run.external_calls] == ["look", "send", "look"]
        send = run.external_calls[1]
        assert (send.side_effect, send.status) == ("external_system", "ok")
        assert send.request_digest == digest_json({"to": "b"})
        assert send.response_digest == digest_json("sent to b")
        assert run.metrics.external_calls_count == 3


# -- context ------------------------------------------------------------------------------------------


async def test_context_says_whose_call_it_is() -> None:
    seen: list[Context] = []

    def act(context: Context) -> str:
        seen.append(context)
        context.external_id = f"op-{context.idempotency_key}"
        return ""

    tool = capability(act, side_effect="write")
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[tool]) as hf:
        run = await hf.shell.run("act()\nact()", session="s", actor="agent:7")
        first, second = seen
        assert (first.session_id, first.run_id, first.actor) == ("s", run.run_id, "agent:7")
        assert (first.attempt, second.attempt) == (1, 1)
        assert first.effect_id != second.effect_id
        results = await said(hf, run, "effect_result")
        assert results[0]["external_operation_id"] == f"op-{first.effect_id}"
        stub = await hf.shell.run("result = describe_tool('act')['stub']", session="s")
        assert "context" not in str(stub.result)


# -- several at once ----------------------------------------------------------------------------------


async def test_awaited_together_is_under_way_together() -> None:
    together = anyio.Event()
    inside = 0

    async def meet(n: int) -> int:
        nonlocal inside
        inside += 1
        if inside == 3:
            together.set()
        await together.wait()  # none of them returns before all three are in
        return n

    tool = capability(meet, side_effect="read", timeout_ms=60_000)
    text = "import asyncio\nresult = await asyncio.gather(meet(1), meet(2), meet(3))"
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        run = await hf.shell.run(text, session="s", limits={"wall_ms": 60_000})
        assert run.result == [1, 2, 3]
        assert run.metrics.external_calls_count == 3


async def test_functions_run_beside_the_event_loop() -> None:
    here = threading.get_ident()
    seen: list[int] = []

    def act() -> None:
        seen.append(threading.get_ident())

    tool = capability(act, side_effect="read")
    async with holdfast.open("memory:", {}, capabilities=[tool]) as hf:
        assert (await hf.shell.run("act()", session="s")).status == "ok"
    assert here not in seen


async def test_order_of_answers_is_the_order_on_record(url: str) -> None:
    """Whatever order the calls end in, the code sees the order that the journal has, also when it is cold."""
    go = {n: anyio.Event() for n in range(3)}

    async def step(n: int) -> int:
        if n < 2:
            await go[n + 1].wait()  # the last one first
        go[n].set()
        return n

    tool = capability(step, side_effect="read", timeout_ms=60_000)
    text = """
import asyncio
order = []
async def one(n):
    order.append(await step(n))
await asyncio.gather(one(0), one(1), one(2))
result = order
"""
    async with holdfast.open(url, {}, capabilities=[tool]) as hf:
        run = await hf.shell.run(text, session="s", limits={"wall_ms": 60_000})
        assert run.result == [2, 1, 0]
    async with holdfast.open(url, {}, capabilities=[tool]) as hf:
        assert (await hf.shell.run("order", session="s")).result == [2, 1, 0]


async def test_call_that_code_does_not_await_is_part_of_the_run() -> None:
    world = World()
    async with holdfast.open("memory:", ASKS_NOT, capabilities=[world.asend()]) as hf:
        run = await hf.shell.run("x = asend('ann')\nresult = 1", session="s")
        assert run.result == 1
        for effect in await hf.runs.effects(str(run.run_id)):
            assert effect.status not in ("open", "unknown")
