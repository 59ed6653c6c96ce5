"""Hooks nobody waits for: what is queued, what is dropped, what is said about it."""

import logging
from typing import Any

import anyio
import pytest
from tests.gate.hooks_support import AFTER, Recorder, answers, fire, hook

from holdfast.contracts.hook import HookPoint, HookQueue
from holdfast.contracts.hook_response import ResponseClass
from holdfast.errors import CallerError, JournalError
from holdfast.gate.hooks import Hook, HookInput, Hooks, HookStatus, View

DELTA = HookPoint.ON_MODEL_DELTA


class Slow:
    """An observer that takes one and then waits until it may go on."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.busy = anyio.Event()
        self.go_on = anyio.Event()

    async def __call__(self, question: HookInput) -> None:
        self.seen.append(question.summary)
        self.busy.set()
        await self.go_on.wait()


def observer(slow: Slow, point: HookPoint = DELTA, **terms: Any) -> Hook:
    queue = HookQueue(capacity=4, terminal_reserve=2)
    return hook(point, **{"id": "slow", "queue": queue, "timeout_ms": 60_000, **terms})(slow)


async def offered(
    hooks: Hooks, point: HookPoint, *summaries: str, terminal: bool = False, record: Recorder
) -> list[HookStatus]:
    found: list[HookStatus] = []
    for summary in summaries:
        view = View(summary, terminal=terminal)
        found.append((await fire(hooks, point, view, record=record)).outcomes[0].status)
    return found


QUEUED, DROPPED = HookStatus.QUEUED, HookStatus.DROPPED


async def test_nobody_waits_for_an_observer_and_all_is_seen_in_order():
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow)]) as hooks:
        assert await offered(hooks, DELTA, "a", record=record) == [QUEUED]
        await slow.busy.wait()
        assert await offered(hooks, DELTA, "b", "c", record=record) == [QUEUED] * 2
        assert slow.seen == ["a"]
        slow.go_on.set()
    assert slow.seen == ["a", "b", "c"]
    assert record.events == []


async def test_capacity_and_terminal_reserve_are_enforced():
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow)]) as hooks:
        await offered(hooks, DELTA, "a", record=record)
        await slow.busy.wait()
        assert await offered(hooks, DELTA, "b", "c", "d", record=record) == [
            QUEUED,
            QUEUED,
            DROPPED,
        ]
        ends = await offered(hooks, DELTA, "x", "y", "z", terminal=True, record=record)
        assert ends == [QUEUED, QUEUED, DROPPED]
        slow.go_on.set()
    assert slow.seen == ["a", "b", "c", "x", "y"]
    assert record.events == []


async def test_at_points_that_end_something_all_places_are_for_that():
    point = HookPoint.AFTER_RUN_TERMINAL
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow, point)]) as hooks:
        await offered(hooks, point, "a", record=record)
        await slow.busy.wait()
        assert await offered(hooks, point, *"bcdef", record=record) == [QUEUED] * 4 + [DROPPED]
        slow.go_on.set()


async def test_summarize_and_continue_says_how_many_were_dropped():
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow, overflow="summarize_and_continue")]) as hooks:
        await offered(hooks, DELTA, "a", record=record)
        await slow.busy.wait()
        assert (await offered(hooks, DELTA, *"bcdefg", record=record)).count(DROPPED) == 4
        slow.go_on.set()
    assert record.events == ["failed"]
    assert record.said[0]["payload"]["redacted_summary"] == "4 observations were dropped."


async def test_fail_hook_invocation_is_on_record_at_once():
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow, overflow="fail_hook_invocation")]) as hooks:
        await offered(hooks, DELTA, "a", record=record)
        await slow.busy.wait()
        found = await offered(hooks, DELTA, "b", "c", "d", record=record)
        assert found == [QUEUED, QUEUED, HookStatus.FAILED_OPEN]
        assert record.events == ["failed"]
        slow.go_on.set()
    assert record.said[0]["payload"]["redacted_summary"] == "Its queue was full."


async def test_failures_delays_and_wishes_of_observers_are_on_record():
    async def raises(question: HookInput) -> None:
        raise ValueError("s3cret")

    async def hangs(question: HookInput) -> None:
        await anyio.sleep_forever()

    record = Recorder()
    made = [
        hook(AFTER, id="a")(raises),
        hook(AFTER, id="b", timeout_ms=10)(hangs),
        answers(ResponseClass.REQUEST_RETRY, AFTER, id="c", rights=()),
        answers(ResponseClass.DENY, AFTER, id="d", rights=()),
        answers(ResponseClass.OBSERVE, AFTER, id="e", rights=()),
    ]
    async with Hooks(made) as hooks:
        fired = await fire(hooks, AFTER, record=record)
    assert [found.status for found in fired.outcomes] == [QUEUED] * 5
    assert {
        said["hook_id"]: event for said, event in zip(record.said, record.events, strict=True)
    } == {
        "a": "failed",
        "b": "timed_out",
        "c": "rejected_mutation_right",
        "d": "rejected_point_matrix",
    }
    assert "s3cret" not in str(record.said)


async def test_closing_waits_only_so_long_and_says_what_was_not_heard():
    slow, record = Slow(), Recorder()
    async with Hooks([observer(slow)], drain_ms=20) as hooks:
        await offered(hooks, DELTA, "a", record=record)
        await slow.busy.wait()
        await offered(hooks, DELTA, "b", "c", record=record)
    assert slow.seen == ["a"]
    assert record.events == ["cancelled"] * 3
    ids = {said["payload"]["invocation_id"] for said in record.said}
    assert len(ids) == 3


async def test_an_error_inside_does_not_lose_what_was_seen():
    slow, record = Slow(), Recorder()
    slow.go_on.set()

    async def fails() -> None:
        async with Hooks([observer(slow)]) as hooks:
            await offered(hooks, DELTA, "a", record=record)
            raise KeyError

    with pytest.raises(KeyError):
        await fails()
    assert slow.seen == ["a"]


async def test_a_cancelled_host_says_what_was_not_heard():
    slow, record = Slow(), Recorder()
    with anyio.CancelScope() as scope:
        async with Hooks([observer(slow)]) as hooks:
            await offered(hooks, DELTA, "a", record=record)
            await slow.busy.wait()
            await offered(hooks, DELTA, "b", record=record)
            scope.cancel()
            await anyio.sleep_forever()
    assert record.events == ["cancelled"] * 2


async def test_records_of_observers_may_go_elsewhere():
    record, aside = Recorder(), Recorder()
    made = answers(ResponseClass.DENY, AFTER, rights=())
    async with Hooks([made], aside=aside) as hooks:
        await fire(hooks, AFTER, record=record)
    assert aside.events == ["rejected_point_matrix"]
    assert record.events == []


async def test_a_journal_that_is_gone_does_not_harm_the_host(caplog: pytest.LogCaptureFixture):
    record = Recorder(fails=JournalError("JOURNAL_CLOSED", "gone"))
    made = answers(ResponseClass.DENY, AFTER, rights=())
    with caplog.at_level(logging.ERROR, "holdfast.hooks"):
        async with Hooks([made]) as hooks:
            await fire(hooks, AFTER, record=record)
    assert "could not be written" in caplog.text


async def test_an_observer_needs_somebody_to_serve_it():
    made = answers(ResponseClass.OBSERVE, AFTER, rights=())
    hooks = Hooks([made])
    with pytest.raises(CallerError, match="nobody serves its queue") as refused:
        await fire(hooks, AFTER)
    assert refused.value.code == "HOOK_INVALID"
    async with hooks:
        await fire(hooks, AFTER)
    async with hooks:  # it may be opened again
        await fire(hooks, AFTER)
    await hooks.__aexit__(None, None, None)


async def test_cancelled_runs_are_not_observed():
    asked: list[str] = []
    record = Recorder()
    made = answers(ResponseClass.OBSERVE, AFTER, rights=(), asked=asked)
    async with Hooks([made]) as hooks:
        fired = await fire(hooks, AFTER, record=record, cancelled=lambda: True)
    assert fired.outcomes[0].status is HookStatus.CANCELLED
    assert asked == []
    assert record.events == ["cancelled"]
