"""Runs that are dumped where they stand, and go on elsewhere."""

from __future__ import annotations

import pytest

from holdfast.contracts import ErrorObject, SessionLimits
from holdfast.errors import CallerError
from holdfast.shell.box import AtAwait, AtCall, Box, Boxes, Gave, Later, Progress, Raised, Stop
from holdfast.testing._conformance._boxes import (
    ROOMY,
    BoxSuite,
    breach,
    ended,
    finish,
    start,
    wanted,
)
from holdfast.testing._conformance.programs import NAMES, OUTSIDE


async def moved(
    boxes: Boxes, box: Box, code: str, limits: SessionLimits = ROOMY
) -> tuple[Box, AtCall | AtAwait]:
    """The standing run of `box`, in another one; the first is closed."""
    state, told = await box.dump(), box.progress().model_dump_json()
    await box.close()
    return await boxes.reopen(
        limits,
        state,
        Progress.model_validate_json(told),
        code=code,
        run_limits=limits,
        names=NAMES,
        outside=OUTSIDE,
        inputs={},
    )


class Parking(BoxSuite):
    """What an engine promises that can be dumped in the middle of a call."""

    async def test_a_run_goes_on_in_another_box(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            stop = await start(box, self.programs.loop)
            for i in range(3):
                box, again = await moved(boxes, box, self.programs.loop)
                assert again == stop
                assert wanted(again).args == (i,)
                stop = await box.resume(Gave(10**i))
            ran = ended(stop)
            assert (ran.value, ran.stdout) == (111, "at 0\nat 1\nat 2\n")
            assert ran.metrics.external_calls_count == 3
            assert ended(await start(box, self.programs.add)).value == 2

    async def test_the_dumped_run_may_go_on_as_well(self):
        async with self.box() as box:
            await start(box, self.programs.loop)
            await box.dump()
            assert (await finish(box, await box.resume(Gave(1)))).value == 3

    async def test_some_answered_before_and_some_after(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            stop = await start(box, self.programs.some)
            while isinstance(stop, AtCall):
                box, _ = await moved(boxes, box, self.programs.some)
                stop = await box.resume(Later())
            stop = await box.resume(Gave("r1"), id=1)
            box, again = await moved(boxes, box, self.programs.some)
            assert again == stop == AtAwait(frozenset({0, 2}))
            error = ErrorObject(code="TOOL_ERROR", message="lost")
            await box.resume(Raised(error), id=2)
            box, _ = await moved(boxes, box, self.programs.some)
            assert ended(await box.resume(Gave("r0"), id=0)).value == ["r0", "r1", "failed: lost"]

    async def test_calls_of_the_box_stay_on_record(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            await start(box, self.programs.local)
            box, _ = await moved(boxes, box, self.programs.local)
            ran = ended(await box.resume(Gave("there")))
            assert [number for number, _ in ran.calls] == [0, 2]
            assert ran.metrics.external_calls_count == 3

    async def test_the_session_goes_on_after_the_run(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            await start(box, self.programs.keep)
            box, _ = await moved(boxes, box, self.programs.keep)
            ended(await box.resume(Gave({"a": 1})))
            box = await boxes.open(ROOMY, await box.dump())
            assert ended(await start(box, self.programs.kept)).value == {"a": 1}

    async def test_an_error_told_before_is_known_after(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            await start(box, self.programs.named)
            box, _ = await moved(boxes, box, self.programs.named)
            error = ErrorObject(code="PERMISSION_DENIED", message="not you")
            assert breach(await box.resume(Raised(error))) == ("PERMISSION_DENIED", True)

    # -- limits ---------------------------------------------------------------------------------------

    async def test_computing_before_counts_after(self):
        limits = SessionLimits(cpu_ms=300, wall_ms=60_000, max_external_calls=100_000)
        async with self.boxes() as boxes:
            box = await boxes.open(limits)
            stop: Stop = await start(box, self.programs.work, limits)
            used = 0.0
            while isinstance(stop, AtCall):
                box, _ = await moved(boxes, box, self.programs.work, limits)
                assert used <= box.progress().cpu_ms
                used = box.progress().cpu_ms
                stop = await box.resume(Gave(1))
            assert breach(stop) == ("TIMEOUT_CPU", False)

    async def test_calls_before_count_after(self):
        limits = ROOMY.model_copy(update={"max_external_calls": 3})
        async with self.boxes() as boxes:
            box = await boxes.open(limits)
            await start(box, self.programs.ever, limits)
            await box.resume(Gave(1))
            box, _ = await moved(boxes, box, self.programs.ever, limits)
            ran = await finish(box, await box.resume(Gave(1)))
            assert breach(ran) == ("EXTERNAL_CALLS_EXCEEDED", False)
            assert ran.metrics.external_calls_count == 3

    async def test_output_before_counts_after(self):
        limits = ROOMY.model_copy(
            update={"max_stdout_bytes": 150_000, "max_external_calls": 10_000}
        )
        async with self.boxes() as boxes:
            box = await boxes.open(limits)
            await start(box, self.programs.flood, limits)
            await box.resume(Gave(1))
            box, _ = await moved(boxes, box, self.programs.flood, limits)
            assert len(box.progress().stdout) == 150_000
            ran = await finish(box, await box.resume(Gave(1)))
            assert breach(ran) == ("STDOUT_EXCEEDED", False)
            assert [one.code for one in ran.diagnostics] == ["STDOUT_EXCEEDED", "OUTPUT_TRUNCATED"]

    async def test_memory_and_stack_limits_hold_after(self):
        limits = ROOMY.model_copy(
            update={"memory_mb": 32, "max_stack_depth": 100, "max_external_calls": 10_000}
        )
        async with self.boxes() as boxes:
            for code, error in (
                (self.programs.hoard, "MEMORY_EXCEEDED"),
                (self.programs.deep, "STACK_OVERFLOW"),
            ):
                box = await boxes.open(limits)
                await start(box, code, limits)
                box, _ = await moved(boxes, box, code, limits)
                ran = await finish(box, await box.resume(Gave(1)))
                assert breach(ran)[0] == error

    # -- states ---------------------------------------------------------------------------------------

    async def test_states_are_not_mixed_up(self):
        async with self.boxes() as boxes:
            box = await boxes.open(ROOMY)
            between = await box.dump()
            await start(box, self.programs.loop)
            standing, progress = await box.dump(), box.progress()
            with pytest.raises(CallerError) as refused:
                await boxes.open(ROOMY, standing)
            assert refused.value.code == "SNAPSHOT_CORRUPT"
            for state in (between, b"", b"nonsense", standing[: len(standing) // 2]):
                with pytest.raises(CallerError) as refused:
                    await boxes.reopen(
                        ROOMY,
                        state,
                        progress,
                        code=self.programs.loop,
                        run_limits=ROOMY,
                        names=NAMES,
                        outside=OUTSIDE,
                        inputs={},
                    )
                assert refused.value.code == "SNAPSHOT_CORRUPT"
            assert (await finish(box, await box.resume(Gave(1)))).value == 3
