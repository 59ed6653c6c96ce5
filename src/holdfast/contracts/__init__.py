"""What goes over a wire or onto disk: frozen, typed, versioned. No behaviour beyond checking itself."""

from holdfast.contracts._base import parse
from holdfast.contracts.approval import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalView,
    Decision,
    Risk,
)
from holdfast.contracts.canonical import Json, canonical_json, digest, digest_json
from holdfast.contracts.capability import (
    ApprovalPolicy,
    AutoApproval,
    AutoRule,
    Capability,
    CapabilityLimits,
    SideEffect,
)
from holdfast.contracts.content import Body, ContentRef, Privacy, Retention
from holdfast.contracts.effect import (
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    EffectView,
)
from holdfast.contracts.event import Event, Gap
from holdfast.contracts.ids import check_id, check_session_id, check_tool_name, new_id
from holdfast.contracts.record import Draft, Record
from holdfast.contracts.run import (
    CallStatus,
    Diagnostic,
    ErrorObject,
    ExternalCallRecord,
    Metrics,
    RunRequest,
    RunResult,
    RunStatus,
    Severity,
    Span,
)
from holdfast.contracts.session import Language, SessionLimits, SessionMeta, SessionView
from holdfast.contracts.view import RunView, Usage

__all__ = [
    "ApprovalDecision",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalView",
    "AutoApproval",
    "AutoRule",
    "Body",
    "CallStatus",
    "Capability",
    "CapabilityLimits",
    "ContentRef",
    "Decision",
    "Diagnostic",
    "Draft",
    "EffectIntent",
    "EffectKind",
    "EffectResult",
    "EffectStatus",
    "EffectView",
    "ErrorObject",
    "Event",
    "ExternalCallRecord",
    "Gap",
    "Json",
    "Language",
    "Metrics",
    "Privacy",
    "Record",
    "Retention",
    "Risk",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "RunView",
    "SessionLimits",
    "SessionMeta",
    "SessionView",
    "Severity",
    "SideEffect",
    "Span",
    "Usage",
    "canonical_json",
    "check_id",
    "check_session_id",
    "check_tool_name",
    "digest",
    "digest_json",
    "new_id",
    "parse",
]
