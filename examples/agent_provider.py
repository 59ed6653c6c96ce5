"""The same agent on a real model: it needs nothing but a key, and says so when there is none."""

import os

from holdfast import Agent, HoldfastError, capability

MODEL = os.environ.get("HOLDFAST_MODEL", "openai:gpt-5-mini")


@capability(side_effect="read")
def stock(item: str) -> int:
    """How many of an item are left."""
    return {"tea": 12, "milk": 0}.get(item, 3)


agent = Agent(
    MODEL,
    instructions="You look after a small shop.",
    capabilities=[stock],
    budget={"cost_micros": 50_000},  # five cents, and not one more
    url="memory:",
    config={},
)

try:
    run = agent.run_sync("What must be bought? We want at least five each of tea, milk and bread.")
    print(run.status, run.output or run.error)
    print(
        f"{run.usage.input_tokens} tokens in, {run.usage.output_tokens} out, {run.usage.cost_micros} µ$"
    )
except HoldfastError as why:
    print(why)
