"""What is on record of an agent's run, to be answered from: its questions in order, its calls by what they asked for.

A tape is read from a copy of the recorded stream in memory: nothing that is done with it reaches the journal the
recording came from.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, cast

from holdfast.contracts import (
    EffectKind,
    EffectStatus,
    Json,
    Record,
    canonical_json,
    digest,
)
from holdfast.contracts.agent import AgentSpec
from holdfast.contracts.message import Message
from holdfast.gate.crossing import Crossing, as_asked
from holdfast.gate.executor import Executor
from holdfast.gate.past import Past
from holdfast.journal import Journal


@dataclass(slots=True)
class TapedCall:
    """A call on record."""

    past: Past
    """What came of it."""
    call_id: str | None
    """The model's call it belongs to: its own, or that of the program that made it."""
    arguments: Json
    """What it asked for, as far as that is on record."""
    used: bool = False
    """Whether it was answered from in this replay."""
    too_long: bool = False
    """Whether the time of its program ran out over it."""

    @property
    def open(self) -> bool:
        """Whether nobody got an answer to it: it waits, is in doubt, or ended with its run."""
        return not has_answer(self.past)

    @property
    def denied(self) -> bool:
        """Whether it was not made."""
        result = self.past.result
        return result is not None and (
            result.terminal_status is EffectStatus.DENIED_BEFORE_EXECUTION
        )

    @property
    def verdict(self) -> str:
        """What policy said: `allow`, `ask` or `deny`; `refused` when it was turned away for another reason."""
        past = self.past
        if past.approval is not None or (past.intent is not None and past.intent.grant_id):
            return "ask"
        if not self.denied:
            return "allow"
        rules = past.intent.policy_refs if past.intent is not None else ()
        return "deny" if rules and rules != ("default.unknown",) else "refused"


@dataclass(slots=True)
class Tape:
    """One recorded run, as far as it was used up."""

    journal: Journal
    """The recorded stream, in memory."""
    session_id: str
    run_id: str
    spec: AgentSpec
    """The agent as it was in the end."""
    prompt: str | None = None
    """What it was to do; `None`: what waited for it."""
    toolbox: str | None = None
    """The digest of what it could call."""
    actor: str | None = None
    same_spec: bool = True
    """Whether it was the same agent all the time."""
    end: dict[str, Any] | None = None
    """The payload of its last record; `None` when it is not over."""
    ended: str | None = None
    """The kind of that."""
    questions: deque[Past] = field(default_factory=deque[Past])
    """Those that are left, in order."""
    calls: list[TapedCall] = field(default_factory=list[TapedCall])
    """In the order in which they were made."""
    steers: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """What people said to it beside its prompt, by the number of answers before."""
    notices: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """What holdfast told it about its tools, by the question that it came before."""
    switched: set[str] = field(default_factory=set[str])
    """Models it went over to."""
    hooks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What hooks did, in order."""
    children: list[str] = field(default_factory=list[str])
    """Its programs' runs, in order."""
    messages: list[Message] = field(default_factory=list[Message])
    """What was said in the session, from the start of the run on."""
    said: dict[str, int] = field(default_factory=dict[str, int])
    """For each question, how many of those went before it."""
    first: int = 0
    """Messages there were in the session before the run."""
    answers: int = 0
    """Answers that were given in this replay."""

    def question(self, *, quiet: bool) -> Past | None:
        """The next question on record; `quiet`: one that is about the conversation, not part of it."""
        while self.questions:
            is_quiet = _quiet(self.questions[0])
            if is_quiet and not quiet:
                self.questions.popleft()  # the conversation is not shortened this time
                continue
            if is_quiet != quiet:
                return None
            found = self.questions.popleft()
            if has_answer(found) or not any(map(has_answer, self.questions)):
                return found  # else it was cut off, and asked again
        return None

    @property
    def sums_up(self) -> bool:
        """Whether the next thing the run asked for was a summary."""
        return bool(self.questions) and _quiet(self.questions[0])

    def take(self, crossing: Crossing, executor: Executor | None) -> TapedCall | None:
        """The call on record that this one is; one that was answered, nobody gets again."""
        asked = as_asked(crossing, executor)
        request = digest(canonical_json(asked))
        fits = [
            one
            for one in self.calls
            if not one.used
            and one.past.name == crossing.name
            and (one.past.request == request or _loosely(one.arguments, crossing, executor))
        ]
        if not fits:
            return None
        # One that was cut off may have been made again: then that is the one that counts.
        found = min(fits, key=lambda one: (not _is_same(one, crossing), one.open))
        found.used = not found.open
        return found

    def nearest(self, name: str, asked: Json) -> TapedCall | None:
        """The call on record that is most like one that is not; one that is left rather than one that is not."""

        def likeness(one: TapedCall) -> tuple[bool, bool, float]:
            then, now = _text(one.arguments), _text(asked)
            ratio = SequenceMatcher(None, then[:2000], now[:2000]).ratio()
            return one.past.name == name, not one.used, ratio

        return max(self.calls, key=likeness, default=None)

    @property
    def left(self) -> bool:
        """Whether there is more on record that was answered."""
        return any(has_answer(one) and not _quiet(one) for one in self.questions) or any(
            not one.open and not one.used for one in self.calls
        )

    @property
    def stops_here(self) -> bool:
        """Whether the run was stopped before its model was asked again: calls may have been still to be made."""
        return self.stopped_from_outside and not any(map(has_answer, self.questions))

    @property
    def stopped_from_outside(self) -> bool:
        """Whether the run is not over, or was ended by what no replay has: a person, the clock, a budget."""
        if self.ended is None or self.ended == "run_cancelled":
            return True
        error = cast("dict[str, Any]", (self.end or {}).get("error") or {})
        return error.get("code") in ("CANCELLED", "TIMEOUT_WALL", "BUDGET_EXCEEDED", "INTERRUPTED")


def has_answer(past: Past) -> bool:
    """Whether whoever asked got an answer."""
    result = past.result
    cancelled = result is not None and result.terminal_status is EffectStatus.CANCELLED
    return past.answered and not cancelled


def is_prompt(record: Record, *, first: bool) -> bool:
    """Whether a record says what a run is to do; `first`: the model was not asked before."""
    said = record.payload
    if record.kind != "run_prompted":
        return record.kind == "run_started"
    return first and said.get("input_id") is None and said.get("purpose") is None


def is_question(past: Past) -> bool:
    """Whether it went to a model."""
    return past.intent is not None and past.intent.kind is EffectKind.PROVIDER_REQUEST


def _quiet(past: Past) -> bool:
    return past.intent is not None and past.intent.turn is None


def _is_same(one: TapedCall, crossing: Crossing) -> bool:
    if crossing.call_id is not None:
        return one.past.call_id == crossing.call_id
    return one.past.call_id is None and one.past.ordinal == crossing.ordinal


def _loosely(arguments: Json, crossing: Crossing, executor: Executor | None) -> bool:
    """Whether a call is the one on record, where nobody knows the names of its arguments."""
    if executor is not None and executor.capability.input_schema:
        return False
    if not isinstance(arguments, dict):
        return False
    named = all(arguments.get(name) == value for name, value in crossing.kwargs.items())
    now = sorted(_text(one) for one in (*crossing.args, *crossing.kwargs.values()))
    return named and now == sorted(_text(one) for one in arguments.values())


def _text(value: Json) -> str:
    return canonical_json(value).decode()
