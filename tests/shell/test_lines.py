"""A call is on record with the line of the code that it was made at."""

from typing import Any

import holdfast
from holdfast import Runtime, capability

CODE = """look(1)
for i in range(2):
    look(i)

def again():
    return look(5)

again()
x = await later(
    7,
)
send(1)
"""


@capability(side_effect="read")
def look(i: int) -> int:
    """Look something up."""
    return i


@capability(side_effect="read")
async def later(i: int) -> int:
    """Look something up, awaited."""
    return i


@capability(side_effect="external_system", approval="manual")
def send(i: int) -> int:
    """Wait for a person."""
    return i


async def said(hf: Runtime, kind: str) -> list[dict[str, Any]]:
    return [one.payload async for one in hf.journal.read("s") if one.kind == kind]


async def test_calls_and_what_people_are_asked_name_their_line():
    async with holdfast.open("memory:", config={}, capabilities=[look, later, send]) as hf:
        parked = await hf.shell.run(CODE, session="s")
        assert parked.status == "waiting_for_approval", parked.error
        calls = [one for one in await said(hf, "effect_intent") if "ordinal" in one]
        assert [one["line"] for one in calls] == [1, 3, 3, 6, 9]
        assert [one["line"] for one in await said(hf, "approval_requested")] == [12]


async def test_code_of_an_earlier_run_has_no_line_in_this_one():
    async with holdfast.open("memory:", config={}, capabilities=[look]) as hf:
        await hf.shell.run("\n\ndef again():\n    return look(5)", session="s")
        done = await hf.shell.run("again()", session="s")
        assert done.result == 5
        found = [one.get("line") for one in await said(hf, "effect_intent")]
        assert len(found) == 1
        assert found[0] is None
