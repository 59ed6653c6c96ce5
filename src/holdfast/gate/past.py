"""What the journal knows of the calls of a run: what was asked, decided, intended, done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdfast.contracts import (
    ApprovalRequest,
    EffectIntent,
    EffectResult,
    EffectStatus,
    ErrorObject,
    Json,
    Record,
)
from holdfast.errors import OperatorError
from holdfast.journal import Journal


@dataclass(slots=True)
class Past:
    """One call of a run, as far as it came."""

    ordinal: int
    effect_id: str
    name: str
    request: str
    """The digest of what the code asked for."""
    arguments: str
    """The digest of what it was to be called with."""
    intent: EffectIntent | None = None
    result: EffectResult | None = None
    result_pos: int = 0
    seen: str | None = None
    """The digest of what the code was given instead of the result."""
    seen_error: ErrorObject | None = None
    """What the code was told instead of the result."""
    attempt: int = 1
    released: int = 0
    """The attempt that a person has allowed."""
    approval: ApprovalRequest | None = None
    settled: bool = False
    """Whether the run had taken note of the approval's end."""

    @property
    def call_id(self) -> str | None:
        """The model's call that it answers."""
        said = self.intent or self.approval
        return None if said is None else said.call_id

    @property
    def answered(self) -> bool:
        """Whether the code can be given what it got."""
        return self.result is not None and self.result.terminal_status is not EffectStatus.UNKNOWN


class Pasts:
    """The calls of one run that are on record."""

    def __init__(self) -> None:
        self.calls: dict[int, Past] = {}
        """By number."""
        self._effects: dict[str, Past] = {}
        self._approvals: dict[str, Past] = {}
        self.responses: dict[tuple[str, str, str], str] = {}
        """(subject, hook point, hook id) → digest of the response that was accepted: it is not asked for again."""

    def add(self, record: Record) -> None:
        """Take note of one record of the run."""
        said = record.payload
        match record.kind:
            case "approval_requested":
                self._requested(ApprovalRequest.model_validate(said))
            case "effect_intent":
                self._intended(EffectIntent.model_validate(said))
            case "approval_settled":
                if past := self._approvals.get(str(said["id"])):
                    past.settled = True
            case "hook":
                self._hooked(said)
            case "effect_result" | "effect_seen" | "effect_attempt" | "effect_released":
                if past := self._effects.get(str(said["effect_id"])):
                    _go_on(past, record)
            case _:
                pass

    def open(self) -> list[Past]:
        """Those without an answer, in order."""
        return [past for _, past in sorted(self.calls.items()) if not past.answered]

    def _requested(self, said: ApprovalRequest) -> None:
        if said.ordinal is not None:
            past = self._at(said.ordinal, said.effect_id, said.tool, said.request, said.arguments)
            past.approval = said
            self._approvals[said.id] = past

    def _intended(self, said: EffectIntent) -> None:
        if said.ordinal is not None:
            arguments = said.content_refs[0] if said.content_refs else said.request
            past = self._at(said.ordinal, said.effect_id, said.name, said.request, arguments)
            past.intent, past.arguments = said, str(arguments)

    def _hooked(self, said: dict[str, Any]) -> None:
        response = said.get("response")
        if response is not None:
            key = (str(said["subject"]), str(said["point"]), str(said["hook_id"]))
            self.responses[key] = str(response)

    def _at(
        self, ordinal: int, effect: str, name: str, request: str | None, arguments: str | None
    ) -> Past:
        found = self.calls.get(ordinal)
        if found is None:
            found = Past(ordinal, effect, name, str(request), str(arguments or request))
            self.calls[ordinal] = self._effects[effect] = found
        return found


def _go_on(past: Past, record: Record) -> None:
    said = record.payload
    if record.kind == "effect_result":
        past.result, past.result_pos = EffectResult.model_validate(said), record.pos
    elif record.kind == "effect_seen":
        past.seen = str(said["value"]) if said.get("value") else None
        if said.get("error"):
            past.seen_error = ErrorObject.model_validate(said["error"])
    elif record.kind == "effect_attempt":
        past.attempt, past.result = int(str(said["attempt"])), None
    else:
        past.released = int(str(said["attempt"]))


async def pasts_of(journal: Journal, stream: str, run_id: str, *, after: int) -> Pasts:
    """Every call of a run that is on record, from a position on."""
    found = Pasts()
    async for record in journal.read(stream, after=after):
        if record.run_id == run_id:
            found.add(record)
    return found


async def stored_json(journal: Journal, digest: str) -> Json:
    """A recorded value."""
    return json.loads(await journal.content(digest))


def mismatch(past: Past, name: str, *, then: Json, now: Json) -> OperatorError:
    """The refusal of a replay whose code asks for something else than it did."""
    return OperatorError(
        "REPLAY_MISMATCH",
        f"Call {past.ordinal} was `{past.name}` with {_short(then)}, and is `{name}` with {_short(now)}"
        " when the code is run again; nothing was done.",
        hint="The code, its inputs or the engine are not what they were. The record is unchanged.",
        effect_id=past.effect_id,
    )


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:200]}…"
