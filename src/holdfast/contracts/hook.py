"""A hook: where it is asked, what it may do there, how it runs, and what the journal says about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from holdfast.contracts._base import Asked, Count, Told, listed, optional
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.content import Digest
from holdfast.contracts.hook_response import ResponseClass
from holdfast.contracts.ids import Id


class HookPoint(StrEnum):
    """The moments at which hooks are asked."""

    RUN_STARTING = "run_starting"
    BEFORE_CONTEXT_ASSEMBLY = "before_context_assembly"
    AFTER_CONTEXT_ASSEMBLY = "after_context_assembly"
    BEFORE_PROVIDER_PROJECTION = "before_provider_projection"
    BEFORE_MODEL_CALL = "before_model_call"
    ON_MODEL_DELTA = "on_model_delta"
    AFTER_MODEL_CALL = "after_model_call"
    BEFORE_STRUCTURED_OUTPUT_VALIDATION = "before_structured_output_validation"
    AFTER_STRUCTURED_OUTPUT_VALIDATION = "after_structured_output_validation"
    BEFORE_TOOL_CALL = "before_tool_call"
    AFTER_TOOL_CALL = "after_tool_call"
    BEFORE_APPROVAL_REQUEST = "before_approval_request"
    AFTER_APPROVAL_DECISION = "after_approval_decision"
    BEFORE_SUBAGENT_START = "before_subagent_start"
    AFTER_SUBAGENT_TERMINAL = "after_subagent_terminal"
    BEFORE_ISOLATION_PROCESS_START = "before_isolation_process_start"
    AFTER_ISOLATION_PROCESS_EXIT = "after_isolation_process_exit"
    ON_RUN_CANCEL_REQUESTED = "on_run_cancel_requested"
    BEFORE_RUN_COMPLETE = "before_run_complete"
    AFTER_RUN_TERMINAL = "after_run_terminal"
    BEFORE_COMPACTION = "before_compaction"
    AFTER_COMPACTION = "after_compaction"


_P, _R = HookPoint, ResponseClass

_BESIDE_OBSERVE: Mapping[HookPoint, tuple[ResponseClass, ...]] = {
    _P.RUN_STARTING: (_R.INJECT_CONTEXT, _R.STOP_RUN),
    _P.BEFORE_CONTEXT_ASSEMBLY: (_R.INJECT_CONTEXT,),
    _P.AFTER_CONTEXT_ASSEMBLY: (_R.REQUEST_COMPACTION, _R.STOP_RUN),
    _P.BEFORE_PROVIDER_PROJECTION: (_R.MODIFY_PROJECTION, _R.STOP_RUN),
    _P.BEFORE_MODEL_CALL: (_R.MODIFY_PROJECTION, _R.REQUEST_APPROVAL, _R.STOP_RUN),
    _P.ON_MODEL_DELTA: (),
    _P.AFTER_MODEL_CALL: (_R.REQUEST_RETRY, _R.STOP_RUN),
    _P.BEFORE_STRUCTURED_OUTPUT_VALIDATION: (_R.MODIFY_VALIDATION_HINTS,),
    _P.AFTER_STRUCTURED_OUTPUT_VALIDATION: (_R.REQUEST_RETRY,),
    _P.BEFORE_TOOL_CALL: (_R.DENY, _R.MODIFY_TOOL_REQUEST, _R.REQUEST_APPROVAL),
    _P.AFTER_TOOL_CALL: (_R.REQUEST_RETRY, _R.REWRITE_TOOL_RESULT),
    _P.BEFORE_APPROVAL_REQUEST: (_R.MODIFY_APPROVAL_REQUEST, _R.DENY),
    _P.AFTER_APPROVAL_DECISION: (),
    _P.BEFORE_SUBAGENT_START: (_R.DENY, _R.MODIFY_SUBAGENT_REQUEST),
    _P.AFTER_SUBAGENT_TERMINAL: (_R.REQUEST_USAGE_ROLLUP_REPAIR,),
    _P.BEFORE_ISOLATION_PROCESS_START: (_R.DENY, _R.MODIFY_PROCESS_REQUEST),
    _P.AFTER_ISOLATION_PROCESS_EXIT: (_R.REQUEST_CLEANUP_REPAIR,),
    _P.ON_RUN_CANCEL_REQUESTED: (_R.REQUEST_CLEANUP_REPAIR,),
    _P.BEFORE_RUN_COMPLETE: (
        _R.REQUEST_RETRY,
        _R.VALIDATE_DETACH,
        _R.STOP_COMPLETION_WITH_REPAIR_NEEDED,
    ),
    _P.AFTER_RUN_TERMINAL: (),
    _P.BEFORE_COMPACTION: (_R.MARK_PROTECTED_CONTEXT,),
    _P.AFTER_COMPACTION: (_R.REQUEST_PROJECTION_AUDIT_REPAIR,),
}

ALLOWED: Mapping[HookPoint, frozenset[ResponseClass]] = {
    point: frozenset((_R.OBSERVE, *classes)) for point, classes in _BESIDE_OBSERVE.items()
}
"""What may be answered where."""

SECURITY_CRITICAL: frozenset[HookPoint] = frozenset(
    {
        _P.BEFORE_TOOL_CALL,
        _P.BEFORE_APPROVAL_REQUEST,
        _P.BEFORE_SUBAGENT_START,
        _P.BEFORE_ISOLATION_PROCESS_START,
        _P.BEFORE_RUN_COMPLETE,
    }
)
"""Where no hook may fail open, not even one that only looks."""


class HookSource(StrEnum):
    """Where a hook comes from."""

    HOST_CONFIG = "host_config"
    IN_PROCESS = "in_process"
    EXTENSION = "extension"
    SDK_DEFAULT = "sdk_default"
    TEST_ONLY_FAKE = "test_only_fake"


class HookPhase(StrEnum):
    """Which of three groups a hook runs in."""

    EARLY = "early"
    NORMAL = "normal"
    LATE = "late"


class HookFailure(StrEnum):
    """What follows when a hook raises, answers nonsense, or takes too long."""

    FAIL_OPEN_OBSERVE_ONLY = "fail_open_observe_only"
    """As if it had said nothing; on record."""
    DENY = "deny"
    """The guarded operation is refused: `PERMISSION_DENIED`."""
    INTERRUPT_RUN = "interrupt_run"
    """The run stands there: `HOOK_FAILED`. Resumed, the hook is asked again."""
    FAIL_RUN = "fail_run"
    """The run fails: `HOOK_FAILED`."""


class HookPrivacy(StrEnum):
    """How much a hook sees."""

    ENVELOPE_AND_REDACTED_SUMMARY = "envelope_and_redacted_summary"
    """Who, where, and one line."""
    CONTENT_REFS_ONLY = "content_refs_only"
    """The same, and the digests of the content."""
    CONTENT_CAPTURE_ALLOWED = "content_capture_allowed"
    """The same, and the content: arguments, result, messages."""


class HookOverflow(StrEnum):
    """What becomes of an observation for which the queue has no room."""

    DROP_OBSERVE_ONLY = "drop_observe_only"
    """It is dropped."""
    SUMMARIZE_AND_CONTINUE = "summarize_and_continue"
    """It is dropped; once there is room, one record says how many were."""
    FAIL_HOOK_INVOCATION = "fail_hook_invocation"
    """The invocation counts as failed, on record."""


Order = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class HookOrdering(Asked):
    """When a hook's turn is, among those of its point."""

    phase: HookPhase = HookPhase.NORMAL
    """Early ones go first, late ones last."""
    order: Order = 100
    """Lower goes first; then by id."""


