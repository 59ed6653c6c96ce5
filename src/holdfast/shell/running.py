"""One run of a session: started, parked where it waits, resumed, ended.

A run of code that touched nothing outside needs no sync, and no waiting: its records are handed to the journal
before the caller gets the answer, and are written a moment later. They keep their order, so whatever is on record
after them proves them too; a process that is killed in that very moment loses a computation, never an effect.
Whoever wants to wait for the disk says `durable`. A run that takes longer than `LATE` has its start handed in while
it computes, so that it leaves a trace if the machine dies with it; one that calls out has it on record before that.

A run that waits for a person is parked: the engine's state at the call is saved, and box and lease are given back.
To resume it, take that state or, without it, run the code again from the session's state, and answer each call from
the journal up to the first without a result. Both lead to the same place.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from holdfast.contracts import (
    Diagnostic,
    Draft,
    ErrorObject,
    ExternalCallRecord,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    canonical_json,
)
from holdfast.contracts.payload import RunResumed
from holdfast.errors import CallerError, HoldfastError, InternalError
from holdfast.gate.crossing import Desk, Outcome
from holdfast.gate.dryrun import ApprovedPlan
from holdfast.gate.past import Pasts
from holdfast.gate.redact import Redactor
from holdfast.journal.pen import LEASE_MS
from holdfast.shell.box import AtAwait, AtCall, Box, Ran, Stop
from holdfast.shell.definitions import Definitions
from holdfast.shell.drive import CancelMode, CancelRequested, Clock, Drive, Parked
from holdfast.shell.parking import park, withdraw
from holdfast.shell.plans import approved_plan
from holdfast.shell.refusals import hook_stopped
from holdfast.shell.services import outside_of
from holdfast.shell.standing import Standing, find_standing
from holdfast.shell.story import Story, cleaned, failed, result_of, was_cancelled

if TYPE_CHECKING:
    from holdfast.shell.session import Session

LATE = 0.001
"""Seconds after which the start of a run is handed in without waiting for its end."""

DEBT_MS = 100
DEBT_RUNS = 512
"""The state is saved once this much, or this many runs, would have to be replayed."""

CALL_DEBT_MS = 1
"""What replaying one call counts, beside computing."""


class Runner:
    """Runs code in one session, one run at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._drive: Drive | None = None
        self._plain: anyio.CancelScope | None = None
        """Ends a run of code that can call nobody."""
        self._stopped: tuple[anyio.CancelScope | None, str] | None = None
        """What ended such a run, and which."""
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
            plan = await approved_plan(session.services.journal, request)
            box = await session.ready(limits)
        except CallerError as refusal:
            if refusal.status is None:
                raise
            return failed(refusal)
        session.reads(request.code, request.inputs)
        if session.toolbox.all() or session.services.gate.guards.runs or parent is not None:
            story = self._story(
                request, limits, actor=actor, named=run_id, parent=parent, call_id=call_id
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
            story = self._story(request, limits, actor=actor, named=run_id)
            self._run_id = story.run_id
            late = asyncio.get_running_loop().call_later(LATE, self._tell, story)

        self._plain, session.coming = session.coming, None
        try:
            ran = await box.run(
                request.code,
                inputs=request.inputs,
                limits=limits,
                names=session.discovery(limits),
                meanwhile=meanwhile,
            )
            if self._plain is not None and self._plain.cancel_called:
                await anyio.lowlevel.checkpoint()  # it came to its end too late
        except anyio.get_cancelled_exc_class():
            if story is not None:
                with anyio.CancelScope(shield=True):
                    await session.pen.append(story.cancelled(self._reason))
                session.limits = session.limits or story.session_limits
                self._stopped = (self._plain, story.run_id)
            raise
        except CallerError as refusal:
            if story is not None or refusal.status is None:
                raise
            return failed(refusal)  # a bad request: nothing ran, nothing is recorded
        finally:
            self._plain = None
            if late is not None:
                late.cancel()
        story = story or self._story(request, limits, actor=actor, named=run_id)
        if not isinstance(ran, Ran):
            raise InternalError("Code stands at a call that nobody gave it.")
        result = self._told(result_of(story.run_id, ran, session.warning))
        return await self._ended(story, ran, result, save=request.return_snapshot, durable=durable)

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
        desk = await self._desk(story, plan, actor=story.actor)
        drive = self._drive_of(box, desk, Pasts(), limits)

        def begin() -> Awaitable[Stop]:
            return box.run(
                request.code,
                inputs=request.inputs,
                limits=limits,
                names=self._session.discovery(limits),
                outside=self._session.outside(),
                meant=self._session.meant(request.code),
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
        story = self._story(
            found.request, limits, actor=found.actor, run_id=run_id, parent=found.parent
        )
        plan = await approved_plan(session.services.journal, found.request, used_by=run_id)
        if plan is not None:
            plan.took(found.pasts)
        desk = await self._desk(story, plan, actor=found.actor)
        desk.responses = found.pasts.responses
        session.open_run = run_id
        box, stop = await self._reopened(found, limits)
        resumed = RunResumed(how="state" if stop else "replay", reason=found.reason)
        await session.pen.append([Draft.of(resumed, run_id=run_id)])
        drive = self._drive_of(box, desk, found.pasts, limits, used_ms=found.wall_used_ms)

        def begin() -> Awaitable[Stop]:
            return _at(stop) if stop else self._again(box, found, limits)

        return await self._through(
            story, drive, begin, save=True, durable=durable, reopened=stop is not None
        )

    def _again(self, box: Box, found: Standing, limits: SessionLimits) -> Awaitable[Stop]:
        session = self._session
        session.reads(found.request.code, found.request.inputs)
        return box.run(
            found.request.code,
            inputs=found.request.inputs,
            limits=limits,
            names=session.discovery(limits),
            # With what is gone by now: what it answered is on record.
            outside=outside_of(session.toolbox, found.pasts),
            meant=session.meant(found.request.code),
        )

    async def _reopened(
        self, found: Standing, limits: SessionLimits
    ) -> tuple[Box, AtCall | AtAwait | None]:
        """A box that stands where the run stood; or one in the session's state, to run the code again."""
        session = self._session
        if found.state is not None and found.inside is not None:
            await session.drop()
            try:
                box, stop = await session.boxes.reopen(
                    found.inside,
                    found.state,
                    found.progress,
                    code=found.request.code,
                    run_limits=limits,
                    names=session.discovery(limits),
                    outside=session.outside(),
                    inputs=found.request.inputs,
                )
            except CallerError:
                pass  # the code is still there
            else:
                session.box, session.names = box, set(found.names)
                session.definitions = Definitions(session.boxes, found.sources)
                return box, stop
        return await session.ready(limits), None

    async def abandon(self, run_id: str, reason: str | None) -> None:
        """Cancel a run that stands."""
        session = self._session
        await withdraw(self._session, run_id)
        story = self._story(RunRequest(session_id=session.id), session.defaults(), run_id=run_id)
        await session.pen.append(story.cancelled(reason), durable=True)

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
        if self._plain is not None:
            self._plain.cancel()
            return True
        return False

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
        resumed = drive.desk.begun
        if story.parent is not None:
            drive.desk.tell()  # those who watch the agent see its code before they see what came of it
        late = asyncio.get_running_loop().call_later(LATE, drive.desk.tell)
        try:
            if not resumed:
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
        except HoldfastError as failure:
            if failure.code not in ("HOOK_FAILED", "PERMISSION_DENIED"):
                raise
            return await self._hooked(story, drive, failure, durable=durable)
        finally:
            late.cancel()
            self._drive = None
        if isinstance(end, Parked):
            return await self._parked(story, drive, end)
        end = await self._may_complete(drive, end)
        calls = drive.records(end.calls)
        result = self._told(result_of(story.run_id, end, session.warning, calls))
        if drive.errands:
            result = await self._settled(story, drive, result, end.calls)
        session.debt_ms += CALL_DEBT_MS * len(calls)
        return await self._ended(story, end, result, save=save, durable=durable)

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

    async def _may_complete(self, drive: Drive, ran: Ran) -> Ran:
        """A hook may not let a run complete: then it fails, and its state is undone."""
        if ran.error is not None:
            return ran
        try:
            await self._session.services.gate.guards.run_completes(drive.desk)
        except HoldfastError as failure:
            if failure.code not in ("HOOK_FAILED", "PERMISSION_DENIED"):
                raise
            return hook_stopped(ErrorObject.of(failure))
        return ran

    async def _settled(
        self,
        story: Story,
        drive: Drive,
        result: RunResult,
        own: Sequence[tuple[int, ExternalCallRecord]],
    ) -> RunResult:
        """The run is over: nobody need answer what it asked, and what is in doubt is named."""
        if all(isinstance(errand.end, Outcome) for errand in drive.errands.values()):
            return result
        drive.pasts = await withdraw(self._session, story.run_id)
        result = result.model_copy(update={"external_calls": drive.records(own)})
        return await self._naming_doubts(result)

    async def _naming_doubts(self, result: RunResult) -> RunResult:
        """The result, with the effects of which nobody knows whether they happened."""
        row: dict[str, Any] = (
            await self._session.services.journal.row("runs", str(result.run_id)) or {}
        )
        doubts = tuple(map(str, row.get("in_doubt", ())))
        return result.model_copy(update={"in_doubt": doubts}) if doubts else result

    async def _ended(
        self, story: Story, ran: Ran, result: RunResult, *, save: bool, durable: bool
    ) -> RunResult:
        session = self._session
        session.pen.raise_failure()
        session.debt_ms += ran.metrics.duration_ms
        session.debt_runs += 1
        session.warning = None
        due = save or session.debt_runs >= DEBT_RUNS or session.debt_ms >= DEBT_MS
        if ran.state_kept:
            session.definitions.ran(story.code, ran)
        else:
            await session.drop()
        if durable or (ran.state_kept and due):
            await session.pen.append(story.end(ran, result), durable=durable)
        else:
            session.pen.post(story.pending, lambda: story.end(ran, result))
        session.limits = session.limits or story.session_limits
        session.open_run = None
        if ran.state_kept and due:
            digest = await session.save()
            if save:
                result = result.model_copy(update={"snapshot_id": digest})
        await session.services.gate.guards.run_over(session.id, story.run_id, result.status.value)
        return result

    async def _hooked(
        self, story: Story, drive: Drive, failure: HoldfastError, *, durable: bool
    ) -> RunResult:
        """A hook stopped the run, or failed where it may not."""
        error = ErrorObject.of(failure)
        await withdraw(self._session, story.run_id)
        ran = hook_stopped(error)
        result = self._told(result_of(story.run_id, ran, None, drive.records(())))
        drive.desk.tell()
        result = await self._naming_doubts(result)
        return await self._ended(story, ran, result, save=False, durable=durable)

    async def _cancelled(self, story: Story, drive: Drive) -> RunResult:
        session = self._session
        if session.pen.cut_off:
            await self._look_again(story, drive)
        session.pen.raise_failure()
        await session.drop()
        await session.services.gate.guards.run_cancelled(drive.desk)
        drive.pasts = await withdraw(self._session, story.run_id)
        await session.pen.append(story.cancelled(self._reason))
        session.limits = session.limits or story.session_limits
        session.open_run = None
        result = self._cancelled_result(story.run_id)
        result = result.model_copy(update={"external_calls": drive.records(())})
        return await self._naming_doubts(result)

    async def _look_again(self, story: Story, drive: Drive) -> None:
        """A write was cut off, and may have landed or not: find out where the stream stands."""
        session, journal = self._session, self._session.services.journal
        session.pen.lose()
        await session.pen.take(monotonic() + LEASE_MS / 1000)
        row = await journal.row("sessions", session.id)
        story.creates = row is None or row["status"] != "open"
        story.told = drive.desk.begun = await journal.row("runs", story.run_id) is not None

    def stopped(self, scope: anyio.CancelScope) -> RunResult:
        """What its caller gets of a run that `scope` ended; of one that had not begun, nothing is on record."""
        ended, self._stopped = self._stopped, None
        return self._cancelled_result(ended[1] if ended and ended[0] is scope else None)

    def _cancelled_result(self, run_id: str | None) -> RunResult:
        error, self._reason = was_cancelled(self._reason), None
        return RunResult(
            status=RunStatus.CANCELLED,
            diagnostics=(Diagnostic.error(error),),
            error=error,
            run_id=run_id,
        )

    # -- parts ----------------------------------------------------------------------------------------

    def _story(
        self,
        request: RunRequest,
        limits: SessionLimits,
        *,
        actor: str | None = None,
        run_id: str | None = None,
        named: str | None = None,
        parent: str | None = None,
        call_id: str | None = None,
    ) -> Story:
        session = self._session
        tools = session.toolbox.all()
        return Story(
            request,
            limits,
            session_limits=session.limits or session.defaults(),
            creates=session.limits is None,
            engine=session.boxes.engine,
            setup=session.setup if session.setup.model_fields_set else None,
            toolbox=session.toolbox.digest if tools else None,
            actor=actor,
            run_id=run_id,
            named=named,
            parent=parent,
            call_id=call_id,
        )

    async def _desk(self, story: Story, plan: ApprovedPlan | None, *, actor: str | None) -> Desk:
        session = self._session
        purses = await session.purses()
        return Desk(
            session_id=session.id,
            run_id=story.run_id,
            pen=session.pen,
            toolbox=session.toolbox,
            policy=session.policy,
            purses=purses,
            plan=plan,
            actor=actor or "holdfast",
            begin=story.start,
            begun=story.told,
        )

    def _drive_of(
        self, box: Box, desk: Desk, pasts: Pasts, limits: SessionLimits, *, used_ms: int = 0
    ) -> Drive:
        awaited = outside_of(self._session.toolbox, pasts)
        return Drive(
            box=box,
            performs=self._session.services.gate,
            desk=desk,
            pasts=pasts,
            clock=Clock(limits.wall_ms, used_ms / 1000),
            awaited=lambda name: awaited.get(name, False),
        )

    @property
    def _redactor(self) -> Redactor:
        return self._session.services.gate.redactor

    def _told(self, result: RunResult) -> RunResult:
        return cleaned(self._redactor, result)

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
