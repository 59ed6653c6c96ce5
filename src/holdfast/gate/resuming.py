"""A call of a resumed run, from where its records end."""

from __future__ import annotations

from time import monotonic

from holdfast.contracts import (
    ApprovalStatus,
    EffectStatus,
    ErrorObject,
    Json,
    Verdict,
    canonical_json,
    digest,
)
from holdfast.errors import HoldfastError, ModelError, OperatorError
from holdfast.gate._refusals import changed, denied, redacted
from holdfast.gate.act import Act
from holdfast.gate.broker import Settled, settlement
from holdfast.gate.crossing import Crossing, Doubt, Outcome, as_asked
from holdfast.gate.execution import Execution
from holdfast.gate.executor import Executor
from holdfast.gate.passing import Passing
from holdfast.gate.past import Asked, Past, mismatch, stored_json
from holdfast.gate.questions import Questions
from holdfast.gate.reconciling import Why, found_out
from holdfast.gate.recovery import Action, action
from holdfast.gate.redact import Redactor
from holdfast.gate.results import Results
from holdfast.journal import Journal


class Resuming:
    """Goes on with calls that are on record."""

    def __init__(
        self,
        journal: Journal,
        *,
        redactor: Redactor,
        questions: Questions,
        execution: Execution,
        results: Results,
    ) -> None:
        self._journal = journal
        self._redactor = redactor
        self._questions = questions
        self._execution = execution
        self._results = results

    async def check_same(self, crossing: Crossing, executor: Executor | None, past: Past) -> None:
        """Refuse a replay that asks for something else than it did."""
        if crossing.known:  # it was read from the record itself
            return
        now = self._redactor.json(as_asked(crossing, executor))
        same = crossing.name == past.name
        if same and past.answered and not crossing.args:
            # By name they are told without the capability, which may be gone by now, or another.
            by_name = self._redactor.json(dict(crossing.kwargs))
            same = past.request in (_digest(now), _digest(by_name))
        elif same and (executor is not None or not past.answered):
            same = _digest(now) == past.request
        if not same:
            then = await stored_json(self._journal, past.arguments)
            raise mismatch(past, crossing.name, then=then, now=now)

    async def arguments(self, past: Past) -> dict[str, Json]:
        """What a call was to be made with: what people were shown."""
        arguments = await stored_json(self._journal, past.arguments)
        if not isinstance(arguments, dict):
            raise OperatorError(
                "REPLAY_MISMATCH",
                f"Call {past.ordinal} has no arguments on record; nothing was done.",
                hint="The journal is not what it was: run `holdfast journal verify`.",
            )
        return arguments

    async def answered(self, crossing: Crossing, past: Past) -> Outcome:
        """What the code got when it made this call before."""
        await self._over(crossing, past)
        return await self._results.again(crossing, past)

    async def recover(self, crossing: Crossing, passing: Passing, past: Past) -> Outcome | Doubt:
        """Only the intent is known: do what the table says."""
        assert past.intent is not None
        if past.intent.accounts:
            # It could perhaps not be made, and its process died before it said so.
            act = self._act(crossing, passing, past, past.attempt)
            refused = await self._execution.without_room(act)
            if refused is not None:
                return refused
        released = past.released > past.attempt
        what = action(
            past.intent,
            reconciles=passing.executor.reconciles,
            released=released,
            asks=past.question is not None,
        )
        if what is Action.ANSWER:
            return await self._ask_on(crossing, passing, past)
        if passing.ruling.verdict is Verdict.DENY and what is Action.REPEAT:
            if crossing.asks_model:
                return await self._unasked(crossing, passing, past)
            what = Action.ASK  # it may not be done now, and nobody knows whether it was done
        if what is Action.RECONCILE:
            found = await self._reconcile(crossing, passing, past)
            if not isinstance(found, str):
                return found
            if passing.ruling.verdict is Verdict.DENY:
                return self._doubt(crossing, past)
            return await self._repeat(crossing, passing, past, found)
        if what is Action.REPEAT:
            reason = "released" if released else "recovered"
            return await self._repeat(crossing, passing, past, reason)
        return self._doubt(crossing, past)

    # -- what the table says --------------------------------------------------------------------------

    async def _ask_on(self, crossing: Crossing, passing: Passing, past: Past) -> Outcome | Doubt:
        """Wait for the answer a call needs, and make it then, if it may still be made."""
        assert past.question is not None
        act = self._act(crossing, passing, past, past.attempt)
        act.begun = monotonic()
        refused = _refusal(passing, past)
        if refused is not None:
            return await self._void(act, past.question, refused)
        await act.recall()
        return await self._execution.to_the_end(act, past.question)

    async def _void(self, act: Act, asked: Asked, why: HoldfastError) -> Outcome:
        """A call that waited for an answer may not be made any more; nothing was done."""
        desk = act.crossing.desk
        if asked.settled is None:
            end = Settled(ApprovalStatus.DENIED, "approval.void")
            await desk.append(settlement(asked.request, end, desk.run_id), durable=False)
        error = redacted(self._redactor, ErrorObject.of(why))
        return await self._results.ended(act, EffectStatus.DENIED_BEFORE_EXECUTION, error)

    async def _unasked(self, crossing: Crossing, passing: Passing, past: Past) -> Outcome:
        """A question may not be asked any more; nobody need know whether it was answered, but it may have cost."""
        act = self._act(crossing, passing, past, past.attempt)
        act.begun = monotonic()
        error = redacted(self._redactor, ErrorObject.of(denied(past.name, passing.ruling)))
        return await self._results.ended(act, EffectStatus.FAILED, error)

    async def _reconcile(
        self, crossing: Crossing, passing: Passing, past: Past
    ) -> Outcome | Doubt | Why:
        """Let the capability find out what became of it; or why to do it again."""
        act = self._act(crossing, passing, past, past.attempt)
        act.begun = monotonic()
        found = await found_out(act, self._results, self._redactor)
        if isinstance(found, Outcome):
            await self._over(crossing, past)
        return found

    async def _repeat(
        self, crossing: Crossing, passing: Passing, past: Past, reason: str
    ) -> Outcome | Doubt:
        act = self._act(crossing, passing, past, past.attempt + 1)
        await act.recall()
        return await self._execution.again(act, reason)

    def _doubt(self, crossing: Crossing, past: Past) -> Doubt:
        if past.result is not None:  # that nobody knows is on record
            return Doubt(past.effect_id, past.name)
        return self._results.doubt(crossing.desk, past.effect_id, past.name)

    async def _over(self, crossing: Crossing, past: Past) -> None:
        """The call has ended without this process: nobody need answer what it asked."""
        own = [one.request for one in past.questions if one.settled is None]
        open_ = [one for one in past.besides if not one.answered]
        if own or open_:
            await self._questions.let_go(crossing.desk, own, open_)

    def _act(self, crossing: Crossing, passing: Passing, past: Past, attempt: int) -> Act:
        assert past.intent is not None
        return Act.of(self._questions, crossing, passing, past.intent, attempt=attempt)


def _refusal(passing: Passing, past: Past) -> ModelError | None:
    """Why a call that waits for an answer may not be made any more; `None`: it may."""
    asked = past.question
    if passing.ruling.verdict is Verdict.DENY:
        return denied(past.name, passing.ruling)
    if asked is not None and asked.request.capability != passing.capability.digest:
        return changed(past.name)
    return None


def _digest(value: Json) -> str:
    return digest(canonical_json(value))
