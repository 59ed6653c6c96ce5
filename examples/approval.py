"""Code that needs a person's word: it stands in the middle of its loop until somebody has said yes or no."""

import anyio

import holdfast
from holdfast import capability
from holdfast.contracts import Json

CODE = """
sent = []
for name, cents in people.items():
    print(f'billing {name}')
    try:
        sent.append(send_invoice(name, cents))
    except PermissionError as why:
        print(why)
result = sent
"""


@capability(side_effect="external_system", approval="auto: cents <= 1000")
def send_invoice(customer: str, cents: int) -> str:
    """Send an invoice; what is small passes, anything else is asked about."""
    return f"{customer} owes {cents / 100:.2f}"


async def main() -> None:
    """Bill three people, two of whom somebody has to look at."""
    async with holdfast.open("memory:", {}, capabilities=[send_invoice]) as hf:
        inputs: dict[str, Json] = {"people": {"ann": 900, "bob": 125000, "eve": 99900}}
        run = await hf.shell.run(CODE, session="billing", inputs=inputs)
        for decision in ("approved", "denied"):
            assert run.approval_id is not None
            asked = await hf.approvals.show(run.approval_id)
            print(f"{decision}: {asked.tool} {asked.arguments}")
            await hf.approvals.decide(asked.id, decision, actor="max")
            run = await hf.runs.resume(str(run.run_id))
        print(run.stdout, end="")
        print(run.result)


anyio.run(main)
