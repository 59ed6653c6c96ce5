"""One question to a model, through the gate: what hooks leave of it, what is set aside for it, what is heard of it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from holdfast.agent import consent
from holdfast.agent.affording import Affording
from holdfast.agent.asked import Answered, Asked, Refusal, Retry, TooLong
from holdfast.agent.guards import Allowed, Calling
from holdfast.agent.pictures import Pictures
from holdfast.agent.questions import Question, Sink
from holdfast.agent.retrying import Retrying
from holdfast.agent.wording import Wording
from holdfast.agent.work import Work
from holdfast.contracts import EffectKind, Json, Provenance
from holdfast.contracts._dump import dumped
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest
from holdfast.errors import HoldfastError, OperatorError
from holdfast.gate.crossing import Crossing, Doubt, Held, Outcome, effect_id
from holdfast.gate.past import Past, stored_json
from holdfast.machines.outcome import Cause


class Cleared(NamedTuple):
    """A question that may go to the gate."""

    ordinal: int
    past: Past | None
    allowed: Allowed
    beside: dict[str, Json]
    """What is recorded of its messages, where they are not just the conversation."""


class Asker:
    """Asks the questions of one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._gate = work.gate
        self._wording = Wording(work)
        self._affording = Affording(work)
        self._retrying = Retrying(work)
        self._pictures = Pictures(work.journal, work.session.id)
        self._same = False

    def warn(self) -> None:
        """Tell once when most of a budget is used."""
        self._affording.warn()

    async def ask(
        self, *, left_ms: int | None, asking: ModelRequest | None, retry: Retry | None
    ) -> Asked:
        """Ask the next question of the conversation; `asking`: with other settings than usual."""
        work = self._work
        request = asking or self._wording.usual()
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
            found = await self._retrying.failed(question, outcome, left_ms, retry)
            self._same = isinstance(found, TooLong)
            return found
        answer = self._answer(question, outcome)
        body = outcome.record.response_digest or ""
        again = False
        try:
            if work.guards.active:
                again = await self._unwanted(answer, body, tries, self._retrying.last)
        finally:  # it is on record, also when a hook stops the run over it
            if not again:
                work.transcript.answered(answer, body)
        self.warn()
        if again:
            return self._retrying.again(tries, retry, left_ms)
        work.tries = 0
        return Answered(answer, question.lowered and answer.finish == "length")

    async def aside(
        self, request: ModelRequest, *, left_ms: int | None
    ) -> tuple[Question, Outcome | HoldfastError]:
        """Ask what is no part of the conversation, and again while hooks want another answer."""
        work, tries = self._work, 0
        while True:
            past = work.asides.pop() if work.asides else None
            question, outcome = await self.put(
                request, left_ms=left_ms, turn=None, past=past, quiet=True
            )
            if isinstance(outcome, HoldfastError) or outcome.error is not None:
                return question, outcome
            if not work.guards.active:
                return question, outcome
            answer, body = self._answer(question, outcome), outcome.record.response_digest or ""
            if not await self._unwanted(answer, body, tries, question.effect_id):
                return question, outcome
            tries += 1
            request = replace(request, attempt=tries + 1)

    async def elsewhere(
        self, found: TooLong, retry: Retry | None, left_ms: int | None
    ) -> Retry | Refusal:
        """Go on with a model that takes a longer conversation, if there is one."""
        return await self._retrying.elsewhere(found, retry, left_ms)

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
        cleared = await self._cleared(request, turn, past)
        ordinal, past = cleared.ordinal, cleared.past
        request = cleared.allowed.request
        capability = self._wording.capability(request)
        reserved, lowered = None, False
        if work.desk.purses:
            held = past.intent.reserved if past is not None and past.intent is not None else None
            request, reserved, lowered = await self._affording.fit(request, held=held)
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
            redactor=self._gate.redactor,
            pictures=self._pictures if work.transcript.pictured else None,
        )
        question.lowered = lowered
        crossing = self._crossing(question, cleared, turn=turn, left_ms=left_ms)
        effect = question.effect_id = crossing.effect_id
        end = await self._perform(crossing, question)
        if hook is not None:
            hook(None)
        self._used(question)
        if turn is not None:
            self._retrying.last = effect
        if not isinstance(end, Outcome):
            raise OperatorError(
                "REPLAY_MISMATCH", "A question to a model is in doubt, which it can't be."
            )
        return question, end

    def _crossing(
        self, question: Question, cleared: Cleared, *, turn: int | None, left_ms: int | None
    ) -> Crossing:
        """A question on its way out."""
        work, desk = self._work, self._work.desk
        told, body = self._wording.told(question.request)
        if cleared.beside:
            told, body = {**told, **cleared.beside}, None
        return Crossing(
            desk=desk,
            ordinal=cleared.ordinal,
            name=f"model:{work.model.id}",
            args=(),
            kwargs=told,
            provenance=Provenance.MODEL,
            past=cleared.past,
            known=True,
            executor=question,
            kind=EffectKind.PROVIDER_REQUEST,
            turn=turn,
            context=work.transcript.digest,
            reserve=question.reserved,
            # What others share is given back at once, not when this run has something else to say.
            lazy=not desk.shares,
            wanted=cleared.allowed.wanted,
            within_ms=left_ms,
            mood=consent.leave,
            body=body,
        )

    def _used(self, question: Question) -> None:
        """Count what a question used up."""
        used = question.usage
        self._work.use(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_micros=used.cost_micros or 0,
        )
        self._affording.learn(used)

    async def _perform(self, crossing: Crossing, question: Question) -> Outcome | Doubt | Held:
        """Let it cross; what came of an answer that broke off stays, unless it is asked again and answered."""
        try:
            return await self._gate.perform(crossing)
        finally:
            feed = self._work.feed
            if feed is not None:
                feed.ended()
            seen = question.broke_off
            if seen is not None and crossing.turn is not None:
                clean = self._gate.redactor.json(dumped(seen))  # as it is recorded
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

    def _answer(self, question: Question, outcome: Outcome) -> ModelAnswer:
        if question.answer is not None and outcome.value is question.told:
            return question.answer
        return ModelAnswer.model_validate(outcome.value)

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
            told = {**self._wording.told(allowed.request).arguments, **beside}
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

    async def _unwanted(self, answer: ModelAnswer, body: str, tries: int, effect: str) -> bool:
        """Whether a hook wants another answer in place of this one."""
        work = self._work
        call = Calling("", effect, f"model:{work.model.id}")
        may = tries < work.spec.retry.max_retries
        return await work.guards.after_model(answer, call, body, may_retry=may)

    async def unheard(self, past: Past) -> bool:
        """Whether a hook wants another answer in place of one of which nobody knows whether hooks saw it."""
        assert past.result is not None
        body = str(past.result.content_refs[0])
        answer = ModelAnswer.model_validate(await stored_json(self._work.journal, body))
        self._retrying.last = past.effect_id
        return await self._unwanted(answer, body, self._work.tries, past.effect_id)
