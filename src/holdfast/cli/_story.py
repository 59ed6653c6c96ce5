"""The scenes of the demo. Each runs real processes and checks what it claims."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from holdfast.cli import _story_effects as effects
from holdfast.cli._stage import PATIENCE, Done, Stage, kill
from holdfast.cli._story_agent import thinks

SESSION = ("--session-id", "shop")

DENIED = (
    ("files", 'open("/etc/passwd").read()'),
    ("the network", 'import socket; socket.create_connection(("example.com", 80))'),
    ("the clock", "import time; time.time()"),
    ("the environment", 'import os; os.environ["HOME"]'),
)


def a_box(stage: Stage) -> None:
    """Code runs, and where."""
    checks = stage.holdfast("doctor", told=False).said["checks"]
    jail = next(check for check in checks if check["name"] == "jail")
    if jail["state"] == "ok":
        stage.say(f"   the jail: {jail['what']}")
    else:
        stage.say(f"   WARNING: {jail['what']}", "bold red")
        stage.say(f"   {jail['fix'] or ''}", "red")
    done = stage.holdfast("run", "-e", "result = sum(range(10))")
    _tell(stage, done.said)
    stage.check("the code ran and gave 45", done.said["result"] == 45 and done.code == 0)


def no_way_out(stage: Stage) -> None:
    """What code can't reach."""
    told = stage.repl(*(code for _, code in DENIED))
    for (what, code), done in zip(DENIED, told, strict=True):
        error = done["error"]
        stage.say(f"   >>> {code}", "cyan")
        stage.say(f"     {error['code']}: {error['message']}", "dim")
        refused = error["code"] in ("PERMISSION_DENIED", "UNSUPPORTED_FEATURE")
        stage.check(f"{what}: refused", refused)


def another_process(stage: Stage) -> None:
    """State outlives the process."""
    code = 'basket = {"tea": 2, "milk": 1}\ndef total(): return sum(basket.values())'
    first = stage.holdfast("run", *SESSION, "-e", code)
    second = stage.holdfast("run", *SESSION, "-e", "total()")
    _tell(stage, second.said)
    pids = f"process {first.pid} is gone, process {second.pid}"
    stage.check(f"{pids} has its variables and functions", _is_three(second))


def endless_loop(stage: Stage) -> None:
    """A runaway is stopped."""
    blocks, limited = ("while True: pass", "total()"), (*SESSION, "--limit", "cpu_ms=500")
    done, after = stage.repl(*blocks, options=limited)
    for block, said in zip(blocks, (done, after), strict=True):
        stage.say(f"   >>> {block}", "cyan")
        _tell(stage, said)
    stage.check("stopped with TIMEOUT_CPU", done["error"]["code"] == "TIMEOUT_CPU")
    stage.check("the session is usable, and as it was before the loop", after["result"] == 3)


def killed(stage: Stage) -> None:
    """A process dies in the middle of a run."""
    code = 'basket["tea"] = 1000\nwhile True: pass'
    patient = ("--limit", "cpu_ms=60000", "--limit", "wall_ms=60000")
    before = len(stage.records("shop", "run_started"))
    victim = stage.start("run", *SESSION, *patient, "-e", code)
    try:
        deadline = time.monotonic() + PATIENCE
        while len(stage.records("shop", "run_started")) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        stage.check("the start of the run is on record, its end is not", victim.poll() is None)
        workers = _descendants(victim.pid)
    finally:
        kill(victim)
    stage.say(f"   $ kill -9 {victim.pid}", "cyan")
    stage.check(f"process {victim.pid} is dead", victim.returncode == -9)
    if workers:
        stage.check("its jailed workers died with it", _gone(workers))
    started = time.monotonic()
    after = stage.holdfast("run", *SESSION, "-e", "total()")
    waited = time.monotonic() - started
    _tell(stage, after.said)
    stage.check("the session goes on from what is on record", _is_three(after))
    stage.say(
        f"   ({waited:.1f} s: a dead process's claim on its session runs out by itself)", "dim"
    )
    last: Any = stage.records("shop", "run_failed")[-1].payload["error"]
    told = last["code"] == "INTERRUPTED"
    stage.check("the run that died is on record as interrupted, not as done", told)


def on_record(stage: Stage) -> None:
    """The journal tells all of it."""
    from holdfast.cli._records import cells

    stage.say("   $ holdfast journal show --session-id orders", "cyan")
    for record in stage.records("orders"):
        seq, _, _, kind, _, what = cells(record)
        stage.say(f"     {seq:>4}  {kind:<18}  {what}"[: stage.width], "dim")
    proof = stage.holdfast("journal", "verify")
    stage.say(f"     {proof.said['records']} records, root {proof.said['root']}", "dim")
    stage.check("every record follows from the one before it", proof.said["ok"] and proof.code == 0)


def one_byte(stage: Stage) -> None:
    """Tampering shows; erasing on purpose does not."""
    from holdfast.cli._tamper import flip_a_byte

    copy = stage.folder / "copy.db"
    stage.holdfast("journal", "backup", str(copy))
    target = stage.records("shop", "run_completed")[-1].seq
    flip_a_byte(copy, target)
    stage.say(
        f"   (one bit of record {target} in the copy is flipped behind holdfast's back)", "dim"
    )
    proof = stage.holdfast("--url", f"sqlite:///{copy}", "journal", "verify")
    bad = proof.said["bad"]
    stage.say(f"     record {bad['seq']} of stream {bad['stream']}: {bad['why']}", "dim")
    stage.check(f"verify names record {target} and fails", bad["seq"] == target and proof.code == 1)
    stage.holdfast("session", "destroy", "shop")
    proof = stage.holdfast("journal", "verify")
    erased = proof.said["erased"]
    stage.check(
        f"the session is destroyed, {erased} bodies are erased, and the original still verifies",
        proof.said["ok"] and proof.code == 0 and erased > 0,
    )


SCENES = (
    ("Code runs in a box", a_box),
    ("The box has no way out", no_way_out),
    ("What it knows outlives the process", another_process),
    ("A loop that never ends, ends", endless_loop),
    ("A process is killed in the middle of a run", killed),
    ("A call waits for a person, and its process is killed", effects.waits),
    ("A process dies in the middle of a call", effects.in_doubt),
    ("An agent is killed in the middle of its work", thinks),
    ("Nothing was done twice", effects.never_twice),
    ("All of it is on record", on_record),
    ("Nobody changes the record unnoticed", one_byte),
)


def _tell(stage: Stage, said: dict[str, Any]) -> None:
    took = f"{said['metrics']['duration_ms']} ms"
    if said["status"] == "ok":
        stage.say(f"     ok: {said['result']} ({took})", "dim")
    else:
        stage.say(f"     {said['error']['code']}: {said['error']['message']} ({took})", "dim")


def _is_three(done: Done) -> bool:
    return done.code == 0 and done.said["result"] == 3


# -- processes, where /proc tells about them ----------------------------------------------------------


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in the second field may hold anything, also spaces and parentheses.
            rest = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[int(entry.parent.name)] = int(rest[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(os.path.exists(f"/proc/{pid}/exe") and _runs(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
