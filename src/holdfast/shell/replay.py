"""Makes a session's box again from the journal: the last saved state, then every run after it, once more.

Code in a box is determined by the state before it, its text, its inputs and the answers it got. So running the
recorded code again gives the same state, and nothing outside is touched. If it does not give the recorded
result, something is not as it was (another engine, a changed journal): then the box is refused.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from holdfast.contracts import (
    Diagnostic,
    Record,
    RunStatus,
    SessionLimits,
    Severity,
    canonical_json,
)
from holdfast.errors import CallerError, OperatorError
from holdfast.journal import Journal
from holdfast.shell.box import Box, Boxes
from holdfast.shell.discovery import discovery
from holdfast.shell.snapshot import unpack

_PATIENCE = 10
"""A replay may take this many times longer than the run: the machine may be slower, or busier."""


Started = dict[str, Any]
"""The payload of a `run_started` record."""


class Restored(NamedTuple):
    """A box in the session's state."""

    box: Box
    debt_ms: float
    """What was replayed to get here, and would have to be again."""
    debt_runs: int
    state: str | None
    """The saved state it was made from."""
    warning: Diagnostic | None
    """What whoever runs next should know: a saved state was not to be trusted."""


class Past(NamedTuple):
    """A recorded run that changed the session."""

    run_id: str
    code: str
    inputs: dict[str, Any]
    limits: SessionLimits
    status: str
    result: Any
    """The recorded `RunResult`, or `None` when its body was erased."""


async def unfinished(journal: Journal, session_id: str) -> list[str]:
    """The runs of a session that have a start on record but no end."""
    found = await journal.rows("runs", tag="active", limit=1_000_000)
    return [row.key for row in found if row.value["session_id"] == session_id]


async def restore(
    journal: Journal, boxes: Boxes, key: bytes, *, session_id: str, limits: SessionLimits
) -> Restored:
    """A box in the session's recorded state, with `limits` built in."""
    row = await journal.row("sessions", session_id)
    if row is None or row["status"] != "open":
        return Restored(await boxes.open(limits), 0.0, 0, None, None)
    created, saved_at = int(str(row["created_pos"])), int(str(row["state_pos"]))
    found = await _saved(journal, session_id, saved_at, limits)
    state, warning = None, None
    if found is not None:
        state, warning = await _unseal(journal, key, found, session_id, boxes.engine)
    box = await boxes.open(limits, state)
    after = created if state is None else saved_at
    debt_ms, runs = 0.0, 0
    try:
        own = SessionLimits.model_validate(row["limits"])
        async for past in history(journal, session_id, own, after=after):
            debt_ms += await _again(box, past)
            runs += 1
    except BaseException:
        await box.close()
        raise
    return Restored(box, debt_ms, runs, found, warning)


async def _saved(journal: Journal, session_id: str, pos: int, limits: SessionLimits) -> str | None:
    """The digest of the saved state at `pos`, if there is one with these limits in it."""
    record = await anext(journal.read(session_id, after=pos - 1, limit=1))
    if record.kind != "session_state" or not _fits(record, limits):
        return None
    return str(record.payload["state"])


async def _unseal(
    journal: Journal, key: bytes, digest: str, session_id: str, engine: str
) -> tuple[bytes | None, Diagnostic | None]:
    """The saved state, or `None` when it is gone, of another engine, or not ours: the code is still there."""
    try:
        sealed = await journal.content(digest)
        return unpack(key, sealed, session_id=session_id, engine=engine), None
    except CallerError as why:
        if why.code != "SNAPSHOT_CORRUPT":
            return None, None
        return None, Diagnostic(
            severity=Severity.WARNING,
            code=why.code,
            message=f"{why.message} The session was made again from its recorded code.",
            hint=why.hint,
        )


def _fits(record: Record, limits: SessionLimits) -> bool:
    """Whether a state has the limits in it that the engine can't change afterwards."""
    inside = SessionLimits.model_validate(record.payload["limits"])
    wanted = (limits.memory_mb, limits.max_stack_depth)
    return (inside.memory_mb, inside.max_stack_depth) == wanted


async def history(
    journal: Journal, session_id: str, own: SessionLimits, *, after: int
) -> AsyncGenerator[Past]:
    """Every recorded run after a position that left its mark on the session, in order."""
    starts: dict[str, Started] = {}
    async for record in journal.read(session_id, after=after):
        run_id = record.run_id or ""
        if record.kind == "run_started":
            starts[run_id] = record.payload
        elif record.kind == "run_completed" or record.payload.get("state_kept") is True:
            start = record.payload.get("start") or starts.pop(run_id, None)
            if isinstance(start, dict):
                yield await _past(journal, run_id, start, record, own)


async def _past(
    journal: Journal, run_id: str, said: Started, end: Record, own: SessionLimits
) -> Past:
    inputs = said.get("inputs")
    return Past(
        run_id,
        (await journal.content(str(said["code"]))).decode(),
        json.loads(await journal.content(str(inputs))) if inputs else {},
        SessionLimits.model_validate(said["limits"]) if said.get("limits") else own,
        str(end.payload.get("status", "ok")),
        await _recorded(journal, end),
    )


async def _recorded(journal: Journal, end: Record) -> Any:
    try:
        return json.loads(await journal.content(str(end.payload["result"])))
    except CallerError:
        return None


async def _again(box: Box, past: Past) -> float:
    """Run it again and compare; milliseconds it took."""
    limits = past.limits.model_copy(
        update={
            "cpu_ms": past.limits.cpu_ms * _PATIENCE,
            "wall_ms": past.limits.wall_ms * _PATIENCE,
            "memory_mb": box.limits.memory_mb,
            "max_stack_depth": box.limits.max_stack_depth,
        }
    )
    ran = await box.run(
        past.code, inputs=past.inputs, limits=limits, names=discovery((), past.limits)
    )
    same = ran.status.value == past.status
    if not same and ran.status is RunStatus.RESOURCE_EXHAUSTED:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"The session does not fit into {box.limits.memory_mb} MiB and"
            f" {box.limits.max_stack_depth} nested calls; nothing was run.",
            hint="Run without these limits: the session's own were enough for it.",
        )
    if same and past.result is not None:
        same = canonical_json(ran.value) == canonical_json(past.result["result"])
    if not same:
        raise OperatorError(
            "REPLAY_MISMATCH",
            f"Run `{past.run_id}` gave another result when it was replayed; nothing was changed.",
            hint="The engine changed, or the journal did: run `holdfast journal verify`.",
        )
    return ran.metrics.duration_ms
