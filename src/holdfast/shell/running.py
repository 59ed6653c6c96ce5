"""One run of a session: started, parked where it waits, resumed, ended.

A run that takes longer than `LATE` has its start handed in while it computes, so that it leaves a trace if the
machine dies with it; one that calls out has it on record before that. When its end is on record: `ending.py`.

A run that waits for a person is parked: the engine's state at the call is saved, and box and lease are given back.
To resume it, take that state or, without it, run the code again from the session's state, and answer each call from
the journal up to the first without a result. Both lead to the same place.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from holdfast.contracts import (
    Draft,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    canonical_json,
)
from holdfast.contracts.payload import RunResumed
from holdfast.errors import CallerError, HoldfastError, InternalError
from holdfast.gate.dryrun import ApprovedPlan
from holdfast.gate.hooks import HookInterrupts
from holdfast.gate.past import Pasts
from holdfast.journal.pen import LEASE_MS
from holdfast.shell.box import Box, Progress, Ran, Stop
from holdfast.shell.drive import CancelMode, CancelRequested, Drive
from holdfast.shell.ending import (
    cancelled_result,
    ended,
    hooked,
    may_complete,
    naming_doubts,
    settled,
    told,
    undo,
)
from holdfast.shell.errand import Parked
from holdfast.shell.outfit import desk_of, drive_of, story_of
from holdfast.shell.parking import park, withdraw
from holdfast.shell.plans import approved_plan
from holdfast.shell.reopening import again, reopen
from holdfast.shell.standing import find_standing
from holdfast.shell.story import Story, failed, result_of, with_calls

if TYPE_CHECKING:
    from holdfast.shell.session import Session

LATE = 0.001
"""Seconds after which the start of a run is handed in without waiting for its end."""


class Runner:
    """Runs code in one session, one run at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._drive: Drive | None = None
        self._plain: asyncio.Task[Any] | None = None
        """What waits for a run of code that can call nobody."""
        self._stopped = False
        """Whether somebody wants such a run stopped."""
        self._run_id: str | None = None
        self._reason: str | None = None

    # -- a new run ------------------------------------------------------------------------------------

    async def run(
        self,
        request: RunRequest,
        *,
        durable: bool,
        actor: str | None,
        parent: str | None = None,
        call_id: str | None = None,
        run_id: str | None = None,
    ) -> RunResult:
        """Run code from its start; `parent` is the agent's run that wrote it, to answer call `call_id`."""
        session = self._session
        limits = session.limits_of(request)
        if request.inputs:
            request = request.model_copy(update={"inputs": _as_recorded(request.inputs)})
        try:
            plan = None
            if request.plan_id is not None:
                plan = await approved_plan(session.services.journal, request)
            box = await session.contents.ready(limits, used=session.used)
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)
        session.contents.reads(request.code, request.inputs)
        if session.opening.toolbox.all() or session.services.gate.guards.runs or parent is not None:
            story = story_of(
                session, request, limits, actor=actor, named=run_id, parent=parent, call_id=call_id
            )
            return await self._driven(story, request, limits, box, plan, durable=durable)
        return await self._undriven(
            request, limits, box, durable=durable, actor=actor, run_id=run_id
        )

    async def _undriven(
        self,
        request: RunRequest,
        limits: SessionLimits,
        box: Box,
        *,
        durable: bool,
        actor: str | None,
        run_id: str | None,
    ) -> RunResult:
        """Run code that can call nobody: it always comes to its end."""
        session = self._session
        story: Story | None = None
        late: asyncio.TimerHandle | None = None

        async def meanwhile() -> None:
            nonlocal story, late
            story = story_of(session, request, limits, actor=actor, named=run_id)
            self._run_id = story.run_id
            late = asyncio.get_running_loop().call_later(LATE, self._tell, story)

        self._plain = task = asyncio.current_task()
        self._stopped, session.coming = False, None
        cancelling = 0 if task is None else task.cancelling()
        try:
            ran = await box.run(
                request.code,
                inputs=request.inputs,
                limits=limits,
                names=session.opening.discovery(limits),
                known=session.contents.known,
                meanwhile=meanwhile,
            )
        except asyncio.CancelledError:
            # Whoever waits for it may have given up as well. Nobody need stop it again.
            ours = self._stopped and task is not None and task.uncancel() <= cancelling
            self._stopped = True
            if story is not None:
                with anyio.CancelScope(shield=True):
                    await session.pen.append(story.cancelled(self._reason))
                session.limits = session.limits or story.session_limits
            if not ours:
                raise
            await session.contents.drop()
            # Its caller may have given up in the same moment: then nobody waits for a result.
            await anyio.lowlevel.checkpoint_if_cancelled()
            return self._cancelled_result(None if story is None else story.run_id)
        except CallerError as refusal:
            if story is not None or refusal.status is None:
                raise
            return failed(refusal)  # a bad request: nothing ran, nothing is recorded
        finally:
            self._plain = None
            if late is not None:
                late.cancel()
        story = story or story_of(session, request, limits, actor=actor, named=run_id)
        if not isinstance(ran, Ran):
            raise InternalError("Code stands at a call that nobody gave it.")
        result = told(session, result_of(story.run_id, ran, session.contents.warning))
        return await ended(
            session, story, ran, result, save=request.return_snapshot, durable=durable
        )

    async def _driven(
        self,
        story: Story,
        request: RunRequest,
        limits: SessionLimits,
        box: Box,
        plan: ApprovedPlan | None,
        *,
        durable: bool,
    ) -> RunResult:
        """Run code that can call out."""
        session = self._session
        opening, contents = session.opening, session.contents
        desk = await desk_of(session, story, plan)
        drive = drive_of(session, box, desk, Pasts(), limits)

        def begin() -> Awaitable[Stop]:
            return box.run(
                request.code,
                inputs=request.inputs,
                limits=limits,
                names=opening.discovery(limits),
                outside=opening.outside(),
                meant=opening.meant(request.code, contents),
                known=contents.known,
            )

        return await self._through(
            story, drive, begin, save=request.return_snapshot, durable=durable
        )

    # -- one that stands ------------------------------------------------------------------------------

    async def resume(self, run_id: str, *, durable: bool) -> RunResult:
        """Go on with a run that stands. One that is over, or still waits, is told about as it is."""
        session = self._session
        found = await find_standing(session.services, session.id, run_id, session.toolbox)
        if isinstance(found, RunResult):
            return found
        # Those it started with, whatever the session is opened with by now.
        limits = found.request.limits or session.limits or session.limits_of(found.request)
        story = story_of(
            session, found.request, limits, actor=found.actor, run_id=run_id, parent=found.parent
        )
        plan = await approved_plan(session.services.journal, found.request, used_by=run_id)
        if plan is not None:
            plan.took(found.pasts)
        desk = await desk_of(session, story, plan)
        desk.responses = found.pasts.responses
        session.open_run = run_id
        box, stop = await reopen(session, found, limits)
        resumed = RunResumed(how="state" if stop else "replay", reason=found.reason)
        await session.pen.append([Draft.of(resumed, run_id=run_id)])
        drive = drive_of(session, box, desk, found.pasts, limits, used_ms=found.wall_used_ms)

        def begin() -> Awaitable[Stop]:
            return _at(stop) if stop else again(session, box, found, limits)

        result = await self._through(
            story, drive, begin, save=True, durable=durable, reopened=stop is not None
        )
        if not found.request.return_snapshot:  # it is saved all the same
            result = result.model_copy(update={"snapshot_id": None})
        return result

    async def abandon(self, run_id: str, reason: str | None) -> None:
        """Cancel a run that stands."""
        session, guards = self._session, self._session.services.gate.guards
        request = RunRequest(session_id=session.id)
        story = story_of(session, request, session.opening.defaults(), run_id=run_id)
        await guards.run_cancelled(await desk_of(session, story, None))
        pasts = await withdraw(session, run_id)
        agent = run_id == session.open_agent
        # Questions to a model are no calls, and those of its code are counted with its code.
        ended = story.cancelled(reason, calls=0 if agent else len(pasts.calls), agent=agent)
        await session.pen.append(ended, durable=True)
        await guards.run_over(session.id, run_id, RunStatus.CANCELLED.value)

    # -- cancelling -----------------------------------------------------------------------------------

    def cancel(
        self, mode: CancelMode, run_id: str | None = None, reason: str | None = None
    ) -> bool:
        """Stop what runs here now; False when nothing does."""
        if run_id is not None and run_id != self._run_id:
            return False
        self._reason = reason
        if self._drive is not None:
            self._drive.request_cancel(mode)
            return True
        if self._plain is not None and not self._stopped:
            # It waits for the engine, and for nothing else. A scope for every run would cost more than all that
            # is done to begin one.
            self._stopped = True
            self._plain.cancel()
        return self._plain is not None

    async def look_for_cancel(self) -> None:
        """Whether somebody in another process wants the run stopped."""
        run_id, drive = self._run_id, self._drive
        if run_id is None or (drive is None and self._plain is None):
            return
        if drive is not None and not drive.desk.begun:
            return
        row = await self._session.services.journal.row("runs", run_id)
        mode = row.get("cancel") if row else None
        if mode is not None and (drive is None or drive.cancel != mode):
            self.cancel("now" if mode == "now" else "after_effect", run_id)

    # -- to the end -----------------------------------------------------------------------------------

    async def _through(
        self,
        story: Story,
        drive: Drive,
        begin: Callable[[], Awaitable[Stop]],
        *,
        save: bool,
        durable: bool,
        reopened: bool = False,
    ) -> RunResult:
        """Drive a run to its end, or to where it waits."""
        session = self._session
        self._drive, self._run_id = drive, story.run_id
        session.coming = None
        # Of one that is resumed before it called anybody, nobody knows whether hooks let it start.
        starts = not (drive.desk.begun and (reopened or drive.pasts.calls))
        if story.parent is not None:
            drive.desk.tell()  # those who watch the agent see its code before they see what came of it
        late = asyncio.get_running_loop().call_later(LATE, drive.desk.tell)
        try:
            if starts:
                await session.services.gate.guards.run_starts(drive.desk)
            end = await drive.go(begin(), reopened=reopened)
        except CancelRequested:
            return await self._cancelled(story, drive)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cancelled(story, drive)
            raise
        except CallerError as refusal:
            if drive.desk.begun or refusal.status is None:
                raise
            return failed(refusal)  # a bad request: nothing ran, nothing is recorded
        except HookInterrupts as failure:
            end = Parked(hook=failure, progress=Progress())
        except HoldfastError as failure:
            if failure.code not in ("HOOK_FAILED", "PERMISSION_DENIED"):
                raise
            return await hooked(session, story, drive, failure, durable=durable)
        finally:
            late.cancel()
            self._drive = None
        if isinstance(end, Ran):
            end = await may_complete(session, drive, end)
        if isinstance(end, Parked):
            return await self._parked(story, drive, end)
        return await self._over(story, drive, end, save=save, durable=durable)

    async def _over(
        self, story: Story, drive: Drive, end: Ran, *, save: bool, durable: bool
    ) -> RunResult:
        """It has come to its end, whatever that is."""
        session = self._session
        calls = drive.records(end.calls)
        result = told(session, result_of(story.run_id, end, session.contents.warning, calls))
        if drive.errands:
            result = await settled(session, story, drive, result, end.calls)
        session.contents.called(len(calls))
        return await ended(session, story, end, result, save=save, durable=durable)

    async def _parked(self, story: Story, drive: Drive, parked: Parked) -> RunResult:
        """Park it, unless its caller gave up meanwhile: then it is cancelled."""
        result: RunResult | None = None
        with anyio.CancelScope(shield=True):
            result = await park(self._session, story, drive, parked)
        assert result is not None
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._session.pen.take(monotonic() + LEASE_MS / 1000)
                await self.abandon(story.run_id, self._reason)
                self._session.open_run = None
            raise
        return result

    async def _cancelled(self, story: Story, drive: Drive) -> RunResult:
        session = self._session
        await undo(session, story, drive)
        calls = drive.records(())
        await session.pen.append(story.cancelled(self._reason, calls=len(calls)))
        session.limits = session.limits or story.session_limits
        session.open_run = None
        result = with_calls(self._cancelled_result(story.run_id), calls)
        guards = session.services.gate.guards
        await guards.run_over(session.id, story.run_id, result.status.value)
        return await naming_doubts(session, result)

    def stopped(self) -> RunResult:
        """What its caller gets of a run that was stopped before it had begun: nothing is on record."""
        return self._cancelled_result(None)

    def _cancelled_result(self, run_id: str | None) -> RunResult:
        reason, self._reason = self._reason, None
        return cancelled_result(run_id, reason)

    def _tell(self, story: Story) -> None:
        """Hand in that a run has started. Called by a timer: what goes wrong is told to whoever runs next."""
        session = self._session
        drafts = story.start()
        if not drafts:
            return
        try:
            session.pen.post(len(drafts), lambda: drafts)
            session.limits = session.limits or story.session_limits
        except HoldfastError as failure:
            session.pen.fail(failure)


def _as_recorded(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs as a replay gets them: code may look at the order of keys."""
    try:
        return json.loads(canonical_json(inputs))
    except CallerError:
        return inputs  # too much for JSON: the box says so, and why


async def _at(stop: Stop) -> Stop:
    return stop
