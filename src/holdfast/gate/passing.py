"""A call that may be made: what it is called with, who let it pass, and what is set aside for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.contracts import (
    Body,
    Capability,
    CapabilityLimits,
    Draft,
    EffectIntent,
    Json,
    Reserved,
)
from holdfast.contracts._base import made
from holdfast.gate.crossing import Crossing
from holdfast.gate.executor import Executor
from holdfast.gate.policy import Ruling


@dataclass(slots=True)
class Passing:
    """A call that may be made."""

    executor: Executor
    arguments: dict[str, Json]
    """The final ones."""
    request: str
    """The digest of what the code asked for."""
    body: Body
    """The arguments as they are recorded."""
    ruling: Ruling
    drafts: tuple[Draft, ...] = ()
    """What is to be recorded together with the intent."""
    approval_id: str | None = None
    grant_id: str | None = None
    reserved: Reserved | None = None
    untold: EffectIntent | None = None
    """The intent, as long as it is to be recorded with the result: nothing has to be on disk before a read."""

    @property
    def capability(self) -> Capability:
        """What is called."""
        return self.executor.capability

    @property
    def limits(self) -> CapabilityLimits:
        """What the call may use."""
        return self.ruling.limits

    def shorten(self, left_ms: int | None) -> None:
        """Give it no more time than the session's budget has left."""
        if left_ms is not None and left_ms < self.limits.timeout_ms:
            limits = self.limits.model_copy(update={"timeout_ms": max(1, left_ms)})
            self.ruling = replace(self.ruling, limits=limits)

    def before(self, intent: EffectIntent, run_id: str) -> list[Draft]:
        """What has to be on record before the result."""
        return [*self.drafts, Draft.of(intent, run_id=run_id, bodies=(self.body,))]

    def first(self, run_id: str) -> list[Draft]:
        """What has to be on record before anything else about the call is, unless it is; from here on, it is."""
        intent, self.untold = self.untold, None
        return [] if intent is None else self.before(intent, run_id)

    def intent(self, crossing: Crossing) -> EffectIntent:
        """What is about to happen."""
        capability, name = self.executor.capability, crossing.name
        return made(
            EffectIntent,
            {
                "effect_id": crossing.effect_id,
                "kind": crossing.kind,
                "name": name,
                "side_effect": capability.side_effect,
                "idempotent": capability.idempotent,
                "idempotency_key": None,
                "dedupe_key": None,
                "reconcilable": self.executor.reconciles,
                "ordinal": crossing.number,
                "awaited": capability.asynchronous,
                "line": crossing.line,
                "request": self.request,
                "capability": capability.digest,
                "call_id": crossing.call_id,
                "beside": crossing.beside,
                "turn": crossing.turn,
                "context": crossing.context,
                "accounts": crossing.desk.accounts if self.reserved is not None else (),
                "approval_id": self.approval_id,
                "grant_id": self.grant_id,
                "reserved": self.reserved,
                "policy_refs": self.ruling.rule_ids,
                "content_refs": (self.body.ref.digest,),
                "redacted_summary": f"{'ask' if crossing.asks_model else 'execute'} {name}",
            },
        )
