"""What one turn of an agent costs: against a loop by hand, against the peers, early and late in a session, and on disk.

A turn is one answer of a model that takes no time, and one call of a tool. Where a turn is durable the floor is the
same loop with two commits by hand: the intent on disk before the tool runs, its result after it. That floor is
measured twice: on a new file, as the peers are, and on one whose log has stopped growing, which is the lower floor.
"""

from __future__ import annotations

from bench._report import Report
from bench.campaign import Campaign, Program, Rounds

BARE, OURS = Program("bare"), Program("holdfast", "effect")
READ = Program("holdfast", "read")
LOOPS = (
    Program("smolagents", "tool"),
    Program("smolagents", "code"),
    Program("langgraph", "graph"),
    Program("langgraph", "agent"),
    Program("pydantic_ai"),
    Program("openai_agents"),
)
TWO, DURABLE = Program("bare", "c2"), Program("holdfast")
KEPT = (
    Program("langgraph", "graph-sync"),
    Program("langgraph", "graph-async"),
    Program("openai_agents"),
    Program("pydantic_ai", "dbos", environment="pydantic_ai_dbos"),
)
MEMORY, SQLITE = Program("holdfast", "memory"), Program("holdfast", "sqlite")

WARM = 20
"""Sessions of fifty turns after which the log of a database no longer grows."""
LONG = 1000


def measure(report: Report, campaign: Campaign) -> None:
    """Every figure of this module."""
    in_memory(report, campaign)
    durable(report, campaign)
    growth(report, campaign)
    disk(report, campaign)


def in_memory(report: Report, campaign: Campaign) -> None:
    """A turn that is not stored."""
    rounds = campaign.rounded("loop", (BARE, OURS, READ), LOOPS)
    floor = rounds.median(BARE, "us_per_turn")
    beside = f"bare loop {floor:.1f} us" if floor else ""
    ours = rounds.median(OURS, "us_per_turn")
    if ours is not None:
        report.at_most("turn in memory", ours, 450, "us", beside)
    read = rounds.median(READ, "us_per_turn")
    if read is not None:
        report.note("turn in memory, the tool only reads", read, "us")
    against(report, rounds, "turn in memory", OURS, LOOPS, limit=1)


def durable(report: Report, campaign: Campaign) -> None:
    """A turn whose effect is on disk before it happens and after it has."""
    rounds = campaign.rounded("durable", (TWO, DURABLE), KEPT, peer_rounds=3, reps=4)
    against_floor(report, rounds, "durable turn, new files")
    against(report, rounds, "durable turn", DURABLE, KEPT, limit=None)
    warm = campaign.rounded("durable", (TWO, DURABLE), warm=WARM, rounds=7, reps=11)
    against_floor(report, warm, "durable turn, logs that no longer grow")
    bytes_ = rounds.median(DURABLE, "disk_bytes_per_turn")
    if bytes_ is not None:
        floor = rounds.median(TWO, "disk_bytes_per_turn")
        beside = f"the floor {floor / 1000:.2f} KB" if floor else ""
        report.at_most("disk for a turn, sessions of 50", bytes_ / 1000, 2, "KB", beside)


def growth(report: Report, campaign: Campaign) -> None:
    """The thousandth turn of a session against its tenth."""
    rounds = campaign.rounded("growth", (TWO, MEMORY, SQLITE), turns=LONG, warm=WARM)
    for program, what in (
        (MEMORY, f"turn {LONG} against turn 10, in memory"),
        (SQLITE, f"turn {LONG} against turn 10, durable"),
    ):
        found = rounds.within(program, "late_us", "early_us")
        if found is not None:
            report.at_most(what, found, 1.1, "x", early_and_late(rounds, program))
    floor = rounds.within(TWO, "late_us", "early_us")
    if floor is not None:
        report.note(f"turn {LONG} against turn 10, floor", floor, "x", early_and_late(rounds, TWO))


def early_and_late(rounds: Rounds, program: Program) -> str:
    """Both times, for the detail column."""
    early, late = rounds.median(program, "early_us"), rounds.median(program, "late_us")
    return f"{early:.0f} us, {late:.0f} us"


def disk(report: Report, campaign: Campaign) -> None:
    """The bytes of a turn in one long session."""
    rounds = campaign.rounded("disk", (DURABLE,), rounds=1, turns=LONG)
    found = rounds.median(DURABLE, "disk_bytes_per_turn")
    if found is not None:
        report.at_most(f"disk for a turn, a session of {LONG}", found / 1000, 2, "KB")


def against_floor(report: Report, rounds: Rounds, what: str) -> None:
    """A durable turn of ours beside two commits by hand."""
    ratio = rounds.ratio("us_per_turn", DURABLE, TWO)
    floor, ours = rounds.median(TWO, "us_per_turn"), rounds.median(DURABLE, "us_per_turn")
    if ratio is not None:
        detail = f"two commits {floor:.0f} us, holdfast {ours:.0f} us"
        report.at_most(what, ratio, 1.5, "x", detail)
    elif floor is not None:
        report.note(f"{what}: the floor alone", floor, "us")


def against(
    report: Report,
    rounds: Rounds,
    what: str,
    ours: Program,
    peers: tuple[Program, ...],
    *,
    limit: float | None,
) -> None:
    """One line for each peer: our time beside its own, or its own alone where ours is not known."""
    for peer in peers:
        theirs = rounds.median(peer, "us_per_turn")
        if theirs is None:
            continue
        ratio = rounds.ratio("us_per_turn", ours, peer)
        stored = rounds.median(peer, "disk_bytes_per_turn")
        detail = f"{peer} {theirs:.0f} us" + (f", {stored / 1000:.1f} KB" if stored else "")
        if ratio is None:
            report.note(f"{what}, {peer}", theirs, "us")
        elif limit is None:
            report.note(f"{what}, against {peer}", ratio, "x", detail)
        else:
            report.at_most(f"{what}, against {peer}", ratio, limit, "x", detail)
