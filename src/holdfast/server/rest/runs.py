"""Runs: of agents, list, look at, go on, stop; and what became of an effect in doubt."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio

from holdfast.contracts import (
    EffectView,
    RunResult,
    RunStatus,
    RunView,
    check_session_id,
    new_id,
)
from holdfast.contracts.view import RunFilter
from holdfast.errors import Conflict, NotFound
from holdfast.server import views
from holdfast.server.cancelling import LOOK, MOMENT
from holdfast.server.rest import bodies as b
from holdfast.server.rest import examples as eg
from holdfast.server.rest.approvals import speaks_for
from holdfast.server.rest.endpoint import Call, Endpoint
from holdfast.server.rest.later import outcome, waited
from holdfast.server.rest.listing import Listed, Paged, seen
from holdfast.server.rest.sessions import within_rights
from holdfast.server.work import Job


class ListRuns(Paged):
    """Which runs."""

    session_id: str | None = None
    """Only of this session."""
    status: RunFilter | None = None
    """Only these: `active`, `ended`, or a status."""
    newest: bool = False
    """From the last one back."""


async def own_run(call: Call) -> str:
    """The run of a path, if it is the caller's."""
    run_id = call.path["run_id"]
    job = call.work.find(run_id)
    if job is None:
        await call.own("runs", run_id)
    elif not call.caller.sees(job.session_id):
        raise await call.none("runs", run_id)
    return run_id


async def list_agents(call: Call) -> Any:
    """The agents that are served here."""
    found = [
        b.AgentLine(
            name=name,
            model=one.definition.spec.model,
            mode=one.definition.spec.mode,
            instructions=one.definition.spec.instructions,
        )
        for name, one in sorted(call.work.agents.items())
    ]
    return {"items": found, "next": None}


async def run_agent(call: Call) -> Any:
    """Run an agent until it is done, must stop, or waits for somebody."""
    asked: b.RunAgent = call.body
    name = call.path["name"]
    agent = call.work.agents.get(name)
    if agent is None:
        raise NotFound(
            "NOT_FOUND",
            f"There is no agent `{name[:80]}`.",
            hint="`GET /v1/agents` names those there are; `holdfast serve --agents` adds some.",
        )
    if asked.account is not None and not call.caller.may("admin"):
        await call.admin_only("`account`")
    prefix = call.caller.prefix or ""
    session = asked.session_id
    if session is None:  # the same again, if the request comes again
        own = new_id("ses") if call.key is None else f"ses_{call.key.name[:24]}"
        session = f"{prefix}{own}"[:64]
    await call.mine(check_session_id(session))
    run_id, again = await call.keys.run(call.key, session, actor=call.caller.id)
    await agent.ready(call.hf)
    run = partial(
        call.hf.agents.run,
        agent.definition,
        asked.prompt,
        session=session,
        run_id=run_id,
        actor=call.caller.id,
        account=asked.account,
        wait_ms=asked.wait_ms,
    )
    return await outcome(call, run_id, session, run, again=again)


async def list_runs(call: Call) -> Any:
    """Runs by id, and so by time."""
    asked: ListRuns = call.query
    runs = call.hf.runs
    if asked.session_id is not None:
        await call.mine(check_session_id(asked.session_id))
    return await seen(
        call,
        lambda after, limit: runs.list(
            status=asked.status,
            session=asked.session_id,
            after=after,
            limit=limit,
            newest=asked.newest,
        ),
        key=lambda one: one.id,
        session=lambda one: one.session_id,
    )


async def show_run(call: Call) -> Any:
    """A run with every call it made, and what its caller got. With `wait_ms`, once it is over, or stands."""
    run_id = await own_run(call)
    job = call.work.find(run_id)
    if job is not None and call.query.wait_ms is not None:
        most: float = call.request.app.state.limits.wait_seconds
        await job.outcome(min(most, call.query.wait_ms / 1000))
    if await call.hf.journal.row("runs", run_id) is not None:
        return await views.run_details(call.hf.runs, run_id)
    if job is not None and job.error is not None:
        raise job.error  # it was refused before it began
    return _unrecorded(run_id, job)


