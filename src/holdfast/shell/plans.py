"""Plans: what a dry run would have done, approved as a whole, and then kept to."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.contracts import Json, PlannedEffect, RunRequest, Setup, canonical_json, digest
from holdfast.errors import CallerError, NotFound
from holdfast.gate.dryrun import ApprovedPlan
from holdfast.journal import Journal


async def approved_plan(
    journal: Journal, request: RunRequest, *, used_by: str | None = None
) -> ApprovedPlan | None:
    """The plan a run was approved for; raises `INVALID_ARGUMENT` when it is not this run's.

    That of another session is not there, for whoever asks may not know that session.
    """
    if request.plan_id is None:
        return None
    row = await journal.row("plans", request.plan_id)
    if row is None or row["session_id"] != request.session_id:
        raise NotFound(
            "NOT_FOUND",
            f"There is no plan `{request.plan_id[:80]}` of this session.",
            hint="A dry run in the same session makes one.",
        )
    inputs = digest(canonical_json(request.inputs)) if request.inputs else None
    if row["code"] != digest(request.code.encode()) or row.get("inputs") != inputs:
        raise _not_ours(request.plan_id, "is for other code or other inputs")
    if await _outlived_its_session(journal, row):
        raise _not_ours(request.plan_id, "is for a session of this name that was destroyed")
    if row["status"] == "pending":
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Plan `{request.plan_id}` is not approved yet; nothing was run.",
            hint=f"`holdfast approvals approve {request.plan_id}` approves it.",
        )
    if row["status"] != "approved":
        raise _not_ours(request.plan_id, f"is `{row['status']}`")
    if row["used_by"] not in (None, used_by):
        raise _not_ours(request.plan_id, "was used already")
    effects = json.loads(await journal.content(str(row["plan"])))
    return ApprovedPlan(request.plan_id, [PlannedEffect.model_validate(one) for one in effects])


async def _outlived_its_session(journal: Journal, plan: Mapping[str, Json]) -> bool:
    """A session that is made under this name later is another one: it has no consent."""
    session = await journal.row("sessions", str(plan["session_id"])) or {}
    over, made = session.get("destroyed_seq"), plan.get("made_seq")
    return isinstance(over, int) and isinstance(made, int) and made <= over


async def planned_setup(journal: Journal, request: RunRequest) -> Setup | None:
    """What the session was opened with for the dry run of the plan, if that was said and the plan is this run's."""
    row = await journal.row("plans", request.plan_id) if request.plan_id is not None else None
    if row is None or row["session_id"] != request.session_id or row.get("setup") is None:
        return None
    usable = row["status"] == "approved" and row["used_by"] is None
    return Setup.model_validate(row["setup"]) if usable else None


def _not_ours(plan_id: str, why: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"Plan `{plan_id}` {why}; nothing was run.",
        hint="Make a new one with a dry run, and have it approved.",
    )
