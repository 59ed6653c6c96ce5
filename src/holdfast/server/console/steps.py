"""What a run consists of, for people: steps that lie side by side in lanes, and where they stood at any moment.

What a step was at a moment is in its marks (seq → status), so a page can be scrubbed to any record without asking again.
Bodies stay behind their digests: a step names them, and whoever shows it fetches them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from holdfast.contracts import Record
from holdfast.journal.log import READABLE
from holdfast.server.console.words import touches

Lane = Literal["model", "code", "effect", "hook", "approval", "wait"]
LANES: tuple[Lane, ...] = ("model", "code", "effect", "hook", "approval", "wait")
"""From top to bottom."""

OPEN = frozenset({"open", "waiting", "in_doubt", "running"})
"""Statuses of what is not over."""


class Mark(NamedTuple):
    """From this record on, a step has this status."""

    seq: int
    time: int
    status: str


class Part(NamedTuple):
    """A body that belongs to a step: its role, and where it is. Without a digest it may not be shown."""

    role: str
    digest: str | None
    size: int
    seq: int
    """The record that refers to it."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that took part of the run's time, or happened at a moment of it."""

    key: str
    """Names it among all: the effect, the approval, the run, or the record."""
    lane: Lane
    kind: str
    """What kind of thing it is, for people."""
    name: str
    run_id: str
    start: int
    """Unix milliseconds."""
    end: int | None
    """The same; `None` while it is not over."""
    marks: tuple[Mark, ...]
    ordinal: int | None = None
    line: int | None = None
    """Of the code; `None` where nobody said."""
    turn: int | None = None
    cost_micros: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    summary: str = ""
    rules: tuple[str, ...] = ()
    """The policy rules that decided."""
    approval_id: str | None = None
    grant_id: str | None = None
    subject: str | None = None
    """What it is about: the effect of an approval, or of a hook's verdict."""
    attempts: int = 1
    error: Mapping[str, Any] | None = None
    decision: Mapping[str, Any] | None = None
    """A person's answer, with who gave it and how they came in."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else there is to say, as label and value."""
    parts: tuple[Part, ...] = ()

    @property
    def seq(self) -> int:
        """The first record about it."""
        return self.marks[0].seq

    @property
    def status(self) -> str:
        """Where it stands now."""
        return self.marks[-1].status

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.status not in OPEN

    @property
    def moment(self) -> bool:
        """Whether it is a point in time, and was never open."""
        return len(self.marks) == 1 and self.over

    def at(self, seq: int) -> str | None:
        """Its status when this was the newest record; `None` before it began."""
        found = None
        for mark in self.marks:
            if mark.seq > seq:
                break
            found = mark.status
        return found

    @property
    def last_seq(self) -> int:
        """The newest record about it."""
        return self.marks[-1].seq


class Program(NamedTuple):
    """Code that ran: the run's own, or one that an agent wrote."""

    run_id: str
    digest: str | None
    language: str
    seq: int
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run."""

    run_id: str
    steps: tuple[Step, ...]
    """By the record they began with."""
    programs: tuple[Program, ...]
    seqs: tuple[int, ...]
    """Every record of the run, in order: where the replay can stop."""
    times: tuple[int, ...]
    """When each was written."""
    start: int
    end: int
    """Unix milliseconds; of a run that is under way, when it was looked at."""
    prompt: Part | None = None
    agent: Part | None = None
    cut: bool = False
    """Whether there are more records than are shown."""

    def step(self, key: str) -> Step | None:
        """A step by its name."""
        return next((one for one in self.steps if one.key == key), None)

    def hooks(self, key: str) -> list[Step]:
        """What hooks said about an effect."""
        return [one for one in self.steps if one.lane == "hook" and one.subject == key]

    def asked(self, key: str) -> list[Step]:
        """What people were asked about an effect."""
        return [one for one in self.steps if one.lane == "approval" and one.subject == key]


class Moment(NamedTuple):
    """The run as it was when one record was the newest."""

    seq: int
    time: int
    done: int
    """Steps that were over."""
    open: tuple[Step, ...]
    """Those under way, waiting, or in doubt."""
    ahead: int
    """Steps that had not begun."""
    cost_micros: int
    tokens: int
    program: str | None
    """The run whose code was the newest."""


def moment(view: Timeline, at: int) -> Moment:
    """The state of a run at a record."""
    done = ahead = cost = tokens = time = 0
    opened: list[Step] = []
    for step in view.steps:
        status = step.at(at)
        time = max([time, *(mark.time for mark in step.marks if mark.seq <= at)])
        if status is None:
            ahead += 1
        elif status in OPEN:
            opened.append(step)
        else:
            done += 1
            cost += step.cost_micros
            tokens += step.input_tokens + step.output_tokens
    programs = [one.run_id for one in view.programs if one.seq <= at]
    return Moment(
        at, time or view.start, done, tuple(opened), ahead, cost, tokens,
        programs[-1] if programs else None,
    )  # fmt: skip


def parts_of(record: Record) -> tuple[Part, ...]:
    """The bodies that a record refers to."""
    return tuple(
        Part(
            one.role or "content", one.digest if one.privacy in READABLE else None, one.size,
            record.seq,
        )
        for one in record.content
    )  # fmt: skip


_SHOWN = {
    "risk": "risk",
    "requested_by": "on behalf of",
    "idempotency_key": "idempotency key",
    "beside": "on behalf of the call",
}


def facts_of(said: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a payload says besides, as label and value."""
    found = [(label, str(said[name])) for name, label in _SHOWN.items() if said.get(name)]
    if said.get("side_effect"):
        found.insert(0, ("effect", touches(str(said["side_effect"]))))
    if said.get("idempotent"):
        found.append(("safe to repeat", "yes"))
    return tuple(found)


# `Any`: part of a payload, which may be of a newer version.
def number(value: Any) -> int:
    """A number of a payload; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def spans(steps: Sequence[Step], end: int) -> list[tuple[int, int]]:
    """From when to when each took; what is not over, until `end`."""
    return [(one.start, max(one.start, end if one.end is None else one.end)) for one in steps]
