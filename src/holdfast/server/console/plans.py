"""Plans: what code would do, tried without doing it, to be approved as a whole. Items of the inbox like others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.contracts import ApprovalDecision
from holdfast.contracts.run import PlannedEffect
from holdfast.errors import HoldfastError
from holdfast.gate.past import stored_json
from holdfast.server.console.people import how, who
from holdfast.server.rest.endpoint import Call

_MOST = 50
_MOST_CODE = 200_000


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan."""

    id: str
    status: str
    session_id: str
    trial: str
    """How the dry run ended."""
    code: str | None
    """`None`: erased."""
    cut: int
    """Characters of it that are left out."""
    effects: tuple[PlannedEffect, ...] | None
    """What it would do; `None`: erased."""
    decision: ApprovalDecision | None
    who: str
    """Who decided."""
    how: str
    """How they were known."""
    decided_at: int | None
    """When."""
    may: bool
    """Whether whoever looks may answer, and it waits."""


async def plans_of(call: Call) -> list[Plan]:
    """Those that wait, of the sessions that the caller sees."""
    rows = await call.hf.approvals.plans(limit=1000)
    mine = [row for row in rows if call.caller.sees(row["session_id"])]
    return [await _plan(call, row) for row in mine[:_MOST]]


async def plan_of(call: Call, key: str) -> Plan:
    """One of them; raises `NOT_FOUND`."""
    return await _plan(call, await call.own("plans", key))


async def _plan(call: Call, row: dict[str, Any]) -> Plan:
    journal = call.hf.journal
    try:
        found: Any = await stored_json(journal, str(row["plan"]))
        effects = tuple(PlannedEffect.model_validate(one) for one in found)
        code = (await journal.content(str(row["code"]))).decode(errors="replace")
    except HoldfastError:
        effects = code = None
    said = row.get("decision")
    decision = None if said is None else ApprovalDecision.model_validate(said)
    return Plan(
        str(row["id"]),
        str(row["status"]),
        str(row["session_id"]),
        str(row["run"]),
        None if code is None else code[:_MOST_CODE],
        0 if code is None else len(code[_MOST_CODE:]),
        effects,
        decision,
        "" if decision is None else who(call.caller, decision.actor),
        "" if decision is None else how(decision.via),
        row.get("decided_at"),
        row["status"] == "pending" and call.caller.may("approve"),
    )
