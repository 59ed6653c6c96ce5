"""Bounded exhaustive search over a machine: what its tests can't reach by luck."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.machines.kernel import (
    GuardRejected,
    HasPhase,
    InvariantBroken,
    Machine,
    NoTransition,
    Row,
)

MAX_STATES = 200_000
"""More than this is not a bounded machine."""


@dataclass
class Exploration:
    """What a search found. `problems` is empty for a sound machine."""

    machine: str
    states: int = 0
    """Reachable states within the bounds."""
    steps: int = 0
    """Accepted inputs tried."""
    refused: int = 0
    """Refused inputs tried."""
    problems: list[str] = field(default_factory=list[str])
    """Each with the shortest input sequence that shows it."""
    arrows: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
    """From phase and to phase → the inputs that lead there, as they were seen to."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def explore(machine: Machine[Any]) -> Exploration:
    """Visit every reachable state; check invariants, overlaps, dead rows, unreachable phases and traps."""
    search = _Search(machine)
    search.run()
    search.look_back()
    return search.found


class _Search:
    """One breadth-first search; paths are therefore shortest."""

    def __init__(self, machine: Machine[Any]) -> None:
        self.machine = machine
        self.found = Exploration(machine.name)
        self._came: dict[Any, tuple[Any, object] | None] = {machine.initial: None}
        self._next: dict[Any, set[Any]] = {}
        self._fired: set[int] = set()
        self._overlaps: set[type] = set()
        self._edge: set[Any] = set()

    def run(self) -> None:
        queue: deque[Any] = deque([self.machine.initial])
        while queue:
            state = queue.popleft()
            targets = self._next.setdefault(state, set())
            if not self.machine.bounded(state):
                self._edge.add(state)
                continue
            for input_ in self.machine.alphabet(state):
                new = self._step(state, input_)
                if new is None:
                    continue
                targets.add(new)
                if new not in self._came:
                    self._came[new] = (state, input_)
                    queue.append(new)
            if len(self._came) > MAX_STATES:
                self.found.problems.append(f"more than {MAX_STATES} states: bound its counters")
                return
        self.found.states = len(self._came)

    def _step(self, state: Any, input_: object) -> HasPhase | None:
        enabled = self.machine.enabled(state, input_)
        if len(enabled) > 1 and type(input_) not in self.machine.ordered:
            self._overlap(state, input_, enabled)
        try:
            new, _ = self.machine.apply(state, input_)
        except (NoTransition, GuardRejected):
            self.found.refused += 1
            return None
        except InvariantBroken as why:
            self.found.problems.append(f"{why.message} After: {self._path(state)} {_show(input_)}")
            return None
        self._fired.add(id(enabled[0]))
        self.found.steps += 1
        seen = self.found.arrows.setdefault((state.phase.value, new.phase.value), [])
        if type(input_).__name__ not in seen:
            seen.append(type(input_).__name__)
        return new

    def _overlap(self, state: Any, input_: object, enabled: list[Row[Any]]) -> None:
        if type(input_) in self._overlaps:
            return
        self._overlaps.add(type(input_))
        self.found.problems.append(
            f"{len(enabled)} rows of `{type(input_).__name__}` are enabled at once in phase"
            f" `{state.phase}`, and no order is declared. After: {self._path(state)}"
        )

    def look_back(self) -> None:
        """What only shows once everything was visited."""
        for number, one in enumerate(self.machine.rows, 1):
            if id(one) not in self._fired:
                self.found.problems.append(f"row {number} (`{one.input.__name__}`) never fires")
        seen = {state.phase for state in self._came}
        for phase in self.machine.phases:
            if phase not in seen:
                self.found.problems.append(f"phase `{phase}` is never reached")
        self._traps()

    def _traps(self) -> None:
        """Live states from which no end can be reached any more."""
        before: dict[Any, set[Any]] = {}
        for state, targets in self._next.items():
            for target in targets:
                before.setdefault(target, set()).add(state)
        # A state at the edge of the bounds goes on outside them: it is no trap of the machine's.
        safe = {s for s in self._came if s.phase in self.machine.ends} | self._edge
        queue = deque(safe)
        while queue:
            for earlier in before.get(queue.popleft(), ()):
                if earlier not in safe:
                    safe.add(earlier)
                    queue.append(earlier)
        trapped = next((state for state in self._came if state not in safe), None)
        if trapped is not None:
            self.found.problems.append(
                f"no end can be reached from phase `{trapped.phase}`. After: {self._path(trapped)}"
            )

    def _path(self, state: Any) -> str:
        steps: list[str] = []
        came = self._came.get(state)
        while came is not None:
            state, input_ = came
            steps.append(_show(input_))
            came = self._came.get(state)
        return " ".join(reversed(steps)) or "(start)"


def _show(input_: object) -> str:
    return repr(input_)


def walk(
    machine: Machine[Any], choose: Callable[[Sequence[Any]], Any], steps: int
) -> list[tuple[object, bool]]:
    """A random walk of legal and illegal inputs: each, and whether it was accepted."""
    state = machine.initial
    taken: list[tuple[object, bool]] = []
    for _ in range(steps):
        inputs = list(machine.alphabet(state)) if machine.bounded(state) else []
        if not inputs:
            break
        input_ = choose(inputs)
        try:
            state, _ = machine.apply(state, input_)
            taken.append((input_, True))
        except (NoTransition, GuardRejected):
            taken.append((input_, False))
    return taken
