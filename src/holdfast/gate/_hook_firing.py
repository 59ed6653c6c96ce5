"""The hooks of one point, asked one after the other about one thing.

What holds here, and must:

* An answer is in force only once its three records are durable, all in one append. If that append fails, its
  error goes to the caller and nothing was changed.
* Every answer that was not taken, every failure, delay and cancellation is on record before anything follows.
* A hook that may not fail open and was not heard (it raised, was too slow, was rejected, was skipped because the run
  is being cancelled) ends the firing with an error. The guarded operation can't go on by accident.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anyio import (
    CancelScope,
    current_time,
    get_cancelled_exc_class,
    move_on_after,
)

from holdfast.contracts import Draft, new_id
from holdfast.contracts.hook import HookDecision, HookFailure, HookPoint, HookSpec
from holdfast.contracts.hook_response import STOPPING, HookResponse, ResponseClass
from holdfast.errors import HoldfastError, ModelError, OperatorError, PersonError
from holdfast.gate._hook_call import Answer, Hook, ask
from holdfast.gate._hook_observers import RECORD_MS, Observers, Taken
from holdfast.gate._hook_records import Scribe
from holdfast.gate._hook_rules import judge
from holdfast.gate._hook_view import HookInput, View, guard, question

Record = Callable[[list[Draft]], Awaitable[None]]
"""Appends all drafts or none; durable when it returns."""

Consider = Callable[[View, HookResponse], View]
"""A domain's guard: the view with the answer in force, or any `HoldfastError` to reject it."""

CANCEL_MS = 1_000
"""How long all hooks of `on_run_cancel_requested` together may take: cancelling waits for nobody."""

BEST_EFFORT = frozenset({HookPoint.ON_RUN_CANCEL_REQUESTED, HookPoint.AFTER_RUN_TERMINAL})
"""Points whose hooks can't change what happens, not even by failing, and are asked also of a cancelled run."""


_TOO_LATE = frozenset(
    point for point in HookPoint if point.value.startswith(("after_", "before_run_complete"))
)
"""Points at which what hooks are asked about has been done."""


class HookInterrupts(OperatorError):
    """A hook failed whose run is to stand there until it is repaired, and go on from there."""


class HookStatus(StrEnum):
    """What became of one invocation."""

    COMPLETED = "completed"
    """It looked."""
    APPLIED = "applied_journaled_mutation"
    """Its answer is in force."""
    RESTORED = "restored"
    """Its recorded answer is in force; it was not asked again."""
    REJECTED_POINT_MATRIX = "rejected_point_matrix"
    """Nobody may answer so at this point."""
    REJECTED_MUTATION_RIGHT = "rejected_mutation_right"
    """It has no right to answer so."""
    REJECTED_POLICY = "rejected_policy"
    """The domain refused its answer."""
    TIMED_OUT_FAIL_OPEN = "timed_out_fail_open"
    """It was too slow, and may be."""
    FAILED_OPEN = "failed_open"
    """It failed, and may."""
    CANCELLED = "cancelled"
    """It was not asked, or not heard."""
    QUEUED = "queued"
    """It will be asked in a moment; nobody waits."""
    DROPPED = "dropped"
    """Its queue was full."""


