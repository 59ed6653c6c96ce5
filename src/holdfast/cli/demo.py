"""`holdfast demo`: what holdfast promises, shown with real processes in a temporary home."""

from __future__ import annotations

from holdfast.cli import _output

PROVEN = (
    "Code an agent wrote runs in a box without files, network, clock or environment.",
    "Its variables and functions live in the journal, not in a process.",
    "A loop is stopped, a process is killed: the session goes on from what is on record.",
    "A call that needs a person waits in no process; once answered, the code goes on in the same iteration.",
    "A call nobody knows the end of is named, and done again only if a person says so.",
    "An agent is its record: it writes code, waits, is killed while it thinks, and goes on in another process.",
    "Nothing was done twice: no payment, no shipment, no question, by the shop's own book.",
    "Whatever ran is on record; a changed byte is found, an erased body leaves the proof intact.",
)


def demo(as_json: _output.JsonFlag = None) -> int:
    """See what holdfast promises, proven on this machine.

    Offline, in a temporary home, in well under a minute. Every step checks itself; exits with 1 when one
    does not hold.
    """
    import tempfile
    from pathlib import Path

    from holdfast.cli._stage import Stage
    from holdfast.cli._story import SCENES

    quiet = _output.as_json(as_json)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        stage = Stage(Path(folder), quiet=quiet)
        stage.say("holdfast: code in a box, on an append-only journal", "bold")
        stage.say("Each $ below is a process of its own, in a temporary home.", "dim")
        for title, scene in SCENES:
            stage.play(title, scene)
    scenes = stage.scenes
    ok = all(scene.ok for scene in scenes)
    seconds = round(sum(scene.seconds for scene in scenes), 1)
    if quiet:
        _output.print_json({"ok": ok, "seconds": seconds, "steps": stage.as_json()})
        return int(not ok)
    stage.say("")
    if ok:
        checks = sum(len(scene.checks) for scene in scenes)
        stage.say(f"Proven just now, by {checks} checks in {seconds} s:", "bold green")
        for line in PROVEN:
            stage.say(f"  • {line}")
        stage.say(
            "Nothing of it is left on this machine. Go on with: holdfast run -e '6 * 7'", "dim"
        )
    else:
        wrong = ", ".join(scene.title for scene in scenes if not scene.ok)
        stage.say(f"NOT PROVEN: {wrong}. `holdfast doctor` may tell why.", "bold red")
    return int(not ok)
