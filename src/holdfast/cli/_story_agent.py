"""The scene of the demo in which an agent works: a model by script writes the code, everything else is real."""

from __future__ import annotations

import json
import time
from typing import Any

from holdfast.cli._demo_tools import PROGRAM
from holdfast.cli._stage import PATIENCE, Stage, kill
from holdfast.cli._story_effects import TOOLS, book_of, quoted

SESSION = "agent"
MODEL = f"scripted:{TOOLS}:shopper"


def thinks(stage: Stage) -> None:
    """A model writes code that waits for a person; its process is killed while the model is asked again."""
    ask = ("ask", "Buy some jam.", "--session-id", SESSION)
    parked = stage.holdfast(*ask, "--model", MODEL, "--capabilities", TOOLS)
    stage.say(quoted(PROGRAM), "dim")
    stage.say(f"     {parked.said['status']}: {parked.said['error']['message']}", "dim")
    stage.check("the model wrote code; at `pay` it waits, and no process is left", parked.code == 3)
    run_id, approval = parked.said["id"], parked.said["approvals"][0]
    victim = stage.start("approvals", "approve", approval, HOLDFAST_DEMO_STALL="1")
    try:
        asked = _wait(stage, run_id)
        stage.check("approved: the jam is paid, and the model is asked again", asked)
    finally:
        kill(victim)
    stage.say(f"   $ kill -9 {victim.pid}", "cyan")
    stage.check(f"process {victim.pid} is dead", victim.returncode == -9)
    done = stage.holdfast("runs", "resume", run_id)
    stage.say(f"     {json.dumps(done.said['output'])}", "dim")
    stage.check("another process asks once more, and the run is over", done.code == 0)
    stage.check("it tells of the payment", "3 paid for jam" in done.said["output"])
    book = book_of(stage)
    once = book.get("price jam") == 1 and book.get("pay jam") == 1
    stage.check("neither the code nor the payment was done again", once)


def _wait(stage: Stage, run_id: str) -> bool:
    """Whether the second question to the model came to be on record."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        said: list[dict[str, Any]] = [
            one.payload for one in stage.records(SESSION, "effect_intent") if one.run_id == run_id
        ]
        if any(one.get("turn") == 2 for one in said):
            return True
        time.sleep(0.02)
    return False
