"""Many durable sessions at once in one process: a thousand, ten turns each, a model that takes ten milliseconds.

The floor is tasks that hand two rows a turn to one thread, which commits all it finds. The peers store nothing here,
which is the faster way for them, but for langgraph's durable variant, which is shown as well.
"""

from __future__ import annotations

from bench._report import Report
from bench.campaign import Campaign, Program, Rounds

FLOOR, OURS = Program("bare", "durable"), Program("holdfast", "durable")
MEMORY = Program("holdfast", "memory")
PEERS = (
    Program("langgraph", "graph"),
    Program("pydantic_ai"),
    Program("openai_agents"),
    Program("langgraph", "graph-async"),
)
TURNS = 10
ROUNDS = 5


def measure(report: Report, campaign: Campaign) -> None:
    """Every figure of this module."""
    programs = (FLOOR, OURS, MEMORY)
    rounds = campaign.rounded(
        "crowd", programs, PEERS, rounds=ROUNDS, peer_rounds=1, turns=TURNS, sessions=1000
    )
    floor = described(rounds, FLOOR)
    for peer in PEERS:
        speed = rounds.median(peer, "turns_per_s")
        if speed is not None:
            report.note(f"crowd, {peer}", speed, "turns/s", latency(rounds, peer))
    speed = rounds.median(OURS, "turns_per_s")
    if speed is None:
        base = rounds.median(FLOOR, "turns_per_s")
        if base is not None:
            report.note("crowd: the floor alone", base, "turns/s", latency(rounds, FLOOR))
        return
    report.note("crowd, holdfast", speed, "turns/s", latency(rounds, OURS))
    in_memory = rounds.median(MEMORY, "turns_per_s")
    if in_memory is not None:
        report.note("crowd, holdfast in memory", in_memory, "turns/s", latency(rounds, MEMORY))
    share = rounds.ratio("turns_per_s", OURS, FLOOR)
    if share is not None:
        report.at_least("crowd, turns a second against the floor", share, 0.2, "x", floor)
    wait = rounds.ratio("p99_ms", OURS, FLOOR)
    if wait is not None:
        report.at_most("crowd, p99 of a turn against the floor's", wait, 10, "x", floor)
    best = rounds.best("turns_per_s", PEERS, least=False)
    if best is not None:
        ahead = speed / (rounds.median(best, "turns_per_s") or speed)
        report.at_least("crowd, turns a second against the best peer", ahead, 10, "x", str(best))


def described(rounds: Rounds, program: Program) -> str:
    """Speed and latency, for the detail column."""
    speed = rounds.median(program, "turns_per_s")
    return f"{program} {speed:.0f} turns/s, {latency(rounds, program)}" if speed else ""


def latency(rounds: Rounds, program: Program) -> str:
    """The latency of a turn and of a whole session, and what a session holds in memory."""
    half, most = rounds.median(program, "p50_ms"), rounds.median(program, "p99_ms")
    whole = rounds.median(program, "session_p99_ms")
    held = rounds.median(program, "kb_per_session")
    return f"p50 {half:.0f} ms, p99 {most:.0f} ms, of a session {whole:.0f} ms, {held:.0f} KB each"
