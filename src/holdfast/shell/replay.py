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
from holdfast.gate.crossing import Desk
from holdfast.gate.executor import Toolbox
from holdfast.gate.past import Pasts
from holdfast.journal import Journal
from holdfast.journal.pen import Pen
from holdfast.shell.box import Box, Boxes, Ran
from holdfast.shell.clock import Clock
from holdfast.shell.definitions import Definitions
from holdfast.shell.discovery import discovery
from holdfast.shell.drive import Drive
from holdfast.shell.errand import Parked
from holdfast.shell.recorded import Recorded, stands
from holdfast.shell.refusals import other_limits
from holdfast.shell.services import Services, outside_of, setup_of
from holdfast.shell.snapshot import Snapshot, unpack

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
    names: set[str]
    """The variables and functions in it."""
    definitions: Definitions
    """What its code defined."""
    size: int
    """Bytes of the saved state it was made from."""


class Past(NamedTuple):
    """A recorded run that changed the session."""

    run_id: str
    code: str
    inputs: dict[str, Any]
    limits: SessionLimits
    status: str
    result: Any
    """The recorded `RunResult`, or `None` when its body was erased."""
    pasts: Pasts
    """Its calls, and what they gave."""


async def restore(
    services: Services,
    boxes: Boxes,
    *,
    session_id: str,
    limits: SessionLimits,
    upto: int | None = None,
) -> Restored:
    """A box in the session's recorded state, or as it was after position `upto`, with `limits` built in."""
    journal = services.journal
    row = await journal.row("sessions", session_id)
    if row is None or row["status"] != "open":
        box = await boxes.open(limits)
        return Restored(box, 0.0, 0, None, None, set(), Definitions(boxes, {}), 0)
    base = int(str(row.get("base_pos", row["created_pos"])))
    saved_at = int(str(row["state_pos"]))
    if upto is not None:
        base, saved_at = await _before(journal, session_id, int(str(row["created_pos"])), upto)
    start = await _start(services, boxes, session_id, (saved_at, base), limits)
    box = await boxes.open(limits, start.state)
    debt_ms, runs, names = 0.0, 0, set(start.names)
    definitions = Definitions(boxes, start.sources)
    toolbox = services.tools(setup_of(services, row))
    try:
        own = SessionLimits.model_validate(row["limits"])
        async for past in history(journal, session_id, own, after=start.pos, upto=upto):
            ran = await _again(services, box, past, toolbox, session_id)
            debt_ms += ran.metrics.duration_ms
            names |= boxes.binds(past.code, ran.error.code if ran.error is not None else None)
            definitions.ran(past.code, ran)
            runs += 1
    except BaseException:
        await box.close()
        raise
    size = len(start.state or b"")
    return Restored(box, debt_ms, runs, start.digest, start.warning, names, definitions, size)


async def as_it_was(
    services: Services,
    boxes: Boxes,
    *,
    session_id: str,
    limits: SessionLimits | None,
    at: int,
) -> Snapshot:
    """The state of a session after record `at`; `limits` are its own, if they are known."""
    journal = services.journal
    row: dict[str, Any] = await journal.row("sessions", session_id) or {}
    own = SessionLimits.model_validate(row.get("limits") or {})
    built_in = setup_of(services, row).limits or limits or own
    if at > await journal.last_seq():
        raise CallerError(
            "INVALID_ARGUMENT",
            f"There is no record {at}: the last one is {await journal.last_seq()}.",
            hint="`holdfast journal show` lists the records of a session.",
        )
    upto = 0
    # One that was destroyed under this name before is another session.
    async for record in journal.read(session_id, after=int(row["created_pos"]) - 1):
        if record.seq > at:
            break
        upto = record.pos
    if upto == 0:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Session `{session_id}` has no record up to {at}.",
            hint="`holdfast journal show` lists its records.",
        )
    made = await restore(services, boxes, session_id=session_id, limits=built_in, upto=upto)
    try:
        state = await made.box.dump()
    finally:
        await made.box.close()
    return Snapshot(
        session_id,
        boxes.engine,
        state,
        limits=built_in.model_dump(mode="json"),
        names=tuple(sorted(made.names)),
        sources=made.definitions.told(),
    )


class _Start(NamedTuple):
    """What to replay from."""

    pos: int
    state: bytes | None
    digest: str | None
    """The saved state, if a newer one may replace it."""
    names: tuple[str, ...]
    warning: Diagnostic | None
    sources: dict[str, str] | None


async def _before(journal: Journal, session_id: str, created: int, upto: int) -> tuple[int, int]:
    """The last base and the last saved state up to a position."""
    base = saved = created
    async for record in journal.read(session_id, after=created):
        if record.pos > upto:
            break
        if record.kind == "session_state":
            saved = record.pos
            if record.payload.get("reason", "saved") != "saved":
                base = record.pos
    return base, saved


