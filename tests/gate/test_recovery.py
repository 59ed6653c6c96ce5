"""A run that died with its process: what was done stays done, what is in doubt is named, and nothing is done twice."""

from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import pytest
from tests.crash.copies import copy, last
from tests.gate.support import ASKS_NOT, World, allowing, kinds, said, until

import holdfast
from holdfast import Context, Finding, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.contracts import Body, Draft, ErrorObject, canonical_json
from holdfast.errors import CallerError, OperatorError
from holdfast.journal import Journal, MemoryJournal

CODE = """
try:
    result = act("ann")
except RuntimeError as why:
    result = f"failed: {why}"
"""
UNJAILED: dict[str, Any] = allowing(shell={"jail": "off"})


@dataclass
class Acts:
    """A capability, and every time it was called: effect and attempt."""

    done: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    asked: int = 0
    """How often it was asked what became of it."""

    def act(self, found: Finding | None = None, **terms: Any) -> Declared[..., Any]:
        """Called `act`; with `found`, that is what it finds out about an effect."""

        def act(to: str, context: Context) -> str:
            """Do something."""
            self.done.append((context.idempotency_key, context.attempt))
            return f"done for {to}"

        def reconcile(context: Context) -> Finding:
            self.asked += 1
            assert found is not None
            return found

        given = {"side_effect": "write", **terms}
        if found is not None:
            given["reconcile"] = reconcile
        return capability(act, **given)


async def run_of(hf: holdfast.Runtime) -> str:
    """The only run that is not over."""
    (run,) = await hf.runs.list(status="active")
    return run.id


async def recorded(tool: Declared[..., Any], code: str = CODE, **more: Any) -> MemoryJournal:
    """The journal of a run that nothing disturbed."""
    journal = MemoryJournal()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.shell.run(code, session="s", **more)
        assert result.status == "ok", result.error
    return journal


async def died(acts: Acts, tool: Declared[..., Any], after: str = "effect_intent") -> MemoryJournal:
    """The journal of a process that died right after that record; `acts` forgets what it did."""
    journal = await copy(await recorded(tool), last(after))
    acts.done.clear()
    return journal


async def in_doubt(acts: Acts, hf: holdfast.Runtime) -> tuple[str, str]:
    """Resume a run that has to stop for a person; its id and the effect's."""
    run_id = await run_of(hf)
    result = await hf.runs.resume(run_id)
    assert (result.status, result.error and result.error.code) == ("interrupted", "INTERRUPTED")
    assert "`act`" in str(result.error)
    (effect,) = result.in_doubt
    shown = await hf.runs.show(run_id)
    assert (shown.status, shown.in_doubt) == ("needs_attention", (effect,))
    assert acts.done == []
    return run_id, effect


# -- repeated -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms", [{"side_effect": "read"}, {"idempotent": True}], ids=["read", "idempotent"]
)
async def test_what_is_harmless_is_done_again_under_the_same_key(terms: dict[str, Any]) -> None:
    acts = Acts()
    tool = acts.act(**terms)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.status, result.result) == ("ok", "done for ann")
        (effect,) = await hf.runs.effects(str(result.run_id))
        assert acts.done == [(effect.id, 2)]
        (attempt,) = await said(hf, result, "effect_attempt")
        assert (attempt["attempt"], attempt["reason"]) == (2, "recovered")
        assert (await said(hf, result, "effect_result"))[0]["attempt"] == 2
        # And once more: it is over, and nothing happens.
        assert (await hf.runs.resume(str(result.run_id))).result == "done for ann"
        assert len(acts.done) == 1


@pytest.mark.parametrize(
    "terms", [{"side_effect": "read"}, {"idempotent": True}], ids=["read", "idempotent"]
)
async def test_rate_per_min_does_not_stop_what_was_counted_before(terms: dict[str, Any]) -> None:
    acts = Acts()
    tool = acts.act(rate_per_min=1, **terms)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run = await hf.shell.run("act('bob')", session="t")
        assert run.error is not None
        assert (run.error.code, acts.done) == ("RATE_LIMITED", [])
        result = await hf.runs.resume(await run_of(hf))
        assert (result.status, result.result) == ("ok", "done for ann")
        run = await hf.shell.run("act('bob')", session="t")
        assert run.error is not None
        assert run.error.code == "RATE_LIMITED"
    assert len(acts.done) == 1


async def test_result_on_record_is_not_asked_for_again() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool, after="effect_result")
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.status, result.result, acts.done) == ("ok", "done for ann", [])
        assert [one.status for one in result.external_calls] == ["ok"]


