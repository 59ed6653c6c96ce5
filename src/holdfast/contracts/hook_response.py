"""What a hook may answer: a closed union, so that it can only ask a part of holdfast for what that part can do."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from pydantic import (
    Field,
    JsonValue,
    TypeAdapter,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from holdfast.contracts._base import Asked, listed, optional
from holdfast.contracts.capability import Risk
from holdfast.contracts.ids import Id

MAX_SUMMARY = 2048
"""Characters of a summary that a hook gives or gets."""


class ResponseClass(StrEnum):
    """The twenty things a hook can do; the right to do each has the same name."""

    OBSERVE = "observe"
    """Nothing changes."""
    INJECT_CONTEXT = "inject_context"
    """Text is added to what the model will see."""
    MODIFY_PROJECTION = "modify_projection"
    """The messages for the model are replaced."""
    REQUEST_COMPACTION = "request_compaction"
    """The context is compacted."""
    MODIFY_VALIDATION_HINTS = "modify_validation_hints"
    """The validator of structured output gets a hint."""
    MODIFY_TOOL_REQUEST = "modify_tool_request"
    """The arguments are replaced, and checked again."""
    MODIFY_APPROVAL_REQUEST = "modify_approval_request"
    """The person is asked in other words, for longer, or told of a higher risk."""
    DENY = "deny"
    """The guarded operation does not happen."""
    REQUEST_APPROVAL = "request_approval"
    """A person is asked first."""
    REQUEST_RETRY = "request_retry"
    """It is tried again, within its budget."""
    REWRITE_TOOL_RESULT = "rewrite_tool_result"
    """The caller gets another result; the original is kept."""
    MODIFY_SUBAGENT_REQUEST = "modify_subagent_request"
    """The child starts differently, within its policy."""
    MODIFY_PROCESS_REQUEST = "modify_process_request"
    """The process starts differently, never less isolated."""
    VALIDATE_DETACH = "validate_detach"
    """What the run leaves behind is checked before it completes."""
    REQUEST_USAGE_ROLLUP_REPAIR = "request_usage_rollup_repair"
    """A child's usage is added up again."""
    REQUEST_CLEANUP_REPAIR = "request_cleanup_repair"
    """What was left lying about is cleaned up."""
    MARK_PROTECTED_CONTEXT = "mark_protected_context"
    """Parts of the context survive compaction."""
    REQUEST_PROJECTION_AUDIT_REPAIR = "request_projection_audit_repair"
    """The compacted context is audited."""
    STOP_COMPLETION_WITH_REPAIR_NEEDED = "stop_completion_with_repair_needed"
    """The run does not complete; somebody must repair it."""
    STOP_RUN = "stop_run"
    """The run ends."""


class Note(Asked):
    """A wish that needs no more than one line."""

    summary: str
    """One line for people; it goes on record."""


