"""The limits of a capability: each one is enforced, and none is left taken."""

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import CapabilityLimits
from holdfast.errors import CallerError, ModelError
from holdfast.gate.limits import Limiter, RateLimited, check_request, check_response
from holdfast.testing import FakeClock


def limits(**fields: int) -> CapabilityLimits:
    return CapabilityLimits(**fields)


# -- sizes --------------------------------------------------------------------------------------------


def test_max_request_bytes_is_enforced():
    assert check_request("pay", {"to": "ä"}, limits(max_request_bytes=11)) == '{"to":"ä"}'.encode()
    with pytest.raises(ModelError, match="`pay` are 11 bytes, 10 are allowed") as caught:
        check_request("pay", {"to": "ä"}, limits(max_request_bytes=10))
    assert caught.value.code == "REQUEST_TOO_LARGE"


def test_max_response_bytes_is_enforced():
    assert check_response("get", [1, 2], limits(max_response_bytes=5)) == b"[1,2]"
    with pytest.raises(ModelError, match="`get` is 5 bytes, 4 are allowed") as caught:
        check_response("get", [1, 2], limits(max_response_bytes=4))
    assert caught.value.code == "RESPONSE_TOO_LARGE"


def test_what_is_not_json_is_refused_as_such():
    with pytest.raises(CallerError, match="PAYLOAD_NOT_JSON"):
        check_response("get", float("nan"), limits())


# -- how many at once ---------------------------------------------------------------------------------


