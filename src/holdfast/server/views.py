"""Answers in the shapes that the command line, JSON-RPC and REST share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from holdfast.contracts import Capability, RunResult, SessionLimits, Setup, digest
from holdfast.contracts.agent import AgentResult
from holdfast.errors import CallerError, NotFound
from holdfast.gate.executor import Toolbox
from holdfast.gate.policy import Policy
from holdfast.journal import Report
from holdfast.shell.runs import Runs


def tool_line(toolbox: Toolbox, one: Capability) -> dict[str, Any]:
    """A capability as lists show it."""
    return {
        "name": one.name,
        "description": one.description,
        "side_effect": one.side_effect.value,
        "risk": one.harm.value,
        "idempotent": one.idempotent,
        "stub": toolbox.stubs([one.name]),
    }


def tool_lines(toolbox: Toolbox, found: Sequence[Capability]) -> dict[str, Any]:
    """A list of capabilities."""
    return {"items": [tool_line(toolbox, one) for one in found], "next": None}


def tool(toolbox: Toolbox, name: str) -> dict[str, Any]:
    """Everything about one capability; raises `NOT_FOUND`."""
    found = toolbox.get(name)
    if found is None:
        raise NotFound(
            "NOT_FOUND",
            f"There is no capability `{name[:80]}` in this session.",
            hint="`holdfast tools list` names those there are.",
        )
    one = found.capability
    more = {"risk": one.harm.value, "digest": one.digest, "stub": toolbox.stubs([one.name])}
    return {**one.model_dump(mode="json"), **more}


def policy(
    toolbox: Toolbox, rules: Policy, limits: SessionLimits, setup: Setup, *, whole: bool = True
) -> dict[str, Any]:
    """What a session is held to; unless `whole`, without where on this machine that is."""
    opened = setup.model_dump(mode="json")
    if not whole:
        del opened["capabilities"]
        for one in (*opened["mounts"], *opened["databases"]):
            one.pop("host", None)
            one.pop("url", None)
    return {
        "limits": limits.model_dump(mode="json"),
        "capabilities": [one.name for one in toolbox.all()],
        "policy": rules.describe(),
        "setup": opened,
    }


def result_of(found: RunResult | AgentResult) -> RunResult | dict[str, Any]:
    """What a run gave. An agent's has its `id` as every view does."""
    return found if isinstance(found, RunResult) else agent_result(found)


def agent_result(found: AgentResult) -> dict[str, Any]:
    """What a run of an agent gave; `id` is the run's, as in every view."""
    return {"id": found.run_id, **found.model_dump(mode="json")}


def snapshot(session_id: str, data: bytes) -> dict[str, Any]:
    """What was in a session, to be sent."""
    return {
        "session_id": session_id,
        "snapshot_id": digest(data),
        "snapshot": base64.b64encode(data).decode(),
        "bytes": len(data),
    }


def snapshot_bytes(text: str) -> bytes:
    """A snapshot as it was sent; raises `SNAPSHOT_CORRUPT`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CallerError(
            "SNAPSHOT_CORRUPT",
            "The snapshot is not base64.",
            hint="Send the `snapshot` that you got as it is.",
        ) from None


async def run_details(runs: Runs, run_id: str) -> dict[str, Any]:
    """A run with every call it made and, as `result`, what its caller got; null while it is under way or erased."""
    view = await runs.show(run_id)
    try:
        result = result_of(await runs.result_any(run_id))
    except CallerError as why:
        if why.code not in ("RUN_OPEN", "NOT_FOUND", "CONTENT_ERASED"):
            raise
        result = None
    return {**view.model_dump(mode="json"), "effects": await runs.effects(run_id), "result": result}


def page(found: Sequence[Any], limit: int, cursor: str = "id") -> dict[str, Any]:
    """A list of which one more than `limit` was asked for, to know whether there are more."""
    items = found[:limit]
    more = len(found) > limit
    return {"items": items, "next": getattr(items[-1], cursor) if more else None}


def report(found: Report) -> dict[str, Any]:
    """What a verification found."""
    return {"ok": found.ok, **asdict(found), "bad": found.bad and found.bad._asdict()}
