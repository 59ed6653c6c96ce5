"""Going on with a long session in another process: from opening the file to the first question to the model.

The same conversation for all: a thousand turns, two hundred bytes of text in each result. Each process has run another
small session before, in another file, so that imports and first times are not counted. Then once more with the file open.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench._report import Report
from bench.campaign import Campaign, Program, Round, Rounds, scratch

LONG, SHORT = 1000, 100
ROUNDS = 7

BARE, OURS, PEER = (
    Program("bare", "load"),
    Program("holdfast", "load"),
    Program("langgraph", "load"),
)
OTHERS = (Program("openai_agents", "load"),)

FIGURES = (
    ("open_to_model_ms", "with opening"),
    ("call_to_model_ms", "once open"),
    ("again_to_model_ms", "again"),
)


def measure(report: Report, campaign: Campaign) -> None:
    """Every figure of this module."""
    programs = (BARE, OURS, *((PEER, *OTHERS) if campaign.peers else ()))
    with scratch() as folder:
        rounds = resumed(campaign, programs, LONG, folder)
        short = resumed(campaign, (OURS,), SHORT, folder)
    for metric, where in FIGURES:
        compare(report, rounds, metric, f"resume of {LONG} turns, {where}")
    ours, less = (one.median(OURS, "open_to_model_ms") for one in (rounds, short))
    if ours and less:
        detail = f"{less:.1f} ms, {ours:.1f} ms"
        report.note(f"resume of {LONG} turns against {SHORT}", ours / less, "x", detail)


def resumed(campaign: Campaign, programs: tuple[Program, ...], turns: int, folder: Path) -> Rounds:
    """Grow one session for each program, then go on with it in every round."""
    grown = [one for one in programs if _grown(campaign, one, turns, folder)]
    done: list[Round] = []
    for _ in range(campaign.rounds or ROUNDS):
        got = {one: campaign.run(one, "resume", folder, turns=turns) for one in grown}
        done.append({one: figures for one, figures in got.items() if figures})
    return Rounds(done)


def _grown(campaign: Campaign, program: Program, turns: int, folder: Path) -> bool:
    return campaign.succeeds(replace(program, variant="grow"), "resume", folder, turns=turns)


def compare(report: Report, rounds: Rounds, metric: str, what: str) -> None:
    """Ours beside langgraph's; the others without a limit."""
    floor = rounds.median(BARE, metric)
    beside = f", reading all rows by hand {floor:.1f} ms" if floor else ""
    ours = rounds.median(OURS, metric)
    for peer in (PEER, *OTHERS):
        theirs = rounds.median(peer, metric)
        if theirs is None:
            continue
        ratio = rounds.ratio(metric, OURS, peer)
        if ratio is None:
            report.note(f"{what}: {peer.peer}", theirs, "ms", beside.removeprefix(", "))
            continue
        detail = f"{peer.peer} {theirs:.1f} ms, holdfast {ours:.1f} ms{beside}"
        if peer is PEER:
            report.at_most(f"{what}, against {peer.peer}", ratio, 1, "x", detail)
        else:
            report.note(f"{what}, against {peer.peer}", ratio, "x", detail)
