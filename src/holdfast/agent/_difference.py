"""A run held against its replay: the first thing that differs, and what is not on record."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from holdfast.agent._beats import Beat, Kind
from holdfast.agent._replay_gate import Halt
from holdfast.agent._tape import Tape
from holdfast.contracts._base import Told, optional
from holdfast.contracts.agent import AgentResult
from holdfast.gate.policy import Policy
from holdfast.models.base import Model

_SHOWN = 2000
"""Characters of each side of a difference that are shown."""


class Changes(TypedDict, total=False):
    """What may be another in a replay; what is not given is as it was."""

    model: str | Model | None
    """Asked in place of the recorded answers."""
    instructions: str | None
    """What the agent is told before everything else."""
    prompt: str | None
    """What it is asked to do."""
    policy: Policy | Sequence[Any] | Mapping[str, Any] | None
    """The rules that its calls are judged by: a policy, `[[rules]]`, or a `[policy]` table."""
    capabilities: Sequence[object] | None
    """What it may call, as that is now: for their names, signatures and schemas; none of them is called."""


class Difference(Told):
    """Where a replay goes another way than the run did."""

    kind: Kind
    """What differs: see `Kind`."""
    turn: int
    """In which turn, from 1; 0 before the first question."""
    name: str | None = optional()
    """The tool or the capability, where it is about one."""
    then: str
    """What is on record."""
    now: str
    """What it is this time."""
    missing: bool = False
    """Whether the run asks for something that is not on record; then `then` is the nearest that is."""

    def __str__(self) -> str:
        """For people, with the lines that differ."""
        about = f" of `{self.name}`" if self.name else ""
        head = f"turn {self.turn}, {self.kind}{about}"
        if self.missing:
            head += ": not on record; the nearest recording is on the left"
        lines = difflib.unified_diff(
            self.then[:_SHOWN].splitlines(),
            self.now[:_SHOWN].splitlines(),
            "recorded",
            "now",
            lineterm="",
            n=2,
        )
        return "\n".join([head, *lines])


class Both(NamedTuple):
    """A run, both times."""

    then: list[Beat]
    now: list[Beat]
    result: AgentResult | None
    halt: Halt | None
    left: bool
    """Whether there is more on record than came up."""
    over: bool
    """Whether it came to where the run was stopped from outside, or stands."""


def first_difference(
    acted: Both, tape: Tape, changes: Changes, *, known: bool
) -> Difference | None:
    """The first difference, in the order in which things happened."""
    told = {"tools", "output"} if known else {"output"}
    if known and tape.same_spec and changes.get("instructions") is None:
        told.add("instructions")
    then, now = (_compared(one, changes, told) for one in (acted.then, acted.now))
    stopped = tape.stopped_from_outside and not acted.left
    cut = next((n for n, one in enumerate(then) if one.outside or one.kind == "end"), None)
    if stopped and cut is not None and cut <= len(now):
        then, now, acted = then[:cut], now[:cut], acted._replace(halt=None, over=True)
    for mine, theirs in zip(now, then, strict=False):
        if (mine.kind, mine.name, mine.text) != (theirs.kind, theirs.name, theirs.text):
            return _difference(theirs, mine)
    return _afterwards(acted, then[len(now) :], now[len(then) :])


def _afterwards(acted: Both, then: list[Beat], now: list[Beat]) -> Difference | None:
    """As far as both came they are the same: what is left on either side?"""
    halt = acted.halt
    if halt is not None and halt.why == "missing":
        return stopped_at(acted)
    if acted.over and not acted.left:
        return None  # what is on record after that came from outside
    if halt is not None or then or now:
        return _difference(then[0] if then else None, now[0] if now else None)
    return None


def stopped_at(acted: Both) -> Difference | None:
    """What is not on record, if it came to that."""
    halt = acted.halt
    if halt is None or halt.why != "missing":
        return None
    return _missing(halt, acted.now[-1] if acted.now else None)


def _compared(beats: list[Beat], changes: Changes, told: set[str]) -> list[Beat]:
    """The beats that mean something, whatever was changed on purpose."""
    found: list[Beat] = []
    for beat in beats:
        if beat.kind == "prompt" and changes.get("prompt") is not None:
            continue
        if beat.kind == "failure" and changes.get("model") is not None:
            continue
        if beat.kind == "question":
            said = cast("dict[str, Any]", json.loads(beat.text))
            text = "\n".join(f"{name}: {said[name]}" for name in sorted(told & said.keys()))
            beat = beat._replace(text=text)
        found.append(beat)
    return found


def _difference(then: Beat | None, now: Beat | None) -> Difference:
    either = now or then
    kind = either.kind if either is not None else "end"
    return Difference(
        kind=then.kind if then is not None and now is None else kind,
        turn=either.turn if either is not None else 0,
        name=either.name if either is not None else None,
        then=_shown(then, now, "the run was over"),
        now=_shown(now, then, "it comes to its end, or can't go on"),
    )


def _shown(beat: Beat | None, other: Beat | None, nothing: str) -> str:
    if beat is None:
        return f"({nothing})"
    head = "" if other is not None and beat.kind == other.kind else f"({beat.kind}) "
    note = f" ({beat.note})" if beat.note else ""
    return f"{head}{beat.text}{note}"


def _missing(halt: Halt, last: Beat | None) -> Difference:
    """What was asked for after the last beat, and what is on record that is most like it."""
    crossing, near = halt.crossing, halt.near
    turn = last.turn if last is not None else 0
    if crossing is None or crossing.asks_model:
        return Difference(
            kind="question",
            turn=turn + 1,
            then="(the run asked its model nothing more)",
            now="(the model is asked once more)",
            missing=True,
        )
    then = "(no call is on record)"
    if near is not None:
        then = f"{near.past.name}({_pretty(near.arguments)})"
    now = f"{crossing.name}({_pretty(halt.asked)})"
    return Difference(kind="call", turn=turn, name=crossing.name, then=then, now=now, missing=True)


def _pretty(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
