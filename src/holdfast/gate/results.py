"""What came of calls: put on record, and from there given to the code.

The code sees a result only once it is on record. The result of something that must not be done twice is on disk before
the code goes on: losing it would cost a person's time. Any other is handed in, and lands before whatever the code does
next: lost with the process, it would be done again, which is harmless, and by then nothing has followed from it.
"""

from __future__ import annotations

import json
from time import monotonic

from holdfast.contracts import (
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
from holdfast.contracts._base import made
from holdfast.contracts.effect import EffectSeen
from holdfast.errors import HoldfastError
from holdfast.gate._refusals import Refused, not_as_promised, redacted
from holdfast.gate.act import Act
from holdfast.gate.answers import answer
from holdfast.gate.budgets import settle_all
from holdfast.gate.crossing import Crossing, Desk, Doubt, Outcome, call_record
from holdfast.gate.executor import Context, Executor
from holdfast.gate.guards import Guards
from holdfast.gate.limits import check_response
from holdfast.gate.past import Past
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal

_S = EffectStatus
_read = json.JSONDecoder().raw_decode  # what is canonical has no spaces around it to look for

MAX_REFUSED = 64 * 1024
"""Bytes of the arguments of a call that was not made, up to which they are kept."""


class Results:
    """Puts on record what came of calls; what the code gets of it."""

    def __init__(self, journal: Journal, *, guards: Guards, redactor: Redactor) -> None:
        self._journal = journal
        self._guards = guards
        self._redactor = redactor

    async def gave(self, act: Act, value: Json, *, resolved: str | None = None) -> Outcome:
        """A value came: check it, record it, and hand it on."""
        passing, crossing = act.passing, act.crossing
        executor, name = passing.executor, crossing.name
        try:
            executor.check_result(value)
            value = self._redactor.json(value)
            data = check_response(name, value, passing.limits)
            body = Body.of(data, role="result", mime="application/json")
        except HoldfastError as why:
            error = redacted(self._redactor, ErrorObject.of(why))
            return await self.ended(act, _S.FAILED, error)
        await self._record(act, _S.COMPLETED, body=body, resolved=resolved)
        record = call_record(
            name,
            executor.capability.side_effect,
            passing.request,
            took=monotonic() - act.started,
            response=body.ref.digest,
        )
        if self._hooked(crossing):
            return await self._seen(crossing, executor, value, record)
        return Outcome(record, value if crossing.asks_model else _as_recorded(value, data))

    async def ended(
        self,
        act: Act,
        status: EffectStatus,
        error: ErrorObject,
        kind: str | None = None,
        *,
        resolved: str | None = None,
    ) -> Outcome:
        """No value came: record why, and what there is of an answer that broke off."""
        body = self._partial(act)
        await self._record(act, status, body=body, error=error, kind=kind, resolved=resolved)
        record = call_record(
            act.crossing.name,
            act.passing.capability.side_effect,
            act.passing.request,
            took=monotonic() - act.started,
            error=error,
        )
        return Outcome(record, error=error, kind=kind)

    def doubt(self, desk: Desk, effect_id: str, name: str) -> Doubt:
        """Record that nobody knows what became of a call."""
        result = EffectResult(
            effect_id=effect_id,
            terminal_status=_S.UNKNOWN,
            reconciliation_ref=f"effect:{effect_id}",
            redacted_summary="nobody knows whether it happened",
        )
        desk.post([Draft.of(result, run_id=desk.run_id)])
        return Doubt(effect_id, name)

    def refused(
        self,
        crossing: Crossing,
        body: Body,
        request: str,
        effect: SideEffect,
        error: ErrorObject,
        refused: Refused,
        started: float,
    ) -> Outcome:
        """Record a call that was not made; what the code gets. `request` is the digest of what it asked for."""
        if body.ref.size > MAX_REFUSED:
            # Its digest says what it was; nobody has to keep what was not even tried.
            left_out = canonical_json(
                {"left_out": {"bytes": body.ref.size, "digest": body.ref.digest}}
            )
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

    async def again(self, crossing: Crossing, past: Past) -> Outcome:
        """What the code got when it made this call before; hooks that were not heard then are asked now.

        A person's word was perhaps taken where nobody knew the capability: it is held against its schema here, once.
        """
        given = await answer(self._journal, past)
        executor = crossing.desk.toolbox.get(past.name)
        unseen = given.error is None and past.seen is None and not crossing.asks_model
        if not unseen or executor is None:
            return given
        if past.by_word and (unfit := self._unfit(executor, given.value)):
            return await self._told(crossing, given.record, None, None, unfit)
        if self._guards.changes_results or past.unseen or past.by_word:
            return await self._seen(crossing, executor, given.value, given.record)
        return given

    def _unfit(self, executor: Executor, value: Json) -> ErrorObject | None:
        try:
            executor.check_result(value)
        except HoldfastError as why:
            return redacted(self._redactor, not_as_promised(why))
        return None

    # -- what hooks leave of it -------------------------------------------------------------------------

    def _hooked(self, crossing: Crossing) -> bool:
        return self._guards.changes_results and not crossing.asks_model

    async def _seen(
        self, crossing: Crossing, executor: Executor, value: Json, record: ExternalCallRecord
    ) -> Outcome:
        """What the code is given once hooks have looked at it; on record, so that a replay gives the same."""
        given, error = await self._guards.after(crossing, executor, value)
        return await self._told(crossing, record, value, given, error)

    async def _told(
        self,
        crossing: Crossing,
        record: ExternalCallRecord,
        value: Json,
        given: Json,
        error: ErrorObject | None,
    ) -> Outcome:
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
        crossing, passing, context = act.crossing, act.passing, act.context
        desk, careful, completed = crossing.desk, act.careful, status is _S.COMPLETED
        run_id, attempt = desk.run_id, context.attempt
        bodies, digests = ((body,), (body.ref.digest,)) if body is not None else ((), ())
        keeps = completed and context.kept.bodies
        result = made(
            EffectResult,
            {
                "effect_id": crossing.effect_id,
                "terminal_status": status,
                "external_operation_id": self._external(context),
                "reconciliation_ref": None,
                "error": error,
                "raised": kind,
                "attempt": attempt if attempt > 1 else None,
                "resolved": resolved,
                "hooked": completed and self._hooked(crossing),
                "spent": self._settle(act, passing.reserved),
                "usage": context.usage,
                "duration_ms": int(act.took * 1000),
                "content_refs": digests,
                "redacted_summary": f"{crossing.name} {status._value_}",
            },
        )
        if keeps:
            bodies += keeps
        crossing.ordered(desk.next_order())
        # From here on it is told: hooks may look at the result for long, and it is no slow read meanwhile.
        intent, passing.untold = passing.untold, None
        if intent is None and crossing.lazy:
            desk.hold([Draft.of(result, run_id=run_id, bodies=bodies)], durable=careful)
            return

        def draft() -> Draft:
            return Draft.of(result, run_id=run_id, bodies=bodies)

        if intent is not None and keeps:  # whoever has its name may look for it at once
            await desk.append([*passing.before(intent, run_id), draft()], durable=False)
        elif intent is not None:
            # Nobody waits for these records: they are made where they are written, while the code goes on.
            count = len(passing.drafts) + 2
            desk.post_made(count, lambda: [*passing.before(intent, run_id), draft()])
        elif careful or desk.shares or crossing.asks_model or keeps:
            await desk.append([draft()], durable=careful)
        else:
            # Were it lost, the call would be made again, which the other side recognises. Whatever the code does
            # next is recorded behind it, most often in the same commit.
            desk.post_made(1, lambda: [draft()])

    def _partial(self, act: Act) -> Body | None:
        """What a person may have seen of an answer that broke off."""
        partial = act.context.partial
        if partial is None:
            return None
        data = canonical_json(self._redactor.json(partial))
        return Body.of(data, role="result", mime="application/json")

    def _external(self, context: Context) -> str | None:
        name = context.external_id
        return None if name is None else self._redactor.text(name)

    def _settle(self, act: Act, reserved: Reserved | None) -> Reserved | None:
        if reserved is None:
            return None
        cost, usage = act.context.cost_micros, act.context.usage
        spent = Reserved(
            calls=reserved.calls,
            cost_micros=reserved.cost_micros if cost is None else max(0, cost),
            wall_ms=int(act.took * 1000),
            tokens=reserved.tokens if usage is None else usage.tokens,
        )
        settle_all(act.crossing.desk.purses, reserved, spent)
        return spent


def _as_recorded(value: Json, data: bytes) -> Json:
    """The value as whoever reads it from the record gets it: code may look at the order of keys."""
    return _read(data.decode())[0] if isinstance(value, (dict, list)) else value
