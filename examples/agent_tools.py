"""Direct tools: the model calls each function itself, several at once; answers come back in the order of its calls."""

import anyio

from holdfast import Agent, capability
from holdfast.testing import ScriptedModel, call, say, together


@capability(side_effect="read")
async def weather(city: str) -> dict[str, str | int]:
    """The weather in a city."""
    await anyio.sleep(0.03 if city == "Oslo" else 0.01)
    return {"city": city, "celsius": {"Oslo": -3, "Rome": 17}[city]}


model = ScriptedModel(
    [
        together(call("weather", city="Oslo"), call("weather", city="Rome"), call("moon", phase=1)),
        say("Rome is 20 degrees warmer than Oslo."),
    ]
)

agent = Agent(model, capabilities=[weather], code_mode=False, url="memory:", config={})
run = agent.run_sync("Compare Oslo and Rome.")
for message in run.messages:
    if message.role == "tool":
        print(message.name, "error" if message.is_error else "ok", message.text.splitlines()[0])
print(run.status, run.output)
