"""Many agents at once in one process: each has its own conversation, and none waits for another."""

import anyio
from tests.agent.loop_support import consistent, opened

from holdfast import Agent, capability
from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelRequest
from holdfast.models.script import Line
from holdfast.models.scripted import Scripted
from holdfast.testing import call, fail, say, write_code

MANY = 40


@capability(side_effect="write", idempotent=True)
async def note(text: str) -> str:
    """Note something."""
    await anyio.sleep(0.001)
    return f"noted {text}"


def answer(request: ModelRequest) -> Line:
    """Whose conversation it is, is in its first message, and in nothing else."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    answers = sum(one.role == "assistant" for one in request.messages)
    if answers == 0:
        return call("note", text=first.text)
    last = request.messages[-1]
    return say(f"{first.text}: {last.text}")


async def test_each_has_its_own_conversation() -> None:
    agent = Agent(Scripted(answer, latency_ms=5), capabilities=[note], code_mode=False)
    outputs: dict[int, str] = {}
    async with opened() as (hf, _):
        async with anyio.create_task_group() as group:
            for n in range(MANY):

                async def one(n: int = n) -> None:
                    run = await agent.run(f"task {n}", session=f"s{n}", runtime=hf)
                    outputs[n] = run.output

                group.start_soon(one)
        assert outputs == {n: f"task {n}: noted task {n}" for n in range(MANY)}
        for n in range(MANY):
            await consistent(hf, f"s{n}")


async def test_one_script_fails_for_each_of_them_alike() -> None:
    """Attempts are counted for each conversation, not for the model."""
    script = [fail("MODEL_OVERLOADED"), write_code("1 + 1"), fail("MODEL_OVERLOADED"), say("two")]
    agent = Agent(Scripted(script))
    async with opened() as (hf, naps):
        async with anyio.create_task_group() as group:
            for n in range(8):

                async def one(n: int = n) -> None:
                    run = await agent.run("go", session=f"s{n}", runtime=hf)
                    assert run.output == "two"

                group.start_soon(one)
        assert len(naps.ms) == 16


async def test_runs_on_one_session_take_turns() -> None:
    agent = Agent(Scripted([say(f"answer {n}") for n in range(5)], latency_ms=3))
    async with opened() as (hf, _):
        outputs: list[str] = []
        async with anyio.create_task_group() as group:
            for n in range(5):

                async def one(n: int = n) -> None:
                    outputs.append((await agent.run(f"q{n}", session="s", runtime=hf)).output)

                group.start_soon(one)
        assert sorted(outputs) == [f"answer {n}" for n in range(5)]
        await consistent(hf, "s")


def test_programs_that_are_not_asynchronous() -> None:
    agent = Agent(Scripted([say("hello")]), url="memory:")
    assert agent.run_sync("go").output == "hello"
