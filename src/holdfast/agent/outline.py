"""What a conversation is made of, without its words: who spoke, which call was answered, and the digests of bodies.

A record becomes a step, or nothing: most of what is on record is not part of the conversation. The fold
(`history.py`) goes over steps, so a conversation can be told from steps that were written down (`outlines.py`) as
well as from all of its records. No step holds what a body holds: what was erased is not in here, either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.contracts import EffectStatus, Record
from holdfast.contracts.hook import HookDecision, HookPoint
from holdfast.contracts.hook_response import ResponseClass

Step = list[Any]
"""Its name, then what the fold is told of it. `Any`: it is JSON, and each name has a layout of its own."""

BODIES: dict[str, tuple[int, ...]] = {
    "run": (2, 3),
    "agent": (1,),
    "said": (1,),
    "answer": (1,),
    "result": (4,),
    "told": (3,),
    "ran": (2,),
    "short": (1,),
}
"""Where each step has the digests of the bodies it is about."""

TOLD = frozenset((*BODIES, "notice", "end", "long"))
"""Steps that matter once a run is over; the others only say how far it came."""

CORRECTING = frozenset(("effect_seen", "hook"))
"""Kinds of records that can say something about an effect that is told at an earlier one."""

ENDS = frozenset(("run_completed", "run_failed", "run_cancelled"))
"""The last record of a run."""


def bodies_of(step: Step) -> Iterator[str]:
    """The digests of the bodies that a step is about."""
    for place in BODIES.get(step[0], ()):
        if step[place] is not None:
            yield step[place]


@dataclass(slots=True)
class Open:
    """What is under way between two records."""

    run_id: str | None = None
    """The newest run of an agent."""
    questions: dict[str, bool] = field(default_factory=dict[str, bool])
    """Questions to the model, by effect."""
    direct: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Calls of capabilities, by effect: the model's call, and the name."""
    programs: dict[str, str] = field(default_factory=dict[str, str])
    """The model's calls, by the run of code that answers each."""

    def effects(self) -> set[str]:
        """The effects among it."""
        return {*self.questions, *self.direct}


@dataclass(frozen=True, slots=True)
class Later:
    """What a later record says about an effect that is told at an earlier one."""

    seen: dict[str, dict[str, Any]]
    """What the model was shown in place of a result."""
    dropped: frozenset[str]
    """Answers that a hook wanted another one for."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Later:
        """Of these records."""
        seen: dict[str, dict[str, Any]] = {}
        dropped: set[str] = set()
        for one in records:
            if one.kind == "effect_seen":
                seen[str(one.effect_id)] = one.payload
            elif one.kind == "hook" and _drops(one):
                dropped.add(str(one.payload["subject"]))
        return cls(seen, frozenset(dropped))

    def about(self, effects: set[str]) -> bool:
        """Whether it is about none but these; what was told of another one before was told wrong."""
        return effects.issuperset((*self.seen, *self.dropped))


def _drops(record: Record) -> bool:
    """Whether a hook wanted another answer in place of the one it is about."""
    if record.payload["point"] != HookPoint.AFTER_MODEL_CALL:
        return False
    said: Any = record.payload["payload"]
    accepted = said.get("decision") == HookDecision.ACCEPTED
    return accepted and said["response_class"] == ResponseClass.REQUEST_RETRY


class Outlining:
    """Makes records into steps, one by one, in order."""

    def __init__(self, later: Later, before: Open | None = None) -> None:
        self._later = later
        self.open = before or Open()
        """How things stand after the newest record."""

    def step(self, record: Record) -> Step | None:
        """What a record says about the conversation, or `None`."""
        handler = _HANDLERS.get(record.kind)
        return None if handler is None else handler(self, record, record.payload)

    def started(self, record: Record, said: dict[str, Any]) -> Step | None:
        """A run of an agent, or of code that it wrote."""
        if said["kind"] == "agent":
            self.open.run_id = record.run_id
            asked = said.get("prompt"), said.get("actor"), said.get("account")
            return ["run", record.run_id, said["agent"], *asked]
        if not said.get("parent") or not record.run_id:
            return None
        self.open.programs[record.run_id] = str(said["call_id"])
        return ["code", str(said["call_id"]), record.run_id]

    def resumed(self, record: Record, said: dict[str, Any]) -> Step | None:
        """With another agent, or as it was."""
        mine = record.run_id == self.open.run_id and said.get("agent")
        return ["agent", said["agent"]] if mine else None

    def intended(self, record: Record, said: dict[str, Any]) -> Step | None:
        """A question, a call of the model's, or one of its code's."""
        effect = str(record.effect_id)
        if said["kind"] == "provider_request":
            if said.get("turn") is None:
                return None
            self.open.questions[effect] = True
            return ["asked", int(str(said["turn"]))]
        if said.get("call_id"):
            self.open.direct[effect] = [str(said["call_id"]), str(said["name"])]
        return None

    def happened(self, record: Record, said: dict[str, Any]) -> Step | None:
        """What came of an effect."""
        effect, status = str(record.effect_id), said["terminal_status"]
        unknown = status == EffectStatus.UNKNOWN  # then somebody may find out later
        take = dict[str, Any].get if unknown else dict[str, Any].pop
        question = take(self.open.questions, effect, None)
        call = take(self.open.direct, effect, None)
        if effect in self._later.dropped:
            return None
        if question is not None:
            refs = said.get("content_refs")
            return ["answer", refs[0] if refs else None, status]
        if call is None or unknown:
            return None
        error, digest = said.get("error"), None
        shown = self._later.seen.get(effect)
        if shown is not None:
            error = shown.get("error")
        elif said.get("hooked"):
            return None  # hooks have not let go of it: nobody was told
        if error is None:
            digest = shown["value"] if shown is not None else said["content_refs"][0]
        return ["result", effect, *call, digest, error]

    def ended(self, record: Record, said: dict[str, Any]) -> Step | None:
        """A run of an agent, or of its code."""
        run_id: str = record.run_id or ""
        start: dict[str, Any] = said.get("start") or {}
        if run_id == self.open.run_id:
            return ["end"]
        call_id = self.open.programs.pop(run_id, None) or start.get("call_id")
        if call_id is None:
            return None
        result = said.get("result")
        failed = (None, None) if result else (str(said["status"]), said["error"])
        return ["ran", str(call_id), result or None, *failed]


def _said(_: Outlining, __: Record, said: dict[str, Any]) -> Step:
    return ["said", str(said["content"]), said.get("purpose")]


def _told(_: Outlining, __: Record, said: dict[str, Any]) -> Step:
    wrong = bool(said.get("is_error", False))
    return ["told", str(said["call_id"]), str(said["name"]), str(said["content"]), wrong]


_HANDLERS: dict[str, Callable[[Outlining, Record, dict[str, Any]], Step | None]] = {
    "run_started": Outlining.started,
    "run_resumed": Outlining.resumed,
    "run_prompted": _said,
    "notice_given": lambda _, __, said: ["notice", str(said["text"])],
    "effect_intent": Outlining.intended,
    "effect_result": Outlining.happened,
    "tool_answered": _told,
    **dict.fromkeys(ENDS, Outlining.ended),
    "model_switched": lambda _, __, said: ["model", str(said["after"])],
    "context_compacted": lambda _, __, said: ["short", str(said["summary"]), int(said["upto"])],
    "context_restored": lambda _, __, ___: ["long"],
}
