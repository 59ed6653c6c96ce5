"""One run as a story: its records, folded into steps. A pure function of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.contracts import Record
from holdfast.journal.log import READABLE
from holdfast.server.console.glimpses import GLIMPSES, glimpse
from holdfast.server.console.steps import (
    OPEN,
    Lane,
    Mark,
    Part,
    Program,
    Step,
    Timeline,
    facts_of,
    number,
    parts_of,
)

ENDS = {"run_completed": "completed", "run_failed": "failed", "run_cancelled": "cancelled"}
_STATUS = {"denied_before_execution": "denied", "unknown": "in_doubt"}
_HIDDEN = frozenset({"approval_dispatch", "hook_mutation"})
"""Effects that other records tell better."""
_HOW = {
    "state": "goes on where it stood",
    "replay": "run again, with the answers on record",
}
_MODEL = frozenset({"provider_request"})


def timeline(run_id: str, records: Iterable[Record], *, now: int, cut: bool = False) -> Timeline:
    """The story of a run. `records` are those of the run and of the code it wrote, in order."""
    fold = _Fold(run_id)
    for record in records:
        fold.add(record)
    return fold.told(now, cut=cut)


@dataclass(slots=True)
class _Fold:
    run_id: str
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    programs: list[Program] = field(default_factory=list[Program])
    seqs: list[int] = field(default_factory=list[int])
    times: list[int] = field(default_factory=list[int])
    start: int = 0
    end: int = 0
    over: bool = False
    prompt: Part | None = None
    agent: Part | None = None
    running: dict[str, str] = field(default_factory=dict[str, str])
    """Run → the step of its code that is under way."""

    def add(self, record: Record) -> None:
        self.seqs.append(record.seq)
        self.times.append(record.time)
        self.start = self.start or record.time
        self.end = max(self.end, record.time)
        said = record.payload if record.privacy in READABLE else {}
        match record.kind:
            case "run_started":
                self._started(record, said)
            case "run_completed" | "run_failed" | "run_cancelled":
                self._ended(record, said)
            case "run_parked":
                self._parked(record, said)
            case "run_resumed":
                self._resumed(record, said)
            case "effect_intent":
                self._intended(record, said)
            case "effect_result" | "effect_attempt" | "effect_released" | "effect_seen":
                self._moved(record, said)
            case "approval_requested" | "approval_settled" | "approval_ended":
                self._approval(record, said)
            case "hook":
                self._hook(record, said)
            case kind:
                if (tell := GLIMPSES.get(kind)) is not None:
                    self._put(tell(record, said))

    def told(self, now: int, *, cut: bool) -> Timeline:
        end = self.end if self.over else max(now, self.end)
        steps = sorted(self.steps.values(), key=lambda one: (one.seq, one.key))
        return Timeline(
            self.run_id, tuple(steps), tuple(self.programs), tuple(self.seqs), tuple(self.times),
            self.start, end,
            self.prompt, self.agent, cut,
        )  # fmt: skip

    def _put(self, step: Step) -> None:
        self.steps[step.key] = step

    def _turn(self, key: str, record: Record, status: str, **more: Any) -> None:
        """A step has another status from this record on."""
        step = self.steps.get(key)
        if step is None:
            return
        end = None if status in OPEN else record.time
        marks = (*step.marks, Mark(record.seq, record.time, status))
        self._put(replace(step, marks=marks, **{"end": end, **more}))

    # -- runs -----------------------------------------------------------------------------------------

    def _started(self, record: Record, said: Mapping[str, Any]) -> None:
        run = str(record.run_id)
        if run == self.run_id:
            parts = parts_of(record)
            self.prompt = next((one for one in parts if one.role == "message"), None)
            self.agent = next((one for one in parts if one.role == "agent"), None)
        if said.get("kind", "code") != "code":
            return
        code = next((one for one in parts_of(record) if one.role == "code"), None)
        self.programs.append(
            Program(
                run, code.digest if code else None, str(said.get("language", "python")),
                record.seq, said.get("call_id"),
            )
        )  # fmt: skip
        self._compute(record, run)

    def _compute(self, record: Record, run: str, how: str = "") -> None:
        key = f"{run}.{record.seq}"
        self.running[run] = key
        marks = (Mark(record.seq, record.time, "running"),)
        summary = _HOW.get(how, "from its start")
        self._put(Step(key, "code", "code", "code", run, record.time, None, marks, summary=summary))

    def _ended(self, record: Record, said: Mapping[str, Any]) -> None:
        run, status = str(record.run_id), ENDS[record.kind]
        start: Mapping[str, Any] | None = said.get("start")
        if start is not None:  # a short run is one record
            self._started(record, start)
            took = number(said.get("metrics", {}).get("duration_ms"))
            self.start = min(self.start, record.time - took)
            self._begin_at(self.running.get(run), record.time - took)
        if run == self.run_id:
            self.over = True
        self._stop_waiting(record, run)
        key = self.running.pop(run, None)
        parts = [one for one in parts_of(record) if one.role == "result"]
        if key is not None:
            error = said.get("error")
            self._turn(key, record, status, error=error, parts=tuple(parts))
        elif run == self.run_id and status != "completed":
            self._put(glimpse(record, "code", "run", status, status, error=said.get("error")))
        self._leave_open(record, run, status)

    def _begin_at(self, key: str | None, time: int) -> None:
        if key is not None and key in self.steps:
            self._put(replace(self.steps[key], start=time))

    def _leave_open(self, record: Record, run: str, status: str) -> None:
        """What was under way when its run ended is not under way any more."""
        for key, step in [*self.steps.items()]:
            if step.run_id == run and step.status in ("open", "waiting"):
                self._turn(key, record, "cancelled" if status == "cancelled" else "left")

    def _parked(self, record: Record, said: Mapping[str, Any]) -> None:
        run = str(record.run_id)
        key = self.running.pop(run, None)
        if key is not None:
            self._turn(key, record, "parked")
        if run != self.run_id:
            return  # the agent's own wait tells
        why = str(said.get("status", "waiting"))
        marks = (Mark(record.seq, record.time, "waiting"),)
        error: Any = said.get("error") or {}
        summary = str(error.get("message", ""))
        self._put(
            Step(
                f"wait.{record.seq}", "wait", "wait", why, run, record.time, None, marks,
                summary=summary,
            )
        )  # fmt: skip

    def _resumed(self, record: Record, said: Mapping[str, Any]) -> None:
        run = str(record.run_id)
        self._stop_waiting(record, run)
        if any(one.run_id == run for one in self.programs):
            if (before := self.running.pop(run, None)) is not None:
                self._turn(before, record, "interrupted")  # its process died
            self._compute(record, run, str(said.get("how", "")))

    def _stop_waiting(self, record: Record, run: str) -> None:
        for key, step in [*self.steps.items()]:
            if step.lane == "wait" and step.run_id == run and step.status == "waiting":
                self._turn(key, record, "done")

    # -- effects --------------------------------------------------------------------------------------

    def _intended(self, record: Record, said: Mapping[str, Any]) -> None:
        kind = str(said.get("kind", "effect"))
        if kind in _HIDDEN or record.effect_id is None:
            return
        lane: Lane = "model" if kind in _MODEL else "effect"
        step = Step(
            key=record.effect_id,
            lane=lane,
            kind=kind,
            name=str(said.get("name", record.effect_id)).removeprefix("model:"),
            run_id=str(record.run_id),
            start=record.time,
            end=None,
            marks=(Mark(record.seq, record.time, "open"),),
            ordinal=said.get("ordinal"),
            line=said.get("line"),
            turn=said.get("turn"),
            summary=str(said.get("redacted_summary", "")),
            rules=tuple(map(str, said.get("policy_refs", ()))),
            approval_id=said.get("approval_id"),
            grant_id=said.get("grant_id"),
            facts=facts_of(said),
            parts=parts_of(record),
        )
        self._put(step)

    def _moved(self, record: Record, said: Mapping[str, Any]) -> None:
        step = self.steps.get(record.effect_id or "")
        if step is None:
            return
        match record.kind:
            case "effect_result":
                self._result(step, record, said)
            case "effect_attempt":
                attempt = number(said.get("attempt")) or step.attempts + 1
                self._turn(step.key, record, "open", attempts=attempt)
            case "effect_released":
                who = str(said.get("actor") or record.actor)
                facts = (*step.facts, ("tried again by", who))
                self._turn(step.key, record, "open", facts=facts)
            case _:
                if said.get("rewritten"):
                    facts = (*step.facts, ("result", "rewritten by a hook"))
                    self._put(replace(step, facts=facts, parts=(*step.parts, *parts_of(record))))

    def _result(self, step: Step, record: Record, said: Mapping[str, Any]) -> None:
        told = str(said.get("terminal_status", "completed"))
        usage: Mapping[str, Any] = said.get("usage") or {}
        spent: Mapping[str, Any] = said.get("spent") or {}
        cost = usage.get("cost_micros", spent.get("cost_micros"))
        took = said.get("duration_ms")
        # Of what changes nothing, the intent is written together with the result: the duration says when it began.
        start = step.start if took is None else min(step.start, record.time - number(took))
        facts = step.facts
        if (how := said.get("resolved")) is not None:
            facts = (*facts, ("resolved", f"{str(how).replace('_', ' ')}, says {record.actor}"))
        if (other := said.get("external_operation_id")) is not None:
            facts = (*facts, ("their name for it", str(other)))
        self._turn(
            step.key,
            record,
            _STATUS.get(told, told),
            start=max(start, self.start),
            cost_micros=step.cost_micros + number(cost),
            input_tokens=step.input_tokens + number(usage.get("input_tokens")),
            output_tokens=step.output_tokens + number(usage.get("output_tokens")),
            error=said.get("error"),
            facts=facts,
            parts=(*step.parts, *parts_of(record)),
            end=record.time,
        )

    # -- people and hooks -----------------------------------------------------------------------------

    def _approval(self, record: Record, said: Mapping[str, Any]) -> None:
        key = str(said.get("id", record.seq))
        if record.kind != "approval_requested":
            status, decision = str(said.get("status", "ended")), said.get("decision")
            step = self.steps.get(key)
            if step is not None and step.status == "waiting":
                self._turn(key, record, status, decision=decision)
            return
        asks = str(said.get("asks", "consent"))
        self._put(
            Step(
                key=key,
                lane="approval",
                kind={"consent": "approval", "input": "question"}.get(asks, asks),
                name=str(said.get("tool", "")),
                run_id=str(record.run_id),
                start=record.time,
                end=None,
                marks=(Mark(record.seq, record.time, "waiting"),),
                ordinal=said.get("ordinal"),
                line=said.get("line"),
                summary=str(said.get("summary", "")),
                rules=(str(said["rule"]),) if said.get("rule") else (),
                subject=said.get("effect_id"),
                facts=facts_of(said),
                parts=parts_of(record),
            )
        )

    def _hook(self, record: Record, said: Mapping[str, Any]) -> None:
        inner: Mapping[str, Any] = said.get("payload") or {}
        kind = str(inner.get("type", ""))
        if kind == "registered":
            return
        status = "failed" if kind in ("failed", "timed_out") else kind
        if kind == "response_decision":
            accepted = str(inner.get("decision", "")).startswith("accepted")
            status = "completed" if accepted else "denied"
        answer = str(inner.get("response_class") or kind).replace("_", " ")
        point = str(said.get("point", "")).replace("_", " ")
        subject = said.get("subject")
        step = glimpse(
            record, "hook", "hook", str(said.get("hook_id", "hook")), status,
            summary=str(inner.get("redacted_summary") or answer), subject=subject,
            facts=(("at", point), ("answer", answer)), parts=parts_of(record),
        )  # fmt: skip
        self._put(replace(step, start=record.time - number(inner.get("elapsed_ms"))))
