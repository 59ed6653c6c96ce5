"""One run of an agent: ask the model, do what it wants, go round; until it is done, must stop, or waits for somebody.

The turn machine (`machines/turn.py`) says what may follow what; here is one function for each of its phases. What
happened is in the journal before it is in the conversation, and in the conversation before the model is asked again,
so the run can end between any two lines here, and goes on there in another process (`resume.py`).

Records ride together where nothing is lost by it: an answer is recorded with the intent of the call it wants, and
that call's result with the next question. A turn with one call that changes something costs two commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import ClassVar

import anyio

from holdfast.agent.asked import Answered, Exhausted, Refusal, Retry, Spent, TooLong
from holdfast.agent.calls import Calls
from holdfast.agent.compact import Compaction
from holdfast.agent.consent import Left
from holdfast.agent.ending import End, cut_short, failed
from holdfast.agent.extraction import Extracting
from holdfast.agent.guards import HookStop
from holdfast.agent.history import history_of
from holdfast.agent.inbox import Inbox
from holdfast.agent.model_call import Asker
from holdfast.agent.standing import turn_of
from holdfast.agent.work import Work
from holdfast.contracts import Draft
from holdfast.contracts.agent import NoticeGiven
from holdfast.contracts.model import ModelAnswer
from holdfast.errors import HoldfastError, OperatorError
from holdfast.gate.hooks import HookInterrupts
from holdfast.machines import turn_inputs as t
from holdfast.machines.outcome import TERMINAL_PHASES, Cause, TurnPhase
from holdfast.machines.turn import TURN
from holdfast.shell.drive import CancelMode

_P = TurnPhase


class Loop:
    """Takes one run on. Make it at the start of a run or from its records; `go` it once."""

    def __init__(self, work: Work, turn: t.Turn, *, used_ms: int = 0) -> None:
        self.work = work
        self.run_id = work.run_id
        """The run."""
        self.turn = turn
        self.end = End()
        self.parked = False
        """Whether it stands: somebody has to decide, or to say what happened."""
        self.extracting = Extracting(work)
        self._asker = Asker(work)
        self._compaction = Compaction(work, self._asker)
        self._inbox = Inbox(work)
        self._started = monotonic() - used_ms / 1000
        self._scope = anyio.CancelScope()
        self._retry: Retry | None = None
        self._squeezed = False
        self._cancel: CancelMode | None = None
        self._pause: anyio.CancelScope | None = None

    async def go(self) -> None:
        """Go on until it is over, or stands. Raises what the caller can't mend by reading the result."""
        with self._scope:
            while self.turn.phase not in TERMINAL_PHASES and not self.parked:
                if self._cancel == "now":  # nothing has waited since
                    self._stopped()
                    break
                try:
                    await (self._phase() if self.work.unheard is None else self._hear())
                except Left:
                    self.parked = True
                except HookStop as stop:
                    self._hooked(stop.cause, stop.why)
                except OperatorError as why:
                    if why.code != "HOOK_FAILED":
                        raise
                    self._hooked(Cause.HOOK_FAILURE, why)
        if self._scope.cancelled_caught:
            self._stopped()

    def _phase(self) -> Awaitable[None]:
        return self._phases.get(self.turn.phase, Loop._cancelling)(self)

    async def _hear(self) -> None:
        """Hooks look at an answer that came before the process died: nobody knows whether they did."""
        work = self.work
        past, work.unheard = work.unheard, None
        if past is not None and await self._asker.unheard(past):
            # It does not count: the journal says so by now.
            history = await history_of(work.journal, work.session.id)
            work.transcript = history.transcript
            self.turn = turn_of(history, work)

    # -- phases ---------------------------------------------------------------------------------------

    async def _applying(self) -> None:
        """The prompt is part of the conversation; a hook may not want the run at all."""
        if self.work.guards.active:
            self._add(await self.work.guards.starts())
        self._apply(t.PrimitiveApplied(self.run_id))

    async def _calling(self) -> None:
        """Ask the model, unless the run has used up what it may."""
        work = self.work
        fresh = self._retry is None and work.open_question is None and not self._squeezed
        if self.turn.extraction is None and fresh and work.turn_no >= work.spec.max_turns:
            self.end.error = failed("MAX_TURNS", work.spec.max_turns)
            self._apply(t.TurnLimitReached(self.run_id))
            return
        if self._left_ms() == 0:
            self._out_of_time()
            return
        request = self.extracting.request if self.turn.extraction is not None else None
        if request is None:
            await self._assemble(fresh=fresh)
            if self.turn.cancel_requested:  # a summary may have been under way; the question is not
                self._stopped()
                return
        match await self._asker.ask(left_ms=self._left_ms(), asking=request, retry=self._retry):
            case Answered(answer, cut):
                self._retry, self._squeezed = None, False
                self._answered(answer, cut)
            case Retry() as retry:
                self._retry = retry
                self._apply(t.RecoverableFailure(self.run_id, retry.kind, retry.plan))
            case TooLong() as found:
                await self._too_long(found)
            case Spent(why):
                self._spent(why)
            case Refusal(why, cause):
                self._lost(why, cause)
            case Exhausted():
                self._out_of_time()

    async def _assemble(self, *, fresh: bool) -> None:
        """What is asked: with what hooks add once for each question, told in short where it got long."""
        work, left = self.work, self._left_ms()
        guards, transcript, turn = work.guards, work.transcript, work.turn_no + 1
        if fresh:
            await self._reach_boundary(turn)
        fresh = fresh and guards.active
        if fresh:
            self._add(await guards.before_context(turn, transcript.messages))
        if self._compaction.due():
            await self._compaction.check(left_ms=left)
        if fresh and await guards.after_context(turn, transcript.messages, transcript.tokens):
            await self._compaction.check(left_ms=left, wanted=True)

    async def _reach_boundary(self, turn: int) -> None:
        """Other tools count from here on, and the model is told; it is on record with the question."""
        work = self.work
        words = await work.session.boundary(turn)
        work.desk.toolbox = work.session.toolbox
        if words:
            given = [
                Draft.of(NoticeGiven(turn=turn, text=one), run_id=self.run_id) for one in words
            ]
            work.desk.hold(given, durable=False)
            self._add(words)

    def _add(self, words: list[str]) -> None:
        """What hooks say is part of the conversation; it is on record."""
        for text in words:
            self.work.transcript.user(text, notice=True)

    async def _too_long(self, found: TooLong) -> None:
        """The conversation does not fit: told in short it may; else into a model that takes more."""
        if not self._squeezed:
            self._squeezed = True
            if await self._compaction.check(left_ms=self._left_ms(), force=True):
                return  # and ask again
        match await self._asker.elsewhere(found, self._retry, self._left_ms()):
            case Retry() as retry:
                self._retry = retry
                self._apply(t.RecoverableFailure(self.run_id, retry.kind, retry.plan))
            case Refusal(why, cause):
                self._lost(why, cause)

    def _answered(self, answer: ModelAnswer, cut: bool) -> None:
        calls = [part for part in answer.parts if part.kind == "tool_call"]
        if calls and self.turn.extraction is not None:
            self.extracting.error = self.extracting.calls_instead(calls)
            self._apply(t.ExtractionFailed(self.run_id, self.extracting.error))
        elif calls:
            self._apply(t.LlmReturnedToolCalls(self.run_id, len(calls)))
        elif cut and self.turn.extraction is None:
            self.end.error = cut_short()
            self._apply(t.BudgetExhausted(self.run_id))
        else:
            self._apply(t.LlmReturnedTerminal(self.run_id))

    async def _acting(self) -> None:
        """Make the calls of the answer; every one of them has its result before the boundary."""
        if self.turn.cancel_requested:  # nothing new is begun
            self._stopped()
            return
        calls = self.work.transcript.open_calls()
        if self.turn.batch is not None and not self.turn.batch.registered:
            ids = frozenset([call.id for call in calls])
            self._apply(t.RegisterPendingOps(self.run_id, ids, ids))
        if calls:
            making = Calls(self.work)
            await making.make(calls)
            self._asker.warn()
            if making.standing:
                self.end.error, self.parked = making.hook, True
                return
            if making.left_out:
                self._stopped()
                return
        if self.turn.batch is not None and self.turn.batch.barrier:
            self._apply(t.OpsBarrierSatisfied(self.run_id, self.turn.batch.barrier))
        self._apply(t.ToolCallsResolved(self.run_id))

    async def _boundary(self) -> None:
        """Between two questions: take in what was said meanwhile, and see whether there is more to do."""
        if self.turn.extraction is not None:
            self._apply(t.EnterExtraction(self.run_id, self.work.spec.output_retries))
            return
        last = self.work.transcript.messages[-1]
        done = last.role == "assistant"  # `isinstance` takes ten times as long to say no of a model
        steered = False
        # At the end it looks even if nobody has said that there is something.
        if self._cancel is None and (done or self.work.nudged):
            steered = await self._inbox.take()
        if steered or not done or not await self._may_complete():
            self._apply(t.BoundaryContinue(self.run_id))
        elif (
            self.work.output is None
            or self.turn.cancel_requested
            or await self.extracting.fits(last)
        ):
            self._apply(t.BoundaryComplete(self.run_id))
        else:
            self._apply(t.EnterExtraction(self.run_id, self.work.spec.output_retries))

    async def _may_complete(self) -> bool:
        """Whether no hook wants more done; a run that is cancelled is not sent back to work."""
        work = self.work
        if not work.guards.active or self.turn.cancel_requested:
            return True
        words = await work.guards.completes(work.turn_no, work.transcript.last_text)
        self._add(words)
        return not words

    async def _extracting(self) -> None:
        """Ask for the structured output, or judge the answer to that."""
        asked = self.turn.extraction
        assert asked is not None
        if self.work.output is None:  # resumed by an agent that has no shape for it
            self._no_output("the agent wants none any more")
            return
        if not asked.answered:
            self.extracting.ask()
            self._apply(t.ExtractionStart(self.run_id))
            return
        wrong = await self.extracting.judge()
        if wrong is None:
            self._apply(t.ExtractionValidationPassed(self.run_id))
        elif self.extracting.stopped:
            self._apply(t.ExtractionFailed(self.run_id, wrong))
        else:
            self._apply(t.ExtractionValidationFailed(self.run_id, wrong))

    async def _recovering(self) -> None:
        """Wait, then ask again."""
        retry = self._retry
        assert retry is not None
        await self.work.desk.settle()  # whoever watches it knows why nothing happens
        with anyio.CancelScope() as self._pause:
            if not self.turn.cancel_requested:
                await self.work.sleep(retry.plan.selected_delay_ms / 1000)
        self._pause = None
        if self.turn.cancel_requested:
            self._stopped()
        else:
            self._apply(t.RetryRequested(self.run_id, retry.plan.attempt))

    async def _cancelling(self) -> None:
        self._stopped()

    _phases: ClassVar[dict[TurnPhase, Callable[[Loop], Awaitable[None]]]] = {
        _P.APPLYING_PRIMITIVE: _applying,
        _P.CALLING_LLM: _calling,
        _P.WAITING_FOR_OPS: _acting,
        _P.DRAINING_BOUNDARY: _boundary,
        _P.EXTRACTING: _extracting,
        _P.ERROR_RECOVERY: _recovering,
    }

    # -- endings --------------------------------------------------------------------------------------

    def _spent(self, why: HoldfastError) -> None:
        """A budget has no room for the next question: the run stands there until somebody raises it."""
        if self.turn.extraction is not None:
            self._no_output(why.message)
            return
        if self.turn.cancel_requested:  # nobody wants it to go on
            self._stopped()
            return
        self.end.error = why
        self.parked = True

    def _lost(self, why: HoldfastError, cause: Cause) -> None:
        if self.turn.extraction is not None:
            self._no_output(why.message)
        else:
            self._fail(cause, why)

    def _out_of_time(self) -> None:
        if self.turn.extraction is not None:
            self._no_output("the run's time is up")
            return
        self.end.error = failed("TIMEOUT_WALL", self.work.spec.timeout_ms or 0)
        self._apply(t.TimeBudgetExceeded(self.run_id))

    def _no_output(self, why: str) -> None:
        self.extracting.error = self.extracting.error or why
        self._apply(t.ExtractionFailed(self.run_id, why))

    def _hooked(self, cause: Cause, why: HoldfastError) -> None:
        """A hook ends the run; or it failed, and the run stands there until it is repaired."""
        if isinstance(why, HookInterrupts):
            self.end.error, self.parked = why, True
        else:
            self._fail(cause, why)

    def _fail(self, cause: Cause, why: HoldfastError) -> None:
        self.end.error = why
        self._apply(t.FatalFailure(self.run_id, cause, why.message))

    def _stopped(self) -> None:
        """It was cancelled, and whatever was under way has stopped."""
        if self.turn.phase in TERMINAL_PHASES:
            return
        if self.turn.phase is not _P.CANCELLING:
            self._apply(t.CancelNow(self.run_id))
        self._apply(t.CancellationObserved(self.run_id))

    def cancel(self, mode: CancelMode, reason: str | None = None) -> None:
        """Stop now, or once what is under way has ended: then no call is made any more."""
        if self.turn.phase in TERMINAL_PHASES or self._cancel == "now":
            return
        self._cancel = mode
        self.end.reason = reason or self.end.reason
        if mode == "now":
            self._scope.cancel()
            return
        if not self.turn.cancel_requested and self.turn.phase is not _P.CANCELLING:
            self._apply(t.RequestCancelAfterBoundary(self.run_id))
        self.work.stopping = True
        self.work.session.runner.cancel(mode)
        if self._pause is not None:
            self._pause.cancel()

    @property
    def cancel_wanted(self) -> bool:
        """Whether somebody wants it stopped."""
        return self._cancel is not None

    def cancelled(self) -> None:
        """Its caller gave up: whatever was under way has stopped."""
        self.parked = False
        self._stopped()

    # -- parts ----------------------------------------------------------------------------------------

    def _left_ms(self) -> int | None:
        """The time that is left; `None`: as much as it likes."""
        limit = self.work.spec.timeout_ms
        if limit is None:
            return None
        return max(0, limit - int((monotonic() - self._started) * 1000))

    def _apply(self, input_: object) -> None:
        self.turn = TURN.advance(self.turn, input_)
