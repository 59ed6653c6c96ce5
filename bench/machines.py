"""Steps of the turn machine, against a bare loop that dispatches on a dict."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from bench._report import Report
from holdfast.machines import turn_inputs as said
from holdfast.machines.registry import MACHINES

ROUNDS = 9
LAPS = 2000


def laps(turn: Any, inputs: list[Any]) -> float:
    """Steps a second through one whole turn, again and again."""
    apply, start = turn.apply, turn.initial
    started = perf_counter()
    for _ in range(LAPS):
        state = start
        for input_ in inputs:
            state, _ = apply(state, input_)
    return LAPS * len(inputs) / (perf_counter() - started)


def bare(names: list[str]) -> float:
    """The floor: look up a function by name and state, and call it."""

    def step(state: str) -> str:
        return state

    table: dict[tuple[str, str], Callable[[str], str]] = {("s", name): step for name in names}
    started = perf_counter()
    for _ in range(LAPS):
        state = "s"
        for name in names:
            state = table[state, name](state)
    return LAPS * len(names) / (perf_counter() - started)


def turn() -> list[Any]:
    """One turn: a model call with two tools behind a barrier, then the answer."""
    run, ops = "run_1", frozenset({"op_1", "op_2"})
    return [
        said.StartConversation(run, said.ContentShape.CONVERSATION),
        said.PrimitiveApplied(run),
        said.LlmReturnedToolCalls(run, 2),
        said.RegisterPendingOps(run, ops, ops),
        said.OpsBarrierSatisfied(run, ops),
        said.ToolCallsResolved(run),
        said.BoundaryContinue(run),
        said.LlmReturnedTerminal(run),
        said.BoundaryComplete(run),
    ]


def measure(report: Report) -> None:
    """Every figure of this module."""
    inputs = turn()
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(ROUNDS):
        floor.append(bare([type(one).__name__ for one in inputs]))
        ours.append(laps(MACHINES["turn"], inputs))
    beside = f"{median(floor) / median(ours):.1f} x a bare dict-dispatch loop's time"
    report.at_least(
        "turn machine, thousand steps a second", median(ours) / 1000, 200, "k/s", beside
    )
