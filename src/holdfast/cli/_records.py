"""Journal records for people: one line each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rich.table import Table

from holdfast.cli import _output
from holdfast.cli._find import ENDING
from holdfast.contracts import Record

WIDE = 150
"""Columns from which on whole run ids are shown."""

_HIDDEN = ("sensitive", "secret")


def table(records: list[Record], width: int) -> Table:
    """The records, aligned; in a narrow terminal, runs are named by the end of their id."""
    found = Table(box=None, pad_edge=False, header_style="dim")
    found.add_column("seq", justify="right")
    found.add_column("time", style="dim", no_wrap=True)
    found.add_column("stream", no_wrap=True)
    found.add_column("kind", no_wrap=True)
    found.add_column("run", style="dim", no_wrap=True)
    found.add_column("what", overflow="fold")
    for record in records:
        seq, time, stream, kind, run, what = cells(record)
        if run and width < WIDE:
            run = f"…{run[-ENDING:]}"
        found.add_row(seq, time[5:], stream, kind, run, what)
    return found


def cells(record: Record) -> tuple[str, str, str, str, str, str]:
    """seq, time, stream, kind, run, summary."""
    kind = record.kind if record.known else f"{record.kind} (newer)"
    return (
        str(record.seq),
        _output.clock(record.time) if record.time else "",
        _output.visible(record.stream),
        _output.visible(kind),
        _output.visible(record.run_id or ""),
        _output.visible(summary(record)),
    )


def summary(record: Record) -> str:
    """What the record says, in a few words."""
    if record.privacy in _HIDDEN:
        return f"({record.privacy})"
    said: dict[str, Any] = record.payload
    if not record.known:
        return f"a record this version does not understand: {_short(said)}"
    try:
        return _SAID[record.kind](said, record) if record.kind in _SAID else _short(said)
    except (KeyError, TypeError):
        return _short(said)


def _short(said: dict[str, Any]) -> str:
    text = json.dumps(said, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def _content(record: Record, role: str) -> str:
    for ref in record.content:
        if ref.role == role:
            return f"{role} {ref.digest[:12]} ({_output.size(ref.size)})"
    return ""


def _started(said: dict[str, Any], record: Record) -> str:
    start = said.get("start") or said
    by = "by the agent" if start.get("parent") else "agent" if start.get("kind") == "agent" else ""
    roles = ("code", "inputs", "agent", "message")
    return " · ".join(filter(None, (by, *(_content(record, role) for role in roles))))


def _intent(said: dict[str, Any], _: Record) -> str:
    turn = f"turn {said['turn']}" if said.get("turn") else ""
    return " · ".join(filter(None, (said["kind"], said["name"], turn)))


def _prompted(said: dict[str, Any], record: Record) -> str:
    by = f"holdfast, {said['purpose']}" if said.get("purpose") else "a person"
    return f"{by} · {_content(record, 'message')}"


def _checked(said: dict[str, Any], _: Record) -> str:
    fits = "fits" if said["valid"] else "does not fit: " + "; ".join(said.get("errors", ()))
    return f"attempt {said['attempt']} · {fits}"


def _ended(said: dict[str, Any], record: Record) -> str:
    # A short run has no start of its own on record: its end tells that too.
    parts = [_started(said, record), f"{said['metrics']['duration_ms']} ms"]
    if "error" in said:
        parts.append(f"{said['error']['code']}: {said['error']['message']}")
    return " · ".join(filter(None, parts))


def _effect_ended(said: dict[str, Any]) -> str:
    parts = [said["terminal_status"], said.get("resolved")]
    if usage := said.get("usage"):
        parts.append(f"{usage.get('input_tokens', 0)} + {usage.get('output_tokens', 0)} tokens")
    if "error" in said:
        parts.append(f"{said['error']['code']}: {said['error']['message']}")
    return " · ".join(filter(None, parts))


def _seen(said: dict[str, Any]) -> str:
    if "error" in said:
        return f"{said['error']['code']}: {said['error']['message']}"
    return "rewritten by a hook" if said["rewritten"] else "as it was"


def _decided(decision: dict[str, Any]) -> str:
    by = f" by {decision['actor']}" if decision.get("actor") else ""
    why = f" · {decision['reason']}" if decision.get("reason") else ""
    return f"{decision['decision']}{by}{why}"


_FROM = {"state": "parked state", "replay": "code and the recorded results"}

_SAID: dict[str, Callable[[dict[str, Any], Record], str]] = {
    "session_created": lambda said, _: f"{said['language']} · {said['engine']}",
    "session_state": lambda said, record: f"{_content(record, 'state')} · {said['engine']}",
    "session_destroyed": lambda said, _: said["reason"],
    "run_started": _started,
    "run_completed": _ended,
    "run_failed": _ended,
    "run_cancelled": _ended,
    "code_validated": lambda said, _: f"{said['status']} · session {said['session_id']}",
    "content_erased": lambda said, _: f"{said['digest'][:12]} · {said['reason']}",
    "effect_intent": _intent,
    "effect_attempt": lambda said, _: f"attempt {said['attempt']} · {said['reason']}",
    "effect_released": lambda said, _: f"attempt {said['attempt']} may be made",
    "effect_result": lambda said, _: _effect_ended(said),
    "effect_seen": lambda said, _: _seen(said),
    "approval_requested": lambda said, _: f"{said['tool']} · {said['summary']}",
    "approval_responded": lambda said, _: _decided(said["decision"]),
    "approval_refused": lambda said, _: f"{_decided(said['decision'])} · {said['reason_code']}",
    "approval_ended": lambda said, _: f"{said['status']} · {said['reason_code']}",
    "approval_settled": lambda said, _: f"{said['status']} · {said['reason_code']}",
    "approval_preapproved": lambda said, _: said["grant_id"],
    "grant_given": lambda said, _: f"{said['tool']} · up to {said['risk']} risk",
    "grant_revoked": lambda said, _: f"{said['id']} · {said['reason']}",
    "session_opened": lambda said, _: ", ".join(said["setup"].get("capabilities", ())),
    "run_parked": lambda said, _: f"{said['status']} · {said['error']['message']}",
    "run_resumed": lambda said, _: f"{said['reason']} · from the {_FROM[said['how']]}",
    "run_cancel_requested": lambda said, _: f"{said['run']} · {said['mode']}",
    "plan_made": lambda said, _: f"{said['id']} · session {said['session_id']}",
    "run_prompted": _prompted,
    "notice_given": lambda said, _: said["text"],
    "surface_staged": lambda said, _: f"{said['name']} · {said['op']}",
    "surface_changed": lambda said, _: f"{said['name']} · {said['op']} · {said['phase']}",
    "input_queued": lambda said, record: f"{said['lane']} · {_content(record, 'message')}",
    "input_dropped": lambda said, _: f"{said['id']} · {said['reason']}",
    "model_retry": lambda said, _: (
        f"{said['kind']} · attempt {said['attempt']} in {said['delay_ms']} ms"
    ),
    "model_switched": lambda said, _: f"{said['before']} → {said['after']} · {said['reason']}",
    "tool_answered": lambda said, record: (
        f"{said['name']}{' · error' if said.get('is_error') else ''} · {_content(record, 'result')}"
    ),
    "output_checked": _checked,
    "context_compacted": lambda said, _: (
        f"{said['upto']} messages · {said['tokens_before']} → {said['tokens_after']} tokens"
    ),
    "context_restored": lambda _, __: "as it was",
    "context_outlined": lambda said, _: f"up to position {said['upto']}",
    "record_pinned": lambda said, _: f"record {said['seq']}",
    "budget_warned": lambda said, _: (
        f"{said['used']} of {said['limit']} {said['unit']} · {said['of']}"
    ),
    "account_opened": lambda said, _: said["account"],
    "plan_decided": lambda said, _: f"{said['id']} · {_decided(said['decision'])}",
}
