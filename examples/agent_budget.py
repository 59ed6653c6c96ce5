"""A budget that holds: it is set aside before each call, so ten of fifty calls at once are made, and never eleven."""

import anyio

import holdfast
from holdfast import Agent, capability
from holdfast.testing import ScriptedModel, call, say, together

made: list[int] = []


@capability(side_effect="network")
async def look_up(number: int) -> int:
    """Ask a service that costs something."""
    await anyio.sleep(0.01)
    made.append(number)
    return number * number


model = ScriptedModel(
    [together(*[call("look_up", number=n) for n in range(50)]), say("That is all I got.")]
)
RULES = {"policy": {"rules": [{"id": "look", "tool": "look_up", "then": "allow"}]}}


async def main() -> None:
    """Let it try fifty at once."""
    agent = Agent(model, capabilities=[look_up], code_mode=False, budget={"calls": 10})
    async with holdfast.open("memory:", RULES) as hf:
        run = await agent.run("Look up fifty numbers.", runtime=hf)
        refused = [m for m in run.messages if m.role == "tool" and m.is_error]
        print(run.status, "made", len(made), "refused", len(refused))
        print(refused[0].text.splitlines()[0])


anyio.run(main)