class HookQueue(Asked):
    """What waits for an observer."""

    capacity: int = 64
    """Observations at most."""
    terminal_reserve: int = 4
    """Of these, places kept for observations that end something."""


class Blocking(Asked):
    """The operation waits for the hook."""

    mode: Literal["blocking"] = "blocking"
    """`blocking`."""


class NonBlocking(Asked):
    """The operation goes on; the hook is served from a queue."""

    mode: Literal["non_blocking"] = "non_blocking"
    """`non_blocking`."""
    queue: HookQueue = HookQueue()
    """What waits for it."""
    overflow: HookOverflow = HookOverflow.DROP_OBSERVE_ONLY
    """What becomes of what finds no room."""


HookExecution = Annotated[Blocking | NonBlocking, Field(discriminator="mode")]


class HookSpec(Asked):
    """Everything that is fixed about a hook. Its digest is what was agreed to."""

    hook_id: Id
    """Its name, unique in its set."""
    point: HookPoint
    """Where it is asked."""
    source: HookSource
    """Where it comes from."""
    ordering: HookOrdering = HookOrdering()
    """When its turn is."""
    execution: HookExecution
    """Whether anybody waits for it."""
    timeout_ms: int = 250
    """How long it may take; longer is a failure."""
    failure: HookFailure
    """What follows when it fails."""
    mutation_rights: tuple[ResponseClass, ...] = (ResponseClass.OBSERVE,)
    """What it may answer; `observe` is always among them."""
    privacy: HookPrivacy = HookPrivacy.ENVELOPE_AND_REDACTED_SUMMARY
    """How much it sees."""
    policy_ref: str
    """The rule under which it acts, as records of what it did have it."""
    executor_ref: str
    """What answers: `python:module:name`, `command:…` or `url:…`."""

    @field_validator("mutation_rights")
    @classmethod
    def _in_one_order(cls, value: tuple[ResponseClass, ...]) -> tuple[ResponseClass, ...]:
        return tuple(right for right in _R if right in value or right is _R.OBSERVE)

    @property
    def blocking(self) -> bool:
        """Whether the operation waits for it."""
        return isinstance(self.execution, Blocking)

    @property
    def changes(self) -> bool:
        """Whether it has any right that changes behaviour."""
        return self.mutation_rights != (_R.OBSERVE,)

    @property
    def security_relevant(self) -> bool:
        """Whether it must not fail open: its point is critical, or it may change behaviour."""
        return self.changes or self.point in SECURITY_CRITICAL

    @property
    def digest(self) -> str:
        """Changes with any of its fields."""
        return digest_json(self.model_dump(mode="json"))


