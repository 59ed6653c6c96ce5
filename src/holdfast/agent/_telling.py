"""What each record of an agent's run says to those who watch it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from holdfast.agent._bodies import Bodies
from holdfast.agent._telling_alone import ALONE, at
from holdfast.agent.calls import direct_view
from holdfast.agent.output import Output, Partial
from holdfast.agent.tools import RUN_CODE
from holdfast.agent.view import run_view
from holdfast.contracts import EffectKind, EffectStatus, ErrorObject, Record, RunResult
from holdfast.contracts import agent_event as e
from holdfast.contracts.agent import AgentResult, AgentSpec
from holdfast.contracts.model import ModelAnswer
from holdfast.journal import Journal

_UNTOLD = frozenset((EffectKind.APPROVAL_DISPATCH, EffectKind.HOOK_MUTATION))
"""Effects of holdfast's own: what they are for is told by other events."""


class _Effect(NamedTuple):
    """What is known of an effect."""

    kind: str
    name: str
    turn: int | None
    call_id: str | None
    side_effect: str
    arguments: str | None
    """By digest."""


class Telling:
    """Takes the records of a session in, from the start of a run; tells those that are about it."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.question: e.TurnStarted | None = None
        """The one that is being answered."""
        self._journal = journal
        self._bodies = Bodies(journal)
        self._run_id = run_id
        self._spec: AgentSpec | None = None
        self._effects: dict[str, _Effect] = {}
        self._attempts: dict[int, int] = {}
        self._programs: dict[str, str] = {}
        self._tell: dict[str, Callable[[Record], Awaitable[e.AgentEvent | None]]] = {
            "run_started": self._started,
            "run_completed": self._ended,
            "run_failed": self._ended,
            "run_cancelled": self._ended,
            "run_parked": self._parked,
            "run_resumed": self._resumed,
            "effect_intent": self._intent,
            "effect_attempt": self._attempt,
            "effect_result": self._result,
            "effect_seen": self._seen,
        }

    def closes(self, record: Record) -> bool:
        """Whether a record is the answer that is being given, or that there will be none."""
        asked = self.question
        if asked is None or record.kind != "effect_result":
            return False
        return record.effect_id == asked.effect_id

    async def tell(self, record: Record) -> e.AgentEvent | None:
        """The event of a record; `None` when it says nothing about the run that is watched."""
        alone = ALONE.get(record.kind)
        if alone is not None:
            return await alone(record, self._bodies) if self._is_ours(record) else None
        tell = self._tell.get(record.kind)
        if tell is None or not self._is_ours(record):
            return None
        return await tell(record)

    def partial(self) -> Partial | None:
        """Reads the structured output of an answer as it comes; `None` when none is wanted."""
        if self._spec is None or self._spec.output is None:
            return None
        return Partial(Output.restored(self._spec.output))

    def _is_ours(self, record: Record) -> bool:
        if record.run_id == self._run_id or record.run_id in self._programs:
            return True
        start = record.payload if record.kind == "run_started" else record.payload.get("start")
        return isinstance(start, dict) and start.get("parent") == self._run_id

    # -- the run --------------------------------------------------------------------------------------

    async def _started(self, record: Record) -> e.AgentEvent:
        said = record.payload
        if record.run_id != self._run_id:
            call_id = self._programs[str(record.run_id)] = str(said["call_id"])
            return e.Code(
                call_id=call_id, code=await self._bodies.text(said.get("code")), **at(record)
            )
        spec = self._spec = await self._agent(said.get("agent"))
        prompt: Any = await self._bodies.json(said.get("prompt")) or {}
        return e.RunStarted(
            session_id=record.stream,
            agent=spec.name if spec else "agent",
            model=spec.model if spec else "",
            prompt=str(prompt.get("text", "")),
            **at(record),
        )

    async def _ended(self, record: Record) -> e.AgentEvent:
        if record.run_id == self._run_id:
            self.question = None
            return e.RunEnded(result=await self._outcome(record), **at(record))
        said, start = record.payload, record.payload.get("start")
        call_id = self._programs.get(str(record.run_id))
        if call_id is None and isinstance(start, dict):
            call_id = str(start.get("call_id"))
        found: Any = await self._bodies.json(said.get("result"))
        if found is None:
            status = said.get("status") or "ok"
            found = {"status": status, "error": said.get("error"), "run_id": record.run_id}
        result = RunResult.model_validate(found)
        text, wrong = run_view(result, limit=self._limit)
        return e.ToolResult(
            call_id=str(call_id),
            name=RUN_CODE,
            text=text,
            is_error=wrong,
            status=result.status.value,
            **at(record),
        )

    async def _parked(self, record: Record) -> e.AgentEvent | None:
        if record.run_id != self._run_id:
            return None  # the code stands; that its agent does, too, is told next
        self.question = None
        return e.RunParked(result=await self._outcome(record), **at(record))

    async def _outcome(self, record: Record) -> AgentResult:
        """What the run's caller got."""
        found: Any = await self._bodies.json(record.payload.get("result"))
        if found is not None:
            return AgentResult.model_validate(found)
        row: dict[str, Any] = await self._journal.row("runs", self._run_id) or {}
        status = record.payload.get("status") if record.kind == "run_parked" else None
        return AgentResult.model_validate(
            {
                "run_id": self._run_id,
                "session_id": record.stream,
                "status": status or record.kind.removeprefix("run_"),
                "error": record.payload.get("error"),
                "usage": row.get("usage") or {},
            }
        )

    async def _resumed(self, record: Record) -> e.AgentEvent | None:
        if record.run_id != self._run_id:
            return None
        if record.payload.get("agent"):
            self._spec = await self._agent(record.payload["agent"]) or self._spec
        return e.RunResumed(reason=str(record.payload["reason"]), **at(record))

    # -- effects --------------------------------------------------------------------------------------

    async def _intent(self, record: Record) -> e.AgentEvent | None:
        said: dict[str, Any] = record.payload
        refs = said.get("content_refs") or ()
        effect = _Effect(
            said["kind"],
            said["name"],
            said.get("turn"),
            said.get("call_id"),
            said.get("side_effect", "none"),
            str(refs[0]) if refs else None,
        )
        self._effects[str(record.effect_id)] = effect
        return await self._begins(record, effect)

    async def _attempt(self, record: Record) -> e.AgentEvent | None:
        effect = self._effects.get(str(record.effect_id))
        if effect is None:
            return None
        return await self._begins(record, effect, int(str(record.payload["attempt"])))

    async def _begins(
        self, record: Record, effect: _Effect, attempt: int = 1
    ) -> e.AgentEvent | None:
        effect_id = str(record.effect_id)
        if effect.kind == EffectKind.PROVIDER_REQUEST:
            if effect.turn is None:
                return None  # about the conversation, not part of it
            count = self._attempts[effect.turn] = self._attempts.get(effect.turn, 0) + 1
            self.question = e.TurnStarted(
                turn=effect.turn,
                attempt=count,
                model=effect.name.removeprefix("model:"),
                effect_id=effect_id,
                **at(record),
            )
            return self.question
        if effect.kind in _UNTOLD:
            return None
        return e.EffectStarted(
            effect_id=effect_id,
            name=effect.name,
            arguments=await self._bodies.json(effect.arguments),
            side_effect=effect.side_effect,
            attempt=attempt,
            call_id=effect.call_id,
            **at(record),
        )

    async def _result(self, record: Record) -> e.AgentEvent | None:
        said: dict[str, Any] = record.payload
        effect = self._effects.get(str(record.effect_id))
        if effect is None or effect.kind in _UNTOLD:
            return None
        if effect.kind == EffectKind.PROVIDER_REQUEST:
            return None if effect.turn is None else await self._answer(record, effect.turn)
        refs = said.get("content_refs") or ()
        value = await self._bodies.json(refs[0] if refs else None)
        status, error = said["terminal_status"], said.get("error")
        if effect.call_id is not None and status != EffectStatus.UNKNOWN and not said.get("hooked"):
            return self._shown(record, effect, value, error, status)
        return e.EffectEnded(
            effect_id=str(record.effect_id),
            name=effect.name,
            status=status,
            value=value,
            error=ErrorObject.model_validate(error) if error else None,
            duration_ms=said.get("duration_ms"),
            call_id=effect.call_id,
            **at(record),
        )

    async def _seen(self, record: Record) -> e.AgentEvent | None:
        """What hooks left of a result, where the model itself had made the call."""
        said: dict[str, Any] = record.payload
        effect = self._effects.get(str(record.effect_id))
        if effect is None or effect.call_id is None:
            return None
        value = await self._bodies.json(said.get("value"))
        return self._shown(record, effect, value, said.get("error"), EffectStatus.COMPLETED)

    def _shown(
        self, record: Record, effect: _Effect, value: Any, error: Any, status: str
    ) -> e.ToolResult:
        effect_id = str(record.effect_id)
        found = ErrorObject.model_validate(error) if error else None
        text, wrong = direct_view(value, found, effect_id, self._limit)
        return e.ToolResult(
            call_id=str(effect.call_id),
            name=effect.name,
            text=text,
            is_error=wrong,
            effect_id=effect_id,
            status=str(status),
            **at(record),
        )

    async def _answer(self, record: Record, turn: int) -> e.AgentEvent:
        said: dict[str, Any] = record.payload
        self.question = None
        refs = said.get("content_refs") or ()
        found: Any = await self._bodies.json(refs[0] if refs else None)
        answer = ModelAnswer.model_validate(found) if found is not None else None
        if said["terminal_status"] == EffectStatus.COMPLETED:
            answer = answer or ModelAnswer()
            return e.Answer(
                turn=turn,
                parts=answer.parts,
                finish=answer.finish,
                usage=answer.usage,
                **at(record),
            )
        return e.AnswerFailed(
            turn=turn,
            status=said["terminal_status"],
            error=said.get("error"),
            text=answer.message.text if answer is not None else "",
            usage=said.get("usage"),
            **at(record),
        )

    # -- its agent ------------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return self._spec.view_bytes if self._spec is not None else 8192

    async def _agent(self, digest: Any) -> AgentSpec | None:
        found = await self._bodies.json(digest)
        return AgentSpec.model_validate(found) if found is not None else None
