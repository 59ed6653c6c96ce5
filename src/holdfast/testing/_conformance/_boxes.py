"""How the suite for boxes opens one, and answers its calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from holdfast.contracts import Json, SessionLimits
from holdfast.shell.box import AtAwait, AtCall, Box, Boxes, Gave, Later, Ran, Stop, Wanted
from holdfast.testing._conformance.programs import NAMES, OUTSIDE, PYTHON, Programs

ROOMY = SessionLimits(cpu_ms=60_000, wall_ms=120_000)
"""Limits that a program which behaves never meets, however busy the machine."""


class BoxSuite:
    """What a suite for boxes starts from."""

    programs: Programs = PYTHON
    """What to run."""

    @abstractmethod
    def boxes(self) -> Boxes:
        """Boxes that were not entered yet."""
        raise NotImplementedError

    @asynccontextmanager
    async def box(self, limits: SessionLimits = ROOMY) -> AsyncGenerator[Box]:
        """One open box."""
        async with self.boxes() as boxes:
            one = await boxes.open(limits)
            try:
                yield one
            finally:
                await one.close()


async def start(box: Box, code: str, limits: SessionLimits = ROOMY) -> Stop:
    """Run a program of the suite until its first stop."""
    return await box.run(code, inputs={}, limits=limits, names=NAMES, outside=OUTSIDE)


async def finish(box: Box, stop: Stop, give: Callable[[Wanted], Json] = lambda call: 1) -> Ran:
    """Answer whatever it asks, awaited calls from the last to the first, until it ends."""
    awaited: dict[int, Wanted] = {}
    while not isinstance(stop, Ran):
        if isinstance(stop, AtAwait):
            id = max(stop.ids)
            stop = await box.resume(Gave(give(awaited[id])), id=id)
        elif OUTSIDE[stop.call.name]:
            awaited[stop.call.id] = stop.call
            stop = await box.resume(Later())
        else:
            stop = await box.resume(Gave(give(stop.call)))
    return stop


def wanted(stop: Stop) -> Wanted:
    """The call at which it stands."""
    assert isinstance(stop, AtCall), stop
    return stop.call


def ended(stop: Stop) -> Ran:
    """What it gave; it must have ended well."""
    assert isinstance(stop, Ran), stop
    assert stop.error is None, stop.error
    return stop


def breach(stop: Stop) -> tuple[str, bool]:
    """The code of the error it ended with, and whether its state is kept."""
    assert isinstance(stop, Ran), stop
    assert stop.error is not None
    assert stop.value is None
    assert stop.diagnostics[0].code == stop.error.code
    return stop.error.code, stop.state_kept
