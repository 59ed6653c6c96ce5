"""The structured output of a run: taken from its answer where that fits, else asked for, and judged."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.inbox import message_body
from holdfast.agent.output import Again, Good, Reading, Repairs, Stopped, read, tool_calls_instead
from holdfast.agent.work import Work
from holdfast.contracts import Body, Draft, Json, canonical_json
from holdfast.contracts.agent import OutputChecked, RunPrompted
from holdfast.contracts.message import AssistantMessage, ToolCallPart
from holdfast.contracts.model import ModelAnswer, ModelRequest, ModelSettings
from holdfast.machines.texts import EXTRACTION_PROMPT, extraction_retry


class Extracting:
    """Of one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        output = work.output
        self._repairs = (
            None if output is None else Repairs(output, allowed=work.spec.output_retries)
        )
        self.value: Json = None
        """The output, once it fits."""
        self.reading: Reading | None = None
        """The same, as the caller's type."""
        self.error: str | None = None
        """Why there is none."""
        self.partial: str | None = None
        """The last answer that did not fit."""
        self.stopped = False
        """Whether asking again would not help."""
        self._message: str | None = None
        self._unfit: str | None = None

    async def fits(self, message: object) -> bool:
        """Whether the answer of the run itself is what was wanted: then nobody need be asked again."""
        if self._work.output is None or not isinstance(message, AssistantMessage):
            return False
        reading = read(message.text, self._work.output, cut=self._work.transcript.cut)
        if not reading.ok or reading.repaired:
            return False
        guards = self._work.guards
        if guards.active:
            await guards.before_validation(message.text, 0, told=False)
            reading = await guards.after_validation(reading, 0, told=False)
            if not reading.ok:
                self._unfit = reading.error
                return False
        self._good(reading, attempt=1)
        return True

    def ask(self) -> None:
        """Put the request for it into the conversation."""
        self._work.main_text = self._work.transcript.last_text
        wrong = f"\n\n{extraction_retry(self._unfit)}" if self._unfit is not None else ""
        self._prompt(f"{EXTRACTION_PROMPT}{wrong}", "extraction")

    @property
    def request(self) -> ModelRequest:
        """The question: no tools, no chance, and the shape."""
        if self._message is not None:
            message, self._message = self._message, None
            self._prompt(message, "repair")
        work = self._work
        assert work.output is not None
        own = work.spec.settings
        kept = {k: v for k, v in own.extra.items() if k not in ("web_search", "google_search")}
        settings = ModelSettings(
            temperature=0.0, max_tokens=own.max_tokens, timeout_ms=own.timeout_ms, extra=kept
        )
        return ModelRequest(
            messages=work.transcript.messages,
            instructions=work.spec.instructions.strip(),
            output=work.output.spec,
            settings=settings,
            answered=work.transcript.answers if work.transcript.shortened else None,
            attempt=1,
        )

    async def judge(self) -> str | None:
        """Hold the newest answer against the shape: what is wrong with it, or `None`."""
        last = self._work.transcript.messages[-1]
        assert isinstance(last, AssistantMessage)
        if last.calls:  # its process died before that ended the run
            self.stopped, self.error = True, self.calls_instead(last.calls)
            return self.error
        return await self.judged(last.text, cut=self._work.transcript.cut)

    async def judged(self, text: str, *, cut: bool, told: bool = False) -> str | None:
        """The same for an answer that is at hand; `cut`: its end may be missing; `told`: the verdict is on record."""
        assert self._repairs is not None
        work = self._work
        assert work.output is not None
        guards, attempt, hints = work.guards, self._repairs.attempts + 1, list[str]()
        if guards.active:
            hints = await guards.before_validation(text, attempt, told=told)
        reading = read(text, work.output, cut=cut)
        if guards.active:
            reading = await guards.after_validation(reading, attempt, told=told)
        self._repairs, verdict = self._repairs.judge(reading)
        match verdict:
            case Good():
                self._good(verdict.reading, attempt=attempt, told=told)
                return None
            case Again():
                self._message = "\n\n".join((verdict.message, *hints))
            case Stopped():
                self.stopped = True
        self.partial = text
        self.error = reading.error or "the output does not fit"
        if not told:
            stop = verdict.reason if isinstance(verdict, Stopped) else None
            errors = tuple(one.message[:300] for one in reading.faults)
            self._tell(OutputChecked(attempt=attempt, valid=False, errors=errors, stop=stop))
        return self.error

    def calls_instead(self, calls: Sequence[ToolCallPart]) -> str:
        """What is wrong with an answer that wants tools."""
        return tool_calls_instead([call.name for call in calls])

    async def restore(self, candidates: Sequence[ModelAnswer]) -> None:
        """Judge answers again that are on record, unless nobody wants them any more."""
        if self._repairs is None:
            return
        for answer in candidates:
            await self.judged(answer.message.text, cut=answer.finish == "length", told=True)
            self._message = None

    def _good(self, reading: Reading, *, attempt: int, told: bool = False) -> None:
        self.reading, self.value, self.error, self.partial = reading, reading.json, None, None
        if told:
            return
        body = Body.of(canonical_json(reading.json), role="output", mime="application/json")
        said = OutputChecked(
            attempt=attempt, valid=True, repaired=reading.repaired, value=body.ref.digest
        )
        self._tell(said, body)

    def _prompt(self, text: str, purpose: str) -> None:
        work = self._work
        body = message_body(text, notice=True)
        said = RunPrompted(content=body.ref.digest, purpose=purpose)
        work.desk.hold([Draft.of(said, run_id=work.run_id, bodies=(body,))], durable=False)
        work.transcript.user(text, notice=True)

    def _tell(self, said: OutputChecked, *bodies: Body) -> None:
        work = self._work
        work.desk.hold([Draft.of(said, run_id=work.run_id, bodies=bodies)], durable=False)
