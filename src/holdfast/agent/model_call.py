"""One question to a model, through the gate: what is asked, what is set aside for it, and what to do when it fails."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.agent import consent
from holdfast.agent.affording import Affording
from holdfast.agent.connections import meet
from holdfast.agent.guards import Allowed, Calling
from holdfast.agent.questions import TIMEOUT_MS, Question, Sink, capability_of
from holdfast.agent.tools import tools_of
from holdfast.agent.work import Work
from holdfast.contracts import Capability, Draft, EffectKind, Json, Provenance
from holdfast.contracts._base import dumped
from holdfast.contracts.agent import ModelRetry, ModelSwitched
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest
from holdfast.errors import CODES, HoldfastError, ModelFailure, OperatorError
from holdfast.gate.crossing import Crossing, Doubt, Outcome, effect_id
from holdfast.gate.past import Past, stored_json
from holdfast.machines.outcome import Cause
from holdfast.machines.retry import RETRYABLE, FailureKind, RetryPlan, RetryPolicy, retry_delay
from holdfast.models.base import Model

_K = FailureKind

_AGAIN = _K.RETRYABLE_PROVIDER_ERROR
"""What asking again because somebody wants it is to the machine."""

KINDS = {
    "MODEL_RATE_LIMITED": _K.RATE_LIMITED,
    "MODEL_OVERLOADED": _K.RETRYABLE_PROVIDER_ERROR,
    "MODEL_STREAM_CUT": _K.RETRYABLE_PROVIDER_ERROR,
    "MODEL_TIMEOUT": _K.NETWORK_TIMEOUT,
    "TIMEOUT_TOOL": _K.CALL_TIMEOUT,
    "MODEL_CONTEXT_EXCEEDED": _K.CONTEXT_EXCEEDED,
    "MODEL_CONTENT_FILTERED": _K.CONTENT_FILTER,
    "MODEL_AUTH": _K.AUTH,
    "MODEL_UNKNOWN": _K.INVALID_MODEL,
    "MODEL_INVALID_REQUEST": _K.INVALID_REQUEST,
}
"""Error code → kind of failure. Only the code decides, never a message."""

_ELSEWHERE = frozenset((*RETRYABLE, _K.AUTH, _K.INVALID_MODEL, _K.CONTEXT_EXCEEDED))
"""Failures after which another model may help."""

_SHAPE = "Once you are done, answer with nothing but JSON that fits this schema:\n{schema}"


class Answered(NamedTuple):
    """The model said something."""

    answer: ModelAnswer
    cut: bool = False
    """Whether a budget had no room for all of it."""


class TooLong(NamedTuple):
    """The model can't take the conversation in."""

    why: HoldfastError


class Spent(NamedTuple):
    """A budget has no room for the question."""

    why: HoldfastError


class Refusal(NamedTuple):
    """It can't be had."""

    why: HoldfastError
    cause: Cause


class Cleared(NamedTuple):
    """A question that may go to the gate."""

    ordinal: int
    past: Past | None
    allowed: Allowed
    beside: dict[str, Json]
    """What is recorded of its messages, where they are not just the conversation."""


class Exhausted(NamedTuple):
    """The run's time is up."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed, and may be tried again."""

    kind: FailureKind
    plan: RetryPlan
    tries: int
    """Of the model that is asked now."""


Asked = Answered | Retry | TooLong | Spent | Refusal | Exhausted


