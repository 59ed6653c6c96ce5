"""Hooks that raise, hang, answer nonsense, or are cancelled."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.gate.hooks_support import AFTER, BEFORE, Recorder, answers, fire, hook

from holdfast.contracts.hook import HookFailure, HookPoint
from holdfast.contracts.hook_response import ResponseClass
from holdfast.errors import HoldfastError
from holdfast.gate.hooks import Hook, HookInput, Hooks, HookStatus

CANCEL = HookPoint.ON_RUN_CANCEL_REQUESTED


async def raises(question: HookInput) -> None:
    raise ValueError("s3cret")


async def hangs(question: HookInput) -> None:
    await anyio.sleep_forever()


async def babbles(question: HookInput) -> Any:
    return 7


BAD: list[tuple[Callable[[HookInput], Any], str]] = [
    (raises, "failed"),
    (hangs, "timed_out"),
    (babbles, "failed"),
]


@pytest.mark.parametrize(("function", "event"), BAD)
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("deny", "PERMISSION_DENIED"),
        ("interrupt_run", "HOOK_FAILED"),
        ("fail_run", "HOOK_FAILED"),
        ("fail_open_observe_only", None),
    ],
)
async def test_failure_is_enforced(
    function: Callable[[HookInput], Any], event: str, failure: str, code: str | None
):
    asked: list[str] = []
    bad = hook(AFTER, id="bad", blocking=True, timeout_ms=20, failure=failure)(function)
    after = answers(ResponseClass.OBSERVE, AFTER, id="next", blocking=True, asked=asked)
    record = Recorder()
    if code is None:
        fired = await fire([bad, after], AFTER, record=record)
        status = fired.outcomes[0].status
        late = event == "timed_out"
        assert status is (HookStatus.TIMED_OUT_FAIL_OPEN if late else HookStatus.FAILED_OPEN)
        assert asked == ["next"]
    else:
        with pytest.raises(HoldfastError, match="`bad`") as closed:
            await fire([bad, after], AFTER, record=record)
        assert closed.value.code == code
        assert "s3cret" not in str(closed.value)
        assert asked == []
    assert record.events == [event]
    (said,) = record.said
    assert said["payload"]["failure_policy"] == failure
    assert "s3cret" not in str(said)


@pytest.mark.parametrize("point", [CANCEL, HookPoint.AFTER_RUN_TERMINAL])
@pytest.mark.parametrize(("function", "event"), BAD)
async def test_cancelling_and_ending_can_not_be_vetoed(
    point: HookPoint, function: Callable[[HookInput], Any], event: str
):
    bad = hook(point, id="bad", blocking=True, timeout_ms=20, failure="fail_run")(function)
    asked: list[str] = []
    after = answers(ResponseClass.OBSERVE, point, id="next", blocking=True, asked=asked)
    record = Recorder()
    await fire([bad, after], point, record=record, cancelled=lambda: True)
    assert record.events == [event]
    assert asked == ["next"]


# --- deadlines ---


async def test_timeout_ms_is_enforced():
    went_on: list[str] = []

    @hook(BEFORE, timeout_ms=20, failure="deny")
    async def slow(question: HookInput) -> None:
        await anyio.sleep(30)
        went_on.append("slept")

    began = monotonic()
    with pytest.raises(HoldfastError, match="longer than 20 ms"):
        await fire([slow])
    assert monotonic() - began < 15
    assert went_on == []


async def test_a_plain_function_is_given_up_at_its_deadline():
    release = threading.Event()

    @hook(BEFORE, timeout_ms=20, failure="deny", rights=["deny"])
    def slow(question: HookInput) -> Any:
        release.wait(30)
        return question.deny("late", "too late")

    record = Recorder()
    try:
        with pytest.raises(HoldfastError, match="longer than 20 ms"):
            await fire([slow], record=record)
    finally:
        release.set()
    assert record.events == ["timed_out"]


async def test_hung_threads_do_not_pile_up():
    release = threading.Event()
    running: list[int] = []

    @hook(AFTER, timeout_ms=1_000, failure="fail_open_observe_only", blocking=True)
    def slow(question: HookInput) -> None:
        running.append(1)
        release.wait(30)

    hooks = Hooks([slow])
    record = Recorder()

    async def firing() -> None:
        await fire(hooks, AFTER, record=record)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(firing)
        assert len(running) == slow.limiter.borrowed_tokens == 16
    finally:
        release.set()
    assert record.events == ["timed_out"] * 20
    with anyio.fail_after(30):
        while slow.limiter.borrowed_tokens:  # noqa: ASYNC110  (their places come back when they end)
            await anyio.sleep(0.01)


async def test_an_answer_that_comes_late_because_the_loop_was_blocked_is_late():
    @hook(BEFORE, timeout_ms=5, failure="deny", rights=["deny"])
    async def selfish(question: HookInput) -> Any:
        sleep(0.05)  # noqa: ASYNC251  (that is what it is about)
        return question.deny("late", "too late")

    record = Recorder()
    with pytest.raises(HoldfastError, match="longer than 5 ms"):
        await fire([selfish], record=record)
    assert record.events == ["timed_out"]
    assert record.said[0]["payload"]["elapsed_ms"] > 5


async def test_a_plain_function_may_give_something_to_await():
    def later(question: HookInput) -> Any:
        async def answer() -> Any:
            return question.deny("no", "no")

        return answer()

    fired = await fire([hook(BEFORE, rights=["deny"])(later)])
    assert fired.denied is not None


@pytest.mark.parametrize(
    "said",
    [
        {"type": "deny", "payload": {"code": "no", "summary": "no"}},
        '{"type": "deny", "payload": {"code": "no", "summary": "no"}}',
        b'{"type": "deny", "payload": {"code": "no", "summary": "no"}}',
    ],
)
async def test_json_is_an_answer_too(said: Any):
    async def answer(question: HookInput) -> Any:
        return said

    fired = await fire([hook(BEFORE, rights=["deny"])(answer)])
    assert fired.denied is not None


# --- cancellation ---


async def test_of_a_cancelled_run_no_hook_is_asked():
    asked: list[str] = []
    record = Recorder()
    hooks = [
        answers(
            ResponseClass.OBSERVE,
            AFTER,
            id=id_,
            asked=asked,
            blocking=True,
            failure="fail_open_observe_only",
        )
        for id_ in "ab"
    ]
    fired = await fire(hooks, AFTER, record=record, cancelled=lambda: True)
    assert [found.status for found in fired.outcomes] == [HookStatus.CANCELLED] * 2
    assert record.events == ["cancelled"] * 2
    assert asked == []


async def test_what_a_skipped_hook_guards_is_not_done():
    asked: list[str] = []
    record = Recorder()
    guard = answers(ResponseClass.DENY, BEFORE, asked=asked)
    with pytest.raises(HoldfastError) as stopped:
        await fire([guard], record=record, cancelled=lambda: True)
    assert stopped.value.code == "CANCELLED"
    assert record.events == ["cancelled"]
    assert asked == []


async def test_cancelling_interrupts_a_hook_and_is_on_record():
    record = Recorder()
    started = anyio.Event()

    @hook(BEFORE, timeout_ms=60_000)
    async def slow(question: HookInput) -> None:
        started.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:

        async def firing() -> None:
            await fire([slow], record=record)

        group.start_soon(firing)
        await started.wait()
        group.cancel_scope.cancel()
    assert record.events == ["cancelled"]


async def test_a_thread_that_never_began_holds_no_place():
    @hook(BEFORE, timeout_ms=60_000)
    def looks(question: HookInput) -> None: ...

    record = Recorder()
    with anyio.CancelScope() as scope:
        # Runs the next time the firing lets go of the loop: it has its place by then, and no thread yet.
        asyncio.get_running_loop().call_soon(scope.cancel)
        await fire([looks], record=record)
    assert scope.cancelled_caught
    assert record.events == ["cancelled"]
    assert looks.limiter.borrowed_tokens == 0


async def test_hooks_of_cancelling_are_asked_although_all_is_cancelled():
    record = Recorder()
    outcomes: list[HookStatus] = []

    async def cleans(question: HookInput) -> Any:
        await anyio.lowlevel.checkpoint()
        return question.request("request_cleanup_repair", "sweep")

    hooks = [
        hook(CANCEL, id="a", rights=["request_cleanup_repair"])(cleans),
        hook(CANCEL, id="b", blocking=True, timeout_ms=60_000)(hangs),
        hook(CANCEL, id="c", rights=["request_cleanup_repair"])(cleans),
    ]
    with anyio.CancelScope() as scope:
        scope.cancel()
        fired = await fire(hooks, CANCEL, record=record, cancelled=lambda: True)
        outcomes += [found.status for found in fired.outcomes]
    # The one that hangs uses up the time of them all.
    assert outcomes[:2] == [HookStatus.APPLIED, HookStatus.TIMED_OUT_FAIL_OPEN]
    assert outcomes[2] is HookStatus.CANCELLED
    assert record.events == ["accepted_journaled_before_apply", "timed_out", "cancelled"]


def test_every_failure_policy_is_tried():
    assert len(HookFailure) == 4


def test_hooks_are_frozen():
    made: Hook = answers(ResponseClass.DENY, BEFORE)
    with pytest.raises(AttributeError):
        made.spec = made.spec  # pyright: ignore[reportAttributeAccessIssue]
