"""What happens in a run and takes no time, as steps: one function for each kind of record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.contracts import Record
from holdfast.server.console.steps import Lane, Mark, Step, number, parts_of


def glimpse(
    record: Record, lane: Lane, kind: str, name: str, status: str = "done", **more: Any
) -> Step:
    """Something that takes no time."""
    return Step(
        f"rec.{record.seq}", lane, kind, name, str(record.run_id), record.time, record.time,
        (Mark(record.seq, record.time, status),), **more,
    )  # fmt: skip


Tell = Callable[[Record, Mapping[str, Any]], Step]


def _prompted(record: Record, said: Mapping[str, Any]) -> Step:
    name = str(said.get("purpose") or "message")
    return glimpse(record, "model", "message", name, parts=parts_of(record))


def _retried(record: Record, said: Mapping[str, Any]) -> Step:
    step = glimpse(
        record, "model", "retry", str(said.get("kind", "")), "failed",
        facts=(("attempt", f"{said.get('attempt')} of {said.get('max_retries')}"),),
    )  # fmt: skip
    return replace(step, end=record.time + number(said.get("delay_ms")))


def _switched(record: Record, said: Mapping[str, Any]) -> Step:
    name = f"{said.get('before')} → {said.get('after')}"
    return glimpse(record, "model", "other model", name, summary=str(said.get("reason", "")))


def _answered(record: Record, said: Mapping[str, Any]) -> Step:
    status = "failed" if said.get("is_error") else "completed"
    name = str(said.get("name", ""))
    return glimpse(record, "effect", "answered here", name, status, parts=parts_of(record))


def _checked(record: Record, said: Mapping[str, Any]) -> Step:
    status = "completed" if said.get("valid") else "failed"
    errors = "; ".join(map(str, said.get("errors", ())))
    return glimpse(
        record, "model", "output", "check", status, summary=errors, parts=parts_of(record)
    )


def _compacted(record: Record, said: Mapping[str, Any]) -> Step:
    summary = f"{said.get('tokens_before', 0)} → {said.get('tokens_after', 0)} tokens"
    return glimpse(
        record, "model", "conversation", "compacted", summary=summary, parts=parts_of(record)
    )


def _warned(record: Record, said: Mapping[str, Any]) -> Step:
    summary = f"{said.get('used')} of {said.get('limit')} {said.get('unit')}"
    return glimpse(record, "effect", "budget", str(said.get("of", "")), "warned", summary=summary)


def _preapproved(record: Record, said: Mapping[str, Any]) -> Step:
    return glimpse(
        record, "approval", "approval", "for the session", "approved",
        grant_id=said.get("grant_id"), subject=said.get("effect_id"),
    )  # fmt: skip


def _noticed(record: Record, said: Mapping[str, Any]) -> Step:
    return glimpse(record, "model", "notice", "notice", summary=str(said.get("text", "")))


GLIMPSES: dict[str, Tell] = {
    "run_prompted": _prompted,
    "notice_given": _noticed,
    "model_retry": _retried,
    "model_switched": _switched,
    "tool_answered": _answered,
    "output_checked": _checked,
    "context_compacted": _compacted,
    "budget_warned": _warned,
    "approval_preapproved": _preapproved,
}
"""Kind of record → the step that it is."""
