"""See what code would do before it does it, approve that as a whole, and hold the run to it."""

import anyio

import holdfast
from holdfast import capability

STOCK = {"tea": 3, "coffee": 40, "milk": 0}

CODE = """
for item in ['tea', 'coffee', 'milk']:
    have = stock(item)
    if have < 10:
        order(item, 50 - have)
"""


@capability(side_effect="read")
def stock(item: str) -> int:
    """How many there are."""
    return STOCK[item]


@capability(side_effect="external_system")
def order(item: str, count: int) -> str:
    """Order some."""
    STOCK[item] += count
    return f"order-{item}"


async def main() -> None:
    """Plan, approve, run; then once more under the same plan, which is refused."""
    async with holdfast.open("memory:", {}, capabilities=[stock, order]) as hf:
        tried = await hf.shell.run(CODE, session="shop", dry_run=True)
        for effect in tried.plan:
            print(f"would {effect.name} {effect.arguments}: {effect.verdict} by {effect.rule}")
        print(f"nothing has happened: {STOCK}")

        assert tried.plan_id is not None
        await hf.approvals.decide_plan(tried.plan_id, "approved", actor="max")
        done = await hf.shell.run(CODE, session="shop", plan=tried.plan_id)
        print(f"{done.status.value}: {STOCK}")

        again = await hf.shell.run(CODE, session="shop", plan=tried.plan_id)
        assert again.error is not None
        print(again.error.message)


anyio.run(main)
