"""Runs that stop at their calls, and go on with the answers."""

from __future__ import annotations

import anyio
import pytest

from holdfast.contracts import CallStatus, ErrorObject, RunStatus, SessionLimits
from holdfast.errors import InternalError
from holdfast.shell.box import AtAwait, AtCall, Gave, Later, Raised, Ran, Wanted
from holdfast.testing._conformance._boxes import (
    ROOMY,
    BoxSuite,
    breach,
    ended,
    finish,
    start,
    wanted,
)
from holdfast.testing._conformance.programs import NAMES

DENIED = ErrorObject(code="PERMISSION_DENIED", message="not you", hint="ask another")


class Stopping(BoxSuite):
    """What every engine promises."""

    async def test_a_run_without_capabilities_ends_at_once(self):
        async with self.box() as box:
            ran = await box.run(self.programs.add, inputs={}, limits=ROOMY, names=NAMES)
            assert ended(ran).value == 2

    async def test_a_run_that_calls_nothing_ends_at_once(self):
        async with self.box() as box:
            assert ended(await start(box, self.programs.add)).value == 2

    async def test_a_run_goes_on_where_it_stood(self):
        async with self.box() as box:
            stop = await start(box, self.programs.loop)
            for i in range(3):
                call = wanted(stop)
                assert (call.id, call.name, call.args) == (i, "ask", (i,))
                stop = await box.resume(Gave(10**i))
            ran = ended(stop)
            assert (ran.value, ran.stdout) == (111, "at 0\nat 1\nat 2\n")
            assert (ran.calls, ran.metrics.external_calls_count) == ((), 3)

    async def test_a_call_says_what_and_where(self):
        async with self.box() as box:
            stop = await start(box, self.programs.named)
            call = wanted(stop)
            assert (call.args, call.kwargs) == (("a",), {"key": "b"})
            assert call.span is not None
            assert call.span.line == 2
            assert ended(await box.resume(Gave({"x": [1, None, "é"]}))).value == {
                "x": [1, None, "é"]
            }

    async def test_calls_at_once_are_answered_in_any_order(self):
        async with self.box() as box:
            stop = await start(box, self.programs.gather)
            for i in range(3):
                assert wanted(stop).id == i
                stop = await box.resume(Later())
            for id, left in ((1, {0, 2}), (2, {0})):
                assert stop == AtAwait(frozenset({*left, id}))
                stop = await box.resume(Gave(f"r{id}"), id=id)
            assert ended(await box.resume(Gave("r0"), id=0)).value == ["r0", "r1", "r2"]

    async def test_one_of_several_may_fail(self):
        async with self.box() as box:
            stop = await start(box, self.programs.some)
            while isinstance(stop, AtCall):
                stop = await box.resume(Later())
            stop = await box.resume(Raised(DENIED), id=1)
            stop = await box.resume(Gave("r2"), id=2)
            ran = ended(await box.resume(Gave("r0"), id=0))
            assert ran.value == ["r0", "failed: not you", "r2"]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    async def test_branches_go_on_in_the_order_of_the_answers(self, order: tuple[int, int]):
        async with self.box() as box:
            stop = await start(box, self.programs.turns)
            while isinstance(stop, AtCall):
                stop = await box.resume(Later())
            names: list[object] = []
            for id in order:
                call = wanted(await box.resume(Gave(None), id=id))
                names.append(call.args[0])
                stop = await box.resume(Gave(None))
            assert names == ["ab"[id] for id in order]
            assert ended(stop).stdout == "".join(f"{name}\n" for name in names)

    async def test_a_failure_can_be_caught(self):
        async with self.box() as box:
            await start(box, self.programs.caught)
            assert ended(await box.resume(Raised(DENIED))).value == "not you"

    async def test_a_failure_that_is_not_caught_ends_the_run(self):
        async with self.box() as box:
            await start(box, self.programs.named)
            ran = await box.resume(Raised(DENIED))
            assert breach(ran) == ("PERMISSION_DENIED", True)
            assert isinstance(ran, Ran)
            assert ran.status is RunStatus.PERMISSION_DENIED
            assert ran.error is not None
            assert (ran.error.message, ran.error.hint) == ("not you", "ask another")
            assert ran.error.span is not None
            assert ran.error.span.line == 2
            assert ended(await start(box, self.programs.add)).value == 2

    async def test_what_the_box_answers_itself_is_on_record(self):
        async with self.box() as box:
            stop = await start(box, self.programs.local)
            assert wanted(stop).id == 1
            ran = ended(await box.resume(Gave("there")))
            assert ran.value == ["here", "there", "here"]
            assert [(number, one.name) for number, one in ran.calls] == [(0, "local"), (2, "local")]
            assert ran.metrics.external_calls_count == 3

    async def test_arguments_that_are_not_json_do_not_get_out(self):
        async with self.box() as box:
            stop = await start(box, self.programs.unfit)
            call = wanted(stop)
            assert (call.id, call.args) == (1, (2,))
            ran = ended(await box.resume(Gave("ok")))
            assert ran.value == "ok"
            assert [(number, one.name, one.status) for number, one in ran.calls] == [
                (0, "ask", CallStatus.ERROR)
            ]

    async def test_an_unknown_name_is_an_error_with_a_hint(self):
        async with self.box() as box:
            ran = await start(box, self.programs.unknown)
            assert breach(ran) == ("RUNTIME_ERROR", True)
            assert isinstance(ran, Ran)
            assert ran.error is not None
            assert "`ask`" in (ran.error.hint or "")

    async def test_the_same_answers_give_the_same_calls(self):
        async with self.boxes() as boxes:
            seen: list[Wanted] = []

            def give(call: Wanted) -> int:
                seen.append(call)
                return call.id

            for _ in range(2):
                box = await boxes.open(ROOMY)
                for code in (self.programs.turns, self.programs.loop, self.programs.local):
                    await finish(box, await start(box, code), give)
                await box.close()
            assert len(seen) == 16
            assert seen[:8] == seen[8:]

    # -- limits over the whole run --------------------------------------------------------------------

    async def test_cpu_ms_counts_computing_only(self):
        limits = SessionLimits(cpu_ms=500, wall_ms=60_000)
        async with self.box(limits) as box:
            await start(box, self.programs.named, limits)
            await anyio.sleep(0.6)
            assert ended(await box.resume(Gave(1))).value == 1
            await start(box, self.programs.spin, limits)
            await anyio.sleep(0.6)
            ran = await box.resume(Gave(1))
            assert breach(ran) == ("TIMEOUT_CPU", False)
            assert isinstance(ran, Ran)
            assert ran.metrics.duration_ms >= 500

    async def test_cpu_ms_adds_up_over_all_steps(self):
        limits = SessionLimits(cpu_ms=300, wall_ms=60_000, max_external_calls=100_000)
        async with self.box(limits) as box:
            ran = await finish(box, await start(box, self.programs.work, limits))
            assert breach(ran) == ("TIMEOUT_CPU", False)
            assert ran.metrics.external_calls_count > 1

    async def test_wall_ms_is_what_the_caller_says_is_left(self):
        async with self.box() as box:
            await start(box, self.programs.spin)
            assert breach(await box.resume(Gave(1), wall_ms=50)) == ("TIMEOUT_WALL", False)

    async def test_max_external_calls_counts_every_call(self):
        limits = ROOMY.model_copy(update={"max_external_calls": 5})
        async with self.box(limits) as box:
            ran = await finish(box, await start(box, self.programs.ever, limits))
            assert breach(ran) == ("EXTERNAL_CALLS_EXCEEDED", False)
            assert ran.metrics.external_calls_count == 5

    async def test_max_stdout_bytes_spans_the_run(self):
        limits = ROOMY.model_copy(
            update={"max_stdout_bytes": 150_000, "max_external_calls": 10_000}
        )
        async with self.box(limits) as box:
            ran = await finish(box, await start(box, self.programs.flood, limits))
            assert breach(ran) == ("STDOUT_EXCEEDED", False)
            assert len(ran.stdout) == 150_000

    async def test_memory_mb_spans_the_run(self):
        limits = ROOMY.model_copy(update={"memory_mb": 32, "max_external_calls": 10_000})
        async with self.box(limits) as box:
            ran = await finish(box, await start(box, self.programs.hoard, limits))
            assert breach(ran) == ("MEMORY_EXCEEDED", False)

    async def test_max_stack_depth_holds_after_a_call(self):
        limits = ROOMY.model_copy(update={"max_stack_depth": 100})
        async with self.box(limits) as box:
            ran = await finish(box, await start(box, self.programs.deep, limits))
            assert breach(ran)[0] == "STACK_OVERFLOW"

    # -- ends -----------------------------------------------------------------------------------------

    async def test_a_standing_run_can_be_stopped(self):
        async with self.box() as box:
            await start(box, self.programs.loop)
            error = ErrorObject(code="CANCELLED", message="enough")
            ran = await box.stop(error)
            assert (ran.status, ran.error, ran.state_kept) == (RunStatus.CANCELLED, error, False)
            assert ran.stdout == "at 0\n"
            with pytest.raises(InternalError):
                await start(box, self.programs.add)

    async def test_a_cancelled_answer_kills_the_box(self):
        async with self.box() as box:
            await start(box, self.programs.spin)
            with anyio.move_on_after(0.1) as scope:
                await box.resume(Gave(1))
            assert scope.cancelled_caught
            for use in (start(box, self.programs.add), box.resume(Gave(1)), box.dump()):
                with pytest.raises(InternalError):
                    await use

    async def test_one_box_does_not_harm_another(self):
        async with self.boxes() as boxes:
            one, two = await boxes.open(ROOMY), await boxes.open(ROOMY)
            await start(one, self.programs.loop)
            await start(two, self.programs.spin)
            assert breach(await two.resume(Gave(1), wall_ms=50))[0] == "TIMEOUT_WALL"
            await two.close()
            assert (await finish(one, await one.resume(Gave(1)))).value == 3
            await one.close()

    # -- misuse ---------------------------------------------------------------------------------------

    async def test_answers_that_do_not_fit_are_refused_and_change_nothing(self):
        async with self.box() as box:
            for use in (box.resume(Gave(1)), box.stop(DENIED)):
                with pytest.raises(InternalError):
                    await use
            with pytest.raises(InternalError):
                box.progress()
            await start(box, self.programs.loop)
            for use in (
                box.resume(Later()),
                box.resume(Gave(1), id=7),
                start(box, self.programs.add),
            ):
                with pytest.raises(InternalError):
                    await use
            assert (await finish(box, await box.resume(Gave(1)))).value == 3
            stop = await start(box, self.programs.gather)
            with pytest.raises(InternalError):
                await box.resume(Gave(1))
            while isinstance(stop, AtCall):
                stop = await box.resume(Later())
            for answer, id in ((Gave(1), None), (Gave(1), 7), (Later(), 0)):
                with pytest.raises(InternalError):
                    await box.resume(answer, id=id)
            for id in range(2):
                await box.resume(Gave(id), id=id)
            assert ended(await box.resume(Gave(2), id=2)).value == [0, 1, 2]

    async def test_a_closed_box_is_of_no_use(self):
        async with self.box() as box:
            await start(box, self.programs.loop)
            await box.close()
            for use in (start(box, self.programs.add), box.resume(Gave(1)), box.stop(DENIED)):
                with pytest.raises(InternalError):
                    await use
