"""The tools and agents of the stage: what asks a person, what reads, what can be left in doubt, and what takes its time.

A file in the working directory lets things go on: `go-NAME` ends what waits for it.
"""

import anyio

from holdfast import Agent, Context, capability
from holdfast.contracts.approval import Asks
from holdfast.contracts.model import ModelUsage
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.testing import ScriptedModel, after, say, together, write_code

SIZES = {
    "type": "object",
    "properties": {"size": {"type": "integer", "title": "Size", "minimum": 1, "maximum": 50}},
    "required": ["size"],
}


@capability(side_effect="read")
def stock(article: str) -> dict[str, int]:
    """How many of an article there are."""
    return {"left": len(article) * 3, "ordered": 2}


@capability(side_effect="read")
def hand(text: str) -> str:
    """Give back what was handed in."""
    return text


@capability(side_effect="read")
def stumble(text: str) -> str:
    """Fail, with these words."""
    raise ValueError(text)


@capability(side_effect="write")
def pay(to: str, cents: int, note: str = "") -> str:
    """Pay somebody."""
    return f"paid {cents} to {to}"


@capability(side_effect="external_system", risk="critical")
def wipe(host: str) -> str:
    """Delete everything on a machine."""
    return f"wiped {host}"


@capability(side_effect="write", timeout_ms=150)
async def ship(article: str) -> str:
    """Ship an article. The carrier may not answer in time: then nobody knows."""
    while not await anyio.Path(f"go-{article}").exists():  # noqa: ASYNC110 - a file sets no event
        await anyio.sleep(0.01)
    return f"{article} is on its way"


@capability(side_effect="read", timeout_ms=60_000)
async def wait_for(name: str) -> str:
    """Come back once somebody lets it go on."""
    while not await anyio.Path(f"go-{name}").exists():  # noqa: ASYNC110 - a file sets no event
        await anyio.sleep(0.01)
    return name


@capability(side_effect="read")
def measure(article: str, context: Context) -> str:
    """Measure something; it has to ask which size."""
    said = context.answers.get("size")
    if said is None:
        raise NeedsAnswer(Question(Asks.INPUT, f"Which size of {article}?", SIZES, key="size"))
    return f"{article}: {said.content}"


def _used(sent: int, got: int, cost: int) -> ModelUsage:
    return ModelUsage(input_tokens=sent, output_tokens=got, cost_micros=cost)


helper = Agent(
    ScriptedModel(
        [
            together(
                after(140, say("I look what is there first.", thinking="Count before you order.")),
                write_code("left = stock('lamp')\nprint(left)\nleft['left']"),
                usage=_used(1_840, 96, 6_960),
            ),
            together(
                after(90, say("Twelve are left. I pay the supplier for more.")),
                write_code("pay('lamp-works', 12_900, note='40 lamps, invoice 4711')"),
                usage=_used(2_310, 141, 9_045),
            ),
            after(60, say("40 lamps are ordered and paid: 129.00.", usage=_used(2_702, 58, 8_976))),
        ],
        id="anthropic:claude-sonnet-4-5",
    ),
    name="helper",
    instructions="You look after the stock of a shop.",
)

scout = Agent(
    ScriptedModel(
        [
            together(
                after(60, say("I count three shelves.")),
                write_code(
                    "counts = {}\n"
                    "for name in ('lamp', 'table', 'chair'):\n"
                    "    counts[name] = stock(name)['left']\n"
                    "print(counts)\n"
                    "sum(counts.values())"
                ),
                usage=_used(920, 74, 610),
            ),
            after(25, say("42 pieces on three shelves.", usage=_used(1_120, 31, 520))),
        ],
        id="openai:gpt-5-mini",
    ),
    name="scout",
    instructions="You count.",
)
