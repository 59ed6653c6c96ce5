"""An effect: an intent recorded before the act, a result recorded after it."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from holdfast.contracts._base import Count, Told, listed, optional, unless
from holdfast.contracts.capability import SideEffect
from holdfast.contracts.content import Digest
from holdfast.contracts.ids import Id
from holdfast.contracts.model import ModelUsage
from holdfast.contracts.run import ErrorObject


class EffectKind(StrEnum):
    """What crosses the boundary."""

    PROVIDER_REQUEST = "provider_request"
    TOOL_EXECUTION = "tool_execution"
    APPROVAL_DISPATCH = "approval_dispatch"
    MEMORY_WRITE = "memory_write"
    EXTENSION_ACTION = "extension_action"
    OUTPUT_DELIVERY = "output_delivery"
    FILE_WRITE = "file_write"
    PROCESS_START = "process_start"
    PROCESS_SIGNAL = "process_signal"
    ISOLATED_PROCESS_START = "isolated_process_start"
    CHILD_AGENT_START = "child_agent_start"
    RUN_MESSAGE_DELIVERY = "run_message_delivery"
    CHILD_ARTIFACT_SHUTDOWN = "child_artifact_shutdown"
    DETACH_TRANSFER = "detach_transfer"
    HOOK_MUTATION = "hook_mutation"


class EffectStatus(StrEnum):
    """How an effect ended. `unknown` stays open until somebody reconciles it."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DENIED_BEFORE_EXECUTION = "denied_before_execution"
    UNKNOWN = "unknown"


class Reserved(Told):
    """What was set aside from the session's budget for one call, or what it really used."""

    calls: Count = 1
    """Calls."""
    cost_micros: Count = 0
    """Money, in millionths of a US dollar."""
    wall_ms: Count = 0
    """Time."""
    tokens: Count = unless(0)
    """Tokens of models, in and out."""


class EffectIntent(Told):
    """What is about to happen. Durable before it does."""

    effect_id: Id
    """Made before the act; the executor's idempotency key."""
    kind: EffectKind
    """What crosses the boundary."""
    name: str
    """The capability, provider or sink."""
    side_effect: SideEffect = SideEffect.NONE
    """What it may touch."""
    idempotent: bool = False
    """Whether repeating it is harmless."""
    idempotency_key: Id | None = optional()
    """Repeating with this key is safe."""
    dedupe_key: Id | None = optional()
    """The receiver recognises a repeat by this key."""
    reconcilable: bool = unless(False)
    """Whether its capability can find out what became of it."""
    ordinal: int | None = optional()
    """Its number among the calls of its run."""
    awaited: bool = unless(False)
    """Whether the code awaits it."""
    line: int | None = optional()
    """The line of the code that it was called at, from 1; absent for a call of no code, and of code of an earlier run."""
    request: Digest | None = optional()
    """What the code asked for, as the digest of the arguments before any hook changed them."""
    capability: Digest | None = optional()
    """The capability as it was: its digest."""
    call_id: str | None = optional()
    """The model's call that it answers."""
    beside: Id | None = optional()
    """The effect under way on whose behalf this one is made: the code has not asked for it, and does not see it."""
    turn: int | None = optional()
    """Of a question to a model: which of its run it is; absent when it is about the conversation, not part of it."""
    context: Digest | None = optional()
    """Of a question to a model: the conversation it was asked with."""
    accounts: tuple[Id, ...] = listed()
    """Whose budgets it uses up besides the session's."""
    approval_id: Id | None = optional()
    """The approval that released it."""
    grant_id: Id | None = optional()
    """The grant that released it."""
    reserved: Reserved | None = optional()
    """What was set aside for it."""
    policy_refs: tuple[str, ...] = listed()
    """The rules that let it pass."""
    content_refs: tuple[Digest, ...] = listed()
    """Its arguments, by digest; the record's `content` holds the references."""
    redacted_summary: str
    """One line for people, without arguments or results."""


class EffectResult(Told):
    """How it ended. At most one for each intent, never before it."""

    effect_id: Id
    """The intent's."""
    terminal_status: EffectStatus
    """How it ended."""
    external_operation_id: str | None = optional()
    """The other side's name for it."""
    reconciliation_ref: str | None = optional()
    """How to find out; an `unknown` effect must carry one."""
    error: ErrorObject | None = optional()
    """Why it did not complete."""
    raised: str | None = optional()
    """The built-in exception the code saw, where the error's code does not say it."""
    attempt: int | None = optional()
    """Which attempt this is the result of, if not the first."""
    resolved: str | None = optional()
    """How a doubt was ended: `reconciled`, or a person's `happened` or `did_not_happen`."""
    hooked: bool = unless(False)
    """Whether hooks look at it before anybody else does: what they leave of it is in the `effect_seen` that follows."""
    spent: Reserved | None = optional()
    """What it really used."""
    usage: ModelUsage | None = optional()
    """Tokens and money, of a question to a model."""
    duration_ms: int | None = optional()
    """How long it took."""
    content_refs: tuple[Digest, ...] = listed()
    """What it produced, by digest."""
    redacted_summary: str
    """One line for people, without arguments or results."""

    @model_validator(mode="after")
    def _unknown_is_reconcilable(self) -> Self:
        if self.terminal_status is EffectStatus.UNKNOWN and not self.reconciliation_ref:
            raise ValueError("an unknown result must carry a reconciliation_ref")
        return self


class EffectAttempt(Told):
    """It is done again, under the same id, because that is harmless or because a person said so."""

    effect_id: Id
    """The intent's."""
    attempt: int
    """Counts executions, from 1."""
    reason: str
    """`recovered`: it is harmless; `not_started`: a reconciler said so; `released`: a person did; `answered`: nothing
    was done before somebody answered."""


class EffectReleased(Told):
    """A person said of an effect in doubt: do it again."""

    effect_id: Id
    """The intent's."""
    attempt: int
    """The attempt that may be made."""
    actor: str | None = optional()
    """Who said so."""


class EffectSeen(Told):
    """What the code was given, when hooks could have changed it, or when it is a person's word."""

    effect_id: Id
    """The intent's."""
    value: Digest | None = optional()
    """The value; the result keeps the original."""
    error: ErrorObject | None = optional()
    """What it was told instead: a hook wants the call made again, or a person's word does not fit the capability."""
    rewritten: bool = False
    """Whether it is another than the original."""


class EffectView(Told):
    """An effect as lists show it."""

    id: str
    """Its effect id."""
    kind: str
    """What crosses the boundary."""
    name: str
    """The capability, provider or sink."""
    status: str
    """`open`, or its terminal status."""
    intent_at: int
    """Unix milliseconds."""
    result_at: int | None = None
    """Unix milliseconds, once it ended."""
    idempotent: bool = False
    """Whether repeating it is harmless."""
    summary: str = ""
    """One line for people."""
    session_id: str | None = None
    """Whose stream it is in."""
    run_id: str | None = None
    """Which run asked."""
