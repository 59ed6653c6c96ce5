"""A tape, read from a recording: the recorded stream in a journal of its own, put together record by record."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from holdfast.agent._tape import Tape, TapedCall, is_prompt, is_question
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
)
from holdfast.contracts.agent import AgentSpec, InputQueued
from holdfast.contracts.message import Message
from holdfast.errors import CallerError
from holdfast.gate.past import Past, Pasts, stored_json
from holdfast.journal import Journal, MemoryJournal
from holdfast.shell.control import CONTROL

_OUTSIDE = ("plan",)
"""Fields that refer to what other streams hold, which are not part of a recording."""


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
        payload=_without_outside(record.payload),
        run_id=record.run_id,
        turn_id=record.turn_id,
        effect_id=record.effect_id,
        actor=record.actor,
        privacy=Privacy(record.privacy),
        bodies=tuple(Body(ref=ref, data=content[ref.digest]) for ref in refs),
    )


def _without_outside(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload without what refers to other streams."""
    found = {name: value for name, value in payload.items() if name not in _OUTSIDE}
    start = found.get("start")
    if not isinstance(start, dict):
        return found
    return {**found, "start": _without_outside(cast("dict[str, Any]", start))}


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
