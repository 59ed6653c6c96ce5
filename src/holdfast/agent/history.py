"""A session's conversation, folded from its records; and how far one of its runs came.

What the live run does message by message, this does record by record. Both end at the same conversation, so a run
that goes on in another process sends the provider what the first one would have sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.agent.calls import direct_view
from holdfast.agent.outline import ENDS, Later, Outlining, Step, bodies_of
from holdfast.agent.outlines import outline_of
from holdfast.agent.pictures import pictures_in
from holdfast.agent.transcript import Transcript
from holdfast.agent.view import run_view
from holdfast.contracts import EffectStatus, ErrorObject, Record, RunResult, RunStatus
from holdfast.contracts.agent import AgentSpec
from holdfast.contracts.message import AssistantMessage, Message
from holdfast.contracts.model import ModelAnswer
from holdfast.gate.past import Past, Pasts
from holdfast.journal import Journal


@dataclass(slots=True)
class History:
    """What is on record of a session's conversation."""

    transcript: Transcript = field(default_factory=Transcript)
    spec: AgentSpec | None = None
    """The agent of the newest run."""
    run_id: str | None = None
    """The newest run of an agent."""
    turn_no: int = 0
    """Questions it asked."""
    answers: int = 0
    """Of those, the ones that were answered."""
    tries: int = 0
    """Attempts at the next answer that failed, since it last went over to another model."""
    pasts: Pasts = field(default_factory=Pasts)
    """Its effects, but for those that are settled; the newest one in any case."""
    children: dict[str, str] = field(default_factory=dict[str, str])
    """Its runs of code that stand, by the model's call."""
    model: str | None = None
    """The one it went over to, if it did."""
    extracting: bool = False
    """Whether it was asked for its structured output."""
    main_text: str | None = None
    """What it had answered by then."""
    candidates: list[ModelAnswer] = field(default_factory=list[ModelAnswer])
    """Answers to that."""
    active_ms: int = 0
    """How long it took so far, without the time it stood or had no process."""
    actor: str | None = None
    """On whose behalf it calls."""
    account: str | None = None
    """The account it uses up, with others."""
    originals: list[Message] = field(default_factory=list[Message])
    """Every message, those included that are told in short by now."""

    @property
    def open_question(self) -> Past | None:
        """A question without an answer, on record."""
        asked = (one for one in self.pasts.calls.values() if one.turn is not None)
        return next((one for one in asked if one.result is None), None)

    @property
    def asides(self) -> list[Past]:
        """Questions beside the conversation without an answer: a summary that was being written."""
        return [one for one in self.pasts.open() if one.asks_model and one.turn is None]

    @property
    def asked(self) -> Past | None:
        """A question that waits for a person, or was let pass by one, and was not put to the model."""
        for past in self.pasts.calls.values():
            if past.intent is not None or past.approval is None or past.settled:
                continue
            if past.call_id is None:
                return past
        return None

    @property
    def unheard(self) -> Past | None:
        """The question whose answer is the last thing that happened."""
        past = self.pasts.calls.get(max(self.pasts.calls, default=0))
        if past is None or past.intent is None or past.intent.turn is None or self.children:
            return None
        if past.result is None or past.result.terminal_status is not EffectStatus.COMPLETED:
            return None
        waiting, messages = self.transcript.waiting, self.transcript.messages
        if waiting:
            fresh = all(known is None for known in waiting.values())
        else:
            fresh = bool(messages) and isinstance(messages[-1], AssistantMessage)
        return past if fresh else None


def models_of(spec: AgentSpec | None) -> tuple[str, ...]:
    """The models of an agent, in the order in which they are asked."""
    return () if spec is None else (spec.model, *spec.fallbacks)


