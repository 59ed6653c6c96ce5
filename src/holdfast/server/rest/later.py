"""Answers that may take longer than anybody wants to wait for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import CallerError
from holdfast.server import views
from holdfast.server.rest.endpoint import Answer, Call
from holdfast.server.work import Job, Result

_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,6})(?:$|[,;\s])")


async def outcome(
    call: Call,
    run_id: str,
    session_id: str,
    go: Callable[[], Awaitable[Result]],
    *,
    again: bool = False,
) -> Any:
    """What a run gave, or, when that takes too long, where to look. With `again`, it was asked for before."""
    if again:
        found = await _before(call, run_id)
        if found is not None:
            return found
    return await waited(call, call.work.start(run_id, session_id, go))


async def _before(call: Call, run_id: str) -> Any:
    """The answer to a request that was made before; `None` when its run never began."""
    job = call.work.find(run_id)
    if job is None and await call.hf.journal.row("runs", run_id) is None:
        return None
    if job is not None and job.done and job.error is not None:
        return None  # it was refused, and is tried again
    if job is not None:
        return await waited(call, job)
    try:
        return views.result_of(await call.hf.runs.result_any(run_id))
    except CallerError as why:
        if why.code != "RUN_OPEN":
            raise
    # It was under way in a process that is gone, or is in another one.
    return await waited(call, await call.work.resume(run_id))


async def waited(call: Call, job: Job) -> Any:
    """What a run gives within the time that the caller has."""
    found = await job.outcome(_seconds(call))
    if found is not None:
        return views.result_of(found)
    url = f"/v1/runs/{job.run_id}"
    told = {
        "id": job.run_id,
        "run_id": job.run_id,
        "session_id": job.session_id,
        "status": "running",
        "url": url,
    }
    return Answer(told, 202, {"Location": url, "Retry-After": "1"})


def _seconds(call: Call) -> float:
    """How long the caller wants to wait: by `wait_ms`, or `Prefer: respond-async` or `wait=SECONDS`."""
    most: float = call.request.app.state.limits.wait_seconds
    said: int | None = getattr(call.query, "wait_ms", None)
    prefer = call.request.headers.get("prefer", "").lower()
    if said is not None:
        return min(most, said / 1000)
    if (found := _WAIT.search(prefer)) is not None:
        return min(most, float(found[1]))
    return 0.0 if "respond-async" in prefer else most
