"""The only door to the outside world. Everything that crosses it takes this path, in this order:

    resolve      is there such a capability, in this session's set?
    validate     arguments against the schema, size
    hooks        before: may deny, rewrite (validated again), demand approval
    policy       allow / ask / deny on the final arguments; the matched rule is recorded
    approval     a grant, an approved plan, or a person; may park the run
    budget       reserve calls, money, time; rate and concurrency
    intent       durable before the act, for every effect that is not a pure read
    execute      deadline, cancellation, idempotency key = effect id
    validate     result schema, size, redaction
    result       recorded; then, and only then, the caller sees it
    hooks        after: may rewrite what the caller sees (the result on record stays)

Up to the budget it is decided here; from the intent on in `execution.py`, its result in `results.py`. A call that is refused anywhere on the way
is on record too, as an effect that was denied before it was executed, so that a replayed run sees the same refusal.
A call of a resumed run starts where its records end (`Crossing.past`, `resuming.py`); what is done about an effect of
which only the intent is known is the table in `recovery.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

import anyio

from holdfast.contracts import (
    ApprovalStatus,
    Body,
    Draft,
    ErrorObject,
    Json,
    Reserved,
    Risk,
    SideEffect,
    Verdict,
    canonical_json,
)
from holdfast.contracts.payload import ApprovalPreapproved
from holdfast.errors import (
    CallerError,
    HoldfastError,
    InternalError,
    ModelError,
)
from holdfast.gate._hook_firing import HookInterrupts
from holdfast.gate._refusals import (
    Refused,
    cancelled,
    changed,
    denied,
    holds_secret,
    not_in_plan,
    redacted,
    unknown_tool,
)
from holdfast.gate.asking import Asking
from holdfast.gate.broker import Settled, settlement
from holdfast.gate.budgets import Purse, reserve_all
from holdfast.gate.crossing import (
    Crossing,
    Doubt,
    Held,
    Outcome,
    Wish,
    arguments_body,
    as_asked,
)
from holdfast.gate.dryrun import planned_effect, pretended
from holdfast.gate.execution import Execution
from holdfast.gate.executor import Executor
from holdfast.gate.guards import Guards
from holdfast.gate.hold import Hold
from holdfast.gate.inquiry import Inquiry
from holdfast.gate.limits import Limiter, check_request, too_large
from holdfast.gate.passing import Passing
from holdfast.gate.past import Past
from holdfast.gate.policy import Call, Ruling
from holdfast.gate.questions import Questions
from holdfast.gate.recovery import HARMLESS
from holdfast.gate.redact import Redactor
from holdfast.gate.results import Results
from holdfast.gate.resuming import Resuming
from holdfast.journal import Journal


class Gate:
    """Lets calls through. One for a runtime: what belongs to a run is at its desk, the rest is in the journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        asking: Asking,
        guards: Guards,
        limiter: Limiter,
        redactor: Redactor,
    ) -> None:
        self.journal = journal
        self.redactor = redactor
        self.guards = guards
        self.hold = Hold()
        self._asking = asking
        self._questions = Questions(journal, asking, redactor)
        self._results = Results(journal, guards=guards, redactor=redactor)
        self._execution = Execution(
            journal,
            limiter=limiter,
            redactor=redactor,
            questions=self._questions,
            results=self._results,
        )
        self._resuming = Resuming(
            journal,
            redactor=redactor,
            questions=self._questions,
            execution=self._execution,
            results=self._results,
        )

    async def perform(self, crossing: Crossing) -> Outcome | Doubt | Held:
        """Make a call, or say why not. What is raised is not for the code: the journal, the operator, a bug."""
        started, past = monotonic(), crossing.past
        executor = crossing.executor or crossing.desk.toolbox.get(crossing.name)
        try:
            if past is not None:
                await self._resuming.check_same(crossing, executor, past)
                if past.answered:
                    return await self._resuming.answered(crossing, past)
            if executor is None:
                raise Refused(unknown_tool(crossing.name), rules=("default.unknown",))
            if past is not None and past.intent is not None:
                if self.hold.closed:
                    crossing.mood("held")
                    await self.hold.passed()
                with self.hold:
                    return await self._recover(crossing, executor, past)
            passing = await self._admit(crossing, executor)
            if isinstance(passing, Outcome):
                return passing
            if crossing.beside is not None:  # part of a call that is under way
                return await self._execution.make(crossing, passing, started)
            if self.hold.closed:
                # The process ends while the call waits there: leave nothing unsaid, and let no time pass for it.
                await crossing.desk.settle(durable=True)
                crossing.mood("held")
                await self.hold.passed()
            with self.hold:
                return await self._execution.make(crossing, passing, started)
        except Refused as refused:
            return await self._refuse(crossing, executor, refused, started)
        except HookInterrupts as why:
            if crossing.asks_model:  # whoever asks it stands there, not the call
                raise
            why.effect_id = crossing.effect_id
            return Held(crossing.effect_id, crossing.name, why)

    async def beside(
        self,
        call: object,
        executor: Executor,
        arguments: Mapping[str, Json],
        *,
        name: str,
        reserve: Reserved | None = None,
        within_ms: int | None = None,
    ) -> Outcome:
        """Ask a model on behalf of a call that is under way: `call` is its `Context.call`.

        It takes the whole path under `name`, which policy knows as `sampling:…`, on the budgets of the call's run, and
        with records in its stream; the code does not see it, and nor does a replay. A person is asked while the call's
        connection is held and its time stands still.
        """
        if not isinstance(call, Inquiry):
            raise InternalError("`beside` was called for something that is no call under way.")
        crossing = call.beside(executor, arguments, name=name, reserve=reserve, within_ms=within_ms)
        with call.within():
            try:
                end = await self.perform(crossing)
            except HoldfastError as why:
                call.failure = call.failure or why
                raise
            finally:
                crossing.mood("working")
                if crossing.asked is not None:  # whoever wanted it does not any more
                    with anyio.CancelScope(shield=True):
                        await self._questions.let_go(crossing.desk, [crossing.asked])
            if not isinstance(end, Outcome):
                raise InternalError("A question to a model is in doubt, which it can't be.")
            return end
        raise cancelled(name)  # the call is over

    def tell_slow(self) -> None:
        """See to it that reads that take long are on record; to be called now and then."""
        self._execution.tell_slow()

    def purses_of(self, call: object) -> Sequence[Purse]:
        """The budgets that what is made beside a call uses up: `call` is its `Context.call`."""
        return call.crossing.desk.purses if isinstance(call, Inquiry) else ()

    # -- may it? --------------------------------------------------------------------------------------

    async def _admit(self, crossing: Crossing, executor: Executor) -> Passing | Outcome:
        """Validate, hooks, policy, approval, budget."""
        past = crossing.past
        wanted = crossing.wanted
        if past is None:
            arguments, body = self._validated(crossing, executor)
            request = body.ref.digest
            if self.guards.changes_calls and not crossing.asks_model:
                arguments, wanted = await self._hooked(crossing, executor, arguments)
                body = _json_body(arguments)
        else:  # it was asked about before: the arguments are those that were shown
            arguments, request = await self._resuming.arguments(past), past.request
            body = _json_body(arguments)
        ruling = self._ruling(crossing, executor, arguments)
        passing = Passing(executor, arguments, request, body, ruling)
        if crossing.within_ms is not None:
            passing.shorten(crossing.within_ms)
        if body.ref.size > ruling.limits.max_request_bytes:
            raise Refused(too_large(crossing.name, body.ref.size, ruling.limits), kind="ValueError")
        if not _waved_through(crossing, ruling, wanted):
            instead = self._planned(crossing, passing, wanted)
            if instead is not None:
                return instead
            await self._approve(crossing, passing, wanted)
        if crossing.desk.purses:
            self._reserve(crossing, passing)
        return passing

    async def _hooked(
        self, crossing: Crossing, executor: Executor, arguments: dict[str, Json]
    ) -> tuple[dict[str, Json], Wish | None]:
        try:
            return await self.guards.before(crossing, executor, arguments)
        except ModelError as why:
            raise Refused(why) from None

    def _validated(self, crossing: Crossing, executor: Executor) -> tuple[dict[str, Json], Body]:
        """The arguments, and the same as they are recorded."""
        name, limits, body = crossing.name, executor.capability.limits, crossing.body
        try:
            arguments = executor.bind(crossing.args, crossing.kwargs)
            if body is None:
                body = arguments_body(check_request(name, arguments, limits))
            elif body.ref.size > limits.max_request_bytes:
                raise too_large(name, body.ref.size, limits)
            executor.check(arguments)
        except CallerError as why:
            raise Refused(why, kind="TypeError") from None
        except ModelError as why:
            raise Refused(why, kind="ValueError") from None
        if self.redactor.json(arguments) is not arguments:
            raise Refused(holds_secret(name))
        return arguments, body

    def _ruling(self, crossing: Crossing, executor: Executor, arguments: dict[str, Json]) -> Ruling:
        desk = crossing.desk
        capability, provenance = executor.capability, crossing.provenance
        call = Call(crossing.name, capability, arguments, desk.session_id, provenance)
        return desk.policy.decide(call)

    def _planned(self, crossing: Crossing, passing: Passing, wanted: Wish | None) -> Outcome | None:
        """What a dry run does in place of a call that is more than a read."""
        ruling, dry = passing.ruling, crossing.desk.dry
        if dry is not None and not _free(passing, wanted):
            dry.append(planned_effect(crossing, passing, wanted))
            if ruling.verdict is not Verdict.DENY:
                return pretended(crossing, passing)
        if ruling.verdict is Verdict.DENY:
            raise Refused(denied(crossing.name, ruling), rules=ruling.rule_ids)
        return None

    async def _approve(self, crossing: Crossing, passing: Passing, wanted: Wish | None) -> None:
        """A plan, a grant, or a person; nobody, where policy says so and no hook wants more."""
        plan, ruling, capability = crossing.desk.plan, passing.ruling, passing.capability
        if plan is not None and not _free(passing, wanted):
            if not plan.take(crossing.name, passing.body.ref.digest, capability.digest):
                raise Refused(not_in_plan(crossing.name), rules=ruling.rule_ids)
            return
        asked = crossing.past.approval if crossing.past is not None else None
        if ruling.verdict is not Verdict.ASK and wanted is None and asked is None:
            return
        risk = wanted.risk if wanted is not None else ruling.risk
        if asked is not None:
            risk = asked.risk
            if asked.capability != capability.digest:
                raise Refused(changed(crossing.name), void="approval.capability_changed")
        elif await self._granted(crossing, passing, risk):
            return
        await self._ask(crossing, passing, risk, wanted)

    async def _granted(self, crossing: Crossing, passing: Passing, risk: Risk) -> bool:
        grant = await self._asking.granted(crossing, risk, passing.capability, passing.body)
        if grant is None:
            return False
        passing.grant_id = grant.id
        used = ApprovalPreapproved(effect_id=crossing.effect_id, grant_id=grant.id)
        passing.drafts += (Draft.of(used, run_id=crossing.desk.run_id),)
        return True

    async def _ask(
        self, crossing: Crossing, passing: Passing, risk: Risk, wanted: Wish | None
    ) -> None:
        try:
            settled = await self._asking.ask(
                crossing,
                passing.ruling,
                passing.capability,
                passing.body,
                passing.request,
                risk=risk,
                wanted=wanted,
            )
        except ModelError as why:  # a hook does not want it asked
            raise Refused(why) from None
        passing.drafts += tuple(settled.drafts)
        if crossing.past is not None:
            crossing.past.settled = True
        if not settled.releases:
            crossing.desk.post(passing.drafts)
            ruling = passing.ruling
            why = denied(crossing.name, ruling, settled=settled)
            raise Refused(why, rules=ruling.rule_ids)
        passing.approval_id = settled.request.id if settled.request else None

    def _reserve(self, crossing: Crossing, passing: Passing) -> None:
        desk = crossing.desk
        for purse in desk.purses:
            passing.shorten(purse.left("wall_ms"))
        wanted = crossing.reserve or Reserved(cost_micros=passing.capability.cost_micros)
        wanted = wanted.model_copy(update={"wall_ms": passing.limits.timeout_ms})
        try:
            reserve_all(desk.purses, wanted)
        except HoldfastError as why:
            if passing.drafts:  # the approval is used up all the same
                desk.post(passing.drafts)
            raise Refused(why) from None
        passing.reserved = wanted

    # -- what was -------------------------------------------------------------------------------------

    async def _recover(self, crossing: Crossing, executor: Executor, past: Past) -> Outcome | Doubt:
        """Only the intent is known."""
        assert past.intent is not None
        arguments = await self._resuming.arguments(past)
        passing = Passing(
            executor,
            arguments,
            past.request,
            _json_body(arguments),
            self._ruling(crossing, executor, arguments),
            reserved=past.intent.reserved,
        )
        passing.shorten(crossing.within_ms)
        return await self._resuming.recover(crossing, passing, past)

    async def _refuse(
        self, crossing: Crossing, executor: Executor | None, refused: Refused, started: float
    ) -> Outcome:
        """Record that a call was not made, and why; what the code gets."""
        past = crossing.past
        if past is not None and past.approval is not None and not past.settled:
            past.settled = True
            end = Settled(ApprovalStatus.DENIED, refused.void)
            crossing.desk.post(settlement(past.approval, end, crossing.desk.run_id))
        error = redacted(self.redactor, ErrorObject.of(refused.error))
        if past is not None:  # the code that stands at it may not say again what it asked for
            body, request = _json_body(await self._resuming.arguments(past)), past.request
        else:
            body = _json_body(self.redactor.json(as_asked(crossing, executor)))
            request = body.ref.digest
        effect = executor.capability.side_effect if executor else SideEffect.NONE
        return self._results.refused(crossing, body, request, effect, error, refused, started)


def _waved_through(crossing: Crossing, ruling: Ruling, wanted: Wish | None) -> bool:
    """Whether there is nothing to plan, to look up or to ask: policy allows the call, and nobody else has a say."""
    desk = crossing.desk
    allowed = ruling.verdict is Verdict.ALLOW and wanted is None and crossing.past is None
    return allowed and desk.plan is None and desk.dry is None


def _free(passing: Passing, wanted: Wish | None) -> bool:
    """Whether a call is one that a dry run makes, and a plan need not name: a read that nobody is asked about."""
    allowed = passing.ruling.verdict is Verdict.ALLOW and wanted is None
    return allowed and passing.capability.side_effect in HARMLESS


def _json_body(value: Json) -> Body:
    return arguments_body(canonical_json(value))