async def _start(
    services: Services,
    boxes: Boxes,
    session_id: str,
    candidates: tuple[int, int],
    limits: SessionLimits,
) -> _Start:
    """The newest state that can be used; what was put into the session by hand can't be replayed."""
    warning: Diagnostic | None = None
    unfit: SessionLimits | None = None
    for pos in candidates:
        record = await anext(services.journal.read(session_id, after=pos - 1, limit=1))
        if record.kind != "session_state":
            return _Start(pos, None, None, (), warning, {})
        reason = record.payload.get("reason", "saved")
        digest = str(record.payload["state"])
        if _fits(record, limits):
            found, why = await _unseal(services, digest, session_id, boxes.engine)
            warning = warning or why
            if found is not None:
                kept = digest if reason == "saved" else None
                return _Start(pos, found.state, kept, found.names, warning, found.sources)
        else:
            unfit = SessionLimits.model_validate(record.payload["limits"])
        if reason == "reset":
            return _Start(pos, None, None, (), warning, {})
    if unfit is not None:
        raise other_limits(session_id, unfit)
    raise CallerError(
        "SNAPSHOT_CORRUPT",
        f"What was put into session `{session_id}` can't be loaded; nothing was run.",
        hint="Restore it again, with the limits and the engine it was taken with.",
    )


async def _unseal(
    services: Services, digest: str, session_id: str, engine: str
) -> tuple[Snapshot | None, Diagnostic | None]:
    """The saved state, or `None` when it is gone, of another engine, or not ours: the code is still there."""
    try:
        sealed = await services.journal.content(digest)
        return unpack(services.key, sealed, session_id=session_id, engine=engine), None
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
    journal: Journal,
    session_id: str,
    own: SessionLimits,
    *,
    after: int,
    upto: int | None = None,
) -> AsyncGenerator[Past]:
    """Every recorded run after a position that left its mark on the session, in order."""
    starts: dict[str, Started] = {}
    calls: dict[str, Pasts] = {}
    agents: set[str] = set()
    async for record in journal.read(session_id, after=after):
        if upto is not None and record.pos > upto:
            return
        run_id = record.run_id or ""
        if record.payload.get("kind") == "agent" or run_id in agents:
            agents.add(run_id)  # what an agent did beside its code left nothing in the session
        elif record.kind == "run_started":
            starts[run_id], calls[run_id] = record.payload, Pasts()
        elif record.kind == "run_completed" or record.payload.get("state_kept") is True:
            start = record.payload.get("start") or starts.pop(run_id, None)
            if isinstance(start, dict):
                pasts = calls.pop(run_id, None) or Pasts()
                yield await _past(journal, run_id, start, record, own, pasts)
        elif run_id in calls:
            calls[run_id].add(record)


async def _past(
    journal: Journal, run_id: str, said: Started, end: Record, own: SessionLimits, pasts: Pasts
) -> Past:
    inputs = said.get("inputs")
    return Past(
        run_id,
        (await journal.content(str(said["code"]))).decode(),
        json.loads(await journal.content(str(inputs))) if inputs else {},
        SessionLimits.model_validate(said["limits"]) if said.get("limits") else own,
        str(end.payload.get("status", "ok")),
        await _recorded(journal, end),
        pasts,
    )


async def _recorded(journal: Journal, end: Record) -> Any:
    try:
        return json.loads(await journal.content(str(end.payload["result"])))
    except CallerError:
        return None


async def _again(
    services: Services, box: Box, past: Past, toolbox: Toolbox, session_id: str
) -> Ran:
    """Run it again and compare."""
    limits = past.limits.model_copy(
        update={
            "cpu_ms": past.limits.cpu_ms * _PATIENCE,
            "wall_ms": past.limits.wall_ms * _PATIENCE,
            "memory_mb": box.limits.memory_mb,
            "max_stack_depth": box.limits.max_stack_depth,
        }
    )
    ran = await rerun(services, box, past, limits, toolbox, session_id)
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
    return ran


async def rerun(
    services: Services,
    box: Box,
    past: Past,
    limits: SessionLimits,
    toolbox: Toolbox,
    session_id: str,
) -> Ran:
    """Run recorded code again; its calls are answered from the record, and none is made."""
    outside = outside_of(toolbox, past.pasts)
    desk = Desk(
        session_id=session_id,
        run_id=past.run_id,
        pen=Pen(services.journal, session_id, services.owner),
        toolbox=toolbox,
        policy=services.policy,
    )
    drive = Drive(
        box=box,
        performs=Recorded(services.journal),
        desk=desk,
        pasts=past.pasts,
        clock=Clock(limits.wall_ms),
        awaited=lambda name: outside.get(name, False),
    )
    first = box.run(
        past.code,
        inputs=past.inputs,
        limits=limits,
        names=discovery(toolbox, services.policy, past.limits),
        outside=outside,
    )
    ran = await drive.go(first)
    if isinstance(ran, Parked):
        raise stands(past.run_id, ran)
    return ran
