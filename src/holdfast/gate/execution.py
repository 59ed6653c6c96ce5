"""Act once.

What is on record decides what may happen next, so the records come first: an intent is on disk before an act that
changes anything, and the code sees a result only once it is on record (`results.py`).
"""

from __future__ import annotations

from asyncio import get_running_loop
from time import monotonic

import anyio

from holdfast.contracts import Draft, EffectStatus, ErrorObject, Json
from holdfast.contracts.approval import Asks
from holdfast.contracts.effect import EffectAttempt
from holdfast.errors import HoldfastError, ModelError
from holdfast.gate._refusals import (
    Refused,
    asks_nobody,
    cancelled,
    failure_of,
    grant_ended,
    not_signed_in,
    redacted,
    timed_out,
)
from holdfast.gate.act import Act
from holdfast.gate.budgets import refused_by, release_all
from holdfast.gate.crossing import Crossing, Doubt, Outcome
from holdfast.gate.executor import NeedsAnswer, Question, Unsure
from holdfast.gate.limits import Limiter, RateLimited, Slot
from holdfast.gate.passing import Passing
from holdfast.gate.past import Asked
from holdfast.gate.questions import Questions, settled_in
from holdfast.gate.reconciling import found_out
from holdfast.gate.recovery import HARMLESS
from holdfast.gate.redact import Redactor
from holdfast.gate.results import Results
from holdfast.journal import Journal

_S = EffectStatus
_ENDS = (Outcome, Doubt)

Ends = Outcome | Doubt | Question | Asked
"""How an attempt ends: with something for the code, or with what a person must be asked first."""

SLOW = 0.5
"""Seconds after which a read is on record before it has ended."""

_LOOK_BACK = 5000
"""Records in which calls of the last minute are looked for."""