def _unrecorded(run_id: str, job: Job | None) -> dict[str, Any]:
    """A run that is on no record: not yet, or because it was over before it began."""
    value = None if job is None else job.value
    status = "running" if value is None else "failed"
    if value is not None and value.status == RunStatus.CANCELLED:
        status = "cancelled"
    view = RunView(
        id=run_id,
        session_id="" if job is None else job.session_id,
        kind="code",
        status=status,
        started_at=0,
        error=None if value is None else value.error,
    )
    return {
        **view.model_dump(mode="json"),
        "effects": [],
        "result": None if value is None else views.result_of(value),
    }


async def resume_run(call: Call) -> Any:
    """Go on with a run that stands; one that still waits is left as it is, one that is over gives its result."""
    asked: b.ResumeRun = call.body
    run_id = await own_run(call)
    await within_rights(call)
    return await waited(
        call, await call.work.resume(run_id, setup=asked.setup, wait_ms=asked.wait_ms)
    )


async def cancel_run(call: Call) -> Any:
    """Stop a run: where it stands, or in the process that has it."""
    asked: b.CancelRun = call.body
    run_id = await own_run(call)
    await _begun(call, run_id)
    return await call.hf.runs.cancel(
        run_id, mode=asked.mode, reason=asked.reason, wait_ms=asked.wait_ms
    )


async def _begun(call: Call, run_id: str) -> None:
    """Wait for the moment between taking a run on and having it on record: whoever knows its name may stop it."""
    job = call.work.find(run_id)
    with anyio.move_on_after(MOMENT):
        while job is not None and not job.done:
            if await call.hf.journal.row("runs", run_id) is not None:
                return
            await anyio.sleep(LOOK)
    if job is not None and not job.done:
        raise Conflict(
            "SESSION_BUSY",
            f"Run `{run_id}` has not begun: another has its session.",
            hint="Stop that one first, or try again later.",
        )


async def resolve_effect(call: Call) -> Any:
    """Say what became of an effect in doubt: it happened, it did not, or try it again."""
    asked: b.ResolveEffect = call.body
    key = call.path["effect_id"]
    row = await call.own("effects", key)
    return await call.hf.runs.resolve(
        asked.run_id or str(row["run_id"]),
        key,
        asked.answer,
        value=asked.value,
        actor=await speaks_for(call, asked.actor),
        wait_ms=asked.wait_ms,
    )


RUNS = (
    Endpoint(
        "GET", "/v1/agents", list_agents, "read", "List agents", Listed[b.AgentLine],
        gives=eg.listed(eg.AGENT),
    ),
    Endpoint(
        "POST",
        "/v1/agents/{name}/runs",
        run_agent,
        "run",
        "Run an agent",
        b.AgentRun,
        about="One that fails, or waits for a person, is an answer with 200: see `status`.",
        query=b.Waiting,
        body=b.RunAgent,
        later=True,
        errors=(404, 409),
        example={"prompt": "Summarize what changed since yesterday."},
        gives=eg.AGENT_RUN,
    ),
    Endpoint(
        "GET", "/v1/runs", list_runs, "read", "List runs", Listed[RunView], query=ListRuns,
        errors=(404,), gives=eg.listed(eg.RUN),
    ),
    Endpoint(
        "GET",
        "/v1/runs/{run_id}",
        show_run,
        "read",
        "Show a run",
        b.RunDetails,
        query=b.Waiting,
        errors=(404, 409),
        gives=eg.RUN_DETAILS,
    ),
    Endpoint(
        "POST",
        "/v1/runs/{run_id}/resume",
        resume_run,
        "run",
        "Go on with a run",
        RunResult | b.AgentRun,
        query=b.Waiting,
        body=b.ResumeRun,
        later=True,
        keyed=True,
        errors=(404, 409),
        gives=eg.RESULT,
    ),
    Endpoint(
        "POST",
        "/v1/runs/{run_id}/cancel",
        cancel_run,
        "run",
        "Stop a run",
        RunView,
        body=b.CancelRun,
        keyed=True,
        errors=(404, 409),
        example={"reason": "no longer needed"},
        gives=eg.CANCELLED_RUN,
    ),
    Endpoint(
        "POST",
        "/v1/effects/{effect_id}/resolve",
        resolve_effect,
        "approve",
        "Say what became of an effect in doubt",
        EffectView,
        body=b.ResolveEffect,
        keyed=True,
        errors=(404, 409),
        example={"answer": "happened", "value": {"id": 7}},
        gives=eg.EFFECT,
    ),
)  # fmt: skip
