"""A run that is not over, as the journal has it: everything it takes to go on with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.contracts import (
    EffectStatus,
    Language,
    Record,
    RunRequest,
    RunResult,
    RunView,
    SessionLimits,
)
from holdfast.contracts.agent import AgentResult
from holdfast.errors import CallerError, NotFound
from holdfast.gate.executor import Toolbox
from holdfast.gate.past import Past, Pasts, pasts_of
from holdfast.journal import Journal
from holdfast.shell.box import Progress
from holdfast.shell.services import Services
from holdfast.shell.snapshot import unpack


@dataclass(frozen=True, slots=True)
class Standing:
    """A run to go on with."""

    request: RunRequest
    pasts: Pasts
    reason: str
    """Why it can go on, as a token."""
    actor: str | None = None
    parent: str | None = None
    """The agent's run that wrote the code."""
    state: bytes | None = None
    """The engine's state at the call; without it, the code is run again."""
    inside: SessionLimits | None = None
    """The limits in that state."""
    progress: Progress = field(default_factory=Progress)
    names: tuple[str, ...] = ()
    sources: dict[str, str] | None = None
    wall_used_ms: int = 0


async def find_standing(
    services: Services, session_id: str, run_id: str, toolbox: Toolbox
) -> Standing | RunResult:
    """The run, ready to go on; its result when it is over, or where it stands when it still has to wait."""
    journal = services.journal
    row = await journal.row("runs", run_id)
    if row is None or row["session_id"] != session_id:
        raise NotFound(
            "NOT_FOUND",
            f"There is no run `{run_id[:80]}` in session `{session_id}`.",
            hint="`holdfast runs list` names those there are.",
        )
    if row["ended_at"] is not None:
        return await recorded_result(journal, session_id, row)
    start = await _record_at(journal, session_id, int(str(row["start_pos"])))
    pasts = await pasts_of(journal, session_id, run_id, after=start.pos)
    parked = None
    if row["parked_pos"] is not None:
        parked = await _record_at(journal, session_id, int(str(row["parked_pos"])))
    waits = parked is not None and row["status"] != "running"
    stood = RunView.model_validate(row).error
    repaired = waits and stood is not None and stood.code == "HOOK_FAILED"
    waits = waits and not repaired  # whether the hook does its part by now, only asking it tells
    if parked is not None and waits and not await _can_go_on(services, pasts, toolbox, parked.pos):
        result = await journal.content(str(parked.payload["result"]))
        return RunResult.model_validate_json(result)
    _check_tools(pasts, toolbox)
    request = await request_of(journal, start.payload, session_id)
    reason = "recovered" if row["status"] == "running" else "answered"
    reason = "repaired" if repaired else reason
    actor = start.payload.get("actor")
    parent = start.payload.get("parent")
    standing = Standing(
        request,
        pasts,
        reason,
        actor=str(actor) if actor else None,
        parent=str(parent) if parent else None,
    )
    return standing if parked is None else await _with_state(services, standing, parked)


def _check_tools(pasts: Pasts, toolbox: Toolbox) -> None:
    """Refuse to go on without what the run waits to call: that would look like a denial."""
    missing = sorted({past.name for past in pasts.open() if toolbox.get(past.name) is None})
    if missing:
        raise CallerError(
            "SNAPSHOT_CAPABILITY_MISMATCH",
            f"The run stands at capabilities that are not here: {', '.join(missing)}.",
            hint="Open the session with the capabilities it had (`--capabilities`), or see to the tool server"
            " whose they are (`holdfast mcp list`), then resume.",
        )


async def request_of(journal: Journal, said: dict[str, Any], session_id: str) -> RunRequest:
    """The request of a recorded run."""
    inputs, limits = said.get("inputs"), said.get("limits")
    return RunRequest(
        session_id=session_id,
        language=Language(said["language"]),
        code=(await journal.content(str(said["code"]))).decode(),
        inputs=json.loads(await journal.content(str(inputs))) if inputs else {},
        limits=SessionLimits.model_validate(limits) if limits else None,
        plan_id=said.get("plan"),
        return_snapshot=bool(said.get("return_snapshot")),
    )


async def recorded_result(journal: Journal, session_id: str, row: dict[str, Any]) -> RunResult:
    """What the caller of a run that is over got, or would have got."""
    end = await _record_at(journal, session_id, int(str(row["end_pos"])))
    said = end.payload
    if said.get("result"):
        return RunResult.model_validate_json(await journal.content(str(said["result"])))
    return RunResult.model_validate(
        {
            "status": said["status"],
            "error": said["error"],
            "diagnostics": [{"severity": "error", **_without_effect(said["error"])}],
            "metrics": said["metrics"],
            "run_id": row["id"],
        }
    )


async def recorded_agent(journal: Journal, row: dict[str, Any]) -> AgentResult:
    """What the caller of a run got when it ended, or was parked."""
    pos = row.get("end_pos") or row["parked_pos"]
    stream = str(row["session_id"])
    record = await anext(journal.read(stream, after=int(pos) - 1, limit=1))
    said = record.payload
    if said.get("result"):
        return AgentResult.model_validate_json(await journal.content(str(said["result"])))
    return AgentResult.model_validate(
        {
            "run_id": row["id"],
            "session_id": stream,
            "status": row["status"],
            "error": row["error"],
            "usage": row["usage"],
            "in_doubt": row["in_doubt"],
        }
    )


def _without_effect(error: Any) -> dict[str, Any]:
    return {key: value for key, value in error.items() if key != "effect_id"}


async def _can_go_on(services: Services, pasts: Pasts, toolbox: Toolbox, parked: int) -> bool:
    """Whether anything it waits for has come since it was parked."""
    if any(past.answered and past.result_pos > parked for past in pasts.calls.values()):
        return (
            True  # one of several, perhaps: the code goes on with that, and then waits for the rest
        )
    for past in pasts.open():
        asked = past.question.request if past.question is not None else past.approval
        if past.intent is not None and past.question is None:
            if past.released > past.attempt or not _needs_a_word(past, toolbox):
                return True
        elif asked is not None:
            row = await services.approvals.status(asked.id)
            if row["status"] != "pending":
                return True
        else:
            return True
    return not pasts.open()


def _needs_a_word(past: Past, toolbox: Toolbox) -> bool:
    """Whether only a person can say what became of it."""
    executor = toolbox.get(past.name)
    unknown = past.result is not None and past.result.terminal_status is EffectStatus.UNKNOWN
    return unknown and not (executor is not None and executor.reconciles)


async def _with_state(services: Services, found: Standing, parked: Record) -> Standing:
    said, journal = parked.payload, services.journal
    engine = services.boxes[found.request.language].engine
    try:
        sealed = await journal.content(str(said["state"]))
        snapshot = unpack(services.key, sealed, session_id=parked.stream, engine=engine)
        progress = Progress.model_validate_json(await journal.content(str(said["progress"])))
    except (CallerError, KeyError):
        return found  # no state, or none that can be trusted: the code is still there
    return Standing(
        found.request,
        found.pasts,
        found.reason,
        actor=found.actor,
        parent=found.parent,
        state=snapshot.state,
        inside=SessionLimits.model_validate(said["limits"]),
        progress=progress,
        names=snapshot.names,
        sources=snapshot.sources,
        wall_used_ms=int(str(said.get("wall_used_ms", 0))),
    )


async def _record_at(journal: Journal, stream: str, pos: int) -> Record:
    return await anext(journal.read(stream, after=pos - 1, limit=1))
