"""What a turn leaves behind: nothing that only the garbage collector can take away."""

import gc

from tests.gate.support import ASKS_NOT, World

import holdfast
from holdfast.models.script import call
from holdfast.testing import ScriptedModel


async def test_a_turn_leaves_no_cycles():
    lines = [call("asend", to="ann"), call("asend", to="bob"), "done"]
    agent = holdfast.Agent(ScriptedModel(lines), capabilities=[World().asend()], code_mode=False)
    async with holdfast.open("memory:", config=ASKS_NOT) as hf:
        await agent.run("go", session="warm", runtime=hf)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            run = await agent.run("go", session="s", runtime=hf)
            gc.collect()
            left = [type(one).__name__ for one in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert run.output == "done"
        assert left == []
