"""One call of a run, as whoever drives the run sees it, and the line about it in the run's result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.contracts import CallStatus, ExternalCallRecord, SideEffect
from holdfast.gate.crossing import Doubt, Mood, Outcome, call_record
from holdfast.gate.executor import Toolbox
from holdfast.gate.past import Past, Pasts


@dataclass(slots=True)
class Errand:
    """One call of the run, under way or done."""

    id: int
    name: str
    mood: Mood = "working"
    order: tuple[int, int] | None = None
    """Its place among the results, once that is fixed: those of earlier processes come first."""
    end: Outcome | Doubt | None = None

    @property
    def stuck(self) -> bool:
        """Whether only somebody from outside can help it on."""
        return isinstance(self.end, Doubt) or (self.end is None and self.mood == "waiting")

    @property
    def working(self) -> bool:
        """Whether its time counts as the run's."""
        return self.end is None and self.mood == "working"


@dataclass(frozen=True, slots=True)
class Parked:
    """Where a run stands that can't go on."""

    waiting: tuple[Errand, ...]
    """Calls that wait for a person."""
    doubts: tuple[Errand, ...]
    """Calls of which nobody knows the end."""


def lines_of(
    own: Iterable[tuple[int, ExternalCallRecord]],
    pasts: Pasts,
    errands: Mapping[int, Errand],
    toolbox: Toolbox,
) -> tuple[ExternalCallRecord, ...]:
    """The line about every call of a run, in the order the code made them; `own` are those the box answered."""
    lines = dict(own)
    for ordinal, past in pasts.calls.items():
        lines[ordinal] = record_of(past)
    for ordinal, errand in errands.items():
        if isinstance(errand.end, Outcome):
            lines[ordinal] = errand.end.record
        elif ordinal not in lines and errand.stuck:  # any other was not made
            lines[ordinal] = _pending(errand, toolbox)
    return tuple(lines[ordinal] for ordinal in sorted(lines))


def _pending(errand: Errand, toolbox: Toolbox) -> ExternalCallRecord:
    executor = toolbox.get(errand.name)
    effect = executor.capability.side_effect if executor else SideEffect.NONE
    status = CallStatus.APPROVAL_PENDING if errand.end is None else CallStatus.TIMEOUT
    return ExternalCallRecord(
        name=errand.name, side_effect=effect, duration_ms=0, status=status, request_digest=""
    )


def record_of(past: Past) -> ExternalCallRecord:
    """The line about a call that is on record."""
    result, intent = past.result, past.intent
    if intent is None:
        effect = past.approval.side_effect if past.approval else SideEffect.NONE
    else:
        effect = intent.side_effect
    if result is None or not past.answered:
        asks = intent is None or past.question is not None
        waiting = CallStatus.APPROVAL_PENDING if asks else CallStatus.TIMEOUT
        return ExternalCallRecord(
            name=past.name,
            side_effect=effect,
            duration_ms=0,
            status=waiting,
            request_digest=past.request,
        )
    return call_record(
        past.name,
        effect,
        past.request,
        took=(result.duration_ms or 0) / 1000,
        response=result.content_refs[0] if result.content_refs else None,
        error=result.error,
    )
