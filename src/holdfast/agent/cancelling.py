"""A run that was cancelled: where its stream stands, what it leaves in doubt, and what stays of its conversation."""

from __future__ import annotations

from time import monotonic
from typing import Any

from holdfast.agent.history import history_of
from holdfast.agent.work import Work
from holdfast.contracts import EffectStatus
from holdfast.journal.pen import LEASE_MS


async def on_record(work: Work) -> bool:
    """Whether a run is on record at all, once it is known where its stream stands.

    A task can be cancelled by force, in the middle of a write: that has landed or not.
    """
    session, pen = work.session, work.session.pen
    if pen.cut_off:
        pen.lose()
        await pen.take(monotonic() + LEASE_MS / 1000)
        row = await work.journal.row("sessions", session.id)
        if row is None or row["status"] != "open":
            session.limits = None  # it was to be made together with the run
    if work.desk.begin is not None:
        return True  # it will be: nothing has been tried
    await work.journal.flush()
    return await work.journal.row("runs", work.run_id) is not None


async def stopped(work: Work) -> tuple[str, ...]:
    """Take the conversation and the usage of a run from its records; the effects it leaves in doubt.

    What was cut off in the middle is told by the records alone: an answer that was being given, code that ran.
    """
    journal = work.journal
    await journal.flush()
    work.transcript = (await history_of(journal, work.session.id)).transcript
    row: dict[str, Any] = await journal.row("runs", work.run_id) or {}
    if row:
        work.used = {unit: n for unit, n in row["usage"].items() if unit != "runs"}
    ours = {work.run_id}
    doubts: dict[str, None] = {}
    async for record in journal.read(work.session.id, after=int(row.get("start_pos", 1)) - 1):
        if record.payload.get("parent") == work.run_id and record.run_id is not None:
            ours.add(record.run_id)
        if record.kind != "effect_result" or record.run_id not in ours:
            continue
        doubts.pop(str(record.effect_id), None)
        if record.payload["terminal_status"] == EffectStatus.UNKNOWN:
            doubts[str(record.effect_id)] = None
    return tuple(doubts)