async def test_run_that_had_called_nobody_goes_on() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool, after="run_started")
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.status, result.result) == ("ok", "done for ann")
        assert [attempt for _, attempt in acts.done] == [1]


async def test_run_that_had_called_nobody_does_not_hold_up_the_next() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool, after="run_started")
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        old = await run_of(hf)
        assert (await hf.shell.run("1 + 1", session="s")).result == 2
        assert (await hf.runs.result(old)).status == "interrupted"
        assert (await hf.runs.resume(old)).status == "interrupted"
        assert acts.done == []


async def test_what_is_denied_by_now_is_not_repeated() -> None:
    """Nobody knows whether it happened, and it may not be done: that is a person's business."""
    never: dict[str, Any] = {
        "shell": {"jail": "off"},
        "policy": {"rules": [{"id": "never", "tool": "act", "then": "deny"}]},
    }
    for found in (None, Finding("not_started")):
        acts = Acts()
        tool = acts.act(found, idempotent=True)
        journal = await died(acts, tool)
        async with holdfast.open(journal, never, capabilities=[tool]) as hf:
            run_id, effect = await in_doubt(acts, hf)
            await hf.runs.resolve(run_id, effect, "did_not_happen")
            assert "did not happen" in str((await hf.runs.resume(run_id)).result)
            assert acts.done == []


# -- reconciled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True])
async def test_reconciler_says_that_it_happened(idempotent: bool) -> None:
    acts = Acts()
    tool = acts.act(Finding("completed", "done before"), idempotent=idempotent)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.result, acts.done, acts.asked) == ("done before", [], 1)
        (end,) = await said(hf, result, "effect_result")
        assert (end["terminal_status"], end["resolved"]) == ("completed", "reconciled")


async def test_reconciler_says_that_it_failed() -> None:
    acts = Acts()
    why = ErrorObject(code="TOOL_ERROR", message="refused by the bank")
    tool = acts.act(Finding("failed", error=why))
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.result, acts.done) == ("failed: refused by the bank", [])
        (end,) = await said(hf, result, "effect_result")
        assert (end["terminal_status"], end["resolved"]) == ("failed", "reconciled")


async def test_reconciler_says_that_it_did_not_begin() -> None:
    acts = Acts()
    tool = acts.act(Finding("not_started"))
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert result.result == "done for ann"
        assert [attempt for _, attempt in acts.done] == [2]
        assert (await said(hf, result, "effect_attempt"))[0]["reason"] == "not_started"


async def test_reconciler_that_can_not_tell_leaves_it_to_a_person() -> None:
    acts = Acts()
    tool = acts.act(Finding("unknown"))
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        await hf.runs.resolve(run_id, effect, "happened", value="seen")
        assert (await hf.runs.resume(run_id)).result == "seen"
        assert acts.done == []


async def test_reconciler_that_can_not_tell_does_not_stop_what_is_harmless() -> None:
    acts = Acts()
    tool = acts.act(Finding("unknown"), idempotent=True)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert (result.result, acts.asked) == ("done for ann", 1)
        assert [attempt for _, attempt in acts.done] == [2]


async def test_reconciler_that_fails_has_not_found_out() -> None:
    acts = Acts()

    def act(to: str) -> str:
        """Do something."""
        acts.done.append((to, 0))
        return "done"

    def reconcile(context: Context) -> Finding:
        raise OSError("the other side is away")

    tool = capability(act, side_effect="write", reconcile=reconcile)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        await in_doubt(acts, hf)


# -- a person's word ----------------------------------------------------------------------------------

Answer = Literal["happened", "did_not_happen", "retry"]


@pytest.mark.parametrize(
    ("answer", "value", "gives", "attempts"),
    [
        ("happened", "done by hand", "done by hand", []),
        ("did_not_happen", None, "failed: `act` did not happen: a person looked.", []),
        ("retry", None, "done for ann", [2]),
    ],
)
async def test_three_answers(answer: Answer, value: Any, gives: str, attempts: list[int]) -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        # Asking again changes nothing, and says the same.
        assert await in_doubt(acts, hf) == (run_id, effect)
        await hf.runs.resolve(run_id, effect, answer, value=value, actor="ann")
        assert (await hf.runs.show(run_id)).in_doubt == ()
        result = await hf.runs.resume(run_id)
        assert (result.status, result.result) == ("ok", gives)
        assert [attempt for _, attempt in acts.done] == attempts
        assert {key for key, _ in acts.done} <= {effect}
        word = [one for one in await hf.runs.records(run_id) if one.actor == "ann"]
        assert len(word) == 1
        with pytest.raises(CallerError, match="EFFECT_NOT_IN_DOUBT"):
            await hf.runs.resolve(run_id, effect, "retry")
    assert (await journal.verify()).ok


