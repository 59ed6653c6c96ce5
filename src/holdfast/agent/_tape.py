"""What is on record of an agent's run, to be answered from: its questions in order, its calls by what they asked for.

A tape is read from a copy of the recorded stream in memory: nothing that is done with it reaches the journal the
recording came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, cast

from holdfast.agent.history import steps_of
from holdfast.agent.pins import pin
from holdfast.agent.recording import Recording
from holdfast.contracts import (
    Body,
    Draft,
    EffectKind,
    EffectStatus,
    Json,
    Privacy,
    Record,
    RunStatus,
    canonical_json,
    digest,
)
from holdfast.contracts.agent import AgentSpec, InputQueued
from holdfast.contracts.message import Message
from holdfast.errors import CallerError
from holdfast.gate.crossing import Crossing, as_asked
from holdfast.gate.executor import Executor
from holdfast.gate.past import Past, Pasts, stored_json
from holdfast.journal import Journal, MemoryJournal
from holdfast.shell.shell import CONTROL

_OUTSIDE = ("plan",)
"""Fields that refer to what other streams hold, which are not part of a recording."""


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


# -- from a recording -------------------------------------------------------------------------------------


async def copied(recording: Recording, *, before_run: bool) -> MemoryJournal:
    """The recorded stream in a journal of its own; `before_run`: as it was when the run started."""
    journal = MemoryJournal()
    for record in recording.records:
        if before_run and record.pos >= recording.start:
            break
        draft = _draft(record, recording.content)
        if draft is None:
            continue
        try:
            await _waiting(journal, record, draft)
            await journal.append(recording.session_id, [draft], durable=False)
        except CallerError as why:
            # It rests on another stream, such as that of decisions: what followed from it is on record, too.
            if why.code != "ILLEGAL_RECORD":
                raise
    if before_run:
        for text in recording.pins:
            await pin(journal, recording.session_id, text)
    return journal


async def _waiting(journal: Journal, record: Record, draft: Draft) -> None:
    """A message that somebody left for a run waited before the run took it."""
    said = record.payload
    if record.kind == "run_prompted" and said.get("input_id"):
        queued = InputQueued.model_validate(
            {"id": said["input_id"], "session_id": record.stream, "lane": "steer", **said}
        )
        await journal.append(CONTROL, [Draft.of(queued, bodies=draft.bodies)], durable=False)


def _draft(record: Record, content: Mapping[str, bytes]) -> Draft | None:
    saved = record.payload.get("reason", "saved") == "saved"
    if record.kind == "session_state" and saved:
        return None
    refs = [ref for ref in record.content if ref.digest in content]
    return Draft(
        kind=record.kind,
        payload=without_outside(record.payload),
        run_id=record.run_id,
        turn_id=record.turn_id,
        effect_id=record.effect_id,
        actor=record.actor,
        privacy=Privacy(record.privacy),
        bodies=tuple(Body(ref=ref, data=content[ref.digest]) for ref in refs),
    )


def without_outside(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload without what refers to other streams."""
    found = {name: value for name, value in payload.items() if name not in _OUTSIDE}
    start = found.get("start")
    if not isinstance(start, dict):
        return found
    return {**found, "start": without_outside(cast("dict[str, Any]", start))}


async def read_tape(recording: Recording) -> Tape:
    """The tape of a recorded run."""
    journal = await copied(recording, before_run=False)
    reading = _Reading(journal, recording)
    first, originals = 0, list[Message]()
    async for record, history in steps_of(journal, recording.session_id):
        originals = history.originals
        if record.run_id == recording.run_id and record.kind == "run_started":
            first = len(history.originals) - (1 if record.payload.get("prompt") else 0)
            await reading.started(record)
        await reading.add(record)
        if _asks(record, recording.run_id):
            reading.said[str(record.effect_id)] = len(originals) - first
        if history.run_id == recording.run_id and history.spec is not None:
            reading.saw(history.spec)
    tape = await reading.tape(recording)
    tape.first, tape.messages = first, originals[first:]
    return tape


def _asks(record: Record, run_id: str) -> bool:
    asks = record.kind == "effect_intent" and record.run_id == run_id
    return asks and record.payload["kind"] == EffectKind.PROVIDER_REQUEST


