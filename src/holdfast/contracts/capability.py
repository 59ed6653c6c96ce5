"""What code may call: name, schemas, side effect, limits, when to ask."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked, Count, optional, unless
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.ids import ToolName


class SideEffect(StrEnum):
    """What a call may touch, from harmless to irreversible."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    NETWORK = "network"
    DATABASE = "database"
    EXTERNAL_SYSTEM = "external_system"


class Risk(StrEnum):
    """How much harm a mistake would do."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


RISK_OF: dict[SideEffect, Risk] = {
    SideEffect.NONE: Risk.LOW,
    SideEffect.READ: Risk.LOW,
    SideEffect.WRITE: Risk.MEDIUM,
    SideEffect.NETWORK: Risk.MEDIUM,
    SideEffect.DATABASE: Risk.HIGH,
    SideEffect.EXTERNAL_SYSTEM: Risk.HIGH,
}
"""The risk of a capability that says nothing about it."""


class CapabilityLimits(Asked):
    """What one capability may use."""

    timeout_ms: int = Field(default=5000, ge=1)
    """Breach: `TIMEOUT_TOOL`."""
    max_request_bytes: int = Field(default=1_048_576, ge=0)
    """Size of the canonical arguments."""
    max_response_bytes: int = Field(default=1_048_576, ge=0)
    """Size of the canonical result."""
    concurrency: int = Field(default=16, ge=1)
    """Calls at a time; more wait their turn."""
    rate_per_min: int | None = Field(default=None, ge=1)
    """Calls a minute."""


class AutoRule(Asked):
    """The rule of an automatic approval."""

    rule: str
    """A boolean expression over the call: true runs, false asks."""


class AutoApproval(Asked):
    """Ask unless a rule says the call is fine."""

    auto: AutoRule
    """The rule."""


ApprovalPolicy = Literal["none", "manual"] | AutoApproval
"""`"none"`, `"manual"` or `{"auto": {"rule": "…"}}`."""


class Capability(Asked):
    """One thing code may call."""

    name: ToolName
    """An ASCII identifier."""
    description: str
    """For the model."""
    input_schema: dict[str, JsonValue] = Field(default_factory=dict)
    """JSON Schema 2020-12 of the arguments."""
    output_schema: dict[str, JsonValue] = Field(default_factory=dict)
    """JSON Schema 2020-12 of the result."""
    side_effect: SideEffect = SideEffect.NONE
    """What it may touch."""
    limits: CapabilityLimits = CapabilityLimits()
    """What it may use."""
    approval_policy: ApprovalPolicy = "none"
    """When to ask a person."""
    idempotent: bool = False
    """Whether calling it again with the same key is harmless."""
    asynchronous: bool = unless(False)
    """Whether code awaits it; several awaited calls are under way at a time."""
    risk: Risk | None = optional()
    """How much harm a mistake would do; default: by its side effect."""
    cost_micros: Count = unless(0)
    """What one call is expected to cost, in millionths of a US dollar; reserved before it is made."""

    @property
    def harm(self) -> Risk:
        """Its risk, said or implied."""
        return self.risk or RISK_OF[self.side_effect]

    @cached_property
    def digest(self) -> str:
        """What a grant, a snapshot and an approval are bound to: its name, schemas, side effect and risk."""
        return digest_json(
            {
                "name": self.name,
                "input_schema": self.input_schema,
                "output_schema": self.output_schema,
                "side_effect": self.side_effect.value,
                "idempotent": self.idempotent,
                "asynchronous": self.asynchronous,
                "risk": self.harm.value,
            }
        )
