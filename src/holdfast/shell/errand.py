"""One call of a run, as whoever drives the run sees it, and the line about it in the run's result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.contracts import CallStatus, ExternalCallRecord, SideEffect
from holdfast.errors import HoldfastError
from holdfast.gate.crossing import Doubt, Held, Mood, Outcome, call_record
from holdfast.gate.past import Past, Pasts
from holdfast.shell.box import Progress, Ran


@dataclass(slots=True)
class Errand:
    """One call of the run, under way or done."""

    id: int
    name: str
    mood: Mood = "working"
    order: tuple[int, int] | None = None
    """Its place among the results, once that is fixed: those of earlier processes come first."""
    end: Outcome | Doubt | Held | None = None

    @property
    def stuck(self) -> bool:
        """Whether only somebody from outside can help it on."""
        return isinstance(self.end, Doubt | Held) or (self.end is None and self.mood == "waiting")

    @property
    def working(self) -> bool:
        """Whether its time counts as the run's."""
        return self.end is None and self.mood == "working"


@dataclass(frozen=True, slots=True)
class Parked:
    """Where a run stands that can't go on."""

    waiting: tuple[Errand, ...] = ()
    """Calls that wait for a person."""
    doubts: tuple[Errand, ...] = ()
    """Calls of which nobody knows the end."""
    hook: HoldfastError | None = None
    """Why it can't go on where a hook failed; resumed, that hook is asked again."""
    progress: Progress | None = None
    """What it has used and said, where its code stands at no call."""


def before_end(ran: Ran, hook: HoldfastError) -> Parked:
    """Where a run stands whose code has ended, and which a hook that failed does not let end."""
    said = Progress(stdout=ran.stdout, stderr=ran.stderr, own=ran.calls)
    return Parked(hook=hook, progress=said)


def lines_of(
    own: Iterable[tuple[int, ExternalCallRecord]],
    pasts: Pasts,
    errands: Mapping[int, Errand],
) -> tuple[ExternalCallRecord, ...]:
    """The line about every call of a run, in the order the code made them; `own` are those the box answered."""
    lines = dict(own)
    for ordinal, past in pasts.calls.items():
        lines[ordinal] = record_of(past)
    for ordinal, errand in errands.items():
        if isinstance(errand.end, Outcome) and not errand.end.pretended:
            lines[ordinal] = errand.end.record
    return tuple(lines[ordinal] for ordinal in sorted(lines))


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
