"""Say something to an agent while it works: it hears you at its next step, without starting again."""

import anyio

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.model import ModelRequest
from holdfast.models.script import Step
from holdfast.testing import ScriptedModel, call, say


def think(request: ModelRequest) -> Step:
    """A model that counts pages until somebody tells it which one matters."""
    heard = [m.text for m in request.messages if m.role == "user"]
    if len(heard) > 1:
        return say(f"I stop there, because you said: {heard[-1]}")
    return call("read_page", number=len(request.messages) // 2 + 1)


async def main() -> None:
    """Start it, and talk to it from the side."""
    pages: list[int] = []

    @capability(side_effect="read")
    async def read_page(number: int) -> str:
        """Read one page."""
        pages.append(number)
        if number == 3:
            await hf.agents.say("book", "Page three is all I need.")
        return f"page {number}"

    agent = Agent(ScriptedModel(think), capabilities=[read_page], code_mode=False)
    async with holdfast.open("memory:", {}) as hf:
        run = await agent.run("Read the book.", session="book", runtime=hf)
        print(pages, run.output)


anyio.run(main)
