"""What a call leaves behind: nothing that only the garbage collector can take away."""

import gc
from collections.abc import Sequence
from time import monotonic
from typing import Any

import pytest
from tests.gate.support import ASKS_NOT, World

import holdfast
from holdfast.contracts import Draft, Language, SessionLimits, Setup
from holdfast.contracts.payload import RunStarted, SessionCreated
from holdfast.gate.crossing import Crossing, Desk, Outcome
from holdfast.journal.pen import Pen


def beginning() -> Sequence[Draft]:
    created = SessionCreated(language=Language.PYTHON, limits=SessionLimits(), engine="none")
    started = RunStarted(kind="code", language=Language.PYTHON)
    return [Draft.of(created), Draft.of(started, run_id="run_1")]


@pytest.mark.parametrize("terms", [{"side_effect": "read"}, {"idempotent": True}, {}])
async def test_a_call_leaves_no_cycles(terms: dict[str, Any]):
    tool = World().asend(**terms)
    async with holdfast.open("memory:", config=ASKS_NOT, capabilities=[tool]) as hf:
        services = hf.shell.services
        pen, toolbox = Pen(hf.journal, "s", "test"), services.tools(Setup())
        desk = Desk("s", "run_1", pen, toolbox, hf.policy, begin=beginning)
        await pen.take(monotonic() + 1)

        async def call(number: int) -> None:
            end = await services.gate.perform(Crossing(desk, number, "asend", ("ann",), {}))
            assert isinstance(end, Outcome)
            assert end.value == "sent to ann"

        await call(0)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await call(1)
            gc.collect()
            left = [type(one).__name__ for one in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left == []
