"""The types of the shell's specification, copied from it: names, tokens and defaults never change."""

import json
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from holdfast.contracts import (
    ApprovalPolicy,
    AutoApproval,
    CallStatus,
    Capability,
    CapabilityLimits,
    Diagnostic,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    ErrorObject,
    ExternalCallRecord,
    Language,
    Metrics,
    Privacy,
    Retention,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    SessionMeta,
    Severity,
    SideEffect,
    Span,
    parse,
)
from holdfast.errors import CallerError

LIMITS = {
    "memory_mb": 64,
    "cpu_ms": 2000,
    "wall_ms": 5000,
    "max_stdout_bytes": 65536,
    "max_external_calls": 32,
    "max_stack_depth": 256,
}
CAPABILITY_LIMITS = {
    "timeout_ms": 5000,
    "max_request_bytes": 1048576,
    "max_response_bytes": 1048576,
    "concurrency": 16,
    "rate_per_min": None,
}
METRICS = {
    "duration_ms": 0,
    "memory_peak_bytes": 0,
    "instructions": 0,
    "external_calls_count": 0,
}
DIGEST = "ab" * 32

# The least one has to say, and all that is said then.
LEAST: list[tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = [
    (SessionLimits, {}, LIMITS),
    (CapabilityLimits, {}, CAPABILITY_LIMITS),
    (Metrics, {}, METRICS),
    (
        SessionMeta,
        {},
        {
            "id": "default",
            "created_at": 0,
            "last_used_at": 0,
            "language": "python",
            "limits": LIMITS,
            "snapshot_version": 1,
        },
    ),
    (
        Capability,
        {"name": "f", "description": "d"},
        {
            "name": "f",
            "description": "d",
            "input_schema": {},
            "output_schema": {},
            "side_effect": "none",
            "limits": CAPABILITY_LIMITS,
            "approval_policy": "none",
            "idempotent": False,
        },
    ),
    (
        RunRequest,
        {"code": "1"},
        {
            "session_id": "default",
            "language": "python",
            "code": "1",
            "inputs": {},
            "timeout_ms": None,
            "limits": None,
            "return_snapshot": False,
            "validate_only": False,
        },
    ),
    (
        RunResult,
        {},
        {
            "status": "ok",
            "result": None,
            "stdout": "",
            "stderr": "",
            "diagnostics": [],
            "external_calls": [],
            "metrics": METRICS,
        },
    ),
    (Span, {"line": 3, "column": 1}, {"line": 3, "column": 1}),
    (ErrorObject, {"code": "C", "message": "m"}, {"code": "C", "message": "m"}),
    (
        Diagnostic,
        {"severity": "error", "code": "C", "message": "m"},
        {"severity": "error", "code": "C", "message": "m"},
    ),
    (
        ExternalCallRecord,
        {
            "name": "f",
            "side_effect": "read",
            "duration_ms": 1,
            "status": "ok",
            "request_digest": DIGEST,
        },
        {
            "name": "f",
            "side_effect": "read",
            "duration_ms": 1,
            "status": "ok",
            "request_digest": DIGEST,
        },
    ),
    (
        EffectIntent,
        {"effect_id": "e", "kind": "file_write", "name": "f", "redacted_summary": "s"},
        {
            "effect_id": "e",
            "kind": "file_write",
            "name": "f",
            "side_effect": "none",
            "idempotent": False,
            "redacted_summary": "s",
        },
    ),
    (
        EffectResult,
        {"effect_id": "e", "terminal_status": "completed", "redacted_summary": "s"},
        {"effect_id": "e", "terminal_status": "completed", "redacted_summary": "s"},
    ),
]

# Everything that can be said.
MOST: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (Span, {"line": 1, "column": 2, "end_line": 3, "end_column": 4}),
    (
        ErrorObject,
        {"code": "C", "message": "m", "hint": "h", "span": {"line": 1, "column": 2}},
    ),
    (
        Diagnostic,
        {
            "severity": "warning",
            "code": "C",
            "message": "m",
            "hint": "h",
            "span": {"line": 1, "column": 2},
        },
    ),
    (
        ExternalCallRecord,
        {
            "name": "f",
            "side_effect": "network",
            "duration_ms": 1,
            "status": "error",
            "request_digest": DIGEST,
            "response_digest": DIGEST,
            "error": {"code": "TOOL_ERROR", "message": "m"},
        },
    ),
    (
        RunRequest,
        {
            "session_id": "a-b_C9",
            "language": "typescript",
            "code": "x",
            "inputs": {"a": [1, None, {"b": 2.5}]},
            "timeout_ms": 10,
            "limits": {**LIMITS, "cpu_ms": 1},
            "return_snapshot": True,
            "validate_only": True,
        },
    ),
    (
        RunResult,
        {
            "status": "waiting_for_approval",
            "result": {"a": [1]},
            "stdout": "o",
            "stderr": "e",
            "diagnostics": [{"severity": "info", "code": "C", "message": "m"}],
            "external_calls": [],
            "snapshot_id": "s",
            "metrics": {**METRICS, "instructions": 5},
            "error": {"code": "WAITING_FOR_APPROVAL", "message": "m"},
        },
    ),
    (
        Capability,
        {
            "name": "send",
            "description": "d",
            "input_schema": {"type": "object"},
            "output_schema": {"type": "null"},
            "side_effect": "external_system",
            "limits": {**CAPABILITY_LIMITS, "rate_per_min": 5},
            "approval_policy": {"auto": {"rule": "arguments.cents < 100"}},
            "idempotent": True,
        },
    ),
]

