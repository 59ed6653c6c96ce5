"""Hooks at the points of an agent's run: its start, its end, its cancellation, and what a failing hook does."""

from typing import Any

import anyio
import pytest
from tests.agent.hooks_support import at, check, decisions, model, once, ran, texts

import holdfast
from holdfast import Agent
from holdfast.contracts.model import ModelRequest
from holdfast.errors import CallerError
from holdfast.gate.hooks import Hook, HookInput
from holdfast.models.script import call, say, write_code
from holdfast.models.scripted import Scripted
from holdfast.runtime.agent import Run

ACCEPTED = "accepted"


# -- run_starting -----------------------------------------------------------------------------------------


async def test_run_starting_injects_a_notice() -> None:
    one = at("run_starting", lambda q: q.inject("It is Monday.", "It rains."), "inject_context")
    asks = model(say("fine"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert run.status == "completed"
        assert texts(asks.requests[0]) == ["go", "It is Monday.", "It rains."]
        assert [getattr(m, "notice", False) for m in run.messages[:3]] == [False, True, True]
        records = [r async for r in hf.journal.read("s") if r.kind == "run_prompted"]
        assert [r.payload["purpose"] for r in records] == ["hook", "hook"]
        assert await decisions(hf, run) == [("run_starting", ACCEPTED)]


async def test_run_starting_stops_the_run_before_the_model_is_asked() -> None:
    asks = model(say("never"))
    one = at("run_starting", lambda q: q.stop_run("closed", "We are closed."), "stop_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert run.error.code == "PERMISSION_DENIED"
        assert "We are closed." in run.error.message
        # The session is free again.
        assert (await hf.shell.run("1 + 1", session="other")).status == "permission_denied"
    assert asks.requests == []


async def test_an_item_without_text_is_refused() -> None:
    one = at("run_starting", lambda q: q.inject("  "), "inject_context", failure="fail_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("fine"))))
        assert (run.status, run.result.cause) == ("failed", "HookFailure")
        assert run.error.code == "HOOK_FAILED"
        assert await decisions(hf, run) == [("run_starting", "rejected")]


# -- before_run_complete ----------------------------------------------------------------------------------


async def test_before_run_complete_sees_the_answer_and_sends_the_run_back_once() -> None:
    asked = list[HookInput]()
    back = once(lambda q: q.retry("Say please."))
    one = at("before_run_complete", back, "request_retry", asked=asked)
    asks = model(say("no"), say("please"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.output) == ("completed", "please")
        assert texts(asks.requests[1]) == ["go", "no", "Say please."]
        assert [q.result for q in asked] == ["no", "please"]
        assert [q.subject for q in asked] == [f"{run.id}:1", f"{run.id}:2"]


async def test_a_run_is_sent_back_to_work_only_once() -> None:
    one = at(
        "before_run_complete", lambda q: q.retry("Again."), "request_retry", failure="fail_run"
    )
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("a"), say("b"), say("c"))))
        assert (run.status, run.result.cause, run.text) == ("failed", "HookFailure", "b")
        assert [outcome for _, outcome in await decisions(hf, run)] == [ACCEPTED, "rejected"]


async def test_stop_completion_fails_the_run_and_keeps_the_answer() -> None:
    one = at(
        "before_run_complete",
        lambda q: q.repair_needed("books", "The books do not balance."),
        "stop_completion_with_repair_needed",
    )
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("done"))))
        assert (run.status, run.result.cause, run.text) == ("failed", "HookDenied", "done")
        assert "The books do not balance." in run.error.message


async def test_validate_detach_lets_a_run_complete_that_leaves_nothing() -> None:
    one = at(
        "before_run_complete", lambda q: q.request("validate_detach", "sure?"), "validate_detach"
    )
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(write_code("1"), say("done"))))
        assert run.status == "completed"
        assert (await decisions(hf, run))[-1] == ("before_run_complete", ACCEPTED)


# -- cancelled, over --------------------------------------------------------------------------------------


async def cancelled(*hooks: Hook) -> tuple[Run[Any], list[Any]]:
    """A run that was cancelled while its model was thinking, and the records of hooks in it."""
    started, ended, found, records = anyio.Event(), anyio.Event(), list[Run[Any]](), list[Any]()

    async def thinks(request: ModelRequest) -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    agent = Agent(Scripted(thinks))
    async with (
        holdfast.open("memory:", {}, hooks=hooks) as hf,
        anyio.create_task_group() as tasks,
    ):

        async def go() -> None:
            found.append(await agent.run("go", session="s", runtime=hf))
            ended.set()

        tasks.start_soon(go)
        await started.wait()
        (active,) = await hf.runs.list(status="active")
        await hf.runs.cancel(active.id)
        await ended.wait()
        records += [one async for one in hf.journal.read("s") if one.kind == "hook"]
    return found[0], records


async def test_on_run_cancel_requested_and_after_run_terminal_are_told() -> None:
    heard = list[HookInput]()
    run, records = await cancelled(
        at("on_run_cancel_requested", asked=heard, blocking=True),
        at("after_run_terminal", asked=heard, blocking=True),
    )
    assert (run.status, records) == ("cancelled", [])
    assert [q.point.value for q in heard] == ["on_run_cancel_requested", "after_run_terminal"]
    result: Any = heard[1].result
    assert (heard[1].summary, result["status"]) == ("run over: cancelled", "cancelled")


