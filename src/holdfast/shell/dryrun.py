"""A dry run: the code does run, reads are answered, and every other call is listed instead of made.

It runs in a box of its own, in the session's state, so the session stays as it is. What it read is on record, and so
is the plan, which can be approved as a whole; a run that is bound to an approved plan can make its calls and no other.
"""

from __future__ import annotations

import anyio

from holdfast.contracts import (
    Body,
    Draft,
    ErrorObject,
    PlannedEffect,
    RunRequest,
    RunResult,
    SessionLimits,
    Setup,
    canonical_json,
    new_id,
)
from holdfast.contracts.payload import PlanMade
from holdfast.errors import CallerError, InternalError
from holdfast.gate.crossing import Desk
from holdfast.gate.past import Pasts
from holdfast.journal.pen import Pen
from holdfast.shell.clock import Clock
from holdfast.shell.discovery import discovery
from holdfast.shell.drive import Drive
from holdfast.shell.errand import Parked
from holdfast.shell.replay import Restored, restore
from holdfast.shell.services import Services, outside_of, run_limits, setup_of
from holdfast.shell.story import cleaned, failed, result_of


class DryRun:
    """Tries code without effects."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(
        self, request: RunRequest, setup: Setup | None, *, actor: str | None
    ) -> RunResult:
        """What the code would give, and do."""
        services = self._services
        row = await services.journal.row("sessions", request.session_id)
        known = row if row is not None and row["status"] == "open" else None
        given, setup = setup, setup or setup_of(services, row)
        own = SessionLimits.model_validate(known["limits"]) if known else None
        limits = run_limits(request, setup.limits or own or services.limits)
        boxes = services.boxes[request.language]
        try:
            made = await restore(services, boxes, session_id=request.session_id, limits=limits)
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)
        try:
            result = await self._tried(request, setup, limits, made, actor)
            await self._record(request, given, result)
            return result
        finally:
            with anyio.CancelScope(shield=True):
                await made.box.close()

    async def _tried(
        self,
        request: RunRequest,
        setup: Setup,
        limits: SessionLimits,
        made: Restored,
        actor: str | None,
    ) -> RunResult:
        services, plan_id = self._services, new_id("plan")
        toolbox, policy = await services.toolbox(setup), services.policy.within(setup.rules)
        planned: list[PlannedEffect] = []
        # What it reads is recorded in a stream of its own: the session's may be in use.
        pen = Pen(services.journal, f"holdfast:dry:{plan_id}", services.owner)
        await pen.take(0)
        desk = Desk(
            session_id=request.session_id,
            run_id=plan_id,
            pen=pen,
            toolbox=toolbox,
            policy=policy,
            dry=planned,
            actor=actor or "holdfast",
            runless=True,
        )
        outside = outside_of(toolbox)
        drive = Drive(
            box=made.box,
            performs=services.gate,
            desk=desk,
            pasts=Pasts(),
            clock=Clock(limits.wall_ms),
            awaited=lambda name: outside.get(name, False),
        )
        first = made.box.run(
            request.code,
            inputs=request.inputs,
            limits=limits,
            names=discovery(toolbox, policy, limits),
            outside=outside,
            known=lambda: made.names,
        )
        try:
            ran = await drive.go(first)
            if isinstance(ran, Parked) and ran.hook is not None:  # nobody goes on with it
                ran = await made.box.stop(ErrorObject.of(ran.hook))
        finally:
            await pen.release()
        if isinstance(ran, Parked):
            raise InternalError("A dry run waits for somebody.")
        told = result_of(plan_id, ran, None, drive.records(ran.calls))
        result = cleaned(services.gate.redactor, told)
        return result.model_copy(
            update={"plan": tuple(planned), "plan_id": plan_id, "run_id": None}
        )

    async def _record(self, request: RunRequest, setup: Setup | None, result: RunResult) -> None:
        code = Body.of(request.code.encode(), role="code", mime="text/x-python")
        effects = [one.model_dump(mode="json") for one in result.plan or ()]
        plan = Body.of(canonical_json(effects), role="plan", mime="application/json")
        bodies, inputs = (code, plan), None
        if request.inputs:
            body = Body.of(canonical_json(request.inputs), role="inputs", mime="application/json")
            bodies, inputs = (code, plan, body), body.ref.digest
        said = PlanMade(
            id=str(result.plan_id),
            session_id=request.session_id,
            code=code.ref.digest,
            inputs=inputs,
            plan=plan.ref.digest,
            setup=setup,
            status=result.status,
        )
        await self._services.journal.append(PLANS, [Draft.of(said, bodies=bodies)])


PLANS = "holdfast:plans"
"""The stream of plans. Nobody leases it."""
