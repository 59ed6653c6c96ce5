"""Stopping what runs in a session, whoever has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from holdfast.server.work import Work
from holdfast.shell.drive import CancelMode

if TYPE_CHECKING:
    from holdfast.runtime import Runtime

MOMENT = 2.0
"""Seconds in which a run that was taken on is on record, unless it waits for its session."""
LOOK = 0.005
"""Seconds until one looks again whether it is."""


async def cancel_session(
    hf: Runtime,
    work: Work | None,
    session_id: str,
    *,
    mode: CancelMode = "now",
    run_id: str | None = None,
) -> bool:
    """Stop what runs in a session, or stands in it; False when nothing does. Raises `SESSION_NOT_FOUND`.

    What was taken on a moment ago is stopped as well: its client need not wait until it is on record.
    """
    until = anyio.current_time() + MOMENT
    while not hf.shell.cancel(session_id, mode=mode, run_id=run_id):
        row = await hf.journal.row("sessions", session_id) or {}
        standing = row.get("open_run") or row.get("open_agent")
        if isinstance(standing, str) and run_id in (None, standing):
            await hf.runs.cancel(standing, mode=mode)
            return True
        begins = work is not None and work.has(session_id, run_id)
        if not begins or anyio.current_time() >= until:
            await hf.shell.show(session_id)  # raises, if there is none
            return False
        await anyio.sleep(LOOK)
    return True
