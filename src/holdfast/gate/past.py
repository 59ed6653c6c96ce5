"""What the journal knows of the calls of a run: what was asked, decided, intended, done."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.contracts import (
    ApprovalRequest,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    ErrorObject,
    Json,
    Record,
)
from holdfast.contracts.approval import Asks
from holdfast.contracts.payload import ApprovalSettled
from holdfast.errors import OperatorError
from holdfast.journal import Journal


@dataclass(slots=True)
class Asked:
    """A question that a call had for a person."""

    request: ApprovalRequest
    settled: ApprovalSettled | None = None
    """That the run has taken note of its end, and what that was."""


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
    questions: list[Asked] = field(default_factory=list[Asked])
    """What it asked people once it was let through, in order."""
    question: Asked | None = None
    """The one it waits for: nothing was done, and nothing is before somebody answers."""
    besides: list[Past] = field(default_factory=lambda: list[Past]())
    """What was done on its behalf while it was under way, in order."""

    @property
    def call_id(self) -> str | None:
        """The model's call that it answers."""
        said = self.intent or self.approval
        return None if said is None else said.call_id

    @property
    def turn(self) -> int | None:
        """The turn of the conversation that it is a question of."""
        return None if self.intent is None else self.intent.turn

    @property
    def asks_model(self) -> bool:
        """Whether it is a question to a model that was on its way."""
        return self.intent is not None and self.intent.kind is EffectKind.PROVIDER_REQUEST

    @property
    def unanswered(self) -> list[ApprovalRequest]:
        """Whatever was asked on its behalf, and of whose end the run has not taken note."""
        found = [one.request for one in self.questions if one.settled is None]
        if self.approval is not None and not self.settled:
            found.append(self.approval)
        return [*found, *(one for past in self.besides for one in past.unanswered)]

    @property
    def unseen(self) -> bool:
        """Whether hooks were to look at its result before anybody else does, and nobody knows what they left of it."""
        looked = self.seen is not None or self.seen_error is not None
        return self.result is not None and self.result.hooked and not looked

    @property
    def by_word(self) -> bool:
        """Whether a person has said what it gave."""
        return self.result is not None and self.result.resolved == "happened"

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
                self._settled(ApprovalSettled.model_validate(said))
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
        past = self._past(said.effect_id, said.beside, said.ordinal, said.tool)
        if past is None:
            return
        past.arguments = past.arguments or said.arguments
        past.request = past.request or str(said.request)
        self._approvals[said.id] = past
        if said.asks is Asks.CONSENT:
            past.approval = said
            return
        past.questions.append(Asked(said))
        if not said.during:
            past.question = past.questions[-1]

    def _settled(self, said: ApprovalSettled) -> None:
        past = self._approvals.get(said.id)
        if past is None:
            return
        for one in past.questions:
            if one.request.id == said.id:
                one.settled = said
                return
        past.settled = True

    def _intended(self, said: EffectIntent) -> None:
        past = self._past(said.effect_id, said.beside, said.ordinal, said.name)
        if past is not None:
            arguments = said.content_refs[0] if said.content_refs else said.request
            past.intent, past.arguments = said, str(arguments)
            past.request = past.request or str(said.request)

    def _hooked(self, said: dict[str, Any]) -> None:
        response = said.get("response")
        if response is not None:
            key = (str(said["subject"]), str(said["point"]), str(said["hook_id"]))
            self.responses[key] = str(response)

    def _past(self, effect: str, beside: str | None, ordinal: int | None, name: str) -> Past | None:
        """The call, or what was done beside one; `None` for an effect that is neither."""
        found = self._effects.get(effect)
        if found is not None:
            return found
        parent = None if beside is None else self._effects.get(beside)
        if parent is not None:
            found = Past(parent.ordinal, effect, name, "", "")
            parent.besides.append(found)
        elif ordinal is not None:
            found = self.calls[ordinal] = Past(ordinal, effect, name, "", "")
        else:
            return None
        self._effects[effect] = found
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
        past.question = None
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
