"""A question of the inbox as a form that the client's person fills in, and what they filled in as an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from holdfast.contracts import ApprovalView, Decision
from holdfast.contracts.approval import Asks

MAX_SHOWN = 4000
"""Characters of the arguments that a person is shown; if there are more, it says so."""

_WORDS = {
    "approve": Decision.APPROVED,
    "approve_for_session": Decision.APPROVED_FOR_SESSION,
    "deny": Decision.DENIED,
}
_FLAT = ("string", "number", "integer", "boolean")


@dataclass(frozen=True, slots=True)
class Said:
    """What a person answered."""

    decision: Decision
    reason_code: str | None = None
    reason: str | None = None
    content: Mapping[str, Any] | None = None


def can_be_asked(view: ApprovalView) -> bool:
    """Whether a form says it all: not where the answer is a sign-in, or a form that has forms in it."""
    if view.asks is Asks.CONSENT:
        return True
    return view.asks is Asks.INPUT and view.form is not None and _is_flat(view.form)


def form_of(view: ApprovalView, problem: str | None = None) -> ElicitRequestFormParams:
    """The form to fill in. `problem`: why the last answer did not count."""
    message = _message(view)
    if problem is not None:
        message = f"{problem}\n\n{message}"
    if view.asks is Asks.INPUT and view.form is not None:
        return ElicitRequestFormParams(message=message, requested_schema=dict(view.form))
    words = [word for word, one in _WORDS.items() if not view.allowed or one in view.allowed]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "enum": words},
            "reason": {
                "type": "string",
                "title": "Reason",
                "description": "Goes on record; of a denial, the code is told.",
            },
        },
        "required": ["decision"],
    }
    return ElicitRequestFormParams(message=message, requested_schema=schema)


def request_of(view: ApprovalView, problem: str | None = None) -> ElicitRequest:
    """The same as a request within a result."""
    return ElicitRequest(params=form_of(view, problem))


def said_in(view: ApprovalView, result: ElicitResult) -> Said | Literal["nothing"]:
    """What an answer means. Only the exact words count; anything else is a denial, and never a guess."""
    if result.action == "cancel":
        return "nothing"
    if result.action == "decline":
        return Said(Decision.DENIED, "approval.denied")
    content = result.content or {}
    if view.asks is Asks.INPUT:
        return Said(Decision.APPROVED, content=content)
    words, reason = content.get("decision"), content.get("reason")
    decision = _WORDS.get(words) if isinstance(words, str) else None
    why = reason if isinstance(reason, str) and reason else None
    if decision is None:
        return Said(Decision.DENIED, "approval.invalid_answer", why)
    return Said(decision, "approval.denied" if decision is Decision.DENIED else None, why)


def _message(view: ApprovalView) -> str:
    """What a person must know. What comes from code or from another server is quoted, and never ours."""
    shown = json.dumps(view.arguments, ensure_ascii=False)
    if len(shown) > MAX_SHOWN:
        more = len(shown) - MAX_SHOWN
        shown = f"{shown[:MAX_SHOWN]} … and {more} more characters (`holdfast approvals show {view.id}`)"
    where = f"Session {view.session_id}, run {view.run_id}; risk: {view.risk}."
    if view.asks is Asks.INPUT:
        return f"`{view.tool}` asks:\n{view.summary}\n\nIt was called with {shown}\n{where}"
    return f"May `{view.tool}` be called?\n{view.summary}\n\nArguments: {shown}\n{where}"


def _is_flat(form: Mapping[str, Any]) -> bool:
    """Whether every field is one that clients can show."""
    fields = form.get("properties", {})
    if not isinstance(fields, Mapping):
        return False
    return all(_is_field(one) for one in cast("Mapping[str, Any]", fields).values())


def _is_field(field: Any) -> bool:
    match field:
        case {"type": "array", "items": {"enum": [*_]} | {"anyOf": [*_]}}:
            return True
        case {"type": str(kind)}:
            return kind in _FLAT
        case _:
            return False