class _Folding:
    """Takes steps in, one by one."""

    def __init__(
        self, journal: Journal, bodies: dict[str, bytes], ended: set[str], settled: set[str]
    ) -> None:
        self.found = History()
        self._journal = journal
        self._bodies = bodies
        self._over = ended
        self._settled = settled
        self._specs: dict[str, AgentSpec] = {}
        self._last_time: int | None = None

    def note(self, record: Record) -> None:
        """Take note of a record of the newest run, whatever it says about the conversation."""
        if record.run_id is None or record.run_id != self.found.run_id:
            return
        # Nobody worked on it while it stood, nor between the death of one process and the next one's turn.
        if self._last_time is not None and record.kind != "run_resumed":
            self.found.active_ms += max(0, record.time - self._last_time)
        self._last_time = None if record.kind == "run_parked" else record.time
        # Nobody goes on with what is over.
        if record.run_id in self._over or record.effect_id in self._settled:
            return
        self.found.pasts.add(record)

    async def fetch(self, step: Step) -> None:
        """Have the bodies of a step at hand; raises why one of them can't be had."""
        for digest in bodies_of(step):
            if digest not in self._bodies:
                self._bodies[digest] = await self._journal.content(digest)

    def add(self, step: Step) -> None:
        """Take a step in, whose bodies are at hand."""
        transcript = self.found.transcript
        before = transcript.count
        _STEPS[step[0]](self, *step[1:])
        added = transcript.count - before
        if added:
            self.found.originals.extend(transcript.messages[-added:])

    def began(self, time: int) -> None:
        """A run started then."""
        self._last_time = time

    def _json(self, digest: str) -> Any:
        data = self._bodies[digest]
        try:
            return from_json(data)
        except ValueError:  # nested too deep for the fast parser, or half a character in it
            return json.loads(data)

    def _answered(self, digest: str) -> ModelAnswer:
        try:
            return ModelAnswer.model_validate_json(self._bodies[digest])
        except ValidationError:
            return ModelAnswer.model_validate(json.loads(self._bodies[digest]))

    def _spec(self, digest: str) -> AgentSpec:
        found = self._specs.get(digest)
        if found is None:
            found = self._specs[digest] = AgentSpec.model_validate(self._json(digest))
        return found

    def _run(
        self, run_id: str, agent: str, prompt: str | None, actor: str | None, account: str | None
    ) -> None:
        old = self.found
        self.found = History(
            transcript=old.transcript,
            spec=self._spec(agent),
            run_id=run_id,
            actor=actor,
            account=account,
            originals=old.originals,
        )
        self.found.transcript.begin()
        if prompt is not None:
            said = self._json(prompt)
            self.found.transcript.prompt(said["text"], notice=said.get("notice", False))

    def _code(self, call_id: str, run_id: str) -> None:
        self.found.children[call_id] = run_id

    def _agent(self, digest: str) -> None:
        before, spec = self.found.spec, self._spec(digest)
        self.found.spec = spec
        if models_of(spec) != models_of(before):
            self.found.model = None  # it goes on with other models, from the first of them

    def _said(self, digest: str, purpose: str | None) -> None:
        said = self._json(digest)
        self.found.transcript.user(said["text"], notice=said.get("notice", False))
        if purpose == "extraction":
            self.found.extracting = True
            self.found.main_text = self.found.transcript.last_text

    def _notice(self, text: str) -> None:
        self.found.transcript.user(text, notice=True)

    def _asked(self, turn: int) -> None:
        self.found.turn_no = turn

    def _answer(self, digest: str | None, status: str) -> None:
        found = self.found
        if status in (EffectStatus.FAILED, EffectStatus.TIMED_OUT):
            found.tries += 1
        if digest is None:
            return
        answer = self._answered(digest)
        if status != EffectStatus.COMPLETED:
            found.transcript.partial = answer
            return
        found.answers += 1
        found.tries = 0
        found.transcript.answered(answer, digest)
        if found.extracting:
            found.candidates.append(answer)

    def _result(self, effect: str, call_id: str, name: str, digest: str | None, error: Any) -> None:
        value = None if digest is None else self._json(digest)
        wrong = ErrorObject.model_validate(error) if error is not None else None
        text, is_error = direct_view(value, wrong, effect, self._limit)
        # Looking through each of many results takes as long as all the rest; whatever names a picture says so.
        pictured = digest is not None and b'"image"' in self._bodies[digest]
        shown = pictures_in(value) if pictured else ()
        self.found.transcript.result(call_id, name, text, is_error=is_error, pictures=shown)

    @property
    def _limit(self) -> int:
        spec = self.found.spec
        return spec.view_bytes if spec is not None else AgentSpec(model="none:none").view_bytes

    def _told(self, call_id: str, name: str, digest: str, wrong: bool) -> None:
        text = self._bodies[digest].decode()
        self.found.transcript.result(call_id, name, text, is_error=wrong)

    def _end(self) -> None:
        self.found.transcript.close()

    def _ran(self, call_id: str, digest: str | None, status: str | None, error: Any) -> None:
        self.found.children.pop(call_id, None)
        if digest is not None:
            result = RunResult.model_validate(self._json(digest))
        else:
            result = RunResult(status=RunStatus(status), error=ErrorObject.model_validate(error))
        text, wrong = run_view(result, limit=self._limit)
        self.found.transcript.result(
            call_id, "run_code", text, is_error=wrong, pictures=pictures_in(result.result)
        )

    def _model(self, after: str) -> None:
        self.found.model = after
        self.found.tries = 0

    def _short(self, digest: str, upto: int) -> None:
        transcript = self.found.transcript
        transcript.compact(self._bodies[digest].decode(), transcript.count - upto)

    def _long(self) -> None:
        self.found.transcript.restore(self.found.originals)

    steps: ClassVar[dict[str, Callable[..., None]]] = {
        "run": _run,
        "code": _code,
        "agent": _agent,
        "said": _said,
        "notice": _notice,
        "asked": _asked,
        "answer": _answer,
        "result": _result,
        "told": _told,
        "end": _end,
        "ran": _ran,
        "model": _model,
        "short": _short,
        "long": _long,
    }