class Execution:
    """Makes calls that were let through."""

    def __init__(
        self,
        journal: Journal,
        *,
        limiter: Limiter,
        redactor: Redactor,
        questions: Questions,
        results: Results,
    ) -> None:
        self._journal = journal
        self._questions = questions
        self._limiter = limiter
        self._redactor = redactor
        self._results = results
        self._seeded: set[str] = set()
        self._reading: dict[str, Act] = {}
        self._scope: type[anyio.CancelScope] | None = None

    async def make(self, crossing: Crossing, passing: Passing, started: float) -> Outcome | Doubt:
        """Intent, execute, result."""
        intent = passing.intent(crossing)
        act = Act.of(self._questions, crossing, passing, intent, started=started)
        limiter, name, limits = self._limiter, crossing.name, passing.limits
        if limits.rate_per_min is not None:
            await self._remember_rate(name)
        try:
            if not limiter.enter_now(name, limits):
                await limiter.enter(name, limits)
        except RateLimited as why:
            raise self._turned_away(act, why) from None
        try:
            end = await self._in_turn(act)
        finally:
            limiter.leave(name)
        if isinstance(end, Outcome) and crossing.past is None and not act.inquiry.asked:
            act.inquiry.over = True
            return end  # nobody was asked, so there is nothing to take back
        return await self.to_the_end(act, end)

    async def _in_turn(self, act: Act) -> Ends:
        """Record that it is about to happen, and make the first attempt."""
        crossing, passing, intent = act.crossing, act.passing, act.intent
        desk, asks = crossing.desk, crossing.asks_model
        shares = desk.shares
        if passing.grant_id is not None:
            await self._check_consent(act, passing.grant_id)
        if not asks and not shares and passing.capability.side_effect in HARMLESS:
            passing.untold = intent
            self._reading[intent.effect_id] = act
            try:
                return await self._execute(act)
            finally:
                del self._reading[intent.effect_id]
        # A question to a model changes nothing: that it was asked must be known, not be on disk.
        await desk.append(passing.before(intent, desk.run_id), durable=not asks)
        if shares and (denied := await self.without_room(act)):
            return denied
        return await self._execute(act)

    def tell_slow(self) -> None:
        """Hand in the intents of reads that take long, so that whoever looks at their run sees what it is doing."""
        late = monotonic() - SLOW
        for act in [*self._reading.values()]:
            if act.passing.untold is not None and 0 < act.begun < late:
                desk = act.crossing.desk
                try:
                    desk.post(act.passing.first(desk.run_id))
                except HoldfastError:
                    pass  # whoever writes next is told

    async def again(self, act: Act, reason: str) -> Outcome | Doubt:
        """Do it again, under the same id."""
        crossing, passing = act.crossing, act.passing
        async with self._turn_again(act):
            again = self._attempt(act, reason)
            await crossing.desk.append([*passing.drafts, again], durable=act.careful)
            end = await self._execute(act)
        return await self.to_the_end(act, end)

    async def to_the_end(self, act: Act, end: Ends) -> Outcome | Doubt:
        """Ask what a call needs to know, and make it again with the answer, as often as it takes."""
        while not isinstance(end, _ENDS):
            end = await self._asked(act, end)
        inquiry = act.inquiry
        if isinstance(end, Outcome):
            inquiry.over = True
            if inquiry.asked or act.crossing.past is not None:
                await inquiry.close()
        return end

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
        return await self._results.ended(act, _S.DENIED_BEFORE_EXECUTION, ErrorObject.of(why))

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

    async def _check_consent(self, act: Act, grant_id: str) -> None:
        """Refuse a call whose grant has ended while it waited for its turn, which may have taken long."""
        if not await self._questions.approvals.in_force(grant_id):
            act.passing.drafts = ()  # it was not used
            raise self._turned_away(act, grant_ended(act.crossing.name))

    def _turned_away(self, act: Act, why: HoldfastError) -> Refused:
        """What was set aside is given back; an approval is used up all the same."""
        desk, reserved = act.crossing.desk, act.passing.reserved
        if reserved is not None:
            release_all(desk.purses, reserved)
        if act.passing.drafts:
            desk.post(act.passing.drafts)
        return Refused(why, rules=act.passing.ruling.rule_ids)

    # -- one attempt ----------------------------------------------------------------------------------

    async def _execute(self, act: Act) -> Ends:
        act.begun = monotonic()
        passing, inquiry = act.passing, act.inquiry
        timeout = passing.limits.timeout_ms
        value: Json = None
        try:
            with self._within(timeout / 1000) as scope:
                inquiry.begin(scope)
                try:
                    value = await passing.executor.execute(passing.arguments, act.context)
                finally:
                    inquiry.over = True
                    if inquiry.busy:
                        await inquiry.stop()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cut_off(act, _S.CANCELLED, cancelled(act.crossing.name))
            raise
        except NeedsAnswer as why:
            return why.question
        except Unsure as why:
            return await self._cut_off(act, _S.FAILED, why.error)
        except Exception as why:  # noqa: BLE001 - whatever a capability raises is for the code to see
            inquiry.raise_failure()
            error, kind = failure_of(act.crossing.name, why)
            error = redacted(self._redactor, error)
            return await self._results.ended(act, _S.FAILED, error, kind)
        if scope.cancelled_caught:
            return await self._cut_off(act, _S.TIMED_OUT, timed_out(act.crossing.name, timeout))
        inquiry.raise_failure()
        return await self._results.gave(act, value)

    def _within(self, seconds: float) -> anyio.CancelScope:
        """`anyio.move_on_after`, which asks twice which event loop there is, without asking."""
        if self._scope is None:
            self._scope = type(anyio.CancelScope())  # it gives a scope of the loop's own kind
        return self._scope(deadline=get_running_loop().time() + seconds)

    async def _cut_off(self, act: Act, status: EffectStatus, why: HoldfastError) -> Outcome | Doubt:
        """It took too long, or was cancelled. Of what must not be done twice, that is no answer."""
        error = ErrorObject.of(why)
        if not act.careful:
            return await self._results.ended(act, status, error)
        if act.passing.executor.reconciles:
            found = await found_out(act, self._results, self._redactor)
            if not isinstance(found, str):
                return found
            return await self._results.ended(act, _S.FAILED, error, resolved="reconciled")
        crossing = act.crossing
        return self._results.doubt(crossing.desk, crossing.effect_id, crossing.name)

    async def _asked(self, act: Act, wanted: Question | Asked) -> Ends:
        """Nothing was done: ask, unless that was done before, and then make the next attempt."""
        crossing, inquiry = act.crossing, act.inquiry
        try:
            if isinstance(wanted, Question) and crossing.desk.dry is not None:
                raise asks_nobody(crossing.name)
            asked = wanted if isinstance(wanted, Asked) else await inquiry.put(wanted)
        except ModelError as why:
            error = redacted(self._redactor, ErrorObject.of(why))
            return await self._results.ended(act, _S.FAILED, error)
        answer, drafts = await inquiry.answered(asked, crossing.mood)
        if asked.request.asks is Asks.SIGN_IN and answer.action != "accept":
            if drafts:
                await crossing.desk.append(drafts, durable=False)
                asked.settled = settled_in(drafts)
            error = ErrorObject.of(not_signed_in(asked.request))
            return await self._results.ended(act, _S.FAILED, error)
        asked.settled = settled_in(drafts) if drafts else asked.settled
        inquiry.learn(asked.request, answer)
        act.context = inquiry.context(act.context.attempt + 1)
        async with self._turn_again(act):
            drafts.append(self._attempt(act, "answered"))
            await crossing.desk.append(drafts, durable=act.careful)
            return await self._execute(act)

    def _turn_again(self, act: Act) -> Slot:
        """A turn for a call that was counted when it was first made: it is not refused for how often that was."""
        limits = act.passing.limits.model_copy(update={"rate_per_min": None})
        return self._limiter.slot(act.crossing.name, limits)

    def _attempt(self, act: Act, reason: str) -> Draft:
        """That it is made again."""
        effect_id, attempt = act.intent.effect_id, act.context.attempt
        again = EffectAttempt(effect_id=effect_id, attempt=attempt, reason=reason)
        return Draft.of(again, run_id=act.crossing.desk.run_id)
