"""What is done about a question to a model that failed: ask again, ask another model, or give up."""

from __future__ import annotations

import random

from holdfast.agent.asked import Asked, Exhausted, Refusal, Retry, Spent, TooLong
from holdfast.agent.connections import meet
from holdfast.agent.questions import TIMEOUT_MS, Question
from holdfast.agent.work import Work
from holdfast.contracts import Draft
from holdfast.contracts.agent import ModelRetry, ModelSwitched
from holdfast.errors import CODES, HoldfastError, ModelFailure
from holdfast.gate.crossing import Outcome
from holdfast.machines.outcome import Cause
from holdfast.machines.retry import RETRYABLE, FailureKind, RetryPolicy, retry_delay
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


class Retrying:
    """Of one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.last = ""
        """The effect of the newest question of the conversation: it is the one that failed."""

    async def failed(
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

    def again(self, tries: int, retry: Retry | None, left_ms: int | None) -> Retry:
        """Ask once more, because a hook wants another answer."""
        return self._plan(_AGAIN, tries + 1, retry, left_ms, None, hook=True)

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
            effect_id=self.last,
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


def _as_error(outcome: Outcome) -> HoldfastError:
    error = outcome.error
    assert error is not None
    code = error.code if error.code in CODES else "MODEL_INVALID_REQUEST"
    if code in KINDS:
        return ModelFailure(code, error.message, hint=error.hint)
    return HoldfastError(code, error.message, hint=error.hint)