_REJECTED = {
    HookDecision.REJECTED_POINT_MATRIX: HookStatus.REJECTED_POINT_MATRIX,
    HookDecision.REJECTED_MUTATION_RIGHT: HookStatus.REJECTED_MUTATION_RIGHT,
    HookDecision.REJECTED_POLICY: HookStatus.REJECTED_POLICY,
}
_TAKEN = {Taken.QUEUED: HookStatus.QUEUED, Taken.DROPPED: HookStatus.DROPPED}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one hook."""

    hook_id: str
    """Which."""
    status: HookStatus
    """What became of it."""
    invocation_id: str | None = None
    """Which time, if it was its turn."""
    response: HookResponse | None = None
    """What it answered, in force or rejected."""
    elapsed_ms: int = 0
    """How long it took."""

    @property
    def in_force(self) -> bool:
        """Whether its answer counts."""
        return self.status in (HookStatus.APPLIED, HookStatus.RESTORED)


@dataclass(frozen=True, slots=True)
class Fired:
    """What the hooks of a point made of it."""

    view: View
    """As it stands after all of them."""
    outcomes: tuple[Outcome, ...] = ()
    """What became of each, in order; those after a refusal were not asked."""

    def first(self, *classes: ResponseClass) -> Outcome | None:
        """The first outcome in force of one of these classes."""
        for found in self.outcomes:
            if found.in_force and found.response and found.response.response_class in classes:
                return found
        return None

    @property
    def denied(self) -> HookResponse | None:
        """The refusal: `deny`, `stop_run` or `stop_completion_with_repair_needed`."""
        found = self.first(*STOPPING)
        return found.response if found else None

    @property
    def denied_by(self) -> str | None:
        """The hook that refused."""
        found = self.first(*STOPPING)
        return found.hook_id if found else None

    @property
    def wants_approval(self) -> HookResponse | None:
        """The first wish that a person be asked; the view has the highest risk any hook named."""
        found = self.first(ResponseClass.REQUEST_APPROVAL)
        return found.response if found else None

    @property
    def wants_retry(self) -> HookResponse | None:
        """The first wish to try again."""
        found = self.first(ResponseClass.REQUEST_RETRY)
        return found.response if found else None


@dataclass(slots=True)
class Firing:
    """One thing and the hooks that are asked about it."""

    point: HookPoint
    view: View
    session_id: str
    run_id: str
    subject: str
    record: Record
    consider: Consider
    restored: Mapping[str, HookResponse]
    cancelled: Callable[[], bool]
    strict: bool
    observers: Observers
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    until: float | None = None

    async def go(self, hooks: Sequence[Hook]) -> Fired:
        """Ask them all, in their order, until one refuses."""
        cancelling = self.point is HookPoint.ON_RUN_CANCEL_REQUESTED
        if cancelling:
            self.until = current_time() + CANCEL_MS / 1000
        with CancelScope(shield=cancelling):
            await self._all(hooks)
        return Fired(self.view, tuple(self.outcomes))

    async def _all(self, hooks: Sequence[Hook]) -> None:
        for hook in hooks:
            outcome = await self._one(hook)
            self.outcomes.append(outcome)
            answer = outcome.response
            if outcome.in_force and answer is not None and answer.response_class in STOPPING:
                break

    async def _one(self, hook: Hook) -> Outcome:
        spec = hook.spec
        if (known := self.restored.get(spec.hook_id)) is not None:
            self.view = self.consider(self.view, known)
            return Outcome(spec.hook_id, HookStatus.RESTORED, response=known)
        scribe = Scribe(spec, self.run_id, self.subject, new_id("hook"))
        ms = self._time_left(spec)
        if ms <= 0 or (self.point not in BEST_EFFORT and self.cancelled()):
            return await self._skipped(scribe)
        if not spec.blocking:
            return await self._queued(hook, scribe)
        try:
            answer = await ask(hook, self._question(scribe), ms)
        except get_cancelled_exc_class():
            # The record of it must not be cancelled too, nor hold up the cancellation for ever.
            with move_on_after(RECORD_MS / 1000, shield=True):
                await self.record([scribe.cancelled()])
            raise
        return await self._judged(scribe, answer)

    def _time_left(self, spec: HookSpec) -> float:
        if self.until is None:
            return spec.timeout_ms
        return min(spec.timeout_ms, (self.until - current_time()) * 1000)

    async def _skipped(self, scribe: Scribe) -> Outcome:
        spec = scribe.spec
        await self.record([scribe.cancelled()])
        if spec.security_relevant and self.point not in BEST_EFFORT:
            raise PersonError(
                "CANCELLED",
                f"The run was cancelled before hook `{spec.hook_id}` was asked at `{spec.point}`.",
                hint="What the hook guards was not done.",
            )
        return Outcome(spec.hook_id, HookStatus.CANCELLED, scribe.invocation_id)

    async def _queued(self, hook: Hook, scribe: Scribe) -> Outcome:
        taken = self.observers.offer(
            hook, self._question(scribe), scribe, self.record, terminal=self.view.terminal
        )
        if taken is Taken.FAILED:
            return await self._unheard(scribe, Answer("failed", 0, summary="Its queue was full."))
        return Outcome(scribe.spec.hook_id, _TAKEN[taken], scribe.invocation_id)

    async def _judged(self, scribe: Scribe, answer: Answer) -> Outcome:
        spec = scribe.spec
        if answer.status != "answered":
            return await self._unheard(scribe, answer)
        response = answer.response
        decision = judge(spec, response)
        if decision is not None:
            await self.record([scribe.rejected(response, decision)])
            return self._rejected(scribe, answer, decision, None)
        if response.response_class is ResponseClass.OBSERVE:
            return self._outcome(scribe, HookStatus.COMPLETED, answer)
        try:
            guard(self.view, response)
            view = self.consider(self.view, response)
        except HoldfastError as why:
            policy = HookDecision.REJECTED_POLICY
            await self.record([scribe.rejected(response, policy, why.code)])
            return self._rejected(scribe, answer, policy, why)
        await self.record(scribe.accepted(response))
        self.view = view
        return self._outcome(scribe, HookStatus.APPLIED, answer)

    async def _unheard(self, scribe: Scribe, answer: Answer) -> Outcome:
        """It failed or was too slow: on record, and then what its failure policy says."""
        spec, late = scribe.spec, answer.status == "timed_out"
        draft = scribe.timed_out(answer.elapsed_ms) if late else scribe.failed(answer.summary)
        await self.record([draft])
        if self._closes(spec):
            raise closed(spec, answer.summary) from answer.error
        status = HookStatus.TIMED_OUT_FAIL_OPEN if late else HookStatus.FAILED_OPEN
        return Outcome(spec.hook_id, status, scribe.invocation_id, elapsed_ms=answer.elapsed_ms)

    def _rejected(
        self, scribe: Scribe, answer: Answer, decision: HookDecision, why: HoldfastError | None
    ) -> Outcome:
        if self.strict and self._closes(scribe.spec):
            # Going on as if it had said nothing would let through what it wanted to change or stop.
            what = answer.response.response_class.value
            said = f" ({why.message})" if why else ""
            raise closed(scribe.spec, f"Its answer `{what}` was rejected{said}.") from why
        return self._outcome(scribe, _REJECTED[decision], answer)

    def _closes(self, spec: HookSpec) -> bool:
        fails_open = spec.failure is HookFailure.FAIL_OPEN_OBSERVE_ONLY
        return not fails_open and self.point not in BEST_EFFORT

    def _outcome(self, scribe: Scribe, status: HookStatus, answer: Answer) -> Outcome:
        id_, time = scribe.spec.hook_id, answer.elapsed_ms
        return Outcome(id_, status, scribe.invocation_id, answer.response, time)

    def _question(self, scribe: Scribe) -> HookInput:
        return question(
            scribe.spec,
            self.view,
            session_id=self.session_id,
            run_id=self.run_id,
            subject=self.subject,
            invocation_id=scribe.invocation_id,
        )


def closed(spec: HookSpec, why: str) -> HoldfastError:
    """What stops the operation when a hook that may not fail did."""
    message = f"Hook `{spec.hook_id}` did not do its part at `{spec.point.value}`: {why}"
    if spec.failure is HookFailure.DENY:
        done = (
            "What was done before stays done." if spec.point in _TOO_LATE else "Nothing was done."
        )
        return ModelError("PERMISSION_DENIED", message, hint=done)
    if spec.failure is HookFailure.FAIL_RUN:
        return OperatorError(
            "HOOK_FAILED",
            message,
            hint="Repair the hook. What the run did before stays done: look at it before you run it again.",
        )
    return HookInterrupts(
        "HOOK_FAILED",
        message,
        hint="Repair the hook, then resume the run; or let it fail open, where its point allows that.",
    )
