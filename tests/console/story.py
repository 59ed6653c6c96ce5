"""A day at a small shop, for pictures and for looking at every page with something on it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.console.stage import SETTINGS, Stage

SURFACES = """
[surfaces.weather]
reference = "weather"

[surfaces.crm]
command = "no-such-program"
"""
WEATHER = '''
from holdfast import capability


@capability(side_effect="read")
def forecast(city: str, days: int = 1) -> str:
    """What the weather will be."""
    return f"{city}: dry for {days} days"


@capability(side_effect="external_system", idempotent=True)
def subscribe(city: str, address: str) -> str:
    """Send a forecast every morning."""
    return address
'''
STORY = SETTINGS + SURFACES

REPORT = """\
# What is left of each article, and what is to be ordered.
report = {}
for name in ("lamp", "table", "chair", "sofa"):
    found = stock(name)
    report[name] = found["left"]
    if found["left"] < 13:
        print("order more:", name, found)

few = [name for name, left in report.items() if left < 13]
{"report": report, "few": few}
"""
REFUNDS = """\
refunds = [("ann@example.com", 1250), ("bob@example.com", 80), ("eve@example.com", 129900)]

for address, cents in refunds:
    if cents > 100:
        said = pay(address, cents, note="Refund for order 4711, as agreed on the phone.")
        print(said)
"""
SHIPPING = """\
parcels = stock("sofa")
print(parcels["left"], "sofas are left")
told = await ship("sofa-4711")
print(told)
"""
MANY = """\
for number in range(60):
    stock(f"article {number} of the warehouse in the north")
"""
LONGEST = "quarterly-closing-of-the-books-of-the-northern-branch-2026-q4-x2"
"""No session's name may be longer."""
LETTER = "\n".join(
    f"{line}. Whatever was agreed on the phone holds for this order, too." for line in range(1, 61)
)
CONTRACT = f"""\
letter = {LETTER!r}
pay("the-northern-branch-of-the-lamp-works@example.com", 4711, note=letter)
"""


@dataclass(frozen=True)
class Story:
    """Where to look."""

    pages: dict[str, str]
    """Name of a picture → address."""


def tell(stage: Stage) -> Story:
    """Let it happen."""
    for number in range(6):
        stage.run("nightly-report", REPORT + f"# night {number}\n")
    for number in range(3):
        stage.agent("scout", "How much is on the shelves?", f"counting-{number}")
    failed = stage.run("experiments", "total = 12\nrate = 0\n\ntotal / rate")
    stage.run("experiments", "stumble('The price list of today is missing.')")
    ordered = stage.agent("helper", "Order more lamps, we are nearly out.", "lamps")
    stage.decide(stage.view(ordered["run_id"])["pending_approvals"][0], "approved")
    stage.stands(ordered["run_id"], "completed")
    parked = stage.agent("helper", "Order lamps for the second shop, too.", "lamps-two")
    denied = stage.run("bonus", "pay('eve@example.com', 250000, note='Bonus')")
    stage.decide(denied["approval_id"], "denied", reason="Bonuses are paid in December.")
    refunds = stage.run("refunds", REFUNDS)
    stage.decide(refunds["approval_id"], "approved")
    stage.stands(refunds["run_id"], "waiting_for_approval")
    stage.run("cleaning", "wipe('db-replica-2')")
    stage.run("measuring", "measure('curtain')")
    doubtful = stage.run("shipping", SHIPPING)
    stopped = stage.start("endless", "await wait_for('nobody')")
    stage.cancel(stopped)
    many = stage.run("many", MANY)
    long = stage.run(LONGEST, CONTRACT)
    stage.start("import", "rows = stock('import')\nawait wait_for('somebody')")
    approval = stage.view(refunds["run_id"])["pending_approvals"][0]
    seq = stage.get("/v1/journal", run_id=refunds["run_id"], limit=20)["items"][3]["seq"]
    return Story(
        {
            "inbox": "/",
            "approval": f"/inbox/{approval}",
            "decided": "/inbox/decided",
            "decided-one": f"/inbox/{denied['approval_id']}",
            "doubt": f"/doubts/{stage.view(doubtful['run_id'])['in_doubt'][0]}",
            "runs": "/runs",
            "run-code": f"/runs/{refunds['run_id']}",
            "run-agent": f"/runs/{ordered['run_id']}",
            "run-agent-parked": f"/runs/{parked['run_id']}",
            "run-doubt": f"/runs/{doubtful['run_id']}",
            "run-failed": f"/runs/{failed['run_id']}",
            "run-many": f"/runs/{many['run_id']}",
            "run-long": f"/runs/{long['run_id']}",
            "run-new": "/runs/new",
            "sessions": "/sessions",
            "session": "/sessions/nightly-report",
            "charts": "/charts",
            "tools": "/tools",
            "tool": "/tools/pay",
            "journal": "/journal",
            "record": f"/journal/{seq}",
        }
    )
