"""A run of an agent as a row of beats that can be held against another: what was said, answered, called, shown.

Names that are new each time (runs, effects, calls), times and what things cost are not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

from holdfast.agent._tape import TapedCall, is_prompt, is_question
from holdfast.agent.history import History, steps_of
from holdfast.contracts import EffectStatus, Json, Record
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.message import AssistantMessage, Message, ToolMessage
from holdfast.errors import CallerError
from holdfast.gate.past import Past, Pasts, stored_json
from holdfast.journal import Journal

Kind = Literal[
    "prompt", "message", "question", "failure", "answer", "policy", "call", "result", "end"
]
"""`prompt`: what the run is to do; `message`: what was said to it since; `question`: what the model is told beside
the conversation; `failure`: an attempt to ask it; `answer`: what it said; `policy`, `call`: of one effect;
`result`: what the model was shown; `end`: how the run ended."""


class Beat(NamedTuple):
    """One thing that happened in a run."""

    kind: Kind
    turn: int
    """How many questions there were."""
    name: str | None
    """The tool or the capability, where it is about one."""
    text: str
    """What is compared."""
    note: str = ""
    """What is shown beside it."""
    outside: bool = False
    """Whether it followed from what no replay has: somebody stopped the program, or the run."""


Verdict = Callable[[TapedCall], tuple[str, str]]
"""What policy says about a call, and the rule."""


async def beats_of(
    journal: Journal, session_id: str, run_id: str, *, verdict: Verdict | None = None
) -> list[Beat]:
    """A run, from its start as far as it came; with `verdict`, also what policy says about each call."""
    reading = _Reading(journal, run_id, verdict)
    async for record, history in steps_of(journal, session_id):
        await reading.add(record, history)
    return reading.beats


class _Reading:
    def __init__(self, journal: Journal, run_id: str, verdict: Verdict | None) -> None:
        self.beats: list[Beat] = []
        self._journal = journal
        self._run_id = run_id
        self._verdict = verdict
        self._own = Pasts()
        self._programs: dict[str, tuple[str, Pasts]] = {}
        self._seen = 0
        self._turn = 0
        self._questions: dict[str, Past] = {}
        self._told: set[int] = set()

    async def add(self, record: Record, history: History) -> None:
        said, run_id = record.payload, record.run_id
        start = said.get("start") or said
        if isinstance(start, dict) and start.get("parent") == self._run_id and run_id:
            self._programs[run_id] = (str(start.get("call_id")), Pasts())
        if run_id in self._programs:
            self._programs[run_id][1].add(record)
        if run_id == self._run_id:
            self._own.add(record)
            await self._asked(record)
        await self._spoken(record, history)
        if run_id == self._run_id and record.kind in (
            "run_completed",
            "run_failed",
            "run_cancelled",
        ):
            await self._ended(record)

    async def _asked(self, record: Record) -> None:
        """What the model is told beside the conversation, and attempts that failed."""
        said = cast("dict[str, Any]", record.payload)
        if record.kind == "effect_intent" and said.get("turn") is not None:
            past = self._own.calls[int(said["ordinal"])]
            self._questions[past.effect_id] = past
        elif record.kind == "effect_result" and str(said["effect_id"]) in self._questions:
            # Only now: one that a process died over, or that was cut off, is asked again.
            if said["terminal_status"] == EffectStatus.CANCELLED:
                return
            past = self._questions[str(said["effect_id"])]
            assert past.intent is not None
            if (past.intent.turn or 0) > self._turn:
                self._turn = past.intent.turn or 0
                told = await self._json(past.arguments)
                self._beat("question", None, _pretty(told))
            error = said.get("error")
            if error is not None and said["terminal_status"] != EffectStatus.COMPLETED:
                self._beat("failure", None, f"{error['code']}: {error['message']}")

    async def _spoken(self, record: Record, history: History) -> None:
        """Messages that the record added to the conversation."""
        new = history.originals[self._seen :]
        self._seen = len(history.originals)
        if history.run_id != self._run_id:
            return
        prompts = is_prompt(record, first=not self._turn)
        ends = record.run_id == self._run_id and record.kind in ("run_failed", "run_cancelled")
        for message in new:
            await self._message(message, prompts=prompts)
            if record.kind == "run_cancelled" or ends:
                self.beats[-1] = self.beats[-1]._replace(outside=True)

    async def _message(self, message: Message, *, prompts: bool) -> None:
        if isinstance(message, AssistantMessage):
            self._beat("answer", None, _answer(message))
        elif isinstance(message, ToolMessage):
            await self._effects(message.call_id)
            wrong = "error: " if message.is_error else ""
            self._beat("result", message.name, f"{wrong}{message.text}")
        else:
            self._beat("prompt" if prompts else "message", None, message.text)

    async def _effects(self, call_id: str) -> None:
        """The calls that were made to answer one of the model's, in their order."""
        own = [one for one in self._own.calls.values() if one.call_id == call_id]
        inside = [
            one for id_, pasts in self._programs.values() if id_ == call_id
            for one in pasts.calls.values()
        ]  # fmt: skip
        for past in sorted((*own, *inside), key=lambda one: one.ordinal):
            if is_question(past) or id(past) in self._told:
                continue
            self._told.add(id(past))
            if self._verdict is not None:
                said, rule = self._verdict(TapedCall(past, call_id, None))
                self._beat("policy", past.name, said, rule)
            self._beat("call", past.name, await self._call(past))

    async def _call(self, past: Past) -> str:
        asked = _pretty(await self._json(past.arguments))
        return f"{past.name}({asked})\n→ {await self._outcome(past)}"

    async def _outcome(self, past: Past) -> str:
        result = past.result
        error = past.seen_error or (result.error if result is not None else None)
        if result is None:
            return "no result"
        if error is not None:
            return f"{error.code}: {error.message}"
        name = past.seen or (result.content_refs[0] if result.content_refs else None)
        return "nothing" if name is None else _pretty(await self._json(name))

    async def _ended(self, record: Record) -> None:
        said = record.payload
        if not said.get("result"):
            self._beat("end", None, record.kind)
            return
        found: Any = await self._json(str(said["result"]))
        result = AgentResult.model_validate(found)
        told: dict[str, Json] = {"status": result.status, "output": result.output}
        if result.output_error is not None:
            told["output_error"] = result.output_error
        if result.error is not None:
            told["error"] = f"{result.error.code}: {result.error.message}"
        self._beat("end", None, _pretty(told))

    def _beat(self, kind: Kind, name: str | None, text: str, note: str = "") -> None:
        self.beats.append(Beat(kind, self._turn, name, text, note))

    async def _json(self, name: str) -> Json:
        try:
            return await stored_json(self._journal, name)
        except CallerError:
            return {"not kept": name}


def _answer(message: AssistantMessage) -> str:
    """What a model said and wanted; what it thought is its own affair."""
    parts: list[str] = []
    for part in message.parts:
        if part.kind == "text":
            parts.append(part.text)
        elif part.kind == "tool_call":
            code = part.arguments.get("code")
            if part.malformed is not None:
                parts.append(f"{part.name}: {part.malformed}")
            elif set(part.arguments) == {"code"} and isinstance(code, str):
                parts.append(f"{part.name}:\n{code}")
            else:
                parts.append(f"{part.name}({_pretty(part.arguments)})")
    return "\n".join(parts)


def _pretty(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
