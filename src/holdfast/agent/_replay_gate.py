"""The gate of a replay: every call and every question is answered from the record, and none goes out.

Policy is only looked at where another one is to be tried. What is not on record ends the replay: there is no way from
here to a live call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn

import anyio

from holdfast.agent._standins import TapedModel
from holdfast.agent._tape import Tape, TapedCall, has_answer
from holdfast.agent.history import history_of
from holdfast.agent.inbox import queue
from holdfast.agent.questions import Question
from holdfast.contracts import (
    Body,
    Draft,
    EffectIntent,
    EffectResult,
    EffectStatus,
    ErrorObject,
    Json,
    Reserved,
    SideEffect,
    Verdict,
    canonical_json,
)
from holdfast.contracts.effect import EffectSeen
from holdfast.contracts.model import ModelAnswer
from holdfast.errors import CODES, HoldfastError, InternalError, ModelFailure, OperatorError
from holdfast.gate.answers import answer
from holdfast.gate.budgets import settle_all
from holdfast.gate.crossing import Crossing, Outcome, as_asked, call_record
from holdfast.gate.executor import Context, Executor
from holdfast.gate.gate import Gate
from holdfast.gate.past import Past, stored_json
from holdfast.gate.policy import Call, Ruling

Why = Literal["missing", "elsewhere", "over"]
"""Why a replay goes no further: not on record; the conversation is another; the record ends here."""


class Halt(OperatorError):
    """The replay goes no further."""

    def __init__(
        self,
        why: Why,
        message: str,
        *,
        crossing: Crossing | None = None,
        asked: Json = None,
        near: TapedCall | None = None,
    ) -> None:
        super().__init__("REPLAY_MISMATCH", message)
        self.why = why
        self.crossing = crossing
        self.asked = asked
        """What the call wants, by name."""
        self.near = near
        """The call on record that is most like it."""


class ReplayGate(Gate):
    """Answers from a tape."""

    tape: Tape
    """What is on record."""
    asks: bool = False
    """Whether another model is asked, instead of the record."""
    judges: bool = False
    """Whether another policy is tried."""
    strict: bool = False
    """Whether anything is tried that could lead to other calls."""
    prompted: bool = False
    """Whether the run was asked something else."""
    models: Mapping[str, TapedModel]
    """Those that repeat, by `model:` and their id."""
    nudge: Callable[[], None]
    """Called when somebody said something to the run."""

    def replays(self, tape: Tape, models: Iterable[TapedModel]) -> None:
        """Answer from this tape, by these."""
        self.tape = tape
        self.models = {f"model:{one.id}": one for one in models}
        self.rulings: dict[str, Ruling] = {}
        """What the policy says now, by effect."""

    async def perform(self, crossing: Crossing) -> Outcome:
        """What came of it then. Raises `Halt` for what is not on record."""
        if crossing.asks_model:
            return await self._question(crossing)
        return await self._call(crossing)

    # -- calls ----------------------------------------------------------------------------------------

    async def _call(self, crossing: Crossing) -> Outcome:
        # Nothing is awaited before the place of the result is fixed: calls under way at the same time are
        # answered in the order in which they were.
        executor = crossing.desk.toolbox.get(crossing.name)
        found = self.tape.take(crossing, executor)
        if found is None and executor is not None and _unfit(crossing, executor):
            return await self._refused(crossing)
        if self.judges and executor is not None and (found is None or found.verdict != "refused"):
            ruling = self._ruled(crossing, executor)
            now, then = ruling.verdict, found.verdict if found is not None else None
            if now is Verdict.DENY and then != "deny":
                return await self._refused(crossing)
            if now is not Verdict.DENY and then == "deny":
                found = None
        if found is None and (self.strict or not self.tape.stops_here):
            raise await self._missing(crossing, executor)
        if found is None or found.open:
            return await self._never(crossing, too_long=found is not None and found.too_long)
        crossing.ordered(found.past.result_pos)
        return await self._again(crossing, found.past)

    async def _never(self, crossing: Crossing, *, too_long: bool) -> NoReturn:
        """Nobody got an answer to it: what is beside it goes on, and the run then stands here."""
        if not too_long:
            crossing.mood("waiting")
        await anyio.sleep_forever()
        raise InternalError("A replay woke up from a call that has no answer.")

    def _ruled(self, crossing: Crossing, executor: Executor) -> Ruling:
        asked = as_asked(crossing, executor)
        call = Call(
            tool=crossing.name,
            capability=executor.capability,
            arguments=asked,
            session_id=crossing.desk.session_id,
            provenance=crossing.provenance,
        )
        ruling = self.rulings[crossing.effect_id] = crossing.desk.policy.decide(call)
        return ruling

    async def _refused(self, crossing: Crossing) -> Outcome:
        """Let the real gate say no, in its words: it says so before anything could be done."""
        found = await super().perform(crossing)
        if not isinstance(found, Outcome):
            raise OperatorError("REPLAY_MISMATCH", f"`{crossing.name}` is in doubt in a replay.")
        return found

    async def _missing(self, crossing: Crossing, executor: Executor | None) -> Halt:
        await crossing.desk.settle()
        asked = as_asked(crossing, executor)
        near = self.tape.nearest(crossing.name, asked)
        return Halt(
            "missing",
            f"`{crossing.name}` with these arguments is not on record.",
            crossing=crossing,
            asked=asked,
            near=near,
        )

    async def _again(self, crossing: Crossing, past: Past) -> Outcome:
        """Give what it gave, and record in the replay's own journal that it did."""
        intent, result = past.intent, past.result
        assert intent is not None
        assert result is not None
        own = {"effect_id": crossing.effect_id, "ordinal": crossing.ordinal}
        intent = intent.model_copy(
            update={**own, "call_id": crossing.call_id, "accounts": (), "idempotency_key": None}
        )
        drafts = [
            await self._draft(intent, crossing, intent.content_refs),
            await self._draft(
                result.model_copy(update={"effect_id": crossing.effect_id, "attempt": None}),
                crossing,
                result.content_refs,
            ),
        ]
        if past.seen is not None or past.seen_error is not None:
            seen = EffectSeen(
                effect_id=crossing.effect_id, value=past.seen, error=past.seen_error, rewritten=True
            )
            drafts.append(await self._draft(seen, crossing, (past.seen,) if past.seen else ()))
        settle_all(crossing.desk.purses, Reserved(calls=0), result.spent or Reserved(calls=0))
        await crossing.desk.append(drafts, durable=False)
        return await answer(self.tape.journal, past)

    async def _draft(self, said: Any, crossing: Crossing, refs: tuple[str, ...]) -> Draft:
        bodies = [
            Body.of(await self.tape.journal.content(ref), mime="application/json") for ref in refs
        ]
        return Draft.of(said, run_id=crossing.desk.run_id, bodies=tuple(bodies))

    # -- questions ------------------------------------------------------------------------------------

    async def _question(self, crossing: Crossing) -> Outcome:
        question = crossing.executor
        assert isinstance(question, Question)
        past = None
        if not self.asks:
            past = await self._expected(crossing)
            error = await self._mouth(crossing.name, question, past)
            if error is not None:
                return await self._told(crossing, question, None, error, past)
        context = Context(crossing.effect_id, 1, crossing.desk.session_id, crossing.desk.run_id)
        value: Json = None
        error = None
        try:
            value = await question.execute(crossing.kwargs, context)
        except ModelFailure as why:
            error = ErrorObject.of(why)
        outcome = await self._told(crossing, question, value, error, past)
        if error is None and crossing.turn is not None:
            await self._steered(crossing)
        return outcome

    async def _expected(self, crossing: Crossing) -> Past:
        """The question on record that this one is."""
        past = self.tape.question(quiet=crossing.turn is None)
        if past is None or past.intent is None or not has_answer(past):
            await crossing.desk.settle()
            over = past is not None or (self.tape.stopped_from_outside and not self.tape.left)
            why: Why = "over" if over else "missing"
            raise Halt(why, "The recorded run asked its model nothing more.", crossing=crossing)
        if crossing.turn is not None and past.intent.context != crossing.context:
            await self._same_but_prompt(crossing, past)
        return past

    async def _same_but_prompt(self, crossing: Crossing, past: Past) -> None:
        """The recorded answers are answers to the recorded conversation, and to no other."""
        await crossing.desk.settle()
        if self.prompted:
            history = await history_of(self.journal, crossing.desk.session_id)
            at = len(self.tape.steers.get(0, ()))  # what waited for the run came before its prompt
            then = self.tape.messages[: self.tape.said[past.effect_id]]
            now = history.originals[self.tape.first :]
            if self.tape.prompt is not None:
                del then[at : at + 1]
            if [*now[:at], *now[at + 1 :]] == then:
                return
        raise Halt(
            "elsewhere", "The conversation is not the recorded one any more.", crossing=crossing
        )

    async def _mouth(self, name: str, question: Question, past: Past) -> ErrorObject | None:
        """Let the model say next what it said then; an error where it did not come to that."""
        result = past.result
        assert result is not None
        said: ModelAnswer | None = None
        if result.content_refs:
            body: Any = await stored_json(self.tape.journal, result.content_refs[0])
            said = ModelAnswer.model_validate(body)
        model, error = self.models[name], result.error
        if error is None:
            model.next = said
            return None
        if error.code in CODES and error.code.startswith("MODEL_"):
            model.next = ModelFailure(error.code, error.message, hint=error.hint, partial=said)
            return None
        question.broke_off = said
        return error

    async def _told(
        self,
        crossing: Crossing,
        question: Question,
        value: Json,
        error: ErrorObject | None,
        past: Past | None,
    ) -> Outcome:
        """Record a question and its answer, as the real gate would."""
        asked = Body.of(canonical_json(dict(crossing.kwargs)), mime="application/json")
        said = value if error is None else _partial(question)
        answered = None if said is None else Body.of(canonical_json(said), mime="application/json")
        status = _status(error, past)
        intent = EffectIntent(
            effect_id=crossing.effect_id,
            kind=crossing.kind,
            name=crossing.name,
            side_effect=SideEffect.NETWORK,
            idempotent=True,
            ordinal=crossing.ordinal,
            request=asked.ref.digest,
            turn=crossing.turn,
            context=crossing.context,
            content_refs=(asked.ref.digest,),
            redacted_summary=f"ask {crossing.name}",
        )
        result = EffectResult(
            effect_id=crossing.effect_id,
            terminal_status=status,
            error=error,
            usage=question.usage,
            content_refs=() if answered is None else (answered.ref.digest,),
            redacted_summary=f"{crossing.name}: {status.value}",
        )
        spent = past.result.spent if past is not None and past.result is not None else None
        settle_all(crossing.desk.purses, Reserved(calls=0), spent or Reserved(calls=0))
        run_id = crossing.desk.run_id
        drafts = [
            Draft.of(intent, run_id=run_id, bodies=(asked,)),
            Draft.of(result, run_id=run_id, bodies=() if answered is None else (answered,)),
        ]
        await crossing.desk.append(drafts, durable=False)
        digest = None if answered is None or error is not None else answered.ref.digest
        record = call_record(
            crossing.name, SideEffect.NETWORK, asked.ref.digest, response=digest, error=error
        )
        return Outcome(record, value, error)

    async def _steered(self, crossing: Crossing) -> None:
        """What people said after this answer, they say again."""
        self.tape.answers += 1
        for text in self.tape.steers.get(self.tape.answers, ()):
            await queue(self.journal, crossing.desk.session_id, text, "steer")
            self.nudge()


def _unfit(crossing: Crossing, executor: Executor) -> bool:
    """Whether the capability, as it is now, does not take these arguments."""
    try:
        executor.check(executor.bind(crossing.args, crossing.kwargs))
    except HoldfastError:
        # Of one that is known from its calls alone, nobody knows what it takes.
        return bool(executor.capability.input_schema)
    return False


def _partial(question: Question) -> Json:
    broke_off = question.broke_off
    return None if broke_off is None else broke_off.model_dump(mode="json")


def _status(error: ErrorObject | None, past: Past | None) -> EffectStatus:
    if error is None:
        return EffectStatus.COMPLETED
    if past is not None and past.result is not None:
        return past.result.terminal_status
    return EffectStatus.FAILED