_STEPS = _Folding.steps


async def history_of(journal: Journal, stream: str, *, upto: int | None = None) -> History:
    """A session's conversation, and how far the newest run of an agent in it came; `upto`: at that position.

    Of what was over when its outline was written, only the conversation and the agent are told.
    """
    if upto is None:
        found = await _outlined(journal, stream)
        if found is not None:
            return found
    found = History()
    async for _, history in steps_of(journal, stream, upto=upto):
        found = history
    return found


async def _outlined(journal: Journal, stream: str) -> History | None:
    """The same from the session's outline and the records since; `None` when there is none that fits."""
    created = await _created(journal, stream)
    outline = None if created is None else await outline_of(journal, stream, created)
    if outline is None:
        return None
    records = [one async for one in journal.read(stream, after=outline.upto)]
    later = Later.of(records)
    here = {str(one.effect_id) for one in records if one.kind == "effect_intent"}
    if not outline.fits(records) or not later.about(here | outline.before.effects()):
        return None
    ended = {str(one.run_id) for one in records if one.kind in ENDS} | {str(outline.before.run_id)}
    told = _told(records, Outlining(later, outline.before))
    steps = [*outline.steps, *(step for _, step in told if step is not None)]
    wanted = {name for step in steps for name in bodies_of(step)}
    bodies = await journal.contents(wanted)
    folding = _Folding(journal, bodies, ended, _settled(records))
    whole = len(bodies) == len(wanted)
    for step in outline.steps:
        if not whole:
            await folding.fetch(step)
        folding.add(step)
    for record, step in told:
        await _take(folding, record, step)
    return folding.found


async def steps_of(
    journal: Journal, stream: str, *, upto: int | None = None
) -> AsyncGenerator[tuple[Record, History]]:
    """The same, record by record: each with how things stood after it. What is given goes on changing."""
    created = await _created(journal, stream)
    if created is None:
        return
    records = [one async for one in journal.read(stream, after=created - 1)]
    if upto is not None:
        records = [one for one in records if one.pos <= upto]
    ended = {str(one.run_id) for one in records if one.kind in ENDS}
    told = _told(records, Outlining(Later.of(records)))
    wanted = {name for _, step in told if step is not None for name in bodies_of(step)}
    bodies = await journal.contents(wanted)
    folding = _Folding(journal, bodies, ended, _settled(records))
    for record, step in told:
        await _take(folding, record, step)
        yield record, folding.found


async def _created(journal: Journal, stream: str) -> int | None:
    """Where a session begins in its stream; `None` when there is no such session."""
    row = await journal.row("sessions", stream)
    return None if row is None or row["status"] != "open" else int(str(row["created_pos"]))


def _told(records: list[Record], outlining: Outlining) -> list[tuple[Record, Step | None]]:
    return [(one, outlining.step(one)) for one in records]


def _settled(records: list[Record]) -> set[str]:
    """Effects of which all is known: in a long run, nearly all of them, and what is on record of each is long."""
    over: set[str] = set()
    besides: dict[str, str] = {}
    newest: dict[str | None, tuple[int, str]] = {}
    for one in records:
        effect, said = str(one.effect_id), one.payload
        if one.kind == "effect_seen":
            over.add(effect)
        elif one.kind == "effect_result" and said["terminal_status"] != EffectStatus.UNKNOWN:
            if not said.get("hooked"):  # then hooks have to look at it first
                over.add(effect)
        elif one.kind in ("effect_result", "effect_attempt"):
            over.discard(effect)
        elif one.kind in ("effect_intent", "approval_requested"):
            number: Any = said.get("ordinal") or 0
            if said.get("beside"):  # it goes with what it was done for
                besides[effect] = str(said["beside"])
            elif number >= newest.get(one.run_id, (0, ""))[0]:
                newest[one.run_id] = (number, effect)
    over.difference_update(besides, (effect for _, effect in newest.values()))
    for effect, parent in besides.items():
        if parent in over:
            over.add(effect)
    return over


async def _take(folding: _Folding, record: Record, step: Step | None) -> None:
    folding.note(record)
    if step is None:
        return
    await folding.fetch(step)
    folding.add(step)
    if step[0] == "run":
        folding.began(record.time)