async def test_request_cleanup_repair_does_not_stop_the_cancellation() -> None:
    wish = at(
        "on_run_cancel_requested",
        lambda q: q.request("request_cleanup_repair", "look at the files"),
        "request_cleanup_repair",
    )
    run, records = await cancelled(wish)
    assert run.status == "cancelled"
    assert [one.payload["point"] for one in records] == ["on_run_cancel_requested"]


async def test_after_run_terminal_can_not_change_anything() -> None:
    def fails(question: HookInput) -> None:
        raise RuntimeError("broken")

    one = at("after_run_terminal", fails, blocking=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        assert (await ran(hf, Agent(model(say("done"))))).status == "completed"


# -- hooks that fail --------------------------------------------------------------------------------------

POINTS = [
    ("run_starting", "stop_run"),
    ("before_context_assembly", "inject_context"),
    ("after_context_assembly", "stop_run"),
    ("before_provider_projection", "stop_run"),
    ("before_model_call", "stop_run"),
    ("after_model_call", "stop_run"),
    ("before_run_complete", "request_retry"),
]


@pytest.mark.parametrize(("point", "right"), POINTS)
@pytest.mark.parametrize(
    ("failure", "cause", "code"),
    [
        ("fail_run", "HookFailure", "HOOK_FAILED"),
        ("deny", "HookDenied", "PERMISSION_DENIED"),
    ],
)
async def test_a_hook_that_fails_where_it_may_not_ends_the_run(
    point: str, right: str, failure: str, cause: str, code: str
) -> None:
    def fails(question: HookInput) -> None:
        raise RuntimeError("broken")

    one = at(point, fails, right, failure=failure)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("done"))))
        assert (run.status, run.result.cause, run.error.code) == ("failed", cause, code)
        assert await decisions(hf, run) == [(point, "failed")]


@pytest.mark.parametrize(("point", "right"), POINTS)
async def test_a_run_that_stands_at_a_failed_hook_goes_on_once_it_is_repaired(
    point: str, right: str
) -> None:
    broken = [True]

    def fails(question: HookInput) -> None:
        if broken:
            raise RuntimeError("broken")

    asked = list[HookInput]()
    one = at(point, fails, right, failure="interrupt_run", asked=asked)
    asks = model(say("done"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        for _ in range(2):  # it is asked again each time
            found = run.status, run.result.cause, run.error.code
            assert found == ("needs_attention", "HookFailure", "HOOK_FAILED")
            assert (await hf.runs.show(run.id)).status == "needs_attention"
            assert await decisions(hf, run) == [(point, "failed")] * len(asked)
            run = await run.resume()
        broken.clear()
        run = await run.resume()
        assert (run.status, run.output, len(asked)) == ("completed", "done", 4)
        await check(hf, run)
    assert len(asks.requests) == 1


@pytest.mark.parametrize("point", [point for point, _ in POINTS if point != "before_run_complete"])
async def test_an_observer_that_fails_changes_nothing(point: str) -> None:
    def fails(question: HookInput) -> None:
        raise RuntimeError("broken")

    one = at(point, fails, blocking=True, failure="fail_open_observe_only")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(model(say("done"))))
        assert run.status == "completed"
        assert await decisions(hf, run) == [(point, "failed")]


async def test_a_hook_that_is_late_stops_the_run() -> None:
    async def slow(question: HookInput) -> None:
        await anyio.sleep_forever()

    one = holdfast.hook("before_model_call", id="slow", rights=["stop_run"], timeout_ms=20)(slow)
    asks = model(say("never"))
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await ran(hf, Agent(asks))
        assert (run.status, run.result.cause) == ("needs_attention", "HookFailure")
        assert await decisions(hf, run) == [("before_model_call", "timed")]
    assert asks.requests == []


async def test_order_and_what_each_hook_sees() -> None:
    asked = list[HookInput]()
    early = at(
        "before_provider_projection",
        lambda q: q.project([{"role": "user", "text": "one"}], "less"),
        "modify_projection",
        id="b-early",
        phase="early",
        asked=asked,
    )
    late = at(
        "before_provider_projection",
        lambda q: q.project([*(q.messages or ()), {"role": "user", "text": "two"}], "more"),
        "modify_projection",
        id="a-late",
        phase="late",
        asked=asked,
    )
    asks = model(say("done"))
    async with holdfast.open("memory:", {}, hooks=[late, early]) as hf:
        await ran(hf, Agent(asks))
    assert [q.hook_id for q in asked] == ["b-early", "a-late"]
    assert texts(asks.requests[0]) == ["one", "two"]


async def test_hooks_without_the_privilege_see_no_content() -> None:
    asked = list[HookInput]()
    points = [point for point, _ in POINTS]
    hooks = [
        at(point, asked=asked, blocking=True, privacy="envelope_and_redacted_summary")
        for point in points
    ]
    async with holdfast.open("memory:", {}, hooks=hooks) as hf:
        await ran(hf, Agent(model(say("my secret answer"))), "my secret question")
    assert [q.point.value for q in asked] == points
    assert "my secret" not in "".join(q.model_dump_json() for q in asked)


async def test_nobody_waits_for_a_hook_that_hears_deltas() -> None:
    with pytest.raises(CallerError, match="nobody waits"):
        at("on_model_delta", blocking=True)


async def test_the_same_conversation_goes_on_after_a_hook_stopped_a_run() -> None:
    stop = once(lambda q: q.stop_run("no", "Not now."))
    one = at("after_model_call", stop, "stop_run")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        agent = Agent(model(call("send_all"), say("done")), code_mode=False)
        run = await ran(hf, agent)
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        run = await ran(hf, agent, "and now?")
        assert (run.status, run.output) == ("completed", "done")
        await check(hf, run)
