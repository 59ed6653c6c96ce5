"""What a run of a session sets out with: its story, its desk at the gate, and what drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.contracts import RunRequest, SessionLimits
from holdfast.gate.crossing import Desk
from holdfast.gate.dryrun import ApprovedPlan
from holdfast.gate.past import Pasts
from holdfast.shell.box import Box
from holdfast.shell.clock import Clock
from holdfast.shell.drive import Drive
from holdfast.shell.services import outside_of
from holdfast.shell.story import Story

if TYPE_CHECKING:
    from holdfast.shell.session import Session


def story_of(
    session: Session,
    request: RunRequest,
    limits: SessionLimits,
    *,
    actor: str | None = None,
    run_id: str | None = None,
    named: str | None = None,
    parent: str | None = None,
    call_id: str | None = None,
) -> Story:
    """What will be recorded of a run; `run_id` is one that is on record, `named` one that is to be."""
    opening = session.opening
    tools = opening.toolbox.all()
    return Story(
        request,
        limits,
        session_limits=session.limits or opening.defaults(),
        creates=session.limits is None,
        engine=session.contents.boxes.engine,
        setup=opening.setup if opening.setup.model_fields_set else None,
        toolbox=opening.toolbox.digest if tools else None,
        actor=actor,
        run_id=run_id,
        named=named,
        parent=parent,
        call_id=call_id,
    )


async def desk_of(session: Session, story: Story, plan: ApprovedPlan | None) -> Desk:
    """Where the calls of a run are made."""
    opening, purses = session.opening, await session.purses()
    return Desk(
        session_id=session.id,
        run_id=story.run_id,
        pen=session.pen,
        toolbox=opening.toolbox,
        policy=opening.policy,
        purses=purses,
        plan=plan,
        actor=story.actor or "holdfast",
        begin=story.start,
        begun=story.told,
    )


def drive_of(
    session: Session,
    box: Box,
    desk: Desk,
    pasts: Pasts,
    limits: SessionLimits,
    *,
    used_ms: int = 0,
) -> Drive:
    """What takes a run on that has used up `used_ms` of its time."""
    awaited = outside_of(session.opening.toolbox, pasts)
    return Drive(
        box=box,
        performs=session.services.gate,
        desk=desk,
        pasts=pasts,
        clock=Clock(limits.wall_ms, used_ms / 1000),
        awaited=lambda name: awaited.get(name, False),
        decided=session.services.approvals.ended,
    )