class Calls:
    """Calls of one capability that stay until they are let go."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.running: list[int] = []
        self.started: list[int] = []
        self.most = 0
        self.ends: dict[int, anyio.Event] = {}

    async def call(self, number: int, concurrency: int) -> None:
        self.ends[number] = anyio.Event()
        async with self.limiter.slot("pay", limits(concurrency=concurrency)):
            self.running.append(number)
            self.started.append(number)
            self.most = max(self.most, len(self.running))
            try:
                await self.ends[number].wait()
            finally:
                self.running.remove(number)


async def test_concurrency_is_enforced():
    calls = Calls(Limiter(FakeClock()))
    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(calls.call, number, 2)
        await wait_all_tasks_blocked()
        assert calls.running == [0, 1]
        for number in range(6):
            calls.ends[number].set()
            await wait_all_tasks_blocked()
    assert calls.most == 2
    assert calls.started == [0, 1, 2, 3, 4, 5]


async def test_capabilities_do_not_wait_for_each_other():
    limiter = Limiter(FakeClock())
    async with (
        limiter.slot("one", limits(concurrency=1)),
        limiter.slot("two", limits(concurrency=1)),
    ):
        # Both are held at once; only a second call of one of them has to wait.
        waited = anyio.Event()

        async def again() -> None:
            async with limiter.slot("one", limits(concurrency=1)):
                waited.set()

        async with anyio.create_task_group() as group:
            group.start_soon(again)
            await wait_all_tasks_blocked()
            assert not waited.is_set()
            group.cancel_scope.cancel()


async def test_nobody_overtakes_a_call_with_a_smaller_limit():
    calls = Calls(Limiter(FakeClock()))
    async with anyio.create_task_group() as group:
        for number, concurrency in enumerate([4, 4, 1, 4]):
            group.start_soon(calls.call, number, concurrency)
        await wait_all_tasks_blocked()
        assert calls.running == [0, 1]
        for number in (0, 1):
            calls.ends[number].set()
            await wait_all_tasks_blocked()
        assert calls.running == [2, 3]
        for number in (2, 3):
            calls.ends[number].set()


async def test_a_failed_call_gives_its_place_back():
    limiter = Limiter(FakeClock())
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            async with limiter.slot("pay", limits(concurrency=1)):
                raise ValueError("no")


async def test_one_that_gave_up_waiting_takes_no_place():
    calls = Calls(Limiter(FakeClock()))
    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, 0, 1)
        await wait_all_tasks_blocked()
        with anyio.move_on_after(0.001) as scope:
            await calls.call(1, 1)
        assert scope.cancelled_caught
        group.start_soon(calls.call, 2, 1)
        await wait_all_tasks_blocked()
        calls.ends[0].set()
        await wait_all_tasks_blocked()
        assert calls.running == [2]
        calls.ends[2].set()


async def test_one_cancelled_as_its_turn_comes_passes_it_on():
    calls = Calls(Limiter(FakeClock()))
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await calls.call(1, 1)

    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, 0, 1)
        await wait_all_tasks_blocked()
        group.start_soon(cancelled)
        await wait_all_tasks_blocked()
        group.start_soon(calls.call, 2, 1)
        await wait_all_tasks_blocked()
        # In one step of the loop: the place is handed to the second, which is then cancelled.
        calls.ends[0].set()
        for _ in range(2):
            await checkpoint()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert calls.running == [2]
        calls.ends[2].set()


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_every_place_is_free_again_in_the_end(plan: list[tuple[int, bool]], random: object):
    async def main() -> None:
        calls = Calls(Limiter(FakeClock()))
        scopes = [anyio.CancelScope() for _ in plan]

        async def one(number: int) -> None:
            with scopes[number]:
                await calls.call(number, plan[number][0])

        async with anyio.create_task_group() as group:
            for number in range(len(plan)):
                group.start_soon(one, number)
                await checkpoint()
            order = list(range(len(plan)))
            random.shuffle(order)  # type: ignore[attr-defined]
            for number in order:
                if plan[number][1]:
                    scopes[number].cancel()
                calls.ends[number].set()
                for _ in range(number % 3):
                    await checkpoint()
        assert calls.most <= max(concurrency for concurrency, _ in plan)
        with anyio.fail_after(5):
            async with calls.limiter.slot("pay", limits(concurrency=1)):
                pass

    anyio.run(main)


# -- how often ----------------------------------------------------------------------------------------


async def once(limiter: Limiter, rate: int | None, name: str = "pay") -> None:
    async with limiter.slot(name, CapabilityLimits(rate_per_min=rate)):
        pass


async def test_rate_per_min_is_enforced():
    clock = FakeClock()
    limiter = Limiter(clock)
    await once(limiter, 2)
    clock.advance(10_000)
    await once(limiter, 2)
    with pytest.raises(RateLimited) as caught:
        await once(limiter, 2)
    assert (caught.value.code, caught.value.wait_ms) == ("RATE_LIMITED", 50_000)
    assert caught.value.hint == "Call it again in 50 s."
    await once(limiter, 2, "other")
    clock.advance(49_999)
    with pytest.raises(RateLimited):
        await once(limiter, 2)
    clock.advance(1)
    await once(limiter, 2)
    with pytest.raises(RateLimited):
        await once(limiter, 2)


async def test_a_refused_call_does_not_count():
    clock = FakeClock()
    limiter = Limiter(clock)
    await once(limiter, 1)
    for _ in range(5):
        clock.advance(11_000)
        with pytest.raises(RateLimited):
            await once(limiter, 1)
    clock.advance(5_000)
    await once(limiter, 1)


async def test_calls_without_a_rate_count_for_a_later_one_with():
    limiter = Limiter(FakeClock())
    for _ in range(3):
        await once(limiter, None)
    with pytest.raises(RateLimited):
        await once(limiter, 3)
    await once(limiter, 4)


async def test_the_wait_is_until_enough_calls_are_old():
    clock = FakeClock()
    limiter = Limiter(clock)
    for _ in range(4):
        await once(limiter, None)
        clock.advance(1_000)
    with pytest.raises(RateLimited) as caught:
        await once(limiter, 2)
    assert caught.value.wait_ms == 58_000
    clock.advance(caught.value.wait_ms)
    await once(limiter, 2)


async def test_the_window_holds_across_a_restart():
    clock = FakeClock()
    calls = [clock() - 70_000, clock() - 30_000, clock() - 20_000]
    limiter = Limiter(clock)
    limiter.seed("pay", calls)
    limiter.seed("pay", calls)
    await once(limiter, 3)
    limiter.seed("pay", [*calls, clock() + 1])
    with pytest.raises(RateLimited) as caught:
        await once(limiter, 3)
    assert caught.value.wait_ms == 30_000
    clock.advance(60_000)
    for _ in range(3):
        await once(limiter, 3)


async def test_a_clock_set_back_makes_nobody_wait_longer_than_a_minute():
    clock = FakeClock()
    limiter = Limiter(clock)
    await once(limiter, 1)
    clock.advance(-3_600_000)
    with pytest.raises(RateLimited) as caught:
        await once(limiter, 1)
    assert caught.value.wait_ms == 60_000


@given(st.integers(1, 5), st.lists(st.integers(0, 40_000), max_size=30))
def test_no_minute_has_more_calls_than_allowed(rate: int, steps: list[int]):
    async def main() -> None:
        clock = FakeClock()
        limiter = Limiter(clock)
        passed: list[int] = []
        for step in steps:
            clock.advance(step)
            try:
                await once(limiter, rate)
            except RateLimited as why:
                recent = [time for time in passed if time > clock() - 60_000]
                assert len(recent) == rate
                assert why.wait_ms == recent[0] + 60_000 - clock()  # noqa: PT017
            else:
                passed.append(clock())
        for start in passed:
            assert sum(start <= time < start + 60_000 for time in passed) <= rate

    anyio.run(main)
