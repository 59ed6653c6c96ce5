"""What runs, models and tools cost and how long they take: counted from records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from holdfast.contracts import Record
from holdfast.server.console.steps import number
from holdfast.server.console.timeline import ENDS
from holdfast.server.sight import readable


@dataclass(slots=True)
class Stat:
    """One model, or one tool."""

    name: str
    calls: int = 0
    failed: int = 0
    """Those that did not complete."""
    durations: list[int] = field(default_factory=list[int])
    """Milliseconds."""
    cost_micros: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def quantile(self, part: float) -> int:
        """The duration that so many calls stay within; 0 without any."""
        return quantile(self.durations, part)

    @property
    def total_ms(self) -> int:
        """All of them, added up."""
        return sum(self.durations)


@dataclass(slots=True)
class RunFigure:
    """One run that somebody asked for; what its code did is part of it."""

    id: str
    session_id: str
    kind: str
    started_at: int
    status: str = "running"
    took_ms: int | None = None
    """Without waiting for people; `None` while it is not over."""
    waited_ms: int = 0
    cost_micros: int = 0
    tokens: int = 0
    calls: int = 0
    parked_at: int | None = None


@dataclass(slots=True)
class Figures:
    """All of it."""

    runs: dict[str, RunFigure] = field(default_factory=dict[str, RunFigure])
    """In the order they began."""
    models: dict[str, Stat] = field(default_factory=dict[str, Stat])
    tools: dict[str, Stat] = field(default_factory=dict[str, Stat])
    records: int = 0
    since: int = 0
    """When the oldest record was written."""
    _parents: dict[str, str] = field(default_factory=dict[str, str])
    _open: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def add(self, record: Record) -> None:
        """Count a record; oldest first."""
        self.records += 1
        self.since = self.since or record.time
        said: Any = record.payload if readable(record) else {}
        match record.kind:
            case "run_started":
                self._begin(record, said, record.time)
            case "run_completed" | "run_failed" | "run_cancelled":
                self._end(record, said)
            case "run_parked" | "run_resumed":
                self._stand(record)
            case "effect_intent":
                kind, name = str(said.get("kind", "")), str(said.get("name", ""))
                self._open[str(record.effect_id)] = (kind, name)
            case "effect_result":
                self._result(record, said)
            case _:
                pass

    @property
    def cost_micros(self) -> int:
        """Of all runs."""
        return sum(one.cost_micros for one in self.runs.values())

    @property
    def tokens(self) -> int:
        """Of all runs."""
        return sum(one.tokens for one in self.runs.values())

    @property
    def ended(self) -> list[RunFigure]:
        """Runs that are over."""
        return [one for one in self.runs.values() if one.took_ms is not None]

    def _run(self, run_id: str | None) -> RunFigure | None:
        return self.runs.get(self._parents.get(str(run_id), str(run_id)))

    def _begin(self, record: Record, said: Any, time: int) -> None:
        parent = said.get("parent")
        if isinstance(parent, str):
            self._parents[str(record.run_id)] = parent
            return
        run = RunFigure(str(record.run_id), record.stream, str(said.get("kind", "code")), time)
        self.runs[run.id] = run

    def _end(self, record: Record, said: Any) -> None:
        start = said.get("start")
        if start is not None:
            took = number(said.get("metrics", {}).get("duration_ms"))
            self._begin(record, start, record.time - took)
        run = self.runs.get(str(record.run_id))
        if run is None:
            return  # it began before all that was read, or is code of an agent's run
        self._go_on(run, record.time)
        run.status = ENDS[record.kind]
        run.took_ms = max(0, record.time - run.started_at - run.waited_ms)

    def _stand(self, record: Record) -> None:
        run = self.runs.get(str(record.run_id))
        if run is None:
            return
        if record.kind == "run_parked":
            run.parked_at, run.status = record.time, "waiting"
        else:
            self._go_on(run, record.time)
            run.status = "running"

    def _go_on(self, run: RunFigure, time: int) -> None:
        if run.parked_at is not None:
            run.waited_ms += time - run.parked_at
            run.parked_at = None

    def _result(self, record: Record, said: Any) -> None:
        kind, name = self._open.pop(str(record.effect_id), ("", ""))
        if kind not in ("provider_request", "tool_execution"):
            return
        model = kind == "provider_request"
        stats = self.models if model else self.tools
        name = name.removeprefix("model:")
        stat = stats.setdefault(name, Stat(name))
        usage: Any = said.get("usage") or {}
        spent: Any = said.get("spent") or {}
        cost = number(usage.get("cost_micros", spent.get("cost_micros")))
        tokens_in, tokens_out = (
            number(usage.get("input_tokens")),
            number(usage.get("output_tokens")),
        )
        stat.calls += 1
        stat.failed += said.get("terminal_status") != "completed"
        stat.cost_micros += cost
        stat.input_tokens += tokens_in
        stat.output_tokens += tokens_out
        if isinstance(said.get("duration_ms"), int):
            stat.durations.append(said["duration_ms"])
        run = self._run(record.run_id)
        if run is not None:
            run.cost_micros += cost
            run.tokens += tokens_in + tokens_out
            run.calls += not model


def quantile(values: Sequence[int], part: float) -> int:
    """The value that this part of all stays within: one of them, not one in between."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
