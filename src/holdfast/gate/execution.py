"""Act once, and record what came of it.

What is on record decides what may happen next, so the records come first: an intent is on disk before an act that
changes anything, and the code sees a result only once it is on record. The result of something that must not be
done twice is on disk before the code goes on: losing it would cost a person's time. Any other is handed in, and lands
before whatever the code does next: lost with the process, it would be done again, which is harmless, and by then
nothing has followed from it.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import Literal

import anyio

from holdfast.contracts import (
    ApprovalStatus,
    Body,
    Draft,
    EffectIntent,
    EffectResult,
    EffectStatus,
    ErrorObject,
    ExternalCallRecord,
    Json,
    Reserved,
    SideEffect,
    canonical_json,
)
from holdfast.contracts._base import sure
from holdfast.contracts.approval import Asks
from holdfast.contracts.effect import EffectAttempt, EffectSeen
from holdfast.errors import HoldfastError, JournalError, ModelError
from holdfast.gate._refusals import (
    Refused,
    asks_nobody,
    cancelled,
    failure_of,
    not_signed_in,
    redacted,
    timed_out,
)
from holdfast.gate.act import Act
from holdfast.gate.answers import answer
from holdfast.gate.broker import Settled, settlement
from holdfast.gate.budgets import refused_by, release_all, settle_all
from holdfast.gate.crossing import Crossing, Doubt, Outcome, call_record
from holdfast.gate.executor import (
    Context,
    Executor,
    Finding,
    NeedsAnswer,
    Question,
    Unsure,
)
from holdfast.gate.guards import Guards
from holdfast.gate.limits import Limiter, RateLimited, check_response
from holdfast.gate.passing import Passing
from holdfast.gate.past import Asked, Past
from holdfast.gate.questions import Questions, settled_in
from holdfast.gate.recovery import HARMLESS
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal

_S = EffectStatus

Why = Literal["not_started", "recovered"]
"""Why an effect is done again: it never began, or that is harmless."""

Ends = Outcome | Doubt | Question | Asked
"""How an attempt ends: with something for the code, or with what a person must be asked first."""

MAX_REFUSED = 64 * 1024
"""Bytes of the arguments of a call that was not made, up to which they are kept."""

_LOOK_BACK = 5000
"""Records in which calls of the last minute are looked for."""


class Execution:
    """Makes calls that were let through."""

    def __init__(
        self,
        journal: Journal,
        *,
        limiter: Limiter,
        guards: Guards,
        redactor: Redactor,
        questions: Questions,
    ) -> None:
        self._journal = journal
        self._questions = questions
        self._limiter = limiter
        self._guards = guards
        self._redactor = redactor
        self._seeded: set[str] = set()

    async def make(self, crossing: Crossing, passing: Passing, started: float) -> Outcome | Doubt:
        """Intent, execute, result."""
        intent = passing.intent(crossing)
        act = Act.of(self._questions, crossing, passing, intent, started=started)
        if passing.limits.rate_per_min is not None:
            await self._remember_rate(crossing.name)
        try:
            async with self._limiter.slot(crossing.name, passing.limits):
                harmless = passing.capability.side_effect in HARMLESS
                if harmless and not crossing.asks_model and not crossing.desk.shares:
                    act.together = True
                else:
                    # A question to a model changes nothing: that it was asked must be known, not be on disk.
                    await crossing.desk.append(act.before(), durable=not crossing.asks_model)
                    if crossing.desk.shares and (denied := await self.without_room(act)):
                        return denied
                end = await self._execute(act)
        except RateLimited as why:
            raise self._turned_away(act, why) from None
        return await self._to_the_end(act, end)

    async def _remember_rate(self, name: str) -> None:
        """Count the calls of the last minute that an earlier process made."""
        if name in self._seeded:
            return
        self._seeded.add(name)
        since = max(0, await self._journal.last_seq() - _LOOK_BACK)
        times: dict[str | None, int] = {}
        async for record in self._journal.read_all(after=since):
            if record.kind == "effect_intent" and record.payload.get("name") == name:
                times[record.effect_id] = record.time
            elif record.payload.get("terminal_status") == _S.DENIED_BEFORE_EXECUTION:
                times.pop(record.effect_id, None)  # it was not made
        self._limiter.seed(name, times.values())

    def _turned_away(self, act: Act, why: RateLimited) -> Refused:
        """What was set aside is given back; an approval is used up all the same."""
        desk, reserved = act.crossing.desk, act.passing.reserved
        if reserved is not None:
            release_all(desk.purses, reserved)
        if act.passing.drafts:
            desk.post(act.passing.drafts)
        return Refused(why, rules=act.passing.ruling.rule_ids)

    async def without_room(self, act: Act) -> Outcome | None:
        """What the code gets when an account that others use up, too, has no room; `None`: it has."""
        crossing, reserved = act.crossing, act.passing.reserved
        why = refused_by(await self._journal.row("effects", crossing.effect_id))
        if why is None:
            return None
        recovers = crossing.past is not None and crossing.past.intent is not None
        if reserved is not None and not recovers:
            release_all(crossing.desk.purses, reserved)
        act.passing.reserved, act.begun = None, monotonic()
        error = ErrorObject.of(why)
        await self._record(act, _S.DENIED_BEFORE_EXECUTION, error=error)
        return self._error_outcome(act, error, None)

    async def recovered(self, crossing: Crossing, passing: Passing, past: Past) -> Outcome | None:
        """What the code gets of a call that could not be made, though its process died before it said so."""
        assert past.intent is not None
        if not past.intent.accounts:
            return None
        return await self.without_room(self._act(crossing, passing, past, past.attempt))

    async def repeat(
        self, crossing: Crossing, passing: Passing, past: Past, reason: str
    ) -> Outcome | Doubt:
        """Do it again, under the same id."""
        assert past.intent is not None
        attempt = past.attempt + 1
        again = EffectAttempt(effect_id=past.effect_id, attempt=attempt, reason=reason)
        act = self._act(crossing, passing, past, attempt)
        await act.recall()
        async with self._limiter.slot(crossing.name, passing.limits):
            drafts = [*passing.drafts, Draft.of(again, run_id=crossing.desk.run_id)]
            await crossing.desk.append(drafts, durable=act.careful)
            end = await self._execute(act)
        return await self._to_the_end(act, end)

    async def reconcile(
        self, crossing: Crossing, passing: Passing, past: Past
    ) -> Outcome | Doubt | Why:
        """Let the capability find out what became of it; or why to do it again."""
        assert past.intent is not None
        act = self._act(crossing, passing, past, past.attempt)
        act.begun = monotonic()
        found = await self._found_out(act, await self._ask_it(act))
        if isinstance(found, Outcome):
            await self.over(crossing, past)
        return found

    async def ask_on(
        self, crossing: Crossing, passing: Passing, past: Past, refused: HoldfastError | None
    ) -> Outcome | Doubt:
        """Wait for the answer a call needs, and make it then; `refused`: it may not be made any more."""
        assert past.question is not None
        act = self._act(crossing, passing, past, past.attempt)
        act.begun = monotonic()
        if refused is not None:
            return await self._void(act, past.question, refused)
        await act.recall()
        return await self._to_the_end(act, past.question)

    async def over(self, crossing: Crossing, past: Past) -> None:
        """The call has ended without this process: nobody need answer what it asked."""
        own = [one.request for one in past.questions if one.settled is None]
        open_ = [one for one in past.besides if not one.answered]
        if own or open_:
            await self._questions.let_go(crossing.desk, own, open_)

    def _act(self, crossing: Crossing, passing: Passing, past: Past, attempt: int) -> Act:
        assert past.intent is not None
        return Act.of(self._questions, crossing, passing, past.intent, attempt=attempt)

    async def doubt(self, crossing: Crossing, past: Past) -> Doubt:
        """Record that nobody knows what became of it."""
        if past.result is None:
            crossing.desk.post([self._unknown(past.effect_id, crossing.desk.run_id)])
        return Doubt(past.effect_id, past.name)

    async def again(self, crossing: Crossing, past: Past) -> Outcome:
        """What the code got when it made this call before."""
        given = await answer(self._journal, past)
        executor = crossing.desk.toolbox.get(past.name)
        unseen = given.error is None and past.seen is None and not crossing.asks_model
        if unseen and executor is not None and self._guards.changes_results:
            return await self._seen(crossing, executor, given.value, given.record)
        return given

    def refused(
        self,
        crossing: Crossing,
        body: Body,
        effect: SideEffect,
        error: ErrorObject,
        refused: Refused,
        started: float,
    ) -> Outcome:
        """Record a call that was not made; what the code gets."""
        request = body.ref.digest
        if body.ref.size > MAX_REFUSED:
            # Its digest says what it was; nobody has to keep what was not even tried.
            left_out = canonical_json({"left_out": {"bytes": body.ref.size, "digest": request}})
            body = Body.of(left_out, role="arguments", mime="application/json")
        executor = crossing.desk.toolbox.get(crossing.name)
        awaited = executor is not None and executor.capability.asynchronous
        asked = crossing.asks_model
        intent = EffectIntent(
            effect_id=crossing.effect_id,
            kind=crossing.kind,
            name=crossing.name,
            side_effect=effect,
            ordinal=crossing.number,
            line=crossing.line,
            awaited=awaited,
            request=request,
            call_id=crossing.call_id,
            beside=crossing.beside,
            turn=crossing.turn,
            context=crossing.context,
            policy_refs=refused.rules,
            content_refs=(body.ref.digest,),
            redacted_summary=f"{'ask' if asked else 'execute'} {crossing.name}",
        )
        result = EffectResult(
            effect_id=crossing.effect_id,
            terminal_status=_S.DENIED_BEFORE_EXECUTION,
            error=error,
            raised=refused.kind,
            redacted_summary=f"{crossing.name} was not executed: {error.code}",
        )
        run_id = crossing.desk.run_id
        crossing.ordered(crossing.desk.next_order())
        crossing.desk.post(
            [Draft.of(intent, run_id=run_id, bodies=(body,)), Draft.of(result, run_id=run_id)]
        )
        record = call_record(
            crossing.name, effect, request, took=monotonic() - started, error=error
        )
        return Outcome(record, error=error, kind=refused.kind)

    # -- one attempt ----------------------------------------------------------------------------------

    async def _to_the_end(self, act: Act, end: Ends) -> Outcome | Doubt:
        """Ask what a call needs to know, and make it again with the answer, as often as it takes."""
        while not isinstance(end, Outcome | Doubt):
            end = await self._asked(act, end)
        if isinstance(end, Outcome):
            await act.inquiry.close()
        return end

    async def _asked(self, act: Act, wanted: Question | Asked) -> Ends:
        """Nothing was done: ask, unless that was done before, and then make the next attempt."""
        crossing, inquiry = act.crossing, act.inquiry
        try:
            if isinstance(wanted, Question) and crossing.desk.dry is not None:
                raise asks_nobody(crossing.name)
            asked = wanted if isinstance(wanted, Asked) else await inquiry.put(wanted)
        except ModelError as why:
            return await self._failed(act, redacted(self._redactor, ErrorObject.of(why)), None)
        answer, drafts = await inquiry.answered(asked, crossing.mood)
        if asked.request.asks is Asks.SIGN_IN and answer.action != "accept":
            if drafts:
                await crossing.desk.append(drafts, durable=False)
                asked.settled = settled_in(drafts)
            return await self._failed(act, ErrorObject.of(not_signed_in(asked.request)), None)
        asked.settled = settled_in(drafts) if drafts else asked.settled
        inquiry.answers[asked.request.key or ""] = answer
        act.context = inquiry.context(act.context.attempt + 1)
        again = EffectAttempt(
            effect_id=crossing.effect_id, attempt=act.context.attempt, reason="answered"
        )
        # It was counted when it was first made: that a person took their time makes it no call more.
        limits = act.passing.limits.model_copy(update={"rate_per_min": None})
        async with self._limiter.slot(crossing.name, limits):
            drafts.append(Draft.of(again, run_id=crossing.desk.run_id))
            await crossing.desk.append(drafts, durable=act.careful)
            return await self._execute(act)

    async def _void(self, act: Act, asked: Asked, why: HoldfastError) -> Outcome:
        """A call that waited for an answer may not be made any more; nothing was done."""
        desk = act.crossing.desk
        if asked.settled is None:
            end = Settled(ApprovalStatus.DENIED, "approval.void")
            await desk.append(settlement(asked.request, end, desk.run_id), durable=False)
        error = redacted(self._redactor, ErrorObject.of(why))
        await self._record(act, _S.DENIED_BEFORE_EXECUTION, error=error)
        return self._error_outcome(act, error, None)

    async def _execute(self, act: Act) -> Ends:
        act.begun = monotonic()
        timeout = act.passing.limits.timeout_ms
        value: Json = None
        try:
            with anyio.move_on_after(timeout / 1000) as scope:
                act.inquiry.begin(scope)
                value = await act.passing.executor.execute(act.passing.arguments, act.context)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cut_off(act, _S.CANCELLED, cancelled(act.crossing.name))
            raise
        except NeedsAnswer as why:
            return why.question
        except Unsure as why:
            return await self._cut_off(act, _S.FAILED, why.error)
        except Exception as why:  # noqa: BLE001 - whatever a capability raises is for the code to see
            act.inquiry.raise_failure()
            error, kind = failure_of(act.crossing.name, why)
            return await self._failed(act, redacted(self._redactor, error), kind)
        if scope.cancelled_caught:
            return await self._cut_off(act, _S.TIMED_OUT, timed_out(act.crossing.name, timeout))
        act.inquiry.raise_failure()
        return await self._gave(act, value)

    async def _gave(self, act: Act, value: Json, *, resolved: str | None = None) -> Outcome:
        """A value came: check it, record it, and hand it on."""
        executor, crossing = act.passing.executor, act.crossing
        try:
            executor.check_result(value)
            value = self._redactor.json(value)
            data = check_response(crossing.name, value, act.passing.limits)
            body = Body.of(data, role="result", mime="application/json")
        except HoldfastError as why:
            error = redacted(self._redactor, ErrorObject.of(why))
            return await self._failed(act, error, None)
        await self._record(act, _S.COMPLETED, body=body, resolved=resolved)
        record = call_record(
            crossing.name,
            act.passing.capability.side_effect,
            act.passing.request,
            took=monotonic() - act.started,
            response=body.ref.digest,
        )
        if self._hooked(crossing):
            return await self._seen(crossing, executor, value, record)
        return Outcome(record, value if crossing.asks_model else _as_recorded(value, data))

    def _hooked(self, crossing: Crossing) -> bool:
        return self._guards.changes_results and not crossing.asks_model

    async def _seen(
        self, crossing: Crossing, executor: Executor, value: Json, record: ExternalCallRecord
    ) -> Outcome:
        """What the code is given once hooks have looked at it; on record, so that a replay gives the same."""
        given, error = await self._guards.after(crossing, executor, value)
        body = Body.of(canonical_json(given), role="result", mime="application/json")
        seen = EffectSeen(
            effect_id=crossing.effect_id,
            value=body.ref.digest if error is None else None,
            error=error,
            rewritten=error is None and given != value,
        )
        bodies = (body,) if error is None else ()
        draft = Draft.of(seen, run_id=crossing.desk.run_id, bodies=bodies)
        await crossing.desk.append([draft], durable=False)
        return Outcome(record, _as_recorded(given, body.data), error)

    async def _failed(
        self, act: Act, error: ErrorObject, kind: str | None, *, resolved: str | None = None
    ) -> Outcome:
        body = self._partial(act)
        await self._record(act, _S.FAILED, body=body, error=error, kind=kind, resolved=resolved)
        return self._error_outcome(act, error, kind)

    def _partial(self, act: Act) -> Body | None:
        """What a person may have seen of an answer that broke off."""
        partial = act.context.partial
        if partial is None:
            return None
        data = canonical_json(self._redactor.json(partial))
        return Body.of(data, role="result", mime="application/json")

    async def _cut_off(self, act: Act, status: EffectStatus, why: HoldfastError) -> Outcome | Doubt:
        """It took too long, or was cancelled. Of what must not be done twice, that is no answer."""
        error = ErrorObject.of(why)
        if not act.careful:
            await self._record(act, status, body=self._partial(act), error=error)
            return self._error_outcome(act, error, None)
        if act.passing.executor.reconciles:
            found = await self._found_out(act, await self._ask_it(act))
            if not isinstance(found, str):
                return found
            return await self._failed(act, error, None, resolved="reconciled")
        act.crossing.desk.post([self._unknown(act.crossing.effect_id, act.crossing.desk.run_id)])
        return Doubt(act.crossing.effect_id, act.crossing.name)

    # -- finding out ----------------------------------------------------------------------------------

    async def _ask_it(self, act: Act) -> Finding:
        act.inquiry.over = True  # whoever looks what became of a call asks nobody
        try:
            with anyio.fail_after(act.passing.limits.timeout_ms / 1000):
                return await act.passing.executor.reconcile(act.passing.arguments, act.context)
        except JournalError:
            raise
        except Exception:  # noqa: BLE001 - a reconciler that fails has not found out
            return Finding("unknown")

    async def _found_out(self, act: Act, found: Finding) -> Outcome | Doubt | Why:
        match found.status:
            case "completed":
                return await self._gave(act, found.value, resolved="reconciled")
            case "failed":
                error = found.error or ErrorObject(
                    code="TOOL_ERROR", message=f"`{act.crossing.name}` did not happen."
                )
                clean = redacted(self._redactor, error)
                return await self._failed(act, clean, None, resolved="reconciled")
            case "not_started":
                return "not_started"
            case "unknown" if not act.careful:
                return "recovered"
            case _:
                effect_id, run_id = act.crossing.effect_id, act.crossing.desk.run_id
                act.crossing.desk.post([self._unknown(effect_id, run_id)])
                return Doubt(effect_id, act.crossing.name)

    def _unknown(self, effect_id: str, run_id: str) -> Draft:
        result = EffectResult(
            effect_id=effect_id,
            terminal_status=_S.UNKNOWN,
            reconciliation_ref=f"effect:{effect_id}",
            redacted_summary="nobody knows whether it happened",
        )
        return Draft.of(result, run_id=run_id)

    # -- records --------------------------------------------------------------------------------------

    async def _record(
        self,
        act: Act,
        status: EffectStatus,
        *,
        body: Body | None = None,
        error: ErrorObject | None = None,
        kind: str | None = None,
        resolved: str | None = None,
    ) -> None:
        """Record the result; from here on, its place among the results of the run is fixed."""
        crossing, context = act.crossing, act.context
        desk = crossing.desk
        spent, took = self._settle(act), act.took
        keeps = status is _S.COMPLETED and bool(context.kept.bodies)
        bodies = ((body,) if body else ()) + (tuple(context.kept.bodies) if keeps else ())

        def made() -> Draft:
            result = sure(
                EffectResult,
                effect_id=crossing.effect_id,
                terminal_status=status,
                external_operation_id=self._external(context),
                error=error,
                raised=kind,
                attempt=context.attempt if context.attempt > 1 else None,
                resolved=resolved,
                hooked=status is _S.COMPLETED and self._hooked(crossing),
                spent=spent,
                usage=context.usage,
                duration_ms=int(took * 1000),
                content_refs=(body.ref.digest,) if body else (),
                redacted_summary=f"{crossing.name} {status.value}",
            )
            return Draft.of(result, run_id=desk.run_id, bodies=bodies)

        crossing.ordered(desk.next_order())
        if act.together and keeps:  # whoever has its name may look for it at once
            await desk.append([*act.before(), made()], durable=False)
        elif act.together:
            # Nobody waits for these records: they are made where they are written, while the code goes on.
            desk.post_made(len(act.passing.drafts) + 2, lambda: [*act.before(), made()])
        elif crossing.lazy:
            desk.hold([made()], durable=act.careful)
        elif act.careful or desk.shares or crossing.asks_model or keeps:
            await desk.append([made()], durable=act.careful)
        else:
            # Were it lost, the call would be made again, which the other side recognises. Whatever the code does
            # next is recorded behind it, most often in the same commit.
            desk.post_made(1, lambda: [made()])

    def _external(self, context: Context) -> str | None:
        name = context.external_id
        return None if name is None else self._redactor.text(name)

    def _settle(self, act: Act) -> Reserved | None:
        reserved, desk = act.passing.reserved, act.crossing.desk
        if reserved is None:
            return None
        cost, usage = act.context.cost_micros, act.context.usage
        spent = Reserved(
            calls=reserved.calls,
            cost_micros=reserved.cost_micros if cost is None else max(0, cost),
            wall_ms=int(act.took * 1000),
            tokens=reserved.tokens if usage is None else usage.tokens,
        )
        settle_all(desk.purses, reserved, spent)
        return spent

    def _error_outcome(self, act: Act, error: ErrorObject, kind: str | None) -> Outcome:
        record = call_record(
            act.crossing.name,
            act.passing.capability.side_effect,
            act.passing.request,
            took=monotonic() - act.started,
            error=error,
        )
        return Outcome(record, error=error, kind=kind)


def _as_recorded(value: Json, data: bytes) -> Json:
    """The value as whoever reads it from the record gets it: code may look at the order of keys."""
    return json.loads(data) if isinstance(value, dict | list) else value