TOKENS: dict[type[StrEnum], str] = {
    Language: "python typescript",
    SideEffect: "none read write network database external_system",
    RunStatus: "ok validation_error runtime_error timeout cancelled resource_exhausted"
    " permission_denied waiting_for_approval interrupted",
    Severity: "error warning info",
    CallStatus: "ok error timeout denied approval_pending",
    # kernel.md §3, §1.4
    EffectKind: "provider_request tool_execution approval_dispatch memory_write extension_action"
    " output_delivery file_write process_start process_signal isolated_process_start"
    " child_agent_start run_message_delivery child_artifact_shutdown detach_transfer hook_mutation",
    EffectStatus: "completed failed timed_out cancelled denied_before_execution unknown",
    Privacy: "public internal content_refs_only sensitive secret",
    Retention: "ephemeral run_scoped session_scoped durable persistent host_policy",
}


def as_json(model: BaseModel) -> Any:
    """The JSON of a model, as Python sees it after the wire."""
    data = model.model_dump_json()
    assert json.loads(data) == model.model_dump(mode="json")
    return json.loads(data)


@pytest.mark.parametrize(
    ("model", "said", "full"), LEAST, ids=lambda value: getattr(value, "__name__", "")
)
def test_names_and_defaults(model: type[BaseModel], said: dict[str, Any], full: dict[str, Any]):
    assert as_json(parse(model, said)) == full
    assert list(as_json(parse(model, said))) == list(full)  # in this order
    assert parse(model, full) == parse(model, said)


@pytest.mark.parametrize(("model", "said"), MOST, ids=lambda value: getattr(value, "__name__", ""))
def test_everything_comes_back_as_it_was_said(model: type[BaseModel], said: dict[str, Any]):
    assert as_json(parse(model, said)) == said
    assert model.model_validate_json(json.dumps(said)) == parse(model, said)


