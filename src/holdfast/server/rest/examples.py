"""Answers as the document shows them: one for each kind of thing. Tests hold them against their schemas."""

from __future__ import annotations

from typing import Any

from holdfast.contracts import ApprovalView, EffectView, RunResult, RunView, SessionView
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.surface import SurfaceView
from holdfast.server import views
from holdfast.server.rest import bodies as b

_AT = 1_767_225_600_000
_RUN = "run_17f0"
_EFFECT = "eff_17f0_0"
_DIGEST = "0f3f5d8e2fcf10b65b2ad8a82b805ee6491fa2d10ebd49a4c1b5c25a246baffd"

SESSION = SessionView.model_validate(
    {
        "id": "notes",
        "created_at": _AT,
        "last_used_at": _AT + 60_000,
        "language": "python",
        "limits": {},
        "runs": 1,
        "last_seq": 42,
    }
)
FORKED = SESSION.model_copy(update={"id": "notes-2", "runs": 0})
DESTROYED = SESSION.model_copy(update={"status": "destroyed"})

RESULT = RunResult.model_validate(
    {"status": "ok", "result": 3, "stdout": "hello\n", "run_id": _RUN}
)
RUN = RunView(
    id=_RUN,
    session_id="notes",
    kind="code",
    status="completed",
    started_at=_AT,
    ended_at=_AT + 12,
)
CANCELLED_RUN = RUN.model_copy(update={"status": "cancelled"})
EFFECT = EffectView.model_validate(
    {
        "id": _EFFECT,
        "kind": "tool_execution",
        "name": "pay",
        "status": "completed",
        "intent_at": _AT + 3,
        "result_at": _AT + 9,
        "idempotent": False,
        "summary": "execute pay",
        "session_id": "notes",
        "run_id": _RUN,
    }
)
RUN_DETAILS = {**RUN.model_dump(mode="json"), "effects": [EFFECT], "result": RESULT}
ACCEPTED = b.RunAccepted(id=_RUN, run_id=_RUN, session_id="notes", url=f"/v1/runs/{_RUN}")
AGENT_RUN = views.agent_result(
    AgentResult(
        run_id=_RUN, session_id="ses_17f0", status="completed", text="Done.", output="Done."
    )
)
AGENT = b.AgentLine(name="helper", model="openai:gpt-5", mode="code", instructions="Help.")

WAITING = ApprovalView.model_validate(
    {
        "id": "apr_17f0",
        "status": "pending",
        "tool": "pay",
        "arguments": {"to": "bob"},
        "arguments_digest": _DIGEST,
        "side_effect": "write",
        "risk": "medium",
        "summary": "pay: Pay somebody.",
        "rule": "default.ask",
        "allowed": ["approved", "approved_for_session", "denied"],
        "session_id": "notes",
        "run_id": _RUN,
        "effect_id": _EFFECT,
        "requested_at": _AT,
        "deadline": _AT + 86_400_000,
    }
)
DENIED = ApprovalView.model_validate(
    {
        **WAITING.model_dump(mode="json"),
        "status": "denied",
        "decision": {
            "decision": "denied",
            "reason": "Not on a Friday.",
            "actor": "token:tok_17f0",
            "via": "http:token:tok_17f0",
        },
        "reason_code": "approval.denied",
    }
)

SNAPSHOT = b.Snapshot(session_id="notes", snapshot_id=_DIGEST, snapshot="aGZzMQ==", bytes=4)
CANCELLED = b.Cancelled(session_id="notes", cancelled=True)
RECORD = b.JournalRecord.model_validate(
    {
        "seq": 42,
        "stream": "notes",
        "pos": 7,
        "time": _AT,
        "kind": "run_completed",
        "actor": "holdfast",
        "privacy": "content_refs_only",
        "run_id": _RUN,
        "payload": {"result": _DIGEST},
        "prev": _DIGEST,
        "hash": _DIGEST,
    }
)

_STUB = 'def pay(to: str) -> str:\n    """Pay somebody."""\n'
TOOL = b.ToolLine(
    name="pay",
    description="Pay somebody.",
    side_effect="write",
    risk="medium",
    idempotent=False,
    stub=_STUB,
)
TOOL_DETAILS: dict[str, Any] = {
    **TOOL.model_dump(mode="json"),
    "input_schema": {
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": False,
    },
    "output_schema": {"type": "string"},
    "approval_policy": "none",
    "digest": _DIGEST,
}
SURFACE = SurfaceView(
    name="files", kind="stdio", status="connected", generation=1, tools=("files_read",)
)
STAGED = SurfaceView(name="files", kind="stdio", status="disconnected", staged="add")


# `Any`: JSON, with models in it.
def listed(*items: Any) -> dict[str, Any]:
    """A list that is all there is."""
    return {"items": [*items], "next": None}