class _Reading:
    """Puts a tape together, record by record."""

    def __init__(self, journal: Journal, recording: Recording) -> None:
        self.said: dict[str, int] = {}
        self._journal = journal
        self._run_id = recording.run_id
        self._own = Pasts()
        self._children: dict[str, tuple[str | None, Pasts]] = {}
        self._specs: list[AgentSpec] = []
        self._answers = 0
        self._fields: dict[str, Any] = {}
        self._steers: dict[int, list[str]] = {}
        self._notices: dict[int, list[str]] = {}
        self._switched: set[str] = set()
        self._hooks: list[dict[str, Any]] = []
        self._too_long: set[str] = set()

    async def started(self, record: Record) -> None:
        said = record.payload
        if said.get("prompt"):
            prompt: Any = await stored_json(self._journal, str(said["prompt"]))
            self._fields["prompt"] = prompt["text"]
        self._fields["toolbox"] = said.get("toolbox")
        self._fields["actor"] = said.get("actor")

    def saw(self, spec: AgentSpec) -> None:
        if not self._specs or self._specs[-1] is not spec:
            self._specs.append(spec)

    async def add(self, record: Record) -> None:
        said, run_id = record.payload, record.run_id
        start = said.get("start") or said
        if isinstance(start, dict) and start.get("parent") == self._run_id and run_id:
            self._children[run_id] = (str(start.get("call_id")), Pasts())
        if run_id in self._children:
            self._children[run_id][1].add(record)
            if said.get("status") == RunStatus.TIMEOUT:
                self._too_long.add(run_id)
        elif run_id == self._run_id:
            self._own.add(record)
            await self._of_the_run(record)
        if record.kind == "hook" and (run_id == self._run_id or run_id in self._children):
            self._hooks.append(said)

    async def _of_the_run(self, record: Record) -> None:
        said: dict[str, Any] = record.payload
        if record.kind == "effect_result":
            self._answers += _answers(self._own, str(said["effect_id"]))
        elif record.kind == "run_prompted" and said.get("purpose") is None:
            text: Any = await stored_json(self._journal, str(said["content"]))
            if is_prompt(record, first=not self._answers):
                self._fields["prompt"] = text["text"]
            else:
                self._steers.setdefault(self._answers, []).append(str(text["text"]))
        elif record.kind == "notice_given":
            self._notices.setdefault(int(said["turn"]), []).append(str(said["text"]))
        elif record.kind == "model_switched":
            self._switched.add(str(said["after"]))
        elif record.kind in ("run_completed", "run_failed", "run_cancelled"):
            self._fields["end"], self._fields["ended"] = said, record.kind

    async def tape(self, recording: Recording) -> Tape:
        """All of it."""
        calls = [TapedCall(one, one.call_id, None) for one in _calls(self._own)]
        for run_id, (call_id, pasts) in self._children.items():
            late = run_id in self._too_long
            calls += [TapedCall(one, call_id, None, too_long=late) for one in _calls(pasts)]
        for one in calls:
            one.arguments = await self._arguments(one.past)
        return Tape(
            journal=self._journal,
            session_id=recording.session_id,
            run_id=recording.run_id,
            spec=self._specs[-1],
            same_spec=len(self._specs) == 1,
            questions=deque(one for one in _sorted(self._own) if is_question(one)),
            calls=calls,
            steers=self._steers,
            notices=self._notices,
            switched=self._switched,
            hooks=self._hooks,
            children=[*self._children],
            said=self.said,
            **self._fields,
        )

    async def _arguments(self, past: Past) -> Json:
        for name in (past.request, past.arguments):
            try:
                return await stored_json(self._journal, name)
            except CallerError:
                continue  # a hook changed them, and what it was given is not kept
        return None


def is_prompt(record: Record, *, first: bool) -> bool:
    """Whether a record says what a run is to do; `first`: the model was not asked before."""
    said = record.payload
    if record.kind != "run_prompted":
        return record.kind == "run_started"
    return first and said.get("input_id") is None and said.get("purpose") is None


def is_question(past: Past) -> bool:
    """Whether it went to a model."""
    return past.intent is not None and past.intent.kind is EffectKind.PROVIDER_REQUEST


def _answers(pasts: Pasts, effect_id: str) -> int:
    for past in reversed(pasts.calls.values()):
        if past.effect_id == effect_id:
            result, intent = past.result, past.intent
            whole = result is not None and result.terminal_status is EffectStatus.COMPLETED
            return int(whole and intent is not None and intent.turn is not None)
    return 0


def _calls(pasts: Pasts) -> Iterable[Past]:
    return (one for one in _sorted(pasts) if not is_question(one))


def _sorted(pasts: Pasts) -> Sequence[Past]:
    return [past for _, past in sorted(pasts.calls.items())]