class Refusal(Asked):
    """Why something does not happen."""

    code: str = Field(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")
    """Why, as a token of the hook's own."""
    summary: str
    """Why, in one line, for whoever is refused."""


class ToolRequestChange(Asked):
    """Other arguments."""

    summary: str
    """What was changed, in one line."""
    arguments: dict[str, JsonValue]
    """All of them, by name; checked against the capability's schema again."""


class ToolResultRewrite(Asked):
    """Another result."""

    summary: str
    """What was changed, in one line."""
    result: JsonValue
    """The whole of it."""


class ApprovalWanted(Asked):
    """A person shall be asked."""

    summary: str
    """Why, for the person."""
    risk: Risk | None = optional()
    """How much harm a mistake would do, where it is more than the capability says."""


class ApprovalChange(Asked):
    """Another question to the person."""

    summary: str
    """What was changed, in one line."""
    risk: Risk | None = optional()
    """A higher risk."""
    timeout_ms: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    """How long the person has to answer."""
    message: str | None = optional()
    """What the person reads."""


class ContextItem(Asked):
    """Something the model shall see."""

    summary: str
    """What it is, in one line."""
    text: str
    """What the model reads."""
    policy_refs: tuple[str, ...] = listed()
    """The rules it stands under."""


class ProjectionChange(Asked):
    """Other messages for the model."""

    summary: str
    """What was changed, in one line."""
    messages: tuple[dict[str, JsonValue], ...]
    """All of them."""


Payload: TypeAlias = (
    Note
    | Refusal
    | ToolRequestChange
    | ToolResultRewrite
    | ApprovalWanted
    | ApprovalChange
    | ProjectionChange
    | tuple[ContextItem, ...]
    | tuple[Id, ...]
    | None
)

_PAYLOADS: dict[ResponseClass, TypeAdapter[Payload]] = {
    ResponseClass.OBSERVE: TypeAdapter(None),
    ResponseClass.INJECT_CONTEXT: TypeAdapter(tuple[ContextItem, ...]),
    ResponseClass.MODIFY_PROJECTION: TypeAdapter(ProjectionChange),
    ResponseClass.MODIFY_TOOL_REQUEST: TypeAdapter(ToolRequestChange),
    ResponseClass.MODIFY_APPROVAL_REQUEST: TypeAdapter(ApprovalChange),
    ResponseClass.DENY: TypeAdapter(Refusal),
    ResponseClass.REQUEST_APPROVAL: TypeAdapter(ApprovalWanted),
    ResponseClass.REWRITE_TOOL_RESULT: TypeAdapter(ToolResultRewrite),
    ResponseClass.MARK_PROTECTED_CONTEXT: TypeAdapter(tuple[Id, ...]),
    ResponseClass.STOP_COMPLETION_WITH_REPAIR_NEEDED: TypeAdapter(Refusal),
    ResponseClass.STOP_RUN: TypeAdapter(Refusal),
}
_NOTE: TypeAdapter[Payload] = TypeAdapter(Note)

_OBSERVE_ONLY = "observe_only"

STOPPING = frozenset(
    {
        ResponseClass.DENY,
        ResponseClass.STOP_RUN,
        ResponseClass.STOP_COMPLETION_WITH_REPAIR_NEEDED,
    }
)
"""After one of these no further hook of the point is asked."""


class HookResponse(Asked):
    """A hook's answer: `{"type": …, "payload": …}`."""

    type: str = _OBSERVE_ONLY
    """A response class; `observe_only` for `observe`."""
    payload: Payload = Field(default=None, validate_default=True)
    """What the class needs: nothing for `observe_only`, a `Note` for those that only ask."""

    @field_validator("type")
    @classmethod
    def _is_a_class(cls, value: str) -> str:
        return value if value == _OBSERVE_ONLY else _not_observe(ResponseClass(value)).value

    @field_validator("payload", mode="plain")
    @classmethod
    def _fits_the_type(cls, value: object, info: ValidationInfo) -> Payload:
        type_ = info.data.get("type")
        if type_ is None:
            raise ValueError("no payload goes with an unknown type")
        return _PAYLOADS.get(_class_of(type_), _NOTE).validate_python(value)

    @field_serializer("payload")
    def _payload_as_json(self, value: Payload) -> JsonValue:
        adapter = _PAYLOADS.get(self.response_class, _NOTE)
        return adapter.dump_python(value, mode="json")

    @classmethod
    def of(cls, class_: ResponseClass, payload: object = None) -> HookResponse:
        """The response of that class; `payload` as its model or as JSON."""
        type_ = _OBSERVE_ONLY if class_ is ResponseClass.OBSERVE else class_.value
        return cls.model_validate({"type": type_, "payload": payload})

    @property
    def response_class(self) -> ResponseClass:
        """What it does, and the right it needs."""
        return _class_of(self.type)

    @property
    def summaries(self) -> tuple[str, ...]:
        """Every line for people in it."""
        parts = self.payload if isinstance(self.payload, tuple) else (self.payload,)
        return tuple(
            part.summary for part in parts if part is not None and not isinstance(part, str)
        )


def _class_of(type_: str) -> ResponseClass:
    return ResponseClass.OBSERVE if type_ == _OBSERVE_ONLY else ResponseClass(type_)


def _not_observe(class_: ResponseClass) -> ResponseClass:
    if class_ is ResponseClass.OBSERVE:
        raise ValueError(f"say `{_OBSERVE_ONLY}`")
    return class_
