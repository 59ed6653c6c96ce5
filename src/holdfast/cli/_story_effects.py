"""The scenes of the demo in which code calls out: into a shop whose book is a real SQLite file."""

from __future__ import annotations

import json
import time
from typing import Any

from holdfast.cli._stage import PATIENCE, Stage, kill

TOOLS = "holdfast.cli._demo_tools"
SESSION = "orders"

BUY = """\
receipts = []
for item in ["tea", "milk", "cake"]:
    coins = price(item)
    receipts.append(pay(item, coins))
receipts"""

POLICY = """\
[[policy.rules]]
id = "shipping-is-fine"
tool = "ship"
then = "allow"
"""


def waits(stage: Stage) -> None:
    """A call waits for a person while no process is there."""
    stage.say(quoted(BUY), "dim")
    daemon = stage.start("daemon", "--listen", "stdio", talk=True)
    try:
        params = {"session_id": SESSION, "code": BUY, "setup": {"capabilities": [TOOLS]}}
        stage.say("   > session.run …", "cyan")
        parked = _ask(daemon, "session.run", params)
        stage.say(f"     {parked['status']}: {parked['error']['message']}", "dim")
    finally:
        kill(daemon)
    stage.check("`pay` was not called; the run waits", parked["status"] == "waiting_for_approval")
    stage.say(f"   $ kill -9 {daemon.pid}", "cyan")
    stage.check(f"process {daemon.pid} is dead", daemon.returncode == -9)
    inbox = stage.holdfast("approvals", "list").said["items"]
    first = inbox[0]
    stage.say(
        f"     {first['tool']}({json.dumps(first['arguments'])}), risk {first['risk']}", "dim"
    )
    stage.check("the question is still there", len(inbox) == 1 and first["tool"] == "pay")
    once = stage.holdfast("approvals", "approve", first["id"])
    again = once.said["run"]["approval_id"]
    stage.check("approved in another process: tea is paid, the loop stands at milk", once.code == 3)
    book = book_of(stage)
    right = book == {"pay tea": 1, "price milk": 1, "price tea": 1}
    stage.check("code before the call did not run again: the price of tea was asked once", right)
    last = stage.holdfast("approvals", "approve", again, "--for-session")
    result: Any = last.said["run"]["result"]
    stage.say(f"     {result}", "dim")
    stage.check("for the session: milk and cake are paid, the run is over", last.code == 0)
    stage.check("it has the receipts of all three", len(result) == 3)


def in_doubt(stage: Stage) -> None:
    """A write without a key is killed between doing and knowing."""
    (stage.folder / "holdfast.toml").write_text(POLICY)
    stage.say("   holdfast.toml: " + POLICY.strip().replace("\n", " · "), "dim")
    run = ("run", "--session-id", SESSION, "--timeout", "60000", "-e", 'ship("cake")')
    victim = stage.start(*run, HOLDFAST_DEMO_STALL="1")
    try:
        deadline = time.monotonic() + PATIENCE
        while "ship cake" not in book_of(stage) and time.monotonic() < deadline:
            time.sleep(0.02)
        stage.check("the carrier has the cake; its answer is not there yet", victim.poll() is None)
    finally:
        kill(victim)
    stage.say(f"   $ kill -9 {victim.pid}", "cyan")
    run_id = stage.rows("runs", session_id=SESSION, ended_at=None)[0]["id"]
    stands = stage.holdfast("runs", "resume", run_id)
    error = stands.said["error"]
    stage.say(f"     {error['code']}: {error['message']}", "dim")
    stage.check("it is not done again: `ship` is named as in doubt", stands.code == 4)
    stage.say("   (a person looks at the carrier's book: the cake is there)", "dim")
    effect = stands.said["in_doubt"][0]
    happened = '"cake is on its way"'
    stage.holdfast("runs", "resolve", run_id, effect, "--happened", happened)
    done = stage.holdfast("runs", "resume", run_id)
    told = done.said["result"]
    stage.say(f"     ok: {told}", "dim")
    stage.check(
        "told so, the run goes on to its end", done.code == 0 and told == json.loads(happened)
    )


def never_twice(stage: Stage) -> None:
    """What the shop's own book says."""
    book = book_of(stage)
    for what, count in book.items():
        stage.say(f"     {what:<12} {count} ×", "dim")
    paid = [what for what in book if what.startswith("pay ")]
    stage.check("four things were paid for, each of them once", len(paid) == 4)
    once = all(count == 1 for count in book.values())
    killed = "though three processes were killed in the middle of it"
    stage.check(f"nothing at all was done twice, {killed}", once and "ship cake" in book)


def _ask(daemon: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a daemon answers. `Any`: a scene that misreads it fails its check."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    daemon.stdin.write(json.dumps(asked).encode() + b"\n")
    daemon.stdin.flush()
    answer: dict[str, Any] = json.loads(daemon.stdout.readline())["result"]
    return answer


def book_of(stage: Stage) -> dict[str, int]:
    """How often each thing was done, by the shop's own book."""
    from holdfast.cli._demo_tools import entries

    return entries(str(stage.book))


def quoted(code: str) -> str:
    """Code, set off from what is told."""
    return "\n".join(f"     │ {line}" for line in code.splitlines())