class HookRegistered(Told):
    """A hook is in force from here on."""

    type: Literal["registered"] = "registered"
    """`registered`."""
    spec_hash: Digest
    """What was agreed to."""
    executor_ref: str
    """What answers."""
    policy_ref: str
    """The rule under which it acts."""


class HookTimedOut(Told):
    """It took too long."""

    type: Literal["timed_out"] = "timed_out"
    """`timed_out`."""
    invocation_id: Id
    """Which time."""
    elapsed_ms: Count
    """How long it was given, or took."""
    failure_policy: HookFailure
    """What followed."""


class HookCancelled(Told):
    """It was not asked, or not heard, for the run was being cancelled or the process ended."""

    type: Literal["cancelled"] = "cancelled"
    """`cancelled`."""
    invocation_id: Id
    """Which time."""


class HookFailed(Told):
    """It raised, or its answer was none."""

    type: Literal["failed"] = "failed"
    """`failed`."""
    invocation_id: Id
    """Which time."""
    failure_policy: HookFailure
    """What followed."""
    redacted_summary: str
    """One line for people, without arguments or results."""


class HookDecision(StrEnum):
    """What became of an answer that would change something."""

    ACCEPTED = "accepted_journaled_before_apply"
    REJECTED_MUTATION_RIGHT = "rejected_mutation_right"
    REJECTED_POINT_MATRIX = "rejected_point_matrix"
    REJECTED_POLICY = "rejected_policy"


class HookDecided(Told):
    """An answer that would change something was accepted, and is in force from here on; or it was rejected."""

    type: Literal["response_decision"] = "response_decision"
    """`response_decision`."""
    invocation_id: Id
    """Which time."""
    decision: HookDecision
    """What became of it."""
    response_class: ResponseClass
    """What it would do."""
    mutation_right_decision: Literal["checked_against_point_and_spec_rights"] = (
        "checked_against_point_and_spec_rights"
    )
    """How the right to it was judged."""
    target_domain_refs: tuple[str, ...] = listed()
    """What it acts on: the hook's own mutation effect, once accepted."""
    reason: str | None = optional()
    """The code of the error it was rejected with, by the domain."""


class HookRecord(Told):
    """What happened with a hook, wherever that is more than a silent look."""

    hook_id: Id
    """Which hook."""
    point: HookPoint
    """Where."""
    subject: Id
    """What it was about: an effect or a run."""
    payload: Annotated[
        HookRegistered | HookTimedOut | HookCancelled | HookFailed | HookDecided,
        Field(discriminator="type"),
    ]
    """What happened."""
    response: Digest | None = optional()
    """The accepted answer, as canonical JSON: a resumed run takes it from here and does not ask again."""
