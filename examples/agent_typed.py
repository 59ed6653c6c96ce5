"""Typed output: what an agent gives is an object of your own type, and a bad answer is repaired or refused."""

from dataclasses import dataclass

from holdfast import Agent
from holdfast.testing import ScriptedModel, say


@dataclass
class Invoice:
    """What is on the paper."""

    customer: str
    cents: int
    paid: bool = False


model = ScriptedModel(
    [
        say("The customer is Ann, and she owes 12 dollars."),  # words: they do not fit
        say('{"customer": "Ann", "cents": "twelve"}'),  # it is told what is wrong
        say('```json\n{"customer": "Ann", "cents": 1200,}\n```'),  # a fence and a comma are mended
    ]
)

agent = Agent(model, output=Invoice, url="memory:", config={})
run = agent.run_sync("Read this: 'Ann, 12 USD, open'.")
print(run.status, run.output)
print(f"{run.text!r} in {run.result.turns} turns")
