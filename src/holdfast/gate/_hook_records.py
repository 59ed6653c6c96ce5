"""What the journal is told about a hook."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.contracts import (
    Body,
    Draft,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    canonical_json,
    new_id,
)
from holdfast.contracts.hook import (
    HookCancelled,
    HookDecided,
    HookDecision,
    HookFailed,
    HookRecord,
    HookRegistered,
    HookSpec,
    HookTimedOut,
)
from holdfast.contracts.hook_response import HookResponse
from holdfast.gate._hook_view import cut


@dataclass(frozen=True, slots=True)
class Scribe:
    """Writes the records of one invocation of one hook."""

    spec: HookSpec
    """The hook."""
    run_id: str | None
    """The run the records belong to."""
    subject: str
    """What it was about."""
    invocation_id: str = ""
    """Which time."""

    def registered(self) -> Draft:
        """It is in force."""
        said = HookRegistered(
            spec_hash=self.spec.digest,
            executor_ref=self.spec.executor_ref,
            policy_ref=self.spec.policy_ref,
        )
        return self._draft(said)

    def timed_out(self, elapsed_ms: int) -> Draft:
        """It took too long."""
        said = HookTimedOut(
            invocation_id=self.invocation_id,
            elapsed_ms=elapsed_ms,
            failure_policy=self.spec.failure,
        )
        return self._draft(said)

    def failed(self, summary: str) -> Draft:
        """It raised, or its answer was none."""
        said = HookFailed(
            invocation_id=self.invocation_id,
            failure_policy=self.spec.failure,
            redacted_summary=cut(summary),
        )
        return self._draft(said)

    def cancelled(self) -> Draft:
        """It was not asked, or not heard."""
        return self._draft(HookCancelled(invocation_id=self.invocation_id))

    def rejected(
        self, response: HookResponse, decision: HookDecision, reason: str | None = None
    ) -> Draft:
        """Its answer does not count."""
        said = HookDecided(
            invocation_id=self.invocation_id,
            decision=decision,
            response_class=response.response_class,
            reason=reason,
        )
        return self._draft(said)

    def accepted(self, response: HookResponse) -> list[Draft]:
        """Its answer counts: the three records that must be durable, together, before it is in force."""
        what = f"accepted hook response {response.response_class.value}"
        effect_id = new_id("eff")
        data = canonical_json(response.model_dump(mode="json"))
        body = Body.of(data, role="hook_response", mime="application/json")
        said = HookDecided(
            invocation_id=self.invocation_id,
            decision=HookDecision.ACCEPTED,
            response_class=response.response_class,
            target_domain_refs=(effect_id,),
        )
        intent = EffectIntent(
            effect_id=effect_id,
            kind=EffectKind.HOOK_MUTATION,
            name=self.spec.hook_id,
            idempotent=True,
            policy_refs=(self.spec.policy_ref,),
            redacted_summary=what,
        )
        result = EffectResult(
            effect_id=effect_id,
            terminal_status=EffectStatus.COMPLETED,
            redacted_summary=f"{what} journaled before apply",
        )
        return [
            self._draft(said, body),
            Draft.of(intent, run_id=self.run_id, actor=self._actor),
            Draft.of(result, run_id=self.run_id, actor=self._actor),
        ]

    @property
    def _actor(self) -> str:
        return f"hook:{self.spec.hook_id}"

    def _draft(
        self,
        said: HookRegistered | HookTimedOut | HookCancelled | HookFailed | HookDecided,
        body: Body | None = None,
    ) -> Draft:
        record = HookRecord(
            hook_id=self.spec.hook_id,
            point=self.spec.point,
            subject=self.subject,
            payload=said,
            response=None if body is None else body.ref.digest,
        )
        bodies = () if body is None else (body,)
        return Draft.of(record, run_id=self.run_id, actor=self._actor, bodies=bodies)