@pytest.mark.parametrize("enum", TOKENS, ids=lambda enum: enum.__name__)
def test_tokens(enum: type[StrEnum]):
    assert [member.value for member in enum] == TOKENS[enum].split()


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ("none", "none"),
        ("manual", "manual"),
        ({"auto": {"rule": "x"}}, AutoApproval.model_validate({"auto": {"rule": "x"}})),
    ],
)
def test_approval_policies(said: JsonValue, policy: object):
    adapter: TypeAdapter[Any] = TypeAdapter(ApprovalPolicy)
    assert adapter.validate_python(said) == policy
    assert adapter.dump_python(adapter.validate_python(said), mode="json") == said
    for wrong in ("always", {"auto": "x"}, {"auto": {"rule": "x", "y": 1}}, None):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_a_result_carries_an_error_exactly_when_it_is_not_ok():
    assert "error" not in as_json(RunResult())
    for status in RunStatus:
        if status is not RunStatus.OK:
            error = ErrorObject(code="C", message="m")
            assert as_json(RunResult(status=status, error=error))["error"]["code"] == "C"


REFUSED: list[tuple[type[BaseModel], Any, str, str]] = [
    (RunRequest, {"code": "x", "nope": 1}, "INVALID_ARGUMENT", "`nope`"),
    (RunRequest, {"code": "x", "limits": {"cpu": 1}}, "INVALID_ARGUMENT", "`limits.cpu`"),
    (RunRequest, {"code": "x", "limits": {"cpu_ms": 0}}, "INVALID_ARGUMENT", "`limits.cpu_ms`"),
    (RunRequest, {"code": 7}, "INVALID_ARGUMENT", "`code`"),
    (RunRequest, {"code": "x", "language": "cobol"}, "INVALID_ARGUMENT", "`language`"),
    (RunRequest, {"code": "x", "timeout_ms": 0}, "INVALID_ARGUMENT", "`timeout_ms`"),
    (RunRequest, {"code": "x", "inputs": {"a": {1}}}, "INVALID_ARGUMENT", "`inputs.a"),
    (RunRequest, {"code": "x", "session_id": "a b"}, "INVALID_SESSION_ID", "'a b'"),
    (RunRequest, {"code": "x", "session_id": ""}, "INVALID_SESSION_ID", "''"),
    (RunRequest, {"code": "x", "session_id": "a" * 65}, "INVALID_SESSION_ID", "aaa"),
    (RunRequest, {"code": "x", "session_id": "a\n"}, "INVALID_SESSION_ID", "a\\n"),
    (RunRequest, "no object", "INVALID_ARGUMENT", "`RunRequest`"),
    (SessionLimits, {"memory_mb": -1}, "INVALID_ARGUMENT", "`memory_mb`"),
    (Capability, {"name": "f"}, "INVALID_ARGUMENT", "`description`"),
    (Capability, {"name": "no-identifier", "description": ""}, "INVALID_TOOL_NAME", "no-id"),
    (Capability, {"name": "é", "description": ""}, "INVALID_TOOL_NAME", "xe9"),
    (Capability, {"name": "f\n", "description": ""}, "INVALID_TOOL_NAME", "f\\n"),
    (Capability, {"name": "f", "description": "", "x": 1}, "INVALID_ARGUMENT", "`x`"),
    (CapabilityLimits, {"concurrency": 0}, "INVALID_ARGUMENT", "`concurrency`"),
    (
        EffectResult,
        {"effect_id": "e", "terminal_status": "unknown", "redacted_summary": ""},
        "INVALID_ARGUMENT",
        "reconciliation_ref",
    ),
]


@pytest.mark.parametrize(("model", "said", "code", "named"), REFUSED)
def test_what_is_wrong_is_named(model: type[BaseModel], said: Any, code: str, named: str):
    with pytest.raises(CallerError) as caught:
        parse(model, said)
    assert caught.value.code == code
    assert named in caught.value.message


def test_what_is_said_may_be_more_than_we_know():
    """A newer holdfast's answers can be read; what we are asked must be understood in full."""
    assert parse(RunResult, {"status": "ok", "new": 1}) == RunResult()
    assert parse(Metrics, {"new": 1}) == Metrics()
