"""What those records of an agent's run say that speak for themselves: nothing need be known of any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.agent._bodies import Bodies
from holdfast.contracts import Record
from holdfast.contracts import agent_event as e


def at(record: Record) -> dict[str, Any]:
    """What every event has."""
    return {"seq": record.seq, "time": record.time, "run_id": str(record.run_id)}


async def _said(record: Record, bodies: Bodies) -> e.AgentEvent:
    said = record.payload
    message: Any = await bodies.json(said.get("content")) or {}
    return e.Said(
        text=str(message.get("text", "")),
        input_id=_string(said.get("input_id")),
        purpose=_string(said.get("purpose")),
        **at(record),
    )


async def _answered(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.ToolResult(
        call_id=said["call_id"],
        name=said["name"],
        text=await bodies.text(said["content"]),
        is_error=bool(said.get("is_error", False)),
        **at(record),
    )


async def _asked(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.ApprovalRequested(
        approval_id=said["id"],
        effect_id=said["effect_id"],
        tool=said["tool"],
        arguments=await bodies.json(said["arguments"]),
        side_effect=said["side_effect"],
        risk=said.get("risk", "medium"),
        summary=said["summary"],
        allowed=tuple(said.get("allowed") or ()),
        deadline=said.get("deadline"),
        **at(record),
    )


async def _settled(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    decision: dict[str, Any] = said.get("decision") or {}
    return e.ApprovalDecided(
        approval_id=said["id"],
        status=said["status"],
        actor=decision.get("actor"),
        reason=decision.get("reason") or decision.get("reason_code") or said.get("reason_code"),
        **at(record),
    )


async def _retried(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.ModelRetried(
        reason=said["kind"],
        attempt=said["attempt"],
        max_retries=said["max_retries"],
        delay_ms=said["delay_ms"],
        **at(record),
    )


async def _switched(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.ModelSwitched(
        before=said["before"], after=said["after"], reason=said["reason"], **at(record)
    )


async def _warned(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.BudgetWarning(
        of=said["of"], unit=said["unit"], used=said["used"], limit=said["limit"], **at(record)
    )


async def _compacted(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.Compacted(
        tokens_before=said.get("tokens_before", 0),
        tokens_after=said.get("tokens_after", 0),
        **at(record),
    )


async def _checked(record: Record, bodies: Bodies) -> e.AgentEvent:
    said: dict[str, Any] = record.payload
    return e.OutputChecked(
        attempt=said["attempt"],
        valid=said["valid"],
        value=await bodies.json(said.get("value")),
        errors=tuple(said.get("errors") or ()),
        **at(record),
    )


def _string(value: Any) -> str | None:
    return None if value is None else str(value)


ALONE: dict[str, Callable[[Record, Bodies], Awaitable[e.AgentEvent]]] = {
    "run_prompted": _said,
    "tool_answered": _answered,
    "approval_requested": _asked,
    "approval_settled": _settled,
    "model_retry": _retried,
    "model_switched": _switched,
    "budget_warned": _warned,
    "context_compacted": _compacted,
    "output_checked": _checked,
}
"""Kind of record → what makes its event."""