async def test_output_schema_is_enforced_for_a_persons_word() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        last_seq = await journal.last_seq()
        values: list[Any] = [5, None, ["done"], {"text": "done"}]
        for wrong in values:
            with pytest.raises(CallerError, match="INVALID_ARGUMENT") as refused:
                await hf.runs.resolve(run_id, effect, "happened", value=wrong)
            assert "`act` gave what it does not promise" in refused.value.message
        assert await journal.last_seq() == last_seq
        assert await in_doubt(acts, hf) == (run_id, effect)
        await hf.runs.resolve(run_id, effect, "happened", value="done by hand")
        assert (await hf.runs.resume(run_id)).result == "done by hand"


async def test_a_persons_word_counts_where_the_capability_is_not_known() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
    async with holdfast.open(journal, UNJAILED) as hf:
        await hf.runs.resolve(run_id, effect, "happened", value="done by hand")
        assert (await hf.runs.resume(run_id)).result == "done by hand"


async def test_a_persons_word_is_held_against_the_output_schema_as_soon_as_that_is_known() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
    async with holdfast.open(journal, UNJAILED) as hf:
        await hf.runs.resolve(run_id, effect, "happened", value={"text": "done"})
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(run_id)
        assert "`act` gave what it does not promise" in str(result.result)
        (seen,) = await said(hf, result, "effect_seen")
        assert (seen.get("value"), seen["error"]["code"]) == (None, "TOOL_ERROR")
        assert acts.done == []
    # Whoever makes the session again gives its code the same.
    async with holdfast.open(journal, UNJAILED) as hf:
        assert (await hf.shell.run("result", session="s")).result == result.result


async def test_a_persons_word_that_fitted_is_not_looked_at_again() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        await hf.runs.resolve(run_id, effect, "happened", value="done by hand")
        assert (await hf.runs.resume(run_id)).result == "done by hand"

    def act(to: str) -> int:
        """Do something else."""
        return 5

    other = capability(act, side_effect="write")
    journal = await copy(journal, last("effect_seen"))
    async with holdfast.open(journal, UNJAILED, capabilities=[other]) as hf:
        assert (await hf.runs.resume(run_id)).result == "done by hand"


async def test_a_persons_word_is_recorded_without_secrets() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        hf.shell.services.gate.redactor.add("key", "s3cr3t-value")
        await hf.runs.resolve(run_id, effect, "happened", value="with s3cr3t-value")
        assert "s3cr3t-value" not in str((await hf.runs.resume(run_id)).result)


async def released(acts: Acts, tool: Declared[..., Any]) -> MemoryJournal:
    """The journal of a run whose effect in doubt a person let be done again, up to its end."""
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        await hf.runs.resolve(run_id, effect, "retry")
        assert (await hf.runs.resume(run_id)).status == "ok"
    acts.done.clear()
    return journal


async def test_death_right_after_a_release() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await copy(await released(acts, tool), last("effect_released"))
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.runs.resume(await run_of(hf))
        assert result.result == "done for ann"
        assert [attempt for _, attempt in acts.done] == [2]


async def test_release_is_used_once() -> None:
    """The process died in the attempt that was released: that is a new doubt, and needs a new word."""
    acts = Acts()
    tool = acts.act()
    journal = await copy(await released(acts, tool), last("effect_attempt"))
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        await hf.runs.resolve(run_id, effect, "retry")
        assert (await hf.runs.resume(run_id)).status == "ok"
        assert acts.done == [(effect, 3)]


async def test_only_what_is_in_doubt_can_be_resolved() -> None:
    acts = Acts()
    tool = acts.act()
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id = await run_of(hf)
        (effect,) = await hf.runs.effects(run_id)
        with pytest.raises(CallerError, match="EFFECT_NOT_IN_DOUBT"):  # not before it was looked at
            await hf.runs.resolve(run_id, effect.id, "happened")
        await in_doubt(acts, hf)
        with pytest.raises(CallerError, match="INVALID_ARGUMENT"):
            await hf.runs.resolve(run_id, effect.id, "perhaps")
        with pytest.raises(CallerError, match="EFFECT_NOT_IN_DOUBT"):
            await hf.runs.resolve(run_id, "eff_other", "retry")
        await in_doubt(acts, hf)