class Asker:
    """Asks the questions of one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._capabilities: dict[tuple[str, int | None], Capability] = {}
        self._arguments: tuple[object, dict[str, Json]] | None = None
        self._base: tuple[object, ModelRequest] | None = None
        self._affording = Affording(work)
        self._same = False
        self._last = ""

    def warn(self) -> None:
        """Tell once when most of a budget is used."""
        self._affording.warn()

    async def ask(
        self, *, left_ms: int | None, asking: ModelRequest | None, retry: Retry | None
    ) -> Asked:
        """Ask the next question of the conversation; `asking`: with other settings than usual."""
        work = self._work
        request = asking or self._usual()
        past, work.open_question = work.open_question, None
        if past is None and retry is None and not self._same:
            work.turn_no += 1
        self._same = False
        tries = retry.tries if retry is not None else work.tries
        if tries:
            request = replace(request, attempt=tries + 1)
        question, outcome = await self.put(
            request,
            left_ms=left_ms,
            turn=work.turn_no,
            past=past,
        )
        if isinstance(outcome, HoldfastError):
            return Refusal(outcome, Cause.HOOK_DENIED)
        if outcome.error is not None:
            return await self._failed(question, outcome, left_ms, retry)
        answer = self._answer(question, outcome)
        body = outcome.record.response_digest or ""
        again = False
        try:
            if work.guards.active:
                again = await self._unwanted(answer, body, tries)
        finally:  # it is on record, also when a hook stops the run over it
            if not again:
                work.transcript.answered(answer, body)
        self.warn()
        if again:
            return self._plan(_AGAIN, tries + 1, retry, left_ms, None, hook=True)
        work.tries = 0
        return Answered(answer, question.lowered and answer.finish == "length")

    async def put(
        self,
        request: ModelRequest,
        *,
        left_ms: int | None,
        turn: int | None,
        past: Past | None = None,
        quiet: bool = False,
    ) -> tuple[Question, Outcome | HoldfastError]:
        """Put one question through the gate."""
        work = self._work
        ordinal, past, allowed, beside = await self._cleared(request, turn, past)
        request = allowed.request
        capability = self._capability(request)
        held = past.intent.reserved if past is not None and past.intent is not None else None
        request, reserved, lowered = await self._affording.fit(request, held=held)
        told = self._told(request)
        if beside:
            told = {**told, **beside}
        hook = None
        if work.guards.active and not quiet:
            hook = work.guards.listener(effect_id(work.run_id, ordinal))
        question = Question(
            work.model,
            request,
            capability,
            None if quiet else self._hears(ordinal, hook),
            prices=work.spec.prices,
            reserved=reserved,
            redactor=work.gate.redactor,
        )
        crossing = Crossing(
            desk=work.desk,
            ordinal=ordinal,
            name=f"model:{work.model.id}",
            args=(),
            kwargs=told,
            provenance=Provenance.MODEL,
            past=past,
            known=True,
            executor=question,
            kind=EffectKind.PROVIDER_REQUEST,
            turn=turn,
            context=work.transcript.digest,
            reserve=reserved,
            # What others share is given back at once, not when this run has something else to say.
            lazy=not work.desk.shares,
            wanted=allowed.wanted,
            within_ms=left_ms,
            mood=consent.leave,
        )
        question.lowered = lowered
        end = await self._perform(crossing, question)
        if hook is not None:
            hook(None)
        used = question.usage
        work.use(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_micros=used.cost_micros or 0,
        )
        self._affording.learn(used)
        if turn is not None:
            self._last = crossing.effect_id
        if isinstance(end, Doubt):
            raise OperatorError(
                "REPLAY_MISMATCH", "A question to a model is in doubt, which it can't be."
            )
        return question, end

    async def _perform(self, crossing: Crossing, question: Question) -> Outcome | Doubt:
        """Let it cross; what came of an answer that broke off stays, unless it is asked again and answered."""
        try:
            return await self._work.gate.perform(crossing)
        finally:
            if self._work.feed is not None:
                self._work.feed.ended()
            seen = question.broke_off
            if seen is not None and crossing.turn is not None:
                clean = self._work.gate.redactor.json(dumped(seen))  # as it is recorded
                self._work.transcript.partial = ModelAnswer.model_validate(clean)

    def _hears(self, ordinal: int, hook: Sink | None) -> Sink | None:
        """Who is told each piece of the answer to a question; `None`: nobody, so it need not come in pieces."""
        work = self._work
        feed = work.feed
        if feed is None or not feed.listeners:
            return hook
        question = effect_id(work.run_id, ordinal)

        def told(piece: ModelDelta) -> None:
            feed.put(question, piece)
            if hook is not None:
                hook(piece)

        return told

    # -- what hooks have to say -----------------------------------------------------------------------

    async def _cleared(self, request: ModelRequest, turn: int | None, past: Past | None) -> Cleared:
        """The question as hooks leave it; what a person said about a question counts for that one only."""
        work = self._work
        waited, work.asked = work.asked, None
        past = past or waited
        ordinal = past.ordinal if past is not None else work.next_ordinal()
        if past is None and not work.guards.active:
            return Cleared(ordinal, None, Allowed(request), {})
        allowed = await work.guards.before_model(request, self._calling(ordinal, turn, past))
        beside = consent.beside(allowed)
        if past is not None and past is waited:
            told = {**self._told(allowed.request), **beside}
            if not await consent.is_about(work, past, told):
                await consent.withdraw(work, past)
                return await self._cleared(request, turn, None)
        return Cleared(ordinal, past, allowed, beside)

    def _calling(self, ordinal: int, turn: int | None, past: Past | None) -> Calling:
        """A question as hooks are told of it."""
        work = self._work
        effect, context = effect_id(work.run_id, ordinal), work.transcript.digest
        about = effect if turn is None else f"{work.run_id}:{turn}"
        return Calling(about, effect, f"model:{work.model.id}", context, past is not None)

    async def _unwanted(self, answer: ModelAnswer, body: str, tries: int) -> bool:
        """Whether a hook wants another answer in place of this one."""
        work = self._work
        call = Calling("", self._last, f"model:{work.model.id}")
        may = tries < work.spec.retry.max_retries
        return await work.guards.after_model(answer, call, body, may_retry=may)

    async def unheard(self, past: Past) -> bool:
        """Whether a hook wants another answer in place of one of which nobody knows whether hooks saw it."""
        assert past.result is not None
        body = str(past.result.content_refs[0])
        answer = ModelAnswer.model_validate(await stored_json(self._work.journal, body))
        self._last = past.effect_id
        return await self._unwanted(answer, body, self._work.tries)

    # -- what is asked --------------------------------------------------------------------------------

    def _usual(self) -> ModelRequest:
        """What is asked: the conversation as it is, instructions and tools as they always are."""
        work = self._work
        toolbox, messages = work.session.toolbox, work.transcript.messages
        known = self._base
        if known is None or known[0] is not toolbox or known[1].messages is not messages:
            tools = tools_of(toolbox, work.spec.mode, unsupported=work.session.boxes.unsupported)
            work.tools = tools
            request = ModelRequest(
                messages=messages,
                instructions=instructions_of(work, tools.index),
                tools=tools.specs,
                settings=work.spec.settings,
                attempt=1,
            )
            known = self._base = (toolbox, request)
        if work.transcript.shortened:
            return replace(known[1], answered=work.transcript.answers)
        return known[1]

    def _answer(self, question: Question, outcome: Outcome) -> ModelAnswer:
        if question.answer is not None and outcome.value is question.told:
            return question.answer
        return ModelAnswer.model_validate(outcome.value)

    # -- what it costs --------------------------------------------------------------------------------

    def _capability(self, request: ModelRequest) -> Capability:
        """The model as policy and limits see it; the same for every question, so that consent to it holds."""
        timeout = request.settings.timeout_ms
        key = (self._work.model.id, timeout)
        found = self._capabilities.get(key)
        if found is None:
            if len(self._capabilities) > 64:
                self._capabilities.clear()
            found = self._capabilities[key] = capability_of(self._work.model, timeout)
        return found

    def _told(self, request: ModelRequest) -> dict[str, Json]:
        """What is recorded of a question beside the conversation; the same from turn to turn."""
        known = self._arguments
        if known is None or known[0] is not request:
            told: dict[str, Json] = {
                "instructions": request.instructions,
                "tools": digest_json([[one.name, one.schema] for one in request.tools]),
                "settings": request.settings.model_dump(mode="json", exclude_defaults=True),
            }
            if request.output is not None:
                told["output"] = digest_json(request.output.schema)
            known = self._arguments = (request, told)
        return known[1]

    # -- when it fails --------------------------------------------------------------------------------

    async def _failed(
        self, question: Question, outcome: Outcome, left_ms: int | None, retry: Retry | None
    ) -> Asked:
        """Try again, go on with another model, or give up."""
        assert outcome.error is not None
        code = outcome.error.code
        why = question.failure or _as_error(outcome)
        if code == "BUDGET_EXCEEDED":
            return Spent(why)
        kind = KINDS.get(code)
        if kind is None:
            cause = Cause.HOOK_DENIED if code == "PERMISSION_DENIED" else Cause.LLM_FAILURE
            return Refusal(why, cause)
        if kind is _K.CONTEXT_EXCEEDED:
            self._same = True
            return TooLong(why)
        if kind is _K.CALL_TIMEOUT and left_ms is not None and self._by_run(left_ms):
            return Exhausted()
        hint = question.failure.retry_after_ms if question.failure else None
        tries = retry.tries if retry is not None else self._work.tries
        if kind in RETRYABLE and tries < self._work.spec.retry.max_retries:
            return self._plan(kind, tries + 1, retry, left_ms, hint)
        if kind in _ELSEWHERE and await self._switch(code):
            # Another model starts afresh; that it is asked at once is a retry like any other to the machine.
            return self._plan(_K.RETRYABLE_PROVIDER_ERROR, 0, retry, left_ms, None)
        return Refusal(why, Cause.RETRY_EXHAUSTED if kind in RETRYABLE else Cause.LLM_FAILURE)

    async def elsewhere(
        self, found: TooLong, retry: Retry | None, left_ms: int | None
    ) -> Retry | Refusal:
        """Go on with a model that takes a longer conversation, if there is one."""
        if await self._switch(found.why.code):
            return self._plan(_K.RETRYABLE_PROVIDER_ERROR, 0, retry, left_ms, None)
        return Refusal(found.why, Cause.LLM_FAILURE)

    def _by_run(self, left_ms: int) -> bool:
        own = self._work.spec.settings.timeout_ms or self._work.model.profile.timeout_ms
        return left_ms <= (own or TIMEOUT_MS)

    def _plan(
        self,
        kind: FailureKind,
        tries: int,
        retry: Retry | None,
        left_ms: int | None,
        hint: int | None,
        *,
        hook: bool = False,
    ) -> Retry:
        spec, desk = self._work.spec.retry, self._work.desk
        attempt = (retry.plan.attempt if retry is not None else 0) + 1
        allowed = spec.max_retries * (1 + len(self._work.spec.fallbacks))
        policy = RetryPolicy(
            max(allowed + len(self._work.spec.fallbacks), attempt),
            spec.initial_delay_ms,
            spec.multiplier,
            spec.max_delay_ms,
        )
        plan = retry_delay(
            max(1, tries),
            policy,
            kind,
            hint_ms=hint,
            remaining_ms=left_ms,
            jitter=random.uniform(-1, 1),
        )
        plan = plan._replace(attempt=attempt)
        if tries == 0 or hook:
            plan = plan._replace(computed_delay_ms=0, selected_delay_ms=0)
        said = ModelRetry(
            effect_id=self._last,
            kind="hook" if hook else kind.value,
            attempt=attempt,
            max_retries=plan.max_retries,
            delay_ms=plan.selected_delay_ms,
            hint_ms=hint,
            floor=plan.rate_limit_floor_applied,
            capped=plan.budget_capped,
        )
        desk.hold([Draft.of(said, run_id=desk.run_id)], durable=False)
        return Retry(kind, plan, tries)

    async def _switch(self, code: str) -> bool:
        """Go on with the next model that can do what this run needs; it stays with that one."""
        work, asked = self._work, self._work.model
        for place, other in enumerate(work.models[1:], 1):
            await meet(other)
            if self._can(asked, other, code):
                del work.models[:place]
                work.tries = 0
                said = ModelSwitched(before=asked.id, after=other.id, reason=code)
                work.desk.hold([Draft.of(said, run_id=work.run_id)], durable=False)
                self._base = None
                return True
        return False

    def _can(self, asked: Model, other: Model, code: str) -> bool:
        """Whether another model can do what this run needs."""
        work, has, had = self._work, other.profile, asked.profile
        room, length = has.context_tokens, max(work.transcript.tokens, work.transcript.reported)
        if room is not None and room <= length:
            return False
        if code == "MODEL_CONTEXT_EXCEEDED" and 0 < (room or 0) <= (had.context_tokens or 0):
            return False
        if work.tools is not None and work.tools.specs and not has.tools:
            return False
        # Whoever counts on a provider that holds the model to the shape must not lose that on the way.
        return work.output is None or has.structured or not had.structured


def instructions_of(work: Work, index: str) -> str:
    """What a model is told before everything else."""
    parts = [work.spec.instructions.strip(), index]
    if work.output is not None:
        parts.append(_SHAPE.format(schema=work.output.schema_text))
    return "\n\n".join(part for part in parts if part)


def _as_error(outcome: Outcome) -> HoldfastError:
    error = outcome.error
    assert error is not None
    code = error.code if error.code in CODES else "MODEL_INVALID_REQUEST"
    if code in KINDS:
        return ModelFailure(code, error.message, hint=error.hint)
    return HoldfastError(code, error.message, hint=error.hint)
