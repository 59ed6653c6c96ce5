"""A session's conversation, folded from its records; and how far one of its runs came.

What the live run does message by message, this does record by record. Both end at the same conversation, so a run
that goes on in another process sends the provider what the first one would have sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from holdfast.agent.calls import direct_view
from holdfast.agent.transcript import Transcript
from holdfast.agent.view import run_view
from holdfast.contracts import EffectStatus, ErrorObject, Record, RunResult, RunStatus
from holdfast.contracts.agent import AgentSpec
from holdfast.contracts.hook import HookDecision, HookPoint
from holdfast.contracts.hook_response import ResponseClass
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
    """Its effects."""
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
    """How long it took so far, waiting for people not counted."""
    actor: str | None = None
    """On whose behalf it calls."""
    account: str | None = None
    """The account it uses up, with others."""
    originals: list[Message] = field(default_factory=list[Message])
    """Every message, those included that are told in short by now."""

    @property
    def open_question(self) -> Past | None:
        """A question without an answer, on record."""
        for past in self.pasts.calls.values():
            if past.intent is not None and past.intent.turn is not None and past.result is None:
                return past
        return None

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


_ENDS = ("run_completed", "run_failed", "run_cancelled")
_TOLD = frozenset(("agent", "message", "result", "summary"))
"""Roles of bodies that the conversation is made of: read at once, because one by one takes as long as all the rest."""


class _Folding:
    """Takes records in, one by one."""

    def __init__(
        self,
        journal: Journal,
        seen: dict[str, dict[str, Any]],
        dropped: set[str],
        *,
        bodies: dict[str, bytes],
        ended: set[str],
    ) -> None:
        self.found = History()
        self._bodies = bodies
        self._over = ended
        self._dropped = dropped
        self._journal = journal
        self._seen = seen
        self._questions: set[str] = set()
        self._direct: dict[str, tuple[str, str]] = {}
        self._programs: dict[str, str] = {}
        self._last_time: int | None = None

    async def add(self, record: Record) -> None:
        handler = getattr(self, f"_{record.kind}", None)
        found = self.found
        before = found.transcript.count
        if record.run_id is not None and record.run_id == found.run_id:
            self._clock(record)
            if record.run_id not in self._over:  # nobody goes on with what is over
                found.pasts.add(record)
        if handler is not None:
            await handler(record)
        added = found.transcript.count - before
        if added:
            found.originals.extend(found.transcript.messages[-added:])

    def _clock(self, record: Record) -> None:
        if self._last_time is not None:
            self.found.active_ms += max(0, record.time - self._last_time)
        self._last_time = None if record.kind == "run_parked" else record.time

    async def _json(self, digest: str) -> Any:
        return json.loads(await self._body(digest))

    async def _body(self, digest: str) -> bytes:
        found = self._bodies.get(digest)
        return await self._journal.content(digest) if found is None else found

    async def _run_started(self, record: Record) -> None:
        said = record.payload
        if said["kind"] != "agent":
            if said.get("parent") and record.run_id:
                call_id = str(said["call_id"])
                self._programs[record.run_id] = call_id
                self.found.children[call_id] = record.run_id
            return
        old = self.found
        self.found = History(
            transcript=old.transcript,
            spec=AgentSpec.model_validate(await self._json(str(said["agent"]))),
            run_id=record.run_id,
            actor=said.get("actor"),  # type: ignore[arg-type]
            account=said.get("account"),  # type: ignore[arg-type]
            originals=old.originals,
        )
        self._last_time = record.time
        self.found.transcript.goals = ()
        if said.get("prompt"):
            prompt = await self._json(str(said["prompt"]))
            self.found.transcript.prompt(prompt["text"], notice=prompt.get("notice", False))

    async def _run_resumed(self, record: Record) -> None:
        if record.run_id == self.found.run_id and record.payload.get("agent"):
            before = self.found.spec
            spec = AgentSpec.model_validate(await self._json(str(record.payload["agent"])))
            self.found.spec = spec
            if models_of(spec) != models_of(before):
                self.found.model = None  # it goes on with other models, from the first of them

    async def _run_prompted(self, record: Record) -> None:
        said = await self._json(str(record.payload["content"]))
        self.found.transcript.user(said["text"], notice=said.get("notice", False))
        if record.payload.get("purpose") == "extraction":
            self.found.extracting = True
            self.found.main_text = self.found.transcript.last_text

    async def _notice_given(self, record: Record) -> None:
        self.found.transcript.user(str(record.payload["text"]), notice=True)

    async def _effect_intent(self, record: Record) -> None:
        said, effect = record.payload, str(record.effect_id)
        if said["kind"] == "provider_request":
            if said.get("turn") is not None:
                self._questions.add(effect)
                self.found.turn_no = int(str(said["turn"]))
        elif said.get("call_id"):
            self._direct[effect] = (str(said["call_id"]), str(said["name"]))

    async def _effect_result(self, record: Record) -> None:
        said, effect = record.payload, str(record.effect_id)
        if effect in self._dropped:
            return
        if effect in self._questions:
            await self._answer(said)
        elif effect in self._direct and said["terminal_status"] != EffectStatus.UNKNOWN:
            await self._result(effect, said)

    async def _answer(self, said: dict[str, Any]) -> None:
        if said["terminal_status"] in (EffectStatus.FAILED, EffectStatus.TIMED_OUT):
            self.found.tries += 1
        refs = said.get("content_refs") or ()
        if not refs:
            return
        answer = ModelAnswer.model_validate(await self._json(str(refs[0])))
        if said["terminal_status"] != EffectStatus.COMPLETED:
            self.found.transcript.partial = answer
            return
        self.found.answers += 1
        self.found.tries = 0
        self.found.transcript.answered(answer, str(refs[0]))
        if self.found.extracting:
            self.found.candidates.append(answer)

    async def _result(self, effect: str, said: dict[str, Any]) -> None:
        call_id, name = self._direct[effect]
        error = said.get("error")
        value = None
        shown = self._seen.get(effect)
        if shown is not None:
            error = shown.get("error")
        if error is None:
            digest = shown["value"] if shown is not None else said["content_refs"][0]
            value = await self._json(str(digest))
        found = ErrorObject.model_validate(error) if error is not None else None
        text, wrong = direct_view(value, found, effect, self._limit)
        self.found.transcript.result(call_id, name, text, is_error=wrong)

    @property
    def _limit(self) -> int:
        spec = self.found.spec
        return spec.view_bytes if spec is not None else AgentSpec(model="none:none").view_bytes

    async def _tool_answered(self, record: Record) -> None:
        said = record.payload
        text = (await self._body(str(said["content"]))).decode()
        wrong = bool(said.get("is_error", False))
        self.found.transcript.result(str(said["call_id"]), str(said["name"]), text, is_error=wrong)

    async def _run_completed(self, record: Record) -> None:
        await self._ended(record)

    async def _run_failed(self, record: Record) -> None:
        await self._ended(record)

    async def _run_cancelled(self, record: Record) -> None:
        await self._ended(record)

    async def _ended(self, record: Record) -> None:
        run_id, start = record.run_id or "", record.payload.get("start")
        if run_id == self.found.run_id:
            self.found.transcript.close()
            return
        call_id = self._programs.pop(run_id, None)
        if call_id is None and isinstance(start, dict):
            call_id = start.get("call_id")
        if call_id is None:
            return
        self.found.children.pop(str(call_id), None)
        text, wrong = run_view(await self._program(record), limit=self._limit)
        self.found.transcript.result(str(call_id), "run_code", text, is_error=wrong)

    async def _program(self, record: Record) -> RunResult:
        said = record.payload
        if said.get("result"):
            return RunResult.model_validate(await self._json(str(said["result"])))
        error = ErrorObject.model_validate(said["error"])
        return RunResult(status=RunStatus(str(said["status"])), error=error, run_id=record.run_id)

    async def _model_switched(self, record: Record) -> None:
        self.found.model = str(record.payload["after"])
        self.found.tries = 0

    async def _context_compacted(self, record: Record) -> None:
        said, found = record.payload, self.found
        summary = (await self._body(str(said["summary"]))).decode()
        found.transcript.compact(summary, found.transcript.count - int(str(said["upto"])))

    async def _context_restored(self, record: Record) -> None:
        self.found.transcript.restore(self.found.originals)


def _drops(record: Record) -> bool:
    """Whether a hook wanted another answer in place of the one it is about."""
    if record.kind != "hook" or record.payload["point"] != HookPoint.AFTER_MODEL_CALL:
        return False
    said: Any = record.payload["payload"]
    accepted = said.get("decision") == HookDecision.ACCEPTED
    return accepted and said["response_class"] == ResponseClass.REQUEST_RETRY


async def history_of(journal: Journal, stream: str, *, upto: int | None = None) -> History:
    """A session's conversation, and how far the newest run of an agent in it came; `upto`: at that position."""
    found = History()
    async for _, history in steps_of(journal, stream, upto=upto):
        found = history
    return found


async def steps_of(
    journal: Journal, stream: str, *, upto: int | None = None
) -> AsyncGenerator[tuple[Record, History]]:
    """The same, record by record: each with how things stood after it. What is given goes on changing."""
    row = await journal.row("sessions", stream)
    if row is None or row["status"] != "open":
        return
    after = int(str(row["created_pos"])) - 1
    records = [one async for one in journal.read(stream, after=after)]
    if upto is not None:
        records = [one for one in records if one.pos <= upto]
    seen = {str(one.effect_id): one.payload for one in records if one.kind == "effect_seen"}
    dropped = {str(one.payload["subject"]) for one in records if _drops(one)}
    ended = {str(one.run_id) for one in records if one.kind in _ENDS}
    wanted = {ref.digest for one in records for ref in one.content if ref.role in _TOLD}
    bodies = await journal.contents(wanted)
    folding = _Folding(journal, seen, dropped, bodies=bodies, ended=ended)
    for record in records:
        await folding.add(record)
        yield record, folding.found