async def test_one_answer_of_two_lets_the_run_go_on() -> None:
    """A call in doubt and one that waits for a person are awaited together: each answer counts when it comes."""
    acts = Acts()
    tool = slow(acts, 0.05)
    asks = {"id": "asks", "tool": "act", "where": "args.to == 'boss'", "then": "ask"}
    config = {"shell": {"jail": "off"}, "policy": {"rules": [asks, *ASKS_NOT["policy"]["rules"]]}}
    code = "import asyncio\nresult = await asyncio.gather(act('ann'), act('boss'))"
    journal = MemoryJournal()
    async with holdfast.open(journal, config, capabilities=[tool]) as hf:
        assert (await hf.shell.run(code, session="s")).status == "waiting_for_approval"
    dead = await copy(journal, lambda record: str(record.effect_id).endswith("_ask"))
    acts.done.clear()
    async with holdfast.open(dead, config, capabilities=[tool]) as hf:
        run_id, effect = await in_doubt(acts, hf)
        await hf.runs.resolve(run_id, effect, "happened", value="done by hand")
        result = await hf.runs.resume(run_id)
        assert (result.status, result.in_doubt) == ("waiting_for_approval", ())
        await hf.approvals.decide(str(result.approval_id), "approved")
        result = await hf.runs.resume(run_id)
        assert result.result == ["done by hand", "done for boss"]
        assert acts.done == [("boss", 1)]


# -- cut off ------------------------------------------------------------------------------------------


def slow(acts: Acts, seconds: float, **terms: Any) -> Declared[..., Any]:
    async def act(to: str, context: Context) -> str:
        """Do something, slowly."""
        acts.done.append((to, context.attempt))
        await anyio.sleep(seconds)
        return f"done for {to}"

    return capability(act, **{"side_effect": "write", **terms})


SLOW = CODE.replace("act(", "await act(")


async def test_timeout_of_what_must_not_be_repeated_is_a_doubt() -> None:
    acts = Acts()
    tool = slow(acts, 60, timeout_ms=20)
    journal = MemoryJournal()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        result = await hf.shell.run(SLOW, session="s")
        assert (result.status, len(result.in_doubt)) == ("interrupted", 1)
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        run_id = await run_of(hf)
        assert (await hf.runs.resume(run_id)).in_doubt == result.in_doubt
        await hf.runs.resolve(run_id, result.in_doubt[0], "happened", value="late")
        assert (await hf.runs.resume(run_id)).result == "late"
        assert acts.done == [("ann", 1)]


async def test_timeout_of_what_may_be_repeated_is_an_answer() -> None:
    acts = Acts()
    tool = slow(acts, 60, timeout_ms=20, idempotent=True)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        result = await hf.shell.run("await act('ann')", session="s")
        assert (result.status, result.error and result.error.code) == ("timeout", "TIMEOUT_TOOL")
        assert result.in_doubt == ()


@pytest.mark.parametrize("how", ["wall_ms", "cancel"])
async def test_run_that_ends_around_a_call_names_it_as_in_doubt(how: str) -> None:
    acts = Acts()
    tool = slow(acts, 60, timeout_ms=60_000)
    limits = {"wall_ms": 300} if how == "wall_ms" else {"wall_ms": 60_000}
    found: list[RunResult] = []
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:

        async def run() -> None:
            found.append(await hf.shell.run(SLOW, session="s", limits=limits))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            if how == "cancel":
                await until(lambda: _now(acts.done), bool)
                assert hf.shell.cancel("s")
        (result,) = found
        assert result.status == ("timeout" if how == "wall_ms" else "cancelled")
        shown = await hf.runs.show(str(result.run_id))
        assert len(shown.in_doubt) == 1
        assert result.in_doubt == shown.in_doubt
        # The session is not held up by it, and the word about it can still be given.
        assert (await hf.shell.run("1 + 1", session="s")).result == 2
        await hf.runs.resolve(str(result.run_id), shown.in_doubt[0], "did_not_happen")
        assert (await hf.runs.show(str(result.run_id))).in_doubt == ()
        assert acts.done == [("ann", 1)]


async def _now(value: Any) -> Any:
    return value


# -- replayed -----------------------------------------------------------------------------------------


def edited(inputs: dict[str, Any] | None = None, code: str | None = None) -> Any:
    """Make a run's record say that it was started with something else."""

    def change(draft: Draft) -> Draft:
        if draft.kind != "run_started":
            return draft
        bodies, payload = list(draft.bodies), dict(draft.payload)
        if inputs is not None:
            bodies.append(Body.of(canonical_json(inputs), role="inputs", mime="application/json"))
            payload["inputs"] = bodies[-1].ref.digest
        if code is not None:
            bodies.append(Body.of(code.encode(), role="code", mime="text/x-python"))
            payload["code"] = bodies[-1].ref.digest
        return draft.model_copy(update={"bodies": tuple(bodies), "payload": payload})

    return change


@pytest.mark.parametrize(
    ("change", "tells"),
    [
        (edited(inputs={"who": "bob"}), ['"ann"', '"bob"']),
        (edited(code="result = other(who)"), ["`act`", "`other`"]),
    ],
    ids=["arguments", "name"],
)
@pytest.mark.parametrize("after", ["effect_intent", "effect_result"])
async def test_other_call_than_on_record_stops_with_the_difference(
    after: str, change: Any, tells: list[str]
) -> None:
    acts = Acts()
    tool = acts.act(idempotent=True)

    @capability(side_effect="write", idempotent=True)
    def other(to: str) -> str:
        """Do something else."""
        acts.done.append((to, 0))
        return to

    whole = await recorded(tool, "result = act(who)", inputs={"who": "ann"})
    journal = await copy(whole, last(after), change=change)
    acts.done.clear()
    async with holdfast.open(journal, UNJAILED, capabilities=[tool, other]) as hf:
        run_id = await run_of(hf)
        before = await kinds(hf, run_id)
        with pytest.raises(OperatorError, match="REPLAY_MISMATCH") as stopped:
            await hf.runs.resume(run_id)
        for part in tells:
            assert part in stopped.value.message
        assert acts.done == []
        after_it = await kinds(hf, run_id)
        assert after_it == [*before, "run_resumed"]
    assert (await journal.verify()).ok


LOOP = """
sent = []
seen = look("before")
for name in ["ann", "bob", "eve"]:
    print(name)
    sent.append(send(name))
result = [seen, sent]
"""
ASKING: dict[str, Any] = {"shell": {"jail": "off"}}


async def to_the_end(journal: Journal, *, spoil: bool) -> tuple[RunResult, World, list[str]]:
    """Approve, and resume in a new runtime each time, until it ends; with `spoil`, no parked state can be used."""
    world, hows = World(), list[str]()
    while True:
        async with holdfast.open(journal, ASKING, capabilities=[world.send(), world.look()]) as hf:
            (run,) = await hf.runs.list()
            standing = await hf.runs.result(run.id)
            if standing.status != "waiting_for_approval":
                hows = [str(one["how"]) for one in await said(hf, standing, "run_resumed")]
                return standing, world, hows
            if spoil:
                (*_, parked) = await said(hf, standing, "run_parked")
                assert await journal.erase(str(parked["state"]), reason="test")
            await hf.approvals.decide(str(standing.approval_id), "approved")
            await hf.runs.resume(run.id)


async def test_parked_state_and_replay_lead_to_the_same_end() -> None:
    """In the middle of a loop: it goes on in the same round, and what came before is not done again."""
    world, journal = World(), MemoryJournal()
    tools = [world.send(), world.look()]
    async with holdfast.open(journal, ASKING, capabilities=tools) as hf:
        await hf.shell.run(LOOP, session="s")
    assert world.done == ["look before"]
    ends: list[Any] = []
    for spoil, how in ((False, "state"), (True, "replay")):
        result, after, hows = await to_the_end(await copy(journal), spoil=spoil)
        assert hows == [how] * 3
        assert after.done == ["ann", "bob", "eve"]
        assert (result.status, result.stdout) == ("ok", "ann\nbob\neve\n")
        calls = [(one.name, one.status, one.response_digest) for one in result.external_calls]
        ends.append((result.result, result.stdout, calls))
    assert ends[0] == ends[1]


async def test_resume_without_the_capability_touches_nothing() -> None:
    acts = Acts()
    tool = acts.act(idempotent=True)
    journal = await died(acts, tool)
    async with holdfast.open(journal, UNJAILED) as hf:
        run_id = await run_of(hf)
        before = await kinds(hf, run_id)
        with pytest.raises(CallerError, match="SNAPSHOT_CAPABILITY_MISMATCH"):
            await hf.runs.resume(run_id)
        assert await kinds(hf, run_id) == before
    async with holdfast.open(journal, UNJAILED, capabilities=[tool]) as hf:
        assert (await hf.runs.resume(run_id)).result == "done for ann"
